"""Ensemble sampling: Thompson sampling for any model."""

__version__ = "0.1.0"

from . import diagnostics, theory
from .agents import (
    Annealed,
    Constant,
    EnsembleSampling,
    EpsilonGreedy,
    Greedy,
    ThompsonSampling,
    Uniform,
)
from .bandit import Bandit, Decision
from .core import Action, Agent, Environment, Learner, Noise, Posterior, Round
from .environments import (
    GaussianArms,
    LinearBandit,
    LogisticBandit,
    NetworkBandit,
    NeuronBandit,
)
from .estimators import EstimatorEnsemble
from .features import Hasher
from .learners.linear import IndependentArms, Linear
from .learners.network import (
    MLP,
    CrossEntropy,
    GaussianMLP,
    Network,
    Reservoir,
    SquaredError,
    Window,
    published_gradient,
    true_gradient,
)
from .learners.per_action import PerAction
from .planning import Plan, plan
from .posteriors.dropout import Dropout
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
from .rewards import Reward
from .simulate import Result, simulate
from .sizing import EnsembleSize, smallest_ensemble

__all__ = [
    "MLP",
    "Action",
    "Agent",
    "Annealed",
    "Bandit",
    "Bernoulli",
    "Constant",
    "CrossEntropy",
    "Decision",
    "Dropout",
    "Ensemble",
    "EnsembleSampling",
    "EnsembleSize",
    "Environment",
    "EpsilonGreedy",
    "EstimatorEnsemble",
    "Exact",
    "Gaussian",
    "GaussianArms",
    "GaussianMLP",
    "Greedy",
    "Hasher",
    "IndependentArms",
    "Learner",
    "Linear",
    "LinearBandit",
    "LogisticBandit",
    "Network",
    "NetworkBandit",
    "NeuronBandit",
    "Noise",
    "PerAction",
    "Plan",
    "Point",
    "Poisson",
    "Posterior",
    "Rademacher",
    "Reservoir",
    "Result",
    "Reward",
    "Round",
    "SquaredError",
    "ThompsonSampling",
    "Uniform",
    "Unperturbed",
    "Window",
    "diagnostics",
    "plan",
    "published_gradient",
    "simulate",
    "smallest_ensemble",
    "theory",
    "true_gradient",
]
