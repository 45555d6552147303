"""Ensemble sampling: Thompson sampling for any model."""

__version__ = "0.1.0"

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
from .decide.bandit import Bandit
from .decide.decisions import Decision, Prediction, Values
from .decide.features import Hasher
from .environments import (
    GaussianArms,
    LinearBandit,
    LogisticBandit,
    NetworkBandit,
    NeuronBandit,
)
from .learners.arms import IndependentArms
from .learners.blend import Blend
from .learners.histories import Reservoir, Window
from .learners.linear import Linear
from .learners.losses import CrossEntropy, SquaredError
from .learners.network import Network
from .learners.per_action import PerAction
from .learners.random_features import RandomFeatures, Waves
from .networks import MLP, GaussianMLP, published_gradient, true_gradient
from .persistent import Persistent
from .posteriors.dropout import Dropout
from .posteriors.ensemble import (
    Bernoulli,
    Ensemble,
    Gaussian,
    Poisson,
    Rademacher,
    Unperturbed,
)
from .posteriors.estimators import EstimatorEnsemble
from .posteriors.exact import Exact
from .posteriors.point import Point
from .rewards import Reward
from .simulate import Result, simulate
from .study import diagnostics, theory
from .study.planning import Plan, plan
from .study.sizing import EnsembleSize, smallest_ensemble

__all__ = [
    "MLP",
    "Action",
    "Agent",
    "Annealed",
    "Bandit",
    "Bernoulli",
    "Blend",
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
    "Persistent",
    "Plan",
    "Point",
    "Poisson",
    "Posterior",
    "Prediction",
    "Rademacher",
    "RandomFeatures",
    "Reservoir",
    "Result",
    "Reward",
    "Round",
    "SquaredError",
    "ThompsonSampling",
    "Uniform",
    "Unperturbed",
    "Values",
    "Waves",
    "Window",
    "diagnostics",
    "plan",
    "published_gradient",
    "simulate",
    "smallest_ensemble",
    "theory",
    "true_gradient",
]
