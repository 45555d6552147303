"""What else comes of decisions beside their outcome, and the bounds that it is to keep."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..ledger.ledger import Ledger
from ..sequences import ALPHA, mean
from ..tables import Told
from .control import Control
from .lift import Interval, Lift, lift, numbered

LONGEST = 100  # characters of a name
MOST = 50  # names in one call
UNSEEN = 100  # decisions after which a metric that never came is missed
NAMES = "SELECT DISTINCT name FROM metrics WHERE name <> '' ORDER BY name"
LAST = (
    "FROM metrics AS m JOIN decisions AS d ON d.number = m.decision WHERE m.name = ? "
    "AND m.number = (SELECT max(number) FROM metrics WHERE decision = m.decision AND name = m.name)"
)
MINE = " AND (d.control IS NULL OR d.control = 0) AND d.number >= {first}"
SINCE = " AND d.time >= {since}"


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


def checked_values(what: str, values: Any) -> dict[str, float]:
    """Numbers by the names of metrics."""
    if not isinstance(values, Mapping) or not 0 < len(values) <= MOST:
        raise TypeError(
            f'metrics must be numbers by name, {{"margin": 3.2}}, {MOST} at most; '
            f"got {checks.shown(values)}"
        )
    found = {}
    for name, value in values.items():
        if len(checks.text("a metric's name", name)) > LONGEST:
            raise ValueError(f"a metric's name has at most {LONGEST} characters, got {len(name)}")
        found[name] = float(checks.bounded(f"{what} {name!r}", value)) + 0.0
    return found


def metrics(ledger: Ledger, control: Control, since: float = 0.0) -> tuple[Metric, ...]:
    """All that came, and all that should have; of decisions since a time."""
    names = {name for (name,) in ledger.ask_all(NAMES)} | {*control.guard}
    return tuple(_metric(ledger, control, name, float(since)) for name in sorted(names))


def _metric(ledger: Ledger, control: Control, name: str, since: float) -> Metric:
    count = ledger.ask(f"SELECT count(*) {LAST}{SINCE.format(since=since)}", name)
    found, bound = _mean(ledger, control, name), control.guard.get(name)
    broken, about = _beyond(found, bound), lift(ledger, name, since=since)
    found = _mean(ledger, control, name, since) if since else found
    return Metric(name, count, found, about, bound, broken)


def _mean(ledger: Ledger, control: Control, name: str, since: float = 0.0) -> Interval | None:
    """The mean of the bandit's own decisions."""
    mine = (MINE + SINCE).format(first=control.since, since=since)
    rows = ledger.ask_all(f"SELECT d.subject, m.value {LAST}{mine}", name)
    if not rows:
        return None
    subjects, values = zip(*rows, strict=True)
    alpha = ALPHA / max(1, len(control.guard))
    return Interval.of(mean(np.array(values, float), numbered(subjects), alpha))


def _beyond(found: Interval | None, bound: tuple[str, float] | None) -> bool:
    if found is None or bound is None:
        return False
    sign, limit = bound
    end = found.low if sign == "<=" else found.high
    return end is not None and (end > limit if sign == "<=" else end < limit)


def bounds(ledger: Ledger, control: Control) -> dict[str, str]:
    """A sentence for every bound that is broken, and for those of what nobody sends."""
    said = {}
    for name, (sign, limit) in control.guard.items():
        found = _mean(ledger, control, name)
        if _beyond(found, (sign, limit)):
            said[name] = (
                f"the mean of {name!r} is {found} with the bandit, and should be {sign} {limit:g}: "
                + ("the baseline decides" if control.halted else "look at what it chooses")
                + ("; say `resume` to go on" if control.halted else ", or leave it to the baseline")
            )
        elif found is None and ledger.decisions - control.since >= UNSEEN:
            said[name] = (
                f"{name!r} has a bound, but no decision has a value of it: send it by "
                f'observe(id, {{"{name}": ...}}), or give a guard without it'
            )
    return said


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
