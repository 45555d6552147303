"""A posterior that is sure of one model: what greedy rules act on."""

from typing import Any

import equinox as eqx
from jax import Array

from .. import checks
from ..core import Key, Learner, Model
from .base import LearnerPosterior


class Point(LearnerPosterior):
    """All mass on the learner's best model."""

    learner: Learner
    label = "greedy"

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "center", "predict", "observe")

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self.learner.predict, *belief)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        shared, model = belief
        return self.learner.predict(shared, model, features)[None]
