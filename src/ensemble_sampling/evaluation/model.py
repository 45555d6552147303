"""The reward model of evaluation: the posterior mean of `Linear`, from sums instead of steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import checks
from ..inputs.scale import FAR
from ..learners.linear import Linear
from .log import Log, slices

WIDTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the prior, in units of the noise


class RewardModel:
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
        if learner is not None:
            _check(learner, log)
        if len(log) < checks.size("folds", folds, least=2):
            raise ValueError(f"{len(log)} decisions cannot be put into {folds} folds")
        rng = np.random.default_rng(checks.size("seed", seed, least=0, below=2**128))
        self.fold = (rng.permutation(len(log)) % folds).astype(np.uint8)
        self.folds, self.groups = folds, log.arms if log.shared else 1
        self._log, self._x = log, log.chosen_features()
        self.mean, self.size, self.far = np.zeros(log.dim), np.ones(log.dim), np.inf
        if learner is None:
            (self.mean, self.size), self.far = _mean_and_size(self._x), FAR
        self.centred = learner is None or learner.centred
        prior = Linear(max(log.dim, 1)) if learner is None else learner
        width = log.dim + self.centred
        mean, root = (np.asarray(part, np.float64) for part in prior.prior)
        self._prior_mean, root = mean[:width], root[:width, :width]
        self._precision = np.linalg.inv(root @ root.T)
        self._fit(WIDTHS if learner is None and log.dim else (1.0,))

    def _inputs(self, features: np.ndarray) -> np.ndarray:
        """Features (..., d) as the model takes them, in double precision."""
        scaled = (features.astype(np.float64) - self.mean) / self.size
        np.clip(scaled, -self.far, self.far, out=scaled)
        scaled[np.isnan(scaled)] = 0.0  # missing: as usual
        if not self.centred:
            return scaled
        return np.concatenate([np.ones((*scaled.shape[:-1], 1)), scaled], axis=-1)

    def _chosen(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """(some of the decisions, inputs of what was chosen, the group of its model)."""
        for rows in slices(len(self._log)):
            group = self._log.chosen[rows] if self.groups > 1 else np.zeros(1, int)
            yield rows, self._inputs(self._x[rows]), group

    def _fit(self, widths: tuple[float, ...]) -> None:
        """theta (folds, groups, width): the posterior means given all other folds."""
        width = len(self._prior_mean)
        square = np.zeros((self.folds, self.groups, width, width))
        cross = np.zeros((self.folds, self.groups, width, 2))  # with the outcomes, and with ones
        totals = np.zeros((self.folds, 2))
        for rows, x, group in self._chosen():
            y = self._log.outcome[rows]
            known = np.stack([y, np.ones_like(y)], axis=1)
            place = self.fold[rows].astype(np.int64) * self.groups + group
            order = np.argsort(place, kind="stable")
            places, starts = np.unique(place[order], return_index=True)
            for at, some in zip(places.tolist(), np.split(order, starts[1:]), strict=True):
                to = divmod(at, self.groups)  # the fold and the group
                square[to] += x[some].T @ x[some]
                cross[to] += x[some].T @ known[some]
                totals[to[0]] += known[some].sum(axis=0)
        sums = square, cross, totals
        self._all = [part.sum(axis=0, keepdims=True) for part in sums]
        others = [whole - part for whole, part in zip(self._all, sums, strict=True)]
        told, least = self._precision, np.inf
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
        fitted = [(x * theta[group]).sum(axis=1) for _, x, group in self._chosen()]
        return theta, np.linalg.cholesky(inverse), self._log.outcome - np.concatenate(fitted)

    def values(self) -> np.ndarray:
        """What every action was worth (n, K), by the models that did not see the decision."""
        found = np.empty((len(self._log), self._log.arms))
        for rows in slices(len(found)):
            x, fold = self._inputs(self._log.features(rows)), self.fold[rows]
            if self.groups == 1:
                found[rows] = np.einsum("mki,mi->mk", x, self.theta[fold, 0])
                continue
            for k in range(self.folds):
                some = fold == k
                found[rows][some] = np.einsum("mi,ki->mk", x[some, 0], self.theta[k])
        return found

    def representer(self, chances: np.ndarray) -> np.ndarray:
        """n times the derivative of a policy's direct estimate with respect to every outcome (n,).

        A fold's model moved by the outcomes of all others: x' sum over k of inverse_k reach_k, with
        the policy's mean inputs, summed over the decisions of a fold (folds, groups, width).
        """
        reach = np.zeros_like(self.theta)
        for rows in slices(len(chances)):
            x, fold, shares = self._inputs(self._log.features(rows)), self.fold[rows], chances[rows]
            for k in range(self.folds):
                some = fold == k
                if self.groups == 1:
                    reach[k, 0] += np.einsum("mki,mk->mi", x[some], shares[some]).sum(axis=0)
                else:  # not by `@`: products this small lose more to BLAS's threads than they gain
                    reach[k] += np.einsum("mk,mi->ki", shares[some], x[some, 0])
        moved = np.einsum("fgij,fgj->fgi", self._inverse, reach)
        moved = moved.sum(axis=0) - moved
        found = [
            np.einsum("mi,mi->m", x, moved[self.fold[rows], group])
            for rows, x, group in self._chosen()
        ]
        return np.concatenate(found)


def _check(learner: Linear, log: Log) -> None:
    if not isinstance(learner, Linear) or learner.outcomes:
        raise TypeError(f"the reward model must be a Linear learner of numbers, got {learner}")
    if learner.dim != log.dim:
        raise ValueError(f"the reward model takes {learner.dim} features, the log {log.dim}")
    if log.missing:
        raise ValueError(
            f"features are missing (NaN) in {log.missing} of {len(log)} decisions: only the "
            "reward model that is told nothing, model=None, takes them for the usual ones"
        )


def _mean_and_size(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every feature (n, d), of the values that are not missing; 1
    where it does not vary."""

    def total(function: Any) -> Any:
        parts = (x[rows].astype(np.float64) for rows in slices(len(x)))
        return sum(np.nansum(function(part), axis=0) for part in parts)

    count = np.maximum(total(lambda part: ~np.isnan(part)), 1)
    mean = total(lambda part: part) / count
    size = np.sqrt(total(lambda part: np.square(part - mean)) / count)
    return mean, np.where(size > 1e-6 * np.abs(mean), size, 1.0)
