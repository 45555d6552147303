"""Transactions on the tables of a ledger, which one process writes, or several in turns."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..files import Damaged
from . import schema
from .locks import Held
from .rows import Base, Name, consecutive, unseal
from .sqlite import Database, Statements, in_words, transaction


class Process:
    """The id of this process, cached: a system call in every decision costs 0.3 us."""

    id = os.getpid()

    @classmethod
    def forked(cls) -> None:
        cls.id = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.forked)


@contextmanager
def explained(database: Database, what: str) -> Iterator[None]:
    """Errors say what went wrong with which ledger."""
    where = f"{what} in {database.name}"
    try:
        yield
    except (OSError, ValueError, *database.errors) as error:
        damaged = isinstance(error, Damaged | UnicodeDecodeError)
        if damaged or database.means_damage(error):
            raise Damaged(f"{where}, which is damaged: {error}; restore a backup") from error
        if isinstance(error, Held):
            raise Held(f"{where}: {error}") from error
        kind = ValueError if isinstance(error, ValueError) else OSError
        raise kind(f"{where}: {in_words(error)}") from error


class Cache(Protocol):
    """What is remembered of the tables."""

    def clear(self) -> None: ...


class Transactions:
    """Turns to read or write in, which keep the counts of a database right.

    Whatever cuts a write short, an error or an interrupt, it is rolled back, and the rows are
    counted anew before anything else is done.

    check: refuses to go on with a ledger that was closed, moved or forked.
    caches: what is remembered of the tables, cleared where it may be wrong.
    kind: of the turn, "read" or "write", or "failed" after an error; None outside.
    names: the ids that decisions go by, oldest first.
    keeps: what is kept of an offer, "all" of it or only what was "chosen".
    base: what was removed from the tables.
    """

    def __init__(
        self,
        database: Database,
        write: bool,
        shared: bool,
        check: Callable[[], None],
        caches: Sequence[Cache],
    ):
        self._database, self._counts = database, database.counts
        self._write, self._shared = write, shared
        self._check, self._caches = check, caches
        self._wrote = False  # anything in this turn
        self.kind: str | None = None
        self.names: list[Name] = []
        self.keeps, self.base = "all", Base()
        self._removed: Any = None  # what tells that rows were removed: `base` as text, erasures

    @contextmanager
    def turn(self, write: bool = True) -> Iterator[None]:
        """Everything within sees one state of the database and, with `write`, changes it all or
        not at all: nobody else writes meanwhile, and it is on disk at the end.

        A turn within a turn is a part of it.
        """
        if self.in_turn:
            self._permit("write" if write else "read")
            yield
            return
        self._check()
        if write and not self._write:
            raise ValueError("this ledger was opened to be read only")
        if not self._write:
            yield  # all of its life is one reading
            return
        db = self._database
        self.kind, self._wrote = "write" if write else "read", False
        try:
            with explained(self._database, f"cannot {'write to' if write else 'read'} the ledger"):
                self._counts.held = self._recount(db.standing(write))
                before = dict(self._counts.held)
            yield
            self._permit("read")
            if self._shared:
                self._counts.held = None  # before others can write
            if write:
                self._commit(before)
            else:
                db.rollback()
        except BaseException:
            if self._wrote:
                self._counts.lose()
            elif self._shared:
                self._counts.held = None
            db.rollback()
            raise
        finally:
            self.kind = None

    def _commit(self, before: dict[str, int]) -> None:
        try:
            self._database.commit()
        except self._database.errors as error:
            raise self.write_error(error, before) from error
        self._database.check("nothing of this call is acknowledged")

    @property
    def in_turn(self) -> bool:
        """Also in one that failed, until it ends; but not in one that an interrupt cut short."""
        kind = self.kind
        return kind is not None and (kind == "failed" or self._database.in_transaction)

    def _permit(self, what: str) -> None:
        """Refuse what a turn cannot do."""
        if self.kind == "failed":
            raise OSError("nothing of this turn was recorded: a part of it failed")
        if self.kind == "read" and what == "write":
            raise RuntimeError(
                "nothing can be written in a turn that only reads, or before a reading has come "
                "to its end"
            )

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """The database, to be read. Shared, every reading is a turn by itself, unless in one."""
        if self._shared and not self.in_turn:
            with self.turn(write=False), explained(self._database, "cannot read the ledger"):
                yield self._database
            return
        self.counts()
        with explained(self._database, "cannot read the ledger"):
            yield self._database

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """The database, to be written to, with counts that hold until that is done. Shared, every
        writing is a turn by itself, unless in one."""
        if self.kind == "write" and self._database.in_transaction:
            self._wrote = True
            yield self._database
            return
        if self.in_turn:
            self._permit("write")  # which refuses
        if self._shared:
            with self.turn():
                self._wrote = True
                yield self._database
            return
        self.kind = None  # of a turn that an interrupt cut short
        self.counts()
        yield self._database

    def counts(self) -> dict[str, int]:
        """How many rows the tables have; if that is not known, the database is asked."""
        if self._database.closed:
            raise ValueError("this ledger was closed: open it again")
        if self._counts.held is not None:
            return self._counts.held
        if not self._shared or self.in_turn:
            with explained(self._database, "cannot read the ledger"):
                return self.settle()
        self._check()
        with explained(self._database, "cannot read the ledger"):
            return self._recount(self._database.standing(None))  # others may write at once

    def settle(self) -> dict[str, int]:
        """Learn from the database what it holds: a write was cut short, its fate unknown."""
        if self._write and not self.in_turn:
            self._database.rollback()
        self._counts.lose()
        held = self._recount(self._database.standing(None))
        if not self._shared or self.in_turn:
            self._counts.held = held
        return held

    def _recount(self, standing: Sequence[Any]) -> dict[str, int]:
        """How many rows there are by the answer to `schema.STANDING`."""
        *found, keeps, base = standing
        # Where nobody else writes, counts are unknown only after a write was cut short.
        stale = self._counts.stale or (self._counts.held is None and not self._shared)
        if stale or self._removed is None or base != self._removed[0]:
            self.base = schema.read_base(base)
        least, pairs = self.base.counts, zip(schema.COUNTED, found, strict=True)
        held = {table: max(count, least.get(table, 0)) for table, count in pairs}
        self.keeps = keeps or "all"
        before, self._removed = self._removed, (base, held["erasures"])
        stale = stale or before != self._removed  # items that were written may be gone
        for cache in self._caches if stale else ():
            cache.clear()
        if stale or held["ids"] != len(self.names):
            ids = self._database.execute("SELECT * FROM ids ORDER BY number").fetchall()
            rows = [unseal("ids", row) for row in ids]
            self.names = [Name(*row[1:]) for row in consecutive("ids", rows, 0, held["ids"])]
        self._counts.stale = False
        return held

    def insert(self, statements: Statements) -> None:
        """While `writing` in a turn; if it fails, the turn has failed."""
        try:
            for statement, rows in statements:
                self._database.executemany(statement, rows)
        except self._database.errors as error:
            self.kind = "failed"
            raise OSError(
                f"could not write to the ledger in {self._database.name}: {self._why(error)}; "
                "nothing was recorded"
            ) from error

    def _why(self, error: Exception) -> str:
        return str(error) if self._database.means_damage(error) else in_words(error)

    def write_error(self, error: Exception, before: dict[str, int]) -> OSError:
        """What to say when writing failed; when only the sync failed, it may be on disk."""
        db, why = self._database, self._why(error)
        try:
            with transaction(db):  # takes the place in the log of what was not synced
                schema.record_counts(db)
            certain = before == self.settle()
        except (OSError, *db.errors):
            certain = db.is_undone(error)
        return OSError(
            f"could not write to the ledger in {db.name}: {why}; "
            + ("nothing was recorded" if certain else "it may or may not have been recorded")
        )
