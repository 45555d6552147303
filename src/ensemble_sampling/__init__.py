"""Ensemble sampling: Thompson sampling for any model."""

from .agents import (
    Annealed,
    Constant,
    EnsembleSampling,
    EpsilonGreedy,
    Greedy,
    ThompsonSampling,
    Uniform,
)
from .core import Action, Agent, Environment, Learner, Noise, Posterior, Round
from .environments import GaussianArms, LinearBandit
from .learners.linear import IndependentArms, Linear
from .posteriors.ensemble import (
    Bernoulli,
    Ensemble,
    Gaussian,
    Poisson,
    Rademacher,
    Unperturbed,
)
from .posteriors.exact import Exact
from .posteriors.point import Point
from .simulate import Result, simulate

__all__ = [
    "Action",
    "Agent",
    "Annealed",
    "Bernoulli",
    "Constant",
    "Ensemble",
    "EnsembleSampling",
    "Environment",
    "EpsilonGreedy",
    "Exact",
    "Gaussian",
    "GaussianArms",
    "Greedy",
    "IndependentArms",
    "Learner",
    "Linear",
    "LinearBandit",
    "Noise",
    "Point",
    "Poisson",
    "Posterior",
    "Rademacher",
    "Result",
    "Round",
    "ThompsonSampling",
    "Uniform",
    "Unperturbed",
    "simulate",
]
