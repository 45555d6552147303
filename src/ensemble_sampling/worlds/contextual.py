"""Contexts that come and go, with rewards linear in them for each action."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import as_text
from ..core import Action, Key, Round


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
