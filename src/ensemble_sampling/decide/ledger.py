"""The durable ledger behind a Bandit: every decision and outcome, in order, in SQLite."""

import json
import os
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files import Damaged, sync_folder
from . import format
from .copies import NAME, OPTIONS, identity, reader, same_file, write_backup
from .features import precision
from .format import INSERT, numbered, opened, sealed
from .history import History
from .locks import DatabaseLock, FolderLock
from .logs import columns
from .offered import OFFERS, Writer
from .records import (
    Decided,
    Name,
    Observed,
    Opinion,
    Revised,
    decision_row,
    outcome_row,
    revision_row,
    rounded,
)

RECENT = 1000  # decisions kept in memory too, for outcomes that come soon
ID = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,17})")
BEFORE_THE_END = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CONSTRAINT", "SQLITE_READONLY")
Rows = dict[str, list[Any]]  # to be written, by table


class Ledger:
    """Decisions and outcomes in order. `folder=None` keeps them in memory.

    One process writes at a time (`write=True` takes locks that die with the process); others may
    read meanwhile. Every `add_...` is all or nothing, and on disk when it returns.
    """

    def __init__(self, folder: Path | None, write: bool = True):
        self.folder, self.closed, self._write, self._pid = folder, False, write, os.getpid()
        self._path = None if folder is None else folder.absolute() / NAME
        self._recent: dict[int, Decided] = {}  # without outcome, and what a reading would give
        self._waiting: list[Rows] = []  # in memory: until something is read
        self._writer: Writer | None = None  # of offers; None: not known what was written last
        self._files: list[tuple[str, int, int]] = []  # path, device and inode of what is written to
        self._unsure = True  # whether a write was cut short and the counters may be wrong
        self._folder_lock = self._database_lock = None
        self._connection = sqlite3.connect(":memory:", **OPTIONS)
        try:
            with self._explained("cannot open the ledger"):
                self._open()
            self._settle()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self._path is not None and self._write:
            self._open_folder(self._path)
        elif self._path is not None:
            self._connection = reader(self._path)
        empty = not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if empty and not self._write:
            raise FileNotFoundError("it holds no decisions")
        file = "" if self._path is None else identity(self._path)
        found = 0 if empty else format.read_format(self._connection)
        if empty:
            with self._transaction():
                format.create(self._connection, format.new_id(), str(precision()), file)
        elif found in (1, 2):
            self._upgrade(found, file)
        elif found != format.FORMAT:
            raise ValueError(
                f"it has format {found}, and this version reads up to {format.FORMAT}: "
                "update ensemble-sampling"
            )
        about = format.read_about(self._connection)
        self._dtype = np.dtype(about["precision"])
        self.keeps = about.get("offers", "all")
        if self._write and file and not same_file(about["file"], file):
            self._rename(file)
        rows = [opened("ids", row) for row in self._connection.execute("SELECT * FROM ids")]
        found = format.counts(self._connection)["ids"]
        self._names = [Name(*row[1:]) for row in numbered("ids", rows, 0, found)]
        if self._path is not None and self._write:
            log = f"{self._path}-wal"
            files = [str(self._path), log] if os.path.exists(log) else [str(self._path)]
            stats = [(path, os.stat(path)) for path in files]
            self._files = [(path, stat.st_dev, stat.st_ino) for path, stat in stats]
            sync_folder(self._path.parent.parent)  # where the folder may be new

    def _open_folder(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._folder_lock = FolderLock(path.parent)
        self._connection = db = sqlite3.connect(path, **OPTIONS)
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        db.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        if mode == "wal":
            self._database_lock = DatabaseLock(path)

    def _upgrade(self, found: int, file: str) -> None:
        """Whoever only reads upgrades a copy in memory, or takes for empty what is not there."""
        if not self._write and found == 2:
            format.extend(self._connection, "TEMP TABLE")
            return
        if not self._write:
            copy = sqlite3.connect(":memory:", **OPTIONS)
            self._connection.backup(copy)
            self._connection.close()
            self._connection = copy
        with self._transaction():
            format.upgrade(self._connection, file)

    def _rename(self, file: str) -> None:
        """A copy goes on by a new id: the original may be in use, or come back."""
        held, id = format.counts(self._connection), format.new_id()
        row = (held["ids"], id, held["decisions"], held["outcomes"], time.time())
        with self._transaction():
            self._connection.execute(INSERT["ids"], sealed("ids", row))
            self._connection.execute(format.SET, sealed("about", ("file", file)))
        warnings.warn(
            f"the ledger in {self.folder} is a copy, or was restored from one: decisions from now "
            f"on go by the id {id}-..., while the {held['decisions']} before keep theirs and can "
            "still be learned from",
            stacklevel=6,
        )

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """What went wrong with which ledger."""
        where = f"{what} in {self.folder or 'memory'}"
        try:
            yield
        except (OSError, ValueError, sqlite3.Error) as error:
            if _means_damage(error):
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
        self._check_files("nothing was done")

    def _check_files(self, consequence: str) -> None:
        for path, device, inode in self._files:
            try:
                now = os.stat(path)
                same = now.st_ino == inode and now.st_dev == device
            except OSError:
                same = False
            if not same:
                raise OSError(
                    f"{path} was moved, removed or replaced while it was open: {consequence}; "
                    "put it back if it can be found, and open the bandit again"
                )

    def _settle(self) -> None:
        """Learn from the database what it holds: a write was cut short, its fate unknown."""
        if self._write and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._held = format.counts(self._db)
        self._recent.clear()
        self._writer = None
        self._unsure = False

    def _count(self, table: str) -> int:
        if self._unsure:
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
    def _db(self) -> sqlite3.Connection:
        if self.closed:
            raise ValueError("this ledger was closed: open it again")
        if self._waiting:
            with self._transaction():
                for table, rows in (item for new in self._waiting for item in new.items()):
                    # Ignored if there: an interrupt may have come just after they were written.
                    again = INSERT[table].replace("INSERT", "INSERT OR IGNORE", 1)
                    self._connection.executemany(again, [sealed(table, row) for row in rows])
            self._waiting = []
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing: an error rolls back."""
        if self._connection.in_transaction:  # of a call that was interrupted
            self._connection.execute("ROLLBACK")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _insert(self, rows: Rows) -> None:
        """All of them or none; to be followed by `_unsure = False`."""
        self._unsure = True
        rows = {table: new for table, new in rows.items() if new}
        if self.folder is None:
            self._waiting.append(rows)
        else:
            self._insert_now(
                [(INSERT[t], [sealed(t, row) for row in new]) for t, new in rows.items()]
            )
        for table, new in rows.items():
            self._held[table] += len(new)

    def _insert_now(self, statements: list[tuple[str, list[Any]]]) -> None:
        try:
            if len(statements) == 1 and len(statements[0][1]) == 1:
                statement, rows = statements[0]
                self._db.execute(statement, rows[0])  # one row is a transaction by itself
            else:
                with self._transaction():
                    for statement, rows in statements:
                        self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._unwritten(error) from error
        self._check_files("nothing of this call is acknowledged")

    def _unwritten(self, error: sqlite3.Error) -> OSError:
        """What to say when writing failed; when only the sync failed, it may be on disk."""
        held = self._held
        try:
            with self._transaction():  # takes the place in the log of what was not synced
                format.record_counts(self._connection)
            self._settle()
            certain = held == self._held
        except sqlite3.Error:  # it failed before the page that makes the others count
            certain = error.sqlite_errorname.startswith(BEFORE_THE_END)
        return OSError(
            f"could not write to the ledger in {self.folder or 'memory'}: {error}; "
            + ("nothing was recorded" if certain else "it may or may not have been recorded")
        )

    @property
    def description(self) -> Any:
        """The configuration that chooses and learns now; None in a new ledger."""
        with self._explained("cannot read the ledger"):
            row = self._db.execute("SELECT * FROM agents ORDER BY number DESC LIMIT 1").fetchone()
            return None if row is None else json.loads(opened("agents", row)[3])

    def describe(self, description: Any, promoted: str | None = None) -> None:
        """From the next decision on, this is the configuration; that of a former shadow, if any."""
        first, number, now = self.decisions, self._count("agents"), time.time()
        ended = [] if promoted is None else [(self._count("shadows"), promoted, first, now, None)]
        agents = [(number, first, now, json.dumps(description))]
        self._insert({"agents": agents, "shadows": ended})
        self._unsure = False

    def shadows(self) -> Iterator[tuple[int, str, int, Any]]:
        """(number, name, first decision, description or None) of every shadow, in order."""
        with self._explained("cannot read the ledger"):
            rows = (opened("shadows", row) for row in self._db.execute("SELECT * FROM shadows"))
            for row in numbered("shadows", rows, 0, self._count("shadows")):
                number, name, first, _, text = row
                yield number, name, first, None if text is None else json.loads(text)

    @property
    def next_shadow(self) -> int:
        """The number that the next shadow has."""
        return self._count("shadows")

    def add_shadow(self, name: str, description: Any) -> None:
        """From the next decision on there is a shadow of this name, or none for None."""
        text = None if description is None else json.dumps(description)
        row = (self._count("shadows"), name, self.decisions, time.time(), text)
        self._insert({"shadows": [row]})
        self._unsure = False

    def opinions(self, shadow: int) -> Iterator[Opinion]:
        """What a shadow would have done."""
        with self._explained("cannot read the ledger"):
            rows = (opened("opinions", row) for row in self._db.execute("SELECT * FROM opinions"))
            for row in numbered("opinions", rows, 0, self._count("opinions")):
                if row[2] == shadow:
                    yield Opinion(*row[1:])

    def keep(self, offers: str) -> None:
        """From now on, what is to be kept of an offer: all of it, or only what was chosen."""
        if offers != self.keeps:
            with self._explained("cannot write to the ledger"):
                self._db.execute(format.SET, sealed("about", ("offers", offers)))
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
    ) -> None:
        """Record decisions, numbered on from those there are, what shadows said of them, and what
        came of them where that is known already."""
        if not rows:
            return
        if rows[0].number != self.decisions:
            raise ValueError(f"decision {self.decisions} is next, got {rows[0].number}")
        rows = [rounded(row, self._dtype) for row in rows]
        new: Rows = {"decisions": [decision_row(row) for row in rows]}
        first = self._count("opinions")
        new["opinions"] = [(n, *opinion) for n, opinion in enumerate(opinions, start=first)]
        new["imports"] = self._imported(rows)
        now, after = time.time(), self.outcomes + 1
        new["outcomes"] = [outcome_row(n, now, y) for n, y in enumerate(outcomes, start=after)]
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
        if self._writer is None:
            last = "SELECT * FROM offers ORDER BY decision DESC LIMIT ?"
            with self._explained("cannot read the ledger"):
                rows = self._db.execute(last, (OFFERS // 16,)).fetchall()[::-1]
                kept = [opened("offers", row) for row in rows]
                self._writer = Writer(kept, self.width, self._dtype)
        return self._writer

    def add_outcomes(self, rows: list[Observed], revised: Sequence[Revised] = ()) -> None:
        """Record outcomes in the order they are learned, and those that take another's place."""
        if not rows and not revised:
            return
        now, after = time.time(), self.outcomes
        new: Rows = {
            "outcomes": [outcome_row(n, now, row) for n, row in enumerate(rows, start=after + 1)]
        }
        first = self.revisions + 1
        new["revisions"] = [
            revision_row(n, len(self.revised(row.decision)) + 1, now, row)
            for n, row in enumerate(revised, start=first)
        ]
        self._insert(new)
        for row in rows:
            self._recent.pop(row.decision, None)
        self._unsure = False

    @property
    def _history(self) -> History:
        if self._unsure:
            self._settle()
        return History(self._db, self._dtype, self._held)

    def decision(self, number: int) -> Decided | None:
        if self._unsure:
            self._settle()
        if number in self._recent:
            return self._recent[number]
        with self._explained("cannot read the ledger"):
            return self._history.decision(number)

    def pending(self, before: float) -> list[int]:
        """Decisions made by the time `before` whose outcome has not come, oldest first."""
        with self._explained("cannot read the ledger"):
            return [number for number, at in self._history.pending() if at <= before]

    def learned(self, after: int) -> Iterator[Decided]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        with self._explained("cannot read the ledger"):
            yield from self._history.learned(after)

    def revised(self, decision: int) -> list[tuple[Any, str | None]]:
        """(what was added, by what reference) for every revision of a decision's outcome."""
        with self._explained("cannot read the ledger"):
            return self._history.revisions(decision) if self.revisions else []

    def first_revised(self, after: int) -> int | None:
        """The earliest outcome that any but the first `after` revisions changed."""
        with self._explained("cannot read the ledger"):
            return self._history.first_revised(after)

    def latest(self, count: int) -> Iterator[Decided]:
        """The last `count` decisions."""
        with self._explained("cannot read the ledger"):
            yield from self._history.between(max(0, self.decisions - count), self.decisions)

    def between(self, first: int, last: int) -> Iterator[Decided]:
        """The decisions first, ..., last - 1, with what was on offer."""
        with self._explained("cannot read the ledger"):
            yield from self._history.between(first, min(last, self.decisions), offers=True)

    def all(self, offers: bool = False) -> Iterator[Decided]:
        """Every decision, with what was on offer if that is wanted."""
        with self._explained("cannot read the ledger"):
            yield from self._history.all(offers)

    def ask(self, query: str) -> Any:
        """The one value a query gives."""
        with self._explained("cannot read the ledger"):
            return self._db.execute(query).fetchone()[0]

    def ask_all(self, query: str) -> list[Any]:
        """All rows a query gives."""
        with self._explained("cannot read the ledger"):
            return self._db.execute(query).fetchall()

    def table(self, rows: range | None = None) -> dict[str, list[Any]]:
        """Every decision, or some, in columns that `pandas.DataFrame` and Parquet take as is."""
        found = self.all(offers=True) if rows is None else self.between(rows.start, rows.stop)
        return columns(found, self.decision_id)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Everything recorded so far into the new folder `path`: all of it there, or nothing."""
        self.check()
        with self._explained("cannot back up the ledger"):
            if self._path is None or not self._write:
                write_backup(self._db, Path(path))
                return
            source = reader(self._path)  # of its own: decisions can go on meanwhile
            try:
                write_backup(source, Path(path))
            finally:
                source.close()

    def close(self) -> None:
        """Let others write; what was recorded is safe without."""
        self.closed = True
        if os.getpid() != self._pid:  # forked: all this is the parent's, and is left to it
            return
        if self._files:
            with suppress(sqlite3.Error):
                format.record_counts(self._connection)
        if self._database_lock is not None:
            self._database_lock.release()
        self._connection.close()
        if self._database_lock is not None:
            self._database_lock.close()
        if self._folder_lock is not None:
            self._folder_lock.release()


def _means_damage(error: Exception) -> bool:
    """Whether it is the contents that are wrong, not the call or the disk."""
    unreadable = isinstance(error, sqlite3.Error) and not hasattr(error, "sqlite_errorcode")
    damaged = isinstance(error, Damaged | UnicodeDecodeError)
    return damaged or unreadable or type(error) is sqlite3.DatabaseError
