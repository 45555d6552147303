"""What a network keeps of what it saw: observations to learn from, and the scales of all."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..core import Action, Key

FARTHEST = 5.0
"""Features are clipped at so many standard deviations: a single one cannot blow up a model."""


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


def put(array: Array, slot: Array, kept: Array, new: Array) -> Array:
    """`array` with `new` in its slot, if it is kept."""
    return array.at[slot].set(jnp.where(kept, new, array[slot]))


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


class History(NamedTuple):
    """What was seen, stored once for all members, and its scales where they are learned."""

    features: Array
    outcomes: Array
    chosen: Array | None
    seen: Array
    scales: Scales | None = None

    @property
    def held(self) -> Array:
        """How many observations there are to learn from."""
        return jnp.minimum(self.seen, len(self.features))

    def inputs(self, features: Array) -> Array:
        """Features as a network sees them: without units, and never far outside what was seen."""
        if self.scales is None:
            return features
        center, spread = self.scales.features.center, self.scales.features.spread
        return jnp.clip((features - center) / spread, -FARTHEST, FARTHEST)

    def add(self, slot: Array, kept: Array, action: Action, outcome: Array) -> "History":
        """With one more observation, in its slot if it is kept."""
        new = History(
            put(self.features, slot, kept, action.features),
            put(self.outcomes, slot, kept, outcome),
            None if self.chosen is None else put(self.chosen, slot, kept, action.index),
            self.seen + 1,
        )
        if self.scales is None:
            return new
        return new._replace(scales=self.scales.add(action.features, outcome, new.held))
