"""What the bandit earns compared with the baseline that a part of decisions is left to."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..intervals import Estimate
from ..ledger.ledger import Ledger
from ..ledger.reading import REVISED, REWARD
from ..sequences import ALPHA, Pair
from ..tables import Told
from .control import settled

MADE = """
SELECT d.time, d.subject, d.control, d.holdback, d.baseline,
  substr(d.probabilities, CAST(d.chosen * {size} + 1 AS INTEGER), {size}), {value}{more}
FROM decisions AS d {outcome}
WHERE d.control IS NOT NULL AND d.holdback < 1 AND d.number >= {first} AND d.time >= {since}
ORDER BY d.number
"""
OUTCOME = f"JOIN outcomes AS o ON o.decision = d.number{REVISED.format('d.number')}"
METRIC = (
    "JOIN metrics AS m ON m.decision = d.number AND m.name = ? AND m.number = "
    "(SELECT max(number) FROM metrics WHERE decision = d.number AND name = m.name)"
)


def moment(since: Any) -> float:
    """In seconds since 1970: a date, a while ago, or such a number; None is the beginning."""
    if since is None:
        return 0.0
    if isinstance(since, timedelta):
        return time.time() - since.total_seconds()
    if isinstance(since, datetime):
        return since.timestamp()
    return float(checks.scalar("since", since, low=0.0))


@dataclass(frozen=True)
class Interval:
    """A value and where it is in 95% of all histories, however often they are looked at; an end is
    None where there are too few decisions to tell it."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, found: Estimate) -> "Interval":
        ends = (end if end is not None and math.isfinite(end) else None for end in found[2:])
        return cls(found.value, *ends)

    def __str__(self) -> str:
        low, high = ("?" if end is None else f"{end:.4g}" for end in (self.low, self.high))
        return f"{self.value:.4g} ({low} to {high})"


@dataclass(frozen=True, repr=False)
class Lift(Told):
    """Rewards, or values of a metric, with the bandit and without it.

    name: of the part: a day, a segment; "all".
    decisions: made while a part was held back, and whose outcome came.
    held: how many of them were left to the baseline.
    units: how many there are that are independent: subjects, and decisions about nobody.
    bandit, control: the mean of decisions, if all had been made by the one or the other.
    difference, ratio: of the first to the second; the ratio is None where the second is not above
        0. All of them are None before there are decisions of both.
    parts: the same by days or segments, where that was asked for.

    Means are weighted by how likely either group was to choose what was chosen (see `weights`).
    Every interval holds at all times together, so that it does no harm to look each day and to stop
    when it says enough; see `sequences`.
    """

    name: str
    decisions: int
    held: int
    units: int
    bandit: Interval | None
    control: Interval | None
    difference: Interval | None
    ratio: Interval | None
    parts: tuple["Lift", ...] = ()

    @property
    def verdict(self) -> str:
        """What the difference says."""
        found = self.difference
        if found is not None and found.low is not None and found.low > 0:
            return "more with the bandit"
        if found is not None and found.high is not None and found.high < 0:
            return "less with the bandit"
        return "not told apart yet"

    def __str__(self) -> str:
        text = f"{self.name}: {self.decisions} decisions, {self.held} left to the baseline"
        if self.bandit is not None:
            times = "" if self.ratio is None else f", {self.ratio} times"
            text += (
                f": {self.bandit} with the bandit, {self.control} without, difference "
                f"{self.difference}{times}: {self.verdict}"
            )
        return "\n  ".join([text, *map(str, self.parts)])


class Compared(NamedTuple):
    """Decisions in columns.

    weights: of each in the mean of the bandit, and in that of the baseline (n, 2).
    units: to which of the independent units it belongs.
    keys: what it is to be grouped by, if anything.
    """

    time: np.ndarray
    control: np.ndarray
    weights: np.ndarray
    units: np.ndarray
    values: np.ndarray
    keys: np.ndarray


def read(ledger: Ledger, metric: str | None = None, more: str = "", since: float = 0.0) -> Compared:
    """All decisions made while a part was left to the baseline that there is now, since a time;
    `more` says a column to group by."""
    size = ledger.dtype.itemsize
    value, outcome, named = REWARD, OUTCOME, ()
    if metric is not None:
        value, outcome, named = "m.value", METRIC, (metric,)
    more = f", {more}" if more else ""
    about = {"first": settled(ledger), "since": float(since)}
    query = MADE.format(size=size, value=value, outcome=outcome, more=more, **about)
    rows = [row for row in ledger.ask_all(query, *named) if row[6] is not None]
    columns = zip(*rows, strict=True) if rows else ((),) * 7
    time, subjects, control, share, baseline, chances, values, *keys = columns
    share, baseline = np.array(share, float), np.array(baseline, float)
    chance = np.frombuffer(b"".join(chances), ledger.dtype).astype(float)
    units, groups = numbered(subjects), numbered(zip(subjects, share, strict=True))
    return Compared(
        np.array(time, float),
        np.array(control, bool),
        weights(share, baseline, chance, groups),
        units,
        np.array(values, float),
        np.array(keys[0] if keys else [None] * len(rows), object),
    )


def numbered(names: Iterable[Any]) -> np.ndarray:
    """The same number for the same name; one of its own for each without."""
    known: dict[Any, int] = {}
    found = []
    for n, name in enumerate(names):
        nobody = name is None or (isinstance(name, tuple) and name[0] is None)
        found.append(known.setdefault((n,) if nobody else ("", name), len(known)))
    return np.array(found, int)


def weights(
    share: np.ndarray, baseline: np.ndarray, chance: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Of decisions in the mean of the bandit and in that of the baseline (n, 2).

    A decision by the bandit that the baseline would have made as well says as much of the baseline.
    Where a share h is held back, and p(a) = h b(a) + (1 - h) q(a) is how likely the action was
    under the whole process, b(a) by the baseline and so q(a) by the bandit,

        w_bandit = q(a) / p(a),   w_baseline = b(a) / p(a)

    are what 1[bandit] / (1 - h) and 1[baseline] / h are on average, given what was done (Rao and
    Blackwell): the means stay what they are and their errors only get smaller. Of a subject, who
    is in one group with all its decisions, b and q are the products over these.

    share, baseline, chance: h, b(a), p(a). groups: which decisions were drawn together.
    """
    bandit = np.maximum(0.0, (chance - share * baseline) / (1 - share))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # 0 or infinite odds
        odds = np.log(baseline) - np.log(bandit)
        odds = np.exp(np.bincount(groups, odds, groups.max(initial=-1) + 1)[groups])
        return np.stack([1 / (share * odds + 1 - share), 1 / (share + (1 - share) / odds)], axis=1)


def estimated(name: str, made: Compared, alpha: float = ALPHA) -> Lift:
    """The lift over some decisions."""
    units = np.unique(made.units, return_inverse=True)[1] if len(made.units) else made.units
    counts = len(made.values), int(made.control.sum()), int(units.max(initial=-1)) + 1
    both = 0 < counts[1] < counts[0]
    pair = Pair.of(made.weights, made.values, units) if both else None
    if pair is None:
        return Lift(name, *counts, None, None, None, None)
    ratio = pair.ratio(alpha)
    means = (pair.mean(second, alpha) for second in (False, True))
    bandit, control = map(Interval.of, means)
    difference = Interval.of(pair.difference(alpha))
    times = None if ratio is None else Interval.of(ratio)
    return Lift(name, *counts, bandit, control, difference, times)


def some(made: Compared, which: np.ndarray) -> Compared:
    """The decisions that a mask selects."""
    return Compared(*(column[which] for column in made))


def lift(
    ledger: Ledger, metric: str | None = None, daily: bool = False, since: float = 0.0
) -> Lift:
    """What the bandit earns compared with the baseline since a time; `daily`: also day by day
    (UTC), where the interval of each day holds by itself."""
    made = read(ledger, metric, since=since)
    found, parts = estimated("all", made), []
    days = np.floor(made.time / 86400).astype(int)
    for day in np.unique(days).tolist() if daily else ():
        name = datetime.fromtimestamp(day * 86400, UTC).date().isoformat()
        parts.append(estimated(name, some(made, days == day)))
    return replace(found, parts=tuple(parts))
