"""One unknown chance for every action: clicks, with their exact posterior."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise
from .conjugate import Sum


class Counts(NamedTuple):
    """What speaks for an outcome of 1 and for one of 0, of every arm: its chance is their share."""

    ones: Sum
    zeros: Sum

    @property
    def chances(self) -> Array:
        ones, zeros = (part.value + part.lost for part in self)
        return ones / (ones + zeros)


class BetaArms(eqx.Module):
    """One unknown chance per arm, Beta(ones, zeros), for outcomes of 0 or 1, updated by index.

    The best model counts outcomes. A plausible one has a gamma draw of each count, whose share is
    the Beta draw. A member of an ensemble makes its draws as it goes: it begins with those of the
    prior and counts every outcome Exp(1) times (`Exponential`), and since gamma draws add up to
    gamma draws, members are exact draws from the posterior whatever their number.

    ones, zeros: how many outcomes of either kind the prior is worth, at least 0.1 each.
    """

    arms: int = eqx.field(static=True)
    ones: float = 1.0
    zeros: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        for name in ("ones", "zeros"):
            # Of less, gamma draws are too small for floats.
            checks.scalar(name, getattr(self, name), low=0.1, high=checks.LARGEST)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[tuple[()], Counts]:
        if noise is not None and noise.shift is not None:
            raise ValueError(
                "BetaArms learns clicks, to which nothing can be added: give the ensemble weights, "
                "as in Ensemble(BetaArms(3), 30, Exponential()), or take Exact(BetaArms(3))"
            )
        shared, counts = self.center(key)
        return shared, self.draw(key, shared, counts)

    def center(self, key: Key) -> tuple[tuple[()], Counts]:
        ones, zeros = (jnp.full(self.arms, part, float) for part in (self.ones, self.zeros))
        return (), Counts(Sum.of(ones), Sum.of(zeros))

    def predict(self, shared: Any, member: Counts, features: Array) -> Array:
        if features.shape[0] != self.arms:
            raise ValueError(f"BetaArms has {self.arms} arms, but {features.shape[0]} are on offer")
        return member.chances

    def check_outcome(self, outcome: Any) -> None:
        if np.shape(outcome) != ():
            raise ValueError(f"BetaArms learns a single number, got shape {np.shape(outcome)}")
        if checks.known(outcome) and not 0 <= outcome <= 1:
            raise ValueError(f"BetaArms learns outcomes between 0 and 1, got {outcome}")

    def observe(
        self, key: Key, shared: Any, member: Counts, action: Action, outcome: Array, noise: Noise
    ) -> tuple[tuple[()], Counts]:
        self.check_outcome(outcome)
        i = action.index
        checks.index(i, self.arms)
        weight = 1.0 if noise.weight is None else noise.weight
        ones = member.ones.add_at(i, weight * outcome)
        return (), Counts(ones, member.zeros.add_at(i, weight * (1 - outcome)))

    def draw(self, key: Key, shared: Any, member: Counts) -> Counts:
        keys = jax.random.split(key)
        return Counts(
            *(Sum.of(jax.random.gamma(k, part.value)) for k, part in zip(keys, member, strict=True))
        )

    def mean_and_std(self, belief: tuple[Any, Counts], features: Array) -> tuple[Array, Array]:
        shared, member = belief
        mean = self.predict(shared, member, features)
        count = member.ones.value + member.zeros.value
        return mean, jnp.sqrt(mean * (1 - mean) / (count + 1))
