"""What a network learns of an Equinox module: its arrays of floats, drawn from a prior."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..core import Key, some_key


class _Draw(eqx.Module):
    """A plain function key -> module, made part of the configuration's structure."""

    function: Callable[[Key], Any] = eqx.field(static=True)

    def __call__(self, key: Key) -> Any:
        return self.function(key)


class Frozen(eqx.Module):
    """`scale` times a module whose arrays of floats are drawn like any other's, never learned."""

    module: Any
    scale: Array

    def __call__(self, x: Array) -> Array:
        return self.scale * self.module(x)


def is_frozen(part: Any) -> bool:
    return isinstance(part, Frozen)


def configured(make: Any) -> Any:
    """`make` as part of a configuration: a module with settings of its own, or a plain function."""
    if not callable(make):
        raise TypeError(f"make must be a function key -> module, got {make!r}")
    return make if isinstance(make, eqx.Module) else _Draw(make)


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
    if not jax.tree.leaves(eqx.filter(module, _is_parameter)):
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


def parts(module: Any) -> tuple[Any, Any]:
    """(what of a module is learned: its arrays of floats that are not `Frozen`, its others)."""
    arrays = eqx.filter(jax.tree.map(as_jax, module), eqx.is_array)
    learned = jax.tree.map(
        lambda part: not is_frozen(part) and eqx.is_inexact_array(part), arrays, is_leaf=is_frozen
    )
    return eqx.partition(arrays, learned)


def spread(arrays: Any, factor: Array | float) -> Any:
    """What is learned times `factor`, and the outputs of what is frozen."""

    def spread_one(part: Any) -> Any:
        if isinstance(part, Frozen):
            return Frozen(part.module, factor * part.scale) if part.scale is not None else part
        return factor * part if eqx.is_inexact_array(part) else part

    return jax.tree.map(spread_one, arrays, is_leaf=is_frozen)


def as_jax(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _is_parameter(leaf: Any) -> bool:
    return _is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def widths(make: Any) -> Any:
    """The prior's standard deviation of each array that is learned, as `make` draws it.

    From 32 draws, the same for all members. An array that is always zero at first has 1. A `make`
    that starts elsewhere than at a draw from its prior has a method `wide` that makes the draw.
    """
    draw = getattr(make, "wide", make)

    def squares(key: Key) -> Any:
        return jax.tree.map(lambda w: jnp.mean(w**2), parts(draw(key))[0])

    drawn = jax.lax.map(squares, jax.random.split(jax.random.key(0), 32))
    return jax.tree.map(lambda w: jnp.where(w.any(), jnp.sqrt(w.mean()), 1.0), drawn)


def whole(make: Any, learned: Any, fixed: Any) -> Any:
    """The module again: what is no array (activation functions, sizes) is as in every draw."""
    drawn = eqx.filter_eval_shape(make, some_key())
    return eqx.combine(learned, fixed, eqx.filter(drawn, _is_shape, inverse=True))
