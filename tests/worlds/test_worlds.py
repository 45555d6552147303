"""Worlds that change: wandering arms, contexts, seasons; regret is to the best of the period."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.config import describe
from ensemble_sampling.simulation import realization

KEY = jax.random.key(3)
ONE: Any = 1


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
    run = es.simulate(agent, world, periods, realizations, seed, keep=True, measure=seen)
    regret = es.simulate(agent, world, periods, realizations, seed, keep=True).regret
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
    periods, world = (
        12,
        es.worlds.RandomWalkArms(3, 0.5, noise_std=0.3, prior_mean=2.0, prior_std=1.5),
    )
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


def test_wandering_arms_spread_as_a_random_walk_does():
    """Var m_t = prior^2 + t step^2 and Cov(m_s, m_t) = Var m_s for s < t."""
    realizations = 4000
    world = es.worlds.RandomWalkArms(3, 0.5, prior_std=0.8)
    means, _, _, _ = played(world, 10, realizations)
    walks = means[:, :, 0].astype(np.float64)
    variance = 0.64 + 0.25 * np.arange(10)
    want = np.minimum.outer(variance, variance)
    got = np.cov(walks.T)
    error = np.sqrt((np.outer(variance, variance) + want**2) / realizations)
    assert np.abs((got - want) / error).max() < 4.5
    arms = np.cov(np.diff(means, axis=1).reshape(-1, 3).T)
    np.testing.assert_allclose(arms, 0.25 * np.eye(3), atol=0.01)


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


def test_a_model_per_action_learns_a_contextual_bandit():
    world = es.ContextualBandit(np.random.default_rng(0).normal(size=(50, 3)), 4)
    learner = es.PerAction(es.Linear(3, noise_std=1.0), 4)
    runs = [
        es.simulate(agent, world, 150, 100)
        for agent in (es.EnsembleSampling(learner, 20), es.Uniform())
    ]
    assert runs[0].mean[-50:].mean() < 0.25 * runs[1].mean[-50:].mean()


FRESH = {
    "linear": es.LinearBandit(3, 4, fresh=True),
    "neuron": es.NeuronBandit(3, 4, 1.0, fresh=True),
    "network": es.NetworkBandit(3, 4, 5, 1.0, fresh=True),
    "vectors": es.NetworkBandit(3, 4, 5, 1.0, outcomes=2, reward=jnp.sum, fresh=True),
    "logistic": es.LogisticBandit(3, 4, fresh=True),
}


@pytest.mark.parametrize("name", FRESH)
def test_every_bandit_with_features_can_draw_them_anew(name):
    env = FRESH[name]
    world = env.init(KEY)
    offers = [env.offer(jax.random.fold_in(KEY, t), world) for t in range(2)]
    assert not np.allclose(offers[0].features, offers[1].features)
    assert not np.allclose(offers[0].means, offers[1].means)
    # The truth stays: the same actions, the same means.
    again = env.offer(jax.random.fold_in(KEY, 0), world)
    assert np.array_equal(again.means, offers[0].means)
    around = world if offers[0].world is None else offers[0].world
    action = es.core.Action(jnp.int32(2), offers[0].features[2])
    many = jax.vmap(lambda key: env.outcome(key, around, action))(jax.random.split(KEY, 4000))
    reward = many.sum(-1) if name == "vectors" else many
    spread = 5 * float(reward.std()) / 4000**0.5
    assert float(reward.mean()) == pytest.approx(float(offers[0].means[2]), abs=spread)


def test_fresh_actions_have_the_means_of_the_truth():
    env = FRESH["neuron"]
    truth = env.init(KEY)
    offer = env.offer(KEY, truth)
    want = np.maximum(0, np.asarray(offer.features) @ np.asarray(truth.weights[0]))
    np.testing.assert_allclose(offer.means, want, rtol=1e-4, atol=1e-5)
    env = FRESH["logistic"]
    theta = env.init(KEY)
    offer = env.offer(KEY, theta)
    want = 1 / (1 + np.exp(-np.asarray(offer.features) @ np.asarray(theta)))
    np.testing.assert_allclose(offer.means, want, rtol=1e-5)
    assert (np.asarray(offer.features)[:, -1] == 1).all()


def test_what_came_later_is_no_part_of_older_records():
    """Saved results are compared with what they were made from, word by word."""
    assert "fresh" not in describe(es.NeuronBandit())
    assert "fresh" not in describe(es.LogisticBandit(3, 4))
    assert describe(es.NeuronBandit(fresh=True))["fresh"] is True
    assert repr(es.NeuronBandit(3, 4, fresh=True)) == "NeuronBandit(dim=3, arms=4, fresh=True)"


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


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: es.worlds.RandomWalkArms(0), ValueError, "arms must be at least 1, got 0"),
        (lambda: es.worlds.RandomWalkArms(2, -1.0), ValueError, "step_std must be between 0 and"),
        (lambda: es.ContextualBandit(np.zeros(3), 2), ValueError, r"context must have shape"),
        (lambda: es.ContextualBandit("rows", 2), TypeError, "context must be an array"),
        (
            lambda: es.ContextualBandit(lambda key, t: jnp.zeros((2, 2)), 2),
            ValueError,
            r"returned shape \(2, 2\), expected \(features,\)",
        ),
        (
            lambda: es.ContextualBandit(lambda key, t: jnp.zeros(2 if t else 3), 2),
            TypeError,
            "the period not known then",
        ),
        (
            lambda: es.ContextualBandit(lambda key, t: jnp.zeros(2), 2, ordered=True),
            ValueError,
            "a function is told the period",
        ),
        (
            lambda: es.NetworkBandit(3, 4, fresh=ONE),
            TypeError,
            "fresh must be True or False, got 1",
        ),
        (lambda: es.LogisticBandit(3, 4, fresh=ONE), TypeError, "fresh must be True or False"),
    ],
)
def test_a_mistake_is_named(make, error, said):
    with pytest.raises(error, match=said):
        make()
