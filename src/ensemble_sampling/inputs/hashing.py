"""Descriptions as rows of numbers, by hashing everything that they say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..config import describe
from .descriptions import as_text, terms_of
from .scale import FAR, Fields

SIGNS = np.array([1.0, -1.0])


@dataclass(frozen=True)
class Hasher:
    """Descriptions made of text, numbers, lists and dictionaries, hashed into `width` columns.

    An action in its context is described by everything said of it, everything said of the context
    and, with `interactions`, every pair of the two, so that a linear model can learn that what
    is right in one context is wrong in another. Text and truth values count as present or absent,
    numbers with their value, what is missing (None, NaN) as being so; a timestamp says its weekday,
    its hour and, as a number, its day; a row of numbers is told apart by position.

    numbers: how many of the columns, the last ones, are for numbers and their pairs alone, so that
        these do not spoil the units of the others. With 0 all share all columns.
    names: whether the name of an action, where it has one, is said of it as well, apart from any
        context.
    """

    width: int = 256
    interactions: bool = True
    numbers: int = 0
    names: bool = False

    def __post_init__(self) -> None:
        checks.size("width", self.width, below=2**31)
        checks.flag("interactions", self.interactions)
        checks.size("numbers", self.numbers, least=0, below=self.width)
        checks.flag("names", self.names)

    @classmethod
    def recorded(cls, description: Any) -> "Hasher | None":
        """The hasher of a ledger, as `describe` wrote it."""
        if description is None or not description["type"].endswith(".Hasher"):
            return None
        return cls(**{name: value for name, value in description.items() if name != "type"})

    @property
    def description(self) -> Any:
        return describe(self)

    def __call__(
        self, actions: Sequence[Any], context: Any = None, names: Sequence[Any] | None = None
    ) -> np.ndarray:
        """Features (K, width) of actions in a context; `names` are theirs, if they have any."""
        if isinstance(actions, str | bytes | Mapping) or not isinstance(actions, Sequence):
            raise TypeError(f"actions must be a list of descriptions, got {actions!r}")
        said = [as_text(action, "action") for action in actions]
        return self.table(said, None if context is None else as_text(context, "context"), names)

    def table(
        self,
        actions: Sequence[str],
        context: str | None,
        names: Sequence[Any] | None = None,
        fields: Fields | None = None,
    ) -> np.ndarray:
        """Features (K, width) of descriptions that are JSON.

        fields: the units in which numbers are counted; None: as they are.
        """
        around = [] if context is None else [_terms(context, "context", fields)]
        each = [_terms(action, "action", fields) for action in actions]
        other = np.concatenate([ALONE, *(around if self.interactions else [])], axis=1)[:, :, None]
        own = np.concatenate([NOTHING, *each], axis=1)
        columns, signs = self._columns(other[0], own[0], (other[2] + own[2]) > 0)
        lengths = np.array([terms.shape[1] for terms in each], int)
        rows = np.repeat(np.arange(0, len(each) * self.width, self.width), lengths)
        at, weights = rows + columns, other[1] * own[1] * signs
        table = np.bincount(at.ravel(), weights.ravel(), len(each) * self.width)
        table = table.astype(float, copy=False).reshape(len(each), self.width)  # of nothing: int
        if self.names and names is not None:
            at, signs = self._name_columns(tuple(names))
            table.reshape(-1)[at] += signs
        shared = np.concatenate([*around, _context()], axis=1)  # said of all actions alike
        columns, signs = self._columns(np.zeros(1), shared[0], shared[2] > 0)
        return table + np.bincount(columns, shared[1] * signs, self.width)

    @lru_cache(maxsize=64)  # noqa: B019
    def _name_columns(self, names: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where in a table, and by what sign, it is said what actions are called."""
        hashes = np.array([murmur3(f"name={name}") for name in names])
        columns, signs = self._columns(np.zeros(1), hashes, np.zeros(len(names), bool))
        return np.arange(0, len(names) * self.width, self.width) + columns, signs

    def _columns(
        self, one: np.ndarray, other: np.ndarray, numeric: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Column and sign of pairs of terms by a mixture of their hashes, in the zone of their
        kind; a term by itself is paired with nothing, whose hash is 0."""
        h = one.astype(np.uint32) * np.uint32(0x9E3779B1) + other.astype(np.uint32)
        # The rest is murmur3's own finish.
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
        h ^= h >> np.uint32(16)
        signs, h = SIGNS[h & np.uint32(1)], h >> np.uint32(1)
        words = self.width - self.numbers
        columns = h % np.uint32(words)
        if self.numbers:
            columns = np.where(numeric, words + h % np.uint32(self.numbers), columns)
        return columns, signs


class Hashed(NamedTuple):
    """The terms of a description: their names, and as columns (3, n) their hash, their value, and
    whether that is a number; `numbers` are the places of those that are."""

    names: tuple[str, ...]
    table: np.ndarray
    numbers: tuple[int, ...]


NOTHING = np.zeros((3, 0))
ALONE = np.array([[0.0], [1.0], [0.0]])


def _terms(text: str, where: str, fields: Fields | None) -> np.ndarray:
    """The columns of a description, with numbers in the units of their fields."""
    found = _hashed(text, where)
    if fields is None or not found.numbers:
        return found.table
    table = found.table.copy()
    for at in found.numbers:
        table[1, at] = _in_units(fields, found.names[at], table[1, at])
    return table


def _in_units(fields: Fields, name: str, value: float) -> float:
    """A number as a centred `Scale` would have it: one that has not varied yet counts as zero."""
    mean, size = fields.get(name, (0.0, 0.0))
    return max(-FAR, min(FAR, (value - mean) / size)) if size else 0.0


@lru_cache(maxsize=2**14)
def _hashed(text: str, where: str) -> Hashed:
    """Descriptions are said again and again, and looked up."""
    terms = terms_of(text, where)
    names, values, numeric = zip(*terms, strict=True) if terms else ((), (), ())
    hashes = [murmur3(name) for name in names]  # whole numbers below 2^32 are exact
    places = tuple(n for n, number in enumerate(numeric) if number)
    return Hashed(names, np.array([hashes, values, numeric], float).reshape(3, -1), places)


@lru_cache(maxsize=1)
def _context() -> np.ndarray:
    """That there is one."""
    return np.array([[murmur3("context")], [1.0], [0.0]])


@lru_cache(maxsize=2**16)
def murmur3(text: str) -> int:
    """MurmurHash3 of 32 bits of the text in UTF-8, by the public domain algorithm of A. Appleby."""
    data, h = text.encode(), 0
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        h ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        h = (_rotated(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= _scrambled(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)


def _scrambled(word: int) -> int:
    return (_rotated((word * 0xCC9E2D51) & 0xFFFFFFFF, 15) * 0x1B873593) & 0xFFFFFFFF


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & 0xFFFFFFFF
