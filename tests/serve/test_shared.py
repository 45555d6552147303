"""A bandit that several processes serve: exact records, one order for all, settings, shadows."""

# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

import time

import jax
import numpy as np
import pytest
from processes import processes, step
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.replica import Replica
from ensemble_sampling.decide.summary import summarize
from ensemble_sampling.decide.transfer import export_history
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger import sqlite
from ensemble_sampling.serve import outcomes
from ensemble_sampling.serve.decider import Later
from ensemble_sampling.serve.types import Choose, Refused

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
RIVAL = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=4)
ROWS = np.random.default_rng(0).normal(size=(40, 3, 2)).tolist()
WORDS = {"tea": {"kind": "hot"}, "cake": {"kind": "cold"}}


@pytest.fixture
def opened(tmp_path):
    with processes(tmp_path, AGENT) as make:
        yield make


def test_two_processes_decide_and_tell_and_the_state_is_that_of_a_replay(opened, tmp_path):
    one, two = opened(), opened()
    for n, rows in enumerate(ROWS):
        here, there = (one, two) if n % 2 else (two, one)
        (made,) = here.choose(rows)
        assert there.learn((made.id, float(np.sum(rows[made.index])))) == [True]
        one.updater.step()
        two.updater.step()
    assert (one.updater.learning, two.updater.learning) == (True, False)
    step(one, two)
    state = jax.tree.map(np.array, two.main.state(two.ledger))
    assert one.known == two.known == (40, 0)
    assert equal(state, one.main.state(one.ledger))
    for each in (one, two):
        each.close()
    (tmp_path / "shop" / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        assert equal(bandit.state, state)
        assert bandit.summary().outcomes == 40


def test_probabilities_are_those_it_was_drawn_from(opened):
    one = opened()
    one.play(ROWS[:1])
    one.step()
    shares = np.array(one.decider.predict(Choose(ROWS[1])).probabilities)
    many = one.choose(*[ROWS[1]] * 4000)
    assert all(made.probabilities == shares.tolist() for made in many)
    drawn = np.bincount([made.index for made in many], minlength=3) / 4000
    assert np.abs(drawn - shares).max() < 4 * np.sqrt(0.25 / 4000)
    one.configure({"floor": 0.6})
    mask = np.array([True, False, True])
    many = one.choose(*[ROWS[1]] * 4000, available=mask.tolist())
    offer = one.main.inputs.read(ROWS[1], None, mask)
    own = one.main.choose(0, offer, one.main.sync(one.ledger)).probabilities
    expected = 0.4 * own + 0.6 * mask / 2
    np.testing.assert_allclose(many[0].probabilities, expected, rtol=1e-6)
    drawn = np.bincount([made.index for made in many], minlength=3) / 4000
    assert np.abs(drawn - expected).max() < 4 * np.sqrt(0.25 / 4000)


def test_many_at_once_are_those_one_by_one(opened):
    one = opened()
    one.choose(ROWS[0])
    state, rng, offers = one.main.sync(one.ledger), np.random.default_rng(1), []
    for n in range(50):
        table = rng.normal(size=(1 + n % 20, 2)).astype(np.float32)
        mask = rng.random(len(table)) < 0.7
        mask[0] = True
        offers.append(Offer(table, None, None, mask))
    tables = [one.main.table(offer) for offer in offers]
    together = one.main.choose_many(range(50), offers, tables, state)
    for n, offer in enumerate(offers):
        index, shares, values = one.main.choose(n, offer, state)
        assert together[n][0] == index
        np.testing.assert_allclose(together[n][1], shares, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(together[n][2], values, rtol=1e-5, atol=1e-6)


def test_an_event_asked_again_gets_the_same_answer(opened):
    one, two = opened(), opened()
    offer = {"tea": [1.0, 0.0], "cake": [0.0, 1.0]}
    (made,) = one.choose(offer, event="e1")
    for process in (one, two):
        (again,) = process.choose(offer, event="e1")
        assert again.again
        assert (again.id, again.action, again.event) == (made.id, made.action, "e1")
        assert (again.probabilities, again.actions) == (made.probabilities, ["tea", "cake"])
    first, second = one.choose(offer, offer, event="e2")
    assert (first.id, first.again, second.id, second.again) == (first.id, False, first.id, True)
    slots = two.ask(*(Choose(offer, event="e3", slot=slot) for slot in "ab"))
    assert slots[0].id != slots[1].id
    assert one.learn(("e3/a", 1.0), ("e1", 0.0), (slots[1].id, 2.0)) == [True] * 3
    assert two.learn(("e3/b", 2.0), (made.id, 0.0)) == [False, False]


def test_ids_with_slashes_mean_one_event_each(opened):
    one = opened()
    events = [("a", ""), ("a", "b"), ("a/b", "c"), ("a/", "")]
    made = one.ask(*(Choose(ROWS[0], event=event, slot=slot) for event, slot in events))
    told = [("a", 1.0), ("a/b", 2.0), ("a/b/c", 3.0), ("a/", 4.0)]
    assert one.learn(*told) == [True] * 4
    assert one.ledger.table()["outcome"] == [1.0, 2.0, 3.0, 4.0]
    assert len({each.id for each in made}) == 4
    with pytest.raises(Refused, match="no decision 'c/'"):
        one.learn(("c/", 1.0))


def test_outcomes_are_told_once_all_of_a_group_or_none_and_can_be_corrected(opened):
    one = opened()
    a, b, c, _ = (made.id for made in one.choose(*ROWS[:4]))
    _, answers = one.work(
        [],
        [
            [(a, 1.0)],
            [(b, 1.0), ("nobody", 1.0)],
            [(a, 2.0)],
            [(b, 3.0), (a, 1.0)],
            [(c, float("nan"))],
            [(c, [1.0, 2.0])],
        ],
    )
    assert answers == [[True], "unknown", "conflict", [True, False], "invalid", "invalid"]
    assert one.ledger.table()["outcome"] == [1.0, 3.0, None, None]
    with pytest.raises(Refused, match="has the outcome"):
        one.learn((b, 1.0))
    one.step()
    before = jax.tree.map(np.array, one.main.version.state)
    assert [one.correct(a, 5.0), one.correct(a, 5.0)] == [True, False]
    with pytest.raises(Refused, match="there is no decision"):
        one.correct("nobody", 5.0)
    assert one.learn((a, 1.0), (a, 5.0)) == [False, False]  # the first may come again too
    with pytest.raises(Refused, match="has the outcome 5"):
        one.learn((a, 2.0))
    one.step()
    assert not equal(before, one.main.version.state)
    assert one.correct(a, 1.0)
    one.step()
    assert equal(before, one.main.version.state)


def test_outcomes_add_up_once_by_their_reference(opened):
    one = opened()
    one.configure({"aggregation": "sum"})
    a, b, c, d = (made.id for made in one.choose(*ROWS[:4]))
    assert one.learn((a, 1.0), (a, 2.0)) == [True, True]
    assert one.learn((a, 4.0)) == [True]
    assert one.learn((a, 8.0), (a, 16.0)) == [True, True]
    assert [one.add(b, 3.0, "order 1"), one.add(b, 3.0, "order 1")] == [True, False]
    with pytest.raises(Refused, match="cannot add") as refused:
        one.add(b, 5.0, "order 1")
    assert refused.value.kind == "conflict"
    assert one.add(b, 2.0)
    groups = [
        [(c, 1.0, "a"), (c, 1.0, "a"), (c, 2.0, "b")],
        [(c, 1.0, "a"), (d, 1.0, "a")],  # it is a decision's own
        [(c, 7.0, "b")],
    ]
    assert one.work([], groups)[1] == [[True, False, True], [False, True], "conflict"]
    assert one.ledger.table()["outcome"] == [31.0, 5.0, 3.0, 1.0]
    one.step()
    assert equal(es.Bandit(AGENT)._replica.sync(one.ledger), one.main.version.state)


def test_what_never_comes_is_assumed_in_small_parts(opened, tmp_path, monkeypatch):
    """Also where an agent that was migrated to lacks an action of the oldest decisions."""

    def agent(arms):
        return es.EnsembleSampling(es.IndependentArms(arms, noise_std=1.0), members=4)

    monkeypatch.setattr(outcomes, "MOST", 2)
    with es.Bandit.open(tmp_path / "shop", agent(3), actions=["a", "b", "c"]) as bandit:
        for name in "cccaab":
            bandit.choose(available=[one == name for one in "abc"])
    es.Bandit.migrate(tmp_path / "shop", agent(2), actions=["a", "b"]).close()
    one = opened(agent(2), actions=["a", "b"])
    later = time.time() + 1
    assert [outcomes._expire_some(one.replicas, later, 0.5) for _ in range(4)] == [1, 1, 1, 0]
    assert one.ledger.table()["outcome"] == [None, None, None, 0.5, 0.5, 0.5]
    one.choose(*[None] * 5)
    assert one.expire(0.0, -1.0) == 5


def test_what_never_comes_is_assumed_but_not_for_what_is_deferred(opened):
    one = opened()
    one.configure({"wait": 0.05, "default": -1.0})
    events = [(None, False), ("later", True), ("now", False)]
    one.ask(*(Choose(ROWS[0], event=event, deferred=deferred) for event, deferred in events))
    one.learn(("now", 1.0))
    time.sleep(0.1)
    step(one, one)
    log = one.ledger.table()
    assert log["outcome"] == [-1.0, None, 1.0]
    assert log["expired"] == [True, False, False]
    assert [one.activate("later"), one.activate("later"), one.activate("now")] == [
        True,
        False,
        False,
    ]
    with pytest.raises(Refused, match="there is no event"):
        one.activate("never")
    one.step()
    assert one.ledger.table()["outcome"] == [-1.0, -1.0, 1.0]


def test_the_first_decision_settles_for_all(opened):
    one, two, three = opened(None), opened(None), opened(None)
    assert three.expire(0.0, 0.0) == 0  # nothing was decided
    with pytest.raises(Refused, match="one row per action"):
        one.choose([])
    made, *others = one.choose(*[WORDS] * 3, context={"hour": 9})
    assert made.action in WORDS
    assert two.learn((made.id, 1.0)) == [True]  # which was not told of the hasher
    assert two.main.width == 256
    assert two.choose(WORDS, context={"hour": 10})[0].action in WORDS
    assert three.add(others[0].id, 1.0)
    assert three.expire(0.0, 0.0) == 2
    step(one, two, one, two)
    with pytest.raises(Refused):
        one.choose(WORDS, context={"hour": float("inf")})
    assert len(one.choose(WORDS, context={"hour": 1})) == 1
    assert one.updater.behind == 0.0
    assert two.known == (4, 0)
    replay = es.Bandit(hasher=one.main.inputs.hasher)._replica
    assert equal(two.main.version.state, replay.sync(one.ledger))


def test_a_first_decision_that_is_not_recorded_settles_nothing(opened, monkeypatch):
    one = opened(None)

    def full(before):
        raise OSError("the disk is full")

    assert len(one.decider.predict(Choose(WORDS)).probabilities) == 2
    with monkeypatch.context() as patch:
        patch.setattr(one.ledger._transactions, "_commit", full)
        with pytest.raises(OSError, match="full"):
            one.choose(WORDS)
    answers, _ = one.work([[Choose([[1.0], [1.0, 2.0]])], [Choose([[1.0, 2.0, 3.0]])]])
    assert (answers[0], len(answers[1])) == ("invalid", 1)
    assert (one.main.width, one.ledger.decisions, one.main.inputs.hasher) == (3, 1, None)


def test_first_decisions_are_not_made_twice_when_others_change_something(opened, monkeypatch):
    one, two = opened(None), opened(None)
    drafts = one.decider._drafts

    def meanwhile(groups, hurry):
        monkeypatch.undo()
        two.configure({"mode": "apprentice"})
        return drafts(groups, hurry)

    monkeypatch.setattr(one.decider, "_drafts", meanwhile)
    answers, _ = one.work([[Choose(ROWS[0])], [Choose(ROWS[0])]])
    assert [made.probabilities for (made,) in answers] == [[1.0, 0.0, 0.0]] * 2
    assert one.ledger.decisions == 2


def test_the_first_decision_is_compiled_for_before_others_have_to_wait(opened, monkeypatch):
    one = opened(None)
    choose_many, during = Replica.choose_many, []

    def watched(replica, *about):
        if about[0]:
            during.append(one.ledger._transactions.kind)
        return choose_many(replica, *about)

    monkeypatch.setattr(Replica, "choose_many", watched)
    with pytest.raises(Refused):
        one.choose([[1.0]], [[1.0, 2.0]])
    assert during == []
    one.choose(ROWS[0])
    one.choose(ROWS[0])
    assert during == [None, None]


def test_offers_that_are_refused_leave_the_others_alone(opened):
    one = opened()
    one.choose(ROWS[0])
    answers, _ = one.work([[Choose(ROWS[0]), Choose([[1.0]])], [Choose(ROWS[0])]])
    assert (answers[0], len(answers[1]), one.ledger.decisions) == ("invalid", 1, 2)


def test_in_a_hurry_what_has_to_be_compiled_first_is_left_for_later(opened, monkeypatch):
    one, rows = opened(), Choose(ROWS[0])
    one.ask(rows)  # the first is compiled for in any case
    many, lots = (Choose(np.random.default_rng(1).normal(size=(n, 2)).tolist()) for n in (9, 40))
    answers, _ = one.work([[lots], [many], [Choose([[1.0]])]], hurry=True)
    assert [type(answer) for answer in answers[:2]] == [Later, Later]
    assert (answers[2], one.ledger.decisions) == ("invalid", 1)
    assert one.decider.prepare(answers[0].offer, 1)
    event = Choose(ROWS[0], event="a")
    answers, _ = one.work([[event, rows], [many], [event], [lots]], hurry=True)
    assert [len(answers[0]), type(answers[1]), *map(len, answers[2:])] == [2, Later, 1, 1]
    assert (answers[2][0].id, one.ledger.decisions) == (answers[0][0].id, 4)
    two = opened()
    two.decider.warm()  # by what the other was asked
    assert two.decider.warmed
    assert [type(answer) for answer in two.work([[rows]], hurry=True)[0]] == [list]
    one.decider.warm()
    choose_many, compiled = Replica.choose_many, []

    def watched(replica, *about):
        found = choose_many(replica, *about)
        compiled.append(len(found))
        return found

    monkeypatch.setattr(Replica, "choose_many", watched)
    for size in (1, 2, 4, 8, 16):
        assert one.decider.prepare(answers[1].offer, size) == (size < 16)
    assert compiled == [1, 2, 4, 8, 16]
    answers, _ = one.work([[rows] * 5, [many]], hurry=True)
    assert [len(answer) for answer in answers] == [5, 1]


def test_an_apprentice_watches_and_learns(opened):
    one = opened(seed=1)
    one.choose(ROWS[0])
    likely = [one.decider.predict(Choose(rows)).probabilities for rows in ROWS]
    number = next(n for n, shares in enumerate(likely) if 0 < shares[0] < max(shares))
    one.configure({"mode": "apprentice"})
    one.choose(*[ROWS[number]] * 40)
    said = list(one.ledger.opinions(0))
    # The chance it gave to what was done is recorded.
    assert [(each.probability, each.propensity) for each in said] == [(likely[number][0], 1.0)] * 40
    assert {each.chosen for each in said} == set(np.flatnonzero(likely[number]))
    for rows in ROWS[:30]:
        (made,) = one.choose(rows, available=[False, True, True])
        assert (made.index, made.probability) == (1, 1.0)
        one.learn((made.id, float(np.sum(rows[1]))))
        one.updater.step()
    (apprentice,) = summarize(one.ledger).shadows
    assert (apprentice.name, apprentice.decisions) == ("apprentice", 70)
    assert 0 < apprentice.agreement < 1
    one.configure({"mode": "online"})
    one.choose(ROWS[0])
    assert summarize(one.ledger).shadows == ()


def test_two_shares_left_to_chance_are_one(opened):
    one = opened(floor=0.5)
    one.configure({"floor": 0.5})
    assert one.replicas.floor == 0.75
    assert min(one.choose(ROWS[0])[0].probabilities) >= 0.75 / 3 - 1e-6


def test_shadows_watch_in_all_processes_and_one_takes_over(opened):
    one, two = (opened(candidates={"rival": RIVAL}) for _ in range(2))
    with pytest.raises(Refused, match="no candidate"):
        one.shadow("nobody")

    def play(offers):
        for n, rows in enumerate(offers):
            (one, two)[n % 2].play([rows])
            step(one, two)

    step(one, two)
    play(ROWS[:5])
    one.shadow("rival")
    one.choose(ROWS[0])  # it knows nothing yet, and says nothing
    two.choose(ROWS[0])
    step(one, two)
    assert two.shadow_replica("rival").version.outcomes == 5
    play(ROWS[5:20])
    said = len(list(one.ledger.opinions(0)))
    assert said == 15
    two.promote("rival")
    play(ROWS[20:])
    assert one.replicas.name == two.replicas.name == "rival"
    one.step()
    assert equal(es.Bandit(RIVAL)._replica.sync(one.ledger), one.main.version.state)
    assert len(list(one.ledger.opinions(0))) in (said, said + 1)  # until it was heard of


def test_a_shadow_says_what_that_of_a_bandit_would(opened):
    one = opened(candidates={"rival": RIVAL})
    one.play(ROWS[:5])
    one.shadow("rival")
    one.configure({"floor": 0.2})
    one.step()
    mask = np.array([True, False, True])
    (made,) = one.choose(ROWS[0], available=mask.tolist())
    offer = one.main.inputs.read(ROWS[0], None, mask)
    replica = es.Bandit(RIVAL)._replica.covering([offer])
    shares = replica.choose(0, offer, replica.sync(one.ledger)).probabilities
    (said,) = one.ledger.opinions(0)
    assert said.probability == pytest.approx(shares[made.index], abs=1e-6)
    assert (said.decision, said.propensity) == (5, pytest.approx(made.probability))
    assert mask[said.chosen]
    assert made.probability >= 0.1


def test_a_shadow_of_another_configuration_sleeps(opened):
    one = opened(candidates={"rival": RIVAL})
    one.choose(ROWS[0])
    one.shadow("rival")
    with pytest.warns(UserWarning, match="'rival' sleeps: it was begun with another"):
        two = opened(candidates={"rival": AGENT})
    two.choose(ROWS[0])
    assert two.shadow_replica("rival") is None
    assert list(one.ledger.opinions(0)) == []
    one.choose(ROWS[0])
    assert len(list(one.ledger.opinions(0))) == 1
    one.dismiss("rival")
    one.choose(ROWS[0])
    assert len(list(one.ledger.opinions(0))) == 1
    for gone in (one.dismiss, one.promote):
        with pytest.raises(Refused, match="'rival'") as refused:
            gone("rival")
        assert refused.value.kind == "unknown"


def test_a_candidate_takes_over_from_the_default_agent_that_hashes(opened):
    rival = es.EnsembleSampling(es.Linear(256), members=4)
    one, two = (opened(None, candidates={"rival": rival}) for _ in range(2))
    (made,) = one.choose(WORDS, event="e")
    one.shadow("rival")
    two.learn((made.id, 1.0))
    one.updater.step()
    two.promote("rival")
    assert one.choose(WORDS)[0].action in WORDS
    assert two.choose(WORDS, event="e")[0].again
    one.updater.step()
    two.updater.step()
    third = opened(None, candidates={"rival": rival})
    assert [each.replicas.name for each in (one, two, third)] == ["rival"] * 3
    assert third.choose(WORDS)[0].action in WORDS


def test_nobody_decides_while_a_configuration_is_loaded(opened, monkeypatch):
    one = opened(candidates={"rival": RIVAL})
    one.choose(ROWS[0])
    reload, held = one.replicas.reload, []

    def watched():
        held.append(one.replicas.door._is_owned())
        reload()

    monkeypatch.setattr(one.replicas, "reload", watched)
    one.configure({"mode": "apprentice"})
    one.configure({"mode": "online", "floor": 0.1})
    one.shadow("rival")
    one.promote("rival")
    one.replicas.load()
    assert held == [True] * 5


def test_a_lease_from_before_the_clock_was_put_back_holds_nobody_off(opened, monkeypatch):
    now, one, two = time.time(), opened(), opened()
    monkeypatch.setattr(sqlite.time, "time", lambda: now + 3600)
    assert one.ledger.lease("gone", 3.0)
    assert not two.ledger.lease("other", 3.0)
    monkeypatch.setattr(sqlite.time, "time", lambda: now)
    assert two.ledger.lease("other", 3.0)
    assert not one.ledger.lease("third", 3.0)
    assert one.ledger.holder() == "other"


@pytest.mark.parametrize("offer", [ROWS[0], WORDS])
def test_a_new_bandit_learns_what_another_did_and_hands_it_on(opened, offer):
    one, two, three = opened(None), opened(None, "new"), opened(None, "third")
    made = one.choose(*[offer] * 4)
    one.learn(*((each.id, float(n)) for n, each in enumerate(made[:3])))
    one.step()
    assert two.import_state(export_history(one.ledger)) == 3
    assert two.import_state(export_history(one.ledger)) == 0  # it is no news
    assert two.ledger.outcomes == two.ledger.decisions == 3
    two.step()
    # Noise is drawn by the numbers of decisions, which are the same.
    assert equal(two.main.version.state, one.main.version.state)
    assert two.main.inputs.hasher == one.main.inputs.hasher
    assert three.import_state(export_history(two.ledger)) == 3
    assert three.ledger.table()["probability"] == two.ledger.table()["probability"]
    assert three.choose(offer)[0].index in range(3)


def _put(name, at, value):
    return lambda about: about[name].__setitem__(at, value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_put("chosen", 0, -1), "index of an action"),
        (_put("chances", 0, 0.0), "a chance"),
        (_put("outcomes", 0, float("nan")), "outcome"),
        (lambda about: about["outcomes"].pop(), "not of one length"),
        (lambda about: about.pop("widths"), "no exported history"),
        (_put("agent", "normalise", False), "differ in normalise"),
        (_put("agent", "agent", {}), "another configuration's: they differ in agent"),
    ],
)
def test_what_could_not_be_learned_is_not_imported(opened, change, says, monkeypatch):
    from ensemble_sampling.decide import transfer

    one, two, text = opened(), opened(place="new"), transfer.json.dumps
    one.play(ROWS[:3])
    content = export_history(one.ledger)

    def dumps(about):
        if "kind" in about:
            change(about)
        return text(about)

    with monkeypatch.context() as patch:
        patch.setattr(transfer.json, "dumps", dumps)
        sealed = export_history(one.ledger)
    with pytest.raises(Refused, match=says):
        two.import_state(sealed)
    for damaged, why in ((content[:-40] + bytes(40), "checksum"), (b"PK", "no exported history")):
        with pytest.raises(Refused, match=why):
            two.import_state(damaged)
    assert two.ledger.decisions == 0
    assert two.import_state(content) == 3
