"""Thompson sampling with a narrow spread that widens about actions which nothing else explores."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Posterior
from ..primitives import in_one_step
from .thompson import PosteriorAgent


class Widening(PosteriorAgent):
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

    def __check_init__(self) -> None:
        checks.scalar("most", self.most, low=1.0)
        checks.positive("ratio", self.ratio)

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
        return super().chances(state, wide, offered, settled)

    def _widened(self, values: Array, offered: Array) -> Array:
        """Values, spread more about actions that the models differ much about."""
        mean, differ = values.mean(axis=0), values.std(axis=0)
        best = jnp.argmax(jnp.where(offered, mean, -jnp.inf))
        usual = jnp.maximum(self.ratio * differ[best], jnp.finfo(differ.dtype).tiny)
        return mean + jnp.clip(differ / usual, 1.0, self.most) * (values - mean)
