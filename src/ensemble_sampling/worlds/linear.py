"""Rewards linear in the features of an action."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Round


def on_sphere(key: Key, arms: int, dim: int) -> Array:
    """Actions uniform on the unit sphere."""
    actions = jax.random.normal(key, (arms, dim))
    return actions / jnp.linalg.norm(actions, axis=1, keepdims=True)


class LinearWorld(NamedTuple):
    theta: Array
    actions: Array
    means: Array


class LinearBandit(eqx.Module):
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
    draw_actions: Callable[[Key, int, int], Array] = eqx.field(static=True)
    fresh: bool = eqx.field(static=True)
    __repr__ = short

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
        drawn: Any = actions
        if callable(actions):
            if dim is None or arms is None:
                raise ValueError("give dim and arms, or the actions themselves as an array")
            self.actions, self.draw_actions = None, drawn
        else:
            self.actions = checks.array("actions", actions, (None, None))
            self.draw_actions = on_sphere
            if checks.flag("fresh", fresh):
                raise ValueError("fresh actions are drawn: give a function, not an array")
            for name, given, have in zip(
                ("arms", "dim"), (arms, dim), self.actions.shape, strict=True
            ):
                if given is not None and given != have:
                    raise ValueError(
                        f"{name} is {given}, but actions have shape {self.actions.shape}"
                    )
            arms, dim = self.actions.shape
        self.dim = checks.size("dim", dim)
        self.arms = checks.size("arms", arms)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_mean, self.prior_root = checks.gaussian_prior(
            self.dim, prior_mean, prior_std, prior_cov
        )
        self.fresh = checks.flag("fresh", fresh)

    def init(self, key: Key) -> LinearWorld:
        theta_key, actions_key = jax.random.split(checks.key(key))
        root = jnp.asarray(self.prior_root, float)
        theta = self.prior_mean + root @ jax.random.normal(theta_key, (self.dim,))
        actions = self._actions(actions_key)
        return LinearWorld(theta, actions, actions @ theta)

    def _actions(self, key: Key) -> Array:
        if self.actions is not None:
            return jnp.asarray(self.actions, float)
        actions = self.draw_actions(key, self.arms, self.dim)
        if actions.shape != (self.arms, self.dim):
            raise ValueError(
                f"the action function returned shape {actions.shape}, "
                f"expected {(self.arms, self.dim)}"
            )
        return actions

    def offer(self, key: Key, world: LinearWorld) -> Round:
        if not self.fresh:
            return Round(world.actions, world.means)
        actions = self._actions(key)
        return Round(actions, actions @ world.theta)

    def outcome(self, key: Key, world: LinearWorld, action: Action) -> Array:
        return action.features @ world.theta + self.noise_std * jax.random.normal(key)
