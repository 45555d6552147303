"""Candidates beside the agent in charge: they learn the same, change nothing, and can take over."""

# pyright: reportOptionalOperand=false, reportOperatorIssue=false

import sqlite3
import warnings
from contextlib import closing

import jax
import numpy as np
import pytest
from states import equal, interrupted
from test_revisions import DECIDE

import ensemble_sampling as es
from ensemble_sampling import intervals
from ensemble_sampling.decide.shadows import _compared, watching
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger.ledger import Ledger

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OTHER = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=5)
OFFERS = np.random.default_rng(0).normal(size=(40, 3, 2))


def play(bandit, offers=OFFERS):
    decisions = []
    for offer in offers:
        decisions.append(bandit.choose(offer))
        bandit.learn(decisions[-1].id, float(offer[decisions[-1].index].sum()))
    return decisions


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_shadow_learns_what_the_agent_in_charge_learns_and_changes_nothing(tmp_path, where):
    def opened():
        return es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path / "shop", AGENT)

    alone = es.Bandit(AGENT)
    expected = play(alone)
    bandit = opened()
    decisions = play(bandit, OFFERS[:10])
    bandit.shadow("other", OTHER)
    decisions += play(bandit, OFFERS[10:20])
    if where == "disk":
        bandit.close()
        assert (tmp_path / "shop" / "shadow-0.safetensors").exists()
        bandit = opened()
        assert "other: agrees in" in str(bandit.summary())  # also while it sleeps
        bandit.shadow("other", OTHER)
    decisions += play(bandit, OFFERS[20:])
    assert [d.index for d in decisions] == [d.index for d in expected]
    assert equal(bandit.state, alone.state)
    replica = bandit._shadows.take(bandit._ledger, "other")
    if where == "disk":
        bandit.backup(tmp_path / "copy")
        with pytest.warns(UserWarning, match="is a copy"):
            migrated = es.Bandit.migrate(tmp_path / "copy", OTHER)
        assert equal(migrated.state, replica.state(bandit._ledger))
        said = migrated.opinions("other")
        migrated.close()
    else:
        said = bandit.opinions("other")
    assert said == bandit.opinions("other")
    assert [id.split("-")[1] for id in said["id"]] == [str(n) for n in range(10, 40)]
    assert said["propensity"] == [d.probability for d in decisions[10:]]
    # What it says is what it would do, had it been in charge of the same history.
    twin = es.Bandit(OTHER)
    for n, decision in enumerate(decisions):
        foreseen = twin.predict(OFFERS[n]).probabilities
        if n >= 10:
            assert said["probability"][n - 10] == foreseen[decision.index]
            assert foreseen[said["index"][n - 10]] > 0
        row, y = OFFERS[n][decision.index], float(OFFERS[n][decision.index].sum())
        twin.learn_from({"x": [row], "y": [y]}, features="x", outcome="y")
    bandit.close()


def test_a_summary_compares_by_plain_sums():
    bandit = es.Bandit(es.Uniform(), seed=1)
    bandit.choose(OFFERS[0])
    bandit.shadow("linear", OTHER)
    decisions = play(bandit)
    bandit.choose(OFFERS[0])  # without an outcome
    bandit.correct(decisions[3].id, 5.0)
    said, log = bandit.opinions("linear"), bandit.log()
    total = weight = 0.0
    weights, rewards = [], []
    for n in range(len(said["id"])):
        reward = log["reward"][n + 1]
        if reward is not None:
            w = said["probability"][n] / log["probability"][n + 1]
            weights.append(w)
            rewards.append(reward)
            total, weight = total + w * reward, weight + w
    value = total / weight
    agreed = [a == b for a, b in zip(said["index"], log["index"][1:], strict=True)]
    (found,) = bandit.summary().shadows
    assert (found.name, found.decisions) == ("linear", 41)
    assert found.agreement == pytest.approx(np.mean(agreed))
    assert found.value == pytest.approx(value)
    effective = weight**2 / sum(w * w for w in weights)
    assert found.effective == pytest.approx(effective)
    first = float(OFFERS[3][decisions[3].index].sum())  # before it was corrected
    span = intervals.Span(min(first, *rewards), max(first, *rewards), False)
    sums = intervals.weighted(np.array(weights), np.array(rewards))
    want = sums.mean(span).widened(sums.missing(intervals.TAIL) * (span.high - span.low))
    assert (found.stderr, found.low, found.high) == pytest.approx(want[1:])
    assert found.reward == pytest.approx(np.mean(rewards))
    assert value > np.mean(rewards)  # it learns, which chance does not
    assert "shadow     linear: agrees in" in str(bandit.summary())


def test_promote_is_a_migration(tmp_path):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        play(bandit, OFFERS[:20])
        bandit.backup(tmp_path / "copy")
        bandit.shadow("next", OTHER)
        bandit.shadow("chance", es.Uniform())
        bandit.promote("next")
        play(bandit, OFFERS[20:])
        state = bandit.state
        assert [shadow.name for shadow in bandit.summary().shadows] == ["chance"]
        assert len(bandit.opinions("chance")["id"]) == 20
        with pytest.raises(ValueError, match="'next' was promoted or dismissed"):
            bandit.promote("next")
    with pytest.warns(UserWarning, match="is a copy"):
        migrated = es.Bandit.migrate(tmp_path / "copy", OTHER)
    with migrated:
        play(migrated, OFFERS[20:])
        assert equal(migrated.state, state)
    with pytest.raises(ValueError, match="members: 5 -> 4"):
        es.Bandit.open(tmp_path / "shop", AGENT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit = es.Bandit.open(tmp_path / "shop", OTHER)
    with bandit:
        assert equal(bandit.state, state)
        bandit.shadow("next", AGENT)  # the name is free again


def test_a_promotion_that_cannot_be_recorded_changes_nothing(tmp_path, monkeypatch):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        play(bandit, OFFERS[:5])
        bandit.shadow("next", OTHER)
        state = bandit.state

        def full(*_, **__):
            raise OSError("no space left")

        monkeypatch.setattr(bandit._ledger, "describe", full)
        with pytest.raises(OSError, match="no space"):
            bandit.promote("next")
        monkeypatch.undo()
        assert equal(bandit.state, state)
        bandit.choose(OFFERS[0])
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_the_default_agent_can_be_a_shadow_and_be_promoted(tmp_path):
    agent = es.EnsembleSampling(es.IndependentArms(2, noise_std=0.5), members=3)
    with es.Bandit.open(tmp_path, agent, actions=["a", "b"]) as bandit:
        bandit.learn(bandit.choose().id, 1.0)
        bandit.shadow("default")
        bandit.learn(bandit.choose().id, 0.0)
        bandit.promote("default")
        bandit.learn(bandit.choose().id, 0.5)
        state = bandit.state
    with es.Bandit.open(tmp_path) as bandit:
        assert bandit.choose().action in ("a", "b")
        assert equal(bandit.state, state)


class Broken(es.Uniform):
    """Fails after a while."""

    def check_outcome(self, outcome):
        if outcome > 5:
            raise ValueError("more than five")


def test_a_shadow_that_fails_sleeps_and_harms_no_decision():
    bandit = es.Bandit(AGENT)
    play(bandit, OFFERS[:3])
    bandit.shadow("broken", Broken())
    play(bandit, OFFERS[:2])
    decision = bandit.choose(OFFERS[3])
    with pytest.warns(UserWarning, match="the shadow 'broken' failed and sleeps: more than five"):
        assert bandit.learn(decision.id, 7.0)
    bandit.choose(OFFERS[4])
    assert len(bandit.opinions("broken")["id"]) == 3
    with pytest.raises(ValueError, match="'broken' sleeps: wake it"):
        bandit.promote("broken")
    with pytest.raises(ValueError, match="more than five"):
        bandit.shadow("broken", Broken())


def test_what_cannot_be_a_shadow_is_refused():
    bandit = es.Bandit(es.Uniform())
    with pytest.raises(ValueError, match="make a decision first"):
        bandit.shadow("early", AGENT)
    bandit.choose(OFFERS[0])
    with pytest.raises(ValueError, match="actions have 2 features, the shadow 3"):
        bandit.shadow("wide", es.EnsembleSampling(es.Linear(3), members=2))
    with pytest.raises(ValueError, match="the shadow has 3 actions, this bandit a free choice"):
        bandit.shadow("arms", es.EnsembleSampling(es.IndependentArms(3), members=2))
    with pytest.raises(TypeError, match="wrap a learner"):
        bandit.shadow("learner", es.Linear(2))  # pyright: ignore[reportArgumentType]
    for name in ("", 3, None):
        with pytest.raises(TypeError, match="name must be text"):
            bandit.shadow(name, AGENT)  # pyright: ignore[reportArgumentType]
    for call in (bandit.promote, bandit.dismiss, bandit.opinions):
        with pytest.raises(ValueError, match="there is no shadow 'x'"):
            call("x")
    bandit.shadow("one", AGENT)
    with pytest.raises(ValueError, match=r"another configuration[\s\S]*members: 4 -> 5"):
        bandit.shadow("one", OTHER)
    bandit.dismiss("one")
    bandit.shadow("one", OTHER)
    assert [shadow.name for shadow in bandit.summary().shadows] == ["one"]
    assert "one: no decision yet" in str(bandit.summary())


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM opinions WHERE number = 2", "row 2 of the table opinions is missing"),
        ("DELETE FROM opinions WHERE number > 3", "it has 4 opinions, and had 5"),
        ("UPDATE opinions SET probability = 0.7 WHERE number = 3", "row 3 of the table opinions"),
        ("UPDATE opinions SET chosen = 7 WHERE number = 3", "row 3 of the table opinions"),
        ("UPDATE shadows SET name = 'b'", "row 0 of the table shadows"),
        ("UPDATE shadows SET first = 3", "row 0 of the table shadows"),
        ("DELETE FROM shadows", "it has 0 shadows, and had 1"),
    ],
)
def test_damage_to_shadows_is_noticed(tmp_path, statement, told):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.choose(OFFERS[0])
        bandit.shadow("a", OTHER)
        play(bandit, OFFERS[:5])
    assert inspect(tmp_path).shadows[0].decisions == 5
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
        db.execute(statement)
    with pytest.raises(Damaged, match=told), closing(Ledger(tmp_path)) as ledger:
        assert [*ledger.shadows(), *ledger.opinions(0)] == []


CALLS = {
    "shadow": lambda bandit: bandit.shadow("more", es.Uniform()),
    "promote": lambda bandit: bandit.promote("next"),
    "dismiss": lambda bandit: bandit.dismiss("next"),
    "learn_from": lambda bandit: bandit.learn_from(
        {"x": list(OFFERS[0]), "y": [1.0] * 3}, features="x", outcome="y"
    ),
}


@pytest.mark.parametrize(("call", "step"), [("shadow", 29), ("promote", 5), ("dismiss", 5),
                                            ("learn_from", 29)])  # fmt: skip
def test_interrupted_at_any_line_all_of_it_is_done_or_nothing(call, step):
    for line in range(1, 5000, step):
        bandit = es.Bandit(AGENT)
        play(bandit, OFFERS[:2])
        bandit.shadow("next", OTHER)
        play(bandit, OFFERS[2:3])
        try:
            interrupted(line, lambda one=bandit: CALLS[call](one), DECIDE)
            done = True
        except KeyboardInterrupt:
            done = False
        described = bandit._ledger.description
        assert described == bandit._replica.setup.description
        assert described["agent"]["posterior"]["members"] in ((4, 5) if call == "promote" else (4,))
        count = bandit.summary().outcomes
        assert count in ((3, 6) if call == "learn_from" else (3,))
        play(bandit, OFFERS[3:4])  # works, whatever happened
        state = bandit.state
        bandit._replica.version = None
        assert equal(bandit.state, state)
        for name in {shadow.name for shadow in bandit.summary().shadows} & {"next"}:
            if name in bandit._shadows.awake:
                replica = bandit._shadows.take(bandit._ledger, name)
                live = jax.tree.map(np.array, replica.sync(bandit._ledger))
                replica.version = None
                assert equal(replica.sync(bandit._ledger), live)
        if done:
            return
    raise AssertionError("it never ran through")


def told(weights, rewards, span):
    """A shadow of these weights."""
    found = intervals.weighted(weights, rewards)
    sums = (found.decisions, 0.0, found.largest, *found.powers)
    return _compared("it", (found.decisions, 0.1), sums, span, found.origin, 0.0)


CLICKS = intervals.Span(0.0, 1.0, True)


@pytest.mark.parametrize(
    ("rate", "decisions"), [(0.003, 300), (0.01, 300), (0.01, 3000), (0.3, 300)]
)
def test_the_interval_of_a_shadow_covers_rare_clicks(rate, decisions):
    """Five actions, of which the agent in charge prefers the first and the shadow the second."""
    rng = np.random.default_rng(0)
    logging, wanted = np.full(5, 0.05), np.full(5, 0.025)
    logging[0], wanted[1] = 0.8, 0.9
    covered = plain = 0
    for _ in range(1000):
        w = (wanted / logging)[rng.choice(5, decisions, p=logging)]
        r = (rng.random(decisions) < rate).astype(float)
        found = told(w, r, CLICKS)
        covered += found.low <= rate <= found.high
        plain += abs(found.value - rate) < 1.96 * found.stderr
    assert covered > 930
    assert plain < (900 if rate < 0.1 else covered + 20)


@pytest.mark.parametrize("decisions", [20, 100, 300])
def test_the_interval_of_a_shadow_covers_what_was_hardly_ever_chosen(decisions):
    """What it would choose has other rewards than all the rest, and perhaps was never chosen."""
    rng, rates = np.random.default_rng(0), np.array([1.0, 0.5, 1.0, 1.0])
    logging, wanted = np.array([0.925, 0.025, 0.025, 0.025]), np.full(4, 0.05 / 3)
    wanted[1] = 0.95
    covered = 0
    for _ in range(1000):
        chosen = rng.choice(4, decisions, p=logging)
        w, r = (wanted / logging)[chosen], (rng.random(decisions) < rates[chosen]).astype(float)
        found = told(w, r, CLICKS)
        covered += found.low <= wanted @ rates <= found.high
    assert covered > 930


def test_rewards_that_were_corrected_count_for_the_standard_error():
    found = []
    for corrected in (True, False):
        bandit = es.Bandit(es.Uniform())
        bandit.choose(OFFERS[0])
        bandit.shadow("linear", OTHER)
        ids = [bandit.choose(OFFERS[n % len(OFFERS)]).id for n in range(20)]
        for n, id in enumerate(ids):
            bandit.learn(id, 1.0 if corrected or n % 2 else 0.0)
            if corrected and n % 2 == 0:
                bandit.correct(id, 0.0)
        (shadow,) = bandit.summary().shadows
        found.append(shadow.stderr)
    assert found[0] == pytest.approx(found[1])


def test_while_all_rewards_are_the_same_there_is_no_standard_error():
    bandit = es.Bandit(es.Uniform())
    bandit.choose(OFFERS[0])
    bandit.shadow("linear", OTHER)
    for n in range(5):
        bandit.learn(bandit.choose(OFFERS[n]).id, 0.7)
    (found,) = bandit.summary().shadows
    assert (found.value, found.stderr, found.low) == (0.7, None, None)
    assert "would have earned" not in str(found)


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_a_shadow_whose_choices_had_no_chance_has_no_value(offset):
    """Two actions of .1 and .9, of which the first is soon never chosen: the log cannot tell what
    an even choice would earn. With a floor it can, whatever the offset of rewards."""
    rng = np.random.default_rng(0)
    for floor, known in ((0.0, False), (0.5, True)):
        agent = es.EnsembleSampling(es.IndependentArms(2), members=10)
        bandit = es.Bandit(agent, actions=["a", "b"], floor=floor)
        for t in range(300):
            made = bandit.choose()
            if t == 0:
                bandit.shadow("even", es.Uniform())
            bandit.learn(made.id, offset + float(rng.random() < (0.1, 0.9)[made.index]))
        (even,) = bandit.summary().shadows
        if known:
            assert even.value is not None
            assert even.stderr is not None
            assert abs(even.value - offset - 0.5) < 4 * even.stderr
            assert 0.01 < even.stderr < 0.1
        else:
            assert even.value is None
            assert even.unsupported > 0.2
            assert "had no chance" in str(even)


def test_of_several_corrections_the_last_counts():
    bandit = es.Bandit(es.Uniform())
    bandit.choose(OFFERS[0])
    bandit.shadow("linear", OTHER)
    for n in range(6):
        id = bandit.choose(OFFERS[n]).id
        bandit.learn(id, 1.0)
        for y in (50.0, 3.0):
            bandit.correct(id, y)
    (shadow,) = bandit.summary().shadows
    assert (shadow.value, shadow.reward) == pytest.approx((3.0, 3.0))


def test_a_shadow_decides_with_the_floor_of_the_agent_in_charge():
    """As it would once it is promoted."""
    bandit = es.Bandit(es.Uniform(), floor=0.3)
    bandit.choose(OFFERS[0])
    bandit.shadow("greedy", es.Greedy(es.Linear(2)))
    play(bandit)
    said = set(np.round(bandit.opinions("greedy")["probability"][5:], 6))  # at first all are alike
    assert said == {0.1, 0.8}  # of three actions; without a floor 0 and 1


def test_the_interval_of_a_shadow_is_hardly_wider_than_it_must_be_for_numbers():
    """The truth is within it in 95% of logs, whose estimates have the standard error it says."""
    rng, values, widths, errors = np.random.default_rng(0), [], [], []
    for _ in range(500):
        w = np.where(rng.random(500) < 0.2, 5.0, 0.0)
        r = 3 + rng.normal(size=500)
        found = told(w, r, intervals.Span.of(r))
        values.append(found.low <= 3 <= found.high)
        widths.append(found.high - found.low)
        errors.append(found.value - 3)
    assert 0.93 <= np.mean(values) <= 0.98
    assert np.mean(widths) < 1.12 * 3.92 * np.std(errors)


def test_before_the_first_click_a_shadow_has_an_interval():
    bandit = es.Bandit(es.Uniform())
    bandit.choose(OFFERS[0])
    bandit.shadow("linear", OTHER)
    for n in range(30):
        bandit.learn(bandit.choose(OFFERS[n]).id, 0.0)
    (found,) = bandit.summary().shadows
    assert (found.value, found.stderr, found.low) == (0.0, 0.0, 0.0)
    assert 3 / 30 < found.high < 1
    assert f"would have earned 0 (0 to {found.high:.4g}, as from" in str(found)


@pytest.mark.parametrize("agent", [None, es.EnsembleSampling(es.Linear(1), 4)])
def test_a_shadow_goes_on_with_its_columns_after_those_of_the_bandit_grew(tmp_path, agent):
    def offer(*names):
        return {name: dict.fromkeys(names, float(n)) for n, name in enumerate("ab")}

    with es.Bandit.open(tmp_path) as bandit:
        bandit.learn(bandit.choose(offer("price")).id, 1.0)
        bandit.shadow("other", agent)
        bandit.learn(bandit.choose(offer("price", "age")).id, 0.0)
        state = bandit._shadows.take(bandit._ledger, "other").state(bandit._ledger)
    with es.Bandit.open(tmp_path) as bandit, warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger = bandit._ledger
        ((_, _, served),) = watching(ledger, {"other": agent}, bandit._replica)
        assert equal(served.state(ledger), state)
        bandit.shadow("other", agent)
        bandit.learn(bandit.choose(offer("price", "age")).id, 1.0)
        assert bandit.summary().shadows[0].decisions == 2
        bandit.promote("other")
        bandit.choose(offer("price"))
