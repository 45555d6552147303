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

TINY = np.finfo(float).tiny


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


def contributions(judged: Judged, clip: float) -> dict[str, np.ndarray]:
    """One number per decision, for every estimate: their mean is the estimate."""
    w, r, q, v, _ = judged
    value = float(np.dot(w, r) / max(w.sum(), TINY))
    return {
        "direct": v,
        "inverse propensity": w * r,
        "clipped": np.minimum(w, clip) * r,
        "self-normalised": value + w * (r - value) / max(w.mean(), TINY),
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
    """By how much every decision moves each estimate away from its mean, times n. The direct one
    moves with the model, too, which learned from the same outcomes."""
    found = {name: part - part.mean() for name, part in parts.items()}
    if judged.representer is not None:
        residual = judged.outcome - judged.fitted
        found["direct"] = found["direct"] + judged.representer * residual
    return found


def slopes(judged: Judged) -> dict[str, np.ndarray]:
    """By how much more every error is where its outcome is more by 1, for unbiased estimates."""
    w, model = judged.weight, judged.representer
    return {
        "direct": np.zeros_like(w) if model is None else model,
        "inverse propensity": w,
        "self-normalised": w / max(w.mean(), TINY),
        "doubly robust": w,
    }
