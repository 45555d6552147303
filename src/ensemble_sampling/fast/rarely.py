"""A branch that is seldom taken, and costs little where many realizations run side by side."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap


def rarely(taken: Array, change: Callable[..., Any], state: Any, *given: Any) -> Any:
    """`change(state, *given)` where it is `taken`, else `state`.

    Mapped over, a branch is computed by all whether one of them takes it or not. This one is
    computed when one of them takes it.
    """

    @custom_vmap
    def changed(taken: Array, state: Any, *given: Any) -> Any:
        return jax.lax.cond(taken, change, lambda state, *_: state, state, *given)

    @changed.def_vmap
    def _(size: int, mapped: Any, taken: Array, state: Any, *given: Any) -> Any:
        def full(part: Any, is_mapped: bool) -> Any:
            return part if is_mapped else jnp.broadcast_to(part, (size, *jnp.shape(part)))

        taken, state, given = jax.tree.map(
            full, (taken, state, given), (*mapped[:2], tuple(mapped[2:]))
        )
        found = jax.lax.cond(
            taken.any(),
            jax.vmap(changed.fun),
            lambda _, state, *__: state,
            taken,
            state,
            *given,
        )
        return found, jax.tree.map(lambda _: True, found)

    return changed(taken, state, *given)
