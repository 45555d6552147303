"""Hypermodel (Dwaracherla et al., 2020): a network whose weights are linear in a random index."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Key
from ..learners import modules
from ..learners.network import Network
from .indexed import Indexed, network, several


class Weights(eqx.Module):
    """theta(z) = mean + z'factors, in every array of a module."""

    mean: Any
    factors: Any
    width: int = eqx.field(static=True)

    def index(self, key: Key) -> Array:
        return jax.random.normal(key, (self.width,))

    def at(self, index: Array) -> Any:
        arrays, rest = eqx.partition(self.mean, eqx.is_inexact_array)
        arrays = jax.tree.map(
            lambda mean, factor: mean + jnp.tensordot(index, factor, 1), arrays, self.factors
        )
        return eqx.combine(arrays, rest)

    def __call__(self, x: Array) -> Array:
        return self.mean(x)


class MakeWeights(eqx.Module):
    """A mean of zero, and factors that make theta(z) a draw from `make`'s prior."""

    make: Callable[[Key], Any]
    inflation: float
    width: int = eqx.field(static=True)

    def _factors(self, key: Key, factor: Array | float) -> Any:
        drawn = several(lambda k: modules.parts(self.make(k))[0], key, self.width)
        return jax.tree.map(lambda w: factor * w, drawn)

    def __call__(self, key: Key) -> Weights:
        drawn = jax.tree.map(modules.as_jax, self.make(key))
        arrays, rest = eqx.partition(drawn, eqx.is_inexact_array)
        mean = eqx.combine(jax.tree.map(jnp.zeros_like, arrays), rest)
        return Weights(mean, self._factors(key, self.inflation), self.width)

    def wide(self, key: Key) -> Weights:
        """With factors as wide as weights: E |z'(factors - start)|^2 is the sum of the squares of
        all entries, so factors are anchored in the unit of the weights."""
        return Weights(self.make(key), self._factors(key, self.width**0.5), self.width)


class Hypermodel(Indexed):
    """Weights mean + z'A for an index z ~ N(0, I) of some width, all of it learned.

    A starts as `width` draws of the network's prior over sqrt(width), to which it is anchored:
    before data a sample is a draw from the prior, and the indices sqrt(width) e_m are an ensemble.

    width: of the index. The weights of a model are one product with it.
    indices: how many models a step averages over.
    """

    width: int = eqx.field(static=True)
    indices: int = eqx.field(static=True)

    def __init__(
        self,
        learner: Network,
        width: int = 10,
        indices: int = 10,
        perturbed: bool = True,
        inflation: float = 1.0,
    ):
        self.width = checks.size("width", width)
        self.indices = checks.size("indices", indices)
        make = MakeWeights(network("Hypermodel", learner).make, inflation, self.width)
        super().__init__(
            dataclasses.replace(learner, make=make, indices=self.indices), perturbed, inflation
        )

    @property
    def label(self) -> str:
        return f"hypermodel, index of {self.width}"
