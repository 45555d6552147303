"""What conjugate learners are made of: sums that do not drift, truths that do, learned noise."""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..core import Key, Noise


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


class Member(NamedTuple):
    """A member of a linear model, and what a draw from its posterior is.

    away: how far its parameters are from the posterior mean, in units of the noise
    luck: the standard normal that decides its own noise level, see `OutcomeScale.std_at`; None
        where `noise_std` is given, and where members weigh outcomes, which makes it differ already
    """

    away: Any
    luck: Array | None = None


def draw_luck(key: Key, shape: tuple[int, ...], noise: Noise | None = None) -> Array | None:
    """The luck of a member whose perturbations are like `noise`."""
    if noise is not None and noise.weight is not None:
        return None
    return jax.random.normal(jax.random.fold_in(key, 1), shape)


QUANTILES = [NormalDist().inv_cdf((n + 0.5) / 64) for n in range(64)]  # lucks of equal chance


class OutcomeScale(NamedTuple):
    """The scale of outcomes, learned from them, in whatever unit and with whatever offset.

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
    def unknown(cls, shape: tuple[int, ...]) -> "OutcomeScale":
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

    def std_at(self, luck: Any) -> Array:
        """The noise level that a standard normal draws from its posterior; None: the best estimate.

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
    def rms_std(self) -> Array:
        """The root mean square of all draws: values of a model vary by so many of its widths."""
        every = jnp.reshape(jnp.asarray(QUANTILES, float), (-1, *(1 for _ in self.square.shape)))
        return jnp.sqrt((self.std_at(every) ** 2).mean(axis=0))

    def add(
        self, outcome: Array, surprise: Array, s: Array, weight: Array | float = 1.0
    ) -> "OutcomeScale":
        """With an outcome that surprised by so much, where its variance is s times the noise's."""
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
        return OutcomeScale(
            count,
            center,
            self.square + weight * step * (outcome - center),
            self.error + known * surprise**2 / s,
            self.evidence + jnp.where(self.square > 0, known, 0.0) * likelihood,
        )

    def fade(self, share: Array | float) -> "OutcomeScale":
        """The same from fewer outcomes: what was seen long ago counts less."""
        return OutcomeScale(*(share * part for part in self))._replace(center=self.center)
