"""What a ledger holds, read in order, with every row checked."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..files import Damaged
from . import schema
from .offers import Reader
from .rows import Decided, from_rows
from .schema import PAGE, numbered, opened, paged

DECISIONS = "decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number"
OUTCOMES = "outcomes AS o LEFT JOIN decisions AS d ON d.number = o.decision"
LAST = "(SELECT max(nth) FROM revisions WHERE decision = {0})"
REVISED = " LEFT JOIN revisions AS r ON r.decision = {0} AND r.nth = " + LAST
SPLIT = len(schema.COLUMNS["decisions"]) + 1
THIRD = SPLIT + len(schema.COLUMNS["outcomes"]) + 1


class History:
    """The decisions of a ledger with what came of them, when its tables had so many rows."""

    def __init__(self, db: Any, dtype: np.dtype, held: dict[str, int]):
        self._db, self._dtype, self._held = db, dtype, held

    def decision(self, number: int) -> Decided | None:
        return self.decisions([number]).get(number)

    def decisions(self, numbers: Sequence[int]) -> dict[int, Decided]:
        """Those of them that there are."""
        found: dict[int, Decided] = {}
        for start in range(0, len(numbers), PAGE):
            some = numbers[start : start + PAGE]
            marks = ", ".join("?" * len(some))
            query = self._query(DECISIONS, f"d.number IN ({marks})")
            found |= self._read(DECISIONS, self._db.execute(query, some))
        return found

    def learned(self, after: int) -> Iterator[Decided]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        rows = self._rows(OUTCOMES, "o.sequence > ? ORDER BY o.sequence", after, SPLIT)
        count = self._held["outcomes"] - after
        for _, row in numbered("outcomes", rows, after + 1, count):
            yield row

    def between(self, first: int, last: int, offers: bool = False) -> Iterator[Decided]:
        """The decisions first, ..., last - 1, with what was on offer if that is wanted."""
        condition = f"d.number > ? AND d.number < {last} ORDER BY d.number"
        found = self._rows(DECISIONS, condition, first - 1, 0)
        rows = numbered("decisions", found, first, last - first)
        plain = _marked((row for _, row in rows), self.imports())
        return self._with_offers(plain, first, last) if offers else plain

    def all(self, offers: bool = False) -> Iterator[Decided]:
        """Every decision; rows that an index lost are missed."""
        learned = revisions = 0
        for row in self.between(0, self._held["decisions"], offers):
            learned += row.learned is not None
            yield row
        if learned != self._held["outcomes"]:
            raise Damaged("its index of outcomes does not fit them")
        if self._held["revisions"]:
            query = f"SELECT sum(r.nth) FROM outcomes AS o{REVISED.format('o.decision')}"
            revisions = self._db.execute(query).fetchone()[0]
        if revisions != self._held["revisions"]:
            raise Damaged("its index of revisions does not fit them")

    def _with_offers(self, rows: Iterator[Decided], first: int, last: int) -> Iterator[Decided]:
        if (start := next(rows, None)) is None:
            return
        reader = Reader(self._db, len(start.features), self._dtype)
        spans = reader.between(first, last, self._held["offers"])
        span = next(spans, None)
        for row in chain([start], rows):
            while span is not None and row.number >= span[1]:
                span = next(spans, None)
            if span is None or row.number < span[0] or row.foreign:
                yield row
            else:
                yield row._replace(offer=reader.offered(span[2], row.features))
        for _ in spans:  # to its end, where what is missing is missed
            pass

    def imports(self) -> list[range]:
        """Which decisions were made elsewhere."""
        rows = [opened("imports", row) for row in self._db.execute("SELECT * FROM imports")]
        rows = numbered("imports", rows, 0, self._held["imports"])
        return [range(first, first + count) for _, first, count, _ in rows]

    def revisions(self, decision: int) -> list[tuple[Any, str | None]]:
        """(what was added, by what reference) for every revision of a decision."""
        query = "SELECT * FROM revisions WHERE decision = ? ORDER BY nth"
        rows = [opened("revisions", row) for row in self._db.execute(query, (decision,))]
        return [(None if row[4] is None else json.loads(row[4]), row[5]) for row in rows]

    def first_revised(self, after: int) -> int | None:
        """The earliest outcome that any but the first `after` revisions changed."""
        query = (
            "SELECT r.*, o.sequence FROM revisions AS r LEFT JOIN outcomes AS o "
            "ON o.decision = r.decision WHERE r.number > ? ORDER BY r.number"
        )
        earliest, seen = None, 0
        for row in paged(self._db, query, after):
            opened("revisions", row[:-1])
            if row[-1] is None:
                raise Damaged("its index of outcomes does not fit them")
            earliest = row[-1] if earliest is None else min(earliest, row[-1])
            seen += 1
        if seen != self._held["revisions"] - after:
            raise Damaged("rows of the table revisions are missing")
        return earliest

    def _rows(
        self, tables: str, condition: str, after: int, key: int
    ) -> Iterator[tuple[int, Decided]]:
        """Rows with the number they have in the first of the tables, which is the whole one."""
        return self._read(tables, paged(self._db, self._query(tables, condition), after, key))

    def _query(self, tables: str, condition: str) -> str:
        if self._held["revisions"]:
            tables = tables + REVISED.format("d.number")
            return f"SELECT d.*, o.*, r.* FROM {tables} WHERE {condition}"
        return f"SELECT d.*, o.*, NULL FROM {tables} WHERE {condition}"

    def _read(self, tables: str, rows: Iterable[Any]) -> Iterator[tuple[int, Decided]]:
        for row in rows:
            decision, outcome, revision = row[:SPLIT], row[SPLIT:THIRD], row[THIRD:]
            if decision[0] is None:
                raise Damaged(f"row {outcome[1]} of the table decisions is missing")
            known = None if outcome[0] is None else opened("outcomes", outcome)
            now = None if revision[0] is None else opened("revisions", revision)
            number = decision[0] if tables == DECISIONS else outcome[0]
            yield number, from_rows(opened("decisions", decision), known, now, self._dtype)


def _marked(rows: Iterator[Decided], foreign: list[range]) -> Iterator[Decided]:
    """With a flag on those that were made elsewhere."""
    ahead = iter(foreign)
    numbers = next(ahead, None)
    for row in rows:
        while numbers is not None and row.number >= numbers.stop:
            numbers = next(ahead, None)
        elsewhere = numbers is not None and row.number in numbers
        yield row._replace(foreign=True) if elsewhere else row
