"""The public names of this room; see the package's own stub."""

from .greedy import Uniform
from .persistent import Persistent
from .point import Annealed, Constant, EpsilonGreedy, SquareCB, SquareRoot
from .thompson import EnsembleSampling, Greedy, ThompsonSampling
from .ucb import UCB
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
