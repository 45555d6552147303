"""Small steps that others are made of: each plain here, and faster where `fast/` has it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .fast import faster

PLAIN = "threefry2x32"  # the cipher of keys, whatever the user's default is


@faster("argmax")
def first(true: Array) -> Array:
    """The index of the first that is true along the last axis, 0 if none is."""
    return jnp.argmax(true, axis=-1).astype(jnp.int32)


@faster("one_step")
def in_one_step(function: Callable[..., Any], word: Array, *given: Any) -> Any:
    """`function(*given)`, computed once and apart from the rest: an optimisation barrier. All uses
    of the result read the same numbers, where a compiler may otherwise compute them again for each
    use, and round them differently.

    word: a number that is known when the program runs, for the faster version
    """
    return jax.lax.optimization_barrier(function(*given))


@faster("rarely")
def rarely(taken: Array, change: Callable[..., Any], state: Any, *given: Any) -> Any:
    """`change(state, *given)` where it is `taken`, which is seldom, else `state`."""
    return jax.lax.cond(taken, change, lambda state, *_: state, state, *given)


@faster("threefry")
def quick(key: Array, *users: Any) -> Array:
    """A key that gives the same numbers in less time, if there is one for the parts that use it."""
    return key


@faster("threefry")
def plain(key: Array) -> Array:
    """JAX's own key for the same numbers as a quick one."""
    return key


@faster("threefry")
def split_seed(seed: int) -> tuple[Any, Any]:
    """The key of a seed split in two: the words of the first, and two words drawn by the second."""
    words: Any = np.array([0, seed], np.uint32)
    first, second = jax.random.split(jax.random.wrap_key_data(words, impl=PLAIN))
    words = jax.random.bits(second, (2,), np.uint32)
    return np.asarray(jax.random.key_data(first)), np.asarray(words)


@faster("inline")
def processor(state: Any) -> Any:
    """The device on which decisions by such a state are computed; None: JAX's default."""
    return None
