"""Estimates of a policy's value from weighted outcomes and a reward model, with intervals.

Every estimate is the mean of one contribution per decision. With the weight w = pi / mu of the
chosen action, its outcome r, its modelled value q and the policy's modelled value v = sum pi q:

    direct              v
    inverse propensity  w r                          (Horvitz and Thompson, 1952)
    clipped             min(w, c) r                  (Ionides, 2008)
    self-normalised     V + w (r - V) / mean(w),     V = sum(w r) / sum(w)   (Hajek, 1971)
    doubly robust       v + w (r - q)                (Dudik, Langford and Li, 2011)
    switch              v + [w <= c] w (r - q)       (Wang, Agarwal and Dudik, 2017)

Clipped and switch buy less variance with a bias, the part of w r or w (r - q) beyond c, which
no number of decisions makes smaller and the log cannot bound: they have no interval.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

CONFIDENCE = 0.95


class Judged(NamedTuple):
    """What is known of every decision of a log, under one policy; arrays (n,).

    weight: pi / mu of the chosen action
    outcome: what it earned
    fitted: what the reward model expects of it
    direct: what the reward model expects under the policy
    representer: the weight that the chosen action's residual has in the direct estimate, where
        the model is linear in outcomes; None where that is not known
    """

    weight: np.ndarray
    outcome: np.ndarray
    fitted: np.ndarray
    direct: np.ndarray
    representer: np.ndarray | None = None


class Estimate(NamedTuple):
    """A value with its standard error and 95% interval; None where its bias is not known."""

    value: float
    stderr: float | None
    low: float | None
    high: float | None

    def widened(self, by: float) -> "Estimate":
        """Allowing for an error of up to `by` that no number of decisions makes smaller."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=self.low - by, high=self.high + by)


def contributions(judged: Judged, clip: float) -> dict[str, np.ndarray]:
    """One number per decision, for every estimate: their mean is the estimate."""
    w, r, q, v, _ = judged
    value = float(np.dot(w, r) / max(w.sum(), np.finfo(float).tiny))
    return {
        "direct": v,
        "inverse propensity": w * r,
        "clipped": np.minimum(w, clip) * r,
        "self-normalised": value + w * (r - value) / max(w.mean(), np.finfo(float).tiny),
        "doubly robust": v + w * (r - q),
        "switch": v + np.where(w <= clip, w, 0.0) * (r - q),
    }


METHODS = (
    "direct",
    "inverse propensity",
    "clipped",
    "self-normalised",
    "doubly robust",
    "switch",
)


BIASED = ("clipped", "switch")
"""Estimates without an interval."""


def errors(judged: Judged, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By how much every decision moves each estimate away from its mean, times n.

    A decision that has share h of all weight moves the self-normalised estimate by 1 / (1 - h)
    times as much when it is left out (the jackknife of a ratio). The direct estimate moves with
    the model, too, which learned from the same outcomes.
    """
    found = {name: part - part.mean() for name, part in parts.items()}
    share = judged.weight / max(judged.weight.sum(), np.finfo(float).tiny)
    found["self-normalised"] = found["self-normalised"] / np.maximum(1 - share, 0.1)
    if judged.representer is not None:
        residual = judged.outcome - judged.fitted
        found["direct"] = found["direct"] + judged.representer * residual
    return found


def interval(value: float, error: np.ndarray) -> Estimate:
    """The interval of an estimate from what every decision contributes to its error.

    Student's t, reaching as much further as Edgeworth's expansion asks of a mean whose terms are
    skewed and heavy-tailed (Hall, 1992, for a two-sided interval): by the share
    (skew^2 (z^4 + 2 z^2 - 3) / 18 - kurtosis (z^2 - 3) / 12) / n. A few large weights make that
    large, which is when the plain interval covers too seldom.
    """
    n = len(error)
    square = np.square(error)
    variance = float(square.mean())
    if n < 2 or not variance > 0:
        stderr = 0.0 if n > 1 and variance == 0 else np.inf
        return Estimate(value, stderr, value - stderr, value + stderr)
    stderr = float(np.sqrt(variance / (n - 1)))
    skew = float((square * error).mean()) / variance**1.5
    excess = float(np.square(square).mean()) / variance**2 - 3
    z2 = float(ndtri((1 + CONFIDENCE) / 2)) ** 2
    more = (skew**2 * (z2**2 + 2 * z2 - 3) / 18 - excess * (z2 - 3) / 12) / n
    reach = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * (1 + max(more, 0.0)) * stderr
    return Estimate(value, stderr, value - reach, value + reach)


def effective(weight: np.ndarray) -> float:
    """How many decisions of equal weight would say as much (Kish, 1965)."""
    total = weight.sum()
    return float(total**2 / np.square(weight).sum()) if total > 0 else 0.0
