"""Worlds to decide in: Gaussian arms, linear, neuron and network bandits, clicks, labelled data,
arms that wander and contexts that come and go."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import checks
from .config import LATER, as_text, short
from .core import Action, Key, Round
from .networks import MLP, GaussianMLP
from .rewards import Reward, checked


class GaussianArms(eqx.Module):
    """Independent arms (Section 5.1): means N(prior_mean, prior_std^2), Gaussian noise."""

    arms: int = eqx.field(static=True)
    noise_std: float = 1.0
    prior_mean: float = 0.0
    prior_std: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        checks.positive("noise_std", self.noise_std)
        checks.scalar("prior_mean", self.prior_mean)
        checks.positive("prior_std", self.prior_std)

    def init(self, key: Key) -> Array:
        return self.prior_mean + self.prior_std * jax.random.normal(checks.key(key), (self.arms,))

    def offer(self, key: Key, world: Array) -> Round:
        return Round(jnp.eye(self.arms), world)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        return world[action.index] + self.noise_std * jax.random.normal(key)


class RandomWalkArms(eqx.Module):
    """Arms whose means wander: N(prior_mean, prior_std^2) at first, and with every period each
    moves by its own N(0, step_std^2). Regret is to the arm that is best at the time."""

    arms: int = eqx.field(static=True)
    step_std: float = 0.1
    noise_std: float = 1.0
    prior_mean: float = 0.0
    prior_std: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        checks.scalar("step_std", self.step_std, low=0.0, high=checks.LARGEST)
        checks.positive("noise_std", self.noise_std)
        checks.scalar("prior_mean", self.prior_mean)
        checks.positive("prior_std", self.prior_std)

    def init(self, key: Key) -> Array:
        return self.prior_mean + self.prior_std * jax.random.normal(checks.key(key), (self.arms,))

    def advance(self, key: Key, world: Array, period: Array) -> Array:
        return world + self.step_std * jax.random.normal(key, (self.arms,))

    def offer(self, key: Key, world: Array) -> Round:
        return Round(jnp.eye(self.arms), world)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        return world[action.index] + self.noise_std * jax.random.normal(key)


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


class FixedWorld(NamedTuple):
    """Actions that stay, what each brings before noise, and the mean reward of that."""

    actions: Array
    outcomes: Array
    means: Array


def in_cube(key: Key, arms: int, dim: int) -> Array:
    """Coordinates uniform in [-1, 1], but for the last, which is 1 (Section 5.2)."""
    actions = jax.random.uniform(key, (arms, dim), minval=-1.0, maxval=1.0)
    return actions.at[:, -1].set(1.0)


class NetworkBandit(eqx.Module):
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
        self.reward = checked(reward, outcomes)
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

    def init(self, key: Key) -> FixedWorld | MLP:
        """The actions and what they bring, or the network where the actions change."""
        truth_key, actions_key = jax.random.split(checks.key(key))
        truth = self.truth(truth_key)
        return truth if self.fresh else self._played(actions_key, truth)

    def _played(self, key: Key, truth: MLP) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        outcomes = jax.vmap(truth)(actions)
        means = outcomes if self.reward is None else self.reward.expected(outcomes, self.noise_std)
        return FixedWorld(actions, outcomes, means)

    def offer(self, key: Key, world: Any) -> Round:
        now = self._played(key, world) if self.fresh else world
        return Round(now.actions, now.means, None, now if self.fresh else None)

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


class LogisticBandit(eqx.Module):
    """Clicks: the outcome is 1 with probability 1 / (1 + exp(-(bias + theta'a))), else 0.

    With `fresh` the actions are drawn anew in every period.
    """

    dim: int = eqx.field(static=True)
    arms: int = eqx.field(static=True)
    prior_std: float = 1.0
    bias: float = 0.0
    fresh: bool = eqx.field(static=True, default=False, metadata=LATER)
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("dim", self.dim)
        checks.size("arms", self.arms)
        checks.positive("prior_std", self.prior_std)
        checks.scalar("bias", self.bias)
        checks.flag("fresh", self.fresh)

    def init(self, key: Key) -> FixedWorld | Array:
        """The actions and their chances, or theta where the actions change."""
        theta_key, actions_key = jax.random.split(checks.key(key))
        theta = self.prior_std * jax.random.normal(theta_key, (self.dim,))
        return theta if self.fresh else self._played(actions_key, theta)

    def _played(self, key: Key, theta: Array) -> FixedWorld:
        actions = in_cube(key, self.arms, self.dim)
        chances = jax.nn.sigmoid(self.bias + actions @ theta)
        return FixedWorld(actions, chances, chances)

    def offer(self, key: Key, world: Any) -> Round:
        now = self._played(key, world) if self.fresh else world
        return Round(now.actions, now.means, None, now if self.fresh else None)

    def outcome(self, key: Key, world: FixedWorld, action: Action) -> Array:
        return jax.random.bernoulli(key, world.means[action.index]).astype(world.means.dtype)


class ContextualWorld(NamedTuple):
    theta: Array
    period: Array


class ContextualBandit(eqx.Module):
    """A context comes in every period, and action a is worth theta_a'x in it, plus noise: the
    theta_a are independent N(prior_mean, prior_std^2 I), and x is the same for all actions.

    context: rows (n, dim) to draw contexts from, or a function (key, period) -> (dim,) that draws
        one, and may make use of the period (counted from 0): a season, say
    ordered: rows come in their order, and from the first again when all have come
    """

    arms: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    rows: Any
    draw: Any = eqx.field(static=True)
    ordered: bool = eqx.field(static=True)
    noise_std: float
    prior_mean: float
    prior_std: float

    def __init__(
        self,
        context: Any,
        arms: int,
        noise_std: float = 1.0,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        ordered: bool = False,
    ):
        self.arms = checks.size("arms", arms)
        self.ordered = checks.flag("ordered", ordered)
        if callable(context):
            self.rows, self.draw, self.dim = None, context, _width(context)
            if ordered:
                raise ValueError("rows of an array can be ordered: a function is told the period")
        else:
            self.rows, self.draw = checks.array("context", context, (None, None)), None
            self.dim = self.rows.shape[1]
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_mean = checks.scalar("prior_mean", prior_mean)
        self.prior_std = checks.positive("prior_std", prior_std)

    def __repr__(self) -> str:
        source = f"{len(self.rows)} rows" if self.draw is None else as_text(self.draw)
        return f"ContextualBandit({source}, {self.dim} features, {self.arms} actions)"

    def init(self, key: Key) -> ContextualWorld:
        off = jax.random.normal(checks.key(key), (self.arms, self.dim))
        return ContextualWorld(self.prior_mean + self.prior_std * off, jnp.zeros((), jnp.int32))

    def advance(self, key: Key, world: ContextualWorld, period: Array) -> ContextualWorld:
        return ContextualWorld(world.theta, period)

    def offer(self, key: Key, world: ContextualWorld) -> Round:
        x = self._context(key, world.period)
        return Round(jnp.broadcast_to(x, (self.arms, self.dim)), world.theta @ x)

    def _context(self, key: Key, period: Array) -> Array:
        if self.draw is not None:
            return self.draw(key, period)
        rows = jnp.asarray(self.rows, float)
        count = rows.shape[0]
        return rows[period % count if self.ordered else jax.random.randint(key, (), 0, count)]

    def outcome(self, key: Key, world: ContextualWorld, action: Action) -> Array:
        mean = world.theta[action.index] @ action.features
        return mean + self.noise_std * jax.random.normal(key)


def _width(context: Any) -> int:
    """How many features a function's contexts have, once it was seen to give some."""
    try:
        shape = jax.eval_shape(lambda: context(jax.random.key(0), jnp.zeros((), jnp.int32))).shape
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            "a context function is compiled, and the period not known then: write jax.numpy in "
            "place of numpy, and jnp.where in place of `if`"
        ) from error
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"the context function returned shape {shape}, expected (features,)")
    return shape[0]


def _no_class(label: Any) -> bool:
    """Whether it is missing: None, NaN, or pandas' words for them, which equal nothing."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


class Classification(eqx.Module):
    """Labelled data as a bandit: a row is the context, every class an action, and the right one
    brings 1, the others 0.

    Every realization plays rows drawn from its own resample of the data, so that the intervals of
    `simulate` say how much would change with other data of the same kind.

    x: rows (n, d); standardise them for agents whose prior expects that
    y: their classes (n,), of any kind
    flips: how often the outcome is the other one
    """

    x: Any
    labels: Any
    arms: int = eqx.field(static=True)
    classes: tuple[Any, ...] = eqx.field(static=True)
    flips: float

    def __init__(self, x: Any, y: Any, flips: float = 0.0):
        given = np.asarray(y)
        if given.ndim != 1:
            raise ValueError(f"y must be one class per row, got shape {given.shape}")
        self.x = checks.array("x", x, (None, None))
        if len(self.x) != len(given):
            raise ValueError(f"{len(self.x)} rows in x, but {len(given)} classes in y")
        lacking = [at for at, label in enumerate(given.tolist()) if _no_class(label)]
        if lacking:
            raise ValueError(
                f"y must have a class for every row: {len(lacking)} of {len(given)} are missing, "
                f"the first is row {lacking[0]}, {given[lacking[0]]!r}"
            )
        classes, labels = np.unique(given, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got {classes.tolist()}")
        self.labels, self.arms = labels.astype(np.int32), len(classes)
        self.classes = tuple(classes.tolist())
        self.flips = checks.scalar("flips", flips, low=0.0, high=1.0)

    def __repr__(self) -> str:
        rows, dim = self.x.shape
        noise = f", flips={float(self.flips):g}" if checks.known(self.flips) and self.flips else ""
        return f"Classification({rows} rows, {dim} features, {self.arms} classes{noise})"

    def init(self, key: Key) -> Array:
        """The rows of a resample."""
        rows = self.x.shape[0]
        return jax.random.randint(checks.key(key), (rows,), 0, rows)

    def offer(self, key: Key, world: Array) -> Round:
        row = world[jax.random.randint(key, (), 0, world.shape[0])]
        x = jnp.asarray(self.x, float)[row]
        right = jnp.arange(self.arms) == jnp.asarray(self.labels)[row]
        chances = jnp.where(right, 1.0 - self.flips, self.flips)
        return Round(jnp.broadcast_to(x, (self.arms, *x.shape)), chances, None, chances)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        """`world`: the chances of the row at hand."""
        return jax.random.bernoulli(key, world[action.index]).astype(world.dtype)
