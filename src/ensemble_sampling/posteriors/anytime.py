"""An ensemble that grows with the logarithm of time, for a horizon that nobody knows."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Action, Key, Learner, Model
from .base import LearnerPosterior
from .ensemble import Ensemble, Gaussian, Perturbation


class Anytime(LearnerPosterior):
    """`Ensemble` of which first + rate log2(1 + t) members are sampled from after t outcomes.

    Of the order of log T members suffice for T periods in linear (Janz et al., 2024), generalised
    linear and neural bandits (Sun et al., 2025, who double the horizon until it is long enough).
    Whoever does not know T can let members join as time goes on. One that joins late must have
    learned what was seen before, each outcome with a perturbation of its own. All `most` members
    therefore learn from the first outcome on, which is what replaying the history to the newcomer
    would lead to, needs no history, and keeps shapes static: time and memory are those of
    `Ensemble(learner, most)`, and what grows is who is asked.

    most: how many there can be; first: how many there are before the first outcome.
    """

    learner: Learner
    most: int = eqx.field(static=True, default=64)
    first: int = eqx.field(static=True, default=4)
    rate: float = 4.0
    perturbation: Perturbation = Gaussian()
    inflation: float = 1.0

    def __check_init__(self) -> None:
        checks.size("most", self.most)
        checks.size("first", self.first)
        if self.first > self.most:
            raise ValueError(f"first must be at most {self.most}, `most`, got {self.first}")
        checks.scalar("rate", self.rate, low=0.0)
        _ = self.ensemble  # which checks the rest

    @property
    def ensemble(self) -> Ensemble:
        return Ensemble(self.learner, self.most, self.perturbation, self.inflation)

    @property
    def label(self) -> str:
        return f"{self.first} to {self.most} models"

    def members(self, t: Array) -> Array:
        """How many there are to sample from after t outcomes."""
        count = jnp.asarray(t, jnp.uint32) + 1
        # The whole part by bits: a compiled logarithm of a power of two may fall short of it.
        whole = 31 - jax.lax.clz(count).astype(jnp.int32)
        power = jnp.left_shift(jnp.uint32(1), whole.astype(jnp.uint32))
        part = jnp.log2(count.astype(float) / power.astype(float))
        grown = self.first + self.rate * (whole + part)
        return jnp.minimum(grown, self.most).astype(jnp.int32)

    def init(self, key: Key) -> Any:
        return self.ensemble.init(key), jnp.zeros((), jnp.int32)

    def sample(self, key: Key, belief: Any) -> Model:
        models, t = belief
        return self.ensemble.model(models, jax.random.randint(key, (), 0, self.members(t)))

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        models, t = belief
        return self.ensemble.update(key, models, action, outcome), t + 1

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        """Every member there is as often as the others among `draws`, to one time more or less,
        which `weights` make up for."""
        models, t = belief
        each = self.ensemble.values(key, models, features, draws)
        return each[self._rows(t, draws)]

    def _rows(self, t: Array, draws: int) -> Array:
        """Whose the values are."""
        if draws < self.most:
            raise ValueError(
                f"{self.most} models cannot all be among {draws} draws: give the agent "
                f"draws={self.most} or more, as in ThompsonSampling(posterior, draws=...)"
            )
        return jnp.arange(draws) * self.members(t) // draws

    def weights(self, belief: Any, draws: int) -> Array:
        """How likely each of the values is to be that of the sample: members are equally likely."""
        t = belief[1]
        rows = self._rows(t, draws)
        times = jnp.bincount(rows, length=self.most)
        return 1.0 / (self.members(t) * times[rows])

    def diverged(self, belief: Any) -> Array:
        """How often members were lost, those that have not joined yet included."""
        return self.ensemble.diverged(belief[0])
