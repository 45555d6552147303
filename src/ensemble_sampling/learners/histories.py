"""Which observations a network keeps to learn from, when it cannot keep them all."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..core import Key


class Window(eqx.Module):
    """Keep the newest observations: the model forgets what is older, and follows drift."""

    def slot(self, key: Key, count: Array, capacity: int) -> tuple[Array, Array]:
        """Where observation number `count` goes, and whether it is kept."""
        return count % capacity, jnp.array(True)

    def effective(self, count: Array, capacity: int) -> Array:
        """How many observations the prior is weighed against: those still held."""
        return jnp.minimum(count, capacity)


class Reservoir(eqx.Module):
    """Keep a uniform sample of all observations ever made: nothing is forgotten, only thinned."""

    def slot(self, key: Key, count: Array, capacity: int) -> tuple[Array, Array]:
        drawn = jax.random.randint(key, (), 0, jnp.maximum(count, 1) + 1)
        slot = jnp.where(count < capacity, count, drawn)
        return jnp.minimum(slot, capacity - 1), slot < capacity

    def effective(self, count: Array, capacity: int) -> Array:
        return count


class History(NamedTuple):
    """What was seen, stored once for all members."""

    features: Array
    outcomes: Array
    chosen: Array | None
    seen: Array
