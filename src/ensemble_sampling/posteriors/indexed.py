"""What hypermodels, epinets and their like share: one network, and a random index into it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Action, Key, Model, Noise, some_key
from ..learners.modules import is_frozen
from ..learners.network import Network
from ..networks import MLP
from .base import LearnerPosterior


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


def network(name: str, learner: Any) -> Network:
    """A `Network` without dropout or an index, on which `name` can build."""
    if not isinstance(learner, Network):
        raise TypeError(f"{name} takes a Network, got {learner!r}")
    if learner.dropout is not None or learner.indices is not None:
        raise ValueError(f"{name} takes a plain Network, got one with dropout or an index")
    made = eqx.filter_eval_shape(learner.make, some_key())
    if any(map(is_frozen, jax.tree.leaves(made, is_leaf=is_frozen))):
        raise ValueError(
            f"{name} draws all weights of a network, and this one has some that are never learned: "
            f"give it the plain network, without RandomisedPrior; got {learner.make!r}"
        )
    return learner


def layered(name: str, learner: Any) -> Network:
    """A `Network` of an `MLP`, which has hidden units to look at."""
    made = eqx.filter_eval_shape(network(name, learner).make, some_key())
    if not isinstance(made, MLP):
        raise TypeError(f"{name} takes a Network of an MLP, as GaussianMLP makes it, got {made!r}")
    return learner


def silent(module: MLP) -> MLP:
    """With an output of zero, to be learned, from hidden units as drawn."""
    return eqx.tree_at(lambda m: m.weights[-1], module, replace_fn=jnp.zeros_like)


def several(draw: Any, key: Key, count: int) -> Any:
    """`count` draws side by side, divided by the root of it: their sum is as wide as one."""
    drawn = jax.vmap(draw)(jax.random.split(key, count))
    return jax.tree.map(lambda w: w / jnp.sqrt(count), drawn)
