"""Brings a ledger of format 4, the one before, up to date: the only code that knows that format.

Format 4 kept no descriptions, but the numbers that they were hashed into. These are kept, and are
learned from as long as descriptions are hashed the same way.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from ..files import Damaged
from . import schema
from .offers import BATCH, NOTHING, pack_numbers
from .rows import read_pages, seal, unseal
from .sqlite import database, transaction

UNCHANGED = (
    *("ids", "outcomes", "imports", "revisions", "shadows", "opinions"),
    *("events", "activations"),
)


class Upgraded(NamedTuple):
    """How many decisions a ledger has that was brought up to date.

    hashed: of how many the words are gone, and only the numbers are left that they were hashed into
    learned: whether these are still learned from
    """

    decisions: int
    hashed: int = 0
    learned: bool = True

    def __str__(self) -> str:
        if not self.hashed:
            return f"{self.decisions} decisions"
        then = (
            "these are kept, shown as features and learned from as long as words are hashed the "
            "same way"
            if self.learned
            else "in a way that is no more: they stay in the log, and are not learned from"
        )
        return (
            f"{self.decisions} decisions; of {self.hashed} the words are gone, for format "
            f"{schema.BEFORE} kept only the numbers that they were hashed into: {then}"
        )


def upgrade(place: Any) -> Upgraded:
    """Bring the ledger in a folder or a PostgreSQL database up to date, all of it or nothing."""
    with closing(database(place, write=True, shared=False)) as db:
        db.open()
        with db.opening():
            found = 0 if db.empty() else schema.read_format(db)
            if not found:
                raise ValueError(f"there is no ledger in {db.name}")
            if found not in (schema.BEFORE, schema.FORMAT):
                raise ValueError(
                    f"it has format {found}, and this version upgrades format {schema.BEFORE}: "
                    + schema.way_from(found)
                )
            if found == schema.FORMAT:
                return Upgraded(schema.counts(db)["decisions"])
            with transaction(db):
                done = _rewrite(db)
            db.discard("state.safetensors")  # it is rebuilt from the ledger
            return done


def _rewrite(db: Any) -> Upgraded:
    """Within a transaction: new tables, filled from the old ones, which then go."""
    tables = (*UNCHANGED, "about", "agents", "decisions", "offers", "leases")
    for table in reversed(tables):  # those that refer to others first
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in schema.SCHEMA.values():
        db.execute(statement)
    about = {row[0]: row[1] for row in _old(db, "about", "name", None)}
    dtype = np.dtype(about["precision"])
    query = "SELECT length(features) FROM old_decisions ORDER BY number LIMIT 1"
    first = db.execute(query).fetchone()
    width = 0 if first is None else first[0] // dtype.itemsize
    agents = list(_old(db, "agents"))
    described = _description(db, agents[-1][3], width) if agents else None
    forgotten = described is not None and described.pop("unmixed", False)
    offers = _Offers(db, dtype, width)
    _insert(db, "items", offers.items)
    _insert(db, "decisions", _decisions(db, offers.spans, forgotten))
    _insert(db, "offers", offers.rows)
    last = [] if described is None else [(*agents[-1][:3], json.dumps(described))]
    _insert(db, "agents", [*agents[:-1], *last])
    for table in UNCHANGED:
        _insert(db, table, _old(db, table, schema.KEY[table], schema.FIRST.get(table, 0) - 1))
    now = schema.counts(db)
    for table, held in json.loads(about["counts"]).items():
        if table != "offers" and now[table] < held:
            raise Damaged(f"it has {now[table]} {table}, and had {held} when it was closed")
    kept = {**about, "format": str(schema.FORMAT)}
    _insert(db, "about", kept.items())
    schema.record_counts(db)
    for table in tables:  # those that refer to others first, here too
        db.execute(f"DROP TABLE old_{table}")
    for statement in schema.INDEXES:
        db.execute(statement)
    hashed = described is not None and described["hasher"] is not None
    return Upgraded(now["decisions"], now["decisions"] if hashed else 0, not forgotten)


def _old(db: Any, table: str, key: str = "number", after: int | None = -1) -> Iterator[Any]:
    """The rows of a table as they were, in order."""
    query = f"SELECT * FROM old_{table}"
    if after is None:
        rows = db.execute(query).fetchall()
    else:
        rows = read_pages(db, f"{query} WHERE {key} > ? ORDER BY {key}", after)
    for row in rows:
        yield unseal(table, row)


def _insert(db: Any, table: str, rows: Any) -> None:
    some: list[Any] = []
    for row in rows:
        some.append(seal(table, row))
        if len(some) == 1000:
            db.executemany(schema.INSERT[table], some)
            some = []
    if some:
        db.executemany(schema.INSERT[table], some)


def _description(db: Any, text: str, width: int) -> dict[str, Any]:
    """A configuration with the columns that rows are made of, and the hasher as it is called now.

    "unmixed": whether descriptions were hashed in a way that is no more.
    """
    said = json.loads(text)
    hasher = said["hasher"]
    if isinstance(hasher, dict) and hasher.get("type") == "ensemble_sampling.Hasher":
        mixed = hasher.pop("mixed", False)
        said["hasher"] = {**hasher, "numbers": hasher.get("numbers", 0)}
        said["hasher"]["names"] = hasher.get("names", False)
        said["unmixed"] = not mixed
    elif hasher is None and "columns" not in said:
        last = (
            "SELECT context FROM old_offers WHERE count IS NOT NULL ORDER BY decision DESC LIMIT 1"
        )
        row = db.execute(last).fetchone()
        around = 0 if row is None else row[0]
        decided = db.execute("SELECT 1 FROM old_decisions LIMIT 1").fetchone()
        if decided is not None:
            said["columns"] = [around, width - around]
    return said


def _decisions(db: Any, spans: list[tuple[int, Any]], forgotten: bool) -> Iterator[Any]:
    """Decisions, with what was available from a decision on until the next of the spans."""
    ahead, available = iter([*spans, (None, None)]), None
    start, following = next(ahead)
    for number, time, chosen, action, features, shares in _old(db, "decisions"):
        while start is not None and number >= start:
            available = following
            start, following = next(ahead)
        numbers = b"" if forgotten else features
        row = (number, time, chosen, action, None, None, None, numbers, shares, available)
        yield (*row, None, None, None)


class _Offers:
    """The offers of format 4, in which a row was kept with the first decision that had it.

    spans: (decision, what is available from it on).
    """

    def __init__(self, db: Any, dtype: np.dtype, width: int):
        self.items: list[Any] = []
        self.rows: list[Any] = []
        self.spans: list[tuple[int, Any]] = []
        self._batch: dict[int, int] = {}  # the row of `items`, by decision
        about: dict[int, tuple[Any, ...]] = {}
        last: tuple[Any, ...] = NOTHING
        for row in _old(db, "offers", "decision"):
            decision, _, same, context, count, names, places, content, available = row
            self.spans.append((decision, available))
            if same is None and count is None:
                now = NOTHING
            elif same is not None:
                now = about[same]
            else:
                packed = self._kept(decision, count, width - context, places, content, dtype)
                now = (context, count, names, packed)
                about[decision] = now
            if now != last:
                self.rows.append((decision, len(self.rows), *now))
            last = now

    def _kept(
        self, decision: int, count: int, width: int, places: Any, content: bytes, dtype: np.dtype
    ) -> bytes | None:
        """The numbers of the actions of an offer; None where all share the context."""
        if width == 0:
            return None
        where = np.array([(decision, k) for k in range(count)], np.uint32)
        if places is not None:
            where = np.frombuffer(places, np.uint32).reshape(-1, 2)
        own = where[where[:, 0] == decision, 1].astype(int)
        if len(own):
            rows = _unpacked(content, (int(own.max()) + 1, width), dtype)
            self._batch[decision] = len(self.items)
            self.items.append((len(self.items), len(rows), width, rows.tobytes(), None))
        return pack_numbers([self._batch[int(at)] * BATCH + int(k) for at, k in where])


def _unpacked(content: bytes, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """A table, of which only the numbers that are not 0 were kept where these were few."""
    if content[:1] == b"\0":
        return np.frombuffer(content, dtype, offset=1).reshape(shape)
    count = (len(content) - 1) // (4 + dtype.itemsize)
    table = np.zeros(shape, dtype)
    at = np.frombuffer(content, np.uint32, count, offset=1)
    table.ravel()[at] = np.frombuffer(content, dtype, count, offset=1 + 4 * count)
    return table
