"""Independent arms: with fixed means, with means that wander, and with clicks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Round


class _NormalArms(eqx.Module):
    """Arms with normal means and noise; the world is their means. Its fields are a subclass's."""

    __repr__ = short

    def __check_init__(self: Any) -> None:
        checks.size("arms", self.arms)
        checks.positive("noise_std", self.noise_std)
        checks.scalar("prior_mean", self.prior_mean)
        checks.positive("prior_std", self.prior_std)

    def init(self: Any, key: Key) -> Array:
        return self.prior_mean + self.prior_std * jax.random.normal(checks.key(key), (self.arms,))

    def offer(self: Any, key: Key, world: Array) -> Round:
        return Round(jnp.eye(self.arms), world)

    def outcome(self: Any, key: Key, world: Array, action: Action) -> Array:
        return world[action.index] + self.noise_std * jax.random.normal(key)


class GaussianArms(_NormalArms):
    """Independent arms (Section 5.1): means N(prior_mean, prior_std^2), Gaussian noise."""

    arms: int = eqx.field(static=True)
    noise_std: float = 1.0
    prior_mean: float = 0.0
    prior_std: float = 1.0


class RandomWalkArms(_NormalArms):
    """Arms whose means wander: N(prior_mean, prior_std^2) at first, and with every period each
    moves by its own N(0, step_std^2). Regret is to the arm that is best at the time."""

    arms: int = eqx.field(static=True)
    step_std: float = 0.1
    noise_std: float = 1.0
    prior_mean: float = 0.0
    prior_std: float = 1.0

    def __check_init__(self) -> None:
        checks.scalar("step_std", self.step_std, low=0.0, high=checks.LARGEST)

    def advance(self, key: Key, world: Array, period: Array) -> Array:
        return world + self.step_std * jax.random.normal(key, (self.arms,))


class BernoulliArms(eqx.Module):
    """Arms with clicks, an A/B/C test: each pays 1 with a chance of its own, Beta(ones, zeros), and
    0 otherwise."""

    arms: int = eqx.field(static=True)
    ones: float = 1.0
    zeros: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        checks.positive("ones", self.ones)
        checks.positive("zeros", self.zeros)

    def init(self, key: Key) -> Array:
        return jax.random.beta(checks.key(key), self.ones, self.zeros, (self.arms,))

    def offer(self, key: Key, world: Array) -> Round:
        return Round(jnp.eye(self.arms), world)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        return jax.random.bernoulli(key, world[action.index]).astype(world.dtype)
