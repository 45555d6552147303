"""The durable ledger behind a Bandit: every decision and outcome, in order, in SQLite."""

import json
import os
import re
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..files import Damaged, sync_folder
from . import format
from .copies import NAME, OPTIONS, identity, reader, same_file, write_backup
from .features import precision
from .format import INSERT, numbered, opened, sealed
from .locks import DatabaseLock, FolderLock
from .records import Decided, Name, Observed, decision_row, from_rows, outcome_row, rounded

RECENT = 1000  # decisions kept in memory too, for outcomes that come soon
ID = re.compile(r"([0-9a-f]{12})-(0|[1-9][0-9]{0,17})")
DECISIONS = "decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number"
OUTCOMES = "outcomes AS o LEFT JOIN decisions AS d ON d.number = o.decision"
BEFORE_THE_END = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CONSTRAINT", "SQLITE_READONLY")
SPLIT = len(format.COLUMNS["decisions"]) + 1


class Ledger:
    """Decisions and outcomes in order. `folder=None` keeps them in memory.

    One process writes at a time (`write=True` takes locks that die with the process); others may
    read meanwhile. Every `add_...` is all or nothing, and on disk when it returns.
    """

    def __init__(self, folder: Path | None, write: bool = True):
        self.folder, self.closed, self._write, self._pid = folder, False, write, os.getpid()
        self._path = None if folder is None else folder.absolute() / NAME
        self._recent: dict[int, Decided] = {}  # without outcome, and what a reading would give
        self._waiting: list[tuple[str, list[Any]]] = []  # in memory: until something is read
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
        elif found == 1:
            self._upgrade(file)
        elif found != format.FORMAT:
            raise ValueError(
                f"it has format {found}, and this version reads up to {format.FORMAT}: "
                "update ensemble-sampling"
            )
        about = format.read_about(self._connection)
        self._dtype = np.dtype(about["precision"])
        if self._write and file and not same_file(about["file"], file):
            self._rename(file)
        rows = [opened("ids", row) for row in self._connection.execute("SELECT * FROM ids")]
        found = format.counts(self._connection)["ids"]
        self._names = [Name(*row[1:4]) for row in numbered("ids", rows, 0, found)]
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

    def _upgrade(self, file: str) -> None:
        """Whoever only reads upgrades a copy in memory."""
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
        held = format.counts(self._db)
        self._recent.clear()
        self._decisions, self._outcomes = held["decisions"], held["outcomes"]
        self._unsure = False

    @property
    def decisions(self) -> int:
        """How many there are."""
        if self._unsure:
            self._settle()
        return self._decisions

    @property
    def outcomes(self) -> int:
        """How many there are."""
        if self._unsure:
            self._settle()
        return self._outcomes

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

    @property
    def _db(self) -> sqlite3.Connection:
        if self.closed:
            raise ValueError("this ledger was closed: open it again")
        if self._waiting:
            with self._transaction():
                for table, rows in self._waiting:
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

    def _insert(self, table: str, rows: list[Any]) -> None:
        """To be followed by moving the counters and `_unsure = False`."""
        self._unsure = True
        if self.folder is None:
            self._waiting.append((table, rows))
            return
        statement, rows = INSERT[table], [sealed(table, row) for row in rows]
        try:
            if len(rows) == 1:
                self._db.execute(statement, rows[0])  # one row is a transaction by itself
            else:
                with self._transaction():
                    self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._unwritten(error) from error
        self._check_files("nothing of this call is acknowledged")

    def _unwritten(self, error: sqlite3.Error) -> OSError:
        """What to say when writing failed; when only the sync failed, it may be on disk."""
        held = (self._decisions, self._outcomes)
        try:
            with self._transaction():  # takes the place in the log of what was not synced
                format.record_counts(self._connection)
            self._settle()
            certain = held == (self._decisions, self._outcomes)
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

    def describe(self, description: Any) -> None:
        """From the next decision on, this is the configuration."""
        first, number = self.decisions, format.counts(self._db)["agents"]
        self._insert("agents", [(number, first, time.time(), json.dumps(description))])
        self._unsure = False

    @property
    def dtype(self) -> np.dtype:
        """In what precision it keeps features and probabilities."""
        return self._dtype

    @property
    def width(self) -> int | None:
        """The number of features of a decision; None before the first."""
        first = self.decision(0)
        return None if first is None else len(first.features)

    def add_decisions(self, rows: list[Decided]) -> None:
        """Record decisions, numbered on from those there are."""
        if not rows:
            return
        if rows[0].number != self.decisions:
            raise ValueError(f"decision {self.decisions} is next, got {rows[0].number}")
        rows = [rounded(row, self._dtype) for row in rows]
        self._insert("decisions", [decision_row(row) for row in rows])
        self._decisions += len(rows)
        for row in rows:
            self._recent[row.number] = row
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._unsure = False

    def add_outcomes(self, rows: list[Observed]) -> None:
        """Record outcomes in the order they are learned."""
        if not rows:
            return
        after, now = self.outcomes, time.time()
        values = [outcome_row(n, now, row) for n, row in enumerate(rows, start=after + 1)]
        self._insert("outcomes", values)
        self._outcomes += len(values)
        for row in rows:
            self._recent.pop(row.decision, None)
        self._unsure = False

    def decision(self, number: int) -> Decided | None:
        if self._unsure:
            self._settle()
        if number in self._recent:
            return self._recent[number]
        with self._explained("cannot read the ledger"):
            return next((row for _, row in self._rows(DECISIONS, "d.number = ?", number)), None)

    def pending(self, before: float) -> list[int]:
        """Decisions made by the time `before` whose outcome has not come, oldest first."""
        query = f"SELECT d.number, d.time FROM {DECISIONS} WHERE o.sequence IS NULL ORDER BY 1"
        with self._explained("cannot read the ledger"):
            rows = self._db.execute(query).fetchall()
            if len(rows) != self.decisions - self.outcomes:
                raise Damaged("its index of outcomes does not fit them")
        return [number for number, at in rows if at <= before]

    def learned(self, after: int) -> Iterator[Decided]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        with self._explained("cannot read the ledger"):
            rows = self._rows(OUTCOMES, "o.sequence > ? ORDER BY o.sequence", after)
            for _, row in numbered("outcomes", rows, after + 1, self.outcomes - after):
                yield row

    def latest(self, count: int) -> Iterator[Decided]:
        """The last `count` decisions."""
        first = max(0, self.decisions - count)
        with self._explained("cannot read the ledger"):
            rows = self._rows(DECISIONS, "d.number >= ? ORDER BY d.number", first)
            for _, row in numbered("decisions", rows, first, self.decisions - first):
                yield row

    def all(self) -> Iterator[Decided]:
        """Every decision."""
        learned = 0
        for row in self.latest(self.decisions):
            learned += row.learned is not None
            yield row
        with self._explained("cannot read the ledger"):
            if learned != self.outcomes:
                raise Damaged("its index of outcomes does not fit them")

    def ask(self, query: str) -> Any:
        """The one value a query gives."""
        with self._explained("cannot read the ledger"):
            return self._db.execute(query).fetchone()[0]

    def _rows(self, tables: str, condition: str, value: int) -> Iterator[tuple[int, Decided]]:
        """Rows with the number they have in the first of the tables, which is the whole one."""
        query = f"SELECT d.*, o.* FROM {tables} WHERE {condition}"
        for row in self._db.execute(query, (value,)):
            decision, outcome = row[:SPLIT], row[SPLIT:]
            if decision[0] is None:
                raise Damaged(f"row {outcome[1]} of the table decisions is missing")
            known = None if outcome[0] is None else opened("outcomes", outcome)
            number = decision[0] if tables == DECISIONS else outcome[0]
            yield number, from_rows(opened("decisions", decision), known, self._dtype)

    def table(self) -> dict[str, list[Any]]:
        """Every decision as a row, in columns that `pandas.DataFrame` and Parquet take as is."""
        rows = list(self.all())
        return {
            "id": [self.decision_id(row.number) for row in rows],
            "time": [row.time for row in rows],
            "index": [row.chosen for row in rows],
            "action": [row.action for row in rows],
            "probability": [float(row.probabilities[row.chosen]) for row in rows],
            "probabilities": [row.probabilities.tolist() for row in rows],
            "features": [row.features.tolist() for row in rows],
            "outcome": [row.outcome for row in rows],
            "reward": [row.reward for row in rows],
            "learned": [row.learned for row in rows],
            "expired": [row.expired for row in rows],
        }

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
