"""A posterior that is sure of one model: what greedy rules act on."""

from typing import Any

import equinox as eqx
from jax import Array

from ..core import Action, Key, Learner, Model, Noise


class Point(eqx.Module):
    """All mass on the learner's best model."""

    learner: Learner

    @property
    def label(self) -> str:
        return "greedy"

    def init(self, key: Key) -> Any:
        return self.learner.center(key)

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self.learner.predict, *belief)

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        return self.learner.observe(key, *belief, action, outcome, Noise())

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        return self.learner.predict(*belief, features)[None]
