"""A posterior that is sure of one model: what greedy rules act on."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Learner, Model, Noise, broken, fact, taken


class Point(eqx.Module):
    """All mass on the learner's best model."""

    learner: Learner
    arms = taken("learner", "arms")
    context = taken("learner", "context")
    dim = taken("learner", "dim")
    reward = taken("learner", "reward")
    check_outcome = taken("learner", "check_outcome")
    __repr__ = short

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "center", "predict", "observe")

    @property
    def label(self) -> str:
        return "greedy"

    def init(self, key: Key) -> Any:
        return self.learner.center(key)

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self.learner.predict, *belief)

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        shared, model = belief
        return self.learner.observe(key, shared, model, action, outcome, Noise())

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        shared, model = belief
        return self.learner.predict(shared, model, features)[None]

    def diverged(self, belief: Any) -> Array:
        """How often the model was lost: put back to its start, or no longer finite."""
        shared, model = belief
        return jnp.maximum(fact(self.learner, "diverged")(model), broken(shared))
