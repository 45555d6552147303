"""Worlds of episodes do, step by step, what is written of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.episodes import DeepSea, Episode, Table, chain, play, river_swim
from ensemble_sampling.episodes.tables import Truth, backward

KEY = jax.random.key(7)


def deep_sea(size, stochastic, right, actions, luck):
    """bsuite's deep sea as a loop: (cell, reward, end) of every step, and whether it was bad."""
    column, bad, steps = 0, False, []
    for row, (action, (slip, noise)) in enumerate(zip(actions, luck, strict=True)):
        reward, goes_right = 0.0, action == right[row, column]
        if goes_right and column == size - 1:
            reward += 1
        if stochastic and row == size - 1 and column in (0, size - 1):
            reward += noise
        if goes_right:
            reward -= 0.01 / size
            if not stochastic or slip > 1 / size:
                column = min(column + 1, size - 1)
        else:
            bad |= row == column
            column = max(column - 1, 0)
        steps.append((row + 1, column, reward, row + 1 == size))
    return steps, bad


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize(("size", "most"), [(4, 4), (3, 5)])
def test_deep_sea_is_bsuites_step_by_step(stochastic, size, most):
    sea = DeepSea(size, most, stochastic)
    world = sea.init(KEY)
    step = jax.jit(sea.step)
    rng = np.random.default_rng(0)
    for number in range(40):
        state, seen = sea.reset(KEY, world)
        assert seen == 0
        keys = jax.random.split(jax.random.fold_in(KEY, number), size)
        luck = [tuple(map(float, sea.luck(key))) for key in keys]
        right = np.asarray(world)
        actions = rng.integers(0, 2, size)
        if number % 2:  # along the diagonal, and once or never off it
            actions = right[np.arange(size), np.arange(size)].copy()
            actions[rng.integers(size)] ^= number % 4 == 1
        steps, bad = deep_sea(size, stochastic, right, actions, luck)
        cells = [0]
        for key, action, (row, column, reward, end) in zip(keys, actions, steps, strict=True):
            state, seen, got, ended, cut = step(key, world, state, jnp.asarray(action))
            assert (state.row, state.column, ended, cut) == (row, column, end, False)
            assert got == pytest.approx(reward, abs=1e-6)
            if not end:
                assert seen == row * most + column
            cells.append(int(seen))
        pad = most - size
        episode = Episode(
            jnp.asarray(cells + [0] * pad),
            jnp.asarray([*actions, *[0] * pad]),
            jnp.zeros(most),
            jnp.asarray(size),
            jnp.asarray(False),
        )
        assert sea.regret(world, episode) == bad


def test_every_cell_has_its_own_action_for_right():
    maps = jax.vmap(DeepSea(6).init)(jax.random.split(KEY, 4000))
    assert np.abs(np.mean(np.asarray(maps), axis=0) - 0.5).max() < 5 * 0.5 / 4000**0.5


def test_the_tables_are_those_of_the_papers():
    swim = river_swim()
    assert swim.limit == 20
    assert (swim.rewards[0, 0], swim.rewards[5, 1], swim.rewards.sum()) == (0.005, 1.0, 1.005)
    np.testing.assert_allclose(swim.transitions[2, 1, 1:4], (0.05, 0.6, 0.35))
    np.testing.assert_allclose(swim.transitions[0, 1, :2], (0.4, 0.6))
    np.testing.assert_allclose(swim.transitions[5, 1, 4:], (0.4, 0.6))
    world = chain(7)
    truth = world.init(KEY)
    assert np.max(world.values(truth)[0, world.start]) == pytest.approx(10)


def test_a_table_moves_by_its_chances_and_pays_its_rewards():
    table = Table(river_swim().transitions, river_swim().rewards, limit=20, noise_std=0.5)
    world, n = table.init(KEY), 20_000
    state, _ = table.reset(KEY, world)
    state = state._replace(state=jnp.asarray(2))
    keys = jax.random.split(KEY, n)
    after = jax.vmap(lambda key: table.step(key, world, state, jnp.asarray(1)))(keys)
    share = np.bincount(np.asarray(after.observation), minlength=6) / n
    assert np.abs(share - table.transitions[2, 1]).max() < 5 * 0.5 / n**0.5
    noise = np.asarray(after.reward) - table.rewards[2, 1]
    assert abs(noise.mean()) < 5 * 0.5 / n**0.5
    assert abs(noise.std() / 0.5 - 1) < 5 / (2 * n) ** 0.5


def test_values_are_those_of_a_plain_loop():
    rng = np.random.default_rng(1)
    transitions, rewards = rng.dirichlet(np.ones(4), (4, 3)), rng.normal(size=(4, 3))
    value, expected = np.zeros(4), []
    for _ in range(5):
        q = np.array(
            [[rewards[s, a] + transitions[s, a] @ value for a in range(3)] for s in range(4)]
        )
        value = q.max(axis=1)
        expected.append(q)
    found = backward(jnp.asarray(rewards), jnp.asarray(transitions), 5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Always:
    """A policy that does the same in every state."""

    def __init__(self, action):
        self.action = action

    def __call__(self, key, observation, t):
        return jnp.asarray(self.action)


def test_an_episode_ends_where_the_world_does_and_is_empty_beyond():
    sea = DeepSea(3, 6)
    world = jnp.ones((6, 6), jnp.int32)  # 1 is right everywhere
    episode, faults = play(KEY, sea, world, Always(1))
    assert episode.length == 3
    np.testing.assert_array_equal(episode.observations[:3], (0, 7, 14))
    np.testing.assert_array_equal(episode.observations[4:], 0)
    np.testing.assert_array_equal(episode.actions, (1, 1, 1, 0, 0, 0))
    assert episode.rewards.sum() == pytest.approx(0.99)
    np.testing.assert_array_equal(episode.taken, [True] * 3 + [False] * 3)
    np.testing.assert_array_equal(episode.goes_on, [True] * 2 + [False] * 4)
    np.testing.assert_array_equal(
        episode._replace(cut=jnp.asarray(True)).goes_on, [True] * 3 + [False] * 3
    )
    assert jax.tree.leaves(faults) == [0, 0, 0]


def test_regret_in_a_table_is_what_was_lost_in_expectation():
    world = chain(5)
    truth = world.init(KEY)
    left, _ = play(KEY, world, truth, Always(0))
    right, _ = play(KEY, world, truth, Always(1))
    assert world.regret(truth, right) == pytest.approx(0, abs=1e-5)
    assert world.regret(truth, left) == pytest.approx(10 - float(left.rewards.sum()), rel=1e-5)
    assert left.cut  # any state may be the last
    assert isinstance(truth, Truth)


def test_luck_is_the_same_for_every_agent():
    sea = DeepSea(4, stochastic=True)
    world = sea.init(KEY)
    one, _ = play(KEY, sea, world, Always(1))
    two, _ = play(KEY, sea, world, Always(1))
    np.testing.assert_array_equal(one.rewards, two.rewards)
    assert es.episodes.DeepSea is DeepSea
