"""Ensemble++ (Li et al., 2024): an ensemble's spread around one mean, sampled by a random index."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Model, Wrapper
from ..learners.linear import Linear
from ..learners.network import Network
from ..networks import MLP
from .ensemble import Ensemble, Gaussian, Unperturbed
from .indexed import Indexed, layered, several, silent


def _index(key: Key, members: int, continuous: bool) -> Array:
    """z with E zz' = I: normal, or sqrt(members) at one of its entries."""
    if continuous:
        return jax.random.normal(key, (members,))
    return jnp.sqrt(members) * jax.nn.one_hot(jax.random.randint(key, (), 0, members), members)


class Heads(eqx.Module):
    """base(x) + z'factors applied to its last hidden units, which learn from the base alone."""

    base: MLP
    factors: Array
    continuous: bool = eqx.field(static=True)

    def index(self, key: Key) -> Array:
        return _index(key, len(self.factors), self.continuous)

    def at(self, index: Array) -> Callable[[Array], Array]:
        spread = jnp.tensordot(index, self.factors, 1)

        def model(x: Array) -> Array:
            units = self.base.hidden(x)
            return self.base.read(units, spread @ jax.lax.stop_gradient(units))

        return model

    def __call__(self, x: Array) -> Array:
        return self.base(x)


class MakeHeads(eqx.Module):
    """A silent base and factors that make the output layer of every index a draw of the prior."""

    make: Callable[[Key], Any]
    inflation: float
    members: int = eqx.field(static=True)
    continuous: bool = eqx.field(static=True)

    def _factors(self, key: Key, factor: Array | float) -> Array:
        return factor * several(lambda k: self.make(k).weights[-1], key, self.members)

    def __call__(self, key: Key) -> Heads:
        base = silent(self.make(key))
        return Heads(base, self._factors(key, self.inflation), self.continuous)

    def wide(self, key: Key) -> Heads:
        return Heads(self.make(key), self._factors(key, self.members**0.5), self.continuous)


class EnsemblePlus(Wrapper):
    """A mean model and `members` factors around it: a sample is mean + z'factors for a random z.

    Factors learn as the members of an ensemble do, each from its own prior draw and its own
    perturbations, but stand for their distance to the mean over sqrt(members). For z of
    sqrt(members) at one entry and zero elsewhere a sample is then a member; for z ~ N(0, I) it is
    any of infinitely many models with the members' covariance.

    learner: `Linear`, whose factors are learned exactly and step by step, or a `Network` of an
        `MLP`, whose output layer has factors on hidden units that only the mean teaches.
    continuous: whether z is normal, or one of the members.
    indices: how many models a network's step averages over.
    """

    posterior: Ensemble | Indexed
    members: int = eqx.field(static=True)
    continuous: bool = eqx.field(static=True)
    wraps = "posterior"
    __repr__ = short

    def __init__(
        self,
        learner: Linear | Network,
        members: int = 10,
        continuous: bool = True,
        indices: int = 10,
        perturbed: bool = True,
        inflation: float = 1.0,
    ):
        self.members = checks.size("members", members)
        self.continuous = checks.flag("continuous", continuous)
        if isinstance(learner, Linear):
            noise = Gaussian() if checks.flag("perturbed", perturbed) else Unperturbed()
            self.posterior = Ensemble(learner, members, noise, inflation)
        elif isinstance(learner, Network):
            make = layered("EnsemblePlus", learner).make
            heads = MakeHeads(make, inflation, self.members, self.continuous)
            changed = dataclasses.replace(learner, make=heads, indices=indices)
            self.posterior = Indexed(changed, perturbed, inflation)
        else:
            raise TypeError(f"EnsemblePlus takes a Linear or a Network, got {learner!r}")

    @property
    def learner(self) -> Any:
        return self.posterior.learner

    @property
    def inflation(self) -> Any:
        return self.posterior.inflation

    @property
    def label(self) -> str:
        return f"Ensemble++, {self.members} factor{'s' if self.members > 1 else ''}"

    def init(self, key: Key) -> Any:
        return self.posterior.init(key)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.model(belief, _index(key, self.members, self.continuous))

    def model(self, belief: Any, index: Array) -> Model:
        """The model of one index."""
        if isinstance(self.posterior, Indexed):
            return self.posterior.model(belief, index)
        shared, members = belief
        weights = index / jnp.sqrt(self.members)
        distance = jax.tree.map(lambda u: jnp.tensordot(weights, u, 1), members)
        return eqx.Partial(self.learner.predict, shared, distance)

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        return self.posterior.update(key, belief, action, outcome)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        index = jnp.sqrt(self.members) * jnp.eye(self.members)
        if self.continuous:
            index = jax.random.normal(key, (draws, self.members))
        return jax.vmap(lambda z: self.model(belief, z)(features))(index)

    def diverged(self, belief: Any) -> Array:
        return self.posterior.diverged(belief)
