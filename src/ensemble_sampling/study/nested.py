"""Ensembles and problems of many sizes in one compiled program: only the first part of them counts.

The first members of an ensemble behave as an ensemble of that size does, draw for draw, and so do
the first Gaussian arms. How many count is traced, so that a search over sizes compiles once.
"""

from dataclasses import replace
from itertools import count
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..agents.thompson import ThompsonSampling
from ..core import Action, ConjugateLearner, Environment, Key, Model, Round
from ..learners.arms import IndependentArms
from ..posteriors.ensemble import Ensemble
from ..worlds.arms import GaussianArms


class FirstMembers(eqx.Module):
    """An ensemble of which only the first `members` (traced) are sampled."""

    ensemble: Ensemble
    members: Any

    @property
    def label(self) -> str:
        return f"{int(self.members)} model{'s' if self.members > 1 else ''}"

    def init(self, key: Key) -> Any:
        return self.ensemble.init(key)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.ensemble.model(belief, jax.random.randint(key, (), 0, self.members))

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        return self.ensemble.update(key, belief, action, outcome)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        values = self.ensemble.values(key, belief, features, draws)
        return values[jax.random.randint(key, (draws,), 0, self.members)]


class FirstArms(eqx.Module):
    """Gaussian arms of which only the first `arms` (traced) are on offer."""

    environment: GaussianArms
    arms: Any

    def init(self, key: Key) -> Array:
        return self.environment.init(key)

    def offer(self, key: Key, world: Array) -> Round:
        offer = self.environment.offer(key, world)
        return offer._replace(available=jnp.arange(self.environment.arms) < self.arms)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        return self.environment.outcome(key, world, action)


def accelerated() -> bool:
    """Whether compiling takes longer than running, and many lanes hardly longer than few."""
    return jax.default_backend() != "cpu"


def padded_members(members: int) -> int:
    """The size to compile for.

    On a CPU members that are never sampled cost their share, so sizes are close: 32, 48, 64, 96...
    An accelerator hardly notices them, and compiles for longer than it runs: 128, 256, ...
    """
    steps = (128,) if accelerated() else (32, 48)
    sizes = (size * 2**doublings for doublings in count() for size in steps)
    return next(size for size in sizes if size >= members)


def padded_arms(arms: int) -> int:
    """How many Gaussian arms to compile for: on an accelerator 50, 100, 200, ..."""
    if not accelerated():
        return arms
    return next(size for size in (50 * 2**doublings for doublings in count()) if size >= arms)


def nested_ensemble(learner: ConjugateLearner, members: int) -> ThompsonSampling:
    """Ensemble sampling with so many members, in a program that other sizes share."""
    last = isinstance(learner, IndependentArms) and jax.default_backend() == "gpu"
    ensemble = Ensemble(learner, padded_members(members), members_last=last)
    return ThompsonSampling(FirstMembers(ensemble, members))


def nested_problem(
    learner: ConjugateLearner, environment: Environment
) -> tuple[ConjugateLearner, Environment]:
    """The same problem, in programs that problems with other numbers of arms share.

    Only where that pays, and not for subclasses, which may do something else with their arms.
    """
    if accelerated() and type(learner) is IndependentArms and type(environment) is GaussianArms:
        size, arms = padded_arms(environment.arms), environment.arms
        return replace(learner, arms=size), FirstArms(replace(environment, arms=size), arms)
    return learner, environment
