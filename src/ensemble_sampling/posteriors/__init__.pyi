"""The public names of this room; see the package's own stub."""

from .dropout import Dropout
from .ensemble import (
    Anytime,
    Bernoulli,
    Ensemble,
    Exponential,
    Gaussian,
    Poisson,
    Rademacher,
    Symmetric,
    Unperturbed,
)
from .estimators import EstimatorEnsemble
from .exact import Exact, Point
from .heads import EnsemblePlus, Epinet
from .indexed import BayesByBackprop, Hypermodel
from .langevin import Langevin
from .laplace import Laplace, NeuralLinear
from .restarting import Restarting

__all__ = [
    "Anytime",
    "BayesByBackprop",
    "Bernoulli",
    "Dropout",
    "Ensemble",
    "EnsemblePlus",
    "Epinet",
    "EstimatorEnsemble",
    "Exact",
    "Exponential",
    "Gaussian",
    "Hypermodel",
    "Langevin",
    "Laplace",
    "NeuralLinear",
    "Point",
    "Poisson",
    "Rademacher",
    "Restarting",
    "Symmetric",
    "Unperturbed",
]
