"""The cipher of JAX's keys in one piece, for programs that run on a CPU.

JAX compiles a CPU's Threefry as a loop over its rounds, every one of them several passes over
memory, and such a loop for every key that is split. Written out, the rounds of all numbers of a
draw are a single pass: the same bits. A simulation of 1,000 arms takes 1.3 times as long without.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

from ..code import is_known

PLAIN = "threefry2x32"  # as `primitives` has it, which imports this file
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _cipher(key: Any, counter: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counter (0, `counter`)."""
    words = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = words[0], words[1] + counter
    for four in range(5):
        for r in ROTATIONS[four % 2]:
            x = x + y
            y = x ^ (y << r | y >> (32 - r))
        x = x + words[(four + 1) % 3]
        y = y + words[(four + 2) % 3] + np.uint32(four + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    return _cipher(key, jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape))


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    if width != 32 or math.prod(shape) >= 2**32:
        plain = jax.random.wrap_key_data(key, impl=PLAIN)
        return jax.random.bits(plain, shape, f"uint{width}")
    x, y = _counted(key, shape)
    return x ^ y


WRITTEN_OUT = define_prng_impl(
    key_shape=(2,),
    seed=lambda seed: jax.random.key_data(jax.random.key(seed, impl=PLAIN)),
    split=lambda key, shape: jnp.stack(_counted(key, shape), axis=-1),
    random_bits=_bits,
    fold_in=lambda key, data: jnp.stack(_cipher(key, jnp.uint32(data))),
    name="threefry2x32 written out",
    tag="frywo",
)


def quick(key: Array, *users: Any) -> Array:
    """A key that gives the same numbers, on a CPU in less time.

    users: the parts that draw by it. Parts with code of others get JAX's own key: they may store it
        beside others of JAX's, or call functions that JAX has for its own keys alone.
    """
    known = _partitionable() and str(jax.random.key_impl(key)) == PLAIN
    if not known or jax.default_backend() != "cpu" or not is_known(users):
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=WRITTEN_OUT)


def plain(key: Array) -> Array:
    """JAX's own key for the same numbers, where what draws them is seldom run: it compiles sooner,
    and what stores its key can store it beside others of JAX's."""
    if str(jax.random.key_impl(key)) != str(WRITTEN_OUT):
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=PLAIN)


def _partitionable() -> bool:
    return jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]


def split_seed(seed: int) -> tuple[Any, Any]:
    """The key of a seed split in two: the words of the first, and two words drawn by the second.

    By hand, since opening a bandit would otherwise wait for JAX to compile a program.
    """
    key: Any = np.array([0, seed], np.uint32)
    if not _partitionable():
        first, second = jax.random.split(jax.random.wrap_key_data(key, impl=PLAIN))
        words = jax.random.bits(second, (2,), np.uint32)
        return np.asarray(jax.random.key_data(first)), np.asarray(words)
    counters = np.arange(2, dtype=np.uint32)
    first, second = np.stack(_cipher(key, counters), axis=-1)
    return first, np.bitwise_xor(*_cipher(second, counters))
