"""PostgreSQL as the database of a ledger: every bandit is a schema of its own."""

import re
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from . import format
from .copies import write_backup
from .databases import Statements, public, transaction
from .format import INSERT, KEY, SCHEMA, paged

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")
PORT = re.compile(r"[0-9,]*")
TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", "TEXT": "TEXT"}
BLOBS = ["name TEXT PRIMARY KEY", "version INTEGER NOT NULL", "content BLOB NOT NULL"]
TABLES = {table: [*columns, "checksum BLOB"] for table, columns in format.COLUMNS.items()}
TABLES |= {"leases": format.LEASES, "blobs": BLOBS}
NOW = "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
STORE = (
    f"INSERT INTO blobs VALUES (?, CAST({NOW} * 1000000 AS BIGINT), ?) ON CONFLICT (name) DO "
    "UPDATE SET version = greatest(blobs.version + 1, excluded.version), content = excluded.content"
)
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
READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
    "SET LOCAL idle_in_transaction_session_timeout = '10s'; SELECT pg_advisory_xact_lock({})"
)
STANDING = f"PREPARE standing AS {format.STANDING}"  # planned once, not in every turn
TABLE = {statement: table for table, statement in INSERT.items()}
# How the server is told a value without spelling it out: the number of its type, and bytes.
BINARY: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "INTEGER": (20, struct.Struct(">q").pack),
    "REAL": (701, struct.Struct(">d").pack),
    "TEXT": (25, str.encode),
    "BLOB": (17, bytes),
}
SIZES = (64, 16, 4, 1)  # rows in one statement: few kinds of them, which the server plans once
LOST = ("08", "57", "58", "XX")  # kinds of errors after which the server may have gone on


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ValueError(
            "a ledger in PostgreSQL needs psycopg: pip install 'ensemble-sampling[postgres]'"
        ) from error
    return psycopg


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
    given. One connection, made anew when it is lost."""

    def __init__(self, url: str, write: bool = True, shared: bool = False):
        self._driver = _driver()
        from psycopg import generators

        self._generators: Any = generators
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
        self.renewals = 0
        self._connection: Any = None
        self._begun = False
        # Rows of this transaction, by table: they go with the next question, or with its end,
        # since every answer is waited for.
        self._unsent: list[tuple[str, list[list[bytes | None]]]] = []
        self._prepared: set[bytes] = set()  # statements that the server knows

    def open(self) -> None:
        self._connect()
        if not self._write:
            self.begin(write=False)  # all answers fit together

    def _connect(self) -> None:
        given = self._driver.conninfo.conninfo_to_dict(self._url)
        options = f"{WRITER if self._write else ''} {given.pop('options', '')}".strip()
        settings = WAITING | {"application_name": f"ensemble-sampling {self.schema}"[:63]} | given
        settings["client_encoding"] = "utf8"
        connection = self._driver.connect(**settings, options=options, autocommit=True)
        try:
            numeric = self._driver.types.numeric
            connection.adapters.register_dumper(int, numeric.Int8BinaryDumper)
            connection.adapters.register_loader("numeric", _float_loader(numeric))
            connection.execute(
                f"SET search_path TO \"{self.schema}\"; SELECT set_config('synchronous_commit', "
                "'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            )
            if self._write:
                self._take(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._begun = connection, False
        self._unsent, self._prepared = [], set()

    def _take(self, connection: Any) -> None:
        """The bandit, alone or with others, until the connection ends."""
        kind = "_shared" if self._shared else ""
        ask = f"SELECT pg_try_advisory_lock{kind}({_number(self.schema, 'open')})"
        end = time.monotonic() + 1.0  # the server takes a moment to see that a process died
        while not connection.execute(ask).fetchone()[0]:
            if time.monotonic() > end:
                raise OSError(self._taken(connection))
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
        self.execute(f"SELECT pg_advisory_lock({key})")
        try:
            there = "SELECT 1 FROM pg_namespace WHERE nspname = ?"
            if self.execute(there, (self.schema,)).fetchone() is None:
                self.execute(f'CREATE SCHEMA "{self.schema}"')
            if not self._tables():
                with transaction(self):
                    self.execute(f"CREATE TABLE blobs ({', '.join(BLOBS)})")
                    self.execute("ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL")
            yield
        finally:
            with suppress(self._driver.Error):
                self.rollback()
                self._connection.execute(f"SELECT pg_advisory_unlock({key})")

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
        return self._begun

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        if self._unsent:
            self._send(commit=False)
        return self._again(partial(self._execute, translated(query), values))

    def _execute(self, query: str, values: Sequence[Any]) -> Any:
        return self._connection.cursor(binary=True).execute(query, values or None)

    def _again(self, call: Callable[[], Any]) -> Any:
        """Once more by a new connection, where the old one is lost and nothing began by it."""
        fresh = not self._begun
        if fresh and self._connection.closed:
            self._renew()
        try:
            return call()
        except self._driver.OperationalError:
            if not fresh or not self._connection.closed:
                raise
        self._renew()
        return call()

    def _renew(self) -> None:
        """Others may have written meanwhile."""
        if not self._write:
            raise OSError("the connection was lost: open it again")
        self._begun = False
        self._connect()
        self.renewals += 1

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if not self._begun or query not in TABLE:
            for row in rows:
                self.execute(query, row)
            return
        packs = _packs(TABLE[query])
        each = [
            [None if v is None else pack(v) for (_, pack), v in zip(packs, row, strict=True)]
            for row in rows
        ]
        self._unsent.append((TABLE[query], each))

    def _send(self, commit: bool) -> str:
        """What is unsent, and perhaps the end of the transaction, in one round trip; what the
        server said last."""
        unsent, self._unsent = self._unsent, []
        server, wait, generators = self._connection.pgconn, self._connection.wait, self._generators
        sent: list[bytes | None] = []  # one for every answer: the statement it prepares, if any
        server.enter_pipeline_mode()
        try:
            for table, rows in unsent:
                self._send_rows(server, table, rows, sent)
            if commit:
                server.send_query_params(b"COMMIT", None)
                sent.append(None)
            server.pipeline_sync()
            wait(generators.send(server))
            said = [wait(generators.fetch_many(server))[0] for _ in sent]
            wait(generators.fetch_many(server))  # that this was all
            server.exit_pipeline_mode()
        except BaseException:
            self._connection.close()  # with answers on their way it is good for nothing
            raise
        done = self._driver.pq.ExecStatus.COMMAND_OK
        for name, answer in zip(sent, said, strict=True):
            if answer.status != done:
                raise self._driver.errors.error_from_result(answer)
            if name is not None:
                self._prepared.add(name)
        return said[-1].command_status.decode()

    def _send_rows(
        self, server: Any, table: str, rows: list[list[bytes | None]], sent: list[bytes | None]
    ) -> None:
        start = 0
        while start < len(rows):
            size = next(size for size in SIZES if size <= len(rows) - start)
            values = [value for row in rows[start : start + size] for value in row]
            name, start = f"{table} {size}".encode(), start + size
            if name not in self._prepared and name not in sent:
                server.send_prepare(name, _insertion(table, size), _kinds(table) * size)
                sent.append(name)
            server.send_query_prepared(name, values, [1] * len(values))
            sent.append(None)

    def begin(self, write: bool = True) -> None:
        self._begin(self._beginning(write))

    def _beginning(self, write: bool) -> str:
        return WRITE.format(_number(self.schema, "write")) if write else READ

    def _begin(self, statements: str, prepare: str = "") -> Any:
        self.rollback()
        return self._again(partial(self._begin_now, statements, prepare))

    def _begin_now(self, statements: str, prepare: str) -> Any:
        """`prepare`: what the connection must have been told once."""
        self._begun = True
        try:
            if prepare and prepare.encode() not in self._prepared:
                self._connection.execute(prepare)
                self._prepared.add(prepare.encode())
            return self._connection.execute(statements)
        except self._driver.OperationalError:
            if self._connection.closed:
                self._begun = False
            raise

    def standing(self, write: bool | None) -> Sequence[Any]:
        """In one round trip: in READ COMMITTED a statement sees all that was there when it began,
        so that what is counted after the lock is all there is."""
        if write is None:
            return self.execute(format.STANDING).fetchone()
        found = self._begin(f"{self._beginning(write)}; EXECUTE standing", STANDING)
        while found.nextset():
            pass
        return found.fetchone()

    def commit(self) -> None:
        if self._unsent:
            said = self._send(commit=True)
        else:
            said = self._connection.execute("COMMIT").statusmessage
        self._begun = False
        if said != "COMMIT":
            raise self._driver.errors.InFailedSqlTransaction("a part of it had failed")

    def rollback(self) -> None:
        self._unsent = []
        if self._begun:
            self._begun = False
            with suppress(self._driver.Error):  # what is lost is rolled back
                self._connection.execute("ROLLBACK")

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
        if durable or self._begun:
            self.execute(STORE, (name, content))
            return
        self._begin("BEGIN; SET LOCAL synchronous_commit TO off")
        try:
            self.execute(STORE, (name, content))
            self.commit()
        except BaseException:
            self.rollback()
            raise

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

    def close(self) -> None:
        if self._connection is None or self._connection.closed:
            return
        if self._write:
            with suppress(self._driver.Error, OSError), transaction(self):
                format.record_counts(self)
        self._connection.close()


def _number(schema: str, what: str) -> int:
    """By which PostgreSQL knows a lock."""
    digest = blake2b(f"ensemble-sampling {what} {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@cache
def _packs(table: str) -> list[tuple[int, Callable[[Any], bytes]]]:
    """For every column, how its values are sent."""
    return [BINARY[column.split()[1]] for column in TABLES[table]]


@cache
def _kinds(table: str) -> list[int]:
    return [kind for kind, _ in _packs(table)]


@cache
def _insertion(table: str, rows: int) -> bytes:
    width = len(TABLES[table])
    marks = [f"${n}" for n in range(1, rows * width + 1)]
    each = [f"({', '.join(marks[n : n + width])})" for n in range(0, len(marks), width)]
    return f"INSERT INTO {table} VALUES {', '.join(each)}".encode()


@cache
def translated(query: str) -> str:
    """The same in PostgreSQL's words."""
    if query.startswith("CREATE TABLE"):
        for word, kind in TYPES.items():
            query = re.sub(rf"\b{word}\b", kind, query)
    return query.replace("%", "%%").replace("?", "%b") if "?" in query else query


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
            target.executemany(INSERT[table], paged(source, query, -1))
        elif table in INSERT:
            target.executemany(INSERT[table], source.execute(f"SELECT * FROM {table}"))
    target.execute("COMMIT")
