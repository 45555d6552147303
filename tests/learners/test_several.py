"""Several linear models: one per action, each learning alone, or blended by how they predict."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import covariance, exact, filtered, learn, learned_scale, regression, thetas

import ensemble_sampling as es
from ensemble_sampling.core import Action, Noise
from ensemble_sampling.learners import Blend

DIM, ARMS, PERIODS = 3, 4, 30
RNG = np.random.default_rng(0)
X, ROWS = RNG.normal(size=(PERIODS, DIM)), RNG.normal(size=(5, DIM))
Y = 4 + X @ RNG.normal(size=DIM) + 0.5 * RNG.normal(size=PERIODS)
INDEX, ONE = RNG.integers(0, ARMS, PERIODS), np.zeros(PERIODS, int)
LINEAR = es.Linear(DIM, noise_std=0.5)
EACH = es.PerAction(LINEAR, ARMS)


def test_only_the_chosen_model_learns_and_as_a_linear_learner_would():
    before, action = EACH.init(jax.random.key(0)), Action(jnp.asarray(2), jnp.asarray(X[0], float))
    given = (action, jnp.asarray(1.5), Noise(shift=jnp.asarray(0.3)))
    after = EACH.observe(jax.random.key(1), *before, *given)
    pick = lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree)  # noqa: E731
    shared, member = pick(before, 2)
    alone = LINEAR.observe(jax.random.key(1), shared, member, *given)
    for i in range(ARMS):
        want = alone if i == 2 else pick(before, i)
        for ours, theirs in zip(*map(jax.tree.leaves, (pick(after, i), want)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6 if i == 2 else 0, atol=1e-7)


def test_each_action_is_valued_by_its_own_model():
    belief, context = EACH.init(jax.random.key(0)), jnp.asarray(X[0], float)
    values = EACH.predict(*belief, jnp.broadcast_to(context, (ARMS, DIM)))
    np.testing.assert_allclose(values, thetas(EACH, belief) @ X[0], rtol=1e-5)
    assert len(set(np.asarray(values).tolist())) == ARMS
    np.testing.assert_allclose(EACH.predict(*belief, context[None]), values, rtol=1e-6)


def test_exact_posterior_matches_least_squares_per_action():
    _, belief = learn(es.Exact(EACH), jax.random.key(0), INDEX, X, Y)
    for k in range(ARMS):
        seen = X[k == INDEX], Y[k == INDEX]
        mean, cov = regression(*seen, 0.5, np.zeros(DIM), np.eye(DIM))
        np.testing.assert_allclose(thetas(EACH, belief)[k], mean, atol=1e-4)
        np.testing.assert_allclose(covariance(EACH, belief)[k], cov, atol=1e-5)


def test_actions_models_are_drawn_independently_of_each_other():
    """At the start, and from a posterior that is the same for all actions."""
    draws, context = 4000, jnp.broadcast_to(jnp.asarray([1.0, 0.0, 0.0]), (ARMS, DIM))
    keys = jax.random.split(jax.random.key(3), draws)
    starts = jax.vmap(lambda k: EACH.predict(*EACH.init(k), context))(keys)
    posterior = es.Exact(EACH)
    belief = posterior.init(jax.random.key(0))
    samples = jax.vmap(lambda k: posterior.sample(k, belief)(context))(keys)
    for values in (starts, samples):
        # Entries of a second moment of 4000 independent standard normals: five standard errors.
        second = np.asarray(values).T @ np.asarray(values) / draws
        assert np.abs(second - np.eye(ARMS)).max() < 5 * np.sqrt(2 / draws)


def test_an_outcome_does_not_copy_the_other_models():
    arms, dim = 40, 30
    agent = es.EnsembleSampling(es.PerAction(es.Linear(dim, 1.0), arms), members=5)
    state = agent.init(jax.random.key(0))
    action = Action(jnp.asarray(2), jnp.ones(dim))
    update = jax.jit(lambda *given: agent.update(*given), donate_argnums=1)
    lowered = update.lower(jax.random.key(1), state, action, jnp.asarray(1.0))
    program = lowered.compile().as_text() or ""
    assert not re.findall(rf"= f32\[{arms},{dim},{dim}\]\S* copy\(", program)
    assert f"f32[{arms},{dim},{dim}]" in program


# Blends


def with_constant(x):
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)


def test_models_are_trusted_by_their_evidence_and_a_member_is_their_average(float64):
    """Each with as many of the features as it takes, and with a prior and a noise of its own."""
    trust, faith, kinds = 0.2, 1.5, [(DIM, 2.0), (DIM, 0.1), (1, 2.0)]
    blend = Blend(tuple(es.Linear(d, prior_std=w) for d, w in kinds), trust, faith)
    ensemble, key = es.Ensemble(blend, 4), jax.random.key(1)
    _, (shared, members) = learn(ensemble, key, ONE, X, Y)
    scales, values = [], []
    for (d, width), own, known in zip(kinds, members, shared, strict=True):
        x, rows = with_constant(X[:, :d]), with_constant(ROWS[:, :d])
        prior = np.diag([1.0] + d * [width**2])[None]
        scales.append(learned_scale(x, Y, ONE, prior))
        mean, _ = filtered(x, Y - scales[-1].center, ONE, np.ones(PERIODS), prior)
        np.testing.assert_allclose(known.seen.noise_std, scales[-1].noise_std, rtol=1e-8)
        away = rows @ exact(own.away).T * np.asarray(known.seen.std_at(own.luck))
        values.append((scales[-1].center + rows @ mean[0])[:, None] + away)
    weights = np.exp(trust * np.array([s.evidence for s in scales]) + [faith, 0, 0])
    weights /= weights.sum()
    assert weights.max() < 0.99
    np.testing.assert_allclose(blend.weights(shared), weights, rtol=1e-8)
    have = ensemble.values(key, (shared, members), jnp.asarray(ROWS), 1)
    np.testing.assert_allclose(have.T, np.tensordot(weights, values, 1), rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", [es.Exact, lambda learner: es.Ensemble(learner, 4)])
def test_a_blend_of_equal_models_is_that_model(make, float64):
    blend, linear = make(Blend((es.Linear(DIM), es.Linear(DIM)))), make(es.Linear(DIM))
    key, rows = jax.random.key(0), jnp.asarray(ROWS)
    one, two = (learn(posterior, key, ONE, X, Y)[1] for posterior in (blend, linear))
    have, want = blend.values(key, one, rows, 6), linear.values(key, two, rows, 6)
    np.testing.assert_allclose(have, want, rtol=1e-10)


def test_the_narrow_width_is_trusted_on_noise_and_the_wide_one_on_signal():
    """40 features in 400 outcomes, in eight of ten worlds or more: the first outcomes, when the
    noise is hardly known, can mislead."""
    dim, n, rng = 40, 400, np.random.default_rng(1)
    blend = Blend((es.Linear(dim), es.Linear(dim, prior_std=0.3)), 0.2, 3.0)
    for signal, narrow in ((0.0, True), (2.0, False)):
        right = 0
        for _ in range(10):
            x = rng.normal(size=(n, dim))
            y = signal * x @ rng.normal(size=dim) + rng.normal(size=n)
            _, (shared, _) = learn(es.Exact(blend), jax.random.key(0), np.zeros(n, int), x, y)
            right += bool((blend.weights(shared)[1] > 0.5) == narrow)
        assert right >= 8


def test_before_two_outcomes_differ_the_first_has_the_faith_it_was_given():
    blend = Blend((es.Linear(DIM), es.Linear(1)), faith=3.0)
    want = np.array([np.exp(3), 1]) / (1 + np.exp(3))
    for n in (0, 4):
        data = ONE[:n], X[:n], np.full(n, 100.0)
        _, (shared, _) = learn(es.Exact(blend), jax.random.key(0), *data)
        np.testing.assert_allclose(blend.weights(shared), want, rtol=1e-6)
