"""The public names of this room; see the package's own stub."""

from .anytime import Anytime
from .backprop import BayesByBackprop
from .dropout import Dropout
from .ensemble import Bernoulli, Ensemble, Gaussian, Poisson, Rademacher, Symmetric, Unperturbed
from .ensemble_plus import EnsemblePlus
from .epinet import Epinet
from .estimators import EstimatorEnsemble
from .exact import Exact
from .hypermodel import Hypermodel
from .langevin import Langevin
from .laplace import Laplace
from .neural_linear import NeuralLinear
from .point import Point

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
    "Gaussian",
    "Hypermodel",
    "Langevin",
    "Laplace",
    "NeuralLinear",
    "Point",
    "Poisson",
    "Rademacher",
    "Symmetric",
    "Unperturbed",
]
