"""Greedy under one best model, but for a share of random actions."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Key, Learner, fact
from ..posteriors.point import Point
from .base import PointAgent
from .greedy import greedy, shares


class Schedule(Protocol):
    """The share of random actions after t observations; it may have a `label`."""

    def __call__(self, t: Array) -> Array | float: ...


class Constant(eqx.Module):
    """The same epsilon for ever."""

    epsilon: float
    __repr__ = short

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
    __repr__ = short

    def __check_init__(self) -> None:
        checks.positive("k", self.k)

    @property
    def label(self) -> str:
        return f"ε = {float(self.k):g}/({float(self.k):g}+t)"

    def __call__(self, t: Array) -> Array:
        return self.k / (self.k + t)


class _Followed(eqx.Module):
    """A user's plain function of t, made part of the configuration's structure."""

    function: Any = eqx.field(static=True)

    @property
    def label(self) -> str:
        named = getattr(self.function, "__name__", type(self.function).__name__)
        return getattr(self.function, "label", f"ε = {named.strip('<>')}(t)")

    def __call__(self, t: Array) -> Array | float:
        return self.function(t)


def _schedule(epsilon: Any) -> Any:
    """A number as a schedule; anybody's schedule, once it was seen to give shares."""
    if isinstance(epsilon, Constant | Annealed):
        return epsilon
    if isinstance(epsilon, type):
        raise TypeError(f"epsilon must be a number or a schedule: write {epsilon.__name__}(...)")
    if not callable(epsilon):
        return Constant(epsilon)
    for t in (0, 1, 1000):
        share = epsilon(jnp.asarray(t, jnp.int32))
        checks.scalar(f"the schedule's epsilon after {t} observations", share, low=0.0, high=1.0)
    try:
        jax.eval_shape(epsilon, jax.ShapeDtypeStruct((), jnp.int32))
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            "a schedule is compiled, and t not known then: write jnp.where(t < 100, 0.5, 0.1), "
            "not `if`, and jax.numpy in place of numpy and math"
        ) from error
    return epsilon if isinstance(epsilon, eqx.Module) else _Followed(epsilon)


class EpsilonGreedy(PointAgent):
    """Act greedily under one best model, but uniformly at random a share epsilon of the time.

    epsilon: a number, or a schedule: `Annealed(50)`, or any function of the number of observations
        so far, such as `lambda t: 1 / jnp.sqrt(1 + t)`.
    """

    epsilon: Any

    def __init__(self, learner: Learner, epsilon: float | Schedule):
        self.posterior = Point(learner)
        self.epsilon = _schedule(epsilon)

    @property
    def label(self) -> str:
        return fact(self.epsilon, "label")

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        belief, t = state
        features = checks.offer(features)
        model_key, coin_key, tie_key = jax.random.split(checks.key(key), 3)
        values = self.posterior.sample(model_key, belief)(features)
        explore = jax.random.uniform(coin_key) < self.epsilon(t)
        return greedy(tie_key, jnp.where(explore, 0.0, values), available)  # exploring: all tie

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        return self.chances(state, self.values(key, state, features), available, False)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the one model thinks of them."""
        epsilon = self.epsilon(state[1])
        uniform = shares(jnp.zeros_like(values[0]), available, settled)
        return (1 - epsilon) * shares(values[0], available, settled) + epsilon * uniform
