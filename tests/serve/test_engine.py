"""An engine: batches, callers that go away, faults of its own, and how it is closed."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import logging
import threading
import time

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import engine as module
from ensemble_sampling.serve.engine import Engine, Pool
from ensemble_sampling.serve.types import Choose, Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2), members=4)


@pytest.fixture
def engine(tmp_path):
    made = Engine("shop", tmp_path / "shop", Options(AGENT))
    yield made
    made.close()


@pytest.fixture
def slow(engine, monkeypatch):
    """Makes whatever is done wait: (whether it waits, what lets it go on)."""
    asked(engine, "first")
    work, working, may = engine.decider.work, threading.Event(), threading.Event()

    def waiting(*given, **named):
        working.set()
        assert may.wait(60)
        return work(*given, **named)

    monkeypatch.setattr(engine.decider, "work", waiting)
    yield working, may
    may.set()


def choose(engine, event):
    return engine.decide([Choose(np.eye(2).tolist(), event=event)])


def asked(engine, *events):
    """What is answered: the numbers of decisions, or what was raised."""

    async def together():
        waiting = [choose(engine, event) for event in events]
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = asyncio.run(together())
    return [each if isinstance(each, Exception) else number(each) for each in found]


def number(made):
    return int(made[0].id.rpartition("-")[2])


def test_a_fault_of_ours_is_no_refusal_and_spares_the_requests_beside_it(engine, monkeypatch):
    asked(engine, "first")
    record = engine.decider._record

    def faulty(groups):
        if any(draft.request.event == "ill" for group in groups for draft in group):
            raise ValueError("a mistake of ours")
        return record(groups)

    monkeypatch.setattr(engine.decider, "_record", faulty)
    for _ in range(3):  # however they happen to come together
        one, ill, two = asked(engine, "one", "ill", "two")
        assert type(ill) is ValueError
        assert {one, two} == {1, 2}
    assert engine.reader.page(0, 10).count == 3


def test_where_the_ledger_is_is_for_the_log_alone(engine, monkeypatch, caplog):
    def away(*_, **__):
        raise OSError("cannot write to the ledger in /srv/secret: away")

    monkeypatch.setattr(engine.decider, "work", away)
    with caplog.at_level(logging.ERROR):
        found = asked(engine, "e1", "e2")
        with pytest.raises(Refused) as told, engine.used():
            away()
    for refused in (*found, told.value):
        assert refused.kind == "unavailable"
        assert "secret" not in str(refused)
    assert len([record for record in caplog.records if "/srv/secret" in record.getMessage()]) == 1
    assert engine.users == 0


def test_a_database_that_neither_answers_nor_goes_is_not_waited_for(engine, slow, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    for event in ("taken up", "in the queue"):
        (found,) = asked(engine, event)
        assert (type(found), found.kind) == (Refused, "unavailable")
    monkeypatch.setattr(module, "PATIENCE", 60)
    slow[1].set()
    assert asked(engine, "later") == [2]  # what nobody waited for any more was not begun


def test_who_has_gone_is_not_worked_for_and_keeps_no_answer_from_the_others(engine, slow):
    working, may = slow

    async def together():
        taken = asyncio.create_task(choose(engine, "taken up"))
        await asyncio.to_thread(working.wait, 60)
        queued = [asyncio.create_task(choose(engine, event)) for event in ("gone", "two", "three")]
        while len(engine._queue) < 3:
            await asyncio.sleep(0.01)
        taken.cancel()
        queued[0].cancel()
        may.set()
        return await asyncio.gather(taken, *queued, return_exceptions=True)

    taken, gone, two, three = asyncio.run(together())
    assert isinstance(taken, asyncio.CancelledError)
    assert isinstance(gone, asyncio.CancelledError)
    # What was begun is recorded, what was not is not.
    assert [number(two), number(three)] == [2, 3]
    assert engine._unanswered == set()


def test_a_loop_that_has_ended_waits_for_no_answer(engine, slow):
    async def leave():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(choose(engine, "gone"), 0.05)

    asyncio.run(leave())
    slow[1].set()
    assert asked(engine, "later") == [2]


def test_what_is_asked_when_it_is_closed_is_answered_and_nothing_after(engine, slow):
    working, may = slow

    async def together():
        first = asyncio.create_task(choose(engine, "one"))
        await asyncio.to_thread(working.wait, 60)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        while not engine._ending:
            await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="the service is ending"):
            await choose(engine, "late")
        may.set()
        await closing
        return await first

    assert number(asyncio.run(together())) == 1


def test_what_hangs_when_it_is_closed_is_given_up(engine, slow, monkeypatch):
    monkeypatch.setattr(module, "ENDING", 0.2)

    async def together():
        asking = asyncio.create_task(choose(engine, "one"))
        await asyncio.to_thread(slow[0].wait, 60)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        with pytest.raises(Refused, match="the service is ending"):
            await asking
        slow[1].set()
        await closing

    asyncio.run(together())


def test_jobs_are_done_when_they_are_due_and_in_that_order():
    pool, done, end = Pool("test", 1), [], threading.Event()
    began = time.monotonic()
    for wait in (0.2, 0.1, 0.3):
        pool.add(lambda wait=wait: done.append((wait, time.monotonic() - began)), began + wait)
    pool.add(lambda: done.append(1 / 0))  # which is no other's fault
    pool.add(end.set, began + 0.4)
    assert end.wait(30)
    assert [wait for wait, _ in done] == [0.1, 0.2, 0.3]
    assert all(late >= wait for wait, late in done)
    pool.close()
    pool.add(end.clear)
    assert end.is_set()


def test_an_engine_values_offers_by_what_is_known_now(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.learn(bandit.choose(np.eye(2)).id, 1.0)
        now = bandit.predict(np.eye(2)).values
    engine = Engine("shop", tmp_path, Options(AGENT))
    (one,) = engine.reader.recent(1)
    engine.close()
    told = {action["name"]: (action["mean"], action["spread"]) for action in one["actions"]}
    assert now is not None
    assert told == {k: (pytest.approx(now.mean[k]), pytest.approx(now.spread[k])) for k in (0, 1)}
