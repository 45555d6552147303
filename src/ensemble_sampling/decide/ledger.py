"""The durable ledger behind a Bandit: every decision and outcome, in order, in SQLite."""

import json
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .features import precision

FORMAT = 1
RECENT = 1000  # decisions kept in memory too, for outcomes that come soon
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE agents (           -- what chose and learned from which decision on; the last holds
  first INTEGER NOT NULL,
  time REAL NOT NULL,
  description TEXT NOT NULL     -- JSON
);
CREATE TABLE decisions (
  number INTEGER PRIMARY KEY,   -- 0, 1, 2, ...
  time REAL NOT NULL,           -- seconds since 1970
  chosen INTEGER NOT NULL,      -- row of the offer
  action TEXT,                  -- its name as JSON, if it has one
  features BLOB NOT NULL,       -- of the chosen action, as given
  probabilities BLOB NOT NULL   -- of every action on offer
);
CREATE TABLE outcomes (
  sequence INTEGER PRIMARY KEY, -- 1, 2, 3, ...: the order of learning
  decision INTEGER NOT NULL UNIQUE REFERENCES decisions,
  time REAL NOT NULL,
  outcome TEXT NOT NULL,        -- JSON: a number or a list
  reward REAL,                  -- what it was worth; NULL where only the agent knows
  expired INTEGER NOT NULL      -- 1: it never came, and was assumed
);
"""


class Decided(NamedTuple):
    """A decision as the ledger holds it, with its outcome if that has come."""

    number: int
    time: float
    chosen: int
    action: Any
    features: np.ndarray
    probabilities: np.ndarray
    outcome: Any = None
    reward: float | None = None
    learned: float | None = None
    expired: bool = False


class Observed(NamedTuple):
    """An outcome to be recorded."""

    decision: int
    outcome: Any
    reward: float | None
    expired: bool = False


class Ledger:
    """Decisions and outcomes in order. `folder=None` keeps them in memory.

    One process writes at a time (`write=True` takes a lock that dies with the process); others
    may read meanwhile. Every `add_...` is all or nothing, and on disk when it returns.
    """

    def __init__(self, folder: Path | None, write: bool = True):
        self.folder, self.closed = folder, False
        self._recent: dict[int, Decided] = {}  # without outcome, and what a reading would give
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []  # in memory: until something is read
        self._lock = None
        where = "memory" if folder is None else str(folder)
        try:
            if folder is not None and write:
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = _lock(folder)
            self._connection = _connect(folder, write)
            self._start(write)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise OSError(f"cannot open the ledger in {where}: {error}") from error
        except BaseException:
            self.close()
            raise
        self.id = self._about("id")
        self.decisions = self._count("number", "decisions")
        self.outcomes = self._count("sequence", "outcomes", start=0)

    def _start(self, write: bool) -> None:
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables == 0 and not write:
            raise FileNotFoundError("it holds no decisions")
        if tables == 0:
            about = {
                "format": str(FORMAT),
                "id": uuid.uuid4().hex[:12],
                "precision": str(precision()),
            }
            with self._transaction():
                for statement in SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        try:
            found = int(self._about("format"))
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise ValueError(f"{self.folder} holds no ledger of decisions: {error}") from error
        if found > FORMAT:
            raise ValueError(
                f"the ledger in {self.folder} has format {found}, and this version reads up to "
                f"{FORMAT}: update ensemble-sampling"
            )
        self._dtype = np.dtype(self._about("precision"))

    def _about(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return "" if row is None else row[0]

    def _count(self, column: str, table: str, start: int = -1) -> int:
        last = self._db.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
        return (start if last is None else last) - start

    def _insert(self, statement: str, rows: list[Any]) -> None:
        if self.folder is None:
            self._waiting += ((statement, row) for row in rows)
        elif len(rows) != 1:
            with self._transaction():
                self._db.executemany(statement, rows)
        else:
            try:
                self._db.execute(statement, rows[0])  # one row is a transaction by itself
            except sqlite3.OperationalError as error:
                raise self._unwritten(error) from error

    @property
    def _db(self) -> sqlite3.Connection:
        if self.closed:
            raise ValueError("this ledger was closed: open it again")
        if self._waiting:
            with self._transaction():
                for statement, rows in groupby(self._waiting, key=itemgetter(0)):
                    # Ignored if there: an interrupt may have come just after they were written.
                    again = statement.replace("INSERT", "INSERT OR IGNORE", 1)
                    self._connection.executemany(again, [row for _, row in rows])
            self._waiting = []
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing: an error rolls back."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise self._unwritten(error) from error
            raise

    def _unwritten(self, error: Exception) -> OSError:
        return OSError(
            f"could not write to the ledger in {self.folder or 'memory'}: {error}; "
            "nothing was recorded"
        )

    @property
    def description(self) -> Any:
        """The configuration that chooses and learns now; None in a new ledger."""
        last = "SELECT description FROM agents ORDER BY rowid DESC LIMIT 1"
        row = self._db.execute(last).fetchone()
        return None if row is None else json.loads(row[0])

    def describe(self, description: Any) -> None:
        """From the next decision on, this is the configuration."""
        row = (self.decisions, time.time(), json.dumps(description))
        with self._transaction():
            self._connection.execute("INSERT INTO agents VALUES (?, ?, ?)", row)

    @property
    def width(self) -> int | None:
        """The number of features of a decision; None before the first."""
        row = self._db.execute("SELECT length(features) FROM decisions LIMIT 1").fetchone()
        return None if row is None else row[0] // self._dtype.itemsize

    def add_decisions(self, rows: list[Decided]) -> None:
        values = [
            (
                row.number,
                row.time,
                row.chosen,
                None if row.action is None else json.dumps(row.action),
                row.features.astype(self._dtype, copy=False).tobytes(),
                row.probabilities.astype(self._dtype, copy=False).tobytes(),
            )
            for row in rows
        ]
        self._insert("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?)", values)
        self.decisions += len(values)
        for row in rows:
            self._recent[row.number] = row
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    def add_outcomes(self, rows: list[Observed]) -> None:
        now = time.time()
        values = [
            (self.outcomes + i, row.decision, now, json.dumps(row.outcome), row.reward, row.expired)
            for i, row in enumerate(rows, start=1)
        ]
        self._insert("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?)", values)
        self.outcomes += len(values)
        for row in rows:
            self._recent.pop(row.decision, None)

    def decision(self, number: int) -> Decided | None:
        if number in self._recent:
            return self._recent[number]
        return next(self._read("WHERE number = ?", number), None)

    def pending(self, before: float) -> list[int]:
        """Decisions made by the time `before` whose outcome has not come, oldest first."""
        query = (
            "SELECT number FROM decisions LEFT JOIN outcomes ON decision = number "
            "WHERE sequence IS NULL AND decisions.time <= ? ORDER BY number"
        )
        return [number for (number,) in self._db.execute(query, (before,))]

    def learned(self, after: int) -> Iterator[Decided]:
        """Decisions with outcomes, in the order of learning, after the first `after`."""
        return self._read("WHERE sequence > ? ORDER BY sequence", after)

    def latest(self, count: int) -> Iterator[Decided]:
        """The last `count` decisions."""
        return self._read("WHERE number >= ? ORDER BY number", self.decisions - count)

    def ask(self, query: str) -> Any:
        """The one value a query gives."""
        return self._db.execute(query).fetchone()[0]

    def all(self) -> Iterator[Decided]:
        return self._read("ORDER BY number")

    def _read(self, condition: str, *values: Any) -> Iterator[Decided]:
        query = (
            "SELECT number, decisions.time, chosen, action, features, probabilities, "
            "outcome, reward, outcomes.time, expired "
            f"FROM decisions LEFT JOIN outcomes ON decision = number {condition}"
        )
        for row in self._db.execute(query, values):
            number, at, chosen, action, features, shares, outcome, reward, learned, expired = row
            yield Decided(
                number,
                at,
                chosen,
                None if action is None else json.loads(action),
                np.frombuffer(features, self._dtype),
                np.frombuffer(shares, self._dtype),
                None if outcome is None else json.loads(outcome),
                reward,
                learned,
                bool(expired),
            )

    def table(self) -> dict[str, list[Any]]:
        """Every decision as a row, in columns that `pandas.DataFrame` and Parquet take as is."""
        rows = list(self.all())
        return {
            "id": [f"{self.id}-{row.number}" for row in rows],
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

    def close(self) -> None:
        self.closed = True
        for connection in (getattr(self, "_connection", None), self._lock):
            if connection is not None:
                connection.close()


def _connect(folder: Path | None, write: bool) -> sqlite3.Connection:
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
    if folder is None:
        return sqlite3.connect(":memory:", **options)
    path = folder / "ledger.sqlite"
    if not write:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, **options)
    db = sqlite3.connect(path, **options)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
    db.execute("PRAGMA foreign_keys = ON")
    return db


def _lock(folder: Path) -> sqlite3.Connection:
    """An exclusive lock on the folder, which the operating system drops when the process dies."""
    lock = sqlite3.connect(
        folder / "lock", timeout=0, isolation_level=None, check_same_thread=False
    )
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise OSError(
            "another process has it open for writing; one process writes at a time"
        ) from error
    return lock
