"""API keys: made, listed and revoked in a service's storage.

A key is 256 random bits. Its SHA-256 is stored, never the key. Slow hashes protect passwords, which
can be guessed; nobody can try 2^256 keys, however fast the hash.
"""

import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..storage import Storage

SCOPES = ("decide", "learn", "read", "admin")
PREFIX = "es_"
FILE = "service.sqlite"
TABLE = (
    "{keys} (id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, scopes TEXT NOT NULL, bandit TEXT, "
    "note TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, "
    "revoked DOUBLE PRECISION)"
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored.

    bandit: the only one it is for, or None. The scope `admin` includes all others.
    """

    id: str
    hash: str
    scopes: frozenset[str]
    bandit: str | None
    note: str
    created: float
    expires: float | None = None
    revoked: float | None = None

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def state(self, now: float) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "valid"


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The keys of a service, in the file `service.sqlite` of its folder or in PostgreSQL."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._connection: Any = None  # to PostgreSQL

    def create(
        self,
        scopes: Iterable[str],
        bandit: str | None = None,
        note: str = "",
        days: float | None = None,
    ) -> tuple[str, Key]:
        """A new key, to be shown once, and as it is stored."""
        given = tuple(dict.fromkeys(scopes))
        wrong = [scope for scope in given if scope not in SCOPES]
        if wrong or not given:
            got = ", ".join(map(repr, wrong)) or "none"
            raise ValueError(f"scopes are {', '.join(SCOPES)}; got {got}")
        if days is not None and not 0 < days < 1e6:
            raise ValueError(f"a key expires after more than 0 days, got {days}")
        if bandit is not None:
            self._storage.ledger(bandit)  # raises ValueError for a wrong name
        secret, now = PREFIX + secrets.token_urlsafe(32), time.time()
        expires = None if days is None else now + 86400 * days
        key = Key(
            secrets.token_hex(4), hashed(secret), frozenset(given), bandit, note, now, expires
        )
        row = (key.id, key.hash, " ".join(given), bandit, note, now, expires, None)
        self._run("INSERT INTO {keys} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row, make=True)
        return secret, key

    def all(self) -> list[Key]:
        """All that were ever made, oldest first."""
        columns = "id, hash, scopes, bandit, note, created, expires, revoked"
        rows = self._run(f"SELECT {columns} FROM {{keys}} ORDER BY created, id")
        return [Key(row[0], row[1], frozenset(row[2].split()), *row[3:]) for row in rows]

    def revoke(self, id: str) -> bool:
        """False if it was revoked already."""
        known = {key.id: key for key in self.all()}
        if id not in known:
            raise ValueError(f"there is no key {id!r}; `keys list` shows those there are")
        if known[id].revoked is not None:
            return False
        self._run("UPDATE {keys} SET revoked = ? WHERE id = ?", (time.time(), id))
        return True

    def _run(self, query: str, values: Sequence[Any] = (), make: bool = False) -> list[Any]:
        """The rows of a query; none where there is no table and it is not to be made."""
        if self._storage.folder is None:
            return self._postgres(query, values, make)
        path = self._storage.folder / FILE
        if not path.exists():
            if not make:
                return []
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # for nobody else to read
        try:
            with closing(sqlite3.connect(path, timeout=5.0, isolation_level=None)) as database:
                database.execute(f"CREATE TABLE IF NOT EXISTS {TABLE.format(keys='keys')}")
                return database.execute(query.format(keys="keys"), values).fetchall()
        except sqlite3.Error as error:
            raise OSError(f"cannot use the keys in {path}: {error}") from error

    def _postgres(self, query: str, values: Sequence[Any], make: bool) -> list[Any]:
        import psycopg

        create, query = (
            text.format(keys="ensemble_sampling.keys").replace("?", "%s") for text in (TABLE, query)
        )
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._storage.connect()
            if make:
                self._connection.execute("CREATE SCHEMA IF NOT EXISTS ensemble_sampling")
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {create}")
            found = self._connection.execute(query, values)
            return found.fetchall() if found.description else []
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []  # there is no key yet
        except psycopg.Error as error:
            self.close()
            raise OSError(f"the database of the keys does not answer: {error}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def table(keys: Sequence[Key]) -> str:
    """Keys as text for people, without the secrets."""
    if not keys:
        return "no keys"
    now = time.time()
    rows = [("id", "state", "scopes", "bandit", "created", "expires", "note")]
    for key in keys:
        until = "never" if key.expires is None else _day(key.expires)
        scopes = ",".join(scope for scope in SCOPES if scope in key.scopes)
        about = (key.bandit or "all", _day(key.created), until, key.note)
        rows.append((key.id, key.state(now), scopes, *about))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
