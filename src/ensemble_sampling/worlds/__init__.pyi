"""The public names of this room; see the package's own stub."""

from .arms import GaussianArms, RandomWalkArms
from .clicks import LogisticBandit
from .contextual import ContextualBandit
from .labelled import Classification
from .linear import LinearBandit
from .network import NetworkBandit, NeuronBandit

__all__ = [
    "Classification",
    "ContextualBandit",
    "GaussianArms",
    "LinearBandit",
    "LogisticBandit",
    "NetworkBandit",
    "NeuronBandit",
    "RandomWalkArms",
]
