"""Worlds with a context that is the same for all actions: drawn rows, and labelled data."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import as_text
from ..core import Action, Key, Round, some_key


def _width(context: Any) -> int:
    """How many features the contexts of a function have; an error where it gives none."""
    try:
        shape = jax.eval_shape(context, some_key(), jax.ShapeDtypeStruct((), jnp.int32)).shape
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            "a context function is compiled, and the period not known then: write jax.numpy in "
            "place of numpy, and jnp.where in place of `if`"
        ) from error
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"the context function returned shape {shape}, expected (features,)")
    return shape[0]


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
        if self.draw is not None:
            x = self.draw(key, world.period)
        else:
            rows, count = jnp.asarray(self.rows, float), len(self.rows)
            x = rows[
                world.period % count if self.ordered else jax.random.randint(key, (), 0, count)
            ]
        return Round(jnp.broadcast_to(x, (self.arms, self.dim)), world.theta @ x)

    def outcome(self, key: Key, world: ContextualWorld, action: Action) -> Array:
        mean = world.theta[action.index] @ action.features
        return mean + self.noise_std * jax.random.normal(key)


def _is_missing(label: Any) -> bool:
    """Whether it is None, NaN, or what pandas has for them, which equals nothing."""
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
        lacking = [at for at, label in enumerate(given.tolist()) if _is_missing(label)]
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
