"""Labelled data as a bandit: the right class earns a reward."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..core import Action, Key, Round


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
