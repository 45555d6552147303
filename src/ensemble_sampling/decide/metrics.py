"""What else comes of decisions beside their outcome, and the bounds that it is to keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..intervals import POWERS, Span, Weights
from ..ledger.ledger import DecisionRow, Ledger
from ..sequences import ALPHA, tail
from ..tables import Told
from .control import Control
from .lift import Interval, Lift, lift

LONGEST = 100  # characters of a name
MOST = 50  # names in one call
UNSEEN = 100  # decisions after which a metric that never came is missed
NAMES = "SELECT DISTINCT name FROM metrics WHERE name <> '' ORDER BY name"
LAST = (
    "FROM metrics AS m JOIN decisions AS d ON d.number = m.decision WHERE m.name = ? "
    "AND m.number = (SELECT max(number) FROM metrics WHERE decision = m.decision AND name = m.name)"
)
MINE = " AND (d.control IS NULL OR d.control = 0) AND d.number >= {since}"
RANGE = (
    "SELECT avg(value), min(value), max(value), min(CASE WHEN value IN (0, 1) THEN 1 ELSE 0 END) "
)
SUMS = ", ".join(["count(*)", *(f"sum({' * '.join(['1.0', *['v'] * b])})" for _, b in POWERS)])


@dataclass(frozen=True, repr=False)
class Metric(Told):
    """Something else that comes of decisions.

    decisions: how many it came of.
    mean: of the decisions of the bandit, with an interval that holds at every look; None before
        there are any.
    lift: compared with the baseline, see `Lift`.
    guard: the bound of the mean, if there is one: ("<=", 0.05).
    broken: whether the mean is beyond it, as far as the interval can tell.
    """

    name: str
    decisions: int
    mean: Interval | None
    lift: Lift
    guard: tuple[str, float] | None = None
    broken: bool = False

    def __str__(self) -> str:
        bound = "" if self.guard is None else f", to be {self.guard[0]} {self.guard[1]:g}"
        state = ": broken" if self.broken else ""
        return f"{self.name}: {self.mean or 'nothing came yet'}{bound}{state}\n  {self.lift}"


def observe(ledger: Ledger, id: str, decided: DecisionRow, values: Any) -> bool:
    """Record what else came of a decision; whether anything was new. A value that is there is
    replaced."""
    if not isinstance(values, Mapping) or not 0 < len(values) <= MOST:
        raise TypeError(
            f'metrics must be numbers by name, {{"margin": 3.2}}, {MOST} at most; '
            f"got {checks.shown(values)}"
        )
    if decided.erased:
        raise ValueError(f"decision {id} was erased: nothing can come of it any more")
    new, known = [], ledger.metrics(decided.number)
    for name, value in values.items():
        if len(checks.text("a metric's name", name)) > LONGEST:
            raise ValueError(f"a metric's name has at most {LONGEST} characters, got {len(name)}")
        value = checks.bounded(f"the metric {name!r}", value) + 0.0
        if known.get(name) != value:
            new.append((decided.number, name, value))
    if new:
        ledger.add_metrics(new)
    return bool(new)


def metrics(ledger: Ledger, control: Control) -> tuple[Metric, ...]:
    """All that came, and all that should have."""
    names = {name for (name,) in ledger.ask_all(NAMES)} | {*control.guard}
    return tuple(_metric(ledger, control, name) for name in sorted(names))


def _metric(ledger: Ledger, control: Control, name: str) -> Metric:
    count = ledger.ask(f"SELECT count(*) {LAST}", name)
    mean, bound = _mean(ledger, control, name), control.guard.get(name)
    return Metric(name, count, mean, lift(ledger, name), bound, _beyond(mean, bound))


def _mean(ledger: Ledger, control: Control, name: str) -> Interval | None:
    """The mean of the bandit's own decisions, in one pass over them."""
    mine = MINE.format(since=control.since)
    ((origin, low, high, clicks),) = ledger.ask_all(f"{RANGE} {LAST}{mine}", name)
    if origin is None:
        return None
    query = f"SELECT {SUMS} FROM (SELECT value - {origin!r} AS v {LAST}{mine}) AS away"
    ((count, *powers),) = ledger.ask_all(query, name)
    weights = Weights(count, tuple(powers), 1.0, origin)
    alpha = tail(count, ALPHA / max(1, len(control.guard)))
    return Interval.of(weights.mean(Span.seen(low, high, bool(clicks)), alpha))


def _beyond(mean: Interval | None, bound: tuple[str, float] | None) -> bool:
    if mean is None or bound is None:
        return False
    sign, limit = bound
    end = mean.low if sign == "<=" else mean.high
    return end is not None and (end > limit if sign == "<=" else end < limit)


def bounds(ledger: Ledger, control: Control) -> dict[str, str]:
    """A sentence for every bound that is broken, and for those of what nobody sends."""
    found = {}
    for name, (sign, limit) in control.guard.items():
        mean = _mean(ledger, control, name)
        if _beyond(mean, (sign, limit)):
            found[name] = (
                f"the mean of {name!r} is {mean} with the bandit, and should be {sign} {limit:g}: "
                + ("the baseline decides" if control.halted else "look at what it chooses")
                + ("; say `resume` to go on" if control.halted else ", or leave it to the baseline")
            )
        elif mean is None and ledger.decisions - control.since >= UNSEEN:
            found[name] = (
                f"{name!r} has a bound, but no decision has a value of it: send it by "
                f'observe(id, {{"{name}": ...}}), or give a guard without it'
            )
    return found


class Guarding:
    """Looks at bounds whenever a tenth more values came than when it looked last."""

    def __init__(self) -> None:
        self._due = 0

    def broken(self, ledger: Ledger, control: Control) -> str | None:
        """The first metric whose bound is broken, unless the baseline is in charge already."""
        if not control.guard or control.halted is not None or ledger.observed < self._due:
            return None
        self._due = ledger.observed + max(10, ledger.observed // 10)
        for name, bound in control.guard.items():
            if _beyond(_mean(ledger, control, name), bound):
                return name
        return None
