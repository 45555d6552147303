"""What a simulation found: regret per period over realizations, and how its parts merge."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Result:
    """Regret per period over realizations, and where asked for, of every realization."""

    label: str
    mean: np.ndarray
    stderr: np.ndarray
    realizations: int
    diverged: int
    seconds: float
    regret: np.ndarray | None = None

    @property
    def periods(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations per period; merging is exact in any order."""

    count: int
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def of(cls, regret: np.ndarray) -> "Moments":
        mean = regret.mean(axis=0, dtype=np.float64)
        m2 = np.zeros_like(mean)
        for i in range(0, len(regret), 16):  # few rows at a time stay in cache
            m2 += np.square(regret[i : i + 16] - mean).sum(axis=0)
        return cls(len(regret), mean, m2)

    def merge(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return Moments(count, mean, m2)

    @staticmethod
    def merged(parts: Sequence["Moments"]) -> "Moments":
        """All of them, in the order given: the same parts give the same bits."""
        return reduce(lambda one, other: one.merge(other), parts)

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the mean; unknown (NaN) from a single realization."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.sqrt(self.m2 / (self.count - 1) / self.count)


def numbers(values: Any) -> Any:
    """Arrays as nested lists, to the seven digits that float32 arithmetic can mean."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64)]


def mean_and_error(values: Any) -> tuple[float, float]:
    """The mean over realizations, and its standard error."""
    values = np.asarray(values, dtype=np.float64)
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
