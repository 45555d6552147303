"""Thompson sampling with a narrow spread that widens about actions which nothing else explores."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Posterior, fact, in_one_step, taken
from .greedy import votes


class Widening(eqx.Module):
    """Thompson sampling over models that spread less than the posterior, where that is enough.

    A narrow spread is enough where offers vary: even a greedy choice then learns about every
    direction of the features, and models come to differ about all actions alike. Where the same
    actions are offered again and again it learns about those it chooses alone, and may never find
    out that another one is better. Models then differ about the others far more than about the
    best one. So what they think of an action is spread by up to `most` times around its mean: by
    how much more than `ratio` times as much they differ about it as about the best one.

    most: 1 / inflation for an `Ensemble`, which gives the posterior's own spread
    """

    posterior: Posterior
    most: float
    ratio: float = 3.0
    draws: int = eqx.field(static=True, default=1000)
    arms = taken("posterior", "arms")
    context = taken("posterior", "context")
    dim = taken("posterior", "dim")
    columns = taken("posterior", "columns")
    reward = taken("posterior", "reward")
    label = taken("posterior", "label")
    check_outcome = taken("posterior", "check_outcome")
    __repr__ = short

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.scalar("most", self.most, low=1.0)
        checks.positive("ratio", self.ratio)
        checks.size("draws", self.draws)

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

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
        known = checks.available(available, values.shape[-1])
        offered = jnp.ones(values.shape[-1], bool) if known is None else jnp.asarray(known)
        if settled:
            wide = in_one_step(self._widened, values[0, 0], values, offered)
        else:
            wide = self._widened(values, offered)
        return votes(self.posterior, state, wide, self.draws, offered, settled)

    def _widened(self, values: Array, offered: Array) -> Array:
        """Values, spread more about actions that the models differ much about."""
        mean, differ = values.mean(axis=0), values.std(axis=0)
        best = jnp.argmax(jnp.where(offered, mean, -jnp.inf))
        usual = jnp.maximum(self.ratio * differ[best], jnp.finfo(differ.dtype).tiny)
        return mean + jnp.clip(differ / usual, 1.0, self.most) * (values - mean)

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What each of the models thinks the actions are worth (S, K)."""
        return self.posterior.values(key, state, features, self.draws)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        return self.posterior.update(key, state, checks.action(action), checks.outcome(outcome))

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        return fact(self.posterior, "diverged")(state)
