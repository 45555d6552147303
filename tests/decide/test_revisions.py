"""Outcomes that are corrected, or add up: recorded as new facts, and learned as if known before."""

import contextlib
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from states import equal, interrupted

import ensemble_sampling as es
from ensemble_sampling.decide import replica
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger.ledger import Ledger

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFERS = np.random.default_rng(0).normal(size=(40, 3, 2))
DECIDE = str(Path(replica.__file__).parent)


def ids_of(bandit, count=30):
    return [d.id for d in bandit.choose_many(list(OFFERS[:count]))]


def as_if_known(outcomes, agent=AGENT):
    """The state of a bandit that was told these outcomes at once, in their order."""
    bandit = es.Bandit(agent)
    ids = ids_of(bandit)
    for n, y in outcomes:
        bandit.learn(ids[n], y)
    return bandit.state


@pytest.mark.parametrize("mark", [3, 1000])
@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("late", [0, 17, 23])
def test_a_corrected_outcome_is_learned_as_if_known_before(
    tmp_path, where, mark, late, monkeypatch
):
    monkeypatch.setattr(replica, "MARK", mark)
    order = np.random.default_rng(1).permutation(24).tolist()
    truth = {n: float(np.sin(n)) for n in order}
    bandit = es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path, AGENT)
    ids = ids_of(bandit)
    for n in order:
        bandit.learn(ids[n], truth[n])
        if where == "disk" and n == order[12]:
            bandit.save()
    wrong = order[late]
    before = bandit.state
    assert bandit.correct(ids[wrong], 5.0)
    truth[wrong] = 5.0
    expected = as_if_known([(n, truth[n]) for n in order])
    assert not equal(before, expected)
    assert equal(bandit.state, expected)
    bandit.learn(ids[25], 1.0)
    expected = as_if_known([*((n, truth[n]) for n in order), (25, 1.0)])
    assert equal(bandit.state, expected)
    if where == "disk":
        bandit._ledger.close()  # as if killed: the snapshot is from before it all
        bandit = es.Bandit.open(tmp_path, AGENT)
        assert equal(bandit.state, expected)
        bandit.close()
        for missing in (False, True):
            (tmp_path / "state.safetensors").unlink() if missing else None
            with es.Bandit.open(tmp_path, AGENT) as bandit:
                assert equal(bandit.state, expected)


def test_only_what_came_after_the_last_state_at_hand_is_learned_again(monkeypatch):
    monkeypatch.setattr(replica, "MARK", 8)
    bandit = es.Bandit(AGENT, normalise=False)
    ids = ids_of(bandit)
    bandit.learn_many([(id, 1.0) for id in ids])
    programs: Any = bandit._replica.programs
    learn, calls = programs._learn_slip, []
    programs._learn_slip = lambda *given: calls.append(1) or learn(*given)
    for id in ids[26:29]:
        bandit.correct(id, 0.0)
    assert not calls  # not before it is needed
    bandit.choose(OFFERS[0])
    assert len(calls) == 6  # the last was remembered after 24 outcomes
    bandit.correct(ids[17], 0.0)
    bandit.choose(OFFERS[0])
    assert len(calls) == 6 + 14
    bandit.correct(ids[2], 0.0)
    bandit.choose(OFFERS[0])
    assert len(calls) == 6 + 14 + 30


@pytest.mark.parametrize(
    "agent",
    [es.EstimatorEnsemble(Ridge, members=2), es.Uniform(), es.EnsembleSampling(es.Linear(2), 3)],
    ids=["estimators", "uniform", "scales"],
)
def test_every_kind_of_agent_follows(agent):
    bandit = es.Bandit(agent)
    ids = ids_of(bandit)
    bandit.learn_many([(id, 1.0) for id in ids[:20]])
    bandit.correct(ids[3], -2.0)
    other = es.Bandit(agent)
    theirs = ids_of(other)
    other.learn_many([(id, -2.0 if n == 3 else 1.0) for n, id in enumerate(theirs[:20])])
    for offer in OFFERS[30:]:
        assert np.array_equal(bandit.choose(offer).probabilities, other.choose(offer).probabilities)


def test_amounts_add_up_and_a_reference_counts_once(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        ids = ids_of(bandit)
        assert bandit.add(ids[0], 1.5, ref="order 1")
        assert bandit.add(ids[0], 2.0)
        assert not bandit.add(ids[0], 1.5, ref="order 1")
        assert bandit.add(ids[0], -0.5, ref="return 1")
        assert bandit.add(ids[1], 1.0)
        assert bandit.add(ids[1], 1.0)  # without a reference every call counts
        with pytest.raises(ValueError, match=r"'order 1' added 1\.5 to decision .* cannot add 9"):
            bandit.add(ids[0], 9.0, ref="order 1")
        log = bandit.log()
        state = bandit.state
    assert log["outcome"][:3] == [3.0, 2.0, None]
    assert log["reward"][:3] == [3.0, 2.0, None]
    assert log["first"][:3] == [1.5, 1.0, None]
    assert equal(state, as_if_known([(0, 3.0), (1, 2.0)]))
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert not bandit.add(ids[0], 1.5, ref="order 1")
        assert bandit.log() == log
        assert equal(bandit.state, state)


def test_the_log_says_what_was_revised():
    bandit = es.Bandit(AGENT)
    ids = ids_of(bandit, 4)
    bandit.learn_many([(ids[0], 1.0), (ids[1], 2.0)])
    bandit.expire(0, 0.0)
    bandit.correct(ids[0], 3.0)
    bandit.correct(ids[2], 7.0)  # it came after all
    bandit.add(ids[2], 1.0)
    log = bandit.log()
    assert log["outcome"] == [3.0, 2.0, 8.0, 0.0]
    assert log["first"] == [1.0, 2.0, 0.0, 0.0]
    assert log["expired"] == [False, False, False, True]
    assert [at is not None for at in log["revised"]] == [True, False, True, False]
    assert log["revised"][0] >= log["learned"][0]
    summary = bandit.summary()
    assert (summary.outcomes, summary.expired, summary.revised) == (4, 1, 2)
    assert summary.reward == summary.recent_reward == (3.0 + 2.0 + 8.0 + 0.0) / 4
    assert "of which 1 expired, 2 revised" in str(summary)
    assert bandit._ledger.ask("SELECT count(*) FROM outcomes") == 4  # nothing was overwritten
    assert bandit._ledger.ask("SELECT count(*) FROM revisions") == 3


def test_messages_that_come_twice_change_nothing():
    bandit = es.Bandit(AGENT)
    id = bandit.choose(OFFERS[0]).id
    bandit.learn(id, 1.0)
    assert bandit.correct(id, 2.0)
    assert not bandit.correct(id, 2.0)
    assert not bandit.learn(id, 1.0)  # delivered again, after its correction
    assert not bandit.learn(id, 2.0)
    with pytest.raises(ValueError, match=r"has the outcome 2\.0 and cannot have 3\.0 as well"):
        bandit.learn(id, 3.0)
    assert bandit.log()["outcome"] == [2.0]


def test_what_cannot_be_revised_is_refused_and_nothing_changes():
    bandit = es.Bandit(AGENT)
    a, b = (d.id for d in bandit.choose_many(list(OFFERS[:2])))
    bandit.learn(a, 1.0)
    with pytest.raises(ValueError, match="has no outcome yet that could be corrected"):
        bandit.correct(b, 1.0)
    for bad in (np.nan, "1", None, [1.0, 2.0], 1e300):
        with pytest.raises((TypeError, ValueError)):
            bandit.correct(a, bad)
        with pytest.raises((TypeError, ValueError)):
            bandit.add(a, bad)
    with pytest.raises(ValueError, match="is not the id of a decision"):
        bandit.add("x", 1.0)
    for ref in ("", 7):
        with pytest.raises(TypeError, match="ref must be text"):
            bandit.add(a, 1.0, ref=ref)  # pyright: ignore[reportArgumentType]
    clicks = es.Bandit(es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=2))
    assert bandit.log()["outcome"] == [1.0, None]
    assert bandit.summary().revised == 0
    clicks.close()


def test_a_snapshot_that_knows_other_revisions_is_refused(tmp_path):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        ids = ids_of(bandit)
        bandit.learn_many([(id, 1.0) for id in ids])
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        bandit.correct(ids[0], 2.0)
    with pytest.warns(UserWarning, match="is a copy"):
        bandit = es.Bandit.open(tmp_path / "copy", AGENT)
    with bandit:
        bandit.correct(ids[0], 3.0)
        state = bandit.state
    good = (tmp_path / "copy" / "state.safetensors").read_bytes()
    shutil.copy(tmp_path / "shop" / "state.safetensors", tmp_path / "copy")
    with pytest.raises(ValueError, match="knows 1 revised outcomes, the ledger beside it only 0"):
        es.Bandit.open(tmp_path / "copy", AGENT)
    (tmp_path / "copy" / "state.safetensors").write_bytes(good)
    with es.Bandit.open(tmp_path / "copy", AGENT) as bandit:
        assert equal(bandit.state, state)


@pytest.mark.filterwarnings("ignore:the ledger in .* is a copy")
@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_copy_can_be_opened_whatever_the_clock_said_at_a_correction(tmp_path, monkeypatch, ahead):
    now = time.time
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        ids = ids_of(bandit)
        bandit.learn_many([(id, 1.0) for id in ids])
        monkeypatch.setattr(time, "time", lambda: now() + ahead)
        bandit.correct(ids[0], 2.0)
        monkeypatch.setattr(time, "time", now)
        state = bandit.state
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with es.Bandit.open(tmp_path / "copy", AGENT) as bandit:
        assert equal(bandit.state, state)
        monkeypatch.setattr(time, "time", lambda: now() - ahead)
        bandit.correct(ids[1], 3.0)
        monkeypatch.setattr(time, "time", now)
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        bandit.correct(ids[1], 4.0)
    shutil.copy(tmp_path / "shop" / "state.safetensors", tmp_path / "copy")
    with pytest.raises(ValueError, match="knows 2 revised outcomes, the ledger beside it only 1"):
        es.Bandit.open(tmp_path / "copy", AGENT)


def test_a_copy_that_does_not_say_how_many_revisions_it_began_with_is_replayed(tmp_path):
    """As those do that earlier versions made."""
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        ids = ids_of(bandit)
        bandit.learn_many([(id, 1.0) for id in ids])
        bandit.correct(ids[0], 2.0)
        state = bandit.state
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with pytest.warns(UserWarning, match="is a copy"):
        Ledger(tmp_path / "copy").close()
    with closing(sqlite3.connect(tmp_path / "copy" / "ledger.sqlite")) as db, db:
        db.execute("DELETE FROM about WHERE name LIKE 'setting revisions%'")
    with pytest.warns(UserWarning, match="older than this copy .* rebuilt from the ledger"):
        bandit = es.Bandit.open(tmp_path / "copy", AGENT)
    with bandit:
        assert equal(bandit.state, state)


def test_a_migration_learns_what_outcomes_are_now(tmp_path):
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=5)
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        ids = ids_of(bandit)
        bandit.learn_many([(id, 1.0) for id in ids[:5]])
        bandit.correct(ids[2], 9.0)
    with es.Bandit.migrate(tmp_path, other) as bandit:
        expected = [(n, 9.0 if n == 2 else 1.0) for n in range(5)]
        assert equal(bandit.state, as_if_known(expected, other))
    assert inspect(tmp_path).revised == 1


@pytest.mark.parametrize(("where", "step"), [("memory", 3), ("disk", 5)])
def test_an_interrupt_at_any_line_revises_once_or_not_at_all(tmp_path, where, step):
    bandit = es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path, AGENT)
    line, done = 1, False
    while not done and line < 2000:
        line += step
        known = bandit.choose(OFFERS[0]).id
        bandit.learn(known, 0.0)
        with contextlib.suppress(KeyboardInterrupt):
            interrupted(line, lambda id=known: bandit.add(id, 1.0, ref="a"), DECIDE)
            done = True
        bandit.add(known, 1.0, ref="a")
        with contextlib.suppress(KeyboardInterrupt):
            interrupted(line, lambda: bandit.choose(OFFERS[0]), DECIDE)
    assert 30 < line < 1000
    assert {y for y in bandit.log()["outcome"] if y is not None} == {1.0}
    assert sum(y == 1.0 for y in bandit.log()["outcome"]) == bandit.summary().outcomes
    state = bandit.state
    bandit._replica.version, bandit._replica._marks = None, []
    if where == "disk":
        (tmp_path / "state.safetensors").unlink(missing_ok=True)
    assert equal(bandit.state, state)
    bandit.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM revisions WHERE number = 2", "revisions"),
        ("DELETE FROM revisions WHERE number = 3", "it has 2 revisions, and had 3"),
        *(
            (f"UPDATE revisions SET {field} = {value} WHERE number = 2", "row 2 of the table")
            for field, value in {
                "time": 3.5, "added": "'7'", "ref": "'x'", "outcome": "'7'", "reward": 7.5,
            }.items()
        ),
    ],
)  # fmt: skip
def test_damaged_revisions_are_noticed(tmp_path, statement, told):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        ids = ids_of(bandit, 5)
        for id in ids[:3]:
            bandit.learn(id, 1.0)
            bandit.add(id, 0.5, ref="a")
    (tmp_path / "state.safetensors").unlink()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
        db.execute(statement)
    with pytest.raises(Damaged, match=told), closing(Ledger(tmp_path)) as ledger:
        ledger.table()
