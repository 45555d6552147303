"""An optimisation barrier: what is computed behind it is computed once, apart from the rest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer


def in_one_step(function: Callable[..., Any], word: Array, *given: Any) -> Any:
    """`function(*given)`, compiled as a branch that is always taken, which the compiler cannot see.

    Its dozens of small steps stay together. Left among the large ones of an update, they make a
    CPU's threads share the work of a single decision, and waking these takes longer than all of it:
    choose + learn, linear, takes 1.4 times as long with 10 actions, and twice as long with 100.
    All uses of the result read the same numbers, where a compiler may otherwise compute them again
    for each use, and round them differently.

    word: a number that is known when the program runs; where it is mapped over, there is no branch
    """
    if not isinstance(word, Tracer):
        return function(*given)  # not compiled, where a branch would be, anew in every call
    seen: list[Any] = []  # what it gives, of which the other branch needs the shapes

    def step(*given: Any) -> Any:
        seen.append(function(*given))
        return seen[-1]  # of this very trace, should there be another

    def nothing(*given: Any) -> Any:
        shapes = seen[0] if seen else jax.eval_shape(function, *given)
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    number = jnp.issubdtype(word.dtype, jnp.inexact)
    always = ~(word < -jnp.inf) if number else (word | 1) != 0
    return jax.lax.cond(always, step, nothing, *given)
