"""Confidence sequences hold at every look, and say what a plain computation of them says."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import stdtrit

from ensemble_sampling.intervals import Span
from ensemble_sampling.sequences import (
    ALPHA,
    SHARPEST,
    WEIGHT,
    Pair,
    evidence,
    mean,
    quantile,
    tail,
)

MONTHS, LOOKS = 150, 12


def mixture(t, alpha, rho):
    """The boundary of a sum of standard normals, over its standard deviation."""
    return math.sqrt((t * rho**2 + 1) / (t * rho**2) * math.log((t * rho**2 + 1) / alpha**2))


def test_the_quantile_is_robbins_mixture_and_narrowest_where_it_says():
    most = -2 * math.log(ALPHA)
    rho = math.sqrt((most + math.log(most) + 1) / SHARPEST)
    for t in (1, 30, 2000, 1e6):
        assert quantile(t) == pytest.approx(mixture(t, ALPHA, rho), rel=1e-12)
        assert tail(t) == pytest.approx(stats.norm.sf(quantile(t)), rel=1e-9)
    others = [mixture(SHARPEST, ALPHA, rho * factor) for factor in (0.7, 0.9, 1.1, 1.4)]
    assert quantile(SHARPEST) < min(others)


def test_a_walk_seldom_crosses_the_quantile_ever():
    rng = np.random.default_rng(0)
    walks = rng.normal(size=(2000, 3000)).cumsum(axis=1)
    bounds = np.array([quantile(t) * math.sqrt(t) for t in range(1, 3001)])
    assert (np.abs(walks) > bounds).any(axis=1).mean() <= 0.05  # exact but for what is cut off


def plain(weights, rewards, units):
    """(means, standard error of the difference) by subject, in plain words: one more reward at each
    end of the range, as heavy as any, counts in it."""
    means = (weights * rewards[:, None]).sum(axis=0) / weights.sum(axis=0)
    each = weights * (rewards[:, None] - means) / weights.sum(axis=0)
    sums = np.array(
        [(each[units == u, 0] - each[units == u, 1]).sum() for u in range(max(units) + 1)]
    )
    ends = np.array([rewards.max(), rewards.min()])
    reach = (weights / weights.sum(axis=0)).max(axis=0) * (ends[:, None] - means)
    up, down = max(reach[0, 0], -reach[1, 1]), max(-reach[1, 0], reach[0, 1])
    return means, math.sqrt((sums**2).sum() + up**2 + down**2)


@pytest.mark.parametrize("alike", [False, True])
def test_a_difference_is_that_of_weighted_means_with_errors_by_unit(alike):
    rng = np.random.default_rng(1)
    units = np.arange(400) if alike else rng.integers(100, size=400)
    units = np.unique(units, return_inverse=True)[1]
    weights = rng.random((400, 2))
    rewards = rng.normal(size=400) + (units % 7) / 3
    pair = Pair.of(weights, rewards, units)
    means, stderr = plain(weights, rewards, units)
    found = pair.difference()
    assert [pair.first, pair.second] == pytest.approx(means)
    assert found.value == pytest.approx(means[0] - means[1])
    assert found.stderr == pytest.approx(stderr, rel=0.02)  # which is Student's
    assert found.low < found.value - 3 * stderr
    assert found.high > found.value + 3 * stderr
    assert (pair.alike(np.array([1.0, -1.0])) == pytest.approx(400)) is alike
    ratio = pair.ratio()
    for end in (ratio.low, ratio.high):  # where the contrast at this ratio just excludes 0
        inside, outside = (
            pair.estimate(1.0, -(end + s * (ratio.value - end))) for s in (0.05, -0.05)
        )
        assert inside.low <= 0 <= inside.high
        assert not outside.low <= 0 <= outside.high


def test_what_cannot_be_told_is_not_said():
    rewards, units = np.array([0.0, 0.0, 2.0]), np.arange(3)
    assert Pair.of(np.array([[1.0, 0.0]] * 3), rewards, units) is None
    pair = Pair.of(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), rewards, units)
    assert pair.ratio() is None  # the second mean is 0
    assert pair.difference().low == -math.inf  # one decision has no variance
    clicks = Pair.of(np.array([[1.0, 0.0], [0.0, 1.0]] * 50), np.zeros(100), np.arange(100))
    found = clicks.difference()
    assert clicks.span == Span(0.0, 1.0, True)
    assert found.low < -3 / 50
    assert found.high > 3 / 50


def months(kind, held, seed=0):
    """Rewards and groups of months in which nothing has an effect, (months, looks, a day's)."""
    rng = np.random.default_rng(seed)
    size = (MONTHS, LOOKS, 150)
    rewards = (rng.random(size) < 0.02).astype(float)
    if kind == "revenue":
        rewards = rewards * np.exp(1.5 * rng.normal(size=size))
    return rewards, rng.random(size) < held


@pytest.mark.parametrize("kind", ["clicks", "revenue"])
def test_no_look_of_a_month_finds_what_is_not_there(kind):
    """At most 5%, and three standard errors of so many months are 5%; one look's intervals would
    miss in a fifth of them."""
    rewards, held = months(kind, 0.2)
    missed = np.zeros(MONTHS, bool)
    for look in range(LOOKS):
        for n in range(MONTHS):
            y, control = rewards[n, : look + 1].ravel(), held[n, : look + 1].ravel()
            pair = Pair.of(np.stack([~control, control], 1).astype(float), y, np.arange(len(y)))
            found = pair.difference()
            missed[n] |= not found.low <= 0 <= found.high
    assert missed.mean() <= 0.06


def test_shares_are_seldom_called_wrong_by_chance_and_soon_where_they_are():
    rng = np.random.default_rng(2)
    for share, least, most in ((0.1, 0.0, 0.02), (0.13, 0.95, 1.0)):
        held = (rng.random((400, 30, 200)) < share).sum(axis=2).cumsum(axis=1)
        made = 200 * np.arange(1, 31)
        odds = [
            max(
                evidence(np.array([h]), np.array([n - h]), np.array([0.1]))
                for h, n in zip(row, made, strict=True)
            )
            for row in held[:200]
        ]
        assert least <= np.mean(np.array(odds) > math.log(100)) <= most


def test_evidence_is_the_beta_binomial_over_the_binomial():
    a, b = WEIGHT * 0.25, WEIGHT * 0.75
    expected = stats.betabinom.logpmf(40, 100, a, b) - stats.binom.logpmf(40, 100, 0.25)
    both = np.array([40, 7]), np.array([60, 3]), np.array([0.25, 0.5])
    assert evidence(both[0][:1], both[1][:1], both[2][:1]) == pytest.approx(expected)
    other = evidence(both[0][1:], both[1][1:], both[2][1:])
    assert evidence(*both) == pytest.approx(expected + other)


def test_of_few_decisions_nothing_is_excluded_but_by_much():
    """One minus a chance of less than a rounding error is 1, whose quantile is infinite."""
    rng = np.random.default_rng(0)
    for count in (3, 5, 10, 20, 40):
        rewards = rng.normal(size=count)
        found = mean(rewards, np.arange(count))
        assert found.low is not None
        assert found.high is not None
        usual = stdtrit(count - 1, 0.975) * rewards.std(ddof=1) / np.sqrt(count)
        assert found.low < found.value - 2 * usual
        assert found.high > found.value + 2 * usual


def test_rewards_that_are_all_alike_do_not_differ_by_rounding():
    rng = np.random.default_rng(0)
    for reward in (2.0, 0.1, 1e9 + 0.1):
        pair = Pair.of(rng.random((1200, 2)), np.full(1200, reward), np.arange(1200))
        assert pair.difference()[2:] == (0.0, 0.0)
        assert (pair.first, pair.second) == (reward, reward)
