"""What is removed from a ledger: decisions that grew old, and what was said of one subject.

Where decisions are gone, a state cannot be replayed from the beginning. So the state that knew them
becomes the base: it is kept with the tables, and replays begin at it.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from . import schema
from .offers import BATCH, NOTHING, unpack_numbers
from .rows import ERASED, PAGE, Base, read_pages, seal, unseal
from .sqlite import Database
from .transactions import Transactions

BY_DECISION = ("outcomes", "revisions", "opinions", "events", "activations", "metrics")


class Retention:
    """Removes rows, within turns of a ledger."""

    def __init__(self, database: Database, transactions: Transactions):
        self._database, self._transactions = database, transactions

    def base(self, name: str) -> bytes | None:
        """The state that replays begin at, by the name of its snapshot."""
        with self._transactions.reading() as db:
            row = db.execute("SELECT * FROM bases WHERE name = ?", (name,)).fetchone()
            return None if row is None else unseal("bases", row)[1]

    def rebase(self, states: Mapping[str, bytes]) -> None:
        """Within a turn: let replays begin at these states, which know every outcome there is."""
        db, base, held = self._database, self._transactions.base, self._transactions.counts()
        for name, content in states.items():
            db.execute(schema.SET_BASE, seal("bases", (name, content)))
        known = {"outcomes": held["outcomes"], "revisions": held["revisions"]}
        self._set(base._replace(**known))

    def remove_before(self, first: int) -> None:
        """Within a turn: remove decisions before the number `first`, and all that came of them."""
        db, base, held = self._database, self._transactions.base, self._transactions.counts()
        gone = "SELECT count(*) FROM outcomes WHERE decision < ?"
        outcomes = base.gone + db.execute(gone, (first,)).fetchone()[0]
        for table in BY_DECISION:
            db.execute(f"DELETE FROM {table} WHERE decision < ?", (first,))
        db.execute("DELETE FROM decisions WHERE number < ?", (first,))
        last = "SELECT max(decision) FROM offers WHERE decision <= ?"
        holds = db.execute(last, (first,)).fetchone()[0]
        offers = base.offers
        if holds is not None:
            db.execute("DELETE FROM offers WHERE decision < ?", (holds,))
            row = db.execute("SELECT number FROM offers WHERE decision = ?", (holds,)).fetchone()
            offers = row[0]
        used = self._used()
        db.execute("DELETE FROM items WHERE number < ?", (min(used, default=held["items"]),))
        left = (number for (number,) in db.execute("SELECT number FROM items").fetchall())
        unused = [number for number in left if number not in used]
        for start in range(0, len(unused), PAGE):
            some = unused[start : start + PAGE]
            db.execute(f"DELETE FROM items WHERE number IN ({', '.join('?' * len(some))})", some)
        about = {"decisions": first, "gone": outcomes, "offers": offers, "time": time.time()}
        self._set(base._replace(**about, counts={**base.counts, **held}))
        schema.record_counts(db, held)

    def _used(self) -> set[int]:
        """The rows of the table `items` that a decision or an offer still refers to."""
        db = self._database
        rows = db.execute("SELECT DISTINCT item FROM decisions WHERE item IS NOT NULL").fetchall()
        used = {number // BATCH for (number,) in rows}
        said = "SELECT decision, items, count FROM offers WHERE items IS NOT NULL"
        query = f"{said} AND decision > ? ORDER BY decision"
        for _, items, count in read_pages(db, query, -1):
            used |= {number // BATCH for number in unpack_numbers(items, count)}
        return used

    def find(self, subject: str) -> list[int]:
        """The decisions that are about a subject."""
        with self._transactions.reading() as db:
            query = "SELECT number FROM decisions WHERE subject = ? ORDER BY number"
            return [number for (number,) in db.execute(query, (subject,)).fetchall()]

    def erase(self, numbers: list[int], kept: bool) -> None:
        """Within a turn: remove all that was said of these decisions, and what came of them.

        kept: whether the state goes on knowing it, which is then its base.
        """
        db, now = self._database, time.time()
        nothing = b""
        for number in numbers:
            query = "SELECT * FROM decisions WHERE number = ?"
            _, at, chosen, *_ = unseal("decisions", db.execute(query, (number,)).fetchone())
            row = (number, at, chosen, None, ERASED, None, None, nothing, nothing, *[None] * 4)
            self._replace("decisions", row)
            self._erase_outcome(number)
            query = "SELECT number FROM events WHERE decision = ?"
            for (event,) in db.execute(query, (number,)).fetchall():
                self._replace("events", (event, f"erased {event}", "", number, 0))
            query = "SELECT number, time FROM metrics WHERE decision = ?"
            for metric, at in db.execute(query, (number,)).fetchall():
                self._replace("metrics", (metric, number, at, "", None))
        self._erase_offers(set(numbers))
        row = (self._transactions.counts()["erasures"], now, len(numbers), int(kept))
        db.executemany(schema.INSERT["erasures"], [seal("erasures", row)])

    def _erase_outcome(self, decision: int) -> None:
        db = self._database
        row = db.execute("SELECT * FROM outcomes WHERE decision = ?", (decision,)).fetchone()
        if row is not None:
            sequence, _, at, *_ = unseal("outcomes", row)
            self._replace("outcomes", (sequence, decision, at, "null", None, 0))
        query = "SELECT * FROM revisions WHERE decision = ?"
        for row in db.execute(query, (decision,)).fetchall():
            number, _, nth, at, *_ = unseal("revisions", row)
            self._replace("revisions", (number, decision, nth, at, None, None, "null", None))

    def _erase_offers(self, erased: set[int]) -> None:
        """Remove offers that were made in these decisions alone, and items in no other offer."""
        db = self._database
        rows = [
            unseal("offers", row) for row in db.execute("SELECT * FROM offers ORDER BY decision")
        ]
        ends = [row[0] for row in rows[1:]] + [self._transactions.counts()["decisions"]]
        alone = [
            row
            for row, end in zip(rows, ends, strict=True)
            if row[5] is not None and all(number in erased for number in range(row[0], end))
        ]
        if not alone:
            return
        gone = {number for row in alone for number in unpack_numbers(row[5], row[3])}
        for row in rows:
            if row not in alone and row[5] is not None:
                gone -= set(unpack_numbers(row[5], row[3]))
        used = db.execute("SELECT DISTINCT item FROM decisions WHERE item IS NOT NULL").fetchall()
        gone -= {number for (number,) in used}
        for row in alone:
            self._replace("offers", (*row[:2], *NOTHING))
        for batch in {number // BATCH for number in gone}:
            query = "SELECT * FROM items WHERE number = ?"
            number, count, width, content, said = unseal(
                "items", db.execute(query, (batch,)).fetchone()
            )
            own = {n % BATCH for n in gone if n // BATCH == batch}
            if width is None:
                lines = ["\tnull" if n in own else line for n, line in enumerate(said.split("\n"))]
                self._replace("items", (number, count, None, None, "\n".join(lines)))
            else:
                size = len(content) // count
                parts = [content[n * size : (n + 1) * size] for n in range(count)]
                rows_left = [bytes(size) if n in own else part for n, part in enumerate(parts)]
                self._replace("items", (number, count, width, b"".join(rows_left), None))

    def _replace(self, table: str, row: tuple[Any, ...]) -> None:
        names = [column.split()[0] for column in schema.COLUMNS[table]]
        changes = ", ".join(f"{name} = ?" for name in (*names[1:], "checksum"))
        values = (*seal(table, row)[1:], row[0])
        self._database.execute(f"UPDATE {table} SET {changes} WHERE {names[0]} = ?", values)

    def _set(self, base: Base) -> None:
        row = ("base", json.dumps(base._asdict()))
        self._database.execute(schema.SET, seal("about", row))
        self._transactions.base = base
