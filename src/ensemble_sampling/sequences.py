"""Confidence sequences: intervals that hold at every look, and a test of shares that does."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, ndtr

from .intervals import Errors, Estimate, Span, interval

ALPHA = 0.05  # the chance that a sequence ever misses the truth
SHARPEST = 2000.0  # decisions at which sequences are narrowest, about; they hold at any number
UNSEEN = 1.0
WIDEST = 1e6  # times the control's mean, beyond which a ratio has no end


def quantile(decisions: float, alpha: float = ALPHA) -> float:
    """By how many standard errors a mean of so many may ever be off.

    The boundary of Robbins' normal mixture (1970) for a mean that is asymptotically normal, by
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and
    asymptotic confidence sequences" (Annals of Statistics, 2024), equation (9):

        z_t^2 = 2 (t rho^2 + 1) / (t rho^2) log(sqrt(t rho^2 + 1) / alpha)

    with their equation (11) for the rho at which it is narrowest at t = SHARPEST. At a single look
    z would be 1.96; at all of them it is 3.2 to 3.7 between a tenth and a hundred times SHARPEST.
    """
    most = -2 * math.log(alpha)
    scaled = max(decisions, 1.0) * (most + math.log(most) + 1) / SHARPEST  # t rho^2
    return math.sqrt(2 * (scaled + 1) / scaled * math.log(math.sqrt(scaled + 1) / alpha))


def tail(decisions: float, alpha: float = ALPHA) -> float:
    """The chance of a single look that is as rare as `alpha` is for all of them."""
    return float(ndtr(-quantile(decisions, alpha)))


def sequence(value: float, errors: Errors, decisions: float, alpha: float = ALPHA) -> Estimate:
    """`intervals.interval` at the quantile that holds at every look: skewed errors, such as those
    of rare clicks and of revenue, widen it as they widen the interval of one look."""
    return interval(value, errors, tail(decisions, alpha))


class Pair(NamedTuple):
    """Two weighted means over the same units, which may be several decisions of one subject.

    origin, away: a reward, and how far from it both means are, lest a difference of rewards that
        are all alike be one of rounding.
    errors: of both means, unit by unit (n, 2), so that the mean of a column is that mean's error.
    reach: by how much a reward at an end of its range could move each mean, (2, 2): up and down.
    freedom: degrees of freedom of the smaller group; infinite for clicks.
    alone: mean products of the errors of both means, were every decision a unit, (2, 2).
    decisions: how many there are.
    """

    origin: float
    away: tuple[float, float]
    errors: np.ndarray
    reach: np.ndarray
    freedom: float
    alone: np.ndarray
    decisions: int
    span: Span

    @classmethod
    def of(cls, weights: np.ndarray, rewards: np.ndarray, units: np.ndarray) -> "Pair | None":
        """weights: of every decision in either mean (n, 2), by one of which it has no part in it.
        units: to which unit every decision belongs, 0, 1, ...; None where a mean has no decision.
        """
        total = weights.sum(axis=0)
        if not (total > 0).all():
            return None
        origin, span = float(rewards[0]), Span.of(rewards)
        rewards = rewards - origin
        means = weights.T @ rewards / total
        share = weights * (len(weights) / total)
        each = share * (rewards[:, None] - means)
        count = int(units.max()) + 1
        whole = np.stack([np.bincount(units, part, count) for part in each.T], axis=1)
        whole *= count / len(weights)
        reach = (
            share.max(axis=0)
            * (count / len(weights))
            * (np.array([[span.high], [span.low]]) - origin - means)
        )
        sizes = np.stack([np.bincount(units, part, count) for part in weights.T], axis=1)
        freedom = float((total**2 / np.square(sizes).sum(axis=0)).min()) - 1
        freedom = math.inf if span.clicks else freedom
        alone = each.T @ each / len(weights)
        away = (float(means[0]), float(means[1]))
        return cls(origin, away, whole, reach, freedom, alone, len(weights), span)

    @property
    def first(self) -> float:
        """The one mean."""
        return self.origin + self.away[0]

    @property
    def second(self) -> float:
        """The other."""
        return self.origin + self.away[1]

    def estimate(self, first: float, second: float, alpha: float = ALPHA) -> Estimate:
        """Of `first` times the one mean and `second` times the other."""
        factors = np.array([first, second])
        error, ends = self.errors @ factors, self.reach * factors
        square = np.square(error)
        up, down = max(0.0, float(ends.max())), min(0.0, float(ends.min()))
        variance = float(square.mean()) + UNSEEN * (up**2 + down**2) / len(error)
        errors = Errors(
            len(error), variance, float((square * error).mean()), up, down, self.freedom
        )
        value = first * self.away[0] + second * self.away[1] + (first + second) * self.origin
        return sequence(value, errors, self.alike(factors), alpha)

    def alike(self, factors: np.ndarray) -> float:
        """How many independent decisions would tell as much, see `quantile`."""
        alone = float(factors @ self.alone @ factors)
        whole = float(np.square(self.errors @ factors).mean())
        return min(self.decisions, len(self.errors) * alone / whole) if whole else self.decisions

    def mean(self, second: bool, alpha: float = ALPHA) -> Estimate:
        """One of the two."""
        return self.estimate(float(not second), float(second), alpha).within(self.span)

    def difference(self, alpha: float = ALPHA) -> Estimate:
        return self.estimate(1.0, -1.0, alpha)

    def ratio(self, alpha: float = ALPHA) -> Estimate | None:
        """Of the first to the second: all r for which first - r second may be 0 (Fieller, 1954);
        None where the second is not above 0, or hardly. An end that cannot be told is infinite."""
        if self.second <= abs(self.first) / WIDEST:
            return None
        middle = self.first / self.second

        def excluded(ratio: float) -> bool:
            found = self.estimate(1.0, -ratio, alpha)
            return found.low is None or found.high is None or not found.low <= 0 <= found.high

        return Estimate(middle, None, *(_end(excluded, middle, sign) for sign in (-1.0, 1.0)))


def mean(rewards: np.ndarray, units: np.ndarray, alpha: float = ALPHA) -> Estimate:
    """Of decisions, which are independent as far as they are of different units."""
    found = Pair.of(np.ones((len(rewards), 2)), rewards, units)
    assert found is not None
    return found.mean(False, alpha)


def _end(excluded: Any, middle: float, sign: float) -> float:
    """How far from the middle nothing is excluded, to a thousandth."""
    step = max(abs(middle), 1.0) / 8
    while not excluded(middle + sign * step):
        step *= 2
        if step > WIDEST:
            return sign * math.inf
    near, far = 0.0, step
    while far - near > 1e-3 * max(step, abs(middle)) / 8:
        half = (near + far) / 2
        near, far = (near, half) if excluded(middle + sign * half) else (half, far)
    return middle + sign * far


def evidence(first: np.ndarray, second: np.ndarray, share: np.ndarray) -> float:
    """The logarithm of the odds that units were not split as they should have been.

    A sequential multinomial test, by Lindon and Malek, "Anytime-valid inference for multinomial
    count data" (NeurIPS, 2022): under the share s the Bayes factor

        B(a + n1, b + n2) / B(a, b) / (s^n1 (1 - s)^n2),   a = WEIGHT s,  b = WEIGHT (1 - s)

    has the mean 1, so that the chance that it is ever above 1 / alpha is at most alpha (Ville). Of
    several shares, after a change of them, the factors multiply.

    first, second: how many units there are of either kind, by the share that the first should have.
    """
    a, b = WEIGHT * share, WEIGHT * (1 - share)
    mixed = betaln(a + first, b + second) - betaln(a, b)
    return float((mixed - first * np.log(share) - second * np.log1p(-share)).sum())


WEIGHT = 1000.0  # the larger, the smaller the deviations that `evidence` is sharpest for
