"""What is claimed of deep exploration, and the quantities that decide it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtri, stdtrit

from ..claims import CONFIDENCE, Finding, Interval, Unavailable, Verdict
from ..panels import Results
from .panels import times_of


def _series(results: Results, panel: str, label: str) -> Mapping[str, Any]:
    if panel not in results:
        raise Unavailable(f"panel {panel} has not been run")
    return next(s for s in results[panel]["series"] if s["label"] == label)


def learned(results: Results, panel: str, label: str) -> Finding:
    """Whether every realization learned at every point."""
    points, times = times_of(_series(results, panel, label))
    found = np.isfinite(times)
    missing = ", ".join(str(p) for p, each in zip(points, found, strict=True) if not each.all())
    text = f"{found.sum()} of {found.size} runs at {len(points)} points"
    if missing:
        return Finding(Verdict.FAILS, f"{text}; not all at {missing}")
    return Finding(Verdict.HOLDS, text)


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


def fewer(results: Results, panel: str, better: str, worse: str) -> Interval:
    """How much larger a share of runs learned, at all points together: the same worlds, paired."""
    shares = [
        np.isfinite(times_of(_series(results, panel, label))[1]).mean(axis=0)
        for label in (better, worse)
    ]
    gap = shares[0] - shares[1]
    wide = float(stdtrit(len(gap) - 1, (1 + CONFIDENCE) / 2)) * gap.std(ddof=1) / len(gap) ** 0.5
    return Interval(float(gap.mean()), float(gap.mean() - wide), float(gap.mean() + wide))


def effectiveness(results: Results, panel: str, label: str, size: int) -> Interval:
    """psi in 1 - (1 - psi^size)^members, the chance that a run learns within its episodes.

    By maximum likelihood over all numbers of members; the interval is where the likelihood is
    within the 95% quantile of chi-squared with one degree of freedom (Wilks).
    """
    points, times = times_of(_series(results, panel, label))
    count, wins = times.shape[1], np.isfinite(times).sum(axis=1)
    if not 0 < wins.sum() < times.size:
        raise Unavailable("all runs learned, or none did: every factor near 1, or 0, fits")

    def loss(psi: float) -> float:
        # log(1 - p) of the chance that all members fail, without cancellation.
        fails = points * np.log1p(-(psi**size))
        found = np.log(-np.expm1(fails))
        return float(-2 * (wins @ found + (count - wins) @ fails))

    low, high = 1e-3, 1 - 1e-9
    fit: Any = minimize_scalar(loss, bounds=(low, high), method="bounded")
    best = fit.x
    grid = np.linspace(low, high, 20_001)
    inside = grid[[loss(p) <= loss(best) + chdtri(1, 1 - CONFIDENCE) for p in grid]]
    return Interval(float(best), float(inside.min()), float(inside.max()))
