"""A subject is given the same action again, for a while, as long as it is on offer."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import os
import time
from datetime import timedelta

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger

OFFER = {"a": {"x": 1.0}, "b": {"x": 2.0}, "c": {"x": 3.0}}
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
DAY = timedelta(days=1)


@pytest.fixture
def clock(monkeypatch):
    """A time that moves only when it is told to."""
    now = [1_790_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def arms(**given):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    return es.Bandit(agent, actions=["a", "b", "c"], sticky=DAY, **given)


def test_a_subject_gets_the_same_decision_for_a_day(clock):
    bandit = arms()
    first = bandit.choose(subject="ann")
    again = first
    for _ in range(20):
        again = bandit.choose(subject="ann")
        assert (again, again.again) == (first, True)
        assert again.probability == first.probability
    others = {bandit.choose(subject=f"u{n}").action for n in range(30)}
    assert others == {"a", "b", "c"}
    assert bandit.learn(again.id, 1.0)
    assert not bandit.learn(first.id, 1.0)  # it is one decision, learned once
    assert bandit.summary().decisions == 31
    clock[0] += 86401
    assert not (new := bandit.choose(subject="ann")).again
    assert new.id != first.id
    assert not bandit.choose().again


def test_several_at_once_are_as_one_after_another():
    subjects = ["ann", "bob", "ann", None, None, "bob", "eve"]
    made = arms().choose_many(contexts=[None] * 7, subjects=subjects)
    one_by_one = arms()
    expected = [one_by_one.choose(subject=subject) for subject in subjects]
    assert [d.index for d in made] == [d.index for d in expected]
    assert [d.again for d in made] == [d.again for d in expected] == [0, 0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("named", [True, False])
def test_the_action_is_found_where_it_is_now_and_replaced_where_it_is_not(named):
    bandit = es.Bandit(sticky=DAY)
    first = bandit.choose(OFFER if named else list(OFFER.values()), subject="ann")
    turned = dict(reversed(OFFER.items()))
    again = bandit.choose(turned if named else [*turned.values()], subject="ann")
    assert (again.id, again.index) == (first.id, 2 - first.index)
    rest = {name: x for n, (name, x) in enumerate(OFFER.items()) if n != first.index}
    new = bandit.choose(rest if named else list(rest.values()), subject="ann")
    assert not new.again
    held = bandit.choose(OFFER if named else list(OFFER.values()), subject="ann")
    assert held.id == new.id  # which holds from then on
    free = [n != held.index for n in range(3)]
    masked = bandit.choose(OFFER if named else [*OFFER.values()], available=free, subject="ann")
    assert masked.id != new.id


def test_rows_of_numbers_are_known_by_their_numbers():
    bandit = es.Bandit(es.EnsembleSampling(es.Linear(3), 4), sticky=DAY)
    first = bandit.choose(ROWS, context=[0.5], subject="ann")
    again = bandit.choose(ROWS[::-1], context=[0.7], subject="ann", top=2)
    assert (again.id, again.index) == (first.id, 2 - first.index)
    assert again.ranking is not None
    assert again.ranking[0] == again.index
    assert bandit.choose(ROWS + 5.0, context=[0.5], subject="ann").id != first.id


def test_it_outlives_a_restart_and_erasure_ends_it(tmp_path):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    with es.Bandit.open(tmp_path / "b", agent, actions=["a", "b", "c"], sticky=DAY) as bandit:
        first = bandit.choose(subject="ann")
    with es.Bandit.open(tmp_path / "b", agent, actions=["a", "b", "c"]) as bandit:
        again = bandit.choose(subject="ann")
        assert (again.id, again.action, again.probability, again.again) == (
            first.id, first.action, first.probability, True,
        )  # fmt: skip
        bandit.erase("ann")
        assert not bandit.choose(subject="ann").again


def test_lift_is_by_subject_where_they_repeat():
    """Many decisions of few subjects tell as much as the subjects do."""
    rng = np.random.default_rng(0)
    bandit = arms(holdback=0.5)
    bandit.configure(sticky=0.0)
    luck = rng.normal(size=60)
    for _ in range(20):
        subjects = [f"u{n}" for n in range(60)]
        made = bandit.choose_many(contexts=[None] * 60, subjects=subjects)
        bandit.learn_many([(d.id, float(luck[n])) for n, d in enumerate(made)])
    found = bandit.lift()
    assert (found.decisions, found.units) == (1200, 60)
    control = np.array(bandit.log()["control"][:60])
    stderr = np.sqrt(luck[control].var() / control.sum() + luck[~control].var() / (~control).sum())
    assert found.difference.high - found.difference.low > 5 * stderr


def test_a_hundred_thousand_subjects_take_little_room_and_time(tmp_path):
    """Of twenty thousand, five times over: no more than 20 MB and 0.2 ms, 1 ms where others run."""
    shares, none, count = np.ones(1, np.float32), np.zeros(0, np.float32), 20_000
    sizes, took = [], 0.0
    for known in (True, False):
        ledger = Ledger(tmp_path / str(known))
        names = [f"customer-{n:06}" if known else None for n in range(count)]
        about = (0, None, none, shares, None, None)
        ledger.add_decisions([DecisionRow(n, 1e9, *about, names[n]) for n in range(count)])
        began = time.perf_counter()
        for n in range(0, count, 100) if known else ():
            found = ledger.last_about(f"customer-{n:06}")
            assert found is not None and found.number == n  # noqa: PT018
        took += time.perf_counter() - began
        ledger.close()
        sizes.append(os.path.getsize(tmp_path / str(known) / "ledger.sqlite"))
    assert 5 * (sizes[0] - sizes[1]) < 20e6
    assert took / (count / 100) < 1e-3
