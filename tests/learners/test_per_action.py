"""One linear model per action: each learns alone, exactly as a linear learner does."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import covariance, thetas

import ensemble_sampling as es

DIM, ARMS = 3, 4
LINEAR = es.Linear(dim=DIM, noise_std=0.5)
LEARNER = es.PerAction(LINEAR, arms=ARMS)


def test_only_the_chosen_model_learns_and_as_a_linear_learner_would():
    shared, member = LEARNER.init(jax.random.key(0))
    context = jnp.asarray([1.0, -2.0, 0.5])
    action = es.core.Action(jnp.asarray(2), context)
    noise = es.core.Noise(shift=jnp.asarray(0.3))
    after = LEARNER.observe(jax.random.key(1), shared, member, action, jnp.asarray(1.5), noise)
    pick = lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree)  # noqa: E731
    for i in (0, 1, 3):
        assert jax.tree.all(
            jax.tree.map(jnp.array_equal, pick(after, i), pick((shared, member), i))
        )
    alone = LINEAR.observe(
        jax.random.key(1), pick(shared, 2), pick(member, 2), action, jnp.asarray(1.5), noise
    )
    for ours, theirs in zip(jax.tree.leaves(pick(after, 2)), jax.tree.leaves(alone), strict=True):
        assert ours == pytest.approx(np.asarray(theirs), rel=1e-6, abs=1e-7)


def test_each_action_is_valued_by_its_own_model():
    shared, member = LEARNER.init(jax.random.key(0))
    context = jnp.asarray([1.0, -2.0, 0.5])
    values = LEARNER.predict(shared, member, jnp.broadcast_to(context, (ARMS, DIM)))
    assert np.asarray(values) == pytest.approx(
        thetas(LEARNER, (shared, member)) @ np.asarray(context), rel=1e-5
    )
    assert len(set(np.asarray(values).tolist())) == ARMS


def test_exact_posterior_matches_least_squares_per_action():
    posterior = es.Exact(LEARNER)
    belief = posterior.init(jax.random.key(0))
    update = jax.jit(lambda *given: posterior.update(*given))
    rng = np.random.default_rng(0)
    xs, arms, ys = rng.normal(size=(30, DIM)), rng.integers(0, ARMS, 30), rng.normal(size=30)
    for x, k, y in zip(xs, arms, ys, strict=True):
        action = es.core.Action(jnp.asarray(k), jnp.asarray(x, float))
        belief = update(jax.random.key(0), belief, action, jnp.asarray(y, float))
    for k in range(ARMS):
        x, y = xs[arms == k], ys[arms == k]
        precision = np.eye(DIM) + x.T @ x / 0.25
        want = np.linalg.solve(precision, x.T @ y / 0.25)
        assert np.allclose(thetas(LEARNER, belief)[k], want, atol=1e-4)
        assert np.allclose(covariance(LEARNER, belief)[k], np.linalg.inv(precision), atol=1e-5)


def test_actions_models_are_drawn_independently_of_each_other():
    """At the start, and from a posterior that is the same for all actions."""
    draws, context = 4000, jnp.broadcast_to(jnp.asarray([1.0, 0.0, 0.0]), (ARMS, DIM))
    keys = jax.random.split(jax.random.key(3), draws)
    starts = jax.vmap(lambda k: LEARNER.predict(*LEARNER.init(k), context))(keys)
    exact = es.Exact(LEARNER)
    belief = exact.init(jax.random.key(0))
    samples = jax.vmap(lambda k: exact.sample(k, belief)(context))(keys)
    for values in (starts, samples):
        # Entries of a second moment of 4000 independent standard normals: five standard errors.
        second = np.asarray(values).T @ np.asarray(values) / draws
        assert np.abs(second - np.eye(ARMS)).max() < 5 * np.sqrt(2 / draws)


def test_serves_a_bandit_with_a_context():
    """In the last half of 200 rounds nearly all choices are right: over 20 seeds 96 % or more."""
    agent = es.EnsembleSampling(es.PerAction(es.Linear(dim=2, noise_std=0.3), arms=3), members=20)
    bandit = es.Bandit(agent, actions=["a", "b", "c"], seed=0)
    worth = {"a": [0.0, -1.0], "b": [0.6, 0.0], "c": [0.0, 0.7]}
    rng = np.random.default_rng(0)
    right = []
    for _ in range(200):
        x = rng.choice([-1.0, 0.5, 2.0])
        decision = bandit.choose(context=[1.0, x])
        right.append(decision.action == max(worth, key=lambda a: np.dot(worth[a], [1.0, x])))
        bandit.learn(decision.id, float(np.dot(worth[decision.action], [1.0, x])))
    assert np.mean(right[-100:]) > 0.85


def test_bad_settings_are_refused():
    with pytest.raises(TypeError, match="takes a Linear learner"):
        es.PerAction(es.IndependentArms(arms=2), arms=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="arms must be at least 1"):
        es.PerAction(LINEAR, arms=0)
    shared, member = LEARNER.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"shape \(4, 3\)"):
        LEARNER.predict(shared, member, jnp.zeros((2, DIM)))


def test_an_outcome_does_not_copy_the_other_models():
    arms, dim = 40, 30
    agent = es.EnsembleSampling(es.PerAction(es.Linear(dim, 1.0), arms), members=5)
    state = agent.init(jax.random.key(0))
    action = es.core.Action(jnp.asarray(2), jnp.ones(dim))
    update = jax.jit(lambda *given: agent.update(*given), donate_argnums=1)
    lowered = update.lower(jax.random.key(1), state, action, jnp.asarray(1.0))
    program = lowered.compile().as_text() or ""
    copies = re.findall(rf"= f32\[{arms},{dim},{dim}\]\S* copy\(", program)
    assert not copies
    assert f"f32[{arms},{dim},{dim}]" in program
