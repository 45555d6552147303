"""The exact posterior of a conjugate learner (Kalman filtering)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, ConjugateLearner, Key, Model, Noise, broken, fact, taken


class Exact(eqx.Module):
    """N(mu_t, Sigma_t): the mean learns unperturbed outcomes, and draws spread around it."""

    learner: ConjugateLearner
    arms = taken("learner", "arms")
    context = taken("learner", "context")
    dim = taken("learner", "dim")
    reward = taken("learner", "reward")
    check_outcome = taken("learner", "check_outcome")
    mean_and_std = taken("learner", "mean_and_std")
    __repr__ = short

    def __check_init__(self) -> None:
        checks.part("learner", self.learner, "center", "predict", "observe")
        if not hasattr(self.learner, "draw"):
            raise TypeError(
                f"{type(self.learner).__name__} has no exact posterior; "
                "use Ensemble(learner, members), which works for any learner"
            )

    @property
    def label(self) -> str:
        return "Thompson sampling"

    def init(self, key: Key) -> Any:
        return self.learner.center(key)

    def sample(self, key: Key, belief: Any) -> Model:
        shared, mean = belief
        return eqx.Partial(self.learner.predict, shared, self.learner.draw(key, shared, mean))

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        shared, model = belief
        return self.learner.observe(key, shared, model, action, outcome, Noise())

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        return jax.vmap(lambda k: self.sample(k, belief)(features))(jax.random.split(key, draws))

    def diverged(self, belief: Any) -> Array:
        """Whether the posterior was lost: its mean or covariance is no longer finite."""
        shared, mean = belief
        return jnp.maximum(fact(self.learner, "diverged")(mean), broken(shared))
