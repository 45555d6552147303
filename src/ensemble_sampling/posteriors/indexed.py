"""One network that holds a model for every random index: hypermodels and Bayes by backprop.

Such a module has `index(key)`, a random index, and `at(index)`, the model of that index; the module
itself is the mean model. `make(key)` draws it as it starts, and `make.wide(key)` with every array
as wide as its prior: the units in which `Network` learns it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Action, Key, Model, Noise, some_key
from ..learners import modules
from ..learners.network import Network
from .exact import LearnerPosterior


class Indexed(LearnerPosterior):
    """A network that holds a model for every index z; a sample is the model of a random one.

    It learns as an ensemble would, each of whose members is the model of one index: with
    `perturbed`, the model of z sees an outcome plus noise_std z'b, where b is drawn for that
    outcome, uniformly among directions. For z ~ N(0, I) that is N(0, noise_std^2), as the paper's.
    `inflation` scales perturbations and the prior. Subclasses make the network, so inflated.
    """

    learner: Network
    perturbed: bool = eqx.field(static=True)
    inflation: float

    def __init__(self, learner: Network, perturbed: bool, inflation: float):
        self.learner = learner
        self.perturbed = checks.flag("perturbed", perturbed)
        self.inflation = checks.positive("inflation", inflation)

    def init(self, key: Key) -> Any:
        noise = Noise(shift=jnp.zeros(())) if self.perturbed else Noise()
        return self.learner.init(key, 1.0, noise)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.model(belief, self.learner.index(key, belief[1]))

    def model(self, belief: Any, index: Any) -> Model:
        """The model of one index."""
        return eqx.Partial(self.learner.predict, *belief, index=index)

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        learn_key, noise_key = jax.random.split(key)
        shared, member = belief
        noise = Noise()
        if self.perturbed:
            index = jax.eval_shape(lambda: self.learner.index(key, member))
            direction = jax.random.normal(noise_key, (*index.shape, *jnp.shape(outcome)))
            length = jnp.linalg.norm(direction, axis=0, keepdims=True)
            noise = Noise(shift=self.inflation * direction / length)
        return self.learner.observe(learn_key, shared, member, action, outcome, noise)


def plain_network(name: str, learner: Any) -> Network:
    """The learner, if it is a `Network` on which the posterior called `name` can build."""
    if not isinstance(learner, Network):
        raise TypeError(f"{name} takes a Network, got {learner!r}")
    if learner.dropout is not None or learner.indices is not None:
        raise ValueError(f"{name} takes a plain Network, got one with dropout or an index")
    made = eqx.filter_eval_shape(learner.make, some_key())
    if any(map(modules.is_frozen, jax.tree.leaves(made, is_leaf=modules.is_frozen))):
        raise ValueError(
            f"{name} draws all weights of a network, and this one has some that are never learned: "
            f"give it the plain network, without RandomisedPrior; got {learner.make!r}"
        )
    return learner


def stacked_draws(draw: Any, key: Key, count: int) -> Any:
    """`count` draws side by side, divided by the root of it: their sum is as wide as one."""
    drawn = jax.vmap(draw)(jax.random.split(key, count))
    return jax.tree.map(lambda w: w / jnp.sqrt(count), drawn)


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
        drawn = stacked_draws(lambda k: modules.parts(self.make(k))[0], key, self.width)
        return jax.tree.map(lambda w: factor * w, drawn)

    def __call__(self, key: Key) -> Weights:
        zero = lambda w: jnp.zeros_like(w) if eqx.is_inexact_array(w) else w  # noqa: E731
        mean = jax.tree.map(zero, modules.as_jax(self.make(key)))
        return Weights(mean, self._factors(key, self.inflation), self.width)

    def wide(self, key: Key) -> Weights:
        """With factors as wide as weights: E |z'(factors - start)|^2 is the sum of the squares of
        all entries, so factors are anchored in the unit of the weights."""
        return Weights(self.make(key), self._factors(key, self.width**0.5), self.width)


class Hypermodel(Indexed):
    """Weights mean + z'A for an index z ~ N(0, I) of some width, all of it learned (Dwaracherla et
    al., 2020).

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
        checks.positive("inflation", inflation)
        make = MakeWeights(plain_network("Hypermodel", learner).make, inflation, self.width)
        learner = dataclasses.replace(learner, make=make, indices=self.indices)
        super().__init__(learner, perturbed, inflation)

    @property
    def label(self) -> str:
        return f"hypermodel, index of {self.width}"


class MeanField(eqx.Module):
    """theta = mean + exp(log_std) epsilon in every array of a module; an index is epsilon's key."""

    mean: Any
    log_std: Any

    def index(self, key: Key) -> Key:
        return key

    def at(self, index: Key) -> Any:
        arrays, rest = eqx.partition(self.mean, eqx.is_inexact_array)
        structure = jax.tree.structure(arrays)
        keys = jax.tree.unflatten(structure, [*jax.random.split(index, structure.num_leaves)])

        def draw(mean: Array, log_std: Array, key: Key) -> Array:
            return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

        return eqx.combine(jax.tree.map(draw, arrays, self.log_std, keys), rest)

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
        return jax.tree.map(lambda w: jnp.asarray(self.prior_std, float), drawn)

    def __call__(self, key: Key) -> MeanField:
        mean = modules.as_jax(getattr(self.make, "center", self.make)(key))
        start = lambda w, s: jnp.full(w.shape, jnp.log(self.start * s))  # noqa: E731
        return MeanField(mean, jax.tree.map(start, modules.parts(mean)[0], self._prior()))

    def wide(self, key: Key) -> MeanField:
        """Units: of a mean the prior's standard deviation, of a logarithm 1."""
        arrays, rest = eqx.partition(modules.as_jax(self.make(key)), eqx.is_inexact_array)
        full = jax.tree.map(lambda w, s: jnp.full(w.shape, s), arrays, self._prior())
        return MeanField(eqx.combine(full, rest), jax.tree.map(jnp.ones_like, arrays))

    def penalty(self, parameters: MeanField, widths: MeanField) -> Array:
        """Twice the divergence KL(q || prior), but for what does not change."""

        def one(mean: Array, log_std: Array, s: Array) -> Array:
            return jnp.sum((mean**2 + jnp.exp(2 * log_std)) / s**2 - 2 * log_std)

        terms = jax.tree.map(one, parameters.mean, parameters.log_std, widths.mean)
        return sum(jax.tree.leaves(terms), jnp.zeros(()))


class BayesByBackprop(Indexed):
    """Independent normal weights with the largest evidence lower bound, learned by gradients
    (Blundell et al., 2015).

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
        plain = plain_network("BayesByBackprop", learner)
        make = MakeMeanField(plain.make, plain.prior_std, start)
        learner = dataclasses.replace(plain, make=make, prior_std=None, indices=self.indices)
        super().__init__(learner, False, 1.0)
