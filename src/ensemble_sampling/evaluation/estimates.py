"""Estimates of a policy's value from weighted outcomes and a reward model.

Every estimate is the mean of one contribution per decision. With the weight w = pi / mu of the
chosen action, its outcome r, its modelled value q and the policy's modelled value v = sum pi q:

    direct              v
    inverse propensity  w r                          (Horvitz and Thompson, 1952)
    clipped             min(w, c) r                  (Ionides, 2008)
    self-normalised     V + w (r - V) / mean(w),     V = sum(w r) / sum(w)   (Hajek, 1971)
    doubly robust       v + w (r - q)                (Dudik, Langford and Li, 2011)
    switch              v + [w <= c] w (r - q)       (Wang, Agarwal and Dudik, 2017)

Clipped and switch buy less variance with a bias, the part of w r or w (r - q) beyond c, which
no number of decisions makes smaller and the log cannot bound: they have no interval. Those of the
others are in `intervals`.
"""

from typing import NamedTuple

import numpy as np

from ..intervals import Errors, Estimate, Span, interval

TINY = np.finfo(float).tiny


class Influence(NamedTuple):
    """An estimate, and what every decision has to do with it.

    error: by how much each moves it away from its expectation, times n (n,)
    slope: by how much more that is where the outcome is more by 1 (n,); None for an estimate with
        a bias, which has no interval
    """

    value: float
    error: np.ndarray
    slope: np.ndarray | None

    def less(self, other: "Influence") -> "Influence":
        """The difference of two estimates from the same decisions."""
        slope = None
        if self.slope is not None and other.slope is not None:
            slope = self.slope - other.slope
        return Influence(self.value - other.value, self.error - other.error, slope)

    def estimate(self, outcome: np.ndarray, span: Span) -> Estimate:
        if self.slope is None:
            return Estimate(self.value, None, None, None)
        return interval(self.value, Errors.of(self.error, outcome, self.slope, span))


def earned(r: np.ndarray) -> Influence:
    """The mean of what the log itself earned."""
    return Influence(float(r.mean()), r - float(r.mean()), np.ones_like(r))


def influences(
    w: np.ndarray, r: np.ndarray, q: np.ndarray, v: np.ndarray, moved: np.ndarray, clip: float
) -> dict[str, Influence]:
    """Every estimate by its name, from columns (n,) as above.

    moved: the weight that every residual r - q has in the mean of v, since the reward model learned
        from the same outcomes; 0 where it did not
    """
    value, mean = float(np.dot(w, r) / max(w.sum(), TINY)), max(w.mean(), TINY)
    parts = {  # contributions, and their slopes
        "direct": (v, moved),
        "inverse propensity": (w * r, w),
        "clipped": (np.minimum(w, clip) * r, None),
        "self-normalised": (value + w * (r - value) / mean, w / mean),
        "doubly robust": (v + w * (r - q), w),
        "switch": (v + np.where(w <= clip, w, 0.0) * (r - q), None),
    }
    found = {}
    for name, (part, slope) in parts.items():
        error = part - part.mean()
        error = error + moved * (r - q) if name == "direct" else error
        found[name] = Influence(float(part.mean()), error, slope)
    return found
