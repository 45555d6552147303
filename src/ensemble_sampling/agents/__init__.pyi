"""The public names of this room; see the package's own stub."""

from .epsilon_greedy import Annealed, Constant, EpsilonGreedy
from .persistent import Persistent
from .squarecb import SquareCB, SquareRoot
from .thompson import EnsembleSampling, Greedy, ThompsonSampling
from .ucb import UCB
from .uniform import Uniform
from .widening import Widening

__all__ = [
    "UCB",
    "Annealed",
    "Constant",
    "EnsembleSampling",
    "EpsilonGreedy",
    "Greedy",
    "Persistent",
    "SquareCB",
    "SquareRoot",
    "ThompsonSampling",
    "Uniform",
    "Widening",
]
