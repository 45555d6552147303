"""Dropout as a posterior (Gal & Ghahramani, 2016): a random mask is a plausible model."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..core import Action, Key, Model, Noise
from ..learners.network import Network
from ..networks import Readout, true_gradient


class Dropout(eqx.Module):
    """One network learned with dropout at `rate`; a sample leaves units out at random.

    `coherent` keeps one mask for all actions of a decision, which makes the sample a model; the
    published experiments drew a mask for every action. A module with `eqx.nn.Dropout` layers of
    its own is called with `key=` and keeps their rate.
    """

    learner: Network
    coherent: bool = eqx.field(static=True)

    def __init__(
        self,
        learner: Network,
        rate: float,
        coherent: bool = False,
        readout: Readout = true_gradient,
    ):
        checks.scalar("rate", rate, low=0.0, high=1.0)
        module = eqx.filter_eval_shape(learner.make, jax.random.key(0))
        layer = lambda part: isinstance(part, eqx.nn.Dropout)  # noqa: E731
        if not hasattr(module, "masked") and not any(
            map(layer, jax.tree.leaves(module, is_leaf=layer))
        ):
            raise ValueError(
                f"{type(module).__name__} has no dropout: use MLP, or a module with a method "
                "masked(x, key, rate, readout), or one with eqx.nn.Dropout inside"
            )
        self.learner = dataclasses.replace(learner, dropout=rate, readout=readout)
        self.coherent = coherent

    @property
    def label(self) -> str:
        rate: Any = self.learner.dropout
        return f"dropout {float(rate):g}"

    def init(self, key: Key) -> Any:
        return self.learner.center(key)

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self._values, key, belief)

    def _values(self, key: Key, belief: Any, features: Array) -> Array:
        keys = jax.random.split(key, features.shape[0])
        if self.coherent:
            keys = jax.numpy.broadcast_to(key, features.shape[:1])
        return self.learner.predict_masked(belief[1], features, keys)

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        shared, model = belief
        return self.learner.observe(key, shared, model, action, outcome, Noise())

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        return jax.vmap(lambda k: self.sample(k, belief)(features))(jax.random.split(key, draws))

    def diverged(self, belief: Any) -> Array:
        return self.learner.diverged(belief[1])
