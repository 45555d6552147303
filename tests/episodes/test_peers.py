"""Worlds beside those of bsuite, Gymnax and Gymnasium themselves."""

# pyright: reportOptionalOperand=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.episodes import DeepSea, Gymnasium, Gymnax, play

KEY = jax.random.key(11)


class Luck:
    """A generator of random numbers that were drawn elsewhere."""

    slip = noise = 0.0

    def rand(self):
        return self.slip

    def randn(self):
        return self.noise


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 10])
def test_deep_sea_is_that_of_bsuite_step_by_step(size, stochastic):
    theirs = pytest.importorskip("bsuite.environments.deep_sea")
    sea, peer, luck = DeepSea(size, stochastic=stochastic), theirs.DeepSea(size), Luck()
    world = sea.init(KEY)
    right = np.asarray(world)
    peer._action_mapping, peer._rng, peer._deterministic = right, luck, not stochastic
    rng, bad = np.random.default_rng(size), 0.0
    follow = jax.jit(lambda key, actions: play(key, sea, world, lambda k, o, t: actions[t])[0])
    for number in range(30):
        actions = rng.integers(0, 2, size)
        if number % 2:  # along the diagonal, and once or never off it
            actions = np.diagonal(right).copy()
            actions[rng.integers(size)] ^= number % 4 == 1
        key = jax.random.fold_in(KEY, number)
        episode = follow(key, jnp.asarray(actions))
        assert episode.length == size
        now = peer.reset()
        for t, action in enumerate(actions):
            assert now.observation.argmax() == episode.observations[t]
            step_key = jax.random.fold_in(jax.random.split(key, 3)[1], t)
            luck.slip, luck.noise = map(float, sea.luck(step_key))
            now = peer.step(int(action))
            assert now.reward == pytest.approx(float(episode.rewards[t]), abs=1e-6)
            assert now.last() == (t == size - 1)
        bad += float(sea.regret(world, episode))
        assert bad == peer.bsuite_info()["total_bad_episodes"]


def draw(actions):
    return lambda key, observation, t: jax.random.randint(key, (), 0, actions)


@pytest.mark.parametrize(("name", "actions"), [("CartPole-v1", 2), ("MountainCar-v0", 3)])
@pytest.mark.parametrize("adapter", [Gymnax, Gymnasium])
def test_an_episode_is_that_of_the_environment(adapter, name, actions):
    """The same physics in both: every episode is taken again by Gymnasium's own environment."""
    if adapter is Gymnax:
        pytest.importorskip("gymnax")
    gymnasium = pytest.importorskip("gymnasium")
    world, peer = adapter(name), gymnasium.make(name)
    assert (world.actions, world.limit) == (actions, peer.spec.max_episode_steps)
    episode, faults = play(KEY, world, world.init(KEY), draw(actions))
    assert jax.tree.leaves(faults) == [0, 0, 0]
    peer.reset(seed=0)
    peer.unwrapped.state = np.asarray(episode.observations[0], float)
    late = False
    for t in range(int(episode.length)):
        seen, reward, ended, late, _ = peer.step(int(episode.actions[t]))
        np.testing.assert_allclose(episode.observations[t + 1], seen, rtol=1e-3, atol=1e-4)
        assert (reward, ended or late) == (episode.rewards[t], t + 1 == episode.length)
    assert episode.cut == late
    assert late == (name == "MountainCar-v0")  # chance does not climb the hill


@pytest.mark.parametrize("adapter", [Gymnax, Gymnasium])
def test_an_agent_is_simulated_in_the_real_environments(adapter):
    pytest.importorskip(adapter.__name__.lower())
    world = adapter("CartPole-v1", best=500.0)
    net = es.Network(es.networks.GaussianMLP(4, (4,), 2), 4, 1, noise_std=1.0, arms=2)
    agent = es.episodes.BootstrappedDQN(net, 2, steps=1, batch=2, capacity=4)
    found = es.episodes.simulate(agent, world, 3, 2, keep=True, progress=False)
    assert (found.regret < 500).all()
    assert (found.regret > 300).all()
