"""Posteriors over the models of one learner: the exact one, and a point at the best model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, ConjugateLearner, Key, Learner, Model, Noise, Wrapper, broken, fact


class LearnerPosterior(Wrapper):
    """Learns one best model; plausible ones are as far from it as its subclass says.

    Its belief is (shared, model), as the learner's. A subclass whose belief holds more writes
    `init`, `update` and `diverged` itself, as `Laplace` does.
    """

    learner: Any
    wraps = "learner"
    __repr__ = short

    def init(self, key: Key) -> Any:
        return self.learner.center(key)

    def sample(self, key: Key, belief: Any) -> Model:
        raise NotImplementedError

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        shared, model = belief
        return self.learner.observe(key, shared, model, action, outcome, Noise())

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        return jax.vmap(lambda k: self.sample(k, belief)(features))(jax.random.split(key, draws))

    def diverged(self, belief: Any) -> Array:
        """How often the model was lost: put back to its start, or no longer finite."""
        shared, model = belief
        return jnp.maximum(fact(self.learner, "diverged")(model), broken(shared))


class Exact(LearnerPosterior):
    """N(mu_t, Sigma_t) of a conjugate learner (Kalman filtering): the mean learns unperturbed
    outcomes, and draws spread around it."""

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


class Point(LearnerPosterior):
    """All mass on the learner's best model, which greedy rules act on."""

    learner: Learner
    label = "greedy"

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "center", "predict", "observe")

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self.learner.predict, *belief)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        shared, model = belief
        return self.learner.predict(shared, model, features)[None]
