"""The protocols everything else is written against: environment, learner, posterior, agent.

All are pure functions of `(key, state, ...)` on frozen configurations; every state is a pytree.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from . import compilation

compilation.enable_cache()  # before anything is compiled

Key = Array
"""A key made by `jax.random.key`; every random draw is a function of one."""

Model = Callable[[Array], Array]
"""A plausible world: action features (K, d) -> expected rewards (K,)."""


class Action(NamedTuple):
    """The chosen action: its position in the offer, and the features that describe it."""

    index: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    """Its position among the actions on offer."""
    features: Array
    """The row (d,) that describes it."""


class Round(NamedTuple):
    """What is on offer in one period. `means` is for scoring and never shown to an agent.

    Nor is `world`: what `outcome` is asked about in this period, where that is not all of the
    world but a row of data, say.
    """

    features: Array
    """A row for each action (K, d)."""
    means: Array
    """The mean rewards (K,)."""
    available: Array | None = None
    """Which of them may be chosen (K,); None: all."""
    world: Any = None
    """What `outcome` is asked about; None: the world itself."""


class Noise(NamedTuple):
    """One member's perturbation of one observation; `None` means untouched and costs nothing.

    `shift` is added to the outcome and is in units of the learner's noise standard deviation;
    `weight` says how many times the observation counts; `drift` is what moves the member's model
    where the truth moves, standard normal, for learners with a `drift_shape`.
    """

    shift: Array | None = None
    weight: Array | None = None
    drift: Array | None = None


class Facts:
    """What a part may say of itself, and what holds where it does not.

    A part need not inherit from this: `fact(part, name)` finds its own word or the default here.
    """

    arms: int | None = None
    """How many actions are on offer in every round; None: any number."""
    dim: int | None = None
    """How many features describe an action; None: any number."""
    context: bool = False
    """Whether a single row of features, their context, may stand for all actions."""
    columns: Sequence[str] | None = None
    """The names of the features, where they are given; None: features are known by position."""
    reward: Any = None
    """The known `Reward` of outcomes that are vectors; None: an outcome is its own reward."""
    host: bool = False
    """Whether it runs in plain Python, which cannot be compiled (agents and posteriors)."""
    separate: bool = False
    """Whether each action has a model of its own, which `renewed` makes anew (learners of
    linear models and of arms, and posteriors of these)."""
    inflation: float = 1.0
    """How many times as far as the posterior models spread (posteriors and agents)."""
    weights_shared: bool = False
    """Whether a learner's `shared` depends on `noise.weight`."""
    drift_shape: tuple[int, ...] | None = None
    """The shape of `noise.drift` for learners whose truth moves; None: it does not move."""

    @property
    def label(self) -> str:
        """A short name made from the settings, for legends and tables."""
        return type(self).__name__

    def diverged(self, state: Any) -> Array | int:
        """How often a model was lost: here 1 where a number of the state is no longer finite."""
        return broken(state)

    def changes(self, state: Any) -> Any:
        """What was noticed of a world that changes, as `posteriors.restarting.Changes` (agents and
        posteriors); None: nothing is looked for."""

    def check_outcome(self, outcome: Any) -> None:
        """Raise an error for an outcome that cannot be learned."""

    def values(self, key: Key, state: Any, features: Array) -> Array | None:
        """Values (S, K) of S equally likely models, those `probabilities` are made of with the
        same key (agents; a posterior's takes the number of draws as well); None: it has none."""

    chances: Callable[[Any, Array, Array | None], Array] | None = None
    """(state, values, available) -> `probabilities` by values that are settled, see `fast.one_step`
    (agents); None: only by features."""

    advance: Callable[[Key, Any, Array], Any] | None = None
    """(key, world, period) -> the world of that period, made from the one before it, for
    environments that change: `init` draws the world of period 0, `advance` is asked for those of 1,
    2, ...; None: the world stays as it was drawn."""

    def weights(self, belief: Any, draws: int) -> Array | None:
        """How likely each of the S models of `values` is (posteriors); None: all equally."""

    def mean_and_std(self, belief: Any, features: Array) -> tuple[Array, Array] | None:
        """Mean and standard deviation (K,) of what plausible models think the actions are worth
        (posteriors, and learners, whose belief is (shared, best model)); None: not known exactly.
        """


FACTS = tuple(name for name in vars(Facts) if not name.startswith("_"))

PASSED_ON = (
    *("arms", "dim", "context", "columns", "reward", "host", "label"),
    *("separate", "inflation", "weights_shared", "drift_shape", "check_outcome"),
)
"""Facts that hold for a part where they hold for the one it wraps. The others are about a state,
and the two have different ones."""


def fact(part: Any, name: str) -> Any:
    """What `part` says of itself under `name`; else, where it is passed on, what the part says that
    its class attribute `wraps` names; else the default of `Facts`."""
    if name not in FACTS:
        raise ValueError(f"there is no fact {name!r}; there are {', '.join(FACTS)}")
    if hasattr(type(part), name) or name in getattr(part, "__dict__", ()):
        return getattr(part, name)
    if name in PASSED_ON and hasattr(type(part), "wraps"):
        return fact(getattr(part, part.wraps), name)
    default = vars(Facts)[name]
    return default.__get__(part) if hasattr(default, "__get__") else default


class Wrapper(eqx.Module):
    """A part around another one, with the facts of that one as attributes of its own.

    Parts of users need not inherit from this: `fact` finds them by `wraps` alone.
    """

    wraps: ClassVar[str]
    """The name of the attribute that holds the wrapped part."""

    def __getattr__(self, name: str) -> Any:
        """Called for what is not found: also where a property of that name has failed."""
        if name in PASSED_ON and not hasattr(type(self), name):
            return fact(self, name)
        return object.__getattribute__(self, name)  # which fails again, and says why


def broken(state: Any) -> Array:
    """1 where any number of the state is NaN or infinite, else 0."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, Array)]
    numbers = [leaf for leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    bad = [~jnp.isfinite(leaf).all() for leaf in numbers]
    return jnp.stack([jnp.array(False), *bad]).any().astype(jnp.int32)


def some_key() -> Any:
    """What any key is like, for `jax.eval_shape`: a real one would be computed by a device."""
    return jax.eval_shape(lambda: jax.random.key(0))


# What a part may say of itself beyond the methods below is in `Facts`.


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

    def init(self, key: Key) -> Any:
        """What is believed before any outcome."""
        ...

    def sample(self, key: Key, belief: Any) -> Model:
        """Draw a plausible model."""
        ...

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        """What is believed after an outcome."""
        ...

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        """Values (S, K) of S equally likely models: all of them if finite, else `draws` samples."""
        ...


class Agent(Protocol):
    """A rule for choosing, and what it has learned so far."""

    def init(self, key: Key) -> Any:
        """What is known before any outcome."""
        ...

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        """The index of the chosen row of `features`."""
        ...

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        """What is known after an outcome."""
        ...

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        """How likely each action is to be chosen now (K,)."""
        ...
