"""Runs small enough to be interrupted, killed and resumed many times, here and in processes."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import ensemble_sampling as es

ARMS = 6
CHUNK = 3  # eight chunks, the last of a single realization
SETTINGS: Any = {
    "agent": es.EnsembleSampling(es.IndependentArms(4, 1.0), 3),
    "environment": es.GaussianArms(4),
    "periods": 20,
    "realizations": 22,
    "seed": 2,
}


def small(**options: Any) -> Any:
    return es.simulate(**(SETTINGS | options))


@cache
def whole() -> Any:
    """Never interrupted."""
    return small(keep=True, chunk=CHUNK)


class Odd(eqx.Module):
    """Means that are whole numbers; or, in the first period, none."""

    broken: bool = eqx.field(static=True, default=False)

    def init(self, key):
        return jax.random.randint(key, (ARMS,), 0, 100), jnp.zeros((), jnp.int32)

    def advance(self, key, world, t):
        return world[0], jnp.asarray(t, jnp.int32)

    def offer(self, key, world):
        means, t = world
        means = jnp.where(t < 1, jnp.nan, means) if self.broken else means
        return es.core.Round(jnp.eye(ARMS), means)

    def outcome(self, key, world, action):
        return 1.0 * world[0][action.index]


class Stop(KeyboardInterrupt):
    pass


def interrupt_after(realizations):
    """Progress that interrupts once so many are done."""

    def progress(done, total):
        if done >= realizations:
            raise Stop

    return progress
