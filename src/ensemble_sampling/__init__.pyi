"""What a newcomer needs; the rest is in the rooms: `es.agents`, `es.learners`, ..."""

__version__: str

from . import (
    agents,
    core,
    episodes,
    evaluation,
    experiments,
    learners,
    networks,
    posteriors,
    simulation,
    testing,
    worlds,
)
from .agents.greedy import Uniform
from .agents.point import EpsilonGreedy
from .agents.thompson import EnsembleSampling, Greedy, ThompsonSampling
from .client import AsyncClient, Client, ServiceError
from .decide.bandit import Bandit
from .decide.decisions import Decision
from .evaluation.evaluate import evaluate
from .evaluation.log import Log
from .evaluation.replay import replay
from .inputs.hashing import Hasher
from .learners.arms import IndependentArms
from .learners.linear import Linear
from .learners.network import Network
from .learners.random_features import RandomFeatures
from .learners.several import PerAction
from .posteriors.ensemble import Ensemble
from .posteriors.estimators import EstimatorEnsemble
from .posteriors.exact import Exact
from .rewards import Reward
from .simulation.plot import plot
from .simulation.run import simulate
from .simulation.sweep import sweep
from .study import diagnostics, theory
from .study.planning import plan
from .worlds.arms import GaussianArms
from .worlds.contexts import Classification, ContextualBandit
from .worlds.features import LinearBandit, NetworkBandit

__all__ = [
    "AsyncClient",
    "Bandit",
    "Classification",
    "Client",
    "ContextualBandit",
    "Decision",
    "Ensemble",
    "EnsembleSampling",
    "EpsilonGreedy",
    "EstimatorEnsemble",
    "Exact",
    "GaussianArms",
    "Greedy",
    "Hasher",
    "IndependentArms",
    "Linear",
    "LinearBandit",
    "Log",
    "Network",
    "NetworkBandit",
    "PerAction",
    "RandomFeatures",
    "Reward",
    "ServiceError",
    "ThompsonSampling",
    "Uniform",
    "agents",
    "core",
    "diagnostics",
    "episodes",
    "evaluate",
    "evaluation",
    "experiments",
    "learners",
    "networks",
    "plan",
    "plot",
    "posteriors",
    "replay",
    "simulate",
    "simulation",
    "sweep",
    "testing",
    "theory",
    "worlds",
]
