"""The cipher written out gives the bits of JAX's own."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.primitives import PLAIN, plain, quick, split_seed
from ensemble_sampling.simulation import programs

WORLD = es.GaussianArms(3)
KEYS = [jax.random.key(seed) for seed in (0, 7, 2**32 - 1)]
DRAWS = {
    "split": lambda key: jax.random.key_data(jax.random.split(key, (2, 3))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 + 5)),
    "key": jax.random.key_data,
    "normal": lambda key: jax.random.normal(key, (3, 5)),
    "scalar": lambda key: jax.random.uniform(key),
    "randint": lambda key: jax.random.randint(key, (9,), 0, 100),
    "bytes": lambda key: jax.random.bits(key, (7,), "uint8"),
    "long": lambda key: jax.random.bits(key, (4,), jnp.uint32(0).dtype),
    "choice": lambda key: jax.random.choice(key, 20, (6,), replace=False),
    "empty": lambda key: jax.random.normal(key, (0,)),
    "mapped": lambda key: jax.vmap(jax.random.normal)(jax.random.split(key, 4)),
    "mapped numbers": lambda key: jax.vmap(
        lambda n: jax.random.normal(jax.random.fold_in(key, n), (2,))
    )(jnp.arange(3)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_bits_are_those_of_jax(draw):
    for key in KEYS:
        for run in (draw, jax.jit(draw)):
            np.testing.assert_array_equal(run(quick(key)), run(key))


def test_a_quick_key_made_plain_is_the_key_it_was():
    key: Any = jax.random.key(3)
    assert str(jax.random.key_impl(quick(key))) != PLAIN
    for same in (plain(quick(key)), plain(key)):
        assert str(jax.random.key_impl(same)) == PLAIN
        np.testing.assert_array_equal(jax.random.key_data(same), jax.random.key_data(key))


def test_numbers_of_64_bits_are_those_of_jax():
    with jax.enable_x64(True):
        draw = lambda key: jax.random.normal(key, (5,), "float64")  # noqa: E731
        np.testing.assert_array_equal(draw(quick(KEYS[1])), draw(KEYS[1]))


@pytest.mark.parametrize("partitionable", [True, False])
@pytest.mark.parametrize("seed", [0, 7, 2**31, 2**32 - 1])
def test_what_a_bandit_begins_with_is_what_jax_makes_of_its_seed(seed, partitionable):
    with jax.threefry_partitionable(partitionable):
        words: Any = np.array([0, seed], np.uint32)
        key = jax.random.wrap_key_data(words, impl=PLAIN)
        first, second = jax.random.split(key)
        words = jax.random.bits(second, (2,), np.uint32)
        for found, right in zip(split_seed(seed), (jax.random.key_data(first), words), strict=True):
            assert found.dtype == np.uint32
            np.testing.assert_array_equal(found, right)


def test_a_bandit_learns_from_the_first_key_of_its_seed_and_decides_by_the_second():
    agent = es.EnsembleSampling(es.Linear(2, noise_std=1.0), 3)
    bandit = es.Bandit(agent, seed=7, normalise=False)
    replica = bandit._replica
    first, second = jax.random.split(jax.random.key(7))
    state = jax.tree.leaves(replica.state(bandit._ledger).belief)
    for found, right in zip(state, jax.tree.leaves(agent.init(first)), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)
    assert replica._streams == jax.random.bits(second, (2,), np.uint32).tolist()


def test_keys_of_another_cipher_stay_what_they_are():
    other = jax.random.key(0, impl="rbg")
    assert quick(other) is other
    assert quick(quick(KEYS[0])).dtype == quick(KEYS[0]).dtype != KEYS[0].dtype


class Counts(es.GaussianArms):
    """Of a user's: JAX draws these by its own keys alone."""

    def outcome(self, key, world, action):
        return jax.random.poisson(key, 3.0).astype(float)


class Plain(NamedTuple):
    """Of a user's, and no dataclass."""

    world: es.GaussianArms


class Keeps(es.Uniform):
    """Of a user's: it holds keys of both kinds."""

    def init(self, key):
        return jax.random.key(0)

    def update(self, key, state, action, outcome):
        return jnp.where(outcome > 0, key, state)

    def probabilities(self, state, features, available=None, key=None):
        return jnp.ones(3) / 3


@pytest.mark.parametrize(("agent", "world"), [(es.Uniform(), Counts(3)), (Keeps(), WORLD)])
def test_code_of_others_gets_keys_of_jax(agent, world):
    assert np.isfinite(es.simulate(agent, world, 5, 4, progress=False).mean).all()
    assert quick(KEYS[0], WORLD, es.Uniform()) is not KEYS[0]
    assert quick(KEYS[0], agent, world) is KEYS[0]
    assert quick(KEYS[0], [WORLD, {"also": (lambda key: key,)}]) is KEYS[0]
    assert quick(KEYS[0], Plain(WORLD)) is KEYS[0]


def test_a_bandit_of_another_agent_gets_keys_of_jax():
    bandit = es.Bandit(Keeps())
    for outcome in (-1.0, 1.0, -1.0):
        bandit.learn(bandit.choose(np.eye(3)).id, outcome)
    assert bandit.state.belief.dtype == KEYS[0].dtype


def test_a_simulation_does_not_change(monkeypatch):
    agent = es.EnsembleSampling(es.IndependentArms(5, noise_std=1.0), 4)
    run = lambda: es.simulate(agent, es.GaussianArms(5), 20, 6, seed=3, keep=True).regret  # noqa: E731
    written_out = run()
    monkeypatch.setattr(programs, "quick", lambda key, *_: key)
    programs._program.cache_clear()
    try:
        np.testing.assert_array_equal(run(), written_out)
    finally:
        programs._program.cache_clear()


def test_keys_whose_numbers_jax_draws_by_its_older_scheme_stay_what_they_are():
    with jax.threefry_partitionable(False):
        assert quick(KEYS[0]) is KEYS[0]
    assert quick(KEYS[0]) is not KEYS[0]
