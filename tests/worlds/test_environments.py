"""The linear and Gaussian worlds have the priors, actions and noise they promise."""

# pyright: reportAttributeAccessIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import random_covariance

import ensemble_sampling as es

N = 20_000
KEYS = jax.random.split(jax.random.key(0), N)


def check_normal(samples, mean, cov):
    """Whitened samples are N(0, I): five standard deviations of their moments."""
    white = np.linalg.solve(np.linalg.cholesky(cov), (np.asarray(samples, float) - mean).T)
    assert np.abs(white.mean(axis=1)).max() < 5 / np.sqrt(N)
    assert np.abs(white @ white.T / N - np.eye(len(cov))).max() < 5 * np.sqrt(2 / N)


def test_gaussian_arms_follow_their_prior_and_noise():
    env = es.GaussianArms(3, noise_std=0.5, prior_mean=2.0, prior_std=3.0)
    check_normal(jax.vmap(env.init)(KEYS), np.full(3, 2.0), 9 * np.eye(3))
    world = jnp.asarray([1.0, 2.0, 3.0])
    action = es.core.Action(jnp.int32(1), jnp.eye(3)[1])
    outcomes = jax.vmap(lambda k: env.outcome(k, world, action))(KEYS)
    check_normal(outcomes[:, None], [2.0], np.array([[0.25]]))
    offer = env.offer(KEYS[0], world)
    assert (offer.means == world).all()
    assert (offer.features == np.eye(3)).all()


def test_a_linear_bandit_follows_its_prior_and_noise():
    rng = np.random.default_rng(0)
    mean, cov, actions = rng.normal(size=3), random_covariance(rng, 3), rng.normal(size=(5, 3))
    env = es.LinearBandit(noise_std=0.5, prior_mean=mean, prior_cov=cov, actions=actions)
    assert (env.dim, env.arms) == (3, 5)
    worlds = jax.vmap(env.init)(KEYS)
    check_normal(worlds.theta, mean, cov)
    world = env.init(KEYS[0])
    offer = env.offer(KEYS[1], world)
    np.testing.assert_allclose(offer.features, actions, rtol=1e-6)
    np.testing.assert_allclose(offer.means, actions @ np.asarray(world.theta), rtol=1e-4)
    action = es.core.Action(jnp.int32(2), offer.features[2])
    outcomes = jax.vmap(lambda k: env.outcome(k, world, action))(KEYS)
    check_normal(outcomes[:, None], [float(offer.means[2])], np.array([[0.25]]))


def test_drawn_actions_are_on_the_sphere_and_differ_between_worlds():
    env = es.LinearBandit(4, 6)
    one, two = env.init(KEYS[0]), env.init(KEYS[1])
    np.testing.assert_allclose(jnp.linalg.norm(one.actions, axis=1), 1, rtol=1e-5)
    assert not np.allclose(one.actions, two.actions)
    same = [env.offer(k, one).features for k in KEYS[:2]]
    assert (same[0] == same[1]).all()


def test_fresh_actions_are_drawn_in_every_period():
    env = es.LinearBandit(4, 6, fresh=True)
    world = env.init(KEYS[0])
    one, two = (env.offer(k, world) for k in KEYS[:2])
    assert not np.allclose(one.features, two.features)
    np.testing.assert_allclose(two.means, two.features @ world.theta, rtol=1e-5)


def test_actions_may_come_from_any_function():
    def corners(key, arms, dim):
        return jax.random.rademacher(key, (arms, dim), float)

    world = es.LinearBandit(4, 6, actions=corners).init(KEYS[0])
    assert set(np.unique(world.actions)) == {-1.0, 1.0}


def test_an_action_function_of_the_wrong_shape_is_named():
    env = es.LinearBandit(4, 6, actions=lambda key, arms, dim: jnp.ones((dim, arms)))
    with pytest.raises(ValueError, match=r"returned shape \(4, 6\), expected \(6, 4\)"):
        env.init(KEYS[0])


def test_truth_and_actions_are_drawn_with_keys_of_their_own():
    """With one key for both, theta would be the first action before it is put on the sphere."""
    env = es.LinearBandit(3, 1, actions=lambda key, arms, dim: jax.random.normal(key, (arms, dim)))
    worlds = jax.vmap(env.init)(KEYS)
    theta, action = np.asarray(worlds.theta), np.asarray(worlds.actions)[:, 0]
    assert np.abs((theta * action).mean(axis=0)).max() < 5 / np.sqrt(N)
    for env in (es.LogisticBandit(3, 4), es.NetworkBandit(3, 4, 5)):
        one, two = env.init(KEYS[0]), env.init(KEYS[1])
        assert not np.allclose(one.actions, two.actions)
        assert not np.allclose(one.means, two.means)


def test_a_reward_of_a_vector_is_scored_by_its_mean_over_the_noise():
    """E max(y_1, y_2) with y ~ N(m, s^2 I) is m_1 F(d) + m_2 F(-d) + s sqrt(2) f(d), F and f the
    normal's, d = (m_1 - m_2) / (s sqrt(2)): more than max(m_1, m_2)."""
    env = es.NetworkBandit(3, 50, 5, noise_std=2.0, outcomes=2, reward=jnp.max)
    world = env.init(KEYS[0])
    m = np.asarray(world.outcomes, np.float64)
    width = 2.0 * np.sqrt(2)
    d = (m[:, 0] - m[:, 1]) / width
    cdf, pdf = jax.scipy.stats.norm.cdf(d), jax.scipy.stats.norm.pdf(d)
    want = m[:, 0] * cdf + m[:, 1] * (1 - cdf) + width * pdf
    np.testing.assert_allclose(env.offer(KEYS[1], world).means, want, atol=0.05)
    assert (want > m.max(axis=1) + 0.05).any()
