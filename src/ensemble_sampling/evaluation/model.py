"""The reward model of evaluation: the posterior mean of `Linear`, from sums instead of steps."""

import numpy as np

from .. import checks
from ..inputs.scale import FAR
from ..learners.linear import Linear
from .log import Log, Offers, slices

WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the prior, in units of the noise


class Fitted:
    """A linear model of a log's outcomes, fitted once for every fold to all other folds.

    One model for all actions where they have features of their own, one for each action where
    they share a context. The posterior mean of a `Linear` learner is a function of the sums X'X
    and X'y, so that leaving out a fold is a subtraction: the same numbers, to rounding, as
    learning one outcome after another gives.

    learner: its prior, constant and centring are those of the model. None is a `Linear` that is
        told nothing, on features that are standardised as a bandit does, with a prior of the width
        that predicts the folds left out best.
    """

    def __init__(self, log: Log, learner: Linear | None = None, folds: int = 5, seed: int = 0):
        if learner is not None and (not isinstance(learner, Linear) or learner.outcomes):
            raise TypeError(f"the reward model must be a Linear learner of numbers, got {learner}")
        if learner is not None and learner.dim != log.dim:
            raise ValueError(f"the reward model takes {learner.dim} features, the log {log.dim}")
        if learner is not None and log.missing:
            raise ValueError(
                f"features are missing (NaN) in {log.missing} of {len(log)} decisions: only the "
                "reward model that is told nothing, model=None, takes them for the usual ones"
            )
        if len(log) < checks.size("folds", folds, least=2):
            raise ValueError(f"{len(log)} decisions cannot be put into {folds} folds")
        order = np.random.default_rng(checks.size("seed", seed, least=0, below=2**128)).permutation(
            len(log)
        )
        self.fold = (order % folds).astype(np.uint8)
        self.folds, self.groups = folds, log.arms if log.shared else 1
        self._log, self._x = log, log.chosen_rows()
        self.mean, self.size, self.far = np.zeros(log.dim), np.ones(log.dim), np.inf
        if learner is None:
            (self.mean, self.size), self.far = _scales(self._x), FAR
        self.centred = learner is None or learner.centred
        prior = Linear(max(log.dim, 1)) if learner is None else learner
        width = log.dim + self.centred
        mean, root = (np.asarray(part, np.float64) for part in prior._prior)
        self._prior_mean, root = mean[:width], root[:width, :width]
        self._precision = np.linalg.inv(root @ root.T)
        self._fit(WIDTHS if learner is None and log.dim else (1.0,))

    def _rows(self, features: np.ndarray) -> np.ndarray:
        """Features (..., d) as the model takes them, in double precision."""
        scaled = (features.astype(np.float64) - self.mean) / self.size
        np.clip(scaled, -self.far, self.far, out=scaled)
        if np.isnan(scaled).any():
            scaled[np.isnan(scaled)] = 0.0  # missing: as usual
        if not self.centred:
            return scaled
        return np.concatenate([np.ones((*scaled.shape[:-1], 1)), scaled], axis=-1)

    def _fit(self, widths: tuple[float, ...]) -> None:
        """theta (folds, groups, width): the posterior means given all other folds."""
        log, width = self._log, len(self._prior_mean)
        square = np.zeros((self.folds, self.groups, width, width))
        cross = np.zeros((self.folds, self.groups, width, 2))  # with the outcomes, and with ones
        totals = np.zeros((self.folds, 2))
        for rows in slices(len(log)):
            x, y = self._rows(self._x[rows]), log.outcome[rows]
            known = np.stack([y, np.ones_like(y)], axis=1)
            for fold, group, some in self._places(rows):
                square[fold, group] += x[some].T @ x[some]
                cross[fold, group] += x[some].T @ known[some]
                totals[fold] += known[some].sum(axis=0)
        self._all = [part.sum(axis=0, keepdims=True) for part in (square, cross, totals)]
        parts = zip(self._all, (square, cross, totals), strict=True)
        others, told = [whole - part for whole, part in parts], self._precision
        least = np.inf
        for scale in widths:
            precision = told / scale**2
            precision[0, 0] = told[0, 0] if self.centred else precision[0, 0]  # of the constant
            theta, inverse = self._solved(precision, *others)
            left_out = np.einsum("fgi,fgij,fgj->", theta, square, theta)
            error = left_out - 2 * np.einsum("fgi,fgi->", theta, cross[..., 0])
            if error < least:
                least, self.theta, self._inverse, self._precision = error, theta, inverse, precision

    def _solved(
        self, precision: np.ndarray, square: np.ndarray, cross: np.ndarray, totals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior means, and covariances in units of the noise, given sums."""
        inverse = np.linalg.inv(square + precision)  # (folds, groups, width, width)
        total, count = totals.T
        center = np.where(self.centred, total / count, 0.0)
        with_y, with_ones = np.moveaxis(cross, -1, 0)
        moment = with_y - center[:, None, None] * with_ones + precision @ self._prior_mean
        theta = np.einsum("fgij,fgj->fgi", inverse, moment)
        if self.centred:
            theta[..., 0] += center[:, None]
        return theta, inverse

    def whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Given all folds: the posterior means (groups, width), a root of their covariances in
        units of the noise, and the residuals (n,)."""
        theta, inverse = (part[0] for part in self._solved(self._precision, *self._all))
        residual = np.empty(len(self._log))
        for rows in slices(len(residual)):
            group = self._log.chosen[rows] if self.groups > 1 else 0
            fitted = (self._rows(self._x[rows]) * theta[group]).sum(axis=1)
            residual[rows] = self._log.outcome[rows] - fitted
        return theta, np.linalg.cholesky(inverse), residual

    def _places(self, rows: slice) -> list[tuple[int, int, np.ndarray]]:
        """(fold, group, which of the rows) for those there are."""
        group = self._log.chosen[rows] if self.groups > 1 else 0
        place = self.fold[rows].astype(np.int64) * self.groups + group
        order = np.argsort(place, kind="stable")
        found, starts = np.unique(place[order], return_index=True)
        parts = np.split(order, starts[1:])
        return [
            (*divmod(int(at), self.groups), part) for at, part in zip(found, parts, strict=True)
        ]

    def values(self, offers: Offers) -> np.ndarray:
        """What every action was worth (m, K), by the models that did not see the decision."""
        x, fold = self._rows(offers.features), self.fold[offers.rows]
        if self.groups == 1:
            return np.einsum("mki,mi->mk", x, self.theta[fold, 0])
        found = np.empty((len(x), self.groups))
        for k in range(self.folds):
            some = fold == k
            found[some] = np.einsum("mi,ki->mk", x[some, 0], self.theta[k])
        return found

    def reach(self, offers: Offers, chances: np.ndarray) -> np.ndarray:
        """The policy's mean inputs, summed over decisions (folds, groups, width): with them
        `representer` says how much every outcome moved the direct estimate."""
        x, fold = self._rows(offers.features), self.fold[offers.rows]
        if self.groups == 1:
            mean = np.einsum("mki,mk->mi", x, chances)[:, None]
            return np.stack([mean[fold == k].sum(axis=0) for k in range(self.folds)])
        # Not by `@`: products this small lose more to BLAS's threads than they gain.
        folds = [fold == k for k in range(self.folds)]
        return np.stack([np.einsum("mk,mi->ki", chances[k], x[k, 0]) for k in folds])

    def representer(self, reach: np.ndarray) -> np.ndarray:
        """n times the derivative of the direct estimate with respect to every outcome (n,).

        A fold's model moved by the outcomes of all others: x' sum over k of inverse_k reach_k.
        """
        moved = np.einsum("fgij,fgj->fgi", self._inverse, reach)
        moved = moved.sum(axis=0) - moved
        found = np.empty(len(self._log))
        for rows in slices(len(found)):
            x = self._rows(self._x[rows])
            group = self._log.chosen[rows] if self.groups > 1 else 0
            found[rows] = np.einsum("mi,mi->m", x, moved[self.fold[rows], group])
        return found


def _scales(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every feature (n, d), of the values that are not missing; 1
    where it does not vary."""
    mean, square, count = np.zeros((3, x.shape[1]))
    for rows in slices(len(x)):
        part = x[rows].astype(np.float64)
        there = ~np.isnan(part)
        more = there.sum(axis=0)
        new = np.maximum(count + more, 1)
        center = np.where(there, part, 0.0).sum(axis=0) / np.maximum(more, 1)
        step = np.where(more > 0, center - mean, 0.0)
        away = np.square(np.where(there, part - center, 0.0)).sum(axis=0)
        square = square + away + np.square(step) * (count * more / new)
        mean, count = mean + step * (more / new), count + more
    size = np.sqrt(square / np.maximum(count, 1))
    return mean, np.where(size > 1e-6 * np.abs(mean), size, 1.0)
