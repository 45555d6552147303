"""Rewards that a network, or a single neuron, makes of the features of an action."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..config import LATER, short
from ..core import Action, Key, Round
from ..networks import MLP, GaussianMLP
from ..rewards import Reward, checked


class FixedWorld(NamedTuple):
    """Actions that stay, what each brings before noise, and the mean reward of that."""

    actions: Array
    outcomes: Array
    means: Array


def in_cube(key: Key, arms: int, dim: int) -> Array:
    """Coordinates uniform in [-1, 1], but for the last, which is 1 (Section 5.2)."""
    actions = jax.random.uniform(key, (arms, dim), minval=-1.0, maxval=1.0)
    return actions.at[:, -1].set(1.0)


class NetworkBandit(eqx.Module):
    """Mean outcomes W2 max(0, W1 a), all weights N(0, prior_std^2) (Section 5.2).

    With `outcomes` the network has that many outputs and `reward` scores the noisy vector
    (Example 2). `hidden=None` is the single neuron max(0, theta'a). With `fresh` the actions are
    drawn anew in every period.
    """

    dim: int = eqx.field(static=True)
    arms: int = eqx.field(static=True)
    noise_std: float
    truth: GaussianMLP
    outcomes: int | None = eqx.field(static=True)
    reward: Reward | None
    fresh: bool = eqx.field(static=True, default=False, metadata=LATER)

    def __init__(
        self,
        dim: int = 100,
        arms: int = 100,
        hidden: int | None = 50,
        noise_std: float = 10.0,
        prior_std: float = 1.0,
        outcomes: int | None = None,
        reward: Any = None,
        fresh: bool = False,
    ):
        self.dim = checks.size("dim", dim)
        self.arms = checks.size("arms", arms)
        self.noise_std = checks.positive("noise_std", noise_std)
        widths = () if hidden is None else (checks.size("hidden", hidden),)
        self.outcomes = outcomes
        self.reward = checked(reward, outcomes)
        self.fresh = checks.flag("fresh", fresh)
        self.truth = GaussianMLP(dim, widths, outcomes, prior_std, slope=0.0, squash=hidden is None)

    @property
    def hidden(self) -> int | None:
        return self.truth.hidden[0] if self.truth.hidden else None

    @property
    def prior_std(self) -> float | None:
        return self.truth.prior_std

    def __repr__(self) -> str:
        return short(self, NeuronBandit if self.hidden is None is self.outcomes else None)

    def init(self, key: Key) -> FixedWorld | MLP:
        """The actions and what they bring, or the network where the actions change."""
        truth_key, actions_key = jax.random.split(checks.key(key))
        truth = self.truth(truth_key)
        return truth if self.fresh else self._played(actions_key, truth)

    def _played(self, key: Key, truth: MLP) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        outcomes = jax.vmap(truth)(actions)
        means = outcomes if self.reward is None else self.reward.expected(outcomes, self.noise_std)
        return FixedWorld(actions, outcomes, means)

    def offer(self, key: Key, world: Any) -> Round:
        now = self._played(key, world) if self.fresh else world
        return Round(now.actions, now.means, None, now if self.fresh else None)

    def outcome(self, key: Key, world: FixedWorld, action: Action) -> Array:
        mean = world.outcomes[action.index]
        return mean + self.noise_std * jax.random.normal(key, mean.shape)


def NeuronBandit(
    dim: int = 100,
    arms: int = 100,
    noise_std: float = 10.0,
    prior_std: float = 10**0.5,
    fresh: bool = False,
) -> NetworkBandit:
    """The single neuron max(0, theta'a), theta ~ N(0, prior_std^2 I) (Section 5.2)."""
    return NetworkBandit(dim, arms, None, noise_std, prior_std, fresh=fresh)
