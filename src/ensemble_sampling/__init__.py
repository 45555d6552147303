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
from .client import AsyncClient, Client, ServiceError
from .core import Action, Agent, Environment, Learner, Noise, Posterior, Round
from .decide.bandit import Bandit
from .decide.decisions import Decision, Prediction, Values
from .decide.features import Hasher
from .environments import (
    Classification,
    ContextualBandit,
    GaussianArms,
    LinearBandit,
    LogisticBandit,
    NetworkBandit,
    NeuronBandit,
    RandomWalkArms,
)
from .evaluate.evaluation import evaluate
from .evaluate.informed import Informed
from .evaluate.log import Log
from .evaluate.replay import replay
from .evaluate.world import Logged
from .experiments import claims
from .experiments.claims import Claim
from .experiments.curves import Experiment
from .experiments.declare import Figure
from .experiments.running import run
from .experiments.study import Study
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
from .simulate import Result, Sweep, load_result, plot, simulate, sweep
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
    "AsyncClient",
    "Bandit",
    "BayesByBackprop",
    "Bernoulli",
    "Blend",
    "Claim",
    "Classification",
    "Client",
    "Constant",
    "ContextualBandit",
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
    "Experiment",
    "Figure",
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
    "RandomWalkArms",
    "RandomisedPrior",
    "Reservoir",
    "Result",
    "Reward",
    "Round",
    "ServiceError",
    "SquareCB",
    "SquareRoot",
    "SquaredError",
    "Study",
    "Sweep",
    "Symmetric",
    "ThompsonSampling",
    "Uniform",
    "Unperturbed",
    "Values",
    "Waves",
    "Window",
    "claims",
    "diagnostics",
    "evaluate",
    "load_result",
    "plan",
    "plot",
    "published_gradient",
    "replay",
    "run",
    "simulate",
    "smallest_ensemble",
    "sweep",
    "theory",
    "true_gradient",
]
