"""One interval for means and weighted means: near 95% for rare clicks and for numbers alike."""

# pyright: reportOperatorIssue=false, reportOptionalOperand=false

import math

import numpy as np
import pytest
from scipy import stats

import ensemble_sampling as es
from ensemble_sampling.evaluation.estimates import influences
from ensemble_sampling.intervals import SURE, TAIL, Errors, Estimate, Span, interval, mean, weighted

CLICKS = Span(0.0, 1.0, True)
LOGS = 600
TRIED = ("inverse propensity", "self-normalised", "doubly robust")


def estimated(weight, rewards, model):
    """By method as `evaluate` has them, where the model expects the same of all actions."""
    found = influences(weight, rewards, model, model, np.zeros(len(rewards)), 1.0)
    return {method: found[method].estimate(rewards, Span.of(rewards)) for method in TRIED}


def missed(actions, decisions, truth, draw):
    """How often each interval lay above and below the truth, and how wide it was in units of 3.92
    standard errors, over many logs of uniform choices: of a policy that always takes the first
    action, with a model that expects of it what an earlier, shorter log showed."""
    rng = np.random.default_rng(0)
    found = {method: np.zeros(3) for method in TRIED}
    for _ in range(LOGS):
        rewards = draw(rng, decisions)
        weight = np.where(rng.integers(actions, size=decisions) == 0, float(actions), 0.0)
        model = np.full(decisions, rng.choice(rewards, 50).mean())
        for method, one in estimated(weight, rewards, model).items():
            width = (one.high - one.low) / max(3.92 * one.stderr, 1e-12)
            found[method] += np.array([one.low > truth, one.high < truth, width]) / LOGS
    return found


@pytest.mark.parametrize("rate", [0.01, 0.02, 0.05])
@pytest.mark.parametrize(
    ("actions", "decisions"),
    [(3, 300), (10, 1000)]
    + [pytest.param(*more, marks=pytest.mark.slow) for more in ((10, 300), (3, 1000), (10, 3000))],
)
def test_rare_clicks_are_covered_and_missed_on_both_sides(actions, decisions, rate):
    """0.92 to 0.99, which is 0.95 and at least three standard errors of 600 logs (0.009). Where
    fewer than four clicks are expected no interval can lie below the truth as often as above."""
    found = missed(actions, decisions, rate, lambda rng, n: (rng.random(n) < rate) * 1.0)
    for method, (above, below, _) in found.items():
        assert 0.92 <= 1 - above - below <= 0.99, method
        if decisions * rate / actions >= 4:
            assert 0.003 <= above <= 0.045, method
            assert 0.003 <= below <= 0.045, method


@pytest.mark.parametrize("level", [0.0, 5.0])
@pytest.mark.parametrize(("actions", "decisions"), [(3, 300), (10, 300), (10, 1000)])
def test_numbers_are_covered_by_intervals_hardly_wider_than_they_must_be(actions, decisions, level):
    found = missed(actions, decisions, level, lambda rng, n: level + rng.normal(size=n))
    for method, (above, below, width) in found.items():
        assert 0.93 <= 1 - above - below <= 0.98, method
        assert 0.005 <= above <= 0.045, method
        assert 0.005 <= below <= 0.045, method
        assert 1.0 <= width < 1.09, method


def test_an_interval_is_students_where_errors_are_normal_and_longer_where_few_weigh_most():
    error = np.random.default_rng(0).normal(size=4000)
    error -= error.mean()
    plain = interval(1.0, Errors.of(error, error, np.ones(4000), Span.of(error)))
    assert plain.high - plain.value == pytest.approx(1.96 * plain.stderr, rel=5e-3)
    error[0] = 500.0
    error -= error.mean()
    heavy = interval(1.0, Errors.of(error, error, np.ones(4000), Span.of(error)))
    assert heavy.high - heavy.value > 3 * heavy.stderr
    assert heavy.value - heavy.low < 1.5 * heavy.stderr  # on the one side only
    mirrored = interval(-1.0, Errors.of(-error, -error, np.ones(4000), Span.of(-error)))
    assert (-mirrored.high, -mirrored.low) == pytest.approx((heavy.low, heavy.high))


@pytest.mark.parametrize("clicks", [0, 1, 2, 5, 20])
def test_a_rate_of_rare_clicks_has_nearly_the_exact_limits(clicks):
    """Between those of Clopper and Pearson, which are too wide, and a twentieth within them."""
    rewards = np.zeros(2000)
    rewards[:clicks] = 1.0
    found = mean(rewards, CLICKS)
    low, high = (2000 * end for end in found[2:])
    exact = (stats.gamma.ppf(0.025, clicks) if clicks else 0.0), stats.gamma.ppf(0.975, clicks + 1)
    assert exact[0] <= low
    assert 0.8 * exact[1] < high < exact[1]
    assert low == 0 if clicks == 0 else low < clicks
    assert clicks > 0 or high > 3  # the rule of three
    reverse = mean(1 - rewards, CLICKS)
    assert (reverse.low, reverse.high) == pytest.approx((1 - found.high, 1 - found.low))


def test_the_mean_of_clicks_is_between_0_and_1_and_that_of_one_number_unknown():
    assert mean(np.ones(3), CLICKS)[2:] == (pytest.approx(0.12, abs=0.12), 1.0)
    assert mean(np.array([7.0]), Span(0.0, 9.0, False))[2:] == (-math.inf, math.inf)
    assert Estimate(1.5, 0.1, 1.2, 1.9).within(CLICKS)[2:] == (1.0, 1.5)  # it holds the value
    assert Span.of(np.zeros(3)) == CLICKS
    assert Span.of(np.array([0.0, 2.0])) == Span(0.0, 2.0, False)


def test_sums_give_the_interval_that_the_rewards_themselves_do():
    """What a shadow has from the database is what `evaluate` calls self-normalised, also far from 0
    and where larger rewards weigh more, so that the mean is far from where rewards are counted."""
    rng = np.random.default_rng(2)
    rewards = rng.exponential(size=200)
    for weight, moved in ((rng.exponential(size=200), 1e6 + rewards), (rewards**2, rewards)):
        want = estimated(weight, moved, moved)["self-normalised"]
        have = weighted(weight, moved).mean(Span.of(moved))
        assert have == pytest.approx(want, rel=1e-9)
        assert have.high - have.low == pytest.approx(want.high - want.low, rel=1e-4)
    assert want.value > 1.5 * rewards.mean()


def test_the_standard_error_of_few_numbers_is_the_usual_one_and_that_of_clicks_is_known_from_one():
    rewards = np.array([1.0, 2.5, 7.0])
    want = rewards.std(ddof=1) / math.sqrt(3)
    assert mean(rewards, Span.of(rewards)).stderr == pytest.approx(want)
    rate = mean(np.array([0.0, 1.0]), CLICKS)
    assert rate.stderr == pytest.approx(0.5 / math.sqrt(2))
    assert mean(np.ones(1), CLICKS).stderr == 0


@pytest.mark.parametrize("actions", [2, 3, 10, 50])
@pytest.mark.parametrize("decisions", [20, 100, 1000])
def test_a_sound_log_is_refused_once_in_a_million_at_most(actions, decisions):
    """By how often a policy of one action agrees with uniform choices, all numbers are known."""
    surely = probably = 0.0
    for agreed in range(1, decisions // actions + 1):
        weight = np.where(np.arange(decisions) < agreed, float(actions), 0.0)
        chance = stats.binom.pmf(agreed, decisions, 1 / actions)
        sums = weighted(weight, weight)
        surely += chance * (sums.missing(SURE) > 0)
        probably += chance * (sums.missing(TAIL) > 0)
    assert surely < 1e-6
    assert probably < 0.03


def test_a_log_without_the_policys_actions_is_refused_and_an_unlucky_one_is_not():
    """Of 100 decisions among ten actions a policy of one agrees with 2 in one log of 500."""
    n = 100
    chosen = np.r_[0, 0, 1 + np.arange(n - 2) % 9]
    context = {"context": np.zeros((n, 0)), "actions": list(range(10))}
    for propensities in (
        {"propensities": np.full((n, 10), 0.1)},
        {"propensity": np.full(n, 0.1)},
    ):
        log = es.Log(chosen, chosen % 2 * 1.0, **propensities, **context)  # pyright: ignore[reportArgumentType]
        assert es.evaluate(log, np.eye(10)[0]).refused is None
        never = es.Log(chosen[2:], np.ones(n - 2), np.full(n - 2, 0.1), actions=list(range(10)))
        with pytest.raises(ValueError, match="otherwise in all of the 98 decisions"):
            es.evaluate(never, np.eye(10)[0])
    half = np.r_[0.5, np.zeros(9)] + np.r_[np.zeros(9), 0.5]  # half of it on what never was chosen
    log = es.Log(np.arange(2000) % 9, np.ones(2000), np.full(2000, 1 / 9), actions=list(range(10)))
    with pytest.raises(ValueError, match="as the weights' mean below 1 shows"):
        es.evaluate(log, half)


def test_a_propensity_that_is_hardly_above_0_shows_nothing():
    shares = np.tile([0.5, 0.5 - 1e-9, 1e-9], (60, 1))
    log = es.Log(np.arange(60) % 2, np.ones(60), propensities=shares)
    with pytest.raises(ValueError, match=r"50\.0% of the policy's probability"):
        es.evaluate(log, [0.25, 0.25, 0.5])
    assert es.evaluate(log, [0.9, 0.06, 0.04]).unsupported == pytest.approx(0.04)


def test_what_is_probably_missing_of_the_weights_widens():
    rng = np.random.default_rng(1)
    chosen, y = rng.integers(0, 2, 2000), rng.normal(size=2000)
    log = es.Log(chosen, y, np.full(2000, 0.5), actions=["a", "b", "c"])
    some, all_of = (es.evaluate(log, [0.5 - s, 0.5 - s, 2 * s]) for s in (0.02, 0.0))
    assert some.unsupported == pytest.approx(0.04, abs=0.002)
    assert all_of.unsupported == 0
    one, other = some["self-normalised"], all_of["self-normalised"]
    for wider in (one.high - other.high, other.low - one.low):
        assert wider == pytest.approx(some.unsupported * np.ptp(y))


def test_a_difference_is_as_uncertain_as_the_decisions_that_both_do_not_share():
    rng = np.random.default_rng(4)
    chosen = rng.integers(0, 10, 600)
    y = (rng.random(600) < 0.2) * rng.exponential(size=600)
    log = es.Log(chosen, y, propensities=np.full((600, 10), 0.1))
    mixed = [0.5, 0.5] + [0.0] * 8
    found = es.evaluate(log, {"one": np.eye(10)[0], "mixed": mixed}, baseline="mixed")["one"]
    w = 10.0 * (chosen == 0), 5.0 * (chosen < 2)
    value = [np.dot(each, y) / each.sum() for each in w]
    slope = [each / each.mean() for each in w]
    error = [s * (y - v) for s, v in zip(slope, value, strict=True)]
    about = Errors.of(error[0] - error[1], y, slope[0] - slope[1], Span.of(y))
    want = interval(value[0] - value[1], about)
    assert found.differences["self-normalised"] == pytest.approx(want)
