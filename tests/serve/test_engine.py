"""An engine: batches, callers that go away, faults of its own, and how it is closed."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import inspect
import threading
from functools import wraps

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import engine as module
from ensemble_sampling.serve.engine import Engine, Pools
from ensemble_sampling.serve.types import Choose, Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2), members=4)


class Opened:
    """An engine that has decided once. Where it is `slow`, whatever it does waits for `may`."""

    def __init__(self, place, slow=False):
        self.place, self.slow = place, slow
        self.working, self.may = threading.Event(), threading.Event()

    async def __aenter__(self):
        self.pools = Pools()
        self.engine = await asyncio.to_thread(Engine, "shop", self.place, Options(AGENT))
        self.engine.start(self.pools)
        await self.choose("first")
        if self.slow:
            work = self.engine.decider.work

            def waiting(*given, **named):
                self.working.set()
                assert self.may.wait(60)
                return work(*given, **named)

            self.engine.decider.work = waiting
        return self

    async def __aexit__(self, *_):
        self.may.set()
        await self.engine.close()
        self.pools.close()

    async def choose(self, event):
        """The number of a decision."""
        (made,) = await self.engine.decide([Choose(np.eye(2).tolist(), event=event)])
        return int(made.id.rpartition("-")[2])

    async def begun(self, event):
        """A decision that is being made."""
        task = asyncio.create_task(self.choose(event))
        await asyncio.to_thread(self.working.wait, 60)
        return task


def scenario(test):
    """Runs a test that is a coroutine function."""

    @wraps(test)
    def run(tmp_path, monkeypatch, caplog):
        known = {"tmp_path": tmp_path, "monkeypatch": monkeypatch, "caplog": caplog}
        asyncio.run(test(**{name: known[name] for name in inspect.signature(test).parameters}))

    vars(run).pop("__wrapped__")
    return run


async def together(*waiting):
    return await asyncio.gather(*waiting, return_exceptions=True)


@scenario
async def test_a_fault_of_ours_is_no_refusal_and_spares_the_requests_beside_it(
    tmp_path, monkeypatch
):
    async with Opened(tmp_path) as opened:
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


@scenario
async def test_where_the_ledger_is_is_for_the_log_alone(tmp_path, monkeypatch, caplog):
    def away(*_, **__):
        raise OSError("cannot write to the ledger in /srv/secret: away")

    async with Opened(tmp_path) as opened:
        monkeypatch.setattr(opened.engine.decider, "work", away)
        found = await together(opened.choose("e1"), opened.choose("e2"))
        with pytest.raises(Refused) as told, opened.engine.used():
            away()
        assert opened.engine.users == 0
    for refused in (*found, told.value):
        assert refused.kind == "unavailable"
        assert "secret" not in str(refused)
    assert len([record for record in caplog.records if "/srv/secret" in record.getMessage()]) == 1


@scenario
async def test_a_database_that_neither_answers_nor_goes_is_not_waited_for(tmp_path, monkeypatch):
    async with Opened(tmp_path, slow=True) as opened:
        monkeypatch.setattr(module, "PATIENCE", 0.2)
        for event in ("taken up", "in the queue"):
            with pytest.raises(Refused, match="does not answer"):
                await opened.choose(event)
        monkeypatch.setattr(module, "PATIENCE", 60)
        opened.may.set()
        assert await opened.choose("later") == 2  # what nobody waited for was not begun


@scenario
async def test_who_has_gone_is_not_worked_for_and_keeps_no_answer_from_the_others(tmp_path):
    async with Opened(tmp_path, slow=True) as opened:
        taken = await opened.begun("taken up")
        queued = [asyncio.create_task(opened.choose(event)) for event in ("gone", "two", "three")]
        await asyncio.sleep(0.01)
        taken.cancel()
        queued[0].cancel()
        opened.may.set()
        taken, gone, two, three = await together(taken, *queued)
        assert isinstance(taken, asyncio.CancelledError)
        assert isinstance(gone, asyncio.CancelledError)
        assert (two, three) == (2, 3)  # what was begun is recorded, what was not is not


@scenario
async def test_what_is_asked_when_it_is_closed_is_answered_and_nothing_after(tmp_path):
    async with Opened(tmp_path, slow=True) as opened:
        first = await opened.begun("one")
        closing = asyncio.create_task(opened.engine.close())
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="the service is ending"):
            await opened.choose("late")
        opened.may.set()
        await closing
        assert await first == 1


@scenario
async def test_what_hangs_when_it_is_closed_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENDING", 0.2)
    async with Opened(tmp_path, slow=True) as opened:
        asking = await opened.begun("one")
        await asyncio.to_thread(opened.may.clear)
        closing = asyncio.create_task(opened.engine.close())
        with pytest.raises(Refused, match="the service is ending"):
            await asking
        opened.may.set()
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
