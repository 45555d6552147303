"""What is claimed of deep exploration, and the quantities that decide it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import chdtri, stdtrit

from ..claims import CONFIDENCE, Finding, Interval, Unavailable, Verdict
from ..panels import Results
from .discovery import cells, fit
from .panels import times_of

SIZES = tuple(range(10, 51, 2))
"""bsuite's."""


def _series(results: Results, panel: str, label: str) -> Mapping[str, Any]:
    if panel not in results:
        raise Unavailable(f"panel {panel} has not been run")
    found = [s for s in results[panel]["series"] if s["label"] == label]
    if not found:
        raise Unavailable(f"panel {panel} was run without {label}")
    return found[0]


def learned(results: Results, panel: str, label: str, least: float = 1.0) -> Finding:
    """Whether a share of the realizations, by default all, learned at every point."""
    points, times = times_of(_series(results, panel, label))
    found = np.isfinite(times)
    bad = found.mean(axis=1) < least
    text = f"{found.sum()} of {found.size} runs at {len(points)} point{'s' * (len(points) > 1)}"
    if bad.any():
        few = "not all" if least == 1 else f"less than {least:.0%}"
        missing = ", ".join(map(str, points[bad]))
        return Finding(Verdict.FAILS, f"{text}; {few} at {missing}")
    return Finding(Verdict.HOLDS, text)


def score(results: Results, panel: str, label: str) -> Finding:
    """bsuite's: the share of its sizes that a run learned in fewer than 2^N + 100 episodes."""
    points, times = times_of(_series(results, panel, label))
    if tuple(points) != SIZES:
        raise Unavailable("bsuite's score is about all of its sizes")
    each = (times < 2.0 ** points[:, None] + 100).mean(axis=0)  # NaN is not
    text = f"{each.mean():.3f} on average over {len(each)} runs, {each.min():.3f} the lowest"
    return Finding(Verdict.HOLDS if each.min() == 1 else Verdict.FAILS, text)


def exponent(results: Results, panel: str, label: str) -> Interval:
    """b in time ~ size^b, by least squares on logarithms of every run's learning time."""
    points, times = times_of(_series(results, panel, label))
    if np.isnan(times).any():
        raise Unavailable("not every run learned, so that learning times are cut")
    x = np.log(np.repeat(points, times.shape[1]))
    y = np.log(times).ravel()
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))
    wide = float(stdtrit(len(x) - 2, (1 + CONFIDENCE) / 2)) * error
    return Interval(slope, slope - wide, slope + wide)


def growth(results: Results, panel: str, label: str) -> Interval:
    """b in learning time ~ b^size, where it is chance that learns.

    Times are exponential with mean a b^size, and those of runs that had not learned are cut at the
    last episode: by maximum likelihood, with a at its best for every b (Wilks's interval).
    """
    points, times = times_of(_series(results, panel, label))
    sizes = np.repeat(points, times.shape[1])
    waited = np.nan_to_num(times, nan=results[panel]["periods"]).ravel()
    seen = np.isfinite(times).ravel()
    if not seen.any():
        raise Unavailable("no run learned")

    def loss(log_b: float) -> float:
        mean = (waited * np.exp(-log_b * sizes)).sum() / seen.sum()
        return float(2 * (seen.sum() * np.log(mean) + log_b * sizes[seen].sum()))

    grid = np.linspace(0.0, np.log(8.0), 20_001)
    losses = np.array([loss(x) for x in grid])
    inside = np.exp(grid[losses <= losses.min() + chdtri(1, 1 - CONFIDENCE)])
    best = float(np.exp(grid[losses.argmin()]))
    return Interval(best, float(inside.min()), float(inside.max()))


def fewer(results: Results, panel: str, better: str, worse: str) -> Interval:
    """How much larger a share of runs learned, at all points together: the same worlds, paired.

    Four more pairs at half weight, in which both, none and one of them learned, keep a few runs
    from looking certain (Agresti and Min, 2005); no share differs by more than 1.
    """
    shares = [
        np.isfinite(times_of(_series(results, panel, label))[1]).mean(axis=0)
        for label in (better, worse)
    ]
    gap = shares[0] - shares[1]
    count = len(gap) + 2
    mean = gap.sum() / count
    spread = ((gap**2).sum() + 1) / count - mean**2
    wide = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * (spread / count) ** 0.5
    return Interval(float(gap.mean()), max(-1.0, float(mean - wide)), min(1.0, float(mean + wide)))


def effectiveness(results: Results, panel: str) -> Interval:
    """psi in 1 - (1 - psi^size)^members, the chance that a run finds the reward."""
    if panel not in results:
        raise Unavailable(f"panel {panel} has not been run")
    return fit(*cells(results[panel]["series"]))


def gain(results: Results, panel: str, than: str) -> Interval:
    """By how much psi is larger: the distance between two estimates, each with its own interval
    (the square-and-add rule of Newcombe)."""
    one, two = (effectiveness(results, name) for name in (panel, than))
    gap = one.estimate - two.estimate
    low = np.hypot(one.estimate - one.low, two.high - two.estimate)
    high = np.hypot(one.high - one.estimate, two.estimate - two.low)
    return Interval(gap, float(gap - low), float(gap + high))
