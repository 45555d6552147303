"""What the paper claims about its figures, and what the results say: estimate, interval, verdict.

Every interval has 95% confidence for the whole claim: a claim that needs several comparisons
widens each of them (Bonferroni). Agents are compared in the same worlds, realization by
realization.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from ..posteriors.ensemble import Ensemble
from . import figure1, figure2, figure3
from .curves import Curves
from .sizes import Sizes

Results = Mapping[str, Mapping[str, Any]]
"""Panel name -> what its results file says."""

CONFIDENCE = 0.95


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell at this number of realizations"


class Interval(NamedTuple):
    estimate: float
    low: float
    high: float


class Unavailable(ValueError):
    """The results that a claim is about are missing, or cannot be compared."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the quantity that decides it: above (or below) `threshold`."""

    figure: int
    statement: str
    measured: str
    quantity: Callable[[Results], Interval]
    threshold: float = 0.0
    above: bool = True

    def verdict(self, interval: Interval) -> Verdict:
        """Decided by the side of the threshold that the whole interval lies on."""
        if interval.low > self.threshold:
            return Verdict.HOLDS if self.above else Verdict.FAILS
        if interval.high < self.threshold:
            return Verdict.FAILS if self.above else Verdict.HOLDS
        return Verdict.UNCLEAR


def averages(results: Results, window: str, *panels: Curves) -> list[list[np.ndarray]]:
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


def _members(panel: Curves, *sizes: int) -> list[int]:
    """Where in a panel the ensembles of these sizes are."""
    posteriors = [getattr(agent, "posterior", None) for agent in panel.agents]
    have = [p.members if isinstance(p, Ensemble) else None for p in posteriors]
    return [have.index(size) for size in sizes]


def _thompson(results: Results) -> Interval:
    (series,) = averages(results, "late", figure1.REGRET)
    return approach(series[0], [series[i] for i in _members(figure1.REGRET, 5, 10, 20, 30)])


def _sublinear(results: Results) -> Interval:
    return exponent(results, figure1.MEMBERS)


def _larger(results: Results) -> Interval:
    (series,) = averages(results, "late", figure2.ENSEMBLES)
    return improvement([series[i] for i in _members(figure2.ENSEMBLES, 10, 30, 50)])


def _ten(window: str, results: Results) -> Interval:
    greedy, ensembles = averages(results, window, figure2.GREEDY, figure2.ENSEMBLES)
    return advantage([ensembles[i] for i in _members(figure2.ENSEMBLES, 10)], greedy)


def _fifty(results: Results) -> Interval:
    greedy, ensembles = averages(results, "late", figure2.GREEDY, figure2.ENSEMBLES)
    (fifty,) = _members(figure2.ENSEMBLES, 50)
    return factor(ensembles[fifty], greedy)


def _annealing(window: str, results: Results) -> Interval:
    fixed, annealed = averages(results, window, figure3.FIXED, figure3.ANNEALED)
    return advantage(annealed, fixed)


def _dropout(window: str, results: Results) -> Interval:
    *greedy, dropout = averages(results, window, figure3.FIXED, figure3.ANNEALED, figure3.DROPOUT)
    return advantage([values for panel in greedy for values in panel], dropout)


def _moderate(window: str, results: Results) -> Interval:
    *others, ensembles = averages(
        results, window, figure3.FIXED, figure3.ANNEALED, figure3.DROPOUT, figure3.ENSEMBLES
    )
    others = [values for panel in others for values in panel]
    return advantage([ensembles[i] for i in _members(figure3.ENSEMBLES, 30)], others)


def _twice(
    figure: int, statement: str, measured: str, quantity: Callable[[str, Results], Interval]
) -> list[Claim]:
    """A claim about regret, over the last tenth of the periods and over all of them."""
    return [
        Claim(figure, statement, f"{measured}, {when}", partial(quantity, window))
        for window, when in (("late", "last tenth of the periods"), ("whole", "all periods"))
    ]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        1,
        "With more models, ensemble sampling better approximates Thompson sampling.",
        "least shrinking of the regret gap from 5 to 10 to 20 to 30 models, last tenth of the "
        "periods",
        _thompson,
    ),
    Claim(
        1,
        "The number of models needed grows sublinearly with the number of arms.",
        "b in models ∝ arms^b, below 1",
        _sublinear,
        threshold=1.0,
        above=False,
    ),
    *_twice(
        2,
        "Ensemble sampling with 10 models beats ε-greedy with the best tuned parameter.",
        "regret of the best ε-greedy minus that of 10 models",
        _ten,
    ),
    Claim(
        2,
        "Larger ensembles are better still.",
        "least fall of the regret from 10 to 30 to 50 models, last tenth of the periods",
        _larger,
    ),
    Claim(
        2,
        "50 models have orders of magnitude lower regret than ε-greedy.",
        "regret of the best ε-greedy divided by that of 50 models, last tenth of the periods; "
        "holds from 10 on",
        _fifty,
        threshold=10.0,
    ),
    *_twice(
        3,
        "ε-greedy with an annealing schedule beats a fixed ε.",
        "regret of the best fixed ε minus that of the best schedule",
        _annealing,
    ),
    *_twice(
        3,
        "Dropout does worse than ε-greedy.",
        "regret of the best dropout minus that of the best ε-greedy",
        _dropout,
    ),
    *_twice(
        3,
        "Ensemble sampling with a moderate number of models beats everything else.",
        "regret of the best other approach minus that of 30 models",
        _moderate,
    ),
)
