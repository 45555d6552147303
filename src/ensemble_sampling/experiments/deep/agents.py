"""The agents of the study and their settings, each for a world."""

from functools import partial
from typing import Any

import optax

from ...agents.point import Annealed
from ...episodes import DQN, RLSVI, BootstrappedDQN, Lookup, World
from ...learners.modules import RandomisedPrior
from ...learners.network import Network
from ...posteriors.ensemble import Gaussian, Unperturbed

MEMBERS = 20
OPTIMIZER = partial(optax.adagrad, initial_accumulator_value=0.0)
"""Rows of a table are seen by few steps each, and Adam's momentum would carry them on."""
LEARNING: Any = {"discount": 1.0, "trace": 1.0, "steps": 4, "batch": 32}


def network(world: Any, prior: float | None, noise_std: float) -> Network:
    """A network over the states of a world, with a prior function of that scale, if any."""
    values = Lookup(world.states, world.actions, (50,))
    make = values if prior is None else RandomisedPrior(values, prior)
    return Network(make, 1, 1, noise_std, learning_rate=0.1, optimizer=OPTIMIZER, arms=2)


def bootstrapped(world: World, members: int = MEMBERS, prior: float | None = 0.3) -> Any:
    """Without noise in rewards, members differ by their prior functions, or initial weights."""
    return BootstrappedDQN(network(world, prior, 0.1), members, Unperturbed(), **LEARNING)


def perturbed(world: World, members: int = MEMBERS, prior: float = 0.3) -> Any:
    """For noisy rewards, which members see perturbed."""
    return BootstrappedDQN(network(world, prior, 1.0), members, Gaussian(), **LEARNING)


def dithering(world: World, epsilon: float | None = None) -> DQN:
    """One network and random actions: a share of 0.1, or k / (k + t) of the episode t."""
    schedule = Annealed(20.0) if epsilon is None else epsilon
    return DQN(network(world, None, 0.1), schedule, **LEARNING)


def least_squares(world: Any) -> RLSVI:
    return RLSVI(world.states, world.actions, world.limit, 0.05, 0.3, branches=2)
