"""The public names, once: `lazy_loader` reads them here, and so do type checkers."""

__version__: str

from .agents.epsilon_greedy import Annealed, Constant, EpsilonGreedy
from .agents.persistent import Persistent
from .agents.squarecb import SquareCB, SquareRoot
from .agents.thompson import EnsembleSampling, Greedy, ThompsonSampling
from .agents.ucb import UCB
from .agents.uniform import Uniform
from .client import AsyncClient, Client, ServiceError
from .core import Action, Agent, Environment, Learner, Noise, Posterior, Round
from .decide.bandit import Bandit
from .decide.decisions import Decision, Prediction, Values
from .evaluation.evaluate import evaluate
from .evaluation.informed import Informed
from .evaluation.log import Log
from .evaluation.replay import replay
from .evaluation.world import Logged
from .experiments import claims
from .experiments.claims import Claim
from .experiments.panels import Figure
from .experiments.regret import Experiment
from .experiments.run import run
from .experiments.study import Study
from .inputs.hashing import Hasher
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
from .simulation import Result, Sweep, load_result, plot, simulate, sweep
from .simulation.cluster import Ray
from .simulation.engines import Engine, Local
from .study import diagnostics, theory
from .study.planning import Plan, plan
from .study.sizing import EnsembleSize, smallest_ensemble
from .worlds.arms import GaussianArms, RandomWalkArms
from .worlds.clicks import LogisticBandit
from .worlds.contextual import ContextualBandit
from .worlds.labelled import Classification
from .worlds.linear import LinearBandit
from .worlds.network import NetworkBandit, NeuronBandit

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
    "Engine",
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
    "Local",
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
    "Ray",
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
