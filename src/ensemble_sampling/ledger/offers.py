"""What was on offer, as a ledger keeps it: an offer, or a row of one, that repeats is kept once."""

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np

from ..files import Damaged
from ..inputs.hashing import TEXT
from .rows import StoredOffer, read_pages, unseal

OFFERS, ROWS = 2**12, 2**15  # how many of the last are looked through for a repetition
SMALLEST = 16  # bytes: a shorter row is kept again rather than looked for
CACHE = 2**25  # bytes of tables that a reader remembers
NEXT = 2**32  # a row's place is one number: its decision, and so many times which of its rows
PLACE = np.dtype("<u8")


class Writer:
    """Turns offers into rows of the table `offers`, remembering what was kept lately.

    A row says what is on offer from one decision on. It is needed only where that changes, refers
    to an earlier decision where that had the same on offer, and row by row where it had some of it.
    """

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype
        self.clear()

    def clear(self) -> None:
        self.last, self.count = -1, 0  # the decision of the last row; how many there are
        self._offers: dict[Any, int] = {}  # by `_offer_key`, or a digest of short rows
        self._rows: dict[bytes, int] = {}
        self._now: tuple[int | None, bytes | None] = (None, None)  # whose offer, what of it
        self._names: tuple[Any, str | None] = (None, None)

    def see(self, rows: Iterable[Sequence[Any]], width: int | None) -> None:
        """Rows of the table that others wrote, oldest first, or the last of them."""
        for row in rows:
            decision, number, same, context, count, names, places, content, available = row
            self.last, self.count, source = decision, number + 1, same
            if same is None and count is not None:
                source = decision
                own = _own_rows(places, decision, count)
                table = unpacked(content, own, width, context, self._dtype)
                here, size = table.tobytes(), table.shape[1] * table.itemsize
                if size >= SMALLEST:
                    whole = _offer_key(decision, places, count, names, context)
                    self._rows |= zip(_parts(here, size), _places(decision, own), strict=True)
                else:
                    whole = _digest(f"{count} {names}", context, here)
                self._offers[whole] = decision
            self._now = (source, available)
        _forget_oldest(self._offers, OFFERS)
        self._forget_oldest_rows()

    def row(self, decision: int, offered: StoredOffer | None) -> tuple[Any, ...] | None:
        """The row to be kept for a decision; None where the last one says it all."""
        if offered is None:
            source, about = None, (None,) * 5
            available = None
        else:
            free = offered.available
            available = np.packbits(free).tobytes() if 0 in free.tobytes() else None
            source, about = self._source(decision, offered)
        if (source, available) == self._now:
            return None
        if source is None and self._now[0] is None:
            return None
        self._now = (source, available)
        self.last, self.count = decision, self.count + 1
        same = None if source == decision else source
        return (decision, self.count - 1, same, *about, available)

    def _source(self, decision: int, offered: StoredOffer) -> tuple[int, tuple[Any, ...]]:
        """The decision that has this on offer first, and what to keep if it is this one."""
        context, count = offered.context, len(offered.available)
        if len(offered.table) != count:
            context = offered.table.shape[1]  # the chosen one's row is everybody's
        names, table = self._names[1], offered.table
        if offered.names is not self._names[0]:
            names = self._names_as_json(offered.names)
        if context:
            table = table[:, context:]
        if table.dtype != self._dtype:
            table = table.astype(self._dtype)
        places, content, size = None, table.tobytes(), table.shape[1] * table.itemsize
        if size < SMALLEST:
            whole = _digest(f"{count} {names}", context, content)
        else:
            places, content = self._find_rows(decision, content, size)
            whole = _offer_key(decision, places, count, names, context)
        known = self._offers.get(whole)
        if known is not None:
            return known, (None,) * 5
        self._offers[whole] = decision
        _forget_oldest(self._offers, OFFERS)
        self._forget_oldest_rows()
        return decision, (context, count, names, places, packed(content, table.itemsize))

    def _find_rows(self, decision: int, content: bytes, size: int) -> tuple[bytes | None, bytes]:
        """(where every row is, unless all are here; the rows that are), for rows of a size."""
        keys, rows = _parts(content, size), self._rows
        own = _places(decision, len(keys))
        places = list(map(rows.setdefault, keys, own))
        if places == list(own):
            return None, content  # the common case, several times faster
        new = [key for key, found, place in zip(keys, places, own, strict=True) if found == place]
        rows.update(zip(new, own, strict=False))
        return np.array([rows[key] for key in keys], PLACE).tobytes(), b"".join(new)

    def _forget_oldest_rows(self) -> None:
        """Few of long ones, whose bytes are kept."""
        if self._rows:
            _forget_oldest(self._rows, min(ROWS, max(1, CACHE // len(next(reversed(self._rows))))))

    def _names_as_json(self, names: Sequence[Any] | None) -> str | None:
        """Names as JSON; those of the offer before are remembered."""
        if names is None:
            return None
        same = names == self._names[0] and TEXT.issuperset(map(type, names))  # 1 == 1.0 == True
        if not same:
            self._names = names, json.dumps(list(names))
        return self._names[1]


class Reader:
    """Gives back what was on offer, decision by decision."""

    def __init__(self, db: Any, width: int, dtype: np.dtype):
        self._db, self._width, self._dtype = db, width, dtype
        self._parts: dict[int, tuple[Any, ...]] = {}  # what was read of earlier decisions
        self._tables: dict[int, np.ndarray] = {}

    def between(
        self, first: int, last: int, count: int
    ) -> Iterator[tuple[int, int, Sequence[Any]]]:
        """(from, to, row) for the decisions first, ..., last - 1; there are `count` rows in all."""
        start = "SELECT max(decision) FROM offers WHERE decision <= ?"
        after = self._db.execute(start, (first,)).fetchone()[0]
        after = first - 1 if after is None else after - 1
        before, begun = None, 0
        query = "SELECT * FROM offers WHERE decision > ? ORDER BY decision"
        for stored in read_pages(self._db, query, after):
            row = unseal("offers", stored)
            if before is None and (row[0] > first or first == 0) and row[1] != 0:
                raise Damaged(f"row {row[1] - 1} of the table offers is missing")
            if before is not None and row[1] != before[1] + 1:
                raise Damaged(f"row {before[1] + 1} of the table offers is missing")
            if row[0] >= last:
                break
            if before is not None:
                yield begun, row[0], before
            before, begun = row, row[0]
        else:
            if (0 if before is None else before[1] + 1) != count:
                raise Damaged("rows of the table offers are missing at its end")
        if before is not None:
            yield begun, last, before

    def offered(self, row: Sequence[Any], features: np.ndarray) -> StoredOffer | None:
        """What a row says of a decision whose chosen action has these features."""
        decision, _, same, _, _, _, _, _, available = row
        if same is None and row[4] is None:
            return None
        source = decision if same is None else same
        part = self._part(source, row if same is None else None)
        context, count, names = part[3], part[4], part[5]
        own = self._whole(source, part)
        table = features[None]
        if context < len(features):
            around = np.broadcast_to(features[:context], (count, context))
            table = np.concatenate([around, own], axis=1) if context else own
        free = np.ones(count, bool)
        if available is not None:
            free = np.unpackbits(np.frombuffer(available, np.uint8), count=count).astype(bool)
        return StoredOffer(names, table, context, free)

    def _part(self, decision: int, row: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The row of an earlier decision, its names and own rows read."""
        if decision not in self._parts:
            if row is None:
                found = self._db.execute("SELECT * FROM offers WHERE decision = ?", (decision,))
                stored = found.fetchone()
                if stored is None:
                    raise Damaged(f"the offer of decision {decision} is missing")
                row = unseal("offers", stored)
            names = None if row[5] is None else json.loads(row[5])
            shape = (_own_rows(row[6], decision, row[4]), self._width, row[3], self._dtype)
            own = unpacked(row[7], *shape)
            _forget_oldest(self._parts, _tables_in_cache(own))
            self._parts[decision] = (*row[:5], names, row[6], own)
        return self._parts[decision]

    def _whole(self, decision: int, part: tuple[Any, ...]) -> np.ndarray:
        """All rows of an offer, without the context."""
        if part[6] is None:
            return part[7]
        if decision not in self._tables:
            places = np.frombuffer(part[6], np.uint32).reshape(-1, 2).tolist()
            rows = [(part if at == decision else self._part(at))[7][k] for at, k in places]
            table = np.stack(rows)
            _forget_oldest(self._tables, _tables_in_cache(table))
            self._tables[decision] = table
        return self._tables[decision]


def _parts(content: bytes, size: int) -> list[bytes]:
    """The bytes of every row of a table."""
    return [content[start : start + size] for start in range(0, len(content), size)]


def _offer_key(
    decision: int, places: bytes | None, count: int, names: str | None, context: int
) -> Any:
    """What tells an offer from others by where its rows are: if with one decision, by that one,
    which needs no digest."""
    if places is not None:
        decision = int.from_bytes(places[:4], "little")
        if places != _place_bytes(decision, count):
            return _digest(f"{count} {names}", context, places)
    return decision, count, names, context


def _places(decision: int, count: int) -> range:
    """Those of rows that are all with one decision."""
    return range(decision, decision + NEXT * count, NEXT)


def _place_bytes(decision: int, count: int) -> bytes:
    return np.arange(decision, decision + NEXT * count, NEXT, dtype=PLACE).tobytes()


def _digest(words: str | None, context: int, content: bytes) -> bytes:
    return blake2b(f"{context} {words} ".encode() + content, digest_size=16).digest()


def _own_rows(places: bytes | None, decision: int, count: int) -> int:
    """How many rows of an offer are kept with it."""
    if places is None:
        return count
    where = np.frombuffer(places, np.uint32).reshape(-1, 2)
    return int((where[where[:, 0] == decision, 1].astype(int) + 1).max(initial=0))


def _forget_oldest(cache: dict[Any, Any], most: int) -> None:
    """Forget the oldest, many at once since that is quicker."""
    if len(cache) > most:
        for key in list(islice(cache, len(cache) - most + most // 4)):
            del cache[key]


def _tables_in_cache(table: np.ndarray) -> int:
    """How many tables of such a size may be remembered."""
    return max(4, min(OFFERS, CACHE // max(1, table.nbytes)))


def packed(content: bytes, itemsize: int) -> bytes:
    """The numbers of a table: all of them, or where most are 0 the others with their places."""
    room, each = 0.8 * len(content), 4 + itemsize
    # A number that is not 0 has a byte that is not; bits, since the sign of a zero counts.
    if (len(content) - content.count(0)) / itemsize * each < room:
        bits = np.frombuffer(content, f"u{itemsize}")
        if np.count_nonzero(bits) * each < room:
            at = np.flatnonzero(bits)
            return b"\1" + at.astype(np.uint32).tobytes() + bits[at].tobytes()
    return b"\0" + content


def unpacked(
    content: bytes, rows: int, width: int | None, context: int, dtype: np.dtype
) -> np.ndarray:
    """The table (rows, width - context) that was packed."""
    shape = (rows, (width or 0) - context)
    if content[:1] == b"\0":
        return np.frombuffer(content, dtype, offset=1).reshape(shape)
    count = (len(content) - 1) // (4 + dtype.itemsize)
    table = np.zeros(shape, dtype)
    at = np.frombuffer(content, np.uint32, count, offset=1)
    table.ravel()[at] = np.frombuffer(content, dtype, count, offset=1 + 4 * count)
    return table
