"""Figure 3: a bandit whose mean rewards are a two-layer network's output (Section 5.2)."""

import dataclasses

import optax

from ...agents.point import Annealed, Constant, EpsilonGreedy
from ...agents.thompson import EnsembleSampling, ThompsonSampling
from ...core import Agent
from ...learners.network import Network
from ...networks import GaussianMLP, published_gradient
from ...posteriors.dropout import Dropout
from ...worlds.features import NetworkBandit
from ..panels import Figure
from .published import beside_published

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


FIXED = beside_published(
    "3a",
    "Fixed ε-greedy",
    environment,
    (EpsilonGreedy(learner, Constant(epsilon)) for epsilon in (0.05, 0.1, 0.2, 0.3)),
    laptop=100,
    effort=0.2,
)
ANNEALED = beside_published(
    "3b",
    "Annealing ε-greedy",
    environment,
    (EpsilonGreedy(learner, Annealed(k)) for k in (10, 30, 50, 70)),
    laptop=100,
    effort=0.2,
)
DROPOUT = beside_published(
    "3c",
    "Dropout",
    environment,
    map(dropout, (0.25, 0.5, 0.75, 0.9), (0.01, 0.01, 0.02, 0.05)),
    laptop=100,
    effort=0.3,
)
ENSEMBLES = beside_published(
    "3d",
    "Ensemble sampling",
    environment,
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
