"""The durable ledger behind a Bandit: every decision and outcome, in order, in a database."""

import json
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files import Damaged
from . import format
from .databases import Place, Sqlite, database, transaction
from .features import precision
from .format import INSERT, numbered, opened, paged, sealed
from .history import History
from .logs import columns
from .offered import OFFERS, Writer
from .records import (
    Decided,
    Event,
    Name,
    Observed,
    Opinion,
    Revised,
    decision_row,
    event_row,
    outcome_row,
    revision_row,
    rounded,
)
from .waiting import Waiting

RECENT = 1000  # decisions kept in memory too, for outcomes that come soon
ID = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,17})")
Rows = dict[str, list[Any]]  # to be written, by table


class Ledger:
    """Decisions and outcomes in order.

    place: a folder; the URL of a PostgreSQL database with the bandit's name behind a #; or None,
        which keeps them in memory.
    write: whether to write to it, or only to read it as it is now.
    shared: whether other processes may write as well, in turns; else one process writes at a time,
        and others may read meanwhile. What shows that it is taken dies with the process.

    Every `add_...` is all or nothing, and on disk when it returns; within a `turn`, when that ends.
    """

    def __init__(self, place: Place, write: bool = True, *, shared: bool = False):
        if shared and not write:
            raise ValueError("a ledger that is only read is not shared: it stays what it is")
        self.place, self.closed, self._write, self._pid = place, False, write, os.getpid()
        self._shared = shared
        self._recent: dict[int, Decided] = {}  # without outcome, and what a reading would give
        self._recent_outcomes = 0  # up to which of them that is so
        self._waiting: list[Rows] = []  # in memory: until something is read
        self._writer: Writer | None = None  # of offers; None: not known what was written last
        self._pending = Waiting()
        self._unsure = True  # whether a write was cut short and the counters may be wrong
        self._turn: str | None = None  # "read", "write" or "failed", while there is one
        self._wrote = False  # anything in this turn
        self._names: list[Name] = []
        self._database = database(place, write, shared)
        self._database.renewed = self._doubt
        try:
            with self._explained("cannot open the ledger"):
                self._database.open()
                with self._database.opening():
                    self._open()
                self._settle()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        db = self._database
        empty = db.empty()
        if empty and not self._write:
            raise FileNotFoundError("it holds no decisions")
        file = db.identity()
        found = 0 if empty else format.read_format(db)
        if empty:
            with transaction(db):
                format.create(db, format.new_id(), str(precision()), file)
        elif 0 < found < format.FORMAT:
            self._upgrade(found, file)
        elif found != format.FORMAT:
            raise ValueError(
                f"it has format {found}, and this version reads up to {format.FORMAT}: "
                "update ensemble-sampling"
            )
        about = format.read_about(db)
        self._dtype = np.dtype(about["precision"])
        if self._write and file and not db.same(about["file"], file):
            self._rename(file)
        db.opened()

    def _upgrade(self, found: int, file: str) -> None:
        """Whoever only reads upgrades a copy in memory, or takes for empty what is not there."""
        db = self._database
        if not self._write and found > 1:
            format.extend(db, found, "TEMP TABLE")
            return
        if not self._write and isinstance(db, Sqlite):
            db.into_memory()
        with transaction(db):
            format.upgrade(db, file)

    def _rename(self, file: str) -> None:
        """A copy goes on by a new id: the original may be in use, or come back."""
        db = self._database
        held, id = format.counts(db), format.new_id()
        row = (held["ids"], id, held["decisions"], held["outcomes"], time.time())
        with transaction(db):
            db.execute(INSERT["ids"], sealed("ids", row))
            db.execute(format.SET, sealed("about", ("file", file)))
        warnings.warn(
            f"the ledger in {db.name} is a copy, or was restored from one: decisions from now "
            f"on go by the id {id}-..., while the {held['decisions']} before keep theirs and can "
            "still be learned from",
            stacklevel=6,
        )

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """What went wrong with which ledger."""
        where = f"{what} in {self._database.name}"
        try:
            yield
        except (OSError, ValueError, *self._database.errors) as error:
            damaged = isinstance(error, Damaged | UnicodeDecodeError)
            if damaged or self._database.means_damage(error):
                raise Damaged(f"{where}, which is damaged: {error}; restore a backup") from error
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(f"{where}: {error}") from error

    def check(self) -> None:
        """That it can be written to: cheap, for the start of every call."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this bandit was opened by the process {self._pid}, of which this one is a fork; "
                "one process writes to a ledger: open bandits in the child, each in its own "
                "folder, or send what is to be decided to the parent"
            )
        if self.closed:
            raise ValueError("this bandit was closed: open it again")
        self._database.check("nothing was done")

    @contextmanager
    def turn(self, write: bool = True) -> Iterator[None]:
        """Everything within sees one state of the database and, with `write`, changes it all or
        not at all: nobody else writes meanwhile, and it is on disk at the end.

        A turn within a turn is a part of it.
        """
        if self._in_turn:
            self._may("write" if write else "read")
            yield
            return
        self.check()
        if write and not self._write:
            raise ValueError("this ledger was opened to be read only")
        if not self._write:
            yield  # all of its life is one reading
            return
        db = self._db
        self._turn, self._wrote = "write" if write else "read", False
        try:
            with self._explained(f"cannot {'write to' if write else 'read'} the ledger"):
                self._recount(db.standing(write))
                before = dict(self._held)
            yield
            self._may("read")
            if write:
                self._commit(before)
            else:
                db.rollback()
        except BaseException:
            self._unsure = self._unsure or self._wrote
            db.rollback()
            raise
        finally:
            self._turn = None

    def _commit(self, before: dict[str, int]) -> None:
        try:
            self._database.commit()
        except self._database.errors as error:
            raise self._unwritten(error, before) from error
        self._database.check("nothing of this call is acknowledged")

    @property
    def _in_turn(self) -> bool:
        """Also one that failed, until it ends; but none that an interrupt cut short."""
        turn = self._turn
        return turn is not None and (turn == "failed" or self._database.in_transaction)

    def _may(self, what: str) -> None:
        """Refuse what a turn cannot do."""
        if self._turn == "failed":
            raise OSError("nothing of this turn was recorded: a part of it failed")
        if self._turn == "read" and what == "write":
            raise RuntimeError(
                "nothing can be written in a turn that only reads, or before a "
                "reading has come to its end"
            )

    @contextmanager
    def _reading(self, what: str = "cannot read the ledger") -> Iterator[None]:
        """Shared, every reading is a turn by itself, unless it is in one."""
        if self._shared and not self._in_turn:
            with self.turn(write=False), self._explained(what):
                yield
            return
        if self._unsure and not self._in_turn:
            self._settle()
        with self._explained(what):
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._in_turn:
            self._may("write")
            self._wrote = True
            yield
        elif self._shared:
            with self.turn():
                self._wrote = True
                yield
        else:
            yield

    def _recount(self, last: Sequence[Any]) -> None:
        """How many rows there are now, which others may have written."""
        held, self.keeps = format.counted(last[:-1]), last[-1] or "all"
        if self._unsure:
            self._recent.clear()
            self._writer, self._pending = None, Waiting()
        if self._unsure or held["ids"] != len(self._names):
            found = self._database.execute("SELECT * FROM ids ORDER BY number").fetchall()
            rows = [opened("ids", row) for row in found]
            self._names = [Name(*row[1:]) for row in numbered("ids", rows, 0, held["ids"])]
        self._held, self._unsure = held, False

    def _doubt(self) -> None:
        self._unsure = True

    def _settle(self) -> None:
        """Learn from the database what it holds: a write was cut short, its fate unknown."""
        if self._write:
            self._database.rollback()
        self._unsure = True
        self._recount(self._db.standing(None))

    def _count(self, table: str) -> int:
        if self._shared and not self._in_turn:
            with self._explained("cannot read the ledger"):
                self._recount(self._database.standing(None))
        elif self._unsure and not self._in_turn:
            self._settle()
        return self._held[table]

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
    def configured(self) -> tuple[int, int]:
        """What changes when the configuration does, or the shadows beside it."""
        return self._count("agents"), self._held["shadows"]

    @property
    def id(self) -> str:
        """What decisions go by from now on."""
        return self._names[-1].id

    def decision_id(self, number: int) -> str:
        """The id of a decision; those from before a copy was made keep the original's."""
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

    def revisions_as(self, id: str) -> int:
        """How many revisions there were when it last went by `id`."""
        after = [name for name, before in pairwise(reversed(self._names)) if before.id == id]
        if not after:
            return self.revisions
        return self.ask(f"SELECT count(*) FROM revisions WHERE time < {after[0].time!r}")

    @property
    def _db(self) -> Any:
        if self.closed:
            raise ValueError("this ledger was closed: open it again")
        if self._waiting:
            with transaction(self._database):
                for table, rows in (item for new in self._waiting for item in new.items()):
                    # Ignored if there: an interrupt may have come just after they were written.
                    again = f"{INSERT[table]} ON CONFLICT DO NOTHING"
                    self._database.executemany(again, [sealed(table, row) for row in rows])
            self._waiting = []
        return self._database

    def _insert(self, rows: Rows) -> None:
        """All of them or none; to be followed by `_unsure = False`."""
        self._unsure = True
        rows = {table: new for table, new in rows.items() if new}
        if self.place is None and not self._in_turn:
            self._waiting.append(rows)
        else:
            self._insert_now(
                [(INSERT[t], [sealed(t, row) for row in new]) for t, new in rows.items()]
            )
        for table, new in rows.items():
            self._held[table] += len(new)

    def _insert_now(self, statements: list[tuple[str, list[Any]]]) -> None:
        if self._in_turn:
            try:
                for statement, rows in statements:
                    self._database.executemany(statement, rows)
            except self._database.errors as error:
                self._turn = "failed"
                where = self._database.name
                raise OSError(
                    f"could not write to the ledger in {where}: {error}; nothing was recorded"
                ) from error
            return
        try:
            self._db.write(statements)
        except self._database.errors as error:
            raise self._unwritten(error, self._held) from error
        self._database.check("nothing of this call is acknowledged")

    def _unwritten(self, error: Exception, held: dict[str, int]) -> OSError:
        """What to say when writing failed; when only the sync failed, it may be on disk."""
        db = self._database
        try:
            with transaction(db):  # takes the place in the log of what was not synced
                format.record_counts(db)
            self._settle()
            certain = held == self._held
        except (OSError, *db.errors):
            certain = db.is_undone(error)
        return OSError(
            f"could not write to the ledger in {db.name}: {error}; "
            + ("nothing was recorded" if certain else "it may or may not have been recorded")
        )

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

    def setting(self, name: str) -> Any:
        """What was `set` by this name, or None."""
        with self._reading():
            query = "SELECT * FROM about WHERE name = ?"
            row = self._db.execute(query, (f"setting {name}",)).fetchone()
            return None if row is None else json.loads(opened("about", row)[1])

    def set(self, name: str, value: Any) -> None:
        """Remember a value that JSON can tell, in the place of the one before."""
        self._set(f"setting {name}", json.dumps(value))

    def _set(self, name: str, value: str) -> None:
        with self._writing(), self._explained("cannot write to the ledger"):
            self._db.execute(format.SET, sealed("about", (name, value)))

    def lease(self, holder: str, seconds: float, name: str = "learner") -> bool:
        """Be the one who does something for so long, or for longer; False if another is."""
        now = self._database.now()
        query = (
            f"INSERT INTO leases VALUES (?, ?, {now} + ?) ON CONFLICT (name) DO UPDATE SET "
            "holder = excluded.holder, until = excluded.until "
            f"WHERE leases.holder = excluded.holder OR leases.until < {now}"
        )
        with self._writing(), self._explained("cannot write to the ledger"):
            return self._db.execute(query, (name, holder, float(seconds))).rowcount == 1

    def holder(self, name: str = "learner") -> str | None:
        """Who it is now, if anyone."""
        query = f"SELECT holder FROM leases WHERE name = ? AND until >= {self._database.now()}"
        with self._reading():
            row = self._db.execute(query, (name,)).fetchone()
            return None if row is None else row[0]

    def release(self, holder: str, name: str = "learner") -> None:
        """Let another be it, where it was this one."""
        query = "DELETE FROM leases WHERE name = ? AND holder = ?"
        with self._writing(), self._explained("cannot write to the ledger"):
            self._db.execute(query, (name, holder))

    def store(self, name: str, content: bytes, durable: bool = True) -> None:
        """Keep bytes beside the ledger, whole or not at all, in the place of those before. Where
        it need not be `durable`, they may be lost, or be others, after a power loss."""
        with self._explained(f"cannot store {name} beside the ledger"):
            self._database.store(name, content, durable)

    def stored(self, name: str) -> bytes | None:
        """What was stored last by this name, if anything."""
        with self._explained(f"cannot read {name} beside the ledger"):
            return self._database.stored(name)

    def stored_version(self, name: str) -> Any:
        """Something that changes when the bytes of this name do; None where there are none."""
        with self._explained(f"cannot read {name} beside the ledger"):
            return self._database.version(name)

    def discard(self, name: str) -> None:
        """Forget the bytes of this name, if there are any."""
        with self._explained(f"cannot remove {name} beside the ledger"):
            self._database.discard(name)

    def where(self, name: str) -> str:
        """What to call the bytes of this name in messages."""
        return self._database.where(name)

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
        new: Rows = {"decisions": [decision_row(row) for row in rows]}
        first = self._count("opinions")
        new["opinions"] = [(n, *opinion) for n, opinion in enumerate(opinions, start=first)]
        new["imports"] = self._imported(rows)
        now, after = time.time(), self.outcomes + 1
        new["outcomes"] = [outcome_row(n, now, y) for n, y in enumerate(outcomes, start=after)]
        first = self._count("events")
        new["events"] = [event_row(n, event) for n, event in enumerate(events, start=first)]
        writer, self._unsure = self._offers_writer(), True  # it remembers what is not there yet
        kept = [writer.row(row.number, row.offer) for row in rows if not row.foreign]
        new["offers"] = [row for row in kept if row is not None]
        self._insert(new)
        for row in rows if not outcomes else ():
            self._recent[row.number] = row if row.offer is None else row._replace(offer=None)
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._unsure = False

    def _imported(self, rows: list[Decided]) -> list[tuple[Any, ...]]:
        """Rows are all from elsewhere, or none is."""
        if not rows[0].foreign:
            return []
        return [(self._count("imports"), rows[0].number, len(rows), time.time())]

    def _offers_writer(self) -> Writer:
        """One that knows all that was written, by whomever."""
        writer = Writer(self._dtype) if self._writer is None else self._writer
        if writer.count != self._count("offers") or self._writer is None:
            last = "SELECT * FROM offers WHERE decision > ? ORDER BY decision DESC LIMIT ?"
            with self._explained("cannot read the ledger"):
                rows = self._db.execute(last, (writer.last, OFFERS // 16)).fetchall()[::-1]
                writer.see([opened("offers", row) for row in rows], self.width)
        self._writer = writer
        return writer

    def add_outcomes(self, rows: list[Observed], revised: Sequence[Revised] = ()) -> None:
        """Record outcomes in the order they are learned, and those that take another's place."""
        if not rows and not revised:
            return
        with self._writing():
            now, after = time.time(), self.outcomes + 1
            new: Rows = {
                "outcomes": [outcome_row(n, now, row) for n, row in enumerate(rows, start=after)]
            }
            new["revisions"] = self._revisions(revised, now)
            self._insert(new)
            for row in rows:
                self._recent.pop(row.decision, None)
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
            for start in range(0, len(wanted) if self._count("events") else 0, format.PAGE):
                some = wanted[start : start + format.PAGE]
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
        return columns(found, self.decision_id)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Everything recorded so far into the new folder `path`: all of it there, or nothing."""
        self.check()
        with self._explained("cannot back up the ledger"):
            self._db.backup(Path(path))

    def close(self) -> None:
        """Let others write; what was recorded is safe without."""
        self.closed = True
        if os.getpid() == self._pid:  # in a fork all this is the parent's, and is left to it
            self._database.close()


def _event(row: Sequence[Any]) -> Event:
    _, event, slot, decision, deferred = opened("events", row)
    return Event(event, slot, decision, bool(deferred))
