"""One unknown mean for every action, whatever its outcomes are like."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise
from .conjugate import Sum


class Pool(NamedTuple):
    """All outcomes of all arms: how many, their mean, and what is usual above and below it.

    high, low: the averages of outcomes above and below the mean at the time, each counted by its
        distance to it (`above` and `below` in all): of clicks 1 and 0, of normal outcomes 1.25
        standard deviations off, of rare revenue more than what is usually paid
    """

    count: Array
    mean: Array
    high: Array
    above: Array
    low: Array
    below: Array

    @classmethod
    def empty(cls) -> "Pool":
        return cls(*(jnp.zeros(()) for _ in cls._fields))

    def add(self, outcome: Array) -> "Pool":
        outcome = jnp.asarray(outcome, float)
        off = outcome - self.mean

        def drawn(end: Array, total: Array, off: Array) -> tuple[Array, Array]:
            total = total + off
            end = end + off / jnp.where(total > 0, total, 1.0) * (outcome - end)
            return jnp.where(self.count > 0, end, outcome), total

        known = self.count > 0
        high, above = drawn(self.high, self.above, jnp.where(known & (off > 0), off, 0.0))
        low, below = drawn(self.low, self.below, jnp.where(known & (off < 0), -off, 0.0))
        return Pool(self.count + 1, self.mean + off / (self.count + 1), high, above, low, below)


class Evidence(NamedTuple):
    """What all members share: how often each arm was pulled, its mean outcome, and all outcomes."""

    pulls: Sum
    mean: Sum
    pool: Pool


class Weights(NamedTuple):
    """How a member weighs the high outcome and the low one of the prior, and those of an arm on
    average, and by how much their weighted mean is off the plain one."""

    high: Array
    low: Array
    each: Array
    away: Array


class BootstrapArms(eqx.Module):
    """One unknown mean per arm, of outcomes of any distribution, updated by index.

    A member weighs every outcome by its own Exp(1) draw (`Exponential`), and values an arm by the
    weighted mean of its outcomes and of two that it never had, a high and a low one (see `Pool`),
    each of which counts half as much. For clicks that makes members exact draws from the posterior
    of Jeffreys' prior, Beta(1/2, 1/2); where outcomes are rare or skewed, or vary more in one arm
    than in another, members spread accordingly. Nothing has to be told.
    """

    arms: int = eqx.field(static=True)
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Evidence, Weights]:
        if noise is not None and noise.shift is not None:
            raise ValueError(
                "BootstrapArms weighs outcomes and adds nothing to them: give the ensemble weights "
                "as well, as in Ensemble(BootstrapArms(3), 30, Exponential())"
            )
        shared, member = self.center(key)
        high, low = jax.random.normal(key, (2, self.arms)) ** 2 / 2  # a gamma draw of 1/2 each
        return shared, member._replace(high=high, low=low)

    def center(self, key: Key) -> tuple[Evidence, Weights]:
        zero, half = jnp.zeros(self.arms), jnp.full(self.arms, 0.5, float)
        return Evidence(Sum.of(zero), Sum.of(zero), Pool.empty()), Weights(half, half, zero, zero)

    def predict(self, shared: Evidence, member: Weights, features: Array) -> Array:
        if features.shape[0] != self.arms:
            raise ValueError(
                f"BootstrapArms has {self.arms} arms, but {features.shape[0]} are on offer"
            )
        pool, (high, low, each, away) = shared.pool, member
        weight = each * shared.pulls.value
        off = shared.mean.value - pool.mean + shared.mean.lost + away
        total = weight * off + high * (pool.high - pool.mean) + low * (pool.low - pool.mean)
        return pool.mean + total / jnp.maximum(weight + high + low, 1e-30)

    def observe(
        self,
        key: Key,
        shared: Evidence,
        member: Weights,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[Evidence, Weights]:
        if jnp.shape(outcome) != ():
            raise ValueError(f"BootstrapArms learns a single number, got {jnp.shape(outcome)}")
        i = action.index
        checks.index(i, self.arms)
        weight = 1.0 if noise.weight is None else noise.weight
        pulls = shared.pulls.add_at(i, 1.0)
        share = 1 / pulls.value[i]
        surprise = outcome - shared.mean.value[i] - shared.mean.lost[i]
        mean = shared.mean.add_at(i, share * surprise)
        each, away = member.each[i], member.away[i]
        each = each + share * (weight - each)
        # Of the newest outcome in a weighted mean and in a plain one.
        mine = share * weight / jnp.maximum(each, 1e-30)
        away = away + mine * (surprise - away) - share * surprise
        member = member._replace(each=member.each.at[i].set(each), away=member.away.at[i].set(away))
        return Evidence(pulls, mean, shared.pool.add(outcome)), member
