"""What can be said of the best of several, when it is known to be best only from the same data."""

from typing import NamedTuple

import numpy as np

DRAWS = 10_000
"""Draws that critical values are read from; fixed, so that the same values give the same answer."""


class Selected(NamedTuple):
    """The row with the least mean, an interval for what it truly is, and who else may be best."""

    row: int
    mean: float
    low: float
    high: float
    contenders: tuple[int, ...]


def least(values: np.ndarray, confidence: float = 0.95) -> Selected:
    """The row of `values` (rows, realizations) with the least mean.

    The best of many looks better than it is, for it was chosen for looking good. The interval holds
    for all rows at once, and so for whichever is chosen: mean ± c standard errors, with c the
    quantile of the largest |t| among the rows. Rows that faced the same worlds rise and fall
    together, which c knows from their correlations (Hothorn, Bretz and Westfall, 2008).

    A row is no contender if another beats it by more than the largest of its paired t values would
    reach by chance (Hsu, 1981): the truly best row is among the contenders with the confidence
    given. Both take means over realizations to be normal.
    """
    values = np.asarray(values, np.float64)
    rows, count = values.shape
    mean, error = values.mean(axis=1), _stderr(values)
    at = int(np.argmin(mean))
    c = _quantile(np.abs(_draws(values)).max(axis=1), count, confidence)
    low, high = mean[at] - c * error[at], mean[at] + c * error[at]
    found = [row for row in range(rows) if row == at or not _beaten(values, row, confidence)]
    return Selected(at, float(mean[at]), float(low), float(high), tuple(found))


def _beaten(values: np.ndarray, row: int, confidence: float) -> bool:
    """Whether some other row is better beyond chance, in the same realizations."""
    apart = values[row] - np.delete(values, row, axis=0)
    mean, error = apart.mean(axis=1), _stderr(apart)
    if not np.any(mean > 0):
        return False
    if np.any((error == 0) & (mean > 0)):
        return True
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    return bool(t.max() > _quantile(_draws(apart).max(axis=1), values.shape[1], confidence))


def _stderr(values: np.ndarray) -> np.ndarray:
    return values.std(axis=1, ddof=1) / values.shape[1] ** 0.5


def _draws(values: np.ndarray) -> np.ndarray:
    """Normal draws (DRAWS, rows) with the correlations of the rows."""
    off = values - values.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.square(off).sum(axis=1, keepdims=True))
    off = np.divide(off, scale, out=np.zeros_like(off), where=scale > 0)
    eigenvalues, vectors = np.linalg.eigh(off @ off.T)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return np.random.default_rng(0).standard_normal((DRAWS, len(values))) @ root.T


def _quantile(largest: np.ndarray, count: int, confidence: float) -> float:
    """Of t values in place of normal ones: all rows' errors are estimated from `count`."""
    spread = np.random.default_rng(1).chisquare(count - 1, len(largest)) / (count - 1)
    return float(np.quantile(largest / np.sqrt(spread), confidence))
