"""What is removed from a ledger: decisions that grew old, and what was said of one subject.

Where decisions are gone, a state cannot be replayed from the beginning. So the state that knew them
becomes the base: it is kept with the tables, and replays begin at it.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import schema
from .offers import BATCH, NOTHING, unpack_numbers
from .rows import ERASED, PAGE, Base, read_pages, seal, unseal
from .sqlite import Database
from .transactions import Transactions

BY_DECISION = ("outcomes", "revisions", "opinions", "events", "activations", "metrics")
USED = "SELECT DISTINCT item FROM decisions WHERE item IS NOT NULL AND number >= ?"
NOT_ABOUT = " AND (subject IS NULL OR subject <> ?)"
OTHERS = f"""
SELECT 1 FROM decisions AS d WHERE number >= ? AND number < ?{NOT_ABOUT}
AND coalesce(subject, 'nobody') <> '{ERASED}' AND NOT EXISTS (
SELECT 1 FROM imports AS i WHERE d.number >= i.first AND d.number < i.first + i.count) LIMIT 1
"""


class Going(NamedTuple):
    """The decisions that go: those before a number, or those about a subject."""

    before: int = 0
    subject: str | None = None


class Unused(NamedTuple):
    """Items to which nothing refers but decisions that go. All of history is read to find them, so
    it is done before the turn, and what came since is looked at within.

    rows: of the table `items`, which were looked through.
    decisions, offer: how many decisions there were, and in which the last offer began.
    removed: what changes when anything is removed.
    """

    items: set[int]
    rows: set[int]
    decisions: int
    offer: int
    removed: Any


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

    def first_since(self, since: float) -> int:
        """The first decision made from that time on."""
        with self._transactions.reading() as db:
            query = "SELECT min(number) FROM decisions WHERE time >= ?"
            first = db.execute(query, (since,)).fetchone()[0]
            return self._transactions.counts()["decisions"] if first is None else first

    def remove_before(self, first: int, known: Unused) -> None:
        """Within a turn: remove decisions before the number `first`, and all that came of them."""
        db, base, held = self._database, self._transactions.base, self._transactions.counts()
        gone = "SELECT count(*) FROM outcomes WHERE decision < ?"
        outcomes = base.gone + db.execute(gone, (first,)).fetchone()[0]
        unused = self._still_unused(Going(first), known)
        for table in BY_DECISION:
            db.execute(f"DELETE FROM {table} WHERE decision < ?", (first,))
        db.execute("DELETE FROM decisions WHERE number < ?", (first,))
        holds, offers = self._holds(first), base.offers
        if holds is not None:
            db.execute("DELETE FROM offers WHERE decision < ?", (holds,))
            row = db.execute("SELECT * FROM offers WHERE decision = ?", (holds,)).fetchone()
            offers = row[1]
            if holds < self._end(first):
                self._replace("offers", (*row[:2], *NOTHING))
        self._remove_items(unused)
        about = {"decisions": first, "gone": outcomes, "offers": offers, "time": time.time()}
        self._set(base._replace(**about, counts={**base.counts, **held}))
        schema.record_counts(db, held)

    def _holds(self, number: int) -> int | None:
        """Where the offer began that holds in a decision."""
        query = "SELECT max(decision) FROM offers WHERE decision <= ?"
        return self._database.execute(query, (number,)).fetchone()[0]

    def _end(self, first: int) -> int:
        """Offers that began before it go with the decisions before `first`. The last one holds for
        the next decision, unless no decision is left."""
        none = first == self._transactions.counts()["decisions"]
        return first if none else self._holds(first) or 0

    def unused(self, going: Going) -> Unused:
        """The items that go with some decisions."""
        with self._transactions.reading() as db:
            decisions = self._transactions.counts()["decisions"]
            last = db.execute("SELECT max(decision) FROM offers").fetchone()[0]
            rows = self._rows_of(going)
            items = self._without_used(self._items_in(rows), going, 0, 0)
            return Unused(items, rows, decisions, last or 0, self._removed())

    def _still_unused(self, going: Going, known: Unused) -> set[int]:
        """The same within the turn that removes them, when others may have been written."""
        rows = self._rows_of(going)
        if self._removed() != known.removed or not rows <= known.rows:
            return self._without_used(self._items_in(rows), going, 0, 0)
        items = {item for item in known.items if item // BATCH in rows}
        return self._without_used(items, going, known.decisions, known.offer)

    def _removed(self) -> Any:
        held, base = self._transactions.counts(), self._transactions.base
        return held["erasures"], base.decisions

    def _rows_of(self, going: Going) -> set[int]:
        """The rows of the table `items` that decisions which go refer to, and their offers."""
        condition, value = ("subject = ?", going.subject)
        if going.subject is None:
            condition, value = ("number < ?", going.before)
        query = f"SELECT DISTINCT item FROM decisions WHERE item IS NOT NULL AND {condition}"
        found = {item // BATCH for (item,) in self._database.execute(query, (value,)).fetchall()}
        for _, items, count in self._offers_of(going):
            found |= {item // BATCH for item in unpack_numbers(items, count)}
        return found

    def _offers_of(self, going: Going) -> Iterator[Sequence[Any]]:
        """(decision, items, count) of the offers that were made in decisions which go alone."""
        db, end = self._database, -1
        query = "SELECT decision, items, count FROM offers WHERE items IS NOT NULL"
        if going.subject is None:
            end = self._end(going.before)
            for row in read_pages(db, f"{query} AND decision > ? ORDER BY decision", -1):
                if row[0] >= end:
                    return
                yield row
            return
        for number in self.find(going.subject):
            if number < end:
                continue  # of the same offer
            following = "SELECT min(decision) FROM offers WHERE decision > ?"
            end = db.execute(following, (number,)).fetchone()[0]
            end = self._transactions.counts()["decisions"] if end is None else end
            begin = self._holds(number)
            if begin is None:
                continue
            row = db.execute(f"{query} AND decision = ?", (begin,)).fetchone()
            if row is not None and not db.execute(OTHERS, (begin, end, going.subject)).fetchone():
                yield row

    def _items_in(self, rows: set[int]) -> set[int]:
        """The numbers of all items in some rows of their table."""
        found: set[int] = set()
        for row, count in self._some("SELECT number, count FROM items WHERE number", rows):
            found.update(range(row * BATCH, row * BATCH + count))
        return found

    def _without_used(self, items: set[int], going: Going, decision: int, offer: int) -> set[int]:
        """Those of the items that no decision refers to, from that number on, and no offer, from
        that made in a decision on, but what goes."""
        if not items:
            return items
        db, left, subject = self._database, set(items), going.subject
        query, values = USED, [max(decision, going.before)]
        if subject is not None:
            query, values = USED + NOT_ABOUT, [*values, subject]
        left.difference_update(item for (item,) in db.execute(query, values).fetchall())
        alone = set() if subject is None else {row[0] for row in self._offers_of(going)}
        begin = max(offer, 0 if subject is not None else self._end(going.before))
        query = "SELECT decision, items, count FROM offers WHERE items IS NOT NULL"
        for row in read_pages(db, f"{query} AND decision > ? ORDER BY decision", begin - 1):
            if not left:
                break
            if row[0] not in alone:
                left.difference_update(unpack_numbers(row[1], row[2]))
        return left

    def _some(self, query: str, numbers: Iterable[int]) -> Iterator[Sequence[Any]]:
        """The rows that a query gives for some numbers, a few at a time."""
        wanted = sorted(numbers)
        for start in range(0, len(wanted), PAGE):
            some = wanted[start : start + PAGE]
            marks = ", ".join("?" * len(some))
            yield from self._database.execute(f"{query} IN ({marks})", some).fetchall()

    def _remove_items(self, items: set[int]) -> None:
        """Remove rows of which nothing is needed, and of others what is not; the last one says how
        many there are."""
        db, own = self._database, dict[int, set[int]]()
        for item in items:
            own.setdefault(item // BATCH, set()).add(item % BATCH)
        last, gone = self._transactions.counts()["items"] - 1, list[int]()
        for stored in self._some("SELECT * FROM items WHERE number", own):
            number, count, width, content, said = unseal("items", stored)
            if len(own[number]) == count and number != last:
                gone.append(number)
            elif width is None:
                lines = said.split("\n")
                lines = ["\tnull" if n in own[number] else line for n, line in enumerate(lines)]
                self._replace("items", (number, count, None, None, "\n".join(lines)))
            else:
                size = len(content) // count
                parts = [content[n * size : (n + 1) * size] for n in range(count)]
                left = [bytes(size) if n in own[number] else one for n, one in enumerate(parts)]
                self._replace("items", (number, count, width, b"".join(left), None))
        for start in range(0, len(gone), PAGE):
            some = gone[start : start + PAGE]
            db.execute(f"DELETE FROM items WHERE number IN ({', '.join('?' * len(some))})", some)

    def find(self, subject: str) -> list[int]:
        """The decisions that are about a subject."""
        with self._transactions.reading() as db:
            query = "SELECT number FROM decisions WHERE subject = ? ORDER BY number"
            return [number for (number,) in db.execute(query, (subject,)).fetchall()]

    def erase(self, subject: str, kept: bool, known: Unused) -> None:
        """Within a turn: remove all that was said of the decisions about a subject, and what came
        of them.

        kept: whether the state goes on knowing it, which is then its base.
        """
        db, now, numbers = self._database, time.time(), self.find(subject)
        self._erase_offers(Going(subject=subject), known)
        nothing = b""
        for number in numbers:
            query = "SELECT * FROM decisions WHERE number = ?"
            _, at, chosen, *_ = unseal("decisions", db.execute(query, (number,)).fetchone())
            row = (number, at, chosen, None, ERASED, None, None, nothing, nothing, *[None] * 4)
            self._replace("decisions", row)
            self._erase_outcome(number)
            query = "SELECT number, time FROM metrics WHERE decision = ?"
            for metric, at in db.execute(query, (number,)).fetchall():
                self._replace("metrics", (metric, number, at, "", None))
        for event, decision in self._some(
            "SELECT number, decision FROM events WHERE decision", numbers
        ):
            self._replace("events", (event, f"erased {event}", "", decision, 0))
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

    def _erase_offers(self, going: Going, known: Unused) -> None:
        """Remove offers that were made in no other decision, and items to which no other refers."""
        unused = self._still_unused(going, known)
        for decision, _, _ in list(self._offers_of(going)):
            query = "SELECT * FROM offers WHERE decision = ?"
            row = unseal("offers", self._database.execute(query, (decision,)).fetchone())
            self._replace("offers", (*row[:2], *NOTHING))
        self._remove_items(unused)

    def _replace(self, table: str, row: tuple[Any, ...]) -> None:
        names = [column.split()[0] for column in schema.COLUMNS[table]]
        changes = ", ".join(f"{name} = ?" for name in (*names[1:], "checksum"))
        values = (*seal(table, row)[1:], row[0])
        self._database.execute(f"UPDATE {table} SET {changes} WHERE {names[0]} = ?", values)

    def _set(self, base: Base) -> None:
        row = ("base", json.dumps(base._asdict()))
        self._database.execute(schema.SET, seal("about", row))
        self._transactions.base = base
