"""Expected rewards of random outcomes: vectors with Gaussian noise, and clicks."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import learn

import ensemble_sampling as es

DIM = 4


# Outcome vectors and rewards


def test_expected_rewards_are_exact_for_cubic_polynomials(float64):
    reward = es.Reward(lambda y: 1 + 2 * y[0] - y[1] ** 2 + y[0] * y[1] + y[0] ** 3, 2)
    mean, s = np.array([[0.5, -1.0], [2.0, 0.3]]), 0.7
    a, b = mean.T
    want = 1 + 2 * a - (b**2 + s**2) + a * b + a**3 + 3 * a * s**2
    np.testing.assert_allclose(reward.expected(jnp.asarray(mean), s), want, rtol=1e-10)


def test_a_threshold_is_integrated_over_the_noise():
    """P(N(m, 1) > 0.5), to within the spacing of the points."""
    from scipy.stats import norm

    reward = es.Reward(lambda y: (y[0] > 0.5).astype(float), 1, draws=512)
    mean = np.linspace(-2, 2, 9)
    have = reward.expected(jnp.asarray(mean)[:, None], 1.0)
    np.testing.assert_allclose(have, norm.sf(0.5 - mean), atol=0.01)


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_vector_outcomes_are_learned_and_scored(kind):
    reward = lambda y: y[0] - y[1] ** 2  # noqa: E731
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(DIM, 2))
    x = rng.uniform(-1, 1, (300, DIM))
    y = x @ truth + 0.05 * rng.normal(size=(300, 2))
    if kind == "linear":
        learner = es.Linear(DIM, 0.05, outcomes=2, reward=reward)
    else:
        make = lambda key: es.networks.MLP([jax.random.normal(key, (2, DIM))])  # noqa: E731
        how: Any = {"learning_rate": 1e-3, "steps": 5, "optimizer": optax.sgd}
        learner = es.Network(make, DIM, 300, 0.05, 1.0, outcomes=2, reward=reward, **how)
    ensemble = es.Ensemble(learner, 3)
    _, end = learn(ensemble, jax.random.key(0), np.zeros(300, int), x, y)
    have = ensemble.values(jax.random.key(0), end, jnp.asarray(x[:20], float), 1)
    mean = x[:20] @ truth
    want = mean[:, 0] - (mean[:, 1] ** 2 + 0.05**2)
    np.testing.assert_allclose(np.asarray(have), np.tile(want, (3, 1)), atol=0.15)


# Clicks


def test_cross_entropy_is_twice_the_negative_log_likelihood_of_a_click():
    loss, outputs = es.learners.CrossEntropy(), np.linspace(-4, 4, 9)
    chances = 1 / (1 + np.exp(-outputs))
    for y in (0.0, 1.0):
        want = -2 * np.log(chances if y else 1 - chances)
        have = [float(loss(jnp.asarray(o), jnp.asarray(y), 0.5)) for o in outputs]
        np.testing.assert_allclose(have, want, rtol=1e-5)
    np.testing.assert_allclose(loss.mean(jnp.asarray(outputs)), chances, rtol=1e-5)


def logit_network(outputs: int, reward, **settings) -> es.Network:
    make, clicks = (
        es.networks.GaussianMLP(DIM, (), outputs, prior_std=1.0),
        es.learners.CrossEntropy(),
    )
    return es.Network(make, DIM, 10, 0.5, loss=clicks, outcomes=outputs, reward=reward, **settings)


def weighed(reward, chances: np.ndarray) -> np.ndarray:
    """E R(y) over independent 0/1 entries, one combination after another."""
    total = np.zeros(len(chances))
    for y in itertools.product((0, 1), repeat=chances.shape[1]):
        chance = np.prod(np.where(y, chances, 1 - chances), axis=1)
        total += chance * float(reward(jnp.asarray(y, float)))
    return total


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_a_reward_of_clicks_is_averaged_over_what_clicks_can_be(outputs, float64):
    reward = lambda y: jnp.exp(y.sum()) + 2 * y[0] ** 2 - y[-1]  # noqa: E731
    learner, key = logit_network(outputs, reward), jax.random.key(0)
    shared, member = learner.init(key)
    x = jax.random.normal(key, (5, DIM))
    chances = 1 / (1 + np.exp(-np.asarray(x) @ np.asarray(member.model.weights[0]).T))
    np.testing.assert_allclose(
        learner.predict(shared, member, x), weighed(reward, chances), rtol=1e-10
    )


def test_a_reward_of_many_clicks_is_averaged_over_balanced_points():
    chances = np.random.default_rng(0).uniform(0.1, 0.9, (4, 12))
    reward = es.Reward(lambda y: y.sum() + y[0] * y[1], 12)
    want = chances.sum(axis=1) + chances[:, 0] * chances[:, 1]
    # 1,024 Sobol points: far below the 0.05 of as many independent ones.
    np.testing.assert_allclose(reward.expected_binary(jnp.asarray(chances)), want, atol=0.02)


def test_a_network_averages_a_vectors_reward_over_gaussian_noise(float64):
    make, key = es.networks.GaussianMLP(DIM, (), 2, prior_std=1.0), jax.random.key(0)
    learner = es.Network(make, DIM, 5, 0.7, outcomes=2, reward=lambda y: y[0] ** 2 + y[1])
    shared, member = learner.init(key)
    x = jax.random.normal(key, (5, DIM))
    mean = np.asarray(x) @ np.asarray(member.model.weights[0]).T
    want = mean[:, 0] ** 2 + 0.7**2 + mean[:, 1]
    np.testing.assert_allclose(learner.predict(shared, member, x), want, rtol=1e-10)


def test_cross_entropy_members_spread_like_the_laplace_approximation():
    """Balanced clicks: with noise_std = 1/2 the members' covariance is H^-1 at the mode."""
    dim, periods, members, prior_std = 2, 300, 400, 1.0
    rng = np.random.default_rng(0)
    x = rng.normal(size=(periods, dim)) * 0.3
    y = rng.integers(0, 2, periods)
    make = lambda key: es.networks.MLP([prior_std * jax.random.normal(key, (dim,))])  # noqa: E731
    how: Any = {"batch": None, "steps": 3, "learning_rate": 0.3, "optimizer": optax.sgd}
    clicks = es.learners.CrossEntropy()
    learner = es.Network(make, dim, periods, 0.5, prior_std, loss=clicks, **how)
    _, end = learn(es.Ensemble(learner, members), jax.random.key(0), np.zeros(periods, int), x, y)
    theta = np.asarray(end[1].model.weights[0])
    p = 1 / (1 + np.exp(-x @ theta.mean(axis=0)))
    laplace = np.linalg.inv((x.T * p * (1 - p)) @ x + np.eye(dim) / prior_std**2)
    ratio = np.linalg.eigvalsh(np.linalg.solve(laplace, np.cov(theta.T)).real)
    # A variance from 400 draws is off by sqrt(2 / 399) = 7%; four of these, and 5% for p != 1/2.
    assert np.all(np.abs(ratio - 1) < 0.33), ratio


def test_a_click_network_predicts_chances_and_learns():
    world = es.worlds.LogisticBandit(3, arms=20, prior_std=1.0, bias=-1.0)
    make = lambda key: es.networks.MLP([jax.random.normal(key, (3,))])  # noqa: E731
    learner = es.Network(make, 3, 400, 0.5, loss=es.learners.CrossEntropy())
    result = es.simulate(es.EnsembleSampling(learner, 10), world, periods=400, realizations=30)
    uniform = es.simulate(es.Uniform(), world, periods=400, realizations=30)
    assert result.mean[-50:].mean() < 0.35 * uniform.mean[-50:].mean()
