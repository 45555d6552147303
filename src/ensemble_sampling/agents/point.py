"""Rules for acting on one best model: epsilon-greedy, and SquareCB's inverse gap weighting."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Learner, fact
from ..posteriors.exact import Point
from .greedy import greedy, shares
from .thompson import PosteriorAgent


class PointAgent(PosteriorAgent):
    """Chooses by one best model; its state is (belief, number of outcomes)."""

    posterior: Point

    @property
    def learner(self) -> Learner:
        return self.posterior.learner

    def belief(self, state: Any) -> Any:
        return state[0]

    def init(self, key: Key) -> Any:
        return super().init(key), jnp.zeros((), jnp.int32)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        return super().update(key, state, action, outcome), state[1] + 1


class Schedule(Protocol):
    """The share of random actions after t observations; it may have a `label`."""

    def __call__(self, t: Array) -> Array | float: ...


class Constant(eqx.Module):
    """An epsilon that never changes."""

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


def as_schedule(epsilon: Any) -> Any:
    """A number as a schedule; a user's schedule, once it was seen to give shares."""
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
        self.epsilon = as_schedule(epsilon)

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

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the one model thinks of them."""
        epsilon = self.epsilon(state[1])
        uniform = shares(jnp.zeros_like(values[0]), available, settled)
        return (1 - epsilon) * shares(values[0], available, settled) + epsilon * uniform


def inverse_gap(values: Array, gamma: Array | float, available: Array | None = None) -> Array:
    """Chances (K,) by the gap to the best value (Abe and Long, 1999; Foster and Rakhlin, 2020).

    An action whose value is `gap` below the best gets 1 / (K + gamma gap), the best get what is
    left, in equal parts. K is the number of available actions, and NaN is worse than anything.
    """
    available = checks.available(available, values.shape[-1])
    best = shares(jnp.where(jnp.isnan(values), -jnp.inf, values), available) > 0
    count = values.shape[-1] if available is None else available.sum()
    gap = jnp.where(best, values, -jnp.inf).max() - values
    far = jnp.isnan(gap) | jnp.isinf(gap)
    chances = jnp.where(best | far, 0.0, 1 / (count + gamma * jnp.where(far, 0.0, gap)))
    chances = chances if available is None else jnp.where(available, chances, 0.0)
    rest = jnp.maximum(1 - chances.sum(), 0.0)
    return jnp.where(best, rest / best.sum(), chances)


class SquareRoot(eqx.Module):
    """gamma = scale sqrt(K t) for K actions after t observations.

    Foster and Rakhlin's (2020) order, for a number of periods that is not known; `scale` is in
    units of one over the outcome's.
    """

    scale: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.positive("scale", self.scale)

    @property
    def label(self) -> str:
        scale = "" if self.scale == 1 else f"{float(self.scale):g} "
        return f"γ = {scale}√(K t)"

    def __call__(self, t: Array, arms: Array | int) -> Array:
        return self.scale * jnp.sqrt(arms * t.astype(float))


class SquareCB(PointAgent):
    """Choose by inverse gap weighting under one best model (Foster and Rakhlin, 2020).

    It needs no posterior: what it explores depends on how far actions are from the best one alone.

    gamma: a number, or `SquareRoot(scale)`, by default `SquareRoot()`.
    """

    gamma: float | SquareRoot

    def __init__(self, learner: Learner, gamma: float | SquareRoot | None = None):
        self.posterior = Point(learner)
        if isinstance(gamma, type):
            raise TypeError(f"gamma must be a number or a schedule: write {gamma.__name__}(...)")
        self.gamma = SquareRoot() if gamma is None else gamma
        if not isinstance(self.gamma, SquareRoot):
            checks.scalar("gamma", self.gamma, low=0.0, high=checks.LARGEST)

    @property
    def label(self) -> str:
        gamma = self.gamma
        named = gamma.label if isinstance(gamma, SquareRoot) else f"γ = {float(gamma):g}"
        return f"SquareCB {named}"

    def _chances(self, state: Any, values: Array, available: Array | None) -> Array:
        available = checks.available(available, values.shape[-1])
        arms = values.shape[-1] if available is None else available.sum()
        gamma = self.gamma
        gamma = gamma(state[1], arms) if isinstance(gamma, SquareRoot) else gamma
        return inverse_gap(values, gamma, available)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        values = self.posterior.sample(key, state[0])(features)
        chances = self._chances(state, values, available)
        return jax.random.categorical(checks.key(key), jnp.log(chances)).astype(jnp.int32)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen; NaN, to be noticed, of a model that gives NaN."""
        lost = jnp.isnan(shares(values[0], available, settled)).any()
        return jnp.where(lost, jnp.nan, self._chances(state, values[0], available))
