"""What posteriors over the models of one learner have in common."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..config import short
from ..core import Action, Key, Model, Noise, Wrapper, broken, fact


class LearnerPosterior(Wrapper):
    """Learns one best model; plausible ones are as far from it as its subclass says.

    Its belief is (shared, model), as the learner's.
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
