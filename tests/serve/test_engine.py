"""An engine: batches, callers that go away, faults of its own, and how it is closed."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import threading

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import engine as module
from ensemble_sampling.serve.engine import Engine, Pools
from ensemble_sampling.serve.types import Choose, Learn, Refused

pytestmark = pytest.mark.anyio
AGENT = es.EnsembleSampling(es.Linear(dim=2), members=4)


class Opened:
    """An engine that has decided once, and then waits before whatever it does until it `may`."""

    def __init__(self, engine):
        self.engine, self._work = engine, engine.decider.work
        self.working, self.may = threading.Event(), threading.Event()
        engine.decider.work = self._waiting

    def _waiting(self, *given, **named):
        self.working.set()
        assert self.may.wait(60)
        return self._work(*given, **named)

    async def choose(self, event):
        """The number of a decision."""
        (made,) = await self.engine.decide([Choose(np.eye(2).tolist(), event=event)])
        return int(made.id.rpartition("-")[2])

    async def begun(self, event):
        """A decision that is being made."""
        task = asyncio.create_task(self.choose(event))
        await asyncio.to_thread(self.working.wait, 60)
        return task


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def slow(tmp_path):
    engine, pools = Engine("shop", tmp_path, Options(AGENT)), Pools()
    engine.start(pools)
    await engine.decide([Choose(np.eye(2).tolist())])
    opened = Opened(engine)
    yield opened
    opened.may.set()
    await engine.close()
    pools.close()


@pytest.fixture
async def opened(slow):
    slow.may.set()
    return slow


async def together(*waiting):
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_fault_of_ours_is_no_refusal_and_spares_the_requests_beside_it(opened, monkeypatch):
    decider = opened.engine.decider
    record = decider._record

    def faulty(groups):
        if any(draft.request.event == "ill" for group in groups for draft in group):
            raise ValueError("a mistake of ours")
        return record(groups)

    monkeypatch.setattr(decider, "_record", faulty)
    for _ in range(3):  # however they happen to come together
        one, ill, two = await together(*map(opened.choose, ("one", "ill", "two")))
        assert type(ill) is ValueError
        assert {one, two} == {1, 2}
    assert opened.engine.reader.page(0, 10).count == 3


async def test_where_the_ledger_is_is_for_the_log_alone(opened, monkeypatch, caplog):
    def away(*_, **__):
        raise OSError("cannot write to the ledger in /srv/secret: away")

    monkeypatch.setattr(opened.engine.decider, "work", away)
    found = await together(opened.choose("e1"), opened.choose("e2"))
    with pytest.raises(Refused) as told, opened.engine.used():
        away()
    assert opened.engine.users == 0
    for refused in (*found, told.value):
        assert refused.kind == "unavailable"
        assert "secret" not in str(refused)
    assert len([record for record in caplog.records if "/srv/secret" in record.getMessage()]) == 1


async def test_an_outcome_is_learned_soon_however_seldom_it_is_looked_for(opened, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 60.0)
    monkeypatch.setattr(module, "SELDOM", 60.0)
    await asyncio.sleep(0.3)  # until it has looked for the last time
    made = await opened.engine.decide([Choose(np.eye(2).tolist())])
    assert await opened.engine.learn([Learn(made[0].id, 1.0)]) == [True]
    async with asyncio.timeout(30):
        while opened.engine.status()["learned"] == 0:
            await asyncio.sleep(0.01)


async def test_a_database_that_neither_answers_nor_goes_is_not_waited_for(slow, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    for event in ("taken up", "in the queue"):
        with pytest.raises(Refused, match="does not answer"):
            await slow.choose(event)
    monkeypatch.setattr(module, "PATIENCE", 60)
    slow.may.set()
    assert await slow.choose("later") == 2  # what nobody waited for was not begun


async def test_who_has_gone_is_not_worked_for_and_keeps_no_answer_from_the_others(slow):
    taken = await slow.begun("taken up")
    queued = [asyncio.create_task(slow.choose(event)) for event in ("gone", "two", "three")]
    await asyncio.sleep(0.01)
    taken.cancel()
    queued[0].cancel()
    slow.may.set()
    taken, gone, two, three = await together(taken, *queued)
    assert isinstance(taken, asyncio.CancelledError)
    assert isinstance(gone, asyncio.CancelledError)
    assert (two, three) == (2, 3)  # what was begun is recorded, what was not is not


async def test_what_is_asked_when_it_is_closed_is_answered_and_nothing_after(slow):
    first = await slow.begun("one")
    closing = asyncio.create_task(slow.engine.close())
    await asyncio.sleep(0.01)
    with pytest.raises(Refused, match="the service is ending"):
        await slow.choose("late")
    slow.may.set()
    await closing
    assert await first == 1


async def test_what_hangs_when_it_is_closed_is_given_up(slow, monkeypatch):
    monkeypatch.setattr(module, "ENDING", 0.2)
    asking = await slow.begun("one")
    await asyncio.to_thread(slow.may.clear)
    closing = asyncio.create_task(slow.engine.close())
    with pytest.raises(Refused, match="the service is ending"):
        await asking
    slow.may.set()
    await closing


def test_an_engine_values_offers_by_what_is_known_now(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.learn(bandit.choose(np.eye(2)).id, 1.0)
        now = bandit.predict(np.eye(2)).values
    engine = Engine("shop", tmp_path, Options(AGENT))
    (one,) = engine.reader.recent(1)
    engine.updater.close()
    engine.replicas.close()
    told = {action["name"]: (action["mean"], action["spread"]) for action in one["actions"]}
    assert now is not None
    assert told == {k: (pytest.approx(now.mean[k]), pytest.approx(now.spread[k])) for k in (0, 1)}


@pytest.fixture
async def fresh(tmp_path):
    """A shop that nobody has visited, whose programs are compiled when `may` is set."""
    engine, pools, may = Engine("shop", tmp_path, Options(actions=["a", "b", "c"])), Pools(), []
    prepare, allowed = engine.decider.prepare, threading.Event()

    def later(*given):
        may.append(given)
        assert allowed.wait(60)
        return prepare(*given)

    engine.decider.prepare = later
    engine.start(pools)
    yield engine, allowed, may
    allowed.set()
    await engine.close()
    pools.close()


async def test_the_first_visitors_need_not_wait_until_programs_are_compiled(fresh):
    engine, allowed, asked = fresh
    visitor = Choose(context={"device": "phone"}, available=["a", "c"])
    (made,) = await engine.decide([visitor])
    for _ in range(3):
        assert (made.probabilities, made.mean) == ([0.5, 0.0, 0.5], None)
        assert made.action in "ac"
        (made,) = await engine.decide([visitor])
    assert len(asked) <= 2  # for one shape, and for the last decisions
    allowed.set()
    async with asyncio.timeout(60):
        while made.mean is None:
            (made,) = await engine.decide([visitor])
            await asyncio.sleep(0.02)
    assert sum(made.probabilities) == pytest.approx(1)
    assert made.probabilities[1] == 0
    assert await engine.learn([Learn(made.id, 1.0)]) == [True]


async def test_what_was_learned_is_waited_for(fresh):
    engine, allowed, _ = fresh
    allowed.set()
    (made,) = await engine.decide([Choose(context={"device": "phone"})])
    await engine.learn([Learn(made.id, 1.0)])
    async with asyncio.timeout(120):
        while engine.status()["learned"] == 0:
            await asyncio.sleep(0.02)
    engine.decider._sizes.clear()  # as for an offer of a new shape
    (made,) = await engine.decide([Choose(context={"device": "phone"})])
    assert made.mean is not None


async def test_a_declared_agent_is_compiled_before_its_first_visitor(tmp_path):
    for place, agent, given in (
        ("linear", AGENT, Choose(np.eye(2).tolist())),
        ("arms", es.EnsembleSampling(es.IndependentArms(3), 4), Choose()),
        ("context", es.EnsembleSampling(es.PerAction(es.Linear(2), 3), 4), Choose(context=[1, 2])),
    ):
        engine, pools = Engine("shop", tmp_path / place, Options(agent)), Pools()
        engine.decider.warm(60.0)
        compiled = dict(engine.decider._sizes)
        engine.start(pools)
        (made,) = await engine.decide([given])
        assert made.mean is not None
        assert len(compiled) == 1
        assert engine.decider._sizes.keys() == compiled.keys()
        await engine.close()
        pools.close()
