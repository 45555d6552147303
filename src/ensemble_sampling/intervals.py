"""The interval of a mean, plain or weighted: one for evaluations, shadows and the dashboard."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from .tables import html_facts, shown

TAIL = 0.025  # the chance that the truth is beyond either end
SURE = 1e-6  # the chance that what is said without doubt is wrong
FURTHEST = 1000.0  # standard errors, beyond which nothing is excluded
NEVER = 1e-6  # a chance to be chosen that is as good as none


class Estimate(NamedTuple):
    """A value with its standard error and 95% interval; None where its bias is not known."""

    value: float
    stderr: float | None
    low: float | None
    high: float | None

    def __repr__(self) -> str:
        return (
            f"Estimate({', '.join(f'{k}={shown(v) or None}' for k, v in self._asdict().items())})"
        )

    def _repr_html_(self) -> str:
        return html_facts("estimate", self._asdict())

    def widened(self, by: float) -> "Estimate":
        """Allowing for an error of up to `by` that no number of decisions makes smaller."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=self.low - by, high=self.high + by)

    def within(self, span: "Span") -> "Estimate":
        """Of a mean of clicks, which is between 0 and 1."""
        if not span.clicks or self.low is None or self.high is None:
            return self
        low, high = (min(max(end, span.low), span.high) for end in (self.low, self.high))
        return self._replace(low=min(low, self.value), high=max(high, self.value))


class Span(NamedTuple):
    """Where rewards are: those seen, or 0 to 1 where they are clicks, also before the first one."""

    low: float
    high: float
    clicks: bool

    @classmethod
    def of(cls, rewards: np.ndarray) -> "Span":
        clicks = bool(np.isin(rewards, (0.0, 1.0)).all())
        return cls.seen(float(rewards.min()), float(rewards.max()), clicks)

    @classmethod
    def seen(cls, low: float, high: float, clicks: bool) -> "Span":
        return cls(0.0, 1.0, True) if clicks else cls(low, high, False)


class Errors(NamedTuple):
    """By how much decisions move an estimate away from its value, each times their number.

    square, cube: their mean powers
    up, down: the furthest that a reward at an end of its range could have moved it
    freedom: degrees of freedom of the square; infinite where the mean says what it is
    """

    decisions: int
    square: float
    cube: float
    up: float
    down: float
    freedom: float

    @classmethod
    def of(cls, error: np.ndarray, rewards: np.ndarray, slope: np.ndarray, span: Span) -> "Errors":
        """`slope`: by how much more every error is where its reward is more by 1."""
        square = np.square(error)
        ends = [error + slope * (end - rewards) for end in (span.low, span.high)]
        return cls(
            len(error),
            float(square.mean()),
            float((square * error).mean()),
            max(0.0, *(float(end.max()) for end in ends)),
            min(0.0, *(float(end.min()) for end in ends)),
            _freedom(effective(np.abs(slope)) or len(error), span),
        )


class Weights(NamedTuple):
    """Sums over weights w and their rewards r, less `origin`: all that an interval of their
    self-normalised mean needs, so that a database can sum them.

    powers: sum(w^a r^b), in the order of `POWERS`
    """

    decisions: int
    powers: tuple[float, ...]
    largest: float
    origin: float = 0.0

    @property
    def effective(self) -> float:
        w, ww = self.powers[0], self.powers[2]
        return w * w / ww if ww > 0 else 0.0

    def mean(self, span: Span, tail: float = TAIL) -> Estimate:
        """sum(w r) / sum(w), whose errors are w (r - value) / mean(w)."""
        w, wr, ww, wwr, wwrr, www, wwwr, wwwrr, wwwrrr = self.powers
        value, scale = wr / w, w / self.decisions
        square = wwrr - 2 * value * wwr + value**2 * ww
        cube = wwwrrr - 3 * value * wwwrr + 3 * value**2 * wwwr - value**3 * www
        errors = Errors(
            self.decisions,
            max(0.0, square) / self.decisions / scale**2,
            cube / self.decisions / scale**3,
            self.largest * (span.high - self.origin - value) / scale,
            self.largest * (span.low - self.origin - value) / scale,
            _freedom(self.effective, span),
        )
        return interval(value + self.origin, errors, tail).within(span)

    def missing(self, tail: float, largest: float | None = None) -> float:
        """The share of a policy's choices that could not have been made, as far as that is beyond
        chance: weights have the mean 1 less that share.

        largest: of the weights that there might have been; by default of those seen
        """
        w, ww, www = (self.powers[n] / self.decisions for n in (0, 2, 5))
        square, cube = max(0.0, ww - w * w), www - 3 * w * ww + 2 * w**3
        up = (self.largest if largest is None else largest) - w
        errors = Errors(self.decisions, square, cube, max(0.0, up), -w, math.inf)
        most = interval(w, errors, tail).high
        return max(0.0, 1.0 - most) if most is not None else 0.0


POWERS = ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3))


def weighted(weight: np.ndarray, rewards: np.ndarray) -> Weights:
    origin = float(rewards.mean())
    away = rewards - origin
    powers = tuple(float(np.prod([weight] * a + [away] * b, axis=0).sum()) for a, b in POWERS)
    return Weights(len(weight), powers, float(weight.max()), origin)


def mean(rewards: np.ndarray, span: Span) -> Estimate:
    """The mean of rewards, with its interval."""
    return weighted(np.ones(len(rewards)), rewards).mean(span)


def interval(value: float, errors: Errors, tail: float = TAIL) -> Estimate:
    """Where the mean may be of which `value` is an estimate.

    A score interval: at its ends d away from the value the error is as unlikely as `tail`, given
    the variance that there would be *there*. Where errors are skewed the variance changes with the
    mean, by the ratio c of their third to their second moment (exactly so where the distribution
    is tilted exponentially), and so does the quantile, by Cornish and Fisher's c (z^2 - 1) / 6:

        (d + c (z^2 - 1) / 8n)^2 = z^2 (variance + c d) / n

    For clicks that is Wilson's interval but for the quantile, for symmetric errors Student's. An 8
    in place of the 6 lets n decisions without a click not exclude 3 / n, which is the exact limit.
    In c one more reward at either end of the range counts, so that what has not been seen yet is
    not taken for impossible.
    """
    count, square, cube, up, down, freedom = errors
    if freedom <= 0:
        return Estimate(value, math.inf, -math.inf, math.inf)
    variance = square * (1 + 1 / freedom) / count
    z = -float(ndtri(tail) if math.isinf(freedom) else stdtrit(freedom, tail))
    if not z < FURTHEST:
        return Estimate(value, math.sqrt(variance), -math.inf, math.inf)
    among = count * square + up**2 + down**2
    skew = (count * cube + up**3 + down**3) / among / count if among > 0 else 0.0
    shift = skew * (z * z - 1) / 8
    middle = skew * z * z / 2 - shift
    reach = math.sqrt(middle**2 + z * z * variance - shift**2)
    low, high = min(0.0, middle - reach), max(0.0, middle + reach)
    return Estimate(value, math.sqrt(variance), value + low, value + high)


def effective(weight: Any) -> float:
    """How many decisions of equal weight would say as much (Kish, 1965)."""
    total = float(weight.sum())
    return total**2 / float(np.square(weight).sum()) if total > 0 else 0.0


def _freedom(effective: float, span: Span) -> float:
    """The variance of clicks follows from their mean; of others it is estimated, too."""
    return math.inf if span.clicks else effective - 1
