"""Every action equally likely."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key
from .greedy import greedy, shares


class Uniform(eqx.Module):
    """Every action equally likely; learns nothing. The yardstick."""

    label = "uniform"
    __repr__ = short

    def init(self, key: Key) -> Any:
        checks.key(key)
        return ()

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        return greedy(checks.key(key), jnp.zeros(checks.offer(features).shape[0]), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        checks.action(action)
        checks.outcome(outcome)
        return state

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return shares(jnp.zeros(checks.offer(features).shape[0]), available)
