"""Inverse gap weighting: SquareCB."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Key, Learner
from ..posteriors.point import Point
from .base import PointAgent
from .greedy import shares


def inverse_gap(values: Array, gamma: Array | float, available: Array | None = None) -> Array:
    """Chances (K,) by the gap to the best value (Abe and Long, 1999; Foster and Rakhlin, 2020).

    An action whose value is `gap` below the best gets 1 / (K + gamma gap), the best get what is
    left, in equal parts. K is the number of available actions, and NaN is worse than anything.
    """
    available = checks.available(available, values.shape[-1])
    best = shares(jnp.where(jnp.isnan(values), -jnp.inf, values), available) > 0
    count = values.shape[-1] if available is None else available.sum()
    gap = jnp.where(best, values, -jnp.inf).max() - values
    far = jnp.isnan(gap) | jnp.isinf(gap)
    chances = jnp.where(best | far, 0.0, 1 / (count + gamma * jnp.where(far, 0.0, gap)))
    chances = chances if available is None else jnp.where(available, chances, 0.0)
    rest = jnp.maximum(1 - chances.sum(), 0.0)
    return jnp.where(best, rest / best.sum(), chances)


class SquareRoot(eqx.Module):
    """gamma = scale sqrt(K t) for K actions after t observations.

    Foster and Rakhlin's (2020) order, for a number of periods that is not known; `scale` is in
    units of one over the outcome's.
    """

    scale: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.positive("scale", self.scale)

    @property
    def label(self) -> str:
        scale = "" if self.scale == 1 else f"{float(self.scale):g} "
        return f"γ = {scale}√(K t)"

    def __call__(self, t: Array, arms: Array | int) -> Array:
        return self.scale * jnp.sqrt(arms * t.astype(float))


class SquareCB(PointAgent):
    """Choose by inverse gap weighting under one best model (Foster and Rakhlin, 2020).

    It needs no posterior: what it explores depends on how far actions are from the best one alone.

    gamma: a number, or `SquareRoot(scale)`, by default `SquareRoot()`.
    """

    gamma: float | SquareRoot

    def __init__(self, learner: Learner, gamma: float | SquareRoot | None = None):
        self.posterior = Point(learner)
        if isinstance(gamma, type):
            raise TypeError(f"gamma must be a number or a schedule: write {gamma.__name__}(...)")
        self.gamma = SquareRoot() if gamma is None else gamma
        if not isinstance(self.gamma, SquareRoot):
            checks.scalar("gamma", self.gamma, low=0.0, high=checks.LARGEST)

    @property
    def label(self) -> str:
        gamma = self.gamma
        named = gamma.label if isinstance(gamma, SquareRoot) else f"γ = {float(gamma):g}"
        return f"SquareCB {named}"

    def _chances(self, state: Any, values: Array, available: Array | None) -> Array:
        available = checks.available(available, values.shape[-1])
        arms = values.shape[-1] if available is None else available.sum()
        gamma = self.gamma
        gamma = gamma(state[1], arms) if isinstance(gamma, SquareRoot) else gamma
        return inverse_gap(values, gamma, available)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        values = self.posterior.sample(key, state[0])(features)
        chances = self._chances(state, values, available)
        return jax.random.categorical(checks.key(key), jnp.log(chances)).astype(jnp.int32)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        values = self.values(key, state, features)[0]
        # A model that gives NaN knows nothing: its shares are NaN, to be noticed.
        lost = jnp.isnan(shares(values, available)).any()
        return jnp.where(lost, jnp.nan, self._chances(state, values, available))
