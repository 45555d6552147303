"""The usual size of every feature, so that units do not matter."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..config import as_array
from .features import LARGEST

LAST = 1024  # outcomes after which the scale stays as it is
MOST = LARGEST / 10  # times its usual size is all that a value can count
FAR = 5.0  # standard deviations from its mean are all that a centred value can count


def frozen(outcomes: int) -> int:
    """How many outcomes the scale in force after `outcomes` was taken from: 1, 2, 4, ..., LAST."""
    return 1 << (min(outcomes, LAST).bit_length() - 1) if outcomes else 0


class Scale(NamedTuple):
    """The size of every feature (d,), and where `centred` what is taken away from it first.

    Not centred, a size is the root mean square of the values that are not zero: a linear model
    stays the same linear model in other units, zero stays zero, and an indicator (0 or 1) is left
    exactly as it is. Centred, features are standardised: their mean is taken away and the size is
    the standard deviation, so that neither unit nor origin matters; with the sign of the first
    value that is not near the mean, so that neither does the direction. A value that is missing
    (NaN) counts as the mean, and so does a feature that has not varied yet.

    Evidence and scale agree at all times: the scale is taken from the first 1, 2, 4, ..., 1024
    outcomes when there are so many, all outcomes so far are then learned anew in the new units
    (see `Mind.sync`), and in between it does not change. Only a feature that counted as zero in
    every outcome so far, of size 0, takes the size of its first other value: no evidence involves
    it. The scale is thus a function of the learned outcomes in their order, like all of the state.
    """

    size: Array
    mean: Array | None = None

    @classmethod
    def init(cls, width: int, centred: bool = False) -> "Scale":
        none = np.zeros(width)
        return cls(as_array(none), as_array(none) if centred else None)

    @classmethod
    def of(cls, rows: np.ndarray, centred: bool = False) -> "Scale":
        """That of the features (n, d) of n outcomes."""
        rows = rows.astype(np.float64)
        if not centred:
            squares = np.square(rows).sum(axis=0)
            size = np.sqrt(squares / np.maximum((rows != 0).sum(axis=0), 1))
            return cls(jnp.asarray(size, float))
        there = ~np.isnan(rows)
        count = np.maximum(there.sum(axis=0), 1)
        mean = np.where(there, rows, 0.0).sum(axis=0) / count
        away = np.where(there, rows - mean, 0.0)
        size = np.sqrt(np.square(away).sum(axis=0) / count)
        size = np.where(size > 1e-6 * np.abs(mean), size, 0.0)  # below that it is rounding
        first = (np.abs(away) > 0.1 * size).argmax(axis=0)[None]
        size = np.copysign(size, np.take_along_axis(away, first, axis=0)[0])
        return cls(jnp.asarray(size, float), jnp.asarray(mean, float))

    def see(self, features: Array) -> "Scale":
        """Before one action's features (d,) are learned from: those first seen get their size."""
        if self.mean is None:
            return Scale(jnp.where(self.size > 0, self.size, jnp.abs(features)))
        away = features - self.mean
        new = jnp.where(jnp.abs(away) > 1e-6 * jnp.abs(self.mean), away, 0.0)  # not for NaN either
        return Scale(jnp.where(self.size != 0, self.size, new), self.mean)

    def agrees(self, other: "Scale") -> bool:
        """Whether what was learned in these units holds in the other's as well."""
        ours, theirs = np.asarray(self.size), np.asarray(other.size)
        same = ours == theirs
        if self.mean is not None and other.mean is not None:
            same &= np.asarray(self.mean) == np.asarray(other.mean)
        return bool(np.all(same | (ours == 0)))

    def apply(self, features: Array) -> Array:
        """Features (..., d) in units of their usual size; one never seen is left as it is.

        Beyond `MOST` times its usual size a value counts as that, lest its square overflow; a
        centred one beyond `FAR`, lest one stray value outweigh all others.
        """
        size = jnp.where(self.size != 0, self.size, 1.0)
        if self.mean is None:
            return jnp.clip(features / size, -MOST, MOST)
        away = jnp.clip((features - self.mean) / size, -FAR, FAR)
        return jnp.where((self.size != 0) & ~jnp.isnan(away), away, 0.0)
