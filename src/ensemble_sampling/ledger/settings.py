"""What changes beside the history of a ledger: settings, leases, and stored bytes."""

import json
from typing import Any

from . import schema
from .rows import seal, unseal
from .sqlite import Database
from .transactions import Transactions, explained


class Settings:
    """Values by name, and who does something for a while."""

    def __init__(self, database: Database, transactions: Transactions):
        self._database, self._transactions = database, transactions

    def get(self, name: str) -> Any:
        """What was `set` by this name, or None."""
        with self._transactions.reading() as db:
            query = "SELECT * FROM about WHERE name = ?"
            row = db.execute(query, (f"setting {name}",)).fetchone()
            return None if row is None else json.loads(unseal("about", row)[1])

    def set(self, name: str, value: Any) -> None:
        """Remember a value that JSON can tell, in the place of the one before."""
        row = (f"setting {name}", json.dumps(value))
        self._execute(schema.SET, seal("about", row))

    def keep_offers(self, which: str) -> None:
        """From now on, what is to be kept of an offer: all of it, or only what was chosen."""
        if which != self._transactions.keeps:
            self._execute(schema.SET, seal("about", ("offers", which)))
            self._transactions.keeps = which

    def lease(self, holder: str, seconds: float, name: str = "learner") -> bool:
        """Be the one who does something for so long, or for longer; False if another is. One that
        ends later than any could was made before the clock was put back, and holds no more."""
        now = self._database.now()
        query = (
            f"INSERT INTO leases VALUES (?, ?, {now} + ?) ON CONFLICT (name) DO UPDATE SET "
            "holder = excluded.holder, until = excluded.until "
            f"WHERE leases.holder = excluded.holder OR leases.until < {now} "
            f"OR leases.until > {now} + {2 * float(seconds)!r}"
        )
        return self._execute(query, (name, holder, float(seconds))).rowcount == 1

    def holder(self, name: str = "learner") -> str | None:
        """Who holds a lease now, if anyone."""
        query = f"SELECT holder FROM leases WHERE name = ? AND until >= {self._database.now()}"
        with self._transactions.reading() as db:
            row = db.execute(query, (name,)).fetchone()
            return None if row is None else row[0]

    def release(self, holder: str, name: str = "learner") -> None:
        """Let another hold a lease, where it was this one."""
        self._execute("DELETE FROM leases WHERE name = ? AND holder = ?", (name, holder))

    def _execute(self, query: str, values: Any) -> Any:
        with (
            self._transactions.writing() as db,
            explained(self._database, "cannot write to the ledger"),
        ):
            return db.execute(query, values)


class Blobs:
    """Bytes by name beside the tables, each whole or absent."""

    def __init__(self, database: Database):
        self._database = database

    def store(self, name: str, content: bytes, durable: bool = True) -> None:
        """Keep bytes in the place of those before. Where it need not be `durable`, they may be
        lost, or be others, after a power loss."""
        with explained(self._database, f"cannot store {name} beside the ledger"):
            self._database.store(name, content, durable)

    def read(self, name: str) -> bytes | None:
        """What was stored last by this name, if anything."""
        with explained(self._database, f"cannot read {name} beside the ledger"):
            return self._database.stored(name)

    def version(self, name: str) -> Any:
        """Something that changes when the bytes of this name do; None where there are none."""
        with explained(self._database, f"cannot read {name} beside the ledger"):
            return self._database.version(name)

    def discard(self, name: str) -> None:
        """Forget the bytes of this name, if there are any."""
        with explained(self._database, f"cannot remove {name} beside the ledger"):
            self._database.discard(name)
