"""Several linear models, trusted by how well each of them predicted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import exact, filtered, learn, learned_scale

import ensemble_sampling as es

DIM, PERIODS = 3, 30
RNG = np.random.default_rng(0)
X, ROWS = RNG.normal(size=(PERIODS, DIM)), RNG.normal(size=(5, DIM))
Y = 4 + X @ RNG.normal(size=DIM) + 0.5 * RNG.normal(size=PERIODS)
ONE = np.zeros(PERIODS, int)


def with_constant(x):
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)


def test_models_are_trusted_by_their_evidence_and_a_member_is_their_average(float64):
    """Each with as many of the features as it takes, and with a prior and a noise of its own."""
    trust, faith, kinds = 0.2, 1.5, [(DIM, 2.0), (DIM, 0.1), (1, 2.0)]
    blend = es.learners.Blend(tuple(es.Linear(d, prior_std=w) for d, w in kinds), trust, faith)
    ensemble, key = es.Ensemble(blend, 4), jax.random.key(1)
    _, (shared, members) = learn(ensemble, key, ONE, X, Y)
    scales, values = [], []
    for (d, width), own, known in zip(kinds, members, shared, strict=True):
        x, rows = with_constant(X[:, :d]), with_constant(ROWS[:, :d])
        prior = np.diag([1.0] + d * [width**2])[None]
        scales.append(learned_scale(x, Y, ONE, prior))
        mean, _ = filtered(x, Y - scales[-1].center, ONE, np.ones(PERIODS), prior)
        np.testing.assert_allclose(known.seen.noise_std, scales[-1].noise_std, rtol=1e-8)
        away = rows @ exact(own.away).T * np.asarray(known.seen.drawn(own.luck))
        values.append((scales[-1].center + rows @ mean[0])[:, None] + away)
    weights = np.exp(trust * np.array([s.evidence for s in scales]) + [faith, 0, 0])
    weights /= weights.sum()
    assert weights.max() < 0.99
    np.testing.assert_allclose(blend.weights(shared), weights, rtol=1e-8)
    have = ensemble.values(key, (shared, members), jnp.asarray(ROWS), 1)
    np.testing.assert_allclose(have.T, np.tensordot(weights, values, 1), rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", [es.Exact, lambda learner: es.Ensemble(learner, 4)])
def test_a_blend_of_equal_models_is_that_model(make, float64):
    blend, linear = make(es.learners.Blend((es.Linear(DIM), es.Linear(DIM)))), make(es.Linear(DIM))
    key, rows = jax.random.key(0), jnp.asarray(ROWS)
    one, two = (learn(posterior, key, ONE, X, Y)[1] for posterior in (blend, linear))
    have, want = blend.values(key, one, rows, 6), linear.values(key, two, rows, 6)
    np.testing.assert_allclose(have, want, rtol=1e-10)


def test_the_narrow_width_is_trusted_on_noise_and_the_wide_one_on_signal():
    """40 features in 400 outcomes, in eight of ten worlds or more: the first outcomes, when the
    noise is hardly known, can mislead."""
    dim, n, blend = (
        40,
        400,
        es.learners.Blend((es.Linear(40), es.Linear(40, prior_std=0.3)), 0.2, 3.0),
    )
    rng = np.random.default_rng(1)
    for signal, narrow in ((0.0, True), (2.0, False)):
        right = 0
        for _ in range(10):
            x = rng.normal(size=(n, dim))
            y = signal * x @ rng.normal(size=dim) + rng.normal(size=n)
            _, (shared, _) = learn(es.Exact(blend), jax.random.key(0), np.zeros(n, int), x, y)
            right += bool((blend.weights(shared)[1] > 0.5) == narrow)
        assert right >= 8


def test_before_two_outcomes_differ_the_first_has_the_faith_it_was_given():
    blend = es.learners.Blend((es.Linear(DIM), es.Linear(1)), faith=3.0)
    want = np.array([np.exp(3), 1]) / (1 + np.exp(3))
    for n in (0, 4):
        data = ONE[:n], X[:n], np.full(n, 100.0)
        _, (shared, _) = learn(es.Exact(blend), jax.random.key(0), *data)
        np.testing.assert_allclose(blend.weights(shared), want, rtol=1e-6)
