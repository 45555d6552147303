"""The usual size of every feature, so that units do not matter."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from .features import LARGEST

LAST = 1024  # outcomes after which the scale stays as it is
MOST = LARGEST / 10  # times its usual size is all that a value can count


def frozen(outcomes: int) -> int:
    """How many outcomes the scale in force after `outcomes` was taken from: 1, 2, 4, ..., LAST."""
    return 1 << (min(outcomes, LAST).bit_length() - 1) if outcomes else 0


class Scale(NamedTuple):
    """The size of every feature (d,): the root mean square of its values that are not zero.

    Features are divided by it and never shifted, so a linear model stays the same linear model in
    other units; zero stays zero, and an indicator (0 or 1) is left exactly as it is.

    Evidence and scale agree at all times: the scale is taken from the first 1, 2, 4, ..., 1024
    outcomes when there are so many, all outcomes so far are then learned anew in the new units
    (see `Bandit._sync`), and in between it does not change. Only a feature that was zero in every
    outcome so far, of size 0, takes the size of its first other value: no evidence involves it.
    The scale is thus a function of the learned outcomes in their order, like all of the state.
    """

    size: Array

    @classmethod
    def init(cls, width: int) -> "Scale":
        return cls(jnp.zeros(width))

    @classmethod
    def of(cls, rows: np.ndarray) -> "Scale":
        """That of the features (n, d) of n outcomes."""
        squares = np.square(rows, dtype=np.float64).sum(axis=0)
        return cls(jnp.asarray(np.sqrt(squares / np.maximum((rows != 0).sum(axis=0), 1)), float))

    def see(self, features: Array) -> "Scale":
        """Before one action's features (d,) are learned from: those first seen get their size."""
        return Scale(jnp.where(self.size > 0, self.size, jnp.abs(features)))

    def agrees(self, other: "Scale") -> bool:
        """Whether what was learned in these units holds in the other's as well."""
        ours, theirs = np.asarray(self.size), np.asarray(other.size)
        return bool(np.all((ours == theirs) | (ours == 0)))

    def apply(self, features: Array) -> Array:
        """Features (..., d) in units of their usual size; one never seen is left as it is.

        Beyond `MOST` times its usual size a value counts as that, lest its square overflow.
        """
        return jnp.clip(features / jnp.where(self.size > 0, self.size, 1.0), -MOST, MOST)
