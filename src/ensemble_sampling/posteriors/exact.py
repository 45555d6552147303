"""The exact posterior of a conjugate learner (Kalman filtering)."""

from typing import Any

import equinox as eqx
from jax import Array

from .. import checks
from ..core import ConjugateLearner, Key, Model, fact
from .base import LearnerPosterior


class Exact(LearnerPosterior):
    """N(mu_t, Sigma_t): the mean learns unperturbed outcomes, and draws spread around it."""

    learner: ConjugateLearner
    label = "Thompson sampling"

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "center", "predict", "observe")
        if not hasattr(self.learner, "draw"):
            raise TypeError(
                f"{type(self.learner).__name__} has no exact posterior; "
                "use Ensemble(learner, members), which works for any learner"
            )

    def sample(self, key: Key, belief: Any) -> Model:
        shared, mean = belief
        return eqx.Partial(self.learner.predict, shared, self.learner.draw(key, shared, mean))

    def mean_and_std(self, belief: Any, features: Array) -> Any:
        return fact(self.learner, "mean_and_std")(belief, features)
