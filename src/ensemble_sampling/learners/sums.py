"""Sums that do not drift, and truths that do: what linear models are made of."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from .. import checks


class Sum(NamedTuple):
    """A running sum with the part its last rounding lost (Kahan).

    After n updates a plain float32 sum is off by about sqrt(n) roundings, more than the
    posterior's own width on long runs; with the lost part kept it is as good as float64's input.
    """

    value: Array
    lost: Array

    @classmethod
    def of(cls, value: Array) -> "Sum":
        return cls(value, jnp.zeros_like(value))

    def add(self, increment: Array) -> "Sum":
        """In one row, where a CPU computes several numbers at a time."""
        before, shape = self.value.reshape(-1), self.value.shape
        increment = increment.reshape(-1) + self.lost.reshape(-1)
        value = before + increment
        return Sum(value.reshape(shape), (increment - (value - before)).reshape(shape))

    def add_at(self, i: Array, increment: Array | float) -> "Sum":
        """`increment` added to entry i; the others are not touched."""
        one = Sum(self.value[i], self.lost[i]).add(jnp.asarray(increment))
        return Sum(self.value.at[i].set(one.value), self.lost.at[i].set(one.lost))


def wander(theta: Array, mean: Any, forgetting: Any, xi: Array | float = 0.0) -> Array:
    """How far a truth at `theta` moves until the next observation, if it forgets.

    theta' = mu_0 + sqrt(g) (theta - mu_0) + sqrt(1 - g) xi with xi ~ N(0, Sigma_0): it wanders,
    and its stationary distribution is the prior. The posterior's covariance goes from Sigma to
    g Sigma + (1 - g) Sigma_0, towards the prior's and never beyond, and members with a xi of
    their own stay draws from the posterior: shrunken spread is regained in full. A posterior mean
    has no xi. At g = 1 nothing moves, not even by rounding.
    """
    return (jnp.sqrt(forgetting) - 1) * (theta - mean) + jnp.sqrt(1 - forgetting) * xi


def check_forgetting(value: Any) -> Any:
    return value if value is None else checks.scalar("forgetting", value, above=0.0, high=1.0)
