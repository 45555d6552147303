"""SQLite as the database of a ledger: a file in a folder, or memory."""

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..fast import faster
from ..files import sync_folder, write_atomically
from . import schema
from .backup import NAME, OPTIONS, identity, reader, same_file, write_backup
from .locks import DatabaseLock, FolderLock

if TYPE_CHECKING:
    from .postgres import Postgres

LATE = 20_000  # pages in the log after which whoever writes must move them
LOG = 1100 * 4120  # bytes of the log: SQLite moves what is there after a thousand pages
MANY = 8  # writes after which more are to be expected
TICK = 50_000_000  # nanoseconds within which two changes of a folder may bear the same time
BEFORE_THE_END = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CONSTRAINT", "SQLITE_READONLY")
URLS = ("postgresql://", "postgres://")
SHOWN = re.compile(r"[A-Za-z0-9._%,:\[\]-]*")  # parts of a URL that say nothing but where it leads
Place = Path | str | None  # a folder, the URL of a database with #name, or memory
Statements = list[tuple[str, list[Any]]]  # each with its rows
Database: TypeAlias = "Sqlite | Postgres"  # where the tables of a ledger are


class Sqlite:
    """A file in a folder; or memory, for None. `Postgres` has the same methods; statements are SQL
    that both know, with `?`.

    name: what to call it in messages.
    errors: what its methods raise beside `OSError`.
    counts: of its rows, lost when the connection is.
    closed: whether whoever opened it is done with it.
    """

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(
        self,
        folder: Path | None,
        write: bool = True,
        shared: bool = False,
        durable: bool = True,
    ):
        self.folder, self.name = folder, "memory" if folder is None else str(folder)
        self._path = None if folder is None else folder.absolute() / NAME
        self._write, self._shared, self._durable = write, shared, durable
        self._files: list[tuple[str, int, int]] = []  # path, device and inode of what is written to
        self._home = "" if self._path is None else str(self._path.parent)
        self._around: tuple[int, int, int] | None = None  # of their folder, while nothing changes
        self._writes = 0
        self._blobs: dict[str, tuple[int, bytes]] = {}  # in memory
        self._folder_lock = self._database_lock = None
        self._turns: FolderLock | None = None  # where others write as well
        self._looked: FileIO | None = None  # the file, to see whether it can be read
        self._damaged = False
        self.counts, self.closed = schema.Counts(), False
        self.connection = sqlite3.connect(":memory:", **OPTIONS)

    def open(self) -> None:
        """To be called once, and `close` also where this fails."""
        if self._path is None:
            return
        if not self._write:
            self.connection = reader(self._path)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._folder_lock = FolderLock(self._path.parent, self._shared)
        self._turns = self._folder_lock if self._shared else None

    @contextmanager
    def opening(self) -> Iterator[None]:
        """A context within which nobody else opens or writes it."""
        if self._path is None or self._folder_lock is None:
            yield
            return
        if self._turns is not None:
            self._turns.begin()
        try:
            self._connect(self._path)
            yield
        finally:
            if self._turns is not None:
                self._turns.end()

    def _connect(self, path: Path) -> None:
        self.connection = db = sqlite3.connect(path, **OPTIONS)
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new one
        db.execute("PRAGMA secure_delete = ON")  # nothing is left of what is removed
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if self._durable:
            db.execute("PRAGMA synchronous = FULL")  # a commit is on disk when it returns
        else:
            db.execute("PRAGMA synchronous = NORMAL")  # or with the next one that is
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        if self._shared:
            db.execute(f"PRAGMA wal_autocheckpoint = {LATE}")  # mostly `tidy` does it before
        if mode == "wal":
            kind = DatabaseLock.shared if self._shared else DatabaseLock
            self._database_lock = kind(path, self)
        elif self._shared:
            raise OSError("it cannot be shared on this file system, which has no shared memory")

    def opened(self) -> None:
        """The schema is complete: from now on `check` misses files that are moved or replaced."""
        if self._path is not None and self._write:
            log = f"{self._path}-wal"
            files = [str(self._path), log] if os.path.exists(log) else [str(self._path)]
            stats = [(path, os.stat(path)) for path in files]
            self._files = [(path, stat.st_dev, stat.st_ino) for path, stat in stats]
            sync_folder(self._path.parent.parent)  # where the folder may be new

    def check(self, consequence: str) -> None:
        """Raise an error if the files are no longer those that were opened; cheap."""
        if not self._files:
            return
        # What changes whenever the folder is another, or something else comes to be in it: the time
        # of that, which unlike the one beside it nobody can set back.
        try:
            now = os.stat(self._home)
            around = now.st_dev, now.st_ino, now.st_ctime_ns
            if around == self._around:
                return
        except OSError:
            around = None
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
        old = around is not None and around[2] % 10**9 and time.time_ns() - around[2] > TICK
        self._around = around if old else None

    def empty(self) -> bool:
        return not self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def altered(self) -> str | None:
        """A table that is missing or not as the format says."""
        known = "SELECT name, sql FROM {} WHERE type = 'table'"
        found = dict(self.connection.execute(known.format("sqlite_master")))
        found |= dict(self.connection.execute(known.format("sqlite_temp_master")))
        found = {table: (sql or "").replace(schema.FOREIGN, "") for table, sql in found.items()}
        wrong = (table for table, sql in schema.SCHEMA.items() if found.get(table) != sql)
        return next(wrong, None)

    def identity(self) -> str:
        """By what to tell it from a copy; empty where there is nothing to be told."""
        return "" if self._path is None else identity(self._path)

    def same(self, recorded: str, found: str) -> bool:
        return same_file(recorded, found)

    def execute(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self.connection.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(query, rows)

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def begin(self, write: bool = True) -> None:
        """A transaction: nobody else writes meanwhile; or, to read, in which nothing changes."""
        if self.connection.in_transaction:  # of a call that was interrupted
            self.rollback()
        if not write:
            self.connection.execute("BEGIN")
            return
        if self._turns is not None:
            self._turns.begin()
        self.connection.execute("BEGIN IMMEDIATE")

    def standing(self, write: bool | None) -> Sequence[Any]:
        """What `schema.STANDING` gives, after beginning a transaction unless `write` is None."""
        if write is not None:
            self.begin(write)
        return self.connection.execute(schema.STANDING).fetchone()

    def commit(self) -> None:
        self.connection.execute("COMMIT")
        if self._turns is not None:
            self._turns.end()

    def rollback(self) -> None:
        """Also where there is no transaction."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        finally:
            if self._turns is not None:
                self._turns.end()

    def write(self, statements: Statements) -> None:
        """All of them or none."""
        self._writes += 1
        if self._writes == MANY:
            self._reserve()
        if len(statements) == 1 and len(statements[0][1]) == 1 and not self._shared:
            statement, rows = statements[0]
            self.connection.execute(statement, rows[0])  # one row is a transaction by itself
            return
        try:  # as `transaction`, but without its generator: a decision waits for this
            self.begin()
            for statement, rows in statements:
                if len(rows) == 1:
                    self.connection.execute(statement, rows[0])
                else:
                    self.connection.executemany(statement, rows)
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def _reserve(self) -> None:
        """Give the log the length it will have: a commit that changes it takes twice as long. What
        follows the last commit is nothing to SQLite, whether zeros or what was there before."""
        if self._path is None or self._shared:
            return
        with suppress(OSError), open(f"{self._path}-wal", "r+b") as log:
            log.write(bytes(max(0, LOG - log.seek(0, os.SEEK_END))))
            log.flush()
            os.fsync(log.fileno())

    def means_damage(self, error: Exception) -> bool:
        """Whether it is the contents that are wrong, not the call or the disk: SQLite calls a file
        malformed also when the disk failed to read it, so look again."""
        if isinstance(error, sqlite3.Error) and not hasattr(error, "sqlite_errorcode"):
            return True  # text that is none
        return type(error) is sqlite3.DatabaseError and self._is_damaged()

    def _is_damaged(self) -> bool:
        """Whether all of it can be read, and does not fit together; once known, it stays so."""
        if self._path is None or self._damaged:
            return True
        log = Path(f"{self._path}-wal")
        try:
            # Kept open: closing it would drop the locks that SQLite has on the same file.
            self._looked = self._looked or FileIO(self._path)
            self._looked.seek(0)
            while self._looked.read(2**20):
                pass
            if log.exists():
                log.read_bytes()
            with closing(reader(self._path)) as source:
                found = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except (OSError, sqlite3.OperationalError):
            return False
        except sqlite3.DatabaseError as error:
            found = str(error)
        self._damaged = found != "ok"
        return self._damaged

    def is_undone(self, error: Exception) -> bool:
        """Whether it is certain that nothing was written, after a commit failed: it failed before
        the page that makes the others count."""
        return getattr(error, "sqlite_errorname", "").startswith(BEFORE_THE_END)

    def now(self) -> str:
        """The time as SQL."""
        return repr(time.time())

    def store(self, name: str, content: bytes, durable: bool) -> None:
        if self.folder is None:
            self._blobs[name] = (self._blobs.get(name, (0, b""))[0] + 1, content)
        else:
            write_atomically(self.folder / name, lambda file: file.write(content), durable)

    def stored(self, name: str) -> bytes | None:
        if self.folder is None:
            return self._blobs.get(name, (0, None))[1]
        with suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()

    def version(self, name: str) -> Any:
        if self.folder is None:
            return self._blobs.get(name, (None,))[0]
        with suppress(FileNotFoundError):
            stat = os.stat(self.folder / name)
            return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def discard(self, name: str) -> None:
        self._blobs.pop(name, None)
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)

    def where(self, name: str) -> str:
        """What to call stored bytes in messages."""
        return name if self.folder is None else str(self.folder / name)

    def backup(self, path: Path) -> None:
        if self._path is None or not self._write:
            write_backup(self.connection.backup, path)
            return
        source = reader(self._path)  # of its own: decisions can go on meanwhile
        try:
            write_backup(source.backup, path)
        finally:
            source.close()

    def tidy(self) -> None:
        """Move what is in the log into the database, without keeping others from writing."""
        if self._path is not None:
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def compact(self) -> None:
        """Give back the room of rows that were removed, and leave nothing of what they said: the
        log holds pages as they were before, until all of it is moved."""
        if self._path is not None:
            # Not by `execute`, which frees a single page.
            self.connection.executescript("PRAGMA incremental_vacuum")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """May be called again, and then does what an interrupt kept it from."""
        files, self._files = self._files, []
        if files:
            with suppress(sqlite3.Error, OSError), transaction(self):
                schema.record_counts(self)
        lock = self._database_lock
        if lock is None:
            self.connection.close()
        else:
            lock.close(self, self.connection)
        if self._looked is not None:
            self._looked.close()
        if self._folder_lock is not None:
            self._folder_lock.release()


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """All or nothing: an error rolls back."""
    try:
        db.begin()
        yield
        db.commit()
    except BaseException:
        db.rollback()
        raise


def in_words(error: Exception) -> str:
    """What an error says that does not mean damage; see `means_damage`."""
    if type(error) is not sqlite3.DatabaseError:
        return str(error)
    return (
        "the disk failed to read it; nothing says that it is damaged: try again, and look at the "
        "disk if that does not help"
    )


def database(place: Place, write: bool, shared: bool, durable: bool = True) -> Database:
    if isinstance(place, str):
        from .postgres import Postgres  # which few need

        return Postgres(place, write, shared)
    if place is None and not shared:
        return faster("memory", "Memory")(Sqlite)(None)
    return Sqlite(place, write, shared, durable)


def as_place(given: Any) -> Path | str:
    """Where a ledger is: a folder, or the URL of a database. An empty path would be wherever the
    process happens to be."""
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"expected the path of a folder, got {given!r}")
    if not os.fspath(given):
        raise ValueError("expected the path of a folder, got an empty one")
    if isinstance(given, str) and given.startswith(URLS):
        return given
    if isinstance(given, str) and "://" in given:
        scheme = given.partition("://")[0]
        raise ValueError(f"expected a folder or a URL postgresql://...#name, got {scheme}://...")
    return Path(given)


def public(place: Any) -> str:
    """What to call a place, without what is secret in it: of a URL that is not as it should be,
    nothing, since a password may be anywhere in it."""
    if not isinstance(place, str) or not place.startswith(URLS):
        return str(place)
    host, slash, rest = place.partition("://")[2].partition("/")
    path, _, bandit = rest.partition("?")[0].partition("#")
    bandit = bandit or rest.partition("#")[2] or "default"
    host = host.rpartition("@")[2]
    if "@" in rest or not all(SHOWN.fullmatch(part) for part in (host, path, bandit)):
        return "postgresql://..."
    return f"postgresql://{host}{slash}{path}#{bandit}"


def exists(place: Path | str) -> bool:
    """Whether there is a ledger, or something in its place."""
    if isinstance(place, Path):
        return (place / NAME).exists()
    found = database(place, write=False, shared=False)
    try:
        found.open()
        return not found.empty()
    except found.errors as error:
        raise OSError(f"cannot look for a ledger in {found.name}: {error}") from error
    finally:
        found.close()
