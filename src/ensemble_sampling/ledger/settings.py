"""What is kept beside decisions and outcomes, and changes: settings, leases, and stored bytes."""

import json
from typing import Any

from . import schema
from .schema import opened, sealed
from .transactions import Book


class Kept(Book):
    """The part of a `Ledger` whose rows are not a history."""

    def setting(self, name: str) -> Any:
        """What was `set` by this name, or None."""
        with self._reading():
            query = "SELECT * FROM about WHERE name = ?"
            row = self._db.execute(query, (f"setting {name}",)).fetchone()
            return None if row is None else json.loads(opened("about", row)[1])

    def set(self, name: str, value: Any) -> None:
        """Remember a value that JSON can tell, in the place of the one before."""
        self._set(f"setting {name}", json.dumps(value))

    def _set(self, name: str, value: str) -> None:
        with self._writing(), self._explained("cannot write to the ledger"):
            self._db.execute(schema.SET, sealed("about", (name, value)))

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
        with self._writing(), self._explained("cannot write to the ledger"):
            return self._db.execute(query, (name, holder, float(seconds))).rowcount == 1

    def holder(self, name: str = "learner") -> str | None:
        """Who it is now, if anyone."""
        query = f"SELECT holder FROM leases WHERE name = ? AND until >= {self._database.now()}"
        with self._reading():
            row = self._db.execute(query, (name,)).fetchone()
            return None if row is None else row[0]

    def release(self, holder: str, name: str = "learner") -> None:
        """Let another be it, where it was this one."""
        query = "DELETE FROM leases WHERE name = ? AND holder = ?"
        with self._writing(), self._explained("cannot write to the ledger"):
            self._db.execute(query, (name, holder))

    def tidy(self) -> None:
        """Do, outside of a turn, what would otherwise be done while somebody waits."""
        with self._explained("cannot write to the ledger"):
            self._database.tidy()

    def store(self, name: str, content: bytes, durable: bool = True) -> None:
        """Keep bytes beside the ledger, whole or not at all, in the place of those before. Where
        it need not be `durable`, they may be lost, or be others, after a power loss."""
        with self._explained(f"cannot store {name} beside the ledger"):
            self._database.store(name, content, durable)

    def stored(self, name: str) -> bytes | None:
        """What was stored last by this name, if anything."""
        with self._explained(f"cannot read {name} beside the ledger"):
            return self._database.stored(name)

    def stored_version(self, name: str) -> Any:
        """Something that changes when the bytes of this name do; None where there are none."""
        with self._explained(f"cannot read {name} beside the ledger"):
            return self._database.version(name)

    def discard(self, name: str) -> None:
        """Forget the bytes of this name, if there are any."""
        with self._explained(f"cannot remove {name} beside the ledger"):
            self._database.discard(name)

    def where(self, name: str) -> str:
        """What to call the bytes of this name in messages."""
        return self._database.where(name)
