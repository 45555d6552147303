"""What is claimed of results, and what they say: estimate, interval, verdict.

Every interval has 95% confidence for the whole claim: a claim that needs several comparisons
widens each of them (Bonferroni). Agents are compared in the same worlds, realization by
realization.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from .ensembles import Sizes
from .panels import Results
from .regret import Experiment

CONFIDENCE = 0.95


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell at this number of realizations"


class Interval(NamedTuple):
    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        estimate, low, high = (f"{number:.3g}" for number in self)
        return f"{estimate} ({low} to {high})"


class Finding(NamedTuple):
    """What the results say of a claim, and the numbers behind it in a few words."""

    verdict: Verdict
    text: str


class Unavailable(ValueError):
    """The results that a claim is about are missing, or cannot be compared."""


@dataclass(frozen=True)
class Claim:
    """A sentence, and the quantity that decides it: above (or below) `threshold`.

    measured: in words, what `quantity` estimates
    quantity: a function of the results (panel name -> content of its file) that gives an
        `Interval`, or a `Finding` where it takes more than a threshold to decide, or raises
        `Unavailable`
    figure: the number of the figure it is about
    """

    statement: str
    measured: str
    quantity: Callable[[Results], Interval | Finding]
    threshold: float = 0.0
    above: bool = True
    figure: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.quantity):
            raise TypeError(
                f"the quantity of a claim must be a function of the results, got {self.quantity!r}"
            )

    def verdict(self, interval: Interval) -> Verdict:
        """Decided by the side of the threshold that the whole interval lies on."""
        if interval.low > self.threshold:
            return Verdict.HOLDS if self.above else Verdict.FAILS
        if interval.high < self.threshold:
            return Verdict.FAILS if self.above else Verdict.HOLDS
        return Verdict.UNCLEAR

    def check(self, results: Results) -> Finding:
        """What the results say."""
        found = self.quantity(results)
        if isinstance(found, Finding):
            return found
        if not isinstance(found, Interval):
            raise TypeError(
                f"the quantity of the claim {self.statement!r} must give an Interval or a "
                f"Finding, got {found!r}"
            )
        return Finding(self.verdict(found), str(found))


def averages(results: Results, window: str, *panels: Experiment) -> list[list[np.ndarray]]:
    """For each panel, each agent's regret in every realization, averaged over a window.

    The window is the "whole" run or its "late" tenth. All are cut to the realizations, and hence
    worlds, that every one of them has.
    """
    found = []
    for panel in panels:
        data = _data(results, panel.name)
        if [series["label"] for series in data["series"]] != panel.labels:
            raise Unavailable(f"panel {panel.name} was run with other agents")
        found.append(panel.averages(data, getattr(panel, window)))
    if len({results[panel.name]["seed"] for panel in panels}) > 1:
        names = ", ".join(panel.name for panel in panels)
        raise Unavailable(f"panels {names} were run with different seeds")
    shortest = min(len(values) for panel in found for values in panel)
    return [[values[:shortest] for values in panel] for panel in found]


def _data(results: Results, panel: str) -> Mapping[str, Any]:
    if panel not in results:
        raise Unavailable(f"panel {panel} has not been run")
    return results[panel]


def _errors(realizations: int, comparisons: int) -> float:
    """How many standard errors either side make the interval, for each of several comparisons."""
    tail = (1 - CONFIDENCE) / 2 / comparisons
    return float(stdtrit(realizations - 1, 1 - tail))


def _paired(values: np.ndarray, errors: float) -> Interval:
    mean = float(values.mean())
    error = float(errors * values.std(ddof=1) / len(values) ** 0.5)
    return Interval(mean, mean - error, mean + error)


def advantage(better: Sequence[np.ndarray], worse: Sequence[np.ndarray]) -> Interval:
    """By how much the lowest mean of `better` is below the lowest of `worse`.

    That is max over a of min over b of (b - a); with intervals that hold for all pairs at once it
    is bounded by the same max-min of their ends, so that picking the best costs no honesty.
    """
    errors = _errors(len(better[0]), len(better) * len(worse))
    pairs = np.array([[_paired(b - a, errors) for b in worse] for a in better])
    return Interval(*pairs.min(axis=1).max(axis=0).tolist())


def improvement(sequence: Sequence[np.ndarray]) -> Interval:
    """The smallest fall of the mean from one to the next; above zero if every step is a fall."""
    steps = list(pairwise(sequence))
    errors = _errors(len(sequence[0]), len(steps))
    falls = np.array([_paired(a - b, errors) for a, b in steps])
    return Interval(*falls.min(axis=0).tolist())


def approach(target: np.ndarray, sequence: Sequence[np.ndarray]) -> Interval:
    """The smallest fall of the distance between a mean and the target's, from one to the next."""
    gaps = [values - target for values in sequence]
    return improvement([np.sign(gap.mean()) * gap for gap in gaps])


def factor(better: np.ndarray, worse: Sequence[np.ndarray]) -> Interval:
    """How many times the lowest mean of `worse` is larger than that of `better`.

    Intervals of log ratios, by the delta method.
    """
    if min(float(values.mean()) for values in (better, *worse)) <= 0:
        raise Unavailable("a regret of zero has no ratio")
    errors = _errors(len(better), len(worse))
    relative = better / better.mean()
    logs = np.array([_paired(b / b.mean() - relative, errors) for b in worse])
    logs += np.log([[b.mean() / better.mean()] for b in worse])
    return Interval(*np.exp(logs.min(axis=0)).tolist())


def exponent(results: Results, panel: Sizes) -> Interval:
    """b in members ~ arms^b by least squares on logarithms: b = sum of w_i log(members_i).

    All points come from the same worlds, so their errors go together in a way that is not known.
    Whatever it is, the standard deviation of a sum is at most the sum of standard deviations:
    the distances to the ends of the ranges, each times |w_i|, are added.
    """
    points = _data(results, panel.name)["points"]
    x = np.log([p["arms"] for p in points])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    found, low, high = (np.log([p[k] for p in points]) for k in ("members", "low", "high"))
    up = weights * np.where(weights > 0, high - found, low - found)
    down = weights * np.where(weights > 0, found - low, found - high)
    slope = float(weights @ found)
    return Interval(slope, slope - float(down.sum()), slope + float(up.sum()))
