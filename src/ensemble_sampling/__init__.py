"""Ensemble sampling: Thompson sampling for any model."""

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
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
    from .simulate.cluster import Ray
    from .simulate.engines import Engine, Local
    from .study import diagnostics, theory
    from .study.planning import Plan, plan
    from .study.sizing import EnsembleSize, smallest_ensemble

_NAMES = {  # where each is; what `TYPE_CHECKING` says, see tests/test_names.py
    "agents": "Annealed Constant EnsembleSampling EpsilonGreedy Greedy ThompsonSampling Uniform",
    "client": "AsyncClient Client ServiceError",
    "core": "Action Agent Environment Learner Noise Posterior Round",
    "decide.bandit": "Bandit",
    "decide.decisions": "Decision Prediction Values",
    "decide.features": "Hasher",
    "environments": (
        "Classification ContextualBandit GaussianArms LinearBandit LogisticBandit "
        "NetworkBandit NeuronBandit RandomWalkArms"
    ),
    "evaluate.evaluation": "evaluate",
    "evaluate.informed": "Informed",
    "evaluate.log": "Log",
    "evaluate.replay": "replay",
    "evaluate.world": "Logged",
    "experiments": "claims",
    "experiments.claims": "Claim",
    "experiments.curves": "Experiment",
    "experiments.declare": "Figure",
    "experiments.running": "run",
    "experiments.study": "Study",
    "learners.arms": "IndependentArms",
    "learners.blend": "Blend",
    "learners.histories": "Reservoir Window",
    "learners.linear": "Linear",
    "learners.losses": "CrossEntropy SquaredError",
    "learners.network": "Network",
    "learners.per_action": "PerAction",
    "learners.random_features": "RandomFeatures Waves",
    "learners.randomised_prior": "RandomisedPrior",
    "networks": "GaussianMLP MLP published_gradient true_gradient",
    "persistent": "Persistent",
    "posteriors.anytime": "Anytime",
    "posteriors.backprop": "BayesByBackprop",
    "posteriors.dropout": "Dropout",
    "posteriors.ensemble": "Bernoulli Ensemble Gaussian Poisson Rademacher Symmetric Unperturbed",
    "posteriors.ensemble_plus": "EnsemblePlus",
    "posteriors.epinet": "Epinet",
    "posteriors.estimators": "EstimatorEnsemble",
    "posteriors.exact": "Exact",
    "posteriors.hypermodel": "Hypermodel",
    "posteriors.langevin": "Langevin",
    "posteriors.laplace": "Laplace",
    "posteriors.neural_linear": "NeuralLinear",
    "posteriors.point": "Point",
    "rewards": "Reward",
    "rules": "SquareCB SquareRoot UCB",
    "simulate": "Result Sweep load_result plot simulate sweep",
    "simulate.cluster": "Ray",
    "simulate.engines": "Engine Local",
    "study": "diagnostics theory",
    "study.planning": "Plan plan",
    "study.sizing": "EnsembleSize smallest_ensemble",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


class _Package(ModuleType):
    """Loads what is asked for when it is asked for: all of it takes a second, and a command's help
    needs none.

    Two rooms are called like the function in them: here their name is the function's.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        collecting = gc.isenabled()
        gc.disable()  # modules stay: looking for what can go among them takes a tenth of a second
        try:
            home = import_module(f"{__name__}.{_HOMES[name]}")
            if not hasattr(home, name):
                import_module(f"{home.__name__}.{name}")
        finally:
            if collecting:
                if not gc.get_freeze_count():  # set aside by somebody
                    gc.freeze()
                    gc.unfreeze()  # all that is there counts as old, and is not looked at next
                gc.enable()
        self.__dict__[name] = found = getattr(home, name)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOMES):  # a room that was imported
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Package

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
