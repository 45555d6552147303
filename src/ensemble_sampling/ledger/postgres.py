"""PostgreSQL as the database of a ledger: every bandit is a schema of its own."""

import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..extras import need
from . import schema
from .backup import write_backup
from .locks import Held
from .rows import read_pages
from .schema import INDEXES, INSERT, KEY, SCHEMA
from .sqlite import Statements, public, transaction

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
PORT = re.compile(r"[0-9,]*")
TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", "TEXT": "TEXT"}
BLOBS = ["name TEXT PRIMARY KEY", "version INTEGER NOT NULL", "content BLOB NOT NULL"]
TABLES = {table: [*columns, "checksum BLOB"] for table, columns in schema.COLUMNS.items()}
TABLES |= {"leases": schema.LEASES, "blobs": BLOBS}
NOW = "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
STORE = (
    f"INSERT INTO blobs SELECT ?, CAST({NOW} * 1000000 AS BIGINT), ?{{}} ON CONFLICT (name) DO "
    "UPDATE SET version = greatest(blobs.version + 1, excluded.version), content = excluded.content"
)
SOON = " FROM set_config('synchronous_commit', 'off', true)"  # on disk a little after its commit
IDENTITY = (
    "SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), (SELECT oid FROM "
    "pg_database WHERE datname = current_database()), (SELECT oid FROM pg_namespace WHERE "
    "nspname = ?))"
)
# Nobody waits for ever: not for a server that is away, not for another who writes, and not for one
# who went silent in the middle of a turn.
WAITING = {
    "connect_timeout": 2,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10000,
}
WRITER = "-c lock_timeout=5s -c statement_timeout=60s -c idle_in_transaction_session_timeout=10min"
VACUUM = "1h"  # at most
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
TURN = (
    "SELECT set_config('idle_in_transaction_session_timeout', '10s', true), "
    "pg_advisory_xact_lock({})"
)
TABLE = {statement: table for table, statement in INSERT.items()}
ROWS = 1000  # in one statement: PostgreSQL takes 65,535 values
Statement = tuple[str, Sequence[Any]]  # SQL and its values
LOST = ("08", "57", "58", "XX")  # kinds of errors after which the server may have gone on


def _driver() -> Any:
    return need("psycopg", "a ledger in PostgreSQL", ValueError)


def readable(url: str) -> str:
    """The URL, if it can be understood. What libpq itself says of others repeats them, and with
    them the password."""
    driver = _driver()
    try:
        found = driver.conninfo.conninfo_to_dict(url)
    except driver.Error:
        found = {"host": "@"}
    if "@" in str(found.get("host", "")) or not PORT.fullmatch(str(found.get("port", ""))):
        raise ValueError(
            "the URL of the database cannot be understood: expected "
            "postgresql://user:password@host:port/database, where whatever is special in a part is "
            "percent-encoded (@ as %40, / as %2F, # as %23, ? as %3F, % as %25)"
        ) from None
    return url


class Postgres:
    """A schema of a database, by `postgresql://...#name`; the name is `default` where it is not
    given.

    One connection, which the driver knows best. It is made anew when it was lost, and dropped when
    an interrupt may have left it in the middle of something; but not within a transaction, which
    ends with its connection: then everything fails until it is rolled back.
    """

    def __init__(self, url: str, write: bool = True, shared: bool = False):
        self._driver = _driver()
        self._url, _, bandit = url.partition("#")
        bandit = bandit or "default"
        if not NAME.fullmatch(bandit):  # which may be a part of the password, and is not shown
            raise ValueError(
                "what follows the # of the URL must be a bandit's name: letters, digits, - and _, "
                "beginning with a letter or digit; elsewhere write # as %23"
            )
        readable(self._url)
        self.schema, self._write, self._shared = f"bandit_{bandit}", write, shared
        self.name = public(f"{self._url}#{bandit}")
        self.errors: tuple[type[Exception], ...] = (self._driver.Error,)
        self.counts, self.closed = schema.Counts(), False
        self._connection: Any = None
        self._begun: str | None = None  # "read" or "write", from before BEGIN until after its end
        self._opening = False  # while it holds the lock of an opening, which the connection ends
        # Statements of this transaction that go with the next question, or with its end, since
        # every answer is waited for.
        self._unsent: list[Statement] = []

    def open(self) -> None:
        self._connect()
        if not self._write:
            self.begin(write=False)  # all answers fit together

    def _connect(self) -> None:
        given = self._driver.conninfo.conninfo_to_dict(self._url)
        options = f"{WRITER if self._write else ''} {given.pop('options', '')}".strip()
        settings = WAITING | {"application_name": f"ensemble-sampling {self.schema}"[:63]} | given
        settings["client_encoding"] = "utf8"
        connection = self._driver.connect(
            **settings, options=options, autocommit=True, cursor_factory=self._driver.RawCursor
        )
        try:
            numeric, adapters = self._driver.types.numeric, connection.adapters
            adapters.register_dumper(int, numeric.Int8BinaryDumper)
            adapters.register_dumper(float, numeric.FloatBinaryDumper)
            adapters.register_dumper(str, self._driver.types.string.StrBinaryDumper)
            adapters.register_loader("numeric", _float_loader(numeric))
            connection.execute(
                f"SET search_path TO \"{self.schema}\"; SELECT set_config('synchronous_commit', "
                "'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            )
            if self._write:
                self._take(connection)
        except BaseException:
            connection.close()
            raise
        self.counts.renewals += 1  # first: whoever uses it must know that it is another
        self.counts.lose()
        self._connection = connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _lost(self) -> bool:
        return self._connection is None or self._connection.closed

    def _take(self, connection: Any) -> None:
        """The bandit, alone or with others, until the connection ends."""
        kind = "_shared" if self._shared else ""
        ask = f"SELECT pg_try_advisory_lock{kind}({_number(self.schema, 'open')})"
        end = time.monotonic() + 1.0  # the server takes a moment to see that a process died
        while not connection.execute(ask).fetchone()[0]:
            if time.monotonic() > end:
                raise Held(self._taken(connection))
            time.sleep(0.02)

    def _taken(self, connection: Any) -> str:
        both = f"SELECT pg_try_advisory_lock_shared({_number(self.schema, 'open')})"
        if not self._shared and connection.execute(both).fetchone()[0]:
            return "it is being served: ask the service, or stop it first"
        return "another process has it open for writing; one process writes at a time"

    @contextmanager
    def opening(self) -> Iterator[None]:
        if not self._write:
            yield
            return
        key = _number(self.schema, "write")
        self._opening = True
        try:
            self.execute(f"SELECT pg_advisory_lock({key})")
            there = "SELECT 1 FROM pg_namespace WHERE nspname = ?"
            if self.execute(there, (self.schema,)).fetchone() is None:
                self.execute(f'CREATE SCHEMA "{self.schema}"')
            if not self._tables():
                with transaction(self):
                    self.execute(f"CREATE TABLE blobs ({', '.join(BLOBS)})")
                    self.execute("ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL")
            yield
            self.execute(f"SELECT pg_advisory_unlock({key})")
        finally:
            self._opening = False

    def opened(self) -> None:
        pass

    def check(self, consequence: str) -> None:
        pass

    def _tables(self) -> dict[str, list[tuple[str, str]]]:
        query = (
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = ? ORDER BY table_name, ordinal_position"
        )
        found: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in self.execute(query, (self.schema,)).fetchall():
            found.setdefault(table, []).append((column, kind.upper()))
        return found

    def empty(self) -> bool:
        return not self._tables().keys() - {"blobs"}

    def altered(self) -> str | None:
        found = self._tables()
        for table, columns in TABLES.items():
            words = [column.split() for column in columns]
            if found.get(table) != [(word[0], TYPES[word[1]]) for word in words]:
                return table
        return None

    def identity(self) -> str:
        if not self._write:
            return ""
        return self.execute(IDENTITY, (self.schema,)).fetchone()[0]

    def same(self, recorded: str, found: str) -> bool:
        return recorded == found

    @property
    def in_transaction(self) -> bool:
        return self._begun is not None

    def _usable(self) -> Any:
        """The connection; a new one where it is lost, or where an interrupt left it in a
        transaction that nobody knows of."""
        if self._begun or self._opening:
            if self._lost:
                raise self._driver.OperationalError(
                    "the connection was lost, and with it what was begun"
                    + ("" if self._write else ": open it again")
                )
            return self._connection
        idle = self._driver.pq.TransactionStatus.IDLE
        if self._lost or self._connection.info.transaction_status != idle:
            self._drop()
            self._connect()
        return self._connection

    def _run(self, statements: Sequence[Statement], begins: str | None = None) -> Any:
        """Statements in one round trip; the cursor of the last."""
        handled, connection = sys.exception(), self._usable()
        self._begun = self._begun or begins
        try:
            if len(statements) == 1:
                return connection.execute(*statements[0], binary=True)
            with connection.pipeline():
                cursors = [connection.execute(*one, binary=True) for one in statements]
            return cursors[-1]
        except BaseException as error:
            first = self._first(error, handled)
            if not isinstance(first, self._driver.Error) or connection.info.pipeline_status:
                self._drop()  # with answers on their way it is good for nothing
            raise first from None

    def _first(self, error: BaseException, handled: BaseException | None) -> BaseException:
        """What went wrong first: the driver tidies up after that, and may fail once more."""
        first, kinds = error, (self._driver.Error, KeyboardInterrupt, SystemExit)
        while (before := error.__context__) is not None and before is not handled:
            first, error = before if isinstance(before, kinds) else first, before
        return first

    def _again(self, statements: Sequence[Statement], begins: str | None = None) -> Any:
        """Once more by a new connection, where the old one is lost and nothing was begun by it."""
        fresh = self._begun is None
        try:
            return self._run(statements, begins)
        except self._driver.OperationalError:
            if not (fresh and self._lost):
                raise
        self._begun = None
        return self._run(statements, begins)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        unsent, self._unsent = self._unsent, []
        return self._again([*unsent, (translated(query), values)])

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        table, rows = TABLE[query], list(rows)
        for start in range(0, len(rows), ROWS):
            some = rows[start : start + ROWS]
            values = [value for row in some for value in row]
            self._unsent.append((_insertion(table, len(some)), values))

    def begin(self, write: bool = True) -> None:
        self._begin(write)

    def _begin(self, write: bool, *more: Statement) -> Any:
        self.rollback()
        turn = TURN.format(_number(self.schema, "write"))
        first: list[Statement] = [(WRITE, ()), (turn, ())] if write else [(READ, ())]
        return self._again([*first, *more], "write" if write else "read")

    def standing(self, write: bool | None) -> Sequence[Any]:
        """In one round trip: in READ COMMITTED a statement sees all that was there when it began,
        so that what is counted after the lock is all there is."""
        if write is None:
            return self.execute(schema.STANDING).fetchone()
        return self._begin(write, (schema.STANDING, ())).fetchone()

    def commit(self) -> None:
        unsent, self._unsent = self._unsent, []
        said = self._run([*unsent, ("COMMIT", ())]).statusmessage
        if said != "COMMIT":
            raise self._driver.errors.InFailedSqlTransaction("a part of it had failed")
        self._begun = None

    def rollback(self) -> None:
        """Also where there is none. What is lost is rolled back."""
        self._unsent = []
        try:
            if self._begun and not self._lost:
                self._end(self._connection)
        except BaseException as error:
            self._drop()
            if not isinstance(error, self._driver.Error):
                raise
        finally:
            self._begun = None

    def _end(self, connection: Any) -> None:
        """Of what was only read, by COMMIT: after a ROLLBACK the driver forgets all statements
        that it has prepared."""
        fine = self._driver.pq.TransactionStatus.INTRANS
        if self._begun == "read" and connection.info.transaction_status == fine:
            connection.execute("COMMIT")
        else:
            connection.rollback()

    def write(self, statements: Statements) -> None:
        with transaction(self):
            for statement, rows in statements:
                self.executemany(statement, rows)

    def means_damage(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in ("XX001", "XX002")

    def is_undone(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        return state is not None and not state.startswith(LOST)

    def now(self) -> str:
        return NOW

    def store(self, name: str, content: bytes, durable: bool) -> None:
        late = "" if durable or self._begun else SOON
        self.execute(STORE.format(late), (name, content))

    def stored(self, name: str) -> bytes | None:
        row = self.execute("SELECT content FROM blobs WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def version(self, name: str) -> Any:
        row = self.execute("SELECT version FROM blobs WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def discard(self, name: str) -> None:
        self.execute("DELETE FROM blobs WHERE name = ?", (name,))

    def where(self, name: str) -> str:
        return f"{name} in {self.name}"

    def backup(self, path: Path) -> None:
        """Into a folder, as SQLite."""
        source = Postgres(f"{self._url}#{self.schema.removeprefix('bandit_')}", write=False)
        try:
            source.open()
            write_backup(partial(_copy, source), path)
        finally:
            source.close()

    def tidy(self) -> None:
        """The server does it by itself."""

    def compact(self) -> None:
        """Rows that were removed or changed stay in the files until they are vacuumed, which may
        take longer than a statement otherwise may; what somebody else is at is left to them.

        Days are no partitions, which could be dropped at once: whoever drops one waits for all who
        read, and all who come later wait for that. Rows of one day also say what others refer to
        (`items`, `offers`). Removing them takes time in proportion to what goes, and is done in
        parts, see `Ledger.retain`.
        """
        tables = ", ".join(table for table in TABLES if table != "leases")
        self.execute(f"SET statement_timeout = '{VACUUM}'")
        try:
            self.execute(f"VACUUM (SKIP_LOCKED) {tables}")
        finally:
            with suppress(self._driver.Error):
                self.execute("RESET statement_timeout")

    def close(self) -> None:
        try:
            if self._write and not self._lost:
                with suppress(self._driver.Error, OSError), transaction(self):
                    schema.record_counts(self)
        finally:
            self._drop()


def _number(schema: str, what: str) -> int:
    """By which PostgreSQL knows a lock."""
    digest = blake2b(f"ensemble-sampling {what} {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@lru_cache(256)
def _insertion(table: str, rows: int) -> str:
    width = len(TABLES[table])
    marks = [f"${n}" for n in range(1, rows * width + 1)]
    each = [f"({', '.join(marks[n : n + width])})" for n in range(0, len(marks), width)]
    return f"INSERT INTO {table} VALUES {', '.join(each)}"


@cache
def translated(query: str) -> str:
    """A statement in PostgreSQL's words."""
    if query.startswith("CREATE TABLE"):
        for word, kind in TYPES.items():
            query = re.sub(rf"\b{word}\b", kind, query)
    first, *others = query.split("?")
    return first + "".join(f"${n}{part}" for n, part in enumerate(others, start=1))


@cache
def _float_loader(numeric: Any) -> Any:
    """Sums and means of integers are numbers like any others."""

    class Float(numeric.NumericBinaryLoader):
        def load(self, data: Any) -> float:
            return float(super().load(data))

    return Float


def _copy(source: Postgres, target: sqlite3.Connection) -> None:
    """Everything in the tables of a ledger, as SQLite's."""
    target.execute("BEGIN")
    for table, statement in SCHEMA.items():
        target.execute(statement)
        if table in KEY:
            query = f"SELECT * FROM {table} WHERE {KEY[table]} > ? ORDER BY {KEY[table]}"
            target.executemany(INSERT[table], read_pages(source, query, -1))
        elif table in INSERT:
            target.executemany(INSERT[table], source.execute(f"SELECT * FROM {table}"))
    for statement in INDEXES:
        target.execute(statement)
    target.execute("COMMIT")
