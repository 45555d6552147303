"""Epinet (Osband et al., 2023): a small network of features and an index, beside the main one."""

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
from ..learners.modules import Frozen
from ..learners.network import Network
from ..networks import MLP, GaussianMLP
from .indexed import Indexed, layered, silent


class Priors(eqx.Module):
    """Outputs (width, ...) of as many small networks, for an index to weigh."""

    networks: Any

    def __call__(self, x: Array) -> Array:
        return eqx.filter_vmap(lambda network: network(x))(self.networks)


class Additive(eqx.Module):
    """base(x) + z'head(features, z) + z'prior(x)."""

    base: MLP
    head: MLP
    prior: Frozen
    width: int = eqx.field(static=True)

    def index(self, key: Key) -> Array:
        return jax.random.normal(key, (self.width,))

    def at(self, index: Array) -> Callable[[Array], Array]:
        def model(x: Array) -> Array:
            units = self.base.hidden(x)
            seen = jnp.concatenate([jax.lax.stop_gradient(units), x, index])
            prior = self.prior(x)
            more = index @ (self.head(seen).reshape(prior.shape) + prior)
            return self.base.read(units, more)

        return model

    def __call__(self, x: Array) -> Array:
        return self.base(x)


class MakeAdditive(eqx.Module):
    """A base and a head that are silent at first, so that the prior alone is heard."""

    make: Callable[[Key], Any]
    head: GaussianMLP
    prior: Callable[[Key], Any]
    scale: float
    width: int = eqx.field(static=True)

    def _made(self, key: Key, mute: Callable[[MLP], MLP]) -> Additive:
        base, head, prior = jax.random.split(key, 3)
        scale = jnp.asarray(self.scale, float) / jnp.sqrt(self.width)
        priors = Priors(eqx.filter_vmap(self.prior)(jax.random.split(prior, self.width)))
        return Additive(
            mute(self.make(base)), mute(self.head(head)), Frozen(priors, scale), self.width
        )

    def __call__(self, key: Key) -> Additive:
        return self._made(key, silent)

    def wide(self, key: Key) -> Additive:
        return self._made(key, lambda module: module)


class Epinet(Indexed):
    """The network's output plus z'(learned + fixed), for an index z ~ N(0, I) of some width.

    The learned part is a small network of what the main one sees at its last hidden units, the
    features and z; it does not teach the main one. The fixed part is `width` networks of the
    features, drawn once and for all. Before data the sum is z'fixed / sqrt(width), whose width is
    that of the networks drawn.

    hidden: units of the small learned network.
    prior: key -> network for the fixed part, by default a `GaussianMLP` with 5 and 5 hidden units.
    scale: what the fixed part is multiplied by.
    indices: how many models a step averages over.
    """

    width: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True)
    prior: Callable[[Key], Any]
    scale: float
    indices: int = eqx.field(static=True)

    def __init__(
        self,
        learner: Network,
        width: int = 8,
        hidden: tuple[int, ...] = (15, 15),
        prior: Callable[[Key], Any] | None = None,
        scale: float = 1.0,
        indices: int = 8,
        perturbed: bool = True,
        inflation: float = 1.0,
    ):
        made = eqx.filter_eval_shape(layered("Epinet", learner).make, some_key())
        last = made.weights[-1].shape
        outputs = None if len(last) == 1 else last[0]
        self.width = checks.size("width", width)
        self.hidden = hidden
        self.prior = modules.configured(
            GaussianMLP(learner.dim, (5, 5), outputs) if prior is None else prior
        )
        self.scale = checks.positive("scale", scale)
        self.indices = checks.size("indices", indices)
        head = GaussianMLP(last[-1] + learner.dim + width, hidden, width * (outputs or 1))
        make = MakeAdditive(learner.make, head, self.prior, self.scale * inflation, self.width)
        super().__init__(
            dataclasses.replace(learner, make=make, indices=self.indices), perturbed, inflation
        )

    @property
    def label(self) -> str:
        return f"epinet, index of {self.width}"
