"""Rules for acting on a posterior: Thompson sampling, epsilon-greedy, uniform."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from . import checks
from .core import Action, Key, Learner, Posterior
from .posteriors.ensemble import Ensemble, Gaussian, Perturbation
from .posteriors.point import Point


def _best(values: Array, available: Array | None) -> Array:
    """Which actions are best; NaN is worse than anything, an unavailable action never best."""
    available = checks.available(available, values.shape[-1])
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    if available is None:
        return values == values.max(axis=-1, keepdims=True)
    values = jnp.where(available, values, -jnp.inf)
    return (values == values.max(axis=-1, keepdims=True)) & available


def greedy(key: Key, values: Array, available: Array | None = None) -> Array:
    """The index of the largest value, ties broken uniformly at random.

    Random priorities come from one draw mixed with the index (murmur3's finaliser), since a
    random number per action would cost as much as the rest of a period.
    """
    best = _best(values, available)
    mixed = jax.random.bits(key, ()) + jnp.arange(best.shape[-1], dtype=jnp.uint32) * jnp.uint32(
        0x9E3779B9
    )
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    mixed = mixed ^ (mixed >> 16)
    return jnp.argmax(jnp.where(best, mixed | 1, 0)).astype(jnp.int32)


def shares(values: Array, available: Array | None = None) -> Array:
    """How likely a greedy choice is to fall on each action (..., K); ties share equally."""
    best = _best(values, available).astype(values.dtype)
    return best / best.sum(axis=-1, keepdims=True)


class ThompsonSampling(eqx.Module):
    """Draw a plausible model from the posterior and act greedily under it.

    `probabilities` is exact for a posterior of finitely many models and otherwise the share of
    `draws` sampled models that choose each action.
    """

    posterior: Posterior
    draws: int = eqx.field(static=True, default=1000)

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.size("draws", self.draws)

    @property
    def label(self) -> str:
        return getattr(self.posterior, "label", repr(self.posterior))

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        model_key, tie_key = jax.random.split(key)
        return greedy(tie_key, self.posterior.sample(model_key, state)(features), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        return self.posterior.update(key, state, action, checks.outcome(outcome))

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        key = jax.random.key(0) if key is None else key
        values = self.posterior.values(key, state, features, self.draws)
        return shares(values, available).mean(axis=0)

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        count = getattr(self.posterior, "diverged", None)
        return 0 if count is None else count(state)


def EnsembleSampling(
    learner: Learner,
    members: int,
    perturbation: Perturbation | None = None,
    inflation: float = 1.0,
) -> ThompsonSampling:
    """Ensemble sampling (Algorithm 1): Thompson sampling over an `Ensemble` of the learner."""
    return ThompsonSampling(Ensemble(learner, members, perturbation or Gaussian(), inflation))


def Greedy(learner: Learner) -> ThompsonSampling:
    """Always the best action under one best model: Thompson sampling over a `Point`."""
    return ThompsonSampling(Point(learner))


class Schedule(Protocol):
    """The share of random actions after t observations."""

    def __call__(self, t: Array) -> Array: ...


class Constant(eqx.Module):
    """The same epsilon for ever."""

    epsilon: float

    def __check_init__(self) -> None:
        checks.scalar("epsilon", self.epsilon, low=0.0, high=1.0)

    @property
    def label(self) -> str:
        return f"ε = {float(self.epsilon):g}"

    def __call__(self, t: Array) -> Array:
        return jnp.asarray(self.epsilon, float)


class Annealed(eqx.Module):
    """epsilon = k / (k + t) after t observations."""

    k: float

    def __check_init__(self) -> None:
        checks.positive("k", self.k)

    @property
    def label(self) -> str:
        return f"ε = {float(self.k):g}/({float(self.k):g}+t)"

    def __call__(self, t: Array) -> Array:
        return self.k / (self.k + t)


class EpsilonGreedy(eqx.Module):
    """Act greedily under one best model, but uniformly at random a share epsilon of the time."""

    posterior: Point
    epsilon: Constant | Annealed

    def __init__(self, learner: Learner, epsilon: float | Constant | Annealed):
        self.posterior = Point(learner)
        self.epsilon = epsilon if isinstance(epsilon, Constant | Annealed) else Constant(epsilon)

    @property
    def label(self) -> str:
        return self.epsilon.label

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key)), jnp.zeros((), jnp.int32)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        belief, t = state
        model_key, coin_key, tie_key = jax.random.split(key, 3)
        values = self.posterior.sample(model_key, belief)(features)
        explore = jax.random.uniform(coin_key) < self.epsilon(t)
        return greedy(tie_key, jnp.where(explore, 0.0, values), available)  # exploring: all tie

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        belief, t = state
        return self.posterior.update(key, belief, action, checks.outcome(outcome)), t + 1

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        belief, t = state
        key = jax.random.key(0) if key is None else key
        values = self.posterior.values(key, belief, features, 1)[0]
        epsilon = self.epsilon(t)
        uniform = shares(jnp.zeros_like(values), available)
        return (1 - epsilon) * shares(values, available) + epsilon * uniform

    def diverged(self, state: Any) -> Array:
        """How often the model had to be put back to its start."""
        return self.posterior.diverged(state[0])


class Uniform(eqx.Module):
    """Every action equally likely; learns nothing. The yardstick."""

    @property
    def label(self) -> str:
        return "uniform"

    def init(self, key: Key) -> Any:
        checks.key(key)
        return ()

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        return greedy(key, jnp.zeros(features.shape[0]), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.outcome(outcome)
        return state

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return shares(jnp.zeros(features.shape[0]), available)
