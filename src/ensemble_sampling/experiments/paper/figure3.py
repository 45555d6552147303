"""Figure 3: a bandit whose mean rewards are a two-layer network's output (Section 5.2)."""

import dataclasses
from collections.abc import Iterable

import optax

from ...agents.point import Annealed, Constant, EpsilonGreedy
from ...agents.thompson import EnsembleSampling, ThompsonSampling
from ...core import Agent
from ...learners.network import Network
from ...networks import GaussianMLP, published_gradient
from ...posteriors.dropout import Dropout
from ...worlds.features import NetworkBandit
from ..panels import Figure
from ..regret import Experiment
from .published import REALIZATIONS, published

PERIODS, PRIOR_STD, NOISE_STD = 500, 1.0, 10.0

environment = NetworkBandit(dim=100, arms=100, hidden=50, noise_std=NOISE_STD, prior_std=PRIOR_STD)
learner = Network(
    GaussianMLP(dim=100, hidden=(50,), prior_std=PRIOR_STD),
    dim=100,
    capacity=PERIODS,
    noise_std=NOISE_STD,
    prior_std=PRIOR_STD,
    learning_rate=0.1,
    steps=3,
    batch=64,
    optimizer=optax.sgd,
)


def dropout(rate: float, learning_rate: float) -> Agent:
    """Dropout as published, with the gradient of the code behind the figure."""
    slower = dataclasses.replace(learner, learning_rate=learning_rate)
    return ThompsonSampling(Dropout(slower, rate, readout=published_gradient))


def curves(
    name: str, title: str, agents: Iterable[Agent], laptop: int, effort: float
) -> Experiment:
    return Experiment(
        name,
        environment,
        tuple(agents),
        PERIODS,
        REALIZATIONS,
        title,
        laptop,
        effort,
        published=published(name),
        published_realizations=REALIZATIONS,
    )


FIXED = curves(
    "3a",
    "Fixed ε-greedy",
    (EpsilonGreedy(learner, Constant(epsilon)) for epsilon in (0.05, 0.1, 0.2, 0.3)),
    laptop=100,
    effort=0.2,
)
ANNEALED = curves(
    "3b",
    "Annealing ε-greedy",
    (EpsilonGreedy(learner, Annealed(k)) for k in (10, 30, 50, 70)),
    laptop=100,
    effort=0.2,
)
DROPOUT = curves(
    "3c",
    "Dropout",
    map(dropout, (0.25, 0.5, 0.75, 0.9), (0.01, 0.01, 0.02, 0.05)),
    laptop=100,
    effort=0.3,
)
ENSEMBLES = curves(
    "3d",
    "Ensemble sampling",
    (EnsembleSampling(learner, members) for members in (5, 10, 30, 50)),
    laptop=32,
    effort=3.0,
)

FIGURE = Figure(
    3,
    "two-layer network bandit",
    "(a) Fixed ε-greedy, (b) annealing ε-greedy, (c) dropout and (d) ensemble sampling applied to "
    "a bandit whose mean rewards are a two-layer network's output.",
    (FIXED, ANNEALED, DROPOUT, ENSEMBLES),
)
