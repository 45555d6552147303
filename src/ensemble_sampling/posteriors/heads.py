"""Networks whose output has a random part beside the main one: epinets and Ensemble++."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Model, Wrapper, some_key
from ..learners.linear import Linear
from ..learners.modules import Frozen, as_config
from ..learners.network import Network
from ..networks import MLP, GaussianMLP
from .ensemble import Ensemble, Gaussian, Unperturbed
from .indexed import Indexed, plain_network, stacked_draws


def _layered(name: str, learner: Any) -> tuple[Network, MLP]:
    """The learner and the shapes of its `MLP`, which has hidden units to look at."""
    made = eqx.filter_eval_shape(plain_network(name, learner).make, some_key())
    if not isinstance(made, MLP):
        raise TypeError(f"{name} takes a Network of an MLP, as GaussianMLP makes it, got {made!r}")
    return learner, made


def silent(module: MLP) -> MLP:
    """With an output of zero, to be learned, from hidden units as drawn."""
    return eqx.tree_at(lambda m: m.weights[-1], module, replace_fn=jnp.zeros_like)


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

    def __call__(self, key: Key) -> Additive:
        drawn = self.wide(key)
        return Additive(silent(drawn.base), silent(drawn.head), drawn.prior, self.width)

    def wide(self, key: Key) -> Additive:
        base, head, prior = jax.random.split(key, 3)
        scale = jnp.asarray(self.scale, float) / jnp.sqrt(self.width)
        priors = Priors(eqx.filter_vmap(self.prior)(jax.random.split(prior, self.width)))
        return Additive(self.make(base), self.head(head), Frozen(priors, scale), self.width)


class Epinet(Indexed):
    """The network's output plus z'(learned + fixed), for an index z ~ N(0, I) of some width
    (Osband et al., 2023).

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
        learner, made = _layered("Epinet", learner)
        *outputs, units = made.weights[-1].shape  # the output is a number, or a vector
        self.width = checks.size("width", width)
        self.hidden = hidden
        default = GaussianMLP(learner.dim, (5, 5), outputs[0] if outputs else None)
        self.prior = as_config(default if prior is None else prior)
        self.scale = checks.positive("scale", scale)
        self.indices = checks.size("indices", indices)
        checks.positive("inflation", inflation)
        head = GaussianMLP(units + learner.dim + width, hidden, width * math.prod(outputs))
        make = MakeAdditive(learner.make, head, self.prior, self.scale * inflation, self.width)
        learner = dataclasses.replace(learner, make=make, indices=self.indices)
        super().__init__(learner, perturbed, inflation)

    @property
    def label(self) -> str:
        return f"epinet, index of {self.width}"


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
        return factor * stacked_draws(lambda k: self.make(k).weights[-1], key, self.members)

    def __call__(self, key: Key) -> Heads:
        base = silent(self.make(key))
        return Heads(base, self._factors(key, self.inflation), self.continuous)

    def wide(self, key: Key) -> Heads:
        return Heads(self.make(key), self._factors(key, self.members**0.5), self.continuous)


class EnsemblePlus(Wrapper):
    """Ensemble++ (Li et al., 2024): a mean model and `members` factors around it. A sample is
    mean + z'factors for a random z.

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
        checks.positive("inflation", inflation)
        if isinstance(learner, Linear):
            noise = Gaussian() if checks.flag("perturbed", perturbed) else Unperturbed()
            self.posterior = Ensemble(learner, members, noise, inflation)
        elif isinstance(learner, Network):
            make = _layered("EnsemblePlus", learner)[0].make
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
