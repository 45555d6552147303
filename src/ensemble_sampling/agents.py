"""Rules for acting on a posterior: Thompson sampling, epsilon-greedy, uniform."""

from collections.abc import Callable
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from . import checks
from .config import short
from .core import Action, Agent, Key, Learner, Posterior, fact, taken
from .posteriors.ensemble import Ensemble, Gaussian, Perturbation
from .posteriors.point import Point


def _best(values: Array, available: Array | None) -> Array:
    """Which actions are best; NaN is worse than anything, an unavailable action never best."""
    available = checks.available(available, values.shape[-1])
    return _largest(jnp.where(jnp.isnan(values), -jnp.inf, values), available)


def _largest(values: Array, available: Array | None, settled: bool = False) -> Array:
    """Which of those available are the largest along the last axis; none where one is NaN.

    settled: whether values are sure not to be computed twice, see `in_one_step`.
    """
    values = values if available is None else jnp.where(available, values, -jnp.inf)
    top = halved(jnp.maximum, values) if settled else values
    best = values == top.max(axis=-1, keepdims=True)
    best = best if available is None else best & available
    if available is None or settled or checks.known(values):
        return best

    # Compiled, values may be computed for the maximum and again to compare with it, and where the
    # two round differently none is best. That is rare, and an argmax takes tens of times as long.
    # A loop's condition reads what the loop was given; that of a branch may be computed anew.
    def lost(loop: tuple[Array, Array, Array]) -> Array:
        best, _, again = loop
        return again & ~best.any(axis=-1).all()

    def mended(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, values, again = loop
        top = jnp.arange(values.shape[-1]) == jnp.argmax(values, axis=-1, keepdims=True)
        none = ~best.any(axis=-1, keepdims=True) & ~jnp.isnan(values).any(axis=-1, keepdims=True)
        return best | (top & available & none), values, ~again

    return jax.lax.while_loop(lost, mended, (best, values, jnp.array(True)))[0]


def halved(fold: Callable[[Array, Array], Array], values: Array) -> Array:
    """Fewer values along the last axis that `fold` to the same: a CPU folds many at a time where
    they are in two arrays, and one by one where they are in one."""
    while (size := values.shape[-1]) > 16 and size % 2 == 0:
        values = fold(values[..., : size // 2], values[..., size // 2 :])
    return values


def first(true: Array) -> Array:
    """The index of the first that is true, 0 if none is; many times faster than an argmax."""
    count = true.shape[-1]
    places = jnp.where(true, jnp.arange(count, dtype=jnp.int32), count)
    index = halved(jnp.minimum, places).min(axis=-1)
    return jnp.where(index < count, index, 0)


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
    mixed = jnp.where(best, (mixed ^ (mixed >> 16)) | 1, 0)
    return first(mixed == mixed.max())


def shares(values: Array, available: Array | None = None, settled: bool = False) -> Array:
    """How likely a greedy choice is to fall on each action (..., K); ties share equally.

    A model that gives NaN for an action on offer knows nothing: its shares are NaN, to be noticed.
    """
    available = checks.available(available, values.shape[-1])
    if available is None:  # lest rounding leave none, see `_largest`
        available = jnp.ones(values.shape[-1], bool)
    best = _largest(values, available, settled).astype(values.dtype)
    count = (halved(jnp.add, best) if settled else best).sum(axis=-1, keepdims=True)
    return jnp.where(count > 0, best / count, jnp.nan)  # of a model that gives NaN none is best


def votes(
    posterior: Posterior,
    belief: Any,
    values: Array,
    draws: int,
    available: Array | None = None,
    settled: bool = False,
) -> Array:
    """How likely each action (K,) is to be best under one of the posterior's models.

    values: of the models, as `posterior.values` gave them for so many `draws`
    """
    each, weights = shares(values, available, settled), fact(posterior, "weights")(belief, draws)
    return each.mean(axis=0) if weights is None else weights @ each


class ThompsonSampling(eqx.Module):
    """Draw a plausible model from the posterior and act greedily under it.

    `probabilities` is exact for a posterior of finitely many models and otherwise the share of
    `draws` sampled models that choose each action.
    """

    posterior: Posterior
    draws: int = eqx.field(static=True, default=1000)
    arms = taken("posterior", "arms")
    context = taken("posterior", "context")
    dim = taken("posterior", "dim")
    columns = taken("posterior", "columns")
    reward = taken("posterior", "reward")
    host = taken("posterior", "host")
    label = taken("posterior", "label")
    check_outcome = taken("posterior", "check_outcome")

    def __repr__(self) -> str:
        """As it would be written: the short form of those that have one."""
        if self.draws == 1000 and type(self.posterior) in (Ensemble, Point):
            maker = EnsembleSampling if isinstance(self.posterior, Ensemble) else Greedy
            return short(self.posterior, maker)
        return short(self)

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.size("draws", self.draws)

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        model_key, tie_key = jax.random.split(checks.key(key))
        return greedy(tie_key, self.posterior.sample(model_key, state)(features), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        return self.posterior.update(key, state, checks.action(action), checks.outcome(outcome))

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        return self.chances(state, self.values(key, state, features), available, False)

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What each of the models thinks the actions are worth (S, K)."""
        return self.posterior.values(key, state, features, self.draws)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the models think of them."""
        return votes(self.posterior, state, values, self.draws, available, settled)

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        return fact(self.posterior, "diverged")(state)


def EnsembleSampling(
    learner: Learner,
    members: int,
    perturbation: Perturbation | None = None,
    inflation: float = 1.0,
) -> ThompsonSampling:
    """Ensemble sampling (Algorithm 1): Thompson sampling over an `Ensemble` of the learner."""
    perturbation = Gaussian() if perturbation is None else perturbation
    return ThompsonSampling(Ensemble(learner, members, perturbation, inflation))


def Greedy(learner: Learner) -> ThompsonSampling:
    """Always the best action under one best model: Thompson sampling over a `Point`."""
    return ThompsonSampling(Point(learner))


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


class EpsilonGreedy(eqx.Module):
    """Act greedily under one best model, but uniformly at random a share epsilon of the time.

    epsilon: a number, or a schedule: `Annealed(50)`, or any function of the number of observations
        so far, such as `lambda t: 1 / jnp.sqrt(1 + t)`.
    """

    posterior: Point
    epsilon: Any
    arms = taken("posterior", "arms")
    context = taken("posterior", "context")
    dim = taken("posterior", "dim")
    columns = taken("posterior", "columns")
    reward = taken("posterior", "reward")
    check_outcome = taken("posterior", "check_outcome")

    def __init__(self, learner: Learner, epsilon: float | Schedule):
        self.posterior = Point(learner)
        self.epsilon = _schedule(epsilon)

    label = taken("epsilon", "label")
    __repr__ = short

    @property
    def learner(self) -> Learner:
        return self.posterior.learner

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key)), jnp.zeros((), jnp.int32)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        belief, t = state
        features = checks.offer(features)
        model_key, coin_key, tie_key = jax.random.split(checks.key(key), 3)
        values = self.posterior.sample(model_key, belief)(features)
        explore = jax.random.uniform(coin_key) < self.epsilon(t)
        return greedy(tie_key, jnp.where(explore, 0.0, values), available)  # exploring: all tie

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        belief, t = state
        checks.key(key)
        outcome = checks.outcome(outcome)
        return self.posterior.update(key, belief, checks.action(action), outcome), t + 1

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

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What the one model thinks the actions are worth (1, K)."""
        return self.posterior.values(key, state[0], features, 1)

    def diverged(self, state: Any) -> Array:
        """How often the model had to be put back to its start."""
        return self.posterior.diverged(state[0])


class Uniform(eqx.Module):
    """Every action equally likely; learns nothing. The yardstick."""

    __repr__ = short

    @property
    def label(self) -> str:
        return "uniform"

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


def as_agent(thing: Any) -> Agent:
    """An agent as it is; a posterior as Thompson sampling over it."""
    if isinstance(thing, type):
        raise TypeError(f"agent must be an object: write {thing.__name__}(...), not the class")
    if hasattr(thing, "act"):
        return checks.part("agent", thing, "init", "act", "update", "probabilities")
    if hasattr(thing, "sample"):
        return ThompsonSampling(thing)
    raise TypeError(
        "expected an agent (with act) or a posterior (with sample): wrap a learner as in "
        f"EnsembleSampling(learner, members=30); got {thing!r}"
    )
