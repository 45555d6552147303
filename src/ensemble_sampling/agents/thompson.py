"""Thompson sampling: draw a plausible model, act greedily under it."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..config import short
from ..core import Agent, Key, Learner, Posterior
from ..posteriors.ensemble import Ensemble, Gaussian, Perturbation
from ..posteriors.point import Point
from .base import SamplingAgent
from .greedy import greedy


class ThompsonSampling(SamplingAgent):
    """Draw a plausible model from the posterior and act greedily under it.

    `probabilities` is exact for a posterior of finitely many models and otherwise the share of
    `draws` sampled models that choose each action.
    """

    posterior: Posterior
    draws: int = eqx.field(static=True, default=1000)

    def __repr__(self) -> str:
        """As it would be written: the short form of those that have one."""
        if self.draws == 1000 and type(self.posterior) in (Ensemble, Point):
            maker = EnsembleSampling if isinstance(self.posterior, Ensemble) else Greedy
            return short(self.posterior, maker)
        return short(self)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        model_key, tie_key = jax.random.split(checks.key(key))
        return greedy(tie_key, self.posterior.sample(model_key, state)(features), available)


def EnsembleSampling(
    learner: Learner,
    members: int,
    perturbation: Perturbation | None = None,
    inflation: float = 1.0,
) -> ThompsonSampling:
    """Ensemble sampling (Algorithm 1): Thompson sampling over an `Ensemble` of the learner."""
    perturbation = Gaussian() if perturbation is None else perturbation
    return ThompsonSampling(Ensemble(learner, members, perturbation, inflation))


def Greedy(learner: Learner) -> ThompsonSampling:
    """Always the best action under one best model: Thompson sampling over a `Point`."""
    return ThompsonSampling(Point(learner))


def as_agent(thing: Any) -> Agent:
    """An agent as it is; a posterior as Thompson sampling over it."""
    if isinstance(thing, type):
        raise TypeError(f"agent must be an object: write {thing.__name__}(...), not the class")
    if hasattr(thing, "act"):
        return checks.part("agent", thing, "init", "act", "update", "probabilities")
    if hasattr(thing, "sample"):
        return ThompsonSampling(thing)
    raise TypeError(
        "expected an agent (with act) or a posterior (with sample): wrap a learner as in "
        f"EnsembleSampling(learner, members=30); got {thing!r}"
    )
