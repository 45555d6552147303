"""The public names of this room; see the package's own stub."""

from .arms import IndependentArms
from .blend import Blend
from .histories import Reservoir, Window
from .linear import Linear
from .losses import CrossEntropy, SquaredError
from .network import Network
from .per_action import PerAction
from .random_features import RandomFeatures, Waves
from .randomised_prior import RandomisedPrior

__all__ = [
    "Blend",
    "CrossEntropy",
    "IndependentArms",
    "Linear",
    "Network",
    "PerAction",
    "RandomFeatures",
    "RandomisedPrior",
    "Reservoir",
    "SquaredError",
    "Waves",
    "Window",
]
