"""A branch that is seldom taken, and costs little where many realizations run side by side."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap


def rarely(which: Array, changes: Sequence[Callable[..., Any]], state: Any, *given: Any) -> Any:
    """`state` where `which` is 0, else `changes[which - 1](state, *given)`.

    Mapped over, a branch is computed by all whenever it could be taken by one of them. This one is
    computed when it is taken by one of them.
    """

    @custom_vmap
    def changed(which: Array, state: Any, *given: Any) -> Any:
        return jax.lax.switch(which, [lambda state, *_: state, *changes], state, *given)

    @changed.def_vmap
    def _(size: int, mapped: Any, which: Array, state: Any, *given: Any) -> Any:
        def full(part: Any, is_mapped: bool) -> Any:
            return part if is_mapped else jnp.broadcast_to(part, (size, *jnp.shape(part)))

        which, state, given = jax.tree.map(
            full, (which, state, given), (*mapped[:2], tuple(mapped[2:]))
        )
        found = jax.lax.cond(
            (which != 0).any(),
            jax.vmap(changed.fun),
            lambda _, state, *__: state,
            which,
            state,
            *given,
        )
        return found, jax.tree.map(lambda _: True, found)

    return changed(which, state, *given)
