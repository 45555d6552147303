"""What can be said of the best of several, when it is known to be best only from the same data."""

import numpy as np

DRAWS = 5_000
"""Draws that critical values are read from; fixed, so that the same values give the same answer."""


def least(
    values: np.ndarray, confidence: float = 0.95
) -> tuple[int, float, float, float, tuple[int, ...]]:
    """The row of `values` (rows, realizations) with the least mean, this mean, an interval (low,
    high) for what it truly is, and the rows that may be the best.

    The best of many looks better than it is, for it was chosen for looking good. The interval holds
    for all rows at once, and so for whichever is chosen: mean ± c standard errors, with c the
    quantile of the largest |t| among the rows. Rows that faced the same worlds rise and fall
    together, which c knows from their correlations (Hothorn, Bretz and Westfall, 2008).

    A row is no contender if another beats it by more than the largest of its paired t values would
    reach by chance (Hsu, 1981): the truly best row is among the contenders with the confidence
    given. Both take means over realizations to be normal.
    """
    values = np.asarray(values, np.float64)
    mean, error, noise = values.mean(axis=1), _stderr(values), _noise(values)
    at = int(np.argmin(mean))
    c = np.quantile(np.abs(_divided(noise, error)).max(axis=1), confidence)
    low, high = mean[at] - c * error[at], mean[at] + c * error[at]
    rows = range(len(values))
    found = [r for r in rows if r == at or not _beaten(values, r, noise, confidence)]
    return at, float(mean[at]), float(low), float(high), tuple(found)


def _beaten(values: np.ndarray, row: int, noise: np.ndarray, confidence: float) -> bool:
    """Whether some other row is better beyond chance, in the same realizations."""
    apart = np.delete(values[row] - values, row, axis=0)
    mean, error = apart.mean(axis=1), _stderr(apart)
    if np.any((error == 0) & (mean > 0)):
        return True
    t = _divided(mean, error).max(initial=0.0)
    if t == 0.0:
        return False
    by_chance = _divided(np.delete(noise[:, [row]] - noise, row, axis=1), error)
    return bool(t > np.quantile(by_chance.max(axis=1), confidence))


def _stderr(values: np.ndarray) -> np.ndarray:
    return values.std(axis=1, ddof=1) / values.shape[1] ** 0.5


def _divided(values: np.ndarray, error: np.ndarray) -> np.ndarray:
    """t values; 0 where there is no error to divide by."""
    return np.divide(values, error, out=np.zeros_like(values), where=error > 0)


def _noise(values: np.ndarray) -> np.ndarray:
    """Draws (DRAWS, rows) of the errors of the rows' means, which go up and down together.

    They have the tails of t, and not of the normal, since errors are estimated.
    """
    rows, count = values.shape
    eigenvalues, vectors = np.linalg.eigh(np.atleast_2d(np.cov(values)) / count)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    rng = np.random.default_rng(0)
    spread = np.sqrt(rng.chisquare(count - 1, (DRAWS, 1)) / (count - 1))
    return rng.standard_normal((DRAWS, rows)) @ root.T / spread
