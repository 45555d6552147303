"""The public names of this room; see the package's own stub."""

from .arms import IndependentArms
from .beta import BetaArms
from .histories import Reservoir, Window
from .linear import Linear
from .losses import CrossEntropy, SquaredError
from .modules import RandomisedPrior
from .network import Network
from .random_features import RandomFeatures, Waves
from .several import Blend, PerAction

__all__ = [
    "BetaArms",
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
