"""What processes of a service know: never less than before, who learns, and how far behind they
are."""

# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from processes import processes, step
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.snapshots import snapshot_noticed
from ensemble_sampling.fast import inline
from ensemble_sampling.serve import updater as updaters

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
RIVAL = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=4)
ROWS = np.random.default_rng(0).normal(size=(3, 2)).tolist()
STATE = "state.safetensors"


@pytest.fixture
def opened(tmp_path):
    with processes(tmp_path, AGENT) as make:
        yield make


@pytest.fixture
def pair(opened):
    """Two processes, of which the first learns; both know the same five outcomes."""
    one, two = (opened(candidates={"rival": RIVAL}) for _ in range(2))
    one.play([ROWS] * 5)
    step(one, two, one, two)
    assert one.known == two.known == (5, 0)
    return one, two


def replayed(process, agent=AGENT):
    return es.Bandit(agent)._replica.sync(process.ledger)


def test_a_changed_configuration_costs_nobody_what_it_knows(pair, opened):
    one, two = pair
    one.shadow("rival")
    two.choose(ROWS)  # hears of it
    assert one.known == two.known == (5, 0)
    two.step()
    assert two.known == (5, 0)
    third = opened(candidates={"rival": RIVAL})
    third.step()  # from what was published long ago
    assert third.known == (5, 0)


def test_who_was_promoted_is_followed_without_a_new_outcome(pair):
    one, two = pair
    one.shadow("rival")
    one.promote("rival")  # before it was learned, let alone published
    with pytest.warns(UserWarning, match="another agent's"):
        step(one, two)
    for process in pair:
        assert process.replicas.name == "rival"
        assert equal(process.main.version.state, replayed(one, RIVAL))


def test_what_is_learned_anew_takes_over_when_it_knows_as_much(opened, monkeypatch):
    monkeypatch.setattr(updaters, "STEP", 4)
    one, two = opened(), opened()
    made = one.play([ROWS] * 21)
    for _ in range(8):
        step(one, two)
    assert one.known == two.known == (21, 0)
    before = jax.tree.map(np.array, two.main.version.state)
    one.correct(made[0].id, 9.0)
    steps = 0
    while one.known != (21, 1):
        step(one, two)
        steps += 1
        assert one.known[0] == two.known[0] == 21
        if one.known[1] == 0:
            assert one.updater.behind > 0.0
            assert equal(two.main.version.state, before)
    assert steps == 6
    step(one, two)
    assert (one.updater.behind, two.updater.behind, two.updater.known) == (0.0, 0.0, 21)
    assert equal(two.main.version.state, replayed(one))


def test_behind_is_the_age_of_what_is_not_known(pair, monkeypatch):
    one, two = pair
    made = one.play([ROWS] * 3)
    times = one.ledger.ask_all("SELECT time FROM outcomes ORDER BY sequence")
    monkeypatch.setattr(updaters.time, "time", lambda: times[5][0] + 7.0)
    two.updater._measure()
    about = two.updater
    assert about.behind == pytest.approx(7.0, abs=1e-3)
    assert (about.decisions, about.outcomes, about.known) == (8, 8, 5)
    monkeypatch.undo()
    step(one, two)
    assert (about.behind, about.known) == (0.0, 8)
    one.correct(made[0].id, 4.0)
    ((at,),) = one.ledger.ask_all("SELECT time FROM revisions")
    monkeypatch.setattr(updaters.time, "time", lambda: at + 2.0)
    two.updater._measure()
    assert about.behind == pytest.approx(2.0, abs=1e-3)


def test_a_state_is_stored_where_somebody_follows_or_much_was_learned(opened, monkeypatch):
    one = opened(candidates={"rival": RIVAL})
    one.choose(ROWS)
    one.shadow("rival")
    begun = one.ledger.stored(STATE)
    one.play([ROWS] * 5)
    step(one, one)
    assert one.ledger.stored(STATE) == begun
    monkeypatch.setattr(updaters, "SAVE", 5)
    one.step()
    assert one.ledger.stored(STATE) != begun
    assert one.ledger.stored("shadow-0.safetensors") is not None  # shadows too
    one.play([ROWS] * 2)
    two = opened(candidates={"rival": RIVAL})
    step(two, one, two)
    assert two.known == (7, 0)


def test_nobody_takes_over_what_is_older_or_another_agent_s(pair):
    one, two = pair
    older = one.ledger.stored(STATE)
    one.play([ROWS] * 5)
    step(one, two)
    one.ledger.store(STATE, older)  # as one does who learned until just now
    two.step()
    assert two.known == (10, 0)
    one.shadow("rival")
    one.promote("rival")
    one.play([ROWS])
    assert not one.updater._hand_on(None, one.updater._replica)  # which has not heard of it
    assert one.known == (0, 0)


def test_what_is_followed_or_restored_lies_where_decisions_are_computed(pair):
    one, two = pair
    one.updater.close()
    offer = two.main.inputs.read(ROWS, None, None)
    alone = es.Bandit(AGENT)._replica.covering([offer])
    for replica, found in ((two.main, two.main.version), (alone, alone._begun(one.ledger))):
        assert found.outcomes == 5
        replica.choose(0, offer, found.state)
        programs: Any = replica.programs
        assert found.state.layout is programs._states
        where = {inline.device() or jax.devices()[0]}  # put there once, not for every decision
        assert all(array.devices() == where for array in found.state.arrays)


class Lost(es.Uniform):
    """Chance, with models that diverged."""

    def diverged(self, state):
        return 3


def test_models_that_diverged_are_told_with_the_state(opened):
    one, two = opened(Lost()), opened(Lost())
    one.play([ROWS] * 5)
    step(one, two, one, two)
    assert snapshot_noticed(one.ledger)[0] == 3
    assert one.replicas.noticed()[0] == two.replicas.noticed()[0] == 3


def test_the_lease_goes_on_when_its_holder_is_gone_or_stops_learning(opened, monkeypatch):
    one, two, three = opened(), opened(), opened()
    step(one, two)
    assert (one.updater.learning, two.updater.learning) == (True, False)
    assert two.updater.learner == one.updater.holder
    two.play([ROWS])
    two.step()
    assert (two.known, two.updater.behind > 0.0) == ((0, 0), True)
    one.ledger.release(one.updater.holder)  # as time would
    two.step()
    assert (two.updater.learning, two.known) == (True, (1, 0))
    one.step()
    assert not one.updater.learning
    two.updater.close()
    assert one.ledger.holder() is None

    def away():
        raise OSError("away")

    monkeypatch.setattr(one.updater, "_reload", away)
    with pytest.raises(OSError, match="away"):  # when it had the lease already
        one.step()
    assert one.updater.learning
    one.updater.close()
    assert one.updater._ledger.closed
    three.step()
    assert three.updater.learning


def test_who_learns_next_need_not_wait_for_one_that_is_known_to_be_dead(opened):
    one, two = opened(), opened()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    one.updater.holder = updaters.process_name(ended.pid)
    one.updater.step()
    two.updater.step()
    assert (two.updater.learner, two.updater.learning) == (one.updater.holder, False)
    two.updater.step()
    assert two.updater.learning
    one.updater.holder = updaters.process_name(os.getpid())  # another that lives
    two.updater._ledger.release(two.updater.holder)
    step(one, two, two)
    assert (two.updater.learner, two.updater.learning) == (one.updater.holder, False)
    for other in ("elsewhere:1:abc", one.updater.holder.replace(":", ".x:", 1)):
        assert not updaters.has_ended(other)
