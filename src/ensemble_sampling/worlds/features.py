"""Worlds whose actions have features: rewards that are linear, those of a network, and clicks."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import LATER, short
from ..core import Action, Key, Round
from ..networks import MLP, GaussianMLP
from ..rewards import Reward, as_reward


def on_sphere(key: Key, arms: int, dim: int) -> Array:
    """Actions uniform on the unit sphere."""
    actions = jax.random.normal(key, (arms, dim))
    return actions / jnp.linalg.norm(actions, axis=1, keepdims=True)


def in_cube(key: Key, arms: int, dim: int) -> Array:
    """Coordinates uniform in [-1, 1], but for the last, which is 1 (Section 5.2)."""
    actions = jax.random.uniform(key, (arms, dim), minval=-1.0, maxval=1.0)
    return actions.at[:, -1].set(1.0)


class _FeatureBandit(eqx.Module):
    """Draws a truth, and actions with it or, where they are `fresh`, anew in every period.

    The world is what a subclass's `_played(key, truth)` gives, which has `actions` and their
    `means`, or, where actions are fresh, its `_truth(key)`; an offer then carries what was played.
    """

    __repr__ = short

    def init(self: Any, key: Key) -> Any:
        truth_key, actions_key = jax.random.split(checks.key(key))
        truth = self._truth(truth_key)
        return truth if self.fresh else self._played(actions_key, truth)

    def offer(self: Any, key: Key, world: Any) -> Round:
        now = self._played(key, world) if self.fresh else world
        return Round(now.actions, now.means, None, now if self.fresh else None)


class LinearWorld(NamedTuple):
    theta: Array
    actions: Array
    means: Array


class LinearBandit(_FeatureBandit):
    """Rewards theta'a plus noise, theta ~ N(prior_mean, prior_cov) (Example 1).

    Actions are given as an array (arms, dim), or drawn with each world by a function
    (key, arms, dim) -> actions; with `fresh` they are drawn anew in every period.
    """

    dim: int = eqx.field(static=True)
    arms: int = eqx.field(static=True)
    noise_std: float
    prior_mean: Any
    prior_root: Any
    actions: Any
    draw_actions: Any = eqx.field(static=True)
    fresh: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int | None = None,
        arms: int | None = None,
        noise_std: float = 1.0,
        prior_mean: Any = 0.0,
        prior_std: float | None = None,
        prior_cov: Any = None,
        actions: Any = on_sphere,
        fresh: bool = False,
    ):
        self.fresh = checks.flag("fresh", fresh)
        if callable(actions):
            if dim is None or arms is None:
                raise ValueError("give dim and arms, or the actions themselves as an array")
            self.actions, self.draw_actions = None, actions
        else:
            self.actions = checks.array("actions", actions, (None, None))
            self.draw_actions = on_sphere
            if fresh:
                raise ValueError("fresh actions are drawn: give a function, not an array")
            shape = self.actions.shape
            for name, given, have in (("arms", arms, shape[0]), ("dim", dim, shape[1])):
                if given not in (None, have):
                    raise ValueError(f"{name} is {given}, but actions have shape {shape}")
            arms, dim = shape
        self.dim = checks.size("dim", dim)
        self.arms = checks.size("arms", arms)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_mean, self.prior_root = checks.gaussian_prior(
            self.dim, prior_mean, prior_std, prior_cov
        )

    def _truth(self, key: Key) -> Array:
        root = jnp.asarray(self.prior_root, float)
        return self.prior_mean + root @ jax.random.normal(key, (self.dim,))

    def _played(self, key: Key, truth: Array) -> LinearWorld:
        if self.actions is not None:
            actions = jnp.asarray(self.actions, float)
        else:
            actions = self.draw_actions(key, self.arms, self.dim)
        if actions.shape != (self.arms, self.dim):
            raise ValueError(
                f"the action function returned shape {actions.shape}, "
                f"expected {(self.arms, self.dim)}"
            )
        return LinearWorld(truth, actions, actions @ truth)

    def outcome(self, key: Key, world: LinearWorld, action: Action) -> Array:
        return action.features @ world.theta + self.noise_std * jax.random.normal(key)


class FixedWorld(NamedTuple):
    """Actions that stay, what each brings before noise, and the mean reward of that."""

    actions: Array
    outcomes: Array
    means: Array


class NetworkBandit(_FeatureBandit):
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
        self.reward = as_reward(reward, outcomes)
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

    def _truth(self, key: Key) -> MLP:
        return self.truth(key)

    def _played(self, key: Key, truth: MLP) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        outcomes = jax.vmap(truth)(actions)
        means = outcomes if self.reward is None else self.reward.expected(outcomes, self.noise_std)
        return FixedWorld(actions, outcomes, means)

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


class LogisticBandit(_FeatureBandit):
    """Clicks: the outcome is 1 with probability 1 / (1 + exp(-(bias + theta'a))), else 0.

    With `fresh` the actions are drawn anew in every period.
    """

    dim: int = eqx.field(static=True)
    arms: int = eqx.field(static=True)
    prior_std: float = 1.0
    bias: float = 0.0
    fresh: bool = eqx.field(static=True, default=False, metadata=LATER)

    def __check_init__(self) -> None:
        checks.size("dim", self.dim)
        checks.size("arms", self.arms)
        checks.positive("prior_std", self.prior_std)
        checks.scalar("bias", self.bias)
        checks.flag("fresh", self.fresh)

    def _truth(self, key: Key) -> Array:
        return self.prior_std * jax.random.normal(key, (self.dim,))

    def _played(self, key: Key, truth: Array) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        chances = jax.nn.sigmoid(self.bias + actions @ truth)
        return FixedWorld(actions, chances, chances)

    def outcome(self, key: Key, world: FixedWorld, action: Action) -> Array:
        return jax.random.bernoulli(key, world.means[action.index]).astype(world.means.dtype)
