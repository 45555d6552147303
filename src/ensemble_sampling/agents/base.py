"""What agents over a posterior have in common."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Learner, Wrapper, fact
from ..posteriors.point import Point
from .greedy import votes


class PosteriorAgent(Wrapper):
    """Learns by its posterior, whose belief is its state, or the first part of it."""

    posterior: Any
    wraps = "posterior"
    __repr__ = short

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.size("draws", getattr(self, "draws", 1))

    def belief(self, state: Any) -> Any:
        """What the posterior knows."""
        return state

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        action, outcome = checks.action(action), checks.outcome(outcome)
        return self.posterior.update(checks.key(key), self.belief(state), action, outcome)

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What each of the models thinks the actions are worth (S, K)."""
        draws = getattr(self, "draws", 1)  # where the posterior is one model, there are none
        return self.posterior.values(key, self.belief(state), features, draws)

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        return fact(self.posterior, "diverged")(self.belief(state))


class SamplingAgent(PosteriorAgent):
    """Chooses by what many plausible models think: as often as they vote, unless told otherwise."""

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        values_key, choice_key = jax.random.split(checks.key(key))
        chances = self.probabilities(state, features, available, values_key)
        return jax.random.categorical(choice_key, jnp.log(chances)).astype(jnp.int32)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        return self.chances(state, self.values(key, state, features), available, False)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the models think of them."""
        belief = self.belief(state)
        return votes(self.posterior, belief, values, self.draws, available, settled)


class PointAgent(PosteriorAgent):
    """Chooses by one best model; its state is (belief, number of outcomes)."""

    posterior: Point

    @property
    def learner(self) -> Learner:
        return self.posterior.learner

    def belief(self, state: Any) -> Any:
        return state[0]

    def init(self, key: Key) -> Any:
        return super().init(key), jnp.zeros((), jnp.int32)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        return super().update(key, state, action, outcome), state[1] + 1
