"""Dropout as a posterior (Gal & Ghahramani, 2016): a random mask is a plausible model."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..core import Key, Model, some_key
from ..learners.network import Network
from ..networks import Readout, true_gradient
from .exact import LearnerPosterior


def _drops(part: Any) -> bool:
    return isinstance(part, eqx.nn.Dropout)


class Dropout(LearnerPosterior):
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
        if not isinstance(learner, Network):
            raise TypeError(f"Dropout takes a Network, got {learner!r}")
        if not callable(readout):
            raise TypeError(f"readout must be a function, such as true_gradient, got {readout!r}")
        checks.scalar("rate", rate, low=0.0, high=1.0)
        checks.flag("coherent", coherent)
        module = eqx.filter_eval_shape(learner.make, some_key())
        if not hasattr(module, "masked") and not any(
            map(_drops, jax.tree.leaves(module, is_leaf=_drops))
        ):
            raise ValueError(
                f"{type(module).__name__} has no dropout: use MLP, or a module with a method "
                "masked(x, key, rate, readout), or one with eqx.nn.Dropout inside"
            )
        self.learner = dataclasses.replace(learner, dropout=rate, readout=readout)
        self.coherent = coherent

    @property
    def rate(self) -> Any:
        return self.learner.dropout

    @property
    def readout(self) -> Readout:
        return self.learner.readout

    @property
    def label(self) -> str:
        return f"dropout {float(self.rate):g}"

    def sample(self, key: Key, belief: Any) -> Model:
        return eqx.Partial(self._values, key, belief)

    def _values(self, key: Key, belief: Any, features: Array) -> Array:
        keys = jax.random.split(key, features.shape[0])
        if self.coherent:
            keys = jax.numpy.broadcast_to(key, features.shape[:1])
        shared, model = belief
        return self.learner.predict(shared, model, features, keys)
