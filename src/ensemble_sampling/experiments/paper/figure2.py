"""Figure 2: a bandit whose mean rewards are a single neuron's output (Section 5.2)."""

import optax

from ...agents.point import Annealed, Constant, EpsilonGreedy
from ...agents.thompson import EnsembleSampling
from ...learners.network import Network
from ...networks import GaussianMLP
from ...worlds.features import NeuronBandit
from ..panels import Figure
from .published import beside_published

PERIODS, PRIOR_STD, NOISE_STD = 2_000, 10**0.5, 10.0

environment = NeuronBandit(dim=100, arms=100, noise_std=NOISE_STD, prior_std=PRIOR_STD)
learner = Network(
    GaussianMLP(dim=100, hidden=(), prior_std=PRIOR_STD, squash=True),
    dim=100,
    capacity=PERIODS,
    noise_std=NOISE_STD,
    prior_std=PRIOR_STD,
    learning_rate=0.1,
    steps=3,
    batch=64,
    optimizer=optax.sgd,
)
schedules = (*map(Constant, (0.05, 0.1, 0.2)), *map(Annealed, (50, 150, 300)))

GREEDY = beside_published(
    "2a",
    "ε-greedy",
    environment,
    (EpsilonGreedy(learner, schedule) for schedule in schedules),
    laptop=100,
    effort=0.25,
)
ENSEMBLES = beside_published(
    "2b",
    "Ensemble sampling",
    environment,
    (EnsembleSampling(learner, members) for members in (5, 10, 30, 50)),
    laptop=60,
    effort=0.7,
)

FIGURE = Figure(
    2,
    "single-neuron bandit",
    "(a) ε-greedy and (b) ensemble sampling applied to a bandit whose mean rewards are a single "
    "neuron's output.",
    (GREEDY, ENSEMBLES),
)
