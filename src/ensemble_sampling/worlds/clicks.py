"""Clicks whose probability is logistic in the features of an action."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..config import LATER, short
from ..core import Action, Key, Round
from .network import FixedWorld, in_cube


class LogisticBandit(eqx.Module):
    """Clicks: the outcome is 1 with probability 1 / (1 + exp(-(bias + theta'a))), else 0.

    With `fresh` the actions are drawn anew in every period.
    """

    dim: int = eqx.field(static=True)
    arms: int = eqx.field(static=True)
    prior_std: float = 1.0
    bias: float = 0.0
    fresh: bool = eqx.field(static=True, default=False, metadata=LATER)
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("dim", self.dim)
        checks.size("arms", self.arms)
        checks.positive("prior_std", self.prior_std)
        checks.scalar("bias", self.bias)
        checks.flag("fresh", self.fresh)

    def init(self, key: Key) -> FixedWorld | Array:
        """The actions and their chances, or theta where the actions change."""
        theta_key, actions_key = jax.random.split(checks.key(key))
        theta = self.prior_std * jax.random.normal(theta_key, (self.dim,))
        return theta if self.fresh else self._played(actions_key, theta)

    def _played(self, key: Key, theta: Array) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        chances = jax.nn.sigmoid(self.bias + actions @ theta)
        return FixedWorld(actions, chances, chances)

    def offer(self, key: Key, world: Any) -> Round:
        now = self._played(key, world) if self.fresh else world
        return Round(now.actions, now.means, None, now if self.fresh else None)

    def outcome(self, key: Key, world: FixedWorld, action: Action) -> Array:
        return jax.random.bernoulli(key, world.means[action.index]).astype(world.means.dtype)
