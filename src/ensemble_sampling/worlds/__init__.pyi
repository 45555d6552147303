"""The public names of this room; see the package's own stub."""

from .arms import BernoulliArms, GaussianArms, RandomWalkArms
from .contexts import Classification, ContextualBandit
from .features import LinearBandit, LogisticBandit, NetworkBandit, NeuronBandit

__all__ = [
    "BernoulliArms",
    "Classification",
    "ContextualBandit",
    "GaussianArms",
    "LinearBandit",
    "LogisticBandit",
    "NetworkBandit",
    "NeuronBandit",
    "RandomWalkArms",
]
