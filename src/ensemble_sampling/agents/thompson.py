"""Thompson sampling, and what all agents that act on a posterior have in common."""

from inspect import isfunction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Agent, Key, Learner, Posterior, Wrapper, fact
from ..posteriors.ensemble import Ensemble, Gaussian, Perturbation
from ..posteriors.exact import Point
from .greedy import greedy, shares


class PosteriorAgent(Wrapper):
    """Learns by its posterior, whose belief is its state or the first part of it, and chooses an
    action as often as `draws` plausible models vote for it, unless a subclass says otherwise."""

    posterior: Any
    draws = 1
    wraps = "posterior"
    __repr__ = short

    def __check_init__(self) -> None:
        learner = hasattr(self.posterior, "observe") and not hasattr(self.posterior, "sample")
        if learner and not isinstance(self.posterior, type):
            name = type(self.posterior).__name__
            raise TypeError(
                f"ThompsonSampling samples from a posterior, and {name} is a learner: write "
                f"ThompsonSampling(Exact({name}(...))) or EnsembleSampling({name}(...), members=30)"
            )
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.size("draws", self.draws)

    def belief(self, state: Any) -> Any:
        """What the posterior knows."""
        return state

    def init(self, key: Key) -> Any:
        return self.posterior.init(checks.key(key))

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        action, outcome = checks.action(action), checks.outcome(outcome)
        return self.posterior.update(checks.key(key), self.belief(state), action, outcome)

    def values(self, key: Key, state: Any, features: Array) -> Array:
        """What each of the models thinks the actions are worth (S, K)."""
        return self.posterior.values(key, self.belief(state), features, self.draws)

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        values_key, choice_key = jax.random.split(checks.key(key))
        chances = self.probabilities(state, features, available, values_key)
        return jax.random.categorical(choice_key, jnp.log(chances)).astype(jnp.int32)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = checks.offer(features)
        key = jax.random.key(0) if key is None else checks.key(key)
        return self.chances(state, self.values(key, state, features), available, False)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the models think of them."""
        each = shares(values, available, settled)
        weights = fact(self.posterior, "weights")(self.belief(state), self.draws)
        return each.mean(axis=0) if weights is None else weights @ each

    def changes(self, state: Any) -> Any:
        """What its posterior noticed of a world that changes."""
        return fact(self.posterior, "changes")(self.belief(state))

    def diverged(self, state: Any) -> Array | int:
        """How often models had to be put back to their start."""
        return fact(self.posterior, "diverged")(self.belief(state))


class ThompsonSampling(PosteriorAgent):
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
    if isinstance(thing, type) or isfunction(thing):
        raise TypeError(f"agent must be an object: write {thing.__name__}(...), not the class")
    if hasattr(thing, "act"):
        return checks.part("agent", thing, "init", "act", "update", "probabilities")
    if hasattr(thing, "sample"):
        return ThompsonSampling(thing)
    if isinstance(thing, str | list | tuple | dict):
        raise TypeError(
            f"expected an agent, got {checks.shown(thing)}: actions are named by "
            "Bandit(actions=[...]), a folder is opened by Bandit.open(folder), and several agents "
            "are simulated one after another"
        )
    if hasattr(thing, "offer"):
        raise TypeError(f"expected an agent first, then a world; got the world {thing!r}")
    raise TypeError(
        "expected an agent (with act) or a posterior (with sample): wrap a learner as in "
        f"EnsembleSampling(learner, members=30); got {thing!r}"
    )
