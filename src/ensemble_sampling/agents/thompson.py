"""Thompson sampling: draw a plausible model, act greedily under it."""

from typing import Any

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Agent, Key, Learner, Posterior, fact, taken
from ..posteriors.ensemble import Ensemble, Gaussian, Perturbation
from ..posteriors.point import Point
from .greedy import greedy, votes


class ThompsonSampling(eqx.Module):
    """Draw a plausible model from the posterior and act greedily under it.

    `probabilities` is exact for a posterior of finitely many models and otherwise the share of
    `draws` sampled models that choose each action.
    """

    posterior: Posterior
    draws: int = eqx.field(static=True, default=1000)
    arms = taken("posterior", "arms")
    context = taken("posterior", "context")
    dim = taken("posterior", "dim")
    columns = taken("posterior", "columns")
    reward = taken("posterior", "reward")
    host = taken("posterior", "host")
    label = taken("posterior", "label")
    check_outcome = taken("posterior", "check_outcome")

    def __repr__(self) -> str:
        """As it would be written: the short form of those that have one."""
        if self.draws == 1000 and type(self.posterior) in (Ensemble, Point):
            maker = EnsembleSampling if isinstance(self.posterior, Ensemble) else Greedy
            return short(self.posterior, maker)
        return short(self)

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.size("draws", self.draws)

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        features = checks.offer(features)
        model_key, tie_key = jax.random.split(checks.key(key))
        return greedy(tie_key, self.posterior.sample(model_key, state)(features), available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        return self.posterior.update(key, state, checks.action(action), checks.outcome(outcome))

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        return self.chances(state, self.values(key, state, features), available, False)

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What each of the models thinks the actions are worth (S, K)."""
        return self.posterior.values(key, state, features, self.draws)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the models think of them."""
        return votes(self.posterior, state, values, self.draws, available, settled)

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        return fact(self.posterior, "diverged")(state)


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
