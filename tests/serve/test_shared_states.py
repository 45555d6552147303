"""What processes of a service know: never less than before, and how far behind they are."""

# pyright: reportArgumentType=false

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from processes import decide, equal, processes, tell

import ensemble_sampling as es
from ensemble_sampling.decide.replica import Replica
from ensemble_sampling.decide.snapshots import snapshot_noticed
from ensemble_sampling.decide.transfer import export_history
from ensemble_sampling.fast import inline
from ensemble_sampling.serve import updater as updaters
from ensemble_sampling.serve.decider import Later
from ensemble_sampling.serve.types import ChoiceRequest, Refused, Settings

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=3)
RIVAL = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=3)
ROWS = np.random.default_rng(0).normal(size=(3, 2)).tolist()
WORDS = {"tea": {"kind": "hot"}, "cake": {"kind": "cold"}}


@pytest.fixture
def opened(tmp_path):
    with processes(tmp_path, AGENT) as make:
        yield make


def learned(front, count=5):
    made = decide(front, *[ChoiceRequest(ROWS)] * count)
    tell(front, *((one.id, float(n)) for n, one in enumerate(made)))
    return made


def step(*updaters):
    for updater in updaters:
        updater._due = updater._renew = 0.0
        updater.step()


def replayed(front, agent=AGENT):
    return es.Bandit(agent)._replica.sync(front._ledger)


def test_a_changed_configuration_costs_nobody_what_it_knows(opened):
    one, learner = opened(candidates={"rival": RIVAL})
    two, follower = opened(candidates={"rival": RIVAL})
    learned(one)
    step(learner, follower, learner, follower)
    one.shadow("rival")
    assert one.replica().version.outcomes == 5
    decide(two, ChoiceRequest(ROWS))  # hears of it
    assert two.replica().version.outcomes == 5
    step(follower)
    assert two.replica().version.outcomes == 5
    third, another = opened(candidates={"rival": RIVAL})
    step(another)  # from what was published long ago
    assert third.replica().version.outcomes == 5


def test_who_was_promoted_is_followed_without_a_new_outcome(opened):
    one, learner = opened(candidates={"rival": RIVAL})
    two, follower = opened(candidates={"rival": RIVAL})
    learned(one)
    step(learner, follower, learner, follower)
    one.shadow("rival")
    one.promote("rival")  # before it was learned, let alone published
    with pytest.warns(UserWarning, match="another agent's"):
        step(learner, follower)
    for front in (one, two):
        assert front.name == "rival"
        assert equal(front.replica().version.state, replayed(one, RIVAL))


def test_what_is_learned_anew_takes_over_when_it_knows_as_much(opened, monkeypatch):
    monkeypatch.setattr(updaters, "STEP", 4)
    one, learner = opened()
    two, follower = opened()
    made = learned(one, 21)
    for _ in range(8):
        step(learner, follower)
    assert one.replica().version.known == two.replica().version.known == (21, 0)
    before = jax.tree.map(np.array, two.replica().version.state)
    one.correct(made[0].id, 9.0)
    steps = 0
    while one.replica().version.known != (21, 1):
        step(learner, follower)
        steps += 1
        assert one.replica().version.outcomes == two.replica().version.outcomes == 21
        if one.replica().version.revisions == 0:
            assert learner.behind > 0.0
            assert equal(two.replica().version.state, before)
    assert steps == 6
    step(learner, follower)
    assert (learner.behind, follower.behind, follower.known) == (0.0, 0.0, 21)
    assert equal(two.replica().version.state, replayed(one))


def test_behind_is_the_age_of_what_is_not_known(opened, monkeypatch):
    one, learner = opened()
    _, follower = opened()
    step(learner, follower)
    made = learned(one, 3)
    step(follower)
    times = one._ledger.ask_all("SELECT time FROM outcomes ORDER BY sequence")
    monkeypatch.setattr(updaters.time, "time", lambda: times[0][0] + 7.0)
    follower._measure()
    assert follower.behind == pytest.approx(7.0, abs=1e-3)
    assert (follower.decisions, follower.outcomes, follower.known) == (3, 3, 0)
    monkeypatch.undo()
    step(learner, follower)
    assert (follower.behind, follower.known) == (0.0, 3)
    one.correct(made[0].id, 4.0)
    ((at,),) = one._ledger.ask_all("SELECT time FROM revisions")
    monkeypatch.setattr(updaters.time, "time", lambda: at + 2.0)
    follower._measure()
    assert follower.behind == pytest.approx(2.0, abs=1e-3)


def test_shadows_are_saved_too_where_nobody_follows(opened, monkeypatch):
    monkeypatch.setattr(updaters, "SAVE", 3)
    one, learner = opened(candidates={"rival": RIVAL})
    decide(one, ChoiceRequest(ROWS))
    one.shadow("rival")
    begun = one._ledger.stored("state.safetensors")
    learned(one)
    step(learner)
    assert one._ledger.stored("state.safetensors") != begun
    assert one._ledger.stored("shadow-0.safetensors") is not None


def test_a_shadow_of_another_configuration_sleeps(opened):
    one, _ = opened(candidates={"rival": RIVAL})
    decide(one, ChoiceRequest(ROWS))
    one.shadow("rival")
    with pytest.warns(UserWarning, match="'rival' sleeps: it was begun with another"):
        two, _ = opened(candidates={"rival": AGENT})
    decide(two, ChoiceRequest(ROWS))
    assert two.replica("rival") is None
    assert list(one._ledger.opinions(0)) == []
    decide(one, ChoiceRequest(ROWS))
    assert len(list(one._ledger.opinions(0))) == 1


def test_what_another_process_settled_is_known_to_who_only_tells(opened):
    one, _ = opened(None)
    two, updater = opened(None)
    three, _ = opened(None)
    assert three.expire(1e12, 0.0) == 0  # nothing was decided
    first, second, _ = decide(one, *[ChoiceRequest(ROWS)] * 3)
    assert tell(two, (first.id, 1.0)) == [True]
    assert three.add(second.id, 1.0)
    assert three.expire(1e12, 0.0) == 1
    step(updater)
    assert two.replica().version.outcomes == 3
    assert equal(two.replica().version.state, replayed(one, None))


def test_a_first_decision_that_is_not_recorded_settles_nothing(opened, monkeypatch):
    one, _ = opened(None)

    def full(before):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(one._ledger._transactions, "_commit", full)
        with pytest.raises(OSError, match="full"):
            one.work([[ChoiceRequest(ROWS)]], [])
    decide(one, ChoiceRequest([[1.0, 2.0, 3.0]]))
    assert (one.replica().width, one._ledger.decisions) == (3, 1)


def test_first_decisions_are_not_made_twice_when_others_change_something(opened, monkeypatch):
    one, _ = opened(None)
    two, _ = opened(None)
    drafts = one.decider._drafts

    def meanwhile(groups, hurry):
        monkeypatch.undo()
        two.configure(Settings(mode="apprentice"))
        return drafts(groups, hurry)

    monkeypatch.setattr(one.decider, "_drafts", meanwhile)
    answers, _ = one.work([[ChoiceRequest(ROWS)], [ChoiceRequest(ROWS)]], [])
    assert [len(made) for made in answers] == [1, 1]
    assert one._ledger.decisions == 2
    assert answers[1][0].probabilities.tolist() == [1.0, 0.0, 0.0]


def test_ids_with_slashes_mean_one_event_each(opened):
    one, _ = opened()
    asks = [("a", ""), ("a", "b"), ("a/b", "c"), ("a/", "")]
    made = decide(one, *(ChoiceRequest(ROWS, event=event, slot=slot) for event, slot in asks))
    flags = tell(one, ("a", 1.0), ("a/b", 2.0), ("a/b/c", 3.0), ("a/", 4.0))
    assert flags == [True] * 4
    assert one._ledger.table()["outcome"] == [1.0, 2.0, 3.0, 4.0]
    assert len({one.id for one in made}) == 4
    with pytest.raises(Refused, match="no decision 'c/'"):
        tell(one, ("c/", 1.0))


@pytest.mark.parametrize("offer", [ROWS, WORDS])
def test_a_new_bandit_takes_in_what_another_learned_and_hands_it_on(opened, offer):
    one, learner = opened(None)
    made = decide(one, *[ChoiceRequest(offer)] * 3)
    tell(one, *((one.id, float(n)) for n, one in enumerate(made)))
    step(learner)
    two, updater = opened(None, "new")
    assert two.take_in(export_history(one._ledger)) == 3
    assert two.take_in(export_history(one._ledger)) == 0  # it is no news
    assert two._ledger.outcomes == two._ledger.decisions == 3
    step(updater)
    assert two.replica().version.outcomes == 3
    # As are the numbers of decisions, by which noise is drawn.
    assert equal(two.replica().version.state, one.replica().version.state)
    assert two.replica().inputs.hasher == one.replica().inputs.hasher
    third, _ = opened(None, "third")
    assert third.take_in(export_history(two._ledger)) == 3
    assert third._ledger.table()["probability"] == two._ledger.table()["probability"]
    assert decide(third, ChoiceRequest(offer))[0].index in range(3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda about: about["chosen"].__setitem__(0, -1), "index of an action"),
        (lambda about: about["chances"].__setitem__(0, 0.0), "a chance"),
        (lambda about: about["outcomes"].__setitem__(0, float("nan")), "outcome"),
        (lambda about: about["outcomes"].pop(), "3 rows"),
        (lambda about: about.pop("width"), "no exported history"),
        (lambda about: about["agent"].__setitem__("normalise", False), "differ in normalise"),
    ],
)
def test_what_could_not_be_learned_is_not_taken_in(opened, change, says, monkeypatch):
    one, _ = opened()
    learned(one, 3)
    content, sealed = export_history(one._ledger), {}

    def dumps(about):
        change(about)
        return text(about)

    from ensemble_sampling.decide import transfer

    text = transfer.json.dumps
    with monkeypatch.context() as patch:
        patch.setattr(transfer.json, "dumps", lambda about: dumps(about) if "kind" in about else "")
        sealed = export_history(one._ledger)
    assert sealed != content
    two, _ = opened(place="new")
    with pytest.raises(Refused, match=says):
        two.take_in(sealed)
    assert two._ledger.decisions == 0
    assert two.take_in(content) == 3


def test_a_shadow_says_what_that_of_a_bandit_would(opened):
    one, learner = opened(candidates={"rival": RIVAL})
    learned(one)
    one.shadow("rival")
    one.configure(Settings(floor=0.2))
    step(learner)
    rows = np.array(ROWS, np.float32)
    mask = np.array([True, False, True])
    (made,) = decide(one, ChoiceRequest(ROWS, available=mask.tolist()))
    replica = es.Bandit(RIVAL)._replica
    shares = replica.choose(0, rows, mask, replica.sync(one._ledger))[1]
    (said,) = one._ledger.opinions(0)
    assert said.probability == pytest.approx(shares[made.index], abs=1e-6)
    assert (said.decision, said.propensity) == (5, pytest.approx(made.probability))
    assert mask[said.chosen]
    assert made.probability >= 0.1


def test_offers_that_are_refused_leave_no_names_of_columns(opened):
    one, _ = opened()
    decide(one, ChoiceRequest(ROWS))
    answers, _ = one.work(
        [[ChoiceRequest(ROWS), ChoiceRequest([[1.0]])], [ChoiceRequest(ROWS)]], []
    )
    assert isinstance(answers[0], Refused)
    assert len(answers[1]) == 1
    assert one._ledger.decisions == 2


def test_two_shares_left_to_chance_are_one(opened):
    one, _ = opened(floor=0.5)
    one.configure(Settings(floor=0.5))
    assert one.floor == 0.75
    shares = decide(one, ChoiceRequest(ROWS))[0].probabilities
    assert shares.min() >= 0.75 / 3 - 1e-6


def test_nobody_takes_over_what_is_older_or_another_agent_s(opened):
    one, learner = opened(candidates={"rival": RIVAL})
    two, follower = opened(candidates={"rival": RIVAL})
    step(learner, follower)
    learned(one)
    step(learner, follower)
    older = one._ledger.stored("state.safetensors")
    learned(one)
    step(learner, follower)
    one._ledger.store("state.safetensors", older)  # as one does who learned until just now
    step(follower)
    assert two.replica().version.outcomes == 10
    one.shadow("rival")
    one.promote("rival")
    learned(one)
    assert not learner._hand_on(None, learner._replica)  # which has not heard of it
    assert one.replica().version.outcomes == 0
    decide(one, ChoiceRequest(ROWS))


def test_a_state_is_published_where_somebody_follows(opened):
    one, learner = opened()
    begun = one._ledger.stored("state.safetensors")
    learned(one)
    step(learner, learner)
    assert one._ledger.stored("state.safetensors") == begun
    two, follower = opened()
    step(follower, learner, follower)
    assert two.replica().version.outcomes == 5


def test_what_is_followed_or_restored_lies_where_decisions_are_computed(opened):
    one, learner = opened()
    two, follower = opened()
    learned(one)
    step(learner, follower, learner, follower)
    learner.close()
    alone = es.Bandit(AGENT)._replica
    for replica, found in (
        (two.replica(), two.replica().version),
        (alone, alone._begun(one._ledger)),
    ):
        assert found.outcomes == 5
        replica.choose(0, np.array(ROWS, replica.dtype), np.ones(len(ROWS), bool), found.state)
        programs: Any = replica.programs
        assert found.state.layout is programs._states
        where = {inline.device() or jax.devices()[0]}  # put there once, not for every decision
        assert all(array.devices() == where for array in found.state.arrays)


class Lost(es.Uniform):
    """Chance, with models that diverged."""

    def diverged(self, state):
        return 3


def test_models_that_diverged_are_told_with_the_state(opened):
    one, learner = opened(Lost())
    two, follower = opened(Lost())
    learned(one)
    step(learner, follower, learner, follower)
    assert snapshot_noticed(one._ledger)[0] == one.diverged() == two.diverged() == 3


def test_in_a_hurry_what_has_to_be_compiled_first_is_left_for_later(opened):
    one, _ = opened()
    decide(one, ChoiceRequest(ROWS))
    many = np.random.default_rng(1).normal(size=(9, 2)).tolist()
    answers, _ = one.work(
        [[ChoiceRequest(ROWS)], [ChoiceRequest(many)], [ChoiceRequest([[1.0]])]], [], hurry=True
    )
    assert [type(answer).__name__ for answer in answers] == ["Later", "Later", "Refused"]
    assert one._ledger.decisions == 1
    assert one.prepare(answers[0].offer, 1)
    asked = [
        [ChoiceRequest(ROWS, event="a"), ChoiceRequest(ROWS)],
        [ChoiceRequest(many)],
        [ChoiceRequest(ROWS, event="a")],
    ]
    answers, _ = one.work(asked, [], hurry=True)
    assert [len(answers[0]), type(answers[1]), len(answers[2])] == [2, Later, 1]
    assert (answers[2][0].id, one._ledger.decisions) == (answers[0][0].id, 3)
    two, _ = opened()
    two.warm()  # by what the other was asked
    assert two.decider.warmup.done
    assert [type(a) for a in two.work([[ChoiceRequest(ROWS)]], [], hurry=True)[0]] == [list]
    one.warm()
    for size in (1, 2, 4, 8, 16):
        assert one.prepare(answers[1].offer, size) == (size < 16)
    answers, _ = one.work([[ChoiceRequest(ROWS)] * 5, [ChoiceRequest(many)]], [], hurry=True)
    assert [len(answer) for answer in answers] == [5, 1]


def test_the_first_decision_is_compiled_for_before_others_have_to_wait(opened, monkeypatch):
    one, _ = opened(None)
    choose_many, during = Replica.choose_many, []

    def watched(replica, *about):
        if about[0]:
            during.append(one._ledger._transactions.kind)
        return choose_many(replica, *about)

    monkeypatch.setattr(Replica, "choose_many", watched)
    with pytest.raises(Refused):
        decide(one, ChoiceRequest([[1.0]]), ChoiceRequest([[1.0, 2.0]]))
    assert during == []
    decide(one, ChoiceRequest(ROWS))
    assert during == [None, "write"]
    decide(one, ChoiceRequest(ROWS))
    assert during[2:] == [None]


def test_who_learns_next_need_not_wait_for_one_that_is_known_to_be_dead(opened):
    one, learner = opened()
    _, second = opened()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    learner.holder = updaters._named(ended.pid)
    learner.step()
    second.step()
    assert second.learner == learner.holder
    assert not second.learning
    second.step()
    assert second.learning
    learner.holder = updaters._named(os.getpid())  # another that lives
    second._ledger.release(second.holder)
    step(learner, second, second)
    assert (second.learner, second.learning) == (learner.holder, False)
    for other in ("elsewhere:1:abc", learner.holder.replace(":", ".x:", 1)):
        assert not updaters._gone(other)
    learned(one)
    step(learner)
