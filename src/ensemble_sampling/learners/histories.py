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


class Reservoir(eqx.Module):
    """Keep a uniform sample of all observations ever made, early ones as likely as late ones.

    A held observation counts once, whatever the number n it stands for, so that members are draws
    from the posterior given the h held ones: with features X and noise variance s^2, of precision
    L = P + X'X / s^2. Counting each n / h times would fit the same h outcomes as if they were n.
    The fit's own error then has the covariance L^-1 (P + (n/h)^2 X'X / s^2) L^-1, with
    L = P + (n/h) X'X / s^2, which exceeds the prior's where the data are weak. Members with one
    perturbation per held row have that spread too; with perturbations made sqrt(n/h) times
    smaller they have L^-1, and are too sure of themselves by a factor of up to sqrt(n/h).
    """

    def slot(self, key: Key, count: Array, capacity: int) -> tuple[Array, Array]:
        """Where observation number `count` goes, and whether it is kept."""
        drawn = jax.random.randint(key, (), 0, jnp.maximum(count, 1) + 1)
        slot = jnp.where(count < capacity, count, drawn)
        return jnp.minimum(slot, capacity - 1), slot < capacity


class History(NamedTuple):
    """What was seen, stored once for all members."""

    features: Array
    outcomes: Array
    chosen: Array | None
    seen: Array
