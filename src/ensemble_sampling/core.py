"""The protocols everything else is written against: environment, learner, posterior, agent.

All are pure functions of `(key, state, ...)` on frozen configurations; every state is a pytree.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

Key = Array
"""A key made by `jax.random.key`; every random draw is a function of one."""

Model = Callable[[Array], Array]
"""A plausible world: action features (K, d) -> expected rewards (K,)."""


class Action(NamedTuple):
    """The chosen action: its position in the offer, and the features that describe it."""

    index: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    features: Array


class Round(NamedTuple):
    """What is on offer in one period. `means` is for scoring and never shown to an agent."""

    features: Array
    means: Array
    available: Array | None = None


class Noise(NamedTuple):
    """One member's perturbation of one observation; `None` means untouched and costs nothing.

    `shift` is added to the outcome and is in units of the learner's noise standard deviation;
    `weight` says how many times the observation counts; `drift` is what moves the member's model
    where the truth moves, standard normal, for learners with a `drift_shape`.
    """

    shift: Array | None = None
    weight: Array | None = None
    drift: Array | None = None


class Environment(Protocol):
    """A world to decide in, drawn from a prior."""

    def init(self, key: Key) -> Any:
        """Draw the truth."""
        ...

    def offer(self, key: Key, world: Any) -> Round:
        """The actions on offer in a period."""
        ...

    def outcome(self, key: Key, world: Any, action: Action) -> Array:
        """What is observed after the action."""
        ...


class Learner(Protocol):
    """One model that learns one observation at a time; `Ensemble` maps it over members.

    `shared` is what all members have in common (a covariance, the inputs seen) and is stored
    once; it must not depend on `member` or `noise`, except that a learner whose `shared` depends on
    `noise.weight` says so by `weights_shared = True`.
    """

    weights_shared: bool

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Any, Any]:
        """(shared, member): a draw from the prior, its distance to the mean times `spread`.

        `noise` shows which kinds of perturbation will come, for learners that keep them.
        """
        ...

    def center(self, key: Key) -> tuple[Any, Any]:
        """(shared, member) at which a single best model starts."""
        ...

    def predict(self, shared: Any, member: Any, features: Array) -> Array:
        """Expected rewards (K,) of the actions."""
        ...

    def observe(
        self, key: Key, shared: Any, member: Any, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Any, Any]:
        """Learn from one outcome, perturbed by `noise`."""
        ...


class ConjugateLearner(Learner, Protocol):
    """A learner whose posterior is known in closed form around the best model."""

    def draw(self, key: Key, shared: Any, member: Any) -> Any:
        """A model from the posterior whose mean is `member`."""
        ...


class Posterior(Protocol):
    """Something plausible models can be sampled from."""

    def init(self, key: Key) -> Any: ...

    def sample(self, key: Key, belief: Any) -> Model:
        """Draw a plausible model."""
        ...

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any: ...

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        """Values (S, K) of S equally likely models: all of them if finite, else `draws` samples."""
        ...


class Agent(Protocol):
    """A rule for choosing, and what it has learned so far."""

    @property
    def label(self) -> str:
        """A short name made from the settings, for legends and tables."""
        ...

    def init(self, key: Key) -> Any: ...

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        """The index of the chosen row of `features`."""
        ...

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any: ...

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        """How likely each action is to be chosen now (K,)."""
        ...
