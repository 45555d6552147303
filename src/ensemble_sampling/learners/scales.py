"""Scales that are learned: `Seen` for linear models, exactly, and `Scales` for networks."""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..core import Key, Noise

ALIKE = [NormalDist().inv_cdf((n + 0.5) / 64) for n in range(64)]  # lucks of equal chance


class Member(NamedTuple):
    """A member of a linear model, and what a draw from its posterior is.

    away: how far its parameters are from the posterior mean, in units of the noise
    luck: standard normal: how its own noise compares to the best known one, see `Seen.drawn`; None
        where the noise was told, and where it differs by the weights of outcomes already
    """

    away: Any
    luck: Array | None = None


def luck(key: Key, shape: tuple[int, ...], noise: Noise | None = None) -> Array | None:
    """That of a member whose perturbations are like `noise`."""
    if noise is not None and noise.weight is not None:
        return None
    return jax.random.normal(jax.random.fold_in(key, 1), shape)


class Seen(NamedTuple):
    """What the scale of outcomes is learned from, in whatever unit and with whatever offset.

    outcomes, center, square: how many outcomes, their mean and the sum of their squared deviations
    error: the sum of squared surprises, each over the factor s by which the model, in units of the
        noise, expected it to vary. For a linear Gaussian model that is what the conjugate posterior
        of the noise's variance is made of (normal-inverse-gamma), so error / outcomes estimates it.
    evidence: the log-likelihood of every outcome given those before it, from where two of these
        differ: before that the unit of outcomes is not known

    Entries of a vector outcome have a scale each, and evidence of their own.
    """

    outcomes: Array
    center: Array
    square: Array
    error: Array
    evidence: Array

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> "Seen":
        zero = jnp.zeros(shape)
        return cls(jnp.zeros(()), zero, zero, zero, zero)

    @property
    def noise_std(self) -> Array:
        """Of the noise, as estimated with two outcomes' worth of faith in their whole variance.

        1 while no two outcomes differ: every model then expects the same of every action, and any
        unit will do for how much members differ.
        """
        spread = self.square / jnp.maximum(self.outcomes - 1, 1)
        variance = (self.error + 2 * spread) / (self.outcomes + 1)
        return jnp.where(spread > 0, jnp.sqrt(variance), 1.0)

    def drawn(self, luck: Any) -> Array:
        """A noise standard deviation from its posterior, by a standard normal; None: the best one.

        The variance of n outcomes has n - 1 degrees of freedom, and that over chi-square, whose
        quantiles are Wilson and Hilferty's (1931), is a draw of it: values spread as Student's t.
        With every outcome all members come closer to the best known noise, each from its side. At
        most it is eight times that, where Student's t of two outcomes would have no mean.
        """
        if luck is None:
            return self.noise_std
        part = 2 / (9 * jnp.maximum(self.outcomes - 1, 1))
        return self.noise_std * jnp.maximum(1 - part + luck * jnp.sqrt(part), 0.25) ** -1.5

    @property
    def wide(self) -> Array:
        """The root mean square of all draws: values of a model vary by so many of its widths."""
        every = jnp.reshape(jnp.asarray(ALIKE, float), (-1, *(1 for _ in self.square.shape)))
        return jnp.sqrt((self.drawn(every) ** 2).mean(axis=0))

    def add(self, outcome: Array, surprise: Array, s: Array, weight: Array | float = 1.0) -> "Seen":
        """An outcome that surprised by so much, where its variance is s times the noise's."""
        count = self.outcomes + weight
        step = outcome - self.center
        # Share first: the first outcome is then the center exactly, whatever it weighs.
        center = self.center + step * (weight / jnp.maximum(count, 1e-30))
        variance = self.noise_std**2 * s
        # Student's t, for the variance is an estimate: a Gaussian would never forgive the first
        # surprise after a few outcomes that happened to be close.
        freedom = self.outcomes + 2
        odd = (freedom + 1) * jnp.log1p(surprise**2 / (freedom * variance))
        likelihood = -0.5 * (odd + jnp.log(variance))
        known = jnp.where(self.outcomes > 0, weight, 0.0)  # the first outcome only sets the offset
        return Seen(
            count,
            center,
            self.square + weight * step * (outcome - center),
            self.error + known * surprise**2 / s,
            self.evidence + jnp.where(self.square > 0, known, 0.0) * likelihood,
        )

    def fade(self, share: Array | float) -> "Seen":
        """The same from fewer outcomes: what was seen long ago counts less."""
        center = self.center
        return Seen(*(share * part for part in self))._replace(center=center)


class Moments(NamedTuple):
    """Where numbers lie and how far apart, to tell them without units."""

    center: Array
    variance: Array

    @property
    def spread(self) -> Array:
        """1 while no two numbers differ."""
        return jnp.where(self.variance > 0, jnp.sqrt(self.variance), 1.0)

    def add(self, number: Array, count: Array) -> "Moments":
        """With one more number, the last of `count`; older ones fade while `count` stands still."""
        step = number - self.center
        center = self.center + step / count
        return Moments(center, self.variance + (step * (number - center) - self.variance) / count)


class Scales(NamedTuple):
    """The scales of what was seen, learned from it."""

    features: Moments
    outcomes: Moments

    @classmethod
    def unknown(cls, dim: int, outcome: tuple[int, ...]) -> "Scales":
        return cls(*(Moments(jnp.zeros(shape), jnp.zeros(shape)) for shape in ((dim,), outcome)))

    def add(self, features: Array, outcome: Array, count: Array) -> "Scales":
        return Scales(self.features.add(features, count), self.outcomes.add(outcome, count))

    def noise_std(self, error: Array, count: Array) -> Array:
        """Of the noise in outcomes, which surprised a model by `error` in the mean square.

        With two outcomes' worth of faith in their whole variance, and between a tenth of their
        spread and all of it: a model that errs more than that errs for other reasons.
        """
        spread = self.outcomes.spread
        learned = jnp.sqrt((count * error + 2 * spread**2) / (count + 2))
        return jnp.clip(learned, spread / 10, spread)
