"""Choosing by values: the best action, ties shared, and how likely each action is to be it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key
from ..primitives import first


def _largest(values: Array, available: Array | None, settled: bool = False) -> Array:
    """Which of those available are the largest along the last axis; none where one is NaN.

    settled: whether values are sure not to be computed twice, see `primitives.in_one_step`.
    """
    values = values if available is None else jnp.where(available, values, -jnp.inf)
    best = values == values.max(axis=-1, keepdims=True)
    best = best if available is None else best & available
    if available is None or settled or checks.known(values):
        return best

    # Compiled, values may be computed for the maximum and again to compare with it, and where the
    # two round differently none is best. That is rare, and an argmax takes tens of times as long.
    # A loop's condition reads what the loop was given; that of a branch may be computed anew.
    def lost(loop: tuple[Array, Array, Array]) -> Array:
        best, _, again = loop
        return again & ~best.any(axis=-1).all()

    def mended(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, values, again = loop
        top = jnp.arange(values.shape[-1]) == jnp.argmax(values, axis=-1, keepdims=True)
        none = ~best.any(axis=-1, keepdims=True) & ~jnp.isnan(values).any(axis=-1, keepdims=True)
        return best | (top & available & none), values, ~again

    return jax.lax.while_loop(lost, mended, (best, values, jnp.array(True)))[0]


def greedy(key: Key, values: Array, available: Array | None = None) -> Array:
    """The index of the largest value, ties broken uniformly at random; NaN is worse than anything.

    Random priorities come from one draw mixed with the index (murmur3's finaliser), since a
    random number per action would cost as much as the rest of a period.
    """
    available = checks.available(available, values.shape[-1])
    best = _largest(jnp.where(jnp.isnan(values), -jnp.inf, values), available)
    mixed = jax.random.bits(key, ()) + jnp.arange(best.shape[-1], dtype=jnp.uint32) * jnp.uint32(
        0x9E3779B9
    )
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    mixed = jnp.where(best, (mixed ^ (mixed >> 16)) | 1, 0)
    return first(mixed == mixed.max())


def shares(values: Array, available: Array | None = None, settled: bool = False) -> Array:
    """How likely a greedy choice is to fall on each action (..., K); ties share equally.

    A model that gives NaN for an action on offer knows nothing: its shares are NaN, to be noticed.
    """
    available = checks.available(available, values.shape[-1])
    if available is None:  # so that `_largest` mends what rounding loses
        available = jnp.ones(values.shape[-1], bool)
    best = _largest(values, available, settled).astype(values.dtype)
    count = best.sum(axis=-1, keepdims=True)
    return jnp.where(count > 0, best / count, jnp.nan)  # of a model that gives NaN none is best


class Uniform(eqx.Module):
    """Every action equally likely; learns nothing. The yardstick."""

    label = "uniform"
    __repr__ = short

    def init(self, key: Key) -> Any:
        checks.key(key)
        return ()

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        return greedy(checks.key(key), jnp.zeros(checks.offer(features).shape[0]), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        checks.action(action)
        checks.outcome(outcome)
        return state

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return shares(jnp.zeros(checks.offer(features).shape[0]), available)
