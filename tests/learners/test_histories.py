"""What a network keeps: a window of the newest, or a fair sample of all."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import learn, regression

import ensemble_sampling as es
from ensemble_sampling.learners.histories import History, Moments, Scales


def line(key):
    """A linear model of one feature with a prior of N(0, 1)."""
    return es.networks.MLP([jax.random.normal(key, (1,))])


def kept(
    capacity: int, x: float, history: es.learners.Window | es.learners.Reservoir
) -> es.Network:
    """`line` on whole batches; with rows of size x in every slot a step solves the quadratic."""
    rate = 0.5 / (x**2 + 1 / capacity)
    how: Any = {"batch": None, "steps": 8, "learning_rate": rate, "optimizer": optax.sgd}
    return es.Network(line, 1, capacity, 1.0, 1.0, history=history, **how)


def alternating(n: int, x: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.zeros(n, int), x * rng.choice([-1, 1], (n, 1)), rng.normal(size=n)


def test_a_window_keeps_the_newest_and_weighs_the_prior_against_them():
    """Members after ten observations are the minimisers on the last four."""
    i, x, y = alternating(10, 0.5)
    ensemble = es.Ensemble(kept(4, 0.5, es.learners.Window()), 3)
    start, (held, end) = learn(ensemble, jax.random.key(0), i, x, y)
    np.testing.assert_allclose(np.sort(held.outcomes), np.sort(y[-4:]), rtol=1e-6)
    assert int(held.seen) == 10
    for m in range(3):
        targets = np.asarray(held.outcomes) + np.asarray(end.noise.shift[m])
        want, _ = regression(held.features, targets, 1.0, start[1].model.weights[0][m], np.eye(1))
        np.testing.assert_allclose(end.model.weights[0][m], want, atol=1e-5)


def test_a_reservoir_is_a_uniform_sample_of_all():
    reservoir = es.learners.Reservoir()
    capacity, periods, runs = 5, 40, 4000

    def run(key):
        def put(slots, t):
            slot, keep = reservoir.slot(jax.random.fold_in(key, t), t, capacity)
            return slots.at[slot].set(jnp.where(keep, t, slots[slot])), None

        return jax.lax.scan(put, jnp.zeros(capacity, int), jnp.arange(periods))[0]

    held = jax.vmap(run)(jax.random.split(jax.random.key(0), runs))
    share = np.bincount(np.asarray(held).ravel(), minlength=periods) / runs
    # Each observation is kept with chance 5/40; five standard errors of a binomial share.
    assert np.abs(share - capacity / periods).max() < 5 * np.sqrt(0.125 * 0.875 / runs)


@pytest.mark.parametrize("x", [0.03, 1.0], ids=["weak data", "strong data"])
@pytest.mark.parametrize("n", [10, 40, 1000])
def test_members_over_a_reservoir_are_the_posterior_of_the_ten_held_rows(n, x):
    """Every one is the minimiser on what is held, and together they have the posterior's spread,
    within five standard errors; so they are never less certain than the prior."""
    members = 2000
    learner = kept(10, x, es.learners.Reservoir())
    start, (held, end) = learn(es.Ensemble(learner, members), jax.random.key(1), *alternating(n, x))
    rows = np.asarray(held.features, np.float64)
    theta = np.asarray(end.model.weights[0], np.float64)
    for m in range(5):
        y = np.asarray(held.outcomes) + np.asarray(end.noise.shift[m], np.float64)
        want, cov = regression(rows, y, 1.0, start[1].model.weights[0][m], np.eye(1))
        np.testing.assert_allclose(theta[m], want, atol=1e-4)
        assert theta.var() == pytest.approx(cov[0, 0], rel=5 * np.sqrt(2 / members))
    assert theta.var() < 1 + 5 * np.sqrt(2 / members)


def test_bootstrap_members_over_a_reservoir_are_minimisers_on_the_held_rows():
    learner = kept(10, 0.5, es.learners.Reservoir())
    ensemble = es.Ensemble(learner, 6, es.posteriors.Poisson())
    start, (held, end) = learn(ensemble, jax.random.key(1), *alternating(200, 0.5))
    for m in range(6):
        prior, weights = start[1].model.weights[0][m], end.noise.weight[m]
        want, _ = regression(held.features, held.outcomes, 1.0, prior, np.eye(1), weights)
        np.testing.assert_allclose(end.model.weights[0][m], want, atol=1e-4)
    assert len(np.unique(end.noise.weight)) > 2


@pytest.mark.parametrize("x", [0.03, 1.0], ids=["weak data", "strong data"])
def test_a_thinned_ensemble_is_as_far_from_the_truth_as_it_thinks(x):
    """Squared surprise over 1,000 truths after 200 observations of which 10 are held: 1, within
    five standard errors of a mean of squared normals. Rows that count n / h times give 20."""
    truths, members, n = 1000, 20, 200
    ensemble = es.Ensemble(kept(10, x, es.learners.Reservoir()), members)

    def surprise(key):
        truth_key, noise_key, learn_key = jax.random.split(key, 3)
        truth, rows = jax.random.normal(truth_key), jnp.full((n, 1), x)
        y = x * truth + jax.random.normal(noise_key, (n,))
        _, (_, end) = learn(ensemble, learn_key, jnp.zeros(n, int), rows, y)
        variance = 1 / (1 + 10 * x**2)
        center = end.model.weights[0].mean()
        return (truth - center) ** 2 / (variance * (1 + 1 / members))

    squared = np.asarray(jax.vmap(surprise)(jax.random.split(jax.random.key(0), truths)))
    assert squared.mean() == pytest.approx(1, abs=5 * np.sqrt(2 / truths))


def test_scales_are_the_mean_and_variance_of_what_was_seen(float64):
    rng = np.random.default_rng(0)
    x, y = 5 + rng.normal(size=(40, 3)) * [0.1, 1, 100], rng.normal(size=40)
    scales = Scales.unknown(3, ())
    for n in range(1, 41):
        scales = scales.add(jnp.asarray(x[n - 1]), jnp.asarray(y[n - 1]), jnp.asarray(n))
        for found, seen in ((scales.features, x[:n]), (scales.outcomes, y[:n])):
            np.testing.assert_allclose(found.center, seen.mean(axis=0), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.variance, seen.var(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(Scales.unknown(3, ()).features.spread, np.ones(3))


def test_scales_follow_outcomes_that_move_when_the_window_does():
    """With room for ten, the eleventh and later count a tenth: the mean of 60 fives after 60
    zeros is within 5 x 0.9^60 of 5."""
    scales = Scales.unknown(1, ())
    for n in range(120):
        count = jnp.asarray(min(n + 1, 10))
        scales = scales.add(jnp.ones(1), jnp.asarray(5.0 * (n >= 60)), count)
    assert float(scales.outcomes.center) == pytest.approx(5, abs=5 * 0.9**60 + 1e-5)
    assert float(scales.outcomes.variance) < 0.1


def test_the_learned_noise_lies_between_a_tenth_of_the_spread_and_all_of_it():
    scales = Scales.unknown(1, ())._replace(outcomes=Moments(jnp.asarray(3.0), jnp.asarray(4.0)))
    stds = [float(scales.noise_std(jnp.asarray(e), jnp.asarray(998))) for e in (0.0, 1.0, 50.0)]
    # Of the mean squares 0, 1 and 50 over 998 outcomes, with two of variance 4 added.
    np.testing.assert_allclose(stds, [0.2, np.sqrt((998 + 8) / 1000), 2.0], rtol=1e-6)
    assert float(scales.noise_std(jnp.zeros(()), jnp.zeros(()))) == pytest.approx(2.0)


def test_features_beyond_all_that_was_seen_are_not_taken_farther_than_five_spreads():
    history = History(jnp.zeros((4, 2)), jnp.zeros(4), None, jnp.zeros((), int))
    np.testing.assert_array_equal(history.inputs(jnp.full(2, 99.0)), np.full(2, 99.0))
    known = Scales.unknown(2, ())._replace(
        features=Moments(jnp.array([10.0, 0.0]), jnp.array([4.0, 0.0]))
    )
    history = history._replace(scales=known)
    inputs = history.inputs(jnp.array([[12.0, 0.5], [1e6, -1e6]]))
    np.testing.assert_allclose(inputs, [[1.0, 0.5], [5.0, -5.0]])
