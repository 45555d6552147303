"""What was on offer, as a ledger keeps it: an action that is said again is kept once.

Every row of numbers and every description that is new becomes an item, and gets a number. The new
items of a decision are one row of the table `items`. A row of the table `offers` lists the items on
offer, and is needed only where that list changes. Contexts seldom repeat: each is kept with its
decision, where it takes less room than the probabilities beside it.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..files import Damaged
from ..inputs.offer import Offer, everything
from .rows import PAGE, DecisionRow, read_pages, seal, unseal

KNOWN = 2**15  # items that are looked through for a repetition
CACHE = 2**25  # bytes of items that are remembered
BATCH = 2**20  # item n of row r of the table has the number r * BATCH + n
NOTHING = (None,) * 4  # an offer of which nothing is kept


class Change(NamedTuple):
    """What a decision adds to the tables `items` and `offers`, and says itself."""

    items: tuple[Any, ...] | None
    offer: tuple[Any, ...] | None
    item: int | None  # that of the chosen action, where that is described
    available: bytes | None  # a bit for every action; None: all may be chosen


class Writer:
    """Makes rows of what is on offer, remembering what was kept lately."""

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype
        self.clear()

    def clear(self) -> None:
        self.items, self.offers = 0, 0  # how many rows the tables have
        self._known: dict[Any, int] = {}  # items by what they say
        self._last: tuple[Any, ...] = NOTHING  # the offer that holds now
        self._names: tuple[Any, str] = (None, "")

    def see(self, items: Iterable[Sequence[Any]], offers: Sequence[Sequence[Any]]) -> None:
        """Rows that others wrote, oldest first: the items that are new, the last of the offers."""
        for row in items:
            found, first = _contents(row, self._dtype), row[0] * BATCH
            keys = _keys_of_rows(found) if isinstance(found, np.ndarray) else found
            self._known |= zip(keys, range(first, first + row[1]), strict=True)
            self.items = row[0] + 1
        for row in offers:
            self.offers, self._last = row[1] + 1, tuple(row[2:])
        self._forget()

    def change(self, row: DecisionRow, whole: bool) -> Change:
        """What to keep of a decision; `whole`: all that was on offer, or only what was chosen."""
        offer = row.offer
        if offer is None or not whole:
            said = [] if row.description is None else [_key(row.action, row.description)]
            numbers, added = self._numbered(said, None)
            item = numbers[0] if numbers else None
            changed = None if row.foreign else self._offer(row.number, NOTHING)
            return Change(added, changed, item, None)
        actions, free = offer.actions, offer.available
        numbers, added, item = None, None, None
        if isinstance(actions, np.ndarray):
            table = actions.astype(self._dtype, copy=False)
            numbers, added = self._numbered(_keys_of_rows(table), table.shape[1])
        elif actions is not None:
            called = [None] * len(actions) if offer.names is None else offer.names
            numbers, added = self._numbered(list(map(_key, called, actions)), None)
            item = numbers[row.chosen]
        names = None
        if item is None and offer.names is not None:
            names = self._names_as_json(offer.names)
        width = len(offer.context) if isinstance(offer.context, np.ndarray) else 0
        packed = None if numbers is None else pack_numbers(numbers)
        changed = self._offer(row.number, (width, len(free), names, packed))
        available = np.packbits(free).tobytes() if 0 in free.tobytes() else None
        return Change(added, changed, item, available)

    def _offer(self, decision: int, about: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if about == self._last:
            return None
        self._last, self.offers = about, self.offers + 1
        return seal("offers", (decision, self.offers - 1, *about))

    def _numbered(self, keys: Any, width: int | None) -> tuple[list[int], tuple[Any, ...] | None]:
        """The numbers of items, and the row to keep of those that are new."""
        known, first = self._known, self.items * BATCH
        if not keys:
            return [], None
        numbers = [known.get(key) for key in keys]
        if None not in numbers:
            return numbers, None  # pyright: ignore[reportReturnType]
        new = list(dict.fromkeys(key for key, n in zip(keys, numbers, strict=True) if n is None))
        known |= zip(new, range(first, first + len(new)), strict=True)
        self.items += 1
        numbers = [known[key] for key in keys]
        self._forget()
        if width is None:
            lines = "\n".join(f"{name}\t{text}" for name, text in new)
            return numbers, seal("items", (self.items - 1, len(new), None, None, lines))
        row = (self.items - 1, len(new), width, b"".join(new), None)
        return numbers, seal("items", row)

    def _forget(self) -> None:
        """Few of long rows, whose bytes are remembered."""
        if self._known:
            size = len(next(reversed(self._known)))
            forget_oldest(self._known, min(KNOWN, max(1, CACHE // max(64, size))))

    def _names_as_json(self, names: Sequence[Any]) -> str:
        """Names as JSON; those of the offer before are remembered."""
        if names is not self._names[0]:
            self._names = names, json.dumps(list(names))
        return self._names[1]


def _keys_of_rows(table: np.ndarray) -> list[bytes]:
    """The bytes of each row; as one array of them it takes a fifth of the time."""
    width = table.shape[1] * table.itemsize
    rows = np.ascontiguousarray(table)
    return rows.view(f"V{width}").ravel().tolist() if width else [b""] * len(table)


def _key(name: Any, text: str) -> tuple[str, str]:
    """What tells a description from others."""
    return "" if name is None else _as_json(name), text


_as_json = lru_cache(2**14, typed=True)(json.dumps)


def _contents(row: Sequence[Any], dtype: np.dtype) -> Any:
    """The items of a row: a table of numbers, or pairs of name and description."""
    _, count, width, rows, said = row
    if width is None:
        return [tuple(line.split("\t", 1)) for line in said.split("\n")]
    return np.frombuffer(rows, dtype).reshape(count, width)


def pack_numbers(numbers: list[int]) -> bytes:
    """Numbers that follow one another by the first of them, others by their differences."""
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return b"\0" + numbers[0].to_bytes(8, "little")
    return b"\1" + zlib.compress(np.diff(np.array(numbers, "<i8"), prepend=0).tobytes(), 1)


def unpack_numbers(content: bytes, count: int) -> list[int]:
    if content[:1] == b"\0":
        first = int.from_bytes(content[1:], "little")
        return list(range(first, first + count))
    return np.cumsum(np.frombuffer(zlib.decompress(content[1:]), "<i8")).tolist()


class Reader:
    """Gives back what was on offer, and what was said of chosen actions."""

    def __init__(self, db: Any, dtype: np.dtype):
        self._db, self._dtype = db, dtype
        self._cache: dict[int, Any] = {}  # by row of the table items
        self._last: tuple[Any, ...] = (None,)  # a row of the table offers, and what it says

    def between(
        self, first: int, last: int, count: int, least: int
    ) -> Iterator[tuple[int, int, Sequence[Any]]]:
        """(from, to, row) for the decisions first, ..., last - 1; there are `count` rows in all,
        without those before the number `least`."""
        start = "SELECT max(decision) FROM offers WHERE decision <= ?"
        after = self._db.execute(start, (first,)).fetchone()[0]
        after = first - 1 if after is None else after - 1
        before, begun = None, 0
        query = "SELECT * FROM offers WHERE decision > ? ORDER BY decision"
        for stored in read_pages(self._db, query, after):
            row = unseal("offers", stored)
            if before is None and (row[0] > first or first == 0) and row[1] != least:
                raise Damaged(f"row {row[1] - 1} of the table offers is missing")
            if before is not None and row[1] != before[1] + 1:
                raise Damaged(f"row {before[1] + 1} of the table offers is missing")
            if row[0] >= last:
                break
            if before is not None:
                yield begun, row[0], before
            before, begun = row, row[0]
        else:
            if (least if before is None else before[1] + 1) != count:
                raise Damaged("rows of the table offers are missing at its end")
        if before is not None:
            yield begun, last, before

    def offer(self, row: Sequence[Any], decided: DecisionRow) -> Offer | None:
        """What a row of the table `offers` says of a decision."""
        if row is not self._last[0]:
            self._last = (row, *self._said(row))
        _, actions, names = self._last
        width, count = row[2:4]
        if count is None:
            return None
        free = everything(count)
        if decided.available is not None:
            bits = np.frombuffer(decided.available, np.uint8)
            free = np.unpackbits(bits, count=count).astype(bool)
        context = decided.features[:width] if width else decided.context
        return Offer(actions, context, names, free)

    def _said(self, row: Sequence[Any]) -> tuple[Any, Any]:
        """Actions and names of a row of the table `offers`."""
        _, _, _, count, names, items = row
        actions, names = None, None if names is None else json.loads(names)
        if items is not None:
            found = self._items(unpack_numbers(items, count))
            if isinstance(found[0], tuple):
                called = [name for name, _ in found]
                names = None if called[0] == "" else [json.loads(name) for name in called]
                actions = [text for _, text in found]
            else:
                actions = np.stack(found)
        return actions, names

    def descriptions(self, numbers: Iterable[int | None]) -> dict[int | None, str | None]:
        """What was said of some actions."""
        wanted = list(dict.fromkeys(n for n in numbers if n is not None))
        found = zip(wanted, self._items(wanted), strict=True)
        return {None: None} | {number: text for number, (_, text) in found}

    def _items(self, numbers: list[int]) -> list[Any]:
        """Rows of numbers, or (name, description)."""
        lacking = {n // BATCH for n in numbers} - self._cache.keys()
        for start in range(0, len(lacking), PAGE):
            some = list(islice(lacking, start, start + PAGE))
            query = f"SELECT * FROM items WHERE number IN ({', '.join('?' * len(some))})"
            for stored in self._db.execute(query, some).fetchall():
                row = unseal("items", stored)
                self._cache[row[0]] = _contents(row, self._dtype)
        try:
            found = [self._cache[n // BATCH][n % BATCH] for n in numbers]
        except (KeyError, IndexError) as error:
            raise Damaged("rows of the table items are missing") from error
        forget_oldest(self._cache, max(len(numbers), CACHE // 2**12))
        return found


def forget_oldest(cache: dict[Any, Any], most: int) -> None:
    """Forget the oldest, many at once since that is quicker."""
    if len(cache) > most:
        for key in list(islice(cache, len(cache) - most + most // 4)):
            del cache[key]
