"""What a ledger holds, read in order, with every row checked; and what of it is remembered."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..files import Damaged
from . import schema
from .offers import Reader
from .rows import PAGE, Base, DecisionRow, consecutive, from_rows, read_pages, unseal

RECENT = 1000  # decisions that are remembered, for outcomes that come soon
DECISIONS = "decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number"
OUTCOMES = "outcomes AS o LEFT JOIN decisions AS d ON d.number = o.decision"
LAST = "(SELECT max(nth) FROM revisions WHERE decision = {0})"
REVISED = " LEFT JOIN revisions AS r ON r.decision = {0} AND r.nth = " + LAST
# With outcomes as o and what REVISED joins: what an outcome is worth now.
REWARD = "CASE WHEN r.number IS NULL THEN o.reward ELSE r.reward END"
SPLIT = len(schema.COLUMNS["decisions"]) + 1
ITEM = [column.split()[0] for column in schema.COLUMNS["decisions"]].index("item")
WAITING = (
    "SELECT d.number, d.time FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number "
    "WHERE o.sequence IS NULL ORDER BY 1"
)
THIRD = SPLIT + len(schema.COLUMNS["outcomes"]) + 1


class History:
    """The decisions of a ledger with what came of them, when its tables had so many rows."""

    def __init__(self, db: Any, dtype: np.dtype, held: dict[str, int], base: Base):
        self._db, self._dtype, self._held, self._base = db, dtype, held, base
        self._reader = Reader(db, dtype)

    def decision(self, number: int) -> DecisionRow | None:
        return self.decisions([number]).get(number)

    def decisions(self, numbers: Sequence[int]) -> dict[int, DecisionRow]:
        """The decisions with these numbers, as far as there are such."""
        found: dict[int, DecisionRow] = {}
        for start in range(0, len(numbers), PAGE):
            some = numbers[start : start + PAGE]
            marks = ", ".join("?" * len(some))
            query = self._query(DECISIONS, f"d.number IN ({marks})")
            found |= self._read(DECISIONS, self._db.execute(query, some))
        return found

    def learned(self, after: int) -> Iterator[DecisionRow]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        some = "o.sequence > ? ORDER BY o.sequence"
        base = self._base.outcomes
        if after < base:  # of those that the base knows, some may be gone
            rows = self._rows(OUTCOMES, f"o.sequence <= {base} AND {some}", after, SPLIT)
            yield from (row for _, row in rows)
            after = base
        rows = self._rows(OUTCOMES, some, after, SPLIT)
        count = self._held["outcomes"] - after
        for _, row in consecutive("outcomes", rows, after + 1, count):
            yield row

    def between(self, first: int, last: int, offers: bool = False) -> Iterator[DecisionRow]:
        """The decisions first, ..., last - 1, with what was on offer if that is wanted."""
        first = max(first, self._base.decisions)
        condition = f"d.number > ? AND d.number < {last} ORDER BY d.number"
        found = self._rows(DECISIONS, condition, first - 1, 0)
        rows = consecutive("decisions", found, first, max(0, last - first))
        plain = _marked((row for _, row in rows), self.imports())
        return self._with_offers(plain, first, last) if offers else plain

    def all(self, offers: bool = False) -> Iterator[DecisionRow]:
        """Every decision; rows that an index lost are missed."""
        learned = revisions = 0
        for row in self.between(0, self._held["decisions"], offers):
            learned += row.learned is not None
            yield row
        if learned != self._held["outcomes"] - self._base.gone:
            raise Damaged("its index of outcomes does not fit them")
        if self._base.decisions:
            return  # nobody knows how many revisions are gone
        if self._held["revisions"]:
            query = f"SELECT sum(r.nth) FROM outcomes AS o{REVISED.format('o.decision')}"
            revisions = self._db.execute(query).fetchone()[0]
        if revisions != self._held["revisions"]:
            raise Damaged("its index of revisions does not fit them")

    def _with_offers(
        self, rows: Iterator[DecisionRow], first: int, last: int
    ) -> Iterator[DecisionRow]:
        spans = self._reader.between(first, last, self._held["offers"], self._base.offers)
        span = next(spans, None)
        for row in rows:
            while span is not None and row.number >= span[1]:
                span = next(spans, None)
            if span is None or row.number < span[0] or row.foreign:
                yield row
            else:
                yield DecisionRow(*row[:-1], self._reader.offer(span[2], row))
        for _ in spans:  # to its end, where what is missing is missed
            pass

    def imports(self) -> list[range]:
        """Which decisions were made elsewhere."""
        rows = [unseal("imports", row) for row in self._db.execute("SELECT * FROM imports")]
        rows = consecutive("imports", rows, 0, self._held["imports"])
        return [range(first, first + count) for _, first, count, _ in rows]

    def revisions(self, decision: int) -> list[tuple[Any, str | None]]:
        """(what was added, by what reference) for every revision of a decision."""
        query = "SELECT * FROM revisions WHERE decision = ? ORDER BY nth"
        rows = [unseal("revisions", row) for row in self._db.execute(query, (decision,))]
        return [(None if row[4] is None else json.loads(row[4]), row[5]) for row in rows]

    def first_revised(self, after: int) -> int | None:
        """The earliest outcome that any but the first `after` revisions changed."""
        query = (
            "SELECT r.*, o.sequence FROM revisions AS r LEFT JOIN outcomes AS o "
            "ON o.decision = r.decision WHERE r.number > ? ORDER BY r.number"
        )
        earliest, seen = None, 0
        for row in read_pages(self._db, query, after):
            unseal("revisions", row[:-1])
            if row[-1] is None:
                raise Damaged("its index of outcomes does not fit them")
            earliest = row[-1] if earliest is None else min(earliest, row[-1])
            seen += 1
        if not self._base.decisions and seen != self._held["revisions"] - after:
            raise Damaged("rows of the table revisions are missing")
        return earliest

    def _rows(
        self, tables: str, condition: str, after: int, key: int
    ) -> Iterator[tuple[int, DecisionRow]]:
        """Rows with the number they have in the first of the tables, which is the whole one."""
        return self._read(tables, read_pages(self._db, self._query(tables, condition), after, key))

    def _query(self, tables: str, condition: str) -> str:
        if self._held["revisions"]:
            tables = tables + REVISED.format("d.number")
            return f"SELECT d.*, o.*, r.* FROM {tables} WHERE {condition}"
        return f"SELECT d.*, o.*, NULL FROM {tables} WHERE {condition}"

    def _read(self, tables: str, rows: Iterable[Any]) -> Iterator[tuple[int, DecisionRow]]:
        found = iter(rows)
        while page := list(islice(found, PAGE)):
            said = self._reader.descriptions(row[ITEM] for row in page)
            for row in page:
                decision, outcome, revision = row[:SPLIT], row[SPLIT:THIRD], row[THIRD:]
                if decision[0] is None:
                    raise Damaged(f"row {outcome[1]} of the table decisions is missing")
                known = None if outcome[0] is None else unseal("outcomes", outcome)
                now = None if revision[0] is None else unseal("revisions", revision)
                number = decision[0] if tables == DECISIONS else outcome[0]
                decided = unseal("decisions", decision)
                yield number, from_rows(decided, said[row[ITEM]], known, now, self._dtype)


def _marked(rows: Iterator[DecisionRow], foreign: list[range]) -> Iterator[DecisionRow]:
    """With a flag on those that were made elsewhere."""
    if not foreign:
        yield from rows
        return
    ahead = iter(foreign)
    numbers = next(ahead, None)
    for row in rows:
        while numbers is not None and row.number >= numbers.stop:
            numbers = next(ahead, None)
        elsewhere = numbers is not None and row.number in numbers
        yield row._replace(foreign=True) if elsewhere else row


class Recent:
    """The last decisions that wait for their outcome, as a reading would give them: most outcomes
    come soon."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.rows: dict[int, DecisionRow] = {}
        self._outcomes = 0  # those after them were not looked at

    def follow(self, db: Any, outcomes: int) -> dict[int, DecisionRow]:
        """Without those whose outcome came, by whomever it was recorded."""
        if outcomes - self._outcomes > RECENT:
            self.rows.clear()
        elif self.rows and outcomes != self._outcomes:
            query = "SELECT decision FROM outcomes WHERE sequence > ?"
            for row in db.execute(query, (self._outcomes,)).fetchall():
                self.rows.pop(row[0], None)
        self._outcomes = outcomes
        return self.rows


class Pending:
    """Which decisions wait for their outcome: reads all of history once, then only what is new."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._seen: dict[str, int] | None = None
        self._numbers, self._times = np.zeros(0, np.int64), np.zeros(0)
        self._deferred = np.zeros(0, np.int64)

    def before(self, time: float, db: Any, held: dict[str, int], base: Base) -> list[int]:
        """Decisions made by then whose outcome has not come, oldest first; without those that
        were deferred and not activated."""
        if self._seen is not None and self._seen["decisions"] < base.decisions:
            self._seen = None
        self._follow(db, held, base)
        due = (self._times <= time) & ~np.isin(self._numbers, self._deferred)
        return self._numbers[due].tolist()

    def _follow(self, db: Any, held: dict[str, int], base: Base) -> None:
        seen, self._seen = self._seen, None  # if it is cut short, it begins anew
        if seen is None:
            rows = db.execute(WAITING).fetchall()
            self._numbers, self._times, self._deferred = _numbers([]), np.zeros(0), _numbers([])
            gone = []
        else:
            query = "SELECT number, time FROM decisions WHERE number > ? ORDER BY number"
            rows = list(read_pages(db, query, seen["decisions"] - 1))
            query = "SELECT sequence, decision FROM outcomes WHERE sequence > ? ORDER BY sequence"
            gone = [row[1] for row in read_pages(db, query, seen["outcomes"])]
        numbers = np.concatenate([self._numbers, _numbers([number for number, _ in rows])])
        times = np.concatenate([self._times, [time for _, time in rows]])
        left = ~np.isin(numbers, gone) & (numbers >= base.decisions)
        self._numbers, self._times = numbers[left], times[left]
        made, known = held["decisions"] - base.decisions, held["outcomes"] - base.gone
        if len(self._numbers) != made - known:
            raise Damaged("its index of outcomes does not fit them")
        self._follow_deferred(db, seen or {"events": 0, "activations": 0})
        self._seen = dict(held)

    def _follow_deferred(self, db: Any, seen: dict[str, int]) -> None:
        query = "SELECT number, decision FROM {} WHERE number > ?{} ORDER BY number"
        late = query.format("events", " AND deferred = 1")
        new = [row[1] for row in read_pages(db, late, seen["events"] - 1)]
        done = [
            row[1]
            for row in read_pages(db, query.format("activations", ""), seen["activations"] - 1)
        ]
        deferred = np.concatenate([self._deferred, _numbers(new)])
        deferred = deferred[~np.isin(deferred, done)]
        self._deferred = deferred[np.isin(deferred, self._numbers)]


def _numbers(given: list[int]) -> np.ndarray:
    return np.array(given, np.int64)
