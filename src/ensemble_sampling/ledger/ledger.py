"""The durable ledger behind a Bandit: every decision and outcome, in order, in a database."""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from . import schema
from .columns import columns, entry
from .offers import OFFERS, Offered, Writer
from .pending import Waiting
from .reading import History
from .rows import (
    Decided,
    Event,
    Observed,
    Opinion,
    Revised,
    decision_row,
    event_row,
    outcome_row,
    revision_row,
    rounded,
)
from .schema import numbered, opened, paged, sealed
from .settings import Kept
from .transactions import REVISIONS, Rows

TOGETHER = 128  # decisions and outcomes in memory that are made into rows at once
SPARE = 2**23  # bytes of memory kept for those of the next
RECENT = 1000  # decisions kept in memory too, for outcomes that come soon
ID = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,17})")


class Ledger(Kept):
    """Decisions and outcomes in order.

    place: a folder; the URL of a PostgreSQL database with the bandit's name behind a #; or None,
        which keeps them in memory.
    write: whether to write to it, or only to read it as it is now.
    shared: whether other processes may write as well, in turns; else one process writes at a time,
        and others may read meanwhile. What shows that it is taken dies with the process.
    durable: whether what is written must outlive a loss of power, in SQLite.

    Every `add_...` is all or nothing, and on disk when it returns; within a `turn`, when that ends.
    """

    def _forget(self) -> None:
        self._recent: dict[int, Decided] = {}  # without outcome, and what a reading would give
        self._spare: list[np.ndarray] = []
        self._recent_outcomes = 0  # up to which of them that is so
        self._writer: Writer | None = None  # of offers; None: not known what was written last
        self._pending = Waiting()

    @property
    def decisions(self) -> int:
        """How many there are."""
        return self._count("decisions")

    @property
    def outcomes(self) -> int:
        """How many there are."""
        return self._count("outcomes")

    @property
    def revisions(self) -> int:
        """How often an outcome was corrected or added to."""
        return self._count("revisions")

    @property
    def known(self) -> tuple[int, int]:
        """How many outcomes and revisions there are."""
        return self._count("outcomes"), self._held["revisions"]

    @property
    def configured(self) -> tuple[int, int]:
        """What changes when the configuration does, or the shadows beside it."""
        return self._count("agents"), self._held["shadows"]

    @property
    def id(self) -> str:
        """What decisions go by from now on."""
        return self._names[-1].id

    def decision_id(self, number: int) -> str:
        """The id of a decision; those from before a copy was made keep the original's."""
        name = self._names[-1]
        if number < name.decisions:
            name = next(name for name in reversed(self._names) if number >= name.decisions)
        return f"{name.id}-{number}"

    def number(self, id: Any) -> int:
        """The number of the decision with this id."""
        if not isinstance(id, str):
            raise TypeError(f"a decision's id is text, got {id!r}")
        digits = id[13:]
        number = int(digits) if digits.isdecimal() and len(digits) < 19 else self.decisions
        if number < self.decisions and self.decision_id(number) == id:
            return number  # the common case, several times faster: an id we would give ourselves
        match = ID.fullmatch(id)
        if match is None:
            raise ValueError(f"{id!r} is not the id of a decision")
        ledger = match[1]
        if ledger not in [name.id for name in self._names]:
            raise ValueError(f"decision {id!r} belongs to the ledger {ledger}, this is {self.id}")
        raise ValueError(f"there is no decision {id} in this ledger")

    def outcomes_as(self, id: str) -> int | None:
        """How many outcomes there were when it last went by `id`; None if it never did."""
        ends = [*(name.outcomes for name in self._names[1:]), self.outcomes]
        known = {name.id: end for name, end in zip(self._names, ends, strict=True)}
        return known.get(id)

    def revisions_as(self, id: str) -> int | None:
        """How many revisions there were when it last went by `id`; None if that was not recorded,
        as it was not by earlier versions. Their times cannot tell: a clock may be put back."""
        after = [name for name, before in pairwise(reversed(self._names)) if before.id == id]
        if not after or not self.revisions:
            return self.revisions
        return self.setting(f"{REVISIONS} {after[0].id}")

    @property
    def description(self) -> Any:
        """The configuration that chooses and learns now; None in a new ledger."""
        with self._reading():
            row = self._db.execute("SELECT * FROM agents ORDER BY number DESC LIMIT 1").fetchone()
            return None if row is None else json.loads(opened("agents", row)[3])

    def describe(self, description: Any, promoted: str | None = None) -> None:
        """From the next decision on, this is the configuration; that of a former shadow, if any."""
        with self._writing():
            first, number, now = self.decisions, self._count("agents"), time.time()
            ended = [(self._count("shadows"), promoted, first, now, None)] if promoted else []
            agents = [(number, first, now, json.dumps(description))]
            self._insert({"agents": agents, "shadows": ended})
            self._unsure = False

    def shadows(self) -> Iterator[tuple[int, str, int, Any]]:
        """(number, name, first decision, description or None) of every shadow, in order."""
        for number, name, first, _, text in self._all("shadows"):
            yield number, name, first, None if text is None else json.loads(text)

    @property
    def next_shadow(self) -> int:
        """The number that the next shadow has."""
        return self._count("shadows")

    def add_shadow(self, name: str, description: Any) -> None:
        """From the next decision on there is a shadow of this name, or none for None."""
        text = None if description is None else json.dumps(description)
        with self._writing():
            row = (self._count("shadows"), name, self.decisions, time.time(), text)
            self._insert({"shadows": [row]})
            self._unsure = False

    def opinions(self, shadow: int) -> Iterator[Opinion]:
        """What a shadow would have done."""
        for row in self._all("opinions"):
            if row[2] == shadow:
                yield Opinion(*row[1:])

    def _all(self, table: str) -> Iterator[Sequence[Any]]:
        """The rows of a table whose numbers begin at 0."""
        with self._reading():
            query = f"SELECT * FROM {table} WHERE number > ? ORDER BY number"
            rows = (opened(table, row) for row in paged(self._db, query, -1))
            yield from numbered(table, rows, 0, self._count(table))

    def keep(self, offers: str) -> None:
        """From now on, what is to be kept of an offer: all of it, or only what was chosen."""
        if offers != self.keeps:
            self._set("offers", offers)
            self.keeps = offers

    @property
    def dtype(self) -> np.dtype:
        """In what precision it keeps features and probabilities."""
        return self._dtype

    @property
    def width(self) -> int | None:
        """The number of features of a decision; None before the first."""
        first = self.decision(0)
        return None if first is None else len(first.features)

    def add_decisions(
        self,
        rows: list[Decided],
        opinions: Sequence[Opinion] = (),
        outcomes: Sequence[Observed] = (),
        events: Sequence[Event] = (),
    ) -> None:
        """Record decisions, numbered on from those there are, what shadows said of them, what
        came of them where that is known already, and by what ids their callers know them."""
        if not rows:
            return
        if self._can_wait and not (opinions or outcomes or events or rows[0].foreign):
            self._await_decisions(rows)
            return
        with self._writing():
            self._add_decisions(rows, opinions, outcomes, events)

    def _add_decisions(
        self,
        rows: list[Decided],
        opinions: Sequence[Opinion],
        outcomes: Sequence[Observed],
        events: Sequence[Event],
    ) -> None:
        if rows[0].number != self.decisions:
            raise ValueError(f"decision {self.decisions} is next, got {rows[0].number}")
        rows = [rounded(row, self._dtype) for row in rows]
        self._insert(self._made(rows, opinions, outcomes, events))
        for row in rows if not outcomes else ():
            self._recent[row.number] = row if row.offer is None else Decided(*row[:-1])
        self._unsure = False
        self._forget_old()

    def _forget_old(self) -> None:
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    @property
    def _can_wait(self) -> bool:
        """Whether it is only in memory, where rows need not be made before something is read."""
        return self.place is None and self._turn is None and not self._shared

    def _await_decisions(self, rows: list[Decided]) -> None:
        """As `_add_decisions`, but rows are made later; offers may be the caller's, and change."""
        if rows[0].number != self.decisions:
            raise ValueError(f"decision {self.decisions} is next, got {rows[0].number}")
        waiting = []
        for row in rows:
            row, offer = rounded(row, self._dtype), row.offer
            if offer is not None:
                names, table, context, free = offer
                offer = Offered(names, self._copied(table), context, _own(free))
                row = Decided(*row[:6])  # what else there is comes with an outcome
            waiting.append((row, offer))
        self._unsure = True
        self._waiting[1].append(waiting)
        self._held["decisions"] += len(rows)
        for row, _ in waiting:
            self._recent[row.number] = row
        self._unsure = False
        self._forget_old()
        if len(self._waiting[1]) >= TOGETHER:
            self._condense()

    def _copied(self, table: np.ndarray) -> np.ndarray:
        """In memory of a table that is a row by now: to get some takes longer than to copy."""
        spare = self._spare
        if not spare or spare[-1].shape != table.shape or spare[-1].dtype != table.dtype:
            return table.copy()
        own = spare.pop()
        own[...] = table
        return own

    def _condense(self) -> None:
        done, later = self._waiting
        if not later:
            return
        unsure, self._unsure = self._unsure, True
        writer, self._writer = self._writer, None  # it remembers what is not there yet
        decided = [row for entry in later if isinstance(entry, list) for row in entry]
        offers: list[Any] = []
        if decided:
            if writer is None:
                self._flush()
                done = []
                writer = self._read_on(self._database, len(decided[0][0].features), 8)
            kept = [writer.row(row.number, offer) for row, offer in decided]
            offers = [row for row in kept if row is not None]
        outcomes = [
            outcome_row(n, now, row)
            for after, now, rows in (entry for entry in later if not isinstance(entry, list))
            for n, row in enumerate(rows, start=after)
        ]
        made: Rows = {"decisions": [decision_row(row) for row, _ in decided]}
        made |= {"outcomes": outcomes, "offers": offers}
        new = {table: [sealed(table, row) for row in rows] for table, rows in made.items()}
        self._waiting = ([*done, new], [])
        self._held["offers"] += len(offers)
        self._writer, self._unsure = writer, unsure
        tables = [offer.table for _, offer in decided if offer is not None]
        self._spare = tables[: SPARE // max(1, tables[0].nbytes)] if tables else []

    def _made(
        self,
        rows: list[Decided],
        opinions: Sequence[Opinion],
        outcomes: Sequence[Observed],
        events: Sequence[Event],
    ) -> Rows:
        """Rows of the tables; decisions are all from elsewhere, or none is."""
        self._condense()
        new: Rows = {"decisions": [decision_row(row) for row in rows]}
        if rows[0].foreign:
            new["imports"] = [(self._count("imports"), rows[0].number, len(rows), time.time())]
        if opinions:
            first = self._count("opinions")
            new["opinions"] = [(n, *opinion) for n, opinion in enumerate(opinions, start=first)]
        if outcomes:
            now, after = time.time(), self.outcomes + 1
            new["outcomes"] = [outcome_row(n, now, y) for n, y in enumerate(outcomes, start=after)]
        if events:
            first = self._count("events")
            new["events"] = [event_row(n, event) for n, event in enumerate(events, start=first)]
        writer, self._unsure = self._offers_writer(), True  # it remembers what is not there yet
        kept = [writer.row(row.number, row.offer) for row in rows if not row.foreign]
        new["offers"] = [row for row in kept if row is not None]
        return new

    def _offers_writer(self) -> Writer:
        """One that knows all that was written, by whomever."""
        if self._writer is None or self._writer.count != self._count("offers"):
            with self._explained("cannot read the ledger"):
                self._writer = self._read_on(self._db, self.width)
        return self._writer

    def _read_on(self, db: Any, width: int | None, most: int = OFFERS // 16) -> Writer:
        """The writer after the last offers that are in the database."""
        writer = Writer(self._dtype) if self._writer is None else self._writer
        last = "SELECT * FROM offers WHERE decision > ? ORDER BY decision DESC LIMIT ?"
        rows = db.execute(last, (writer.last, most)).fetchall()[::-1]
        writer.see([opened("offers", row) for row in rows], width)
        return writer

    def add_outcomes(self, rows: list[Observed], revised: Sequence[Revised] = ()) -> None:
        """Record outcomes in the order they are learned, and those that take another's place."""
        if not rows and not revised:
            return
        if self._can_wait and not revised:
            entry = (self.outcomes + 1, time.time(), rows)
            self._unsure = True
            self._waiting[1].append(entry)
            self._held["outcomes"] += len(rows)
            for row in rows:
                self._recent.pop(row.decision, None)
            self._unsure = False
            return
        with self._writing():
            now, after = time.time(), self.outcomes + 1
            made = [outcome_row(n, now, row) for n, row in enumerate(rows, start=after)]
            self._insert({"outcomes": made, "revisions": self._revisions(revised, now)})
            for row in rows:
                self._recent.pop(row.decision, None)
            if self._recent_outcomes == after - 1:
                self._recent_outcomes = self._held["outcomes"]
            self._unsure = False

    def _revisions(self, rows: Sequence[Revised], now: float) -> list[tuple[Any, ...]]:
        """Numbered by themselves, and by decision."""
        made, before = [], {row.decision: len(self.revised(row.decision)) for row in rows}
        for number, row in enumerate(rows, start=self.revisions + 1):
            before[row.decision] += 1
            made.append(revision_row(number, before[row.decision], now, row))
        return made

    def events(self, event: str) -> list[Event]:
        """The decisions of an event, in their order."""
        with self._reading():
            query = "SELECT * FROM events WHERE event = ? ORDER BY number"
            return [_event(row) for row in self._db.execute(query, (event,)).fetchall()]

    def find_events(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Event]:
        """Those that there are of some pairs (event, slot)."""
        found: dict[tuple[str, str], Event] = {}
        with self._reading():
            wanted = list(dict.fromkeys(event for event, _ in keys))
            for start in range(0, len(wanted) if self._count("events") else 0, schema.PAGE):
                some = wanted[start : start + schema.PAGE]
                query = f"SELECT * FROM events WHERE event IN ({', '.join('?' * len(some))})"
                rows = [_event(row) for row in self._db.execute(query, some).fetchall()]
                found |= {(row.event, row.slot): row for row in rows}
        return {key: found[key] for key in keys if key in found}

    def activate(self, decision: int) -> bool:
        """A decision that was deferred counts from now on; False if it did already."""
        with self._writing():
            with self._explained("cannot read the ledger"):
                query = "SELECT number FROM activations WHERE decision = ?"
                if self._db.execute(query, (decision,)).fetchone() is not None:
                    return False
            self._insert({"activations": [(self._count("activations"), decision, time.time())]})
            self._unsure = False
            return True

    @property
    def _history(self) -> History:
        return History(self._db, self._dtype, self._held)

    def decision(self, number: int) -> Decided | None:
        if number in self._recent and not self._unsure and not self._shared:
            return self._recent[number]
        return self.find([number]).get(number)

    def find(self, numbers: Sequence[int]) -> dict[int, Decided]:
        """Those that there are of some decisions."""
        with self._reading():
            self._forget_recent()
            known = {number: self._recent[number] for number in numbers if number in self._recent}
            others = list({number: None for number in numbers if number not in known})
            return known | self._history.decisions(others) if others else known

    def _forget_recent(self) -> None:
        """Those whose outcome came, by whomever it was recorded."""
        now = self.outcomes
        if self._shared and self._recent and now != self._recent_outcomes:
            query = "SELECT decision FROM outcomes WHERE sequence > ?"
            if now - self._recent_outcomes > RECENT:
                self._recent.clear()
            else:
                for row in self._db.execute(query, (self._recent_outcomes,)).fetchall():
                    self._recent.pop(row[0], None)
        self._recent_outcomes = now

    def pending(self, before: float) -> list[int]:
        """Decisions made by the time `before` whose outcome has not come, oldest first; without
        those that were deferred and not activated."""
        with self._reading():
            return self._pending.before(before, self._db, self._held)

    def learned(self, after: int) -> Iterator[Decided]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        with self._reading():
            yield from self._history.learned(after)

    def revised(self, decision: int) -> list[tuple[Any, str | None]]:
        """(what was added, by what reference) for every revision of a decision's outcome."""
        with self._reading():
            return self._history.revisions(decision) if self.revisions else []

    def first_revised(self, after: int) -> int | None:
        """The earliest outcome that any but the first `after` revisions changed."""
        with self._reading():
            return self._history.first_revised(after)

    def latest(self, count: int) -> Iterator[Decided]:
        """The last `count` decisions."""
        with self._reading():
            yield from self._history.between(max(0, self.decisions - count), self.decisions)

    def between(self, first: int, last: int) -> Iterator[Decided]:
        """The decisions first, ..., last - 1, with what was on offer."""
        with self._reading():
            yield from self._history.between(first, min(last, self.decisions), offers=True)

    def all(self, offers: bool = False) -> Iterator[Decided]:
        """Every decision, with what was on offer if that is wanted."""
        with self._reading():
            yield from self._history.all(offers)

    def ask(self, query: str) -> Any:
        """The one value a query gives."""
        with self._reading():
            return self._db.execute(query).fetchone()[0]

    def ask_all(self, query: str) -> list[Any]:
        """All rows a query gives."""
        with self._reading():
            return self._db.execute(query).fetchall()

    def table(self, rows: range | None = None) -> dict[str, list[Any]]:
        """Every decision, or some, in columns that `pandas.DataFrame` and Parquet take as is."""
        found = self.all(offers=True) if rows is None else self.between(rows.start, rows.stop)
        return columns(entry(row, self.decision_id) for row in found)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Everything recorded so far into the new folder `path`: all of it there, or nothing."""
        self.check()
        with self._explained("cannot back up the ledger"):
            self._db.backup(Path(path))


def _event(row: Sequence[Any]) -> Event:
    _, event, slot, decision, deferred = opened("events", row)
    return Event(event, slot, decision, bool(deferred))


def _own(part: np.ndarray) -> np.ndarray:
    """What the caller cannot change any more."""
    return part.copy() if part.flags.writeable else part
