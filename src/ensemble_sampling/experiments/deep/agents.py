"""The agents of the study and their settings, each for a world of numbered states."""

from functools import partial
from typing import Any

import optax

from ...agents.point import Annealed
from ...episodes import DQN, PSRL, RLSVI, BootstrappedDQN, Lookup
from ...learners.modules import RandomisedPrior
from ...learners.network import Network
from ...posteriors.ensemble import Bernoulli, Unperturbed

MEMBERS = 20
OPTIMIZER = partial(optax.adagrad, initial_accumulator_value=0.0)
"""Few steps see any one state, and Adam's momentum would carry its row on after each."""
PRIOR = 0.3
"""Large enough that some unseen state is always worth a look, and less than the treasure."""


def table(world: Any, prior: float | None) -> Network:
    """A number of its own for every state and action, with a prior function of that scale, if any:
    no hidden layers, so that nothing is learned of one state from another."""
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
    return BootstrappedDQN(table(world, prior), members, Unperturbed(), **options)


def masked(world: Any) -> BootstrappedDQN:
    """Every member learns from half of the episodes, with twice the weight: what half of them have
    not seen is looked at again, and where outcomes are certain the weights change nothing."""
    options: Any = {"discount": 1.0, "trace": 0.7, "steps": 4, "capacity": 2000}
    return BootstrappedDQN(table(world, PRIOR), MEMBERS, Bernoulli(), **options)


def dithering(world: Any, epsilon: float | None = None, discount: float = 1.0) -> DQN:
    """One network and random actions: a share `epsilon`, or k / (k + t) of them in episode t."""
    options: Any = {"discount": discount, "trace": 1.0, "steps": 4}
    return DQN(table(world, None), Annealed(100.0) if epsilon is None else epsilon, **options)


def layers(world: Any, prior: bool) -> Network:
    """bsuite's baseline: two layers of 50 on the cell as a one-hot input, by Adam.

    Its layers are drawn so that outputs spread by about 1 / (2 N) in a sea of size N; its prior
    functions are 5 times that, and what it learns starts there where it has none.
    """
    size = world.states**0.5
    make = Lookup(world.states, world.actions, (50, 50), prior_std=0.5 / size)
    drawn = RandomisedPrior(make, 5.0) if prior else make
    settings: Any = {"learning_rate": 1e-3, "optimizer": optax.adam, "prior_std": 1.0}
    return Network(drawn, 1, 1, 0.1, arms=world.actions, **settings)


def baseline(world: Any, members: int = MEMBERS, prior: bool = True) -> BootstrappedDQN:
    """bsuite's settings: a gradient step for every step taken, on 128 or a few more earlier ones,
    and one-step targets, here by the values that a member had when the episode ended."""
    options: Any = {"discount": 0.99, "trace": 0.0, "steps": world.limit}
    options["batch"] = -(-128 // world.limit)
    return BootstrappedDQN(layers(world, prior), members, Unperturbed(), **options)


def baseline_dithering(world: Any, epsilon: float) -> DQN:
    values = baseline(world, 1, False)
    options = {name: getattr(values, name) for name in ("discount", "trace", "steps", "batch")}
    return DQN(values.network, epsilon, **options)


def sampled(world: Any) -> PSRL:
    """Rewards have little noise, and most moves lead to few states."""
    sizes = world.states, world.actions, world.limit
    return PSRL(*sizes, noise_std=0.1, prior_count=1 / world.states)


def swimmer(world: Any) -> RLSVI:
    """Where it is chance that decides where a move leads."""
    return RLSVI(world.states, world.actions, world.limit, noise_std=0.5, prior_std=3.0)


def least_squares(world: Any, noise_std: float = 0.01, prior: float = PRIOR) -> RLSVI:
    """For a world without noise, where an action always leads to the same state."""
    return RLSVI(world.states, world.actions, world.limit, noise_std, prior, branches=1)


def learned_noise(world: Any) -> RLSVI:
    """For a world in which a few states are noisy."""
    sizes = world.states, world.actions, world.limit
    return RLSVI(*sizes, noise_std=0.03, prior_std=1.0, noise_count=2.0, branches=2)
