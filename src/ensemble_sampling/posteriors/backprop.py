"""Bayes by backprop (Blundell et al., 2015): independent normal weights, learned by the ELBO."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Key, some_key
from ..learners import modules
from ..learners.network import Network
from .indexed import Indexed, network


def _map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    return jax.tree.map(function, tree, *rest)


class MeanField(eqx.Module):
    """theta = mean + exp(log_std) epsilon in every array of a module; an index is epsilon's key."""

    mean: Any
    log_std: Any

    def index(self, key: Key) -> Key:
        return key

    def at(self, index: Key) -> Any:
        arrays, rest = eqx.partition(self.mean, eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(arrays)
        logs = jax.tree.leaves(self.log_std)
        drawn = [
            mean + jnp.exp(log) * jax.random.normal(key, mean.shape, mean.dtype)
            for mean, log, key in zip(
                leaves, logs, jax.random.split(index, len(leaves)), strict=True
            )
        ]
        return eqx.combine(jax.tree.unflatten(structure, drawn), rest)

    def __call__(self, x: Array) -> Array:
        return self.mean(x)


class MakeMeanField(eqx.Module):
    """Means that are near zero, and standard deviations that are `start` times the prior's."""

    make: Callable[[Key], Any]
    prior_std: float | None
    start: float

    def _prior(self) -> Any:
        """The prior's standard deviation of each array."""
        if self.prior_std is None:
            return modules.widths(self.make)
        drawn = eqx.filter_eval_shape(lambda k: modules.parts(self.make(k))[0], some_key())
        return _map(lambda w: jnp.asarray(self.prior_std, float), drawn)

    def __call__(self, key: Key) -> MeanField:
        mean = _map(modules.as_jax, getattr(self.make, "center", self.make)(key))
        arrays = modules.parts(mean)[0]
        logs = _map(lambda w, s: jnp.full(w.shape, jnp.log(self.start * s)), arrays, self._prior())
        return MeanField(mean, logs)

    def wide(self, key: Key) -> MeanField:
        """Units: of a mean the prior's standard deviation, of a logarithm 1."""
        mean = _map(modules.as_jax, self.make(key))
        arrays, rest = eqx.partition(mean, eqx.is_inexact_array)
        full = _map(lambda w, s: jnp.full(w.shape, s), arrays, self._prior())
        return MeanField(eqx.combine(full, rest), _map(jnp.ones_like, arrays))

    def penalty(self, parameters: MeanField, widths: MeanField) -> Array:
        """Twice the divergence KL(q || prior), but for what does not change."""

        def one(mean: Array, log_std: Array, s: Array) -> Array:
            return jnp.sum((mean**2 + jnp.exp(2 * log_std)) / s**2 - 2 * log_std)

        terms = _map(one, parameters.mean, parameters.log_std, widths.mean)
        return sum(jax.tree.leaves(terms), jnp.zeros(()))


class BayesByBackprop(Indexed):
    """Independent normal weights with the largest evidence lower bound, learned by gradients.

    Minus twice the bound, over the n observations held, is the mean over a batch and over weights
    mean + std epsilon of the learner's loss, plus 2 KL(q || prior) / n with the prior N(0,
    prior_std^2), or as wide as `make` draws each array. For a linear model the best means are the
    exact ones and the variances 1 / diag of the exact precision: never too large, and too small
    where weights go together.

    start: the standard deviations at first, in units of the prior's.
    indices: how many draws of weights a step averages over.
    """

    start: float
    indices: int = eqx.field(static=True)
    label = "Bayes by backprop"

    def __init__(self, learner: Network, start: float = 1.0, indices: int = 4):
        self.start = checks.positive("start", start)
        self.indices = checks.size("indices", indices)
        make = MakeMeanField(network("BayesByBackprop", learner).make, learner.prior_std, start)
        changed = dataclasses.replace(learner, make=make, prior_std=None, indices=self.indices)
        super().__init__(changed, False, 1.0)
