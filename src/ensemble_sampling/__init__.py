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
    Classification,
    GaussianArms,
    LinearBandit,
    LogisticBandit,
    NetworkBandit,
    NeuronBandit,
)
from .evaluate.evaluation import evaluate
from .evaluate.informed import Informed
from .evaluate.log import Log
from .evaluate.replay import replay
from .evaluate.world import Logged
from .learners.arms import IndependentArms
from .learners.blend import Blend
from .learners.histories import Reservoir, Window
from .learners.linear import Linear
from .learners.losses import CrossEntropy, SquaredError
from .learners.network import Network
from .learners.per_action import PerAction
from .learners.random_features import RandomFeatures, Waves
from .learners.randomised_prior import RandomisedPrior
from .networks import MLP, GaussianMLP, published_gradient, true_gradient
from .persistent import Persistent
from .posteriors.anytime import Anytime
from .posteriors.backprop import BayesByBackprop
from .posteriors.dropout import Dropout
from .posteriors.ensemble import (
    Bernoulli,
    Ensemble,
    Gaussian,
    Poisson,
    Rademacher,
    Symmetric,
    Unperturbed,
)
from .posteriors.ensemble_plus import EnsemblePlus
from .posteriors.epinet import Epinet
from .posteriors.estimators import EstimatorEnsemble
from .posteriors.exact import Exact
from .posteriors.hypermodel import Hypermodel
from .posteriors.langevin import Langevin
from .posteriors.laplace import Laplace
from .posteriors.neural_linear import NeuralLinear
from .posteriors.point import Point
from .rewards import Reward
from .rules import UCB, SquareCB, SquareRoot
from .simulate import Result, simulate
from .study import diagnostics, theory
from .study.planning import Plan, plan
from .study.sizing import EnsembleSize, smallest_ensemble

__all__ = [
    "MLP",
    "UCB",
    "Action",
    "Agent",
    "Annealed",
    "Anytime",
    "Bandit",
    "BayesByBackprop",
    "Bernoulli",
    "Blend",
    "Classification",
    "Constant",
    "CrossEntropy",
    "Decision",
    "Dropout",
    "Ensemble",
    "EnsemblePlus",
    "EnsembleSampling",
    "EnsembleSize",
    "Environment",
    "Epinet",
    "EpsilonGreedy",
    "EstimatorEnsemble",
    "Exact",
    "Gaussian",
    "GaussianArms",
    "GaussianMLP",
    "Greedy",
    "Hasher",
    "Hypermodel",
    "IndependentArms",
    "Informed",
    "Langevin",
    "Laplace",
    "Learner",
    "Linear",
    "LinearBandit",
    "Log",
    "Logged",
    "LogisticBandit",
    "Network",
    "NetworkBandit",
    "NeuralLinear",
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
    "RandomisedPrior",
    "Reservoir",
    "Result",
    "Reward",
    "Round",
    "SquareCB",
    "SquareRoot",
    "SquaredError",
    "Symmetric",
    "ThompsonSampling",
    "Uniform",
    "Unperturbed",
    "Values",
    "Waves",
    "Window",
    "diagnostics",
    "evaluate",
    "plan",
    "published_gradient",
    "replay",
    "simulate",
    "smallest_ensemble",
    "theory",
    "true_gradient",
]
