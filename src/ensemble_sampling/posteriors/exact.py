"""The exact posterior of a conjugate learner (Kalman filtering)."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from ..core import Action, ConjugateLearner, Key, Model, Noise


class Exact(eqx.Module):
    """N(mu_t, Sigma_t): the mean learns unperturbed outcomes, and draws spread around it."""

    learner: ConjugateLearner

    def __check_init__(self) -> None:
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
