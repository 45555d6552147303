"""A bandit that several processes serve: exact records, one order for all, one state for all."""

# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportOperatorIssue=false

import time

import jax
import numpy as np
import pytest
from processes import decide, equal, processes, tell

import ensemble_sampling as es
from ensemble_sampling.decide.transfer import export_history
from ensemble_sampling.ledger import sqlite
from ensemble_sampling.serve.types import ChoiceRequest, Refused, Settings

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OTHER = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=5)
ROWS = np.random.default_rng(0).normal(size=(40, 3, 2))


@pytest.fixture
def opened(tmp_path):
    with processes(tmp_path, AGENT) as make:
        yield make


def test_two_processes_decide_and_tell_and_the_state_is_that_of_a_replay(opened, tmp_path):
    one, learner = opened()
    two, follower = opened()
    for n, rows in enumerate(ROWS):
        front, other = (one, two) if n % 2 else (two, one)
        (made,) = decide(front, ChoiceRequest(rows.tolist()))
        assert tell(other, (made.id, float(rows[made.index].sum()))) == [True]
        learner.step()
        follower.step()
    assert (learner.learning, follower.learning) == (True, False)
    learner._due = learner._renew = 0.0
    learner.step()
    follower.step()
    state = jax.tree.map(np.array, two.replica().state(two._ledger))
    assert two.replica().version.outcomes == one.replica().version.outcomes == 40
    assert equal(state, one.replica().state(one._ledger))
    for front, updater in ((one, learner), (two, follower)):
        updater.close()
        front.close()
    (tmp_path / "shop" / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        assert equal(bandit.state, state)
        assert bandit.log()["index"][:2] != []
        assert bandit.summary().outcomes == 40


def test_probabilities_are_those_it_was_drawn_from(opened):
    front, updater = opened()
    (first,) = decide(front, ChoiceRequest(ROWS[0].tolist()))
    tell(front, (first.id, 1.0))
    updater.step()
    foreseen = front.predict(ChoiceRequest(ROWS[1].tolist()))["probabilities"]
    many = decide(front, *[ChoiceRequest(ROWS[1].tolist())] * 4000)
    assert all(np.array_equal(made.probabilities, foreseen) for made in many)
    shares = np.bincount([made.index for made in many], minlength=3) / 4000
    assert np.abs(shares - foreseen).max() < 4 * np.sqrt(0.25 / 4000)
    front.configure(Settings(floor=0.6))
    many = decide(front, *[ChoiceRequest(ROWS[1].tolist(), available=[True, False, True])] * 4000)
    mask = np.array([True, False, True])
    expected = 0.4 * front_shares(front, mask) + 0.6 * mask / 2
    np.testing.assert_allclose(many[0].probabilities, expected, rtol=1e-6)
    shares = np.bincount([made.index for made in many], minlength=3) / 4000
    assert np.abs(shares - expected).max() < 4 * np.sqrt(0.25 / 4000)


def front_shares(front, mask):
    replica = front.replica()
    return replica.choose(0, ROWS[1].astype(np.float32), mask, replica.sync(front._ledger))[1]


def test_many_at_once_are_those_one_by_one(opened):
    front, _ = opened()
    decide(front, ChoiceRequest(ROWS[0].tolist()))
    replica, state = front.replica(), front.replica().sync(front._ledger)
    rng = np.random.default_rng(1)
    offers = []
    for n in range(50):
        table = rng.normal(size=(1 + n % 20, 2)).astype(np.float32)
        offers.append((table, rng.random(len(table)) < 0.7))
        offers[-1][1][0] = True
    together = replica.choose_many(range(50), offers, state)
    for n, (table, mask) in enumerate(offers):
        index, shares, values = replica.choose(n, table, mask, state)
        assert together[n][0] == index
        np.testing.assert_allclose(together[n][1], shares, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(together[n][2], values, rtol=1e-5, atol=1e-6)


def test_an_event_asked_again_gets_the_same_answer(opened):
    one, _ = opened()
    two, _ = opened()
    ask = ChoiceRequest({"tea": [1.0, 0.0], "cake": [0.0, 1.0]}, event="e1")
    (made,) = decide(one, ask)
    for front in (one, two):
        (again,) = decide(front, ask)
        assert again.again
        assert (again.id, again.action, again.event) == (made.id, made.action, "e1")
        assert np.array_equal(again.probabilities, made.probabilities)
        assert list(again.names) == ["tea", "cake"]
    first, second = decide(
        one, ChoiceRequest(ask.actions, event="e2"), ChoiceRequest(ask.actions, event="e2")
    )
    assert (first.id, first.again, second.id, second.again) == (first.id, False, first.id, True)
    slots = decide(two, *(ChoiceRequest(ask.actions, event="e3", slot=slot) for slot in "ab"))
    assert slots[0].id != slots[1].id
    assert tell(one, ("e3/a", 1.0), ("e1", 0.0), (slots[1].id, 2.0)) == [True] * 3
    assert tell(two, ("e3/b", 2.0), (made.id, 0.0)) == [False, False]


def test_outcomes_are_told_once_all_of_a_group_or_none(opened):
    front, _ = opened()
    made = decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS[:4]))
    _, answers = front.work(
        [],
        [
            [(made[0].id, 1.0, None)],
            [(made[1].id, 1.0, None), ("nobody", 1.0, None)],
            [(made[0].id, 2.0, None)],
            [(made[1].id, 3.0, None), (made[0].id, 1.0, None)],
            [(made[2].id, float("nan"), None)],
            [(made[2].id, [1.0, 2.0], None)],
        ],
    )
    kinds = [answer.kind if isinstance(answer, Refused) else answer for answer in answers]
    assert kinds == [[True], "unknown", "conflict", [True, False], "invalid", "invalid"]
    log = front._ledger.table()
    assert log["outcome"] == [1.0, 3.0, None, None]
    with pytest.raises(Refused, match="has the outcome"):
        tell(front, (made[1].id, 1.0))


def test_outcomes_that_add_up(opened):
    front, updater = opened()
    front.configure(Settings(aggregation="sum"))
    made = decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS[:2]))
    assert tell(front, (made[0].id, 1.0), (made[0].id, 2.0)) == [True, True]
    assert tell(front, (made[0].id, 4.0)) == [True]
    assert tell(front, (made[0].id, 8.0), (made[0].id, 16.0)) == [True, True]
    assert front.add(made[1].id, 3.0, "order 1")
    assert not front.add(made[1].id, 3.0, "order 1")
    with pytest.raises(Refused, match="cannot add") as refused:
        front.add(made[1].id, 5.0, "order 1")
    assert refused.value.kind == "conflict"
    assert front.add(made[1].id, 2.0)
    assert front._ledger.table()["outcome"] == [31.0, 5.0]
    updater.step()
    twin = es.Bandit(AGENT)
    twin._ledger = front._ledger
    twin._replica.version = None
    assert equal(twin._replica.sync(front._ledger), front.replica().version.state)


def test_the_same_reference_twice_at_once_counts_once(opened):
    front, _ = opened()
    front.configure(Settings(aggregation="sum"))
    one, two = decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS[:2]))
    groups = [
        [(one.id, 1.0, "a"), (one.id, 1.0, "a"), (one.id, 2.0, "b")],
        [(one.id, 1.0, "a"), (two.id, 1.0, "a")],  # it is a decision's own
        [(one.id, 7.0, "b")],
    ]
    _, answers = front.work([], groups)
    kinds = [answer.kind if isinstance(answer, Refused) else answer for answer in answers]
    assert kinds == [[True, False, True], [False, True], "conflict"]
    assert front._ledger.table()["outcome"] == [3.0, 1.0]


def test_corrections_reach_the_state(opened):
    front, updater = opened()
    made = decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS[:6]))
    tell(front, *((one.id, 1.0) for one in made))
    updater.step()
    before = jax.tree.map(np.array, front.replica().version.state)
    assert front.correct(made[2].id, 5.0)
    assert not front.correct(made[2].id, 5.0)
    with pytest.raises(Refused, match="there is no decision"):
        front.correct("nobody", 5.0)
    updater.step()
    assert not equal(before, front.replica().version.state)
    assert front.correct(made[2].id, 1.0)
    updater.step()
    assert equal(before, front.replica().version.state)


def test_the_first_outcome_of_a_corrected_one_may_come_again(opened):
    front, _ = opened()
    (made,) = decide(front, ChoiceRequest(ROWS[0].tolist()))
    tell(front, (made.id, 1.0))
    front.correct(made.id, 5.0)
    assert tell(front, (made.id, 1.0), (made.id, 5.0)) == [False, False]
    assert front._ledger.table()["outcome"] == [5.0]
    with pytest.raises(Refused, match="has the outcome 5"):
        tell(front, (made.id, 2.0))


def test_of_what_never_comes_only_so_much_is_assumed_at_once(opened):
    front, _ = opened()
    decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS[:5]))
    later = time.time() + 1
    assert [front.expire(later, -1.0, most=2) for _ in range(4)] == [2, 2, 1, 0]
    assert front._ledger.table()["outcome"] == [-1.0] * 5


def test_what_cannot_be_learned_keeps_nothing_else_from_being_assumed(opened, tmp_path):
    """An agent that was migrated to lacks an action of the oldest decisions."""

    def agent(arms):
        return es.EnsembleSampling(es.IndependentArms(arms, noise_std=1.0), members=4)

    with es.Bandit.open(tmp_path / "shop", agent(3), actions=["a", "b", "c"]) as bandit:
        for name in "cccaa":
            bandit.choose(available=[one == name for one in "abc"])
    es.Bandit.migrate(tmp_path / "shop", agent(2), actions=["a", "b"]).close()
    front, _ = opened(agent(2), actions=["a", "b"])
    assert [front.expire(time.time() + 1, 0.5, most=2) for _ in range(3)] == [1, 1, 0]
    assert front._ledger.table()["outcome"] == [None, None, None, 0.5, 0.5]


def test_what_never_comes_is_assumed_but_not_for_what_is_deferred(opened):
    front, updater = opened()
    front.configure(Settings(wait=0.05, default=-1.0))
    offer = ROWS[0].tolist()
    decide(
        front,
        ChoiceRequest(offer),
        ChoiceRequest(offer, event="later", deferred=True),
        ChoiceRequest(offer, event="now"),
    )
    tell(front, ("now", 1.0))
    time.sleep(0.1)
    updater.step()
    updater.step()
    log = front._ledger.table()
    assert log["outcome"] == [-1.0, None, 1.0]
    assert log["expired"] == [True, False, False]
    assert front.activate("later")
    assert not front.activate("later")
    assert not front.activate("now")
    with pytest.raises(Refused, match="there is no event"):
        front.activate("never")
    updater.step()
    assert front._ledger.table()["outcome"] == [-1.0, -1.0, 1.0]


def test_the_first_decision_settles_for_all(opened):
    one, learner = opened(None)
    two, follower = opened(None)
    words = {"tea": {"kind": "hot"}, "cake": {"kind": "cold"}}
    with pytest.raises(Refused, match="one row per action"):
        decide(one, ChoiceRequest([]))
    (made,) = decide(one, ChoiceRequest(words, {"hour": 9}))
    assert made.action in words
    assert (
        decide(two, ChoiceRequest(words, {"hour": 10}))[0].action in words
    )  # not told of the hasher
    assert two.replica().width == 256
    tell(two, (made.id, 1.0))
    learner.step()
    follower.step()
    with pytest.raises(Refused):
        decide(one, ChoiceRequest(words, {"hour": float("inf")}))
    assert len(decide(one, ChoiceRequest(words, {"hour": 1}))) == 1
    assert learner.behind == 0.0


def test_an_apprentice_watches_and_learns(opened):
    front, updater = opened()
    front.configure(Settings(mode="apprentice"))
    for rows in ROWS[:30]:
        (made,) = decide(front, ChoiceRequest(rows.tolist(), available=[False, True, True]))
        assert (made.index, made.probability) == (1, 1.0)
        tell(front, (made.id, float(rows[1].sum())))
        updater.step()
    from ensemble_sampling.decide.summary import summarize

    (apprentice,) = summarize(front._ledger).shadows
    assert (apprentice.name, apprentice.decisions) == ("apprentice", 30)
    assert 0 < apprentice.agreement < 1
    front.configure(Settings())
    assert decide(front, ChoiceRequest(ROWS[0].tolist()))[0].probability < 1 or True
    assert summarize(front._ledger).shadows == ()


def test_an_apprentice_is_recorded_with_the_chance_it_gave_to_what_was_done(opened):
    front, _ = opened(seed=1)
    decide(front, ChoiceRequest(ROWS[0].tolist()))
    likely = [front.predict(ChoiceRequest(rows.tolist()))["probabilities"] for rows in ROWS]
    number = next(n for n, shares in enumerate(likely) if 0 < shares[0] < shares.max())
    front.configure(Settings(mode="apprentice"))
    decide(front, *[ChoiceRequest(ROWS[number].tolist())] * 40)
    said = list(front._ledger.opinions(0))
    assert [(one.probability, one.propensity) for one in said] == [(likely[number][0], 1.0)] * 40
    assert {one.chosen for one in said} == set(np.flatnonzero(likely[number]))


def test_who_stops_learning_lets_another_learn_at_once(opened):
    front, learner = opened()
    _, other = opened()
    for updater in (learner, other):
        updater.step()
    assert (learner.learning, other.learning) == (True, False)
    learner.close()
    assert front._ledger.holder() is None
    other._renew = 0.0  # as in a moment
    other.step()
    assert other.learning


def test_who_could_not_begin_to_learn_lets_another_learn_when_it_closes(opened, monkeypatch):
    """The lease was taken already when its ledger ceased to answer."""
    front, learner = opened()
    _, other = opened()

    def away():
        raise OSError("away")

    monkeypatch.setattr(learner, "_reload", away)
    with pytest.raises(OSError, match="away"):
        learner.step()
    assert learner.learning
    learner.close()
    assert learner._ledger.closed
    assert front._ledger.holder() is None
    other.step()
    assert other.learning


def test_shadows_watch_in_all_processes_and_one_takes_over(opened):
    one, learner = opened(candidates={"other": OTHER})
    two, follower = opened(candidates={"other": OTHER})
    with pytest.raises(Refused, match="no candidate"):
        one.shadow("nobody")

    def play(rows):
        for n, row in enumerate(rows):
            front = (one, two)[n % 2]
            (made,) = decide(front, ChoiceRequest(row.tolist()))
            tell(front, (made.id, float(row[made.index].sum())))
            step()

    def step():
        learner._due = learner._renew = 0.0
        learner.step()
        follower.step()

    step()
    play(ROWS[:5])
    one.shadow("other")
    decide(one, ChoiceRequest(ROWS[0].tolist()))  # it knows nothing yet, and says nothing
    decide(two, ChoiceRequest(ROWS[0].tolist()))
    step()
    assert two.replica("other").version.outcomes == 5
    play(ROWS[5:20])
    said = len(list(one._ledger.opinions(0)))
    assert said == 15
    two.promote("other")
    play(ROWS[20:])
    assert one.name == two.name == "other"
    bandit = es.Bandit(OTHER)
    bandit._ledger = one._ledger
    bandit._replica.version = None
    learner.step()
    assert equal(bandit._replica.sync(one._ledger), one.replica().version.state)
    assert len(list(one._ledger.opinions(0))) in (said, said + 1)  # until it was heard of


def test_a_candidate_takes_over_from_the_default_agent_that_hashes(opened):
    rival = es.EnsembleSampling(es.Linear(256), members=4)
    one, learner = opened(None, candidates={"rival": rival})
    two, follower = opened(None, candidates={"rival": rival})
    words = {"tea": {"kind": "hot"}, "cake": {"kind": "cold"}}
    (made,) = decide(one, ChoiceRequest(words, event="e"))
    one.shadow("rival")
    tell(two, (made.id, 1.0))
    learner.step()
    two.promote("rival")
    assert decide(one, ChoiceRequest(words))[0].action in words
    assert decide(two, ChoiceRequest(words, event="e"))[0].again
    learner.step()
    follower.step()
    assert (one.name, two.name) == ("rival", "rival")
    third, _ = opened(None, candidates={"rival": rival})
    assert third.name == "rival"
    assert decide(third, ChoiceRequest(words))[0].action in words


def test_the_lease_goes_on_when_its_holder_is_gone(opened, monkeypatch):
    _, first = opened()
    two, second = opened()
    first.step()
    second.step()
    assert (first.learning, second.learning) == (True, False)
    assert second.learner == first.holder
    (made,) = decide(two, ChoiceRequest(ROWS[0].tolist()))
    tell(two, (made.id, 1.0))
    second.step()
    assert second.behind >= 0.0
    assert two.replica().version.outcomes == 0
    first._ledger.release(first.holder)
    second._renew = 0.0
    second.step()
    assert second.learning
    assert two.replica().version.outcomes == 1
    first._renew = 0.0
    first.step()
    assert not first.learning


def test_nobody_decides_while_a_configuration_is_loaded(opened, monkeypatch):
    front, _ = opened(candidates={"other": OTHER})
    decide(front, ChoiceRequest(ROWS[0].tolist()))
    reload, held = front.replicas.reload, []

    def watched():
        held.append(front.replicas.door._is_owned())
        reload()

    monkeypatch.setattr(front.replicas, "reload", watched)
    front.configure(Settings(mode="apprentice"))
    front.configure(Settings(floor=0.1))
    front.shadow("other")
    front.promote("other")
    front.load()
    assert held == [True] * 5


def test_a_lease_from_before_the_clock_was_put_back_holds_nobody_off(opened, monkeypatch):
    now = time.time()
    _, first = opened()
    _, second = opened()
    monkeypatch.setattr(sqlite.time, "time", lambda: now + 3600)
    assert first._ledger.lease("gone", 3.0)
    assert not second._ledger.lease("other", 3.0)
    monkeypatch.setattr(sqlite.time, "time", lambda: now)
    assert second._ledger.lease("other", 3.0)
    assert not first._ledger.lease("third", 3.0)
    assert first._ledger.holder() == "other"


def test_what_was_learned_goes_elsewhere_as_a_file(opened):
    front, updater = opened()
    made = decide(front, *(ChoiceRequest(rows.tolist()) for rows in ROWS))
    tell(front, *((one.id, float(n)) for n, one in enumerate(made) if n % 3))
    updater.step()
    content = export_history(front._ledger)
    other, keeping = opened(place="other")
    assert other.take_in(content) == len([n for n in range(40) if n % 3])
    keeping.step()
    # Draws of noise are by a decision's number, which is another one here.
    ours, theirs = (each.replica().state(each._ledger) for each in (front, other))
    assert equal(ours.scale, theirs.scale)
    assert equal(ours.belief[0], theirs.belief[0])
    with pytest.raises(Refused, match="checksum"):
        other.take_in(content[:-40] + bytes(40))
    with pytest.raises(Refused, match="no exported history"):
        other.take_in(b"PK")
    third, _ = opened(OTHER, "third")
    with pytest.raises(Refused, match="another configuration's: they differ in agent"):
        third.take_in(content)
