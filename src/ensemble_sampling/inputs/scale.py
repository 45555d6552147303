"""The usual size of every feature and of outcomes, so that units do not matter."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..config import as_array
from .descriptions import LARGEST

LAST = 1024  # outcomes after which the scale stays as it is
LARGEST_RATIO = LARGEST / 10  # times its usual size is all that a value can count
FAR = 5.0  # standard deviations from its mean are all that a centred value can count
FEWEST = 8  # outcomes by which to tell what is usual
RARE = 256  # of so many outcomes one may be a stray, and there must be so many to disown it


Fields = Mapping[str, tuple[float, float]]
"""Mean and size of the numbers that descriptions give, by name; as of a centred `Scale`."""


def fields_of(said: Sequence[Mapping[str, float]]) -> Fields:
    """Mean and size of every number in some descriptions."""
    names = sorted({name for each in said for name in each})
    if not names:
        return {}
    rows = np.array([[each.get(name, np.nan) for name in names] for each in said])
    scale = Scale.of(rows, centred=True)
    pairs = zip(np.asarray(scale.mean), np.asarray(scale.size), strict=True)
    return {
        name: (float(mean), float(size)) for name, (mean, size) in zip(names, pairs, strict=True)
    }


def with_fields(fields: Fields, said: Mapping[str, float]) -> Fields:
    """Before a description is learned from: a number that never varied gets its size."""
    new = {}
    for name, value in said.items():
        mean, size = fields.get(name, (0.0, 0.0))
        if not size and abs(value - mean) > 1e-6 * abs(mean):
            new[name] = mean, value - mean
    return {**fields, **new} if new else fields


def frozen(outcomes: int) -> int:
    """How many outcomes the scale in force after `outcomes` was taken from: 1, 2, 4, ..., LAST."""
    return 1 << (min(outcomes, LAST).bit_length() - 1) if outcomes else 0


class Usual(NamedTuple):
    """Where outcomes usually are: one that strays must not decide what all others are worth.

    origin: what they are counted from, so that no offset costs any of the precision: their median
    reach: how far from it all but a few of them are; 0 while all but those are the same, as where
        clicks are rare, or while there are too few to tell
    strays: how many were farther than so many times that (`Default.stray`), and counted as less

    As `Scale` it is taken from the first 1, 2, 4, ..., 1024 outcomes. A stray counts as one at the
    border: if it is a prize, that is enough to try for it again. One that has not come again when
    there are as many outcomes since as before it counts for nothing. And every new one doubles the
    reach: what comes again and again is no stray.
    """

    origin: float = 0.0
    reach: float = 0.0
    strays: int = 0

    @classmethod
    def of(cls, outcomes: np.ndarray) -> "Usual":
        origin = float(np.median(outcomes))
        few = 1 + len(outcomes) // RARE
        known = len(outcomes) >= FEWEST
        return cls(origin, float(np.sort(np.abs(outcomes - origin))[-1 - few]) if known else 0.0)

    def counted(self, outcome: float, stray: float, nth: int, of: int) -> "tuple[float, Usual]":
        """The nth outcome, where all this was taken from the first `of`: as it is to be learned,
        and what is usual after it."""
        away, most = outcome - self.origin, stray * self.reach
        if not 0 < most < abs(away):
            return away, self
        after = self._replace(strays=self.strays + 1)
        if 2 * nth <= of >= RARE:
            return 0.0, after
        return math.copysign(most, away), after._replace(reach=2 * self.reach)

    @classmethod
    def after(cls, outcomes: np.ndarray) -> "Usual":
        """What is usual to a bandit of so many outcomes, before those it has strayed by."""
        some = outcomes[: frozen(len(outcomes))]
        return cls.of(some) if len(some) else cls()

    def all_counted(
        self, outcomes: np.ndarray, stray: float, before: int, of: int
    ) -> "tuple[np.ndarray, Usual]":
        """`counted` of many in their order, after so many others."""
        found, usual = np.empty(len(outcomes)), self
        for at, outcome in enumerate(outcomes.tolist()):
            found[at], usual = usual.counted(outcome, stray, before + at + 1, of)
        return found, usual

    def agrees(self, other: "Usual", outcomes: np.ndarray, stray: float) -> bool:
        """Whether these outcomes, as learned by this one, are the same by the other."""
        most = stray * other.reach
        none = most == 0 or bool(np.abs(outcomes - other.origin).max() <= most)
        return self.origin == other.origin and self.strays == 0 and none


def out_of_range(size: Any, mean: Any, far: Any) -> np.ndarray | None:
    """In how many outcomes each feature was (see `Scale`); 0 for one that is 0 or 1, which is far
    from its mean where it is seldom 1, and as it should be."""
    if far is None:
        return None
    size, mean, far = (np.asarray(part, np.float64) for part in (size, mean, far))
    indicator = np.isclose(size**2 + mean**2, mean, rtol=1e-3)  # as its square, itself
    return np.where(indicator, 0.0, far)


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

    far: in how many outcomes a centred value was beyond `FAR`, and counted as that
    """

    size: Array
    mean: Array | None = None
    far: Array | None = None

    @classmethod
    def init(cls, width: int, centred: bool = False) -> "Scale":
        none = np.zeros(width)
        return cls(as_array(none), *((as_array(none), as_array(none)) if centred else ()))

    @classmethod
    def of(cls, rows: np.ndarray, centred: bool = False) -> "Scale":
        """The scale of the features (n, d) of n outcomes."""
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
        return cls(jnp.asarray(size, float), jnp.asarray(mean, float), as_array(0 * mean))

    def see(self, features: Array) -> "Scale":
        """Before one action's features (d,) are learned from: those first seen get their size."""
        if self.mean is None or self.far is None:
            return Scale(jnp.where(self.size > 0, self.size, jnp.abs(features)))
        away = features - self.mean
        new = jnp.where(jnp.abs(away) > 1e-6 * jnp.abs(self.mean), away, 0.0)  # not for NaN either
        size = jnp.where(self.size != 0, self.size, new)
        return Scale(size, self.mean, self.far + (jnp.abs(away) > FAR * jnp.abs(size)))

    def agrees(self, other: "Scale") -> bool:
        """Whether what was learned in these units holds in the other's as well."""
        ours, theirs = np.asarray(self.size), np.asarray(other.size)
        same = ours == theirs
        if self.mean is not None and other.mean is not None:
            same &= np.asarray(self.mean) == np.asarray(other.mean)
        return bool(np.all(same | (ours == 0)))

    def apply(self, features: Array) -> Array:
        """Features (..., d) in units of their usual size; one never seen is left as it is.

        Beyond `LARGEST_RATIO` times its usual size a value counts as that, lest its square
        overflow; a centred one beyond `FAR`, lest one stray value outweigh all others.
        """
        size = jnp.where(self.size != 0, self.size, 1.0)
        if self.mean is None:
            return jnp.clip(features / size, -LARGEST_RATIO, LARGEST_RATIO)
        away = jnp.clip((features - self.mean) / size, -FAR, FAR)
        return jnp.where((self.size != 0) & ~jnp.isnan(away), away, 0.0)
