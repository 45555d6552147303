"""What a network learns of an Equinox module: its arrays of floats, drawn from a prior.

`make(key)` draws a module. It may have `center(key)`, where a single best model starts, and
`wide(key)`, a draw from the prior where `make` itself starts elsewhere.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from .. import checks
from ..config import short
from ..core import Key, some_key


class _Draw(eqx.Module):
    """A plain function key -> module, made part of the configuration's structure."""

    function: Callable[[Key], Any] = eqx.field(static=True)

    def __call__(self, key: Key) -> Any:
        return self.function(key)


def as_config(make: Any) -> Any:
    """`make` as part of a configuration: a module with settings of its own, or a plain function."""
    if not callable(make):
        raise TypeError(f"make must be a function key -> module, got {make!r}")
    return make if isinstance(make, eqx.Module) else _Draw(make)


class Frozen(eqx.Module):
    """`scale` times a module whose arrays of floats are drawn like any other's, never learned."""

    module: Any
    scale: Array

    def __call__(self, x: Array) -> Array:
        return self.scale * self.module(x)


def is_frozen(part: Any) -> bool:
    return isinstance(part, Frozen)


class WithPrior(eqx.Module):
    """What is learned, plus what is not."""

    learned: Any
    prior: Frozen

    def __call__(self, x: Array) -> Array:
        return self.learned(x) + self.prior(x)


class RandomisedPrior(eqx.Module):
    """Draws networks f(x) + scale p(x) of which only f is learned, for `Network` and `Ensemble`:
    randomised prior functions (Osband et al., 2018).

    The prior p is drawn by `make`. f starts near zero, at `make.center` where there is one, and is
    pulled to zero, so before data a member is its prior, and p says what is plausible far from
    them. A linear f + p is the anchored form: |f|^2 is the squared distance of f + p to its draw p.

    start: key -> module, at which f starts instead.
    """

    make: Callable[[Key], Any]
    scale: float = 1.0
    start: Callable[[Key], Any] | None = None
    pull = 0.0
    __repr__ = short

    def __post_init__(self) -> None:
        self.make = as_config(self.make)
        self.scale = checks.positive("scale", self.scale)
        self.start = None if self.start is None else as_config(self.start)

    def _sum(self, key: Key, first: Callable[[Key], Any]) -> WithPrior:
        first_key, prior_key = jax.random.split(key)
        prior = Frozen(self.make(prior_key), jnp.asarray(self.scale, float))
        return WithPrior(first(first_key), prior)

    def __call__(self, key: Key) -> WithPrior:
        return self._sum(key, self.start or getattr(self.make, "center", self.make))

    def wide(self, key: Key) -> WithPrior:
        """With f as wide as its prior: the units in which it learns."""
        return self._sum(key, self.make)


def check(make: Any, dim: int, wanted: tuple[int, ...]) -> None:
    """Try `make` and what it makes on shapes alone, at no cost."""
    try:
        module = eqx.filter_eval_shape(make, some_key())
    except Exception as error:
        raise TypeError(
            "make must be a function key -> module; for make(jax.random.key(0)) it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(module):
        raise TypeError(f"make must return a module that can be called, got {module!r}")
    if not jax.tree.leaves(eqx.filter_eval_shape(lambda key: parts(make(key))[0], some_key())):
        raise ValueError(f"the module has no array of floats to learn: {module!r}")
    row = jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
    try:
        output = eqx.filter_eval_shape(lambda m, x: m(x), module, row)
    except Exception as error:
        raise ValueError(
            f"the module must take features of shape ({dim},), but it raised "
            f"{type(error).__name__}: {error}"
        ) from error
    shape = getattr(output, "shape", None)
    if shape != wanted:
        raise ValueError(
            f"the module must map features of shape ({dim},) to an output of shape "
            f"{wanted}, but it gives {shape}"
        )


def as_jax(module: Any) -> Any:
    """The module with JAX's arrays in place of NumPy's."""
    return jax.tree.map(lambda w: jnp.asarray(w) if isinstance(w, np.ndarray) else w, module)


def parts(module: Any) -> tuple[Any, Any]:
    """(what of a module is learned: its arrays of floats that are not `Frozen`, its others)."""
    arrays = eqx.filter(as_jax(module), eqx.is_array)
    learned = jax.tree.map(
        lambda part: not is_frozen(part) and eqx.is_inexact_array(part), arrays, is_leaf=is_frozen
    )
    return eqx.partition(arrays, learned)


def whole(make: Any, learned: Any, fixed: Any) -> Any:
    """The module again: what is no array (activation functions, sizes) is as in every draw."""
    shapes = eqx.filter_eval_shape(make, some_key())
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    return eqx.combine(learned, fixed, eqx.filter(shapes, is_shape, inverse=True))


def spread(arrays: Any, factor: Array | float) -> Any:
    """What is learned times `factor`, and the outputs of what is frozen."""

    def spread_one(part: Any) -> Any:
        if isinstance(part, Frozen):
            return Frozen(part.module, factor * part.scale) if part.scale is not None else part
        return factor * part if eqx.is_inexact_array(part) else part

    return jax.tree.map(spread_one, arrays, is_leaf=is_frozen)


def widths(make: Any) -> Any:
    """The prior's standard deviation of each array that is learned, as `make` draws it.

    From 32 draws, the same for all members. An array that is always zero at first has 1.
    """
    draw = getattr(make, "wide", make)

    def squares(key: Key) -> Any:
        return jax.tree.map(lambda w: jnp.mean(w**2), parts(draw(key))[0])

    found = jax.lax.map(squares, jax.random.split(jax.random.key(0), 32))
    return jax.tree.map(lambda w: jnp.where(w.any(), jnp.sqrt(w.mean()), 1.0), found)


def vector(parameters: Any, last: bool = False) -> tuple[Array, Callable[[Array], Any]]:
    """The weights in one vector, and the way back, which leaves all others as they are.

    last: only those of the last layer, which is the last array, or the last part of the module
        that holds arrays by name (a weight and a bias).
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(parameters)
    final = paths[-1][0]
    # An array in a list is a layer by itself; named arrays beside it belong to the same layer.
    layer = final if isinstance(final[-1], jax.tree_util.SequenceKey) else final[:-1]
    chosen = [not last or path[: len(layer)] == layer for path, _ in paths]
    flat, unravel = ravel_pytree([w for use, (_, w) in zip(chosen, paths, strict=True) if use])

    def back(weights: Array) -> Any:
        new = iter(unravel(weights))
        leaves = [next(new) if use else w for use, (_, w) in zip(chosen, paths, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    return flat, back


def check_linear(name: str, make: Any, dim: int) -> None:
    """Refuse a network whose output is not linear in what `vector` takes for its last layer.

    Seen by f(-w) = 2 f(0) - f(w) and f(2w) = 2 f(w) - f(0) of a draw, for a few inputs.
    """
    key = jax.random.key(0)
    learned, fixed = parts(make(key))
    weights, back = vector(learned, last=True)
    rows = jax.random.normal(key, (8, dim))

    def f(weights: Array) -> Array:
        return jax.vmap(whole(make, back(weights), fixed))(rows)

    once, zero = f(weights), f(0 * weights)
    off = [f(-weights) - 2 * zero + once, f(2 * weights) - 2 * once + zero]
    if not checks.known(once):
        return
    if max(np.abs(part).max() for part in off) > 1e-3 * np.abs([once, zero]).max():
        raise ValueError(
            f"{name} needs a network whose output is linear in its last layer, and that of "
            f"{type(make(key)).__name__} is not: the last array, or the last part that "
            "holds arrays by name, must be all that comes after the hidden units (no squash=True, "
            "no activation after it, a module of its own for it)"
        )
