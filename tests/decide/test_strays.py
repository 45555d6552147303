"""Outcomes and features far beyond all others: they do not ruin the default agent, and are said."""

# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.default import Default
from ensemble_sampling.decide.snapshots import SNAPSHOT
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.inputs.scale import FEWEST, LAST, RARE, Usual, frozen

STRAY = Default().stray
THETA = np.array([[1.0, 0.0, -0.5], [-1.0, 0.5, 0.0], [0.0, -1.0, 1.0]])


def counted(outcomes):
    """Outcomes in a row as they count in the end, by the scale of the first 1, 2, 4, ..., 1024; and
    what is usual then."""
    of = frozen(len(outcomes))
    usual, found = Usual.of(outcomes[:of]), []
    for n, outcome in enumerate(outcomes, 1):
        value, usual = usual.counted(float(outcome), STRAY, n, of)
        found.append(value)
    return np.array(found), usual


def world(rounds, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(rounds, 3))
    means = contexts @ THETA.T
    return contexts, means, means + 0.5 * rng.normal(size=means.shape)


def play(bandit, rounds, strays=(), features=None):
    """How often the best action was chosen in the last fifth; the decisions' ids."""
    contexts, means, outcomes = world(rounds)
    right, ids = [], []
    for t, x in enumerate(contexts):
        decision = bandit.choose(context=x if features is None else features(t, x))
        outcome = strays[t] if t in strays else outcomes[t, decision.index]
        bandit.learn(decision.id, float(outcome))
        right.append(decision.index == means[t].argmax())
        ids.append(decision.id)
    return np.mean(right[-rounds // 5 :]), ids


@pytest.mark.parametrize("at", [0, 299])
def test_one_stray_outcome_does_not_ruin_the_default_agent(at):
    """It chose right in 0.35 and 0.5 of all cases when the stray counted in full."""
    bandit = es.Bandit(actions=[0, 1, 2])
    share, _ = play(bandit, 1500, {at: 1e4})
    assert share > 0.9
    (said,) = bandit.summary().warnings
    assert said.startswith("1 of 1500 outcomes lie far beyond all others")


def test_no_warning_where_nothing_strays():
    bandit = es.Bandit(actions=[0, 1, 2])
    play(bandit, 300)
    assert bandit.summary().warnings == ()


def test_without_a_context_a_stray_first_outcome_is_disowned_too():
    bandit, rng = es.Bandit(actions=["a", "b"]), np.random.default_rng(1)
    for t in range(RARE):
        decision = bandit.choose()
        outcome = rng.normal() + (decision.action == "b")
        bandit.learn(decision.id, 1e14 if t == 0 else outcome)
    values = bandit.predict().values.mean
    assert values == pytest.approx([0, 1], abs=0.5)
    assert bandit._replica.version.usual.strays == 1


@pytest.mark.parametrize("at", [RARE // 2 - 1, RARE // 2])
def test_a_bandit_disowns_a_stray_of_the_first_half_and_no_other(at):
    bandit, rng, outcomes = es.Bandit(actions=["a", "b"]), np.random.default_rng(2), []
    for t in range(RARE):
        outcomes.append(1e6 if t == at else float(rng.normal()))
        bandit.learn(bandit.choose().id, outcomes[-1])
    values, usual = counted(np.array(outcomes))
    assert (values[at] == 0) == (at < RARE // 2)
    assert bandit._replica.version.usual == usual


def test_the_state_with_a_stray_is_that_of_a_replay_bit_for_bit(tmp_path):
    with es.Bandit.open(tmp_path, actions=[0, 1, 2]) as bandit:
        play(bandit, 290, {40: 1e4, 280: -1e5})  # one is old by now, the other is not
        values, usual = (
            bandit.predict(context=[1.0, 2.0, 3.0]).values,
            bandit._replica.version.usual,
        )
        assert usual.strays == 2
        said = bandit.summary().warnings
    assert inspect(tmp_path).warnings == said
    for _ in range(2):  # by the snapshot, then by the ledger alone
        with es.Bandit.open(tmp_path) as again:
            assert again._replica.version.usual == usual
            now = again.predict(context=[1.0, 2.0, 3.0]).values
            assert np.array_equal(now.mean, values.mean)
            assert np.array_equal(now.spread, values.spread)
            assert again.summary().warnings == said
        (tmp_path / SNAPSHOT).unlink()


def test_a_stray_that_is_corrected_is_as_if_it_had_never_been():
    wrong, right = es.Bandit(actions=[0, 1, 2]), es.Bandit(actions=[0, 1, 2])
    contexts, _, outcomes = world(40)
    ids = []
    for t, x in enumerate(contexts):  # the same decisions, whatever is thought of them
        made = [wrong.choose(context=x), right.choose(context=x)]
        if made[0].index != made[1].index:
            break
        y = float(outcomes[t, made[0].index])
        wrong.learn(made[0].id, 1e4 if t == 20 else y)
        right.learn(made[1].id, y)
        ids.append((made[0].id, y))
    assert len(ids) > 20
    assert wrong._replica.version.usual.strays == 1
    wrong.correct(*ids[20])
    wrong.summary()
    assert wrong._replica.version.usual == right._replica.version.usual


def test_what_is_usual_leaves_out_the_few_that_are_farthest():
    y = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.5, 1e6])
    assert Usual.of(y) == (3.5, 3.5, 0)
    assert Usual.of(y[: FEWEST - 1]) == (3.0, 0.0, 0)  # too few to tell
    many = np.random.default_rng(0).uniform(-1, 1, size=LAST)
    many[: LAST // RARE + 1] = 1e6
    assert Usual.of(many).reach == pytest.approx(1, abs=0.1)
    many[LAST // RARE + 1] = 1e6
    assert Usual.of(many).reach == pytest.approx(1e6)  # one more is no stray


def test_what_was_learned_holds_on_only_if_every_outcome_counts_as_before():
    was, outcomes = Usual(1.0, 2.0), np.array([-2.0, 1.0, 5.0])
    assert was.agrees(Usual(1.0, 0.2), outcomes, STRAY)  # at the border
    assert was.agrees(Usual(1.0, 0.0), outcomes, STRAY)  # nothing strays while that is not known
    assert not was.agrees(Usual(1.5, 2.0), outcomes, STRAY)  # from elsewhere
    assert not was.agrees(Usual(1.0, 0.19), outcomes, STRAY)  # one strays now
    assert not was._replace(strays=1).agrees(Usual(1.0, 2.0), outcomes, STRAY)  # one did


def test_a_stray_counts_little_and_for_nothing_once_it_is_old():
    usual = Usual(10.0, 2.0)
    for outcome in (10.0, 10 + 2 * STRAY, 10 - 2 * STRAY):
        assert usual.counted(outcome, STRAY, 300, 256) == (outcome - 10, usual)
    assert usual.counted(1e6, STRAY, 300, 256) == (2 * STRAY, Usual(10.0, 4.0, 1))
    assert usual.counted(-1e6, STRAY, 129, 256)[0] == -2 * STRAY
    assert usual.counted(-1e6, STRAY, 128, 256) == (0.0, Usual(10.0, 2.0, 1))
    assert usual.counted(-1e6, STRAY, 64, 128)[0] == -2 * STRAY  # too few to be sure
    assert Usual(10.0).counted(1e6, STRAY, 300, 256) == (1e6 - 10, Usual(10.0))


def test_what_comes_again_and_again_counts_in_full():
    """Prizes of a thousand times the usual, never seen among the first outcomes."""
    y = np.random.default_rng(0).normal(size=4000)
    y[1500::100] = 1000.0
    values, usual = counted(y)
    assert values[1500] < 100
    assert values[-100:].max() == pytest.approx(1000, abs=1)
    assert usual.strays < 8


RARE_ONES = {
    "clicks of 1 in 100": lambda r: (r.random(4000) < 0.01).astype(float),
    "clicks of 1 in 1000": lambda r: (r.random(4000) < 0.001).astype(float),
    "clicks of 1 in 20": lambda r: (r.random(4000) < 0.05).astype(float),
    "purchases": lambda r: (r.random(4000) < 0.02) * r.lognormal(3.0, 1.0, size=4000),
    "rare purchases": lambda r: (r.random(4000) < 0.005) * r.lognormal(3.0, 1.0, size=4000),
    "revenue": lambda r: r.lognormal(0.0, 1.5, size=4000),
    "heavy revenue": lambda r: r.lognormal(0.0, 2.0, size=4000),
    "costs and rare sales": lambda r: (
        -0.1 + 0.01 * r.normal(size=4000) + 5 * (r.random(4000) < 0.02)
    ),
    "Student's t": lambda r: 1 + r.standard_t(2.5, size=4000),
}


@pytest.mark.parametrize("name", RARE_ONES)
def test_heavy_but_honest_outcomes_count_in_full(name):
    """In all but a few of 20 logs, and by all but 2 % of their sum."""
    logs = [RARE_ONES[name](np.random.default_rng(seed)) for seed in range(20)]
    found = [counted(y) for y in logs]
    assert np.mean([usual.strays > 0 for _, usual in found]) <= 0.2
    total = sum((values + usual.origin).sum() for values, usual in found)
    assert total == pytest.approx(sum(y.sum() for y in logs), rel=0.02)


def test_features_out_of_range_are_said_by_name_and_count(tmp_path):
    def features(t, x):
        far = 6e3 if 200 <= t < 203 else x[1]
        return {"age": x[0], "price": far, "hour": x[2]}

    with es.Bandit.open(tmp_path, actions=[0, 1, 2]) as bandit:
        play(bandit, 250, features=features)
        said = bandit.summary().warnings
        assert sum("in some of 250 outcomes ('price' in 3)" in text for text in said) == 1
    assert inspect(tmp_path).warnings == said
    bandit = es.Bandit(actions=[0, 1, 2])
    play(bandit, 250, features=lambda t, x: list(features(t, x).values()))
    assert sum("(column 1 in 3)" in text for text in bandit.summary().warnings) == 1


def test_an_indicator_that_is_seldom_1_is_not_out_of_range(tmp_path, recwarn):
    with es.Bandit.open(tmp_path) as bandit:
        for n in range(140):
            decision = bandit.choose([[1.0, 0.0] if n % 40 else [0.0, 1.0]])
            bandit.learn(decision, 0.5)
        assert "standard deviations" not in str(bandit.summary().warnings)
    assert not [w for w in recwarn if "standard deviations" in str(w.message)]
    assert "standard deviations" not in str(inspect(tmp_path))
