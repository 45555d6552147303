"""A network's weights as one vector: all of them, or those of its last layer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from .. import checks
from ..core import Action
from . import modules
from .histories import History
from .network import Member, Network


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
    some = [leaf for use, (_, leaf) in zip(chosen, paths, strict=True) if use]
    flat, unravel = ravel_pytree(some)

    def whole(weights: Array) -> Any:
        new = iter(unravel(weights))
        leaves = [next(new) if use else leaf for use, (_, leaf) in zip(chosen, paths, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    return flat, whole


def widths(learner: Network, member: Member, last: bool = False) -> Array:
    """The prior's standard deviation of every weight of the vector."""
    model = member.model
    if (std := learner.prior_std) is not None:
        wide = jax.tree.map(lambda w: jnp.full(w.shape, std, float), model)
    else:
        wide = jax.tree.map(lambda w, s: jnp.broadcast_to(s, w.shape), model, member.widths)
    return vector(wide, last)[0]


def check_linear(name: str, learner: Network) -> None:
    """Refuse a network whose output is not linear in what `vector` takes for its last layer.

    Seen by f(-w) = 2 f(0) - f(w) and f(2w) = 2 f(w) - f(0) of a draw, for a few inputs.
    """
    key = jax.random.key(0)
    learned, fixed = modules.parts(learner.make(key))
    weights, whole = vector(learned, last=True)
    rows = jax.random.normal(key, (8, learner.dim))

    def f(weights: Array) -> Array:
        return jax.vmap(modules.whole(learner.make, whole(weights), fixed))(rows)

    once, zero = f(weights), f(0 * weights)
    off = [f(-weights) - 2 * zero + once, f(2 * weights) - 2 * once + zero]
    if not checks.known(once):
        return
    if max(np.abs(part).max() for part in off) > 1e-3 * np.abs([once, zero]).max():
        raise ValueError(
            f"{name} needs a network whose output is linear in its last layer, and that of "
            f"{type(learner.make(key)).__name__} is not: the last array, or the last part that "
            "holds arrays by name, must be all that comes after the hidden units (no squash=True, "
            "no activation after it, a module of its own for it)"
        )


def outputs(
    learner: Network, shared: History, member: Member, parameters: Any, action: Action
) -> Array:
    """The outputs (q,) that an outcome of the action is compared with."""
    output = learner.outputs(shared, member, parameters, action.features[None])[0]
    return jnp.atleast_1d(output if learner.arms is None else output[action.index])
