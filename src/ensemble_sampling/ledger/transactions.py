"""Tables that one process writes, or several in turns: opened, counted, written all or nothing."""

import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ..files import Damaged
from ..inputs.hashing import precision
from . import schema
from .locks import Held
from .rows import Name
from .schema import INSERT, numbered, opened, sealed
from .sqlite import Place, Sqlite, database, in_words, transaction

NOTHING = nullcontext()
REVISIONS = "revisions before"  # the setting that says how many there were before an id
Rows = dict[str, list[Any]]  # by table


class Process:
    """This one. To ask the system in every call takes a while."""

    id = os.getpid()

    @classmethod
    def forked(cls) -> None:
        cls.id = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.forked)


class Book:
    """The part of a `Ledger` that knows where its rows are, and how many.

    Whatever cuts a write short, an error or an interrupt, it is rolled back, and what there is
    counted anew before anything else is done.
    """

    def __init__(
        self, place: Place, write: bool = True, *, shared: bool = False, durable: bool = True
    ):
        if shared and not write:
            raise ValueError("a ledger that is only read is not shared: it stays what it is")
        self.place, self.closed, self._write, self._pid = place, False, write, os.getpid()
        self._shared = shared
        # In memory, until something is read: rows as they are stored, and what will be made into
        # rows. One value, so that no interrupt can part them.
        self._waiting: tuple[list[Rows], list[Any]] = ([], [])
        self._unsure = True  # whether a write was cut short and the counters may be wrong
        self._turn: str | None = None  # "read", "write" or "failed", while there is one
        self._wrote = False  # anything in this turn
        self._names: list[Name] = []
        self._database = database(place, write, shared, durable)
        self._renewals = 0  # of its connection, by which the counters are right
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
        found = 0 if empty else schema.read_format(db)
        if empty:
            with transaction(db):
                schema.create(db, schema.new_id(), str(precision()), file)
        elif 0 < found < schema.FORMAT:
            self._upgrade(found, file)
        elif found != schema.FORMAT:
            raise ValueError(
                f"it has format {found}, and this version reads up to {schema.FORMAT}: "
                "update ensemble-sampling"
            )
        about = schema.read_about(db)
        self._dtype = np.dtype(about["precision"])
        if self._write and file and not db.same(about["file"], file):
            self._rename(file)
        db.opened()

    def _upgrade(self, found: int, file: str) -> None:
        """Whoever only reads upgrades a copy in memory, or takes for empty what is not there."""
        db = self._database
        if not self._write and found > 1:
            schema.extend(db, found, "TEMP TABLE")
            return
        if not self._write and isinstance(db, Sqlite):
            db.into_memory()
        with transaction(db):
            schema.upgrade(db, file)

    def _rename(self, file: str) -> None:
        """A copy goes on by a new id: the original may be in use, or come back."""
        db = self._database
        held, id = schema.counts(db), schema.new_id()
        row = (held["ids"], id, held["decisions"], held["outcomes"], time.time())
        with transaction(db):
            db.execute(INSERT["ids"], sealed("ids", row))
            db.execute(schema.SET, sealed("about", ("file", file)))
            revisions = (f"setting {REVISIONS} {id}", json.dumps(held["revisions"]))
            db.execute(schema.SET, sealed("about", revisions))
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
            if isinstance(error, Held):
                raise Held(f"{where}: {error}") from error
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(f"{where}: {in_words(error)}") from error

    def check(self, writes: bool = False) -> None:
        """That it can be written to: cheap, for the start of every call. One that `writes` looks
        where to when it has, and before that only if something went wrong the last time."""
        if Process.id != self._pid:
            raise RuntimeError(
                f"this bandit was opened by the process {self._pid}, of which this one is a fork; "
                "one process writes to a ledger: open bandits in the child, each in its own "
                "folder, or send what is to be decided to the parent"
            )
        if self.closed:
            raise ValueError("this bandit was closed: open it again")
        if self._unsure or not writes:
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
                "nothing can be written in a turn that only reads, or before a reading has come "
                "to its end"
            )

    @contextmanager
    def _reading(self, what: str = "cannot read the ledger") -> Iterator[None]:
        """Shared, every reading is a turn by itself, unless it is in one."""
        if self._shared and not self._in_turn:
            with self.turn(write=False), self._explained(what):
                yield
            return
        if self._doubtful:
            self._settle()
        with self._explained(what):
            yield

    def _writing(self) -> Any:
        """Shared, every writing is a turn by itself, unless it is in one."""
        return self._writing_in_turn() if self._shared or self._in_turn else NOTHING

    @contextmanager
    def _writing_in_turn(self) -> Iterator[None]:
        with self.turn():
            self._wrote = True
            yield

    def _recount(self, last: Sequence[Any]) -> None:
        """How many rows there are now, which others may have written."""
        held, self.keeps = schema.counted(last[:-1]), last[-1] or "all"
        if self._renewals != self._database.renewals:
            self._unsure, self._renewals = True, self._database.renewals
        if self._unsure:
            self._forget()
        if self._unsure or held["ids"] != len(self._names):
            found = self._database.execute("SELECT * FROM ids ORDER BY number").fetchall()
            rows = [opened("ids", row) for row in found]
            self._names = [Name(*row[1:]) for row in numbered("ids", rows, 0, held["ids"])]
        self._held, self._unsure = held, False

    def _forget(self) -> None:
        """What was remembered of a state that may not be."""

    @property
    def _doubtful(self) -> bool:
        """Whether the counters may be wrong, outside of a turn."""
        unsure = self._unsure or self._renewals != self._database.renewals
        return unsure and not self._in_turn

    def _settle(self) -> None:
        """Learn from the database what it holds: a write was cut short, its fate unknown."""
        if self._write:
            self._database.rollback()
        self._unsure = True
        self._recount(self._db.standing(None))

    def _count(self, table: str) -> int:
        if not self._shared and not self._unsure and self._renewals == self._database.renewals:
            return self._held[table]  # the common case, several times faster
        if self._shared and not self._in_turn:
            self.check()
            with self._explained("cannot read the ledger"):
                self._recount(self._database.standing(None))
        elif self._doubtful:
            self._settle()
        return self._held[table]

    @property
    def _db(self) -> Any:
        if self.closed:
            raise ValueError("this ledger was closed: open it again")
        if any(self._waiting):
            self._condense()
            self._flush()
        return self._database

    def _flush(self) -> None:
        """Write the rows that are waiting."""
        done, later = self._waiting
        with transaction(self._database):
            for table, rows in (item for new in done for item in new.items()):
                # Ignored if there: an interrupt may have come just after they were written.
                again = f"{INSERT[table]} ON CONFLICT DO NOTHING"
                self._database.executemany(again, rows)
        self._waiting = ([], later)

    def _condense(self) -> None:
        """Make rows of all that is waiting."""

    def _insert(self, rows: Rows) -> None:
        """All of them or none; to be followed by `_unsure = False`."""
        self._unsure = True
        # Also where it waits: a row that cannot be written is refused now, not when one is read.
        made = {table: [sealed(table, row) for row in new] for table, new in rows.items() if new}
        if self.place is None and not self._in_turn:
            self._condense()
            self._waiting[0].append(made)
        else:
            self._insert_now([(INSERT[table], new) for table, new in made.items()])
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
                said = self._why(error)
                raise OSError(
                    f"could not write to the ledger in {where}: {said}; nothing was recorded"
                ) from error
            return
        try:
            self._db.write(statements)
        except self._database.errors as error:
            raise self._unwritten(error, self._held) from error
        self._database.check("nothing of this call is acknowledged")

    def _why(self, error: Exception) -> str:
        return str(error) if self._database.means_damage(error) else in_words(error)

    def _unwritten(self, error: Exception, held: dict[str, int]) -> OSError:
        """What to say when writing failed; when only the sync failed, it may be on disk."""
        db, said = self._database, self._why(error)
        try:
            with transaction(db):  # takes the place in the log of what was not synced
                schema.record_counts(db)
            self._settle()
            certain = held == self._held
        except (OSError, *db.errors):
            certain = db.is_undone(error)
        return OSError(
            f"could not write to the ledger in {db.name}: {said}; "
            + ("nothing was recorded" if certain else "it may or may not have been recorded")
        )

    def close(self) -> None:
        """Let others write; what was recorded is safe without. Called again, it does what an
        interrupt kept it from."""
        self.closed = True
        if os.getpid() != self._pid:  # in a fork all this is the parent's, and is left to it
            return
        try:
            self._database.close()
        except BaseException:  # by an interrupt; whoever opens it next is not to be kept out
            self._database.close()
            raise
