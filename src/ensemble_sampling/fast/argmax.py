"""`jnp.argmax` of truth values, which XLA compiles for a CPU as one comparison after another.

A simulation of 1,000 arms takes 1.3 times as long with `jnp.argmax`.
"""

import jax.numpy as jnp
from jax import Array


def first(true: Array) -> Array:
    """The index of the first that is true, 0 if none is."""
    count = true.shape[-1]
    index = jnp.where(true, jnp.arange(count, dtype=jnp.int32), count).min(axis=-1)
    return jnp.where(index < count, index, 0)
