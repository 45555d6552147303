"""Worlds have the priors, actions and noise they promise, and change as they say."""

# pyright: reportAttributeAccessIssue=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import random_covariance
from scipy import stats

import ensemble_sampling as es
from ensemble_sampling.config import describe
from ensemble_sampling.simulation import realization

KEY, N = jax.random.key(3), 20_000
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


def test_arms_with_clicks_follow_their_prior_and_pay_by_their_chance():
    """A Beta's share below its quantiles, and a chance: five standard deviations."""
    env = es.worlds.BernoulliArms(2, 0.5, 2.0)
    chances = np.asarray(jax.vmap(env.init)(KEYS))
    for q in (0.1, 0.5, 0.9):
        below = (chances < stats.beta.ppf(q, 0.5, 2.0)).mean(axis=0)
        assert np.abs(below - q).max() < 5 * np.sqrt(q * (1 - q) / N)
    action = es.core.Action(jnp.int32(1), jnp.eye(2)[1])
    clicks = jax.vmap(lambda k: env.outcome(k, jnp.asarray([0.9, 0.2]), action))(KEYS)
    assert set(np.asarray(clicks).tolist()) == {0.0, 1.0}
    assert abs(float(clicks.mean()) - 0.2) < 5 * np.sqrt(0.2 * 0.8 / N)
    assert (env.offer(KEYS[0], jnp.asarray([0.9, 0.2])).means == jnp.asarray([0.9, 0.2])).all()


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


def test_actions_may_come_from_any_function():
    def corners(key, arms, dim):
        return jax.random.rademacher(key, (arms, dim), float)

    world = es.LinearBandit(4, 6, actions=corners).init(KEYS[0])
    assert set(np.unique(world.actions)) == {-1.0, 1.0}


def test_truth_and_actions_are_drawn_with_keys_of_their_own():
    """With one key for both, theta would be the first action before it is put on the sphere."""
    env = es.LinearBandit(3, 1, actions=lambda key, arms, dim: jax.random.normal(key, (arms, dim)))
    worlds = jax.vmap(env.init)(KEYS)
    theta, action = np.asarray(worlds.theta), np.asarray(worlds.actions)[:, 0]
    assert np.abs((theta * action).mean(axis=0)).max() < 5 / np.sqrt(N)
    for env in (es.worlds.LogisticBandit(3, 4), es.NetworkBandit(3, 4, 5)):
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


# Worlds that change: regret is to the best of the period


class Told(es.Uniform):
    """Plays arm t % 3 in its t-th period and keeps what it saw."""

    periods: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def act(self, key, state, features, available=None):
        return state % 3

    def update(self, key, state, action, outcome):
        return state + 1


def seen(agent, key, state, event):
    """What a period showed: means, features of the action, outcome."""
    return jnp.concatenate([event.offer.means, event.action.features, event.outcome[None]])


def played(world, periods, realizations=1, seed=3, dim=3):
    """Means, features and outcomes of every period, as `simulate` has them."""
    agent = Told(periods, dim)
    run = es.simulate(agent, world, periods, realizations, seed=seed, keep=True, measure=seen)
    regret = es.simulate(agent, world, periods, realizations, seed=seed, keep=True).regret
    assert run.regret is not None
    assert regret is not None
    means, features = run.regret[..., : world.arms], run.regret[..., world.arms : -1]
    return means, features, run.regret[..., -1], regret


def keys(seed, number, periods):
    key = jax.random.fold_in(jax.random.key(seed), number)
    world, outcome, _ = jax.random.split(key, 3)
    start, offer = jax.random.split(world)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    steps = at(jax.random.fold_in(key, 4), jnp.arange(1, periods + 1))
    return start, at(offer, jnp.arange(periods)), at(outcome, jnp.arange(periods)), steps


def test_wandering_arms_are_a_plain_numpy_loop():
    """Means, outcomes and regret, step by step, from the simulator's own random numbers."""
    periods = 12
    world = es.worlds.RandomWalkArms(3, 0.5, noise_std=0.3, prior_mean=2.0, prior_std=1.5)
    means, _, outcomes, regret = played(world, periods, 2)
    for number in range(2):
        start, _, noise, steps = keys(3, number, periods)
        theta = 2.0 + 1.5 * np.asarray(jax.random.normal(start, (3,)), np.float64)
        for t in range(periods):
            np.testing.assert_allclose(means[number, t], theta, atol=1e-5)
            got = theta[t % 3] + 0.3 * float(jax.random.normal(noise[t]))
            np.testing.assert_allclose(outcomes[number, t], got, atol=1e-5)
            np.testing.assert_allclose(regret[number, t], theta.max() - theta[t % 3], atol=1e-5)
            theta = theta + 0.5 * np.asarray(jax.random.normal(steps[t], (3,)), np.float64)


def test_arms_that_do_not_move_are_gaussian_arms_to_the_bit():
    still, moving = es.GaussianArms(3, 0.7), es.worlds.RandomWalkArms(3, 0.0, noise_std=0.7)
    agent = es.EnsembleSampling(es.IndependentArms(3, 0.7), 4)
    one, two = (es.simulate(agent, world, 15, 6, keep=True).regret for world in (still, moving))
    assert one is not None
    assert two is not None
    assert np.array_equal(one, two)


def test_forgetting_pays_where_arms_wander():
    world = es.worlds.RandomWalkArms(3, 0.3)

    def late(forgetting):
        learner = es.IndependentArms(3, 1.0, forgetting=forgetting)
        run = es.simulate(es.ThompsonSampling(es.Exact(learner)), world, 300, 300)
        return run.mean[150:].mean()

    assert late(0.9) < 0.8 * late(None)


@pytest.mark.parametrize("ordered", [False, True])
def test_contexts_from_rows_are_a_plain_numpy_loop(ordered):
    periods, rows = 9, np.random.default_rng(0).normal(size=(4, 2))
    prior = {"noise_std": 0.2, "prior_mean": 1.0, "prior_std": 2.0}
    world = es.ContextualBandit(rows, 3, ordered=ordered, **prior)
    means, features, outcomes, regret = played(world, periods, dim=2)
    start, offers, noise, _ = keys(3, 0, periods)
    theta = 1.0 + 2.0 * np.asarray(jax.random.normal(start, (3, 2)), np.float64)
    drawn = [int(jax.random.randint(key, (), 0, 4)) for key in offers]
    assert len({*drawn}) > 1
    for t in range(periods):
        x = rows[t % 4 if ordered else drawn[t]]
        np.testing.assert_allclose(features[0, t], x, rtol=1e-6)
        np.testing.assert_allclose(means[0, t], theta @ x, rtol=1e-4, atol=1e-5)
        got = theta[t % 3] @ x + 0.2 * float(jax.random.normal(noise[t]))
        np.testing.assert_allclose(outcomes[0, t], got, rtol=1e-4, atol=1e-5)
        worth = theta @ x
        np.testing.assert_allclose(regret[0, t], worth.max() - worth[t % 3], atol=1e-4)


def test_contexts_may_be_a_function_of_the_period():
    def season(key, period):
        angle = 2 * jnp.pi * period / 7
        return jnp.array([jnp.cos(angle), jnp.sin(angle), jax.random.uniform(key)])

    world = es.ContextualBandit(season, 3)
    assert world.dim == 3
    _, features, _, _ = played(world, 14)
    angle = 2 * np.pi * np.arange(14) / 7
    np.testing.assert_allclose(features[0, :, 0], np.cos(angle), atol=1e-5)
    np.testing.assert_allclose(features[0, :, 1], np.sin(angle), atol=1e-5)
    assert len({*features[0, :, 2].tolist()}) == 14
    assert repr(world) == "ContextualBandit(season, 3 features, 3 actions)"


FRESH = {
    "linear": es.LinearBandit(3, 4, fresh=True),
    "neuron": es.worlds.NeuronBandit(3, 4, 1.0, fresh=True),
    "network": es.NetworkBandit(3, 4, 5, 1.0, fresh=True),
    "vectors": es.NetworkBandit(3, 4, 5, 1.0, outcomes=2, reward=jnp.sum, fresh=True),
    "logistic": es.worlds.LogisticBandit(3, 4, fresh=True),
}


@pytest.mark.parametrize("name", FRESH)
def test_every_bandit_with_features_can_draw_them_anew(name):
    """Their mean outcomes are checked by the contract."""
    env = FRESH[name]
    world = env.init(KEY)
    one, two, again = (env.offer(jax.random.fold_in(KEY, t), world) for t in (0, 1, 0))
    assert not np.allclose(one.features, two.features)
    assert not np.allclose(one.means, two.means)
    assert np.array_equal(again.means, one.means)  # the truth stays


def test_fresh_actions_have_the_means_of_the_truth():
    for name, mean in (
        ("linear", lambda x, theta: x @ theta),
        ("neuron", lambda x, truth: np.maximum(0, x @ np.asarray(truth.weights[0]))),
        ("logistic", lambda x, theta: 1 / (1 + np.exp(-x @ theta))),
    ):
        truth = FRESH[name].init(KEY)
        offer = FRESH[name].offer(KEY, truth)
        want = mean(np.asarray(offer.features), truth)
        np.testing.assert_allclose(offer.means, want, rtol=1e-4, atol=1e-5)
    assert (np.asarray(offer.features)[:, -1] == 1).all()


def test_what_came_later_is_no_part_of_older_records():
    """Saved results are compared with what they were made from, word by word."""
    assert "fresh" not in describe(es.worlds.NeuronBandit())
    assert "fresh" not in describe(es.worlds.LogisticBandit(3, 4))
    assert describe(es.worlds.NeuronBandit(fresh=True))["fresh"] is True
    assert (
        repr(es.worlds.NeuronBandit(3, 4, fresh=True)) == "NeuronBandit(dim=3, arms=4, fresh=True)"
    )


class Season(eqx.Module):
    """A user's own: the good arm changes places every second period."""

    arms: int = eqx.field(static=True, default=3)

    def init(self, key):
        return jnp.zeros((), jnp.int32)

    def advance(self, key, world, period):
        return period // 2

    def offer(self, key, world):
        return es.core.Round(jnp.eye(3), (jnp.arange(3) == world % 3).astype(float))

    def outcome(self, key, world, action):
        return (action.index == world % 3).astype(float)


class Drifting(Season):
    def advance(self, key, world, period):
        return world + 0.5


def test_ones_own_world_sees_the_period():
    means, _, outcomes, regret = played(Season(), 8)
    assert means[0].argmax(1).tolist() == [0, 0, 1, 1, 2, 2, 0, 0]
    right = np.arange(8) % 3 == means[0].argmax(1)
    assert outcomes[0].tolist() == right.tolist()
    assert regret[0].tolist() == (~right).tolist()


def test_a_world_that_changes_its_kind_is_named():
    with pytest.raises(ValueError, match="Drifting: advance must keep the shapes and types of the"):
        es.simulate(es.Uniform(), Drifting(), 3, 2)


def test_a_world_that_stays_is_not_carried_along():
    """The compiled loop of older environments is what it was."""

    def carried(env):
        run = jax.make_jaxpr(lambda key: realization(es.Uniform(), env, key, 5, False))(KEY)
        (scan,) = [e for e in run.jaxpr.eqns if e.primitive.name == "scan"]
        return scan.params["num_carry"]

    assert carried(es.GaussianArms(3)) == 1  # how many outcomes were not finite
    assert carried(es.worlds.RandomWalkArms(3)) == 2
