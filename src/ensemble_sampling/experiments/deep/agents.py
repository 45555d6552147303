"""The agents of the study and their settings, each for a world of numbered states."""

from functools import partial
from typing import Any

import optax

from ...agents.point import Annealed
from ...episodes import DQN, RLSVI, BootstrappedDQN, Lookup
from ...learners.modules import RandomisedPrior
from ...learners.network import Network
from ...posteriors.ensemble import Bernoulli, Unperturbed

MEMBERS = 20
OPTIMIZER = partial(optax.adagrad, initial_accumulator_value=0.0)
"""Few steps see any one state, and Adam's momentum would carry its row on after each."""
PRIOR = 0.3
"""Large enough that some unseen state is always worth a look, and less than the treasure."""


def network(world: Any, prior: float | None) -> Network:
    """A value for every state and action, with a prior function of that scale, if any."""
    sizes = world.states, world.actions
    make = Lookup(*sizes, prior_std=0.01)
    make = make if prior is None else RandomisedPrior(Lookup(*sizes), prior)
    settings: Any = {"learning_rate": 0.3, "optimizer": OPTIMIZER, "prior_std": 1.0}
    return Network(make, 1, 1, 0.1, arms=world.actions, **settings)


def bootstrapped(
    world: Any, members: int = MEMBERS, prior: float | None = PRIOR, discount: float = 1.0
) -> BootstrappedDQN:
    """Where nothing is random, members need only differ by their priors."""
    options: Any = {"discount": discount, "trace": 1.0, "steps": 4}
    return BootstrappedDQN(network(world, prior), members, Unperturbed(), **options)


def masked(world: Any) -> BootstrappedDQN:
    """Every member learns from half of the episodes, with twice the weight: what half of them have
    not seen is looked at again, and where outcomes are certain the weights change nothing."""
    options: Any = {"discount": 1.0, "trace": 0.7, "steps": 4, "capacity": 2000}
    return BootstrappedDQN(network(world, PRIOR), MEMBERS, Bernoulli(), **options)


def dithering(world: Any, epsilon: float | None = None, discount: float = 1.0) -> DQN:
    """One network and random actions: a share `epsilon`, or k / (k + t) of them in episode t."""
    options: Any = {"discount": discount, "trace": 1.0, "steps": 4}
    return DQN(network(world, None), Annealed(100.0) if epsilon is None else epsilon, **options)


def least_squares(world: Any, noise_std: float = 0.01, prior: float = PRIOR) -> RLSVI:
    """For a world without noise, where an action always leads to the same state."""
    return RLSVI(world.states, world.actions, world.limit, noise_std, prior, branches=1)


def learned_noise(world: Any) -> RLSVI:
    """For a world in which a few states are noisy."""
    sizes = world.states, world.actions, world.limit
    return RLSVI(*sizes, noise_std=0.03, prior_std=1.0, noise_count=2.0, branches=2)
