"""Which decisions wait for their outcome, followed as a ledger grows."""

from typing import Any

import numpy as np

from ..files import Damaged
from .schema import paged

ALL = (
    "SELECT d.number, d.time FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number "
    "WHERE o.sequence IS NULL ORDER BY 1"
)


class Waiting:
    """Reads the whole history once, and from then on only what is new."""

    def __init__(self) -> None:
        self._seen: dict[str, int] | None = None
        self._numbers, self._times = np.zeros(0, np.int64), np.zeros(0)
        self._deferred = np.zeros(0, np.int64)

    def before(self, time: float, db: Any, held: dict[str, int]) -> list[int]:
        """Decisions made by then whose outcome has not come, oldest first; without those that
        were deferred and not activated."""
        self._follow(db, held)
        due = (self._times <= time) & ~np.isin(self._numbers, self._deferred)
        return self._numbers[due].tolist()

    def _follow(self, db: Any, held: dict[str, int]) -> None:
        seen, self._seen = self._seen, None  # if it is cut short, it begins anew
        if seen is None:
            rows = db.execute(ALL).fetchall()
            self._numbers, self._times, self._deferred = _numbers([]), np.zeros(0), _numbers([])
            gone = []
        else:
            query = "SELECT number, time FROM decisions WHERE number > ? ORDER BY number"
            rows = list(paged(db, query, seen["decisions"] - 1))
            query = "SELECT sequence, decision FROM outcomes WHERE sequence > ? ORDER BY sequence"
            gone = [row[1] for row in paged(db, query, seen["outcomes"])]
        numbers = np.concatenate([self._numbers, _numbers([number for number, _ in rows])])
        times = np.concatenate([self._times, [time for _, time in rows]])
        left = ~np.isin(numbers, gone)
        self._numbers, self._times = numbers[left], times[left]
        if len(self._numbers) != held["decisions"] - held["outcomes"]:
            raise Damaged("its index of outcomes does not fit them")
        self._follow_deferred(db, seen or {"events": 0, "activations": 0})
        self._seen = dict(held)

    def _follow_deferred(self, db: Any, seen: dict[str, int]) -> None:
        query = "SELECT number, decision FROM {} WHERE number > ?{} ORDER BY number"
        late = query.format("events", " AND deferred = 1")
        new = [row[1] for row in paged(db, late, seen["events"] - 1)]
        done = [
            row[1] for row in paged(db, query.format("activations", ""), seen["activations"] - 1)
        ]
        deferred = np.concatenate([self._deferred, _numbers(new)])
        deferred = deferred[~np.isin(deferred, done)]
        self._deferred = deferred[np.isin(deferred, self._numbers)]


def _numbers(given: list[int]) -> np.ndarray:
    return np.array(given, np.int64)
