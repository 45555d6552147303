"""What describes actions, as one array of numbers: rows of numbers and hashed descriptions."""

import marshal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import checks
from ..config import describe

LARGEST = checks.LARGEST_DATUM
BEGINNING = date(2020, 1, 1).toordinal()  # days are counted from here, in years
TEXT = {str}
FLAT = {str, int, float, bool, type(None)}  # by exact type: of others marshal keeps bare bytes
SIGNS = np.array([1.0, -1.0])
SINGLE, DOUBLE = FLOATS = np.dtype(np.float32), np.dtype(np.float64)


def precision() -> np.dtype:
    """That of JAX's arrays, `jnp.result_type(float)`, without its cost in every call."""
    return DOUBLE if jax.config.jax_enable_x64 else SINGLE  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class Hasher:
    """Descriptions made of text, numbers, lists and dictionaries, hashed into `width` columns.

    An action in its context is described by everything said of it, everything said of the context
    and, with `interactions`, every pair of the two, so that a linear model can learn that what
    is right in one context is wrong in another. Text and truth values count as present or absent,
    numbers with their value, what is missing (None, NaN) as being so; a timestamp says its weekday,
    its hour and, as a number, its day. Needs scikit-learn, and hashes as its `FeatureHasher` does.

    numbers: how many of the columns, the last ones, are for numbers and their pairs alone, so that
        these do not spoil the units of the others; rows of numbers are then told apart by position.
        With 0 all share all columns.
    names: whether the name of an action, where it has one, is said of it as well, apart from any
        context.
    mixed: whether the column of a pair is a mixture of its two terms' hashes, and not the hash of
        both as one text: no less arbitrary, and several times as fast.
    """

    width: int = 256
    interactions: bool = True
    numbers: int = 0
    names: bool = False
    mixed: bool = False

    def __post_init__(self) -> None:
        checks.size("width", self.width, below=2**31)
        checks.flag("interactions", self.interactions)
        checks.size("numbers", self.numbers, least=0, below=self.width)
        checks.flag("names", self.names)
        checks.flag("mixed", self.mixed)

    @classmethod
    def recorded(cls, description: Any) -> "Hasher | None":
        """That of a folder, as `recordable` wrote it."""
        if description is None:
            return None
        return cls(**{name: value for name, value in description.items() if name != "type"})

    def __call__(
        self, actions: Sequence[Any], context: Any = None, names: Sequence[Any] | None = None
    ) -> np.ndarray:
        """Features (K, width) of actions in a context; `names` are theirs, if they have any."""
        if isinstance(actions, str | bytes | Mapping) or not isinstance(actions, Sequence):
            raise TypeError(f"actions must be a list of descriptions, got {actions!r}")
        around = self._terms_of(context, "context")
        each = [self._terms_of(action, "action") for action in actions]
        # Terms of the actions by themselves, then paired with each of the context's.
        blocks = [ALONE, around] if self.interactions else [ALONE]
        other = np.concatenate([terms.array for terms in blocks], axis=1)[:, :, None]
        own = np.concatenate([NOTHING, *(terms.array for terms in each)], axis=1)
        if self.mixed:
            columns, signs = self._columns(other[0], own[0], (other[2] + own[2]) > 0)
        else:
            columns, signs = self._columns_by_text(blocks, each)
        lengths = np.array([len(terms.names) for terms in each], int)
        rows = np.repeat(np.arange(0, len(each) * self.width, self.width), lengths)
        at, weights = rows + columns, other[1] * own[1] * signs
        table = np.bincount(at.ravel(), weights.ravel(), len(each) * self.width)
        table = table.astype(float, copy=False).reshape(len(each), self.width)  # of nothing: int
        if self.names and names is not None:
            at, signs = self._name_columns(tuple(names))
            table.reshape(-1)[at] += signs
        self._add_context(table, around)
        return table

    def _add_context(self, table: np.ndarray, around: "Terms") -> None:
        """What is said of all actions alike."""
        if self.mixed:
            said = np.concatenate([around.array, _context()], axis=1)
            columns, signs = self._columns(np.zeros(1), said[0], said[2] > 0)
            table += np.bincount(columns, said[1] * signs, self.width)
            return
        for name, value, numeric in [("context", 1.0, False), *zip(*around[:3], strict=True)]:
            column, sign = _place(name, numeric, (self.width, self.numbers))
            table[:, column] += sign * value

    @lru_cache(maxsize=64)  # noqa: B019
    def _name_columns(self, names: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Where in a table, and by what sign, it is said what actions are called."""
        words = [f"name={name}" for name in names]
        if self.mixed:
            hashes = np.array([_hash(word) for word in words])
            columns, signs = self._columns(np.zeros(1), hashes, np.zeros(len(words), bool))
        else:
            places = [_place(word, False, (self.width, self.numbers)) for word in words]
            columns, signs = np.array(places).reshape(-1, 2).T
            columns = columns.astype(int)
        return np.arange(0, len(names) * self.width, self.width) + columns, signs

    def _columns_by_text(
        self, blocks: list["Terms"], each: list["Terms"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `_columns`, by the hash of both terms of a pair as one text."""
        columns: list[int] = []
        signs: list[float] = []
        pairs = [pair for terms in blocks for pair in zip(terms.names, terms.numeric, strict=True)]
        for name, numeric in pairs:
            for terms in each:
                about = (terms.names, terms.numeric, (self.width, self.numbers))
                places = _places(name, numeric, *about)
                columns += places[0]
                signs += places[1]
        shape = (len(pairs), len(columns) // len(pairs))
        return np.array(columns, int).reshape(shape), np.array(signs).reshape(shape)

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

    def _terms_of(self, described: Any, where: str) -> "Terms":
        """The terms of a description; many are described again and again, and looked up."""
        named = type(described) is dict and TEXT.issuperset(map(type, described))
        if named and FLAT.issuperset(map(type, described.values())):
            return _cached_terms(where, marshal.dumps(described, 2))
        if isinstance(described, np.ndarray) and described.ndim == 0:
            described = described[()]
        if self.numbers and isinstance(described, list | tuple | np.ndarray):
            plain = [*described]
            if all(isinstance(value, Real) and not isinstance(value, bool) for value in plain):
                described = {f"{i}": value for i, value in enumerate(plain)}
        return _sorted_terms(described, where)


def recordable(hasher: Any) -> Any:
    """A hasher's description, without what it need not say: folders from before it could say it
    are described as they were."""
    said = describe(hasher)
    if isinstance(hasher, Hasher):
        later = {f.name: f.default for f in fields(Hasher) if f.name in LATER}
        return {name: v for name, v in said.items() if name not in later or v != later[name]}
    return said


class Terms(NamedTuple):
    """What a description says, by name: how much of it, and whether that is a number."""

    names: tuple[str, ...]
    values: tuple[float, ...]
    numeric: tuple[bool, ...]
    array: np.ndarray  # the same as three rows of numbers, with hashes for names


NOTHING = np.zeros((3, 0))
ALONE = Terms(("",), (1.0,), (False,), np.array([[0.0], [1.0], [0.0]]))
LATER = ("numbers", "names", "mixed")  # what a hasher could not always say


@lru_cache(maxsize=2**14)
def _cached_terms(where: str, described: bytes) -> Terms:
    """By bytes that tell 1, 1.0 and True apart."""
    return _sorted_terms(marshal.loads(described), where)


def _sorted_terms(described: Any, where: str) -> Terms:
    """In the order of their names, so that sums do not depend, in rounding, on that of columns."""
    try:
        found = sorted(_terms(described, where))
    except RecursionError as error:
        raise ValueError(f"{where} contains itself, or is nested too deeply") from error
    names, values, numeric = zip(*found, strict=True) if found else ((), (), ())
    hashes = [_hash(name) for name in names]  # whole numbers below 2^32 are exact
    return Terms(names, values, numeric, np.array([hashes, values, numeric], float))


@lru_cache(maxsize=1)
def _context() -> np.ndarray:
    """That there is one."""
    return np.array([[_hash("context")], [1.0], [0.0]])


@lru_cache(maxsize=2**16)
def _places(
    around: str,
    around_numeric: bool,
    names: tuple[str, ...],
    numeric: tuple[bool, ...],
    zones: tuple[int, int],
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Columns and signs of an action's terms, alone or paired with a term of the context."""
    prefix = f"{around}*" if around else ""
    kinds = zip(names, numeric, strict=True)
    found = [_place(f"{prefix}{name}", kind or around_numeric, zones) for name, kind in kinds]
    return tuple(column for column, _ in found), tuple(sign for _, sign in found)


@lru_cache(maxsize=2**14)
def _place(term: str, numeric: bool, zones: tuple[int, int]) -> tuple[int, float]:
    """(column, sign) of a term, those of scikit-learn's `FeatureHasher`, in its zone of columns."""
    width, numbers = zones
    first, size = (width - numbers, numbers) if numeric and numbers else (0, width - numbers)
    hashed = _murmur3(term)
    return first + abs(hashed) % size, 1.0 if hashed >= 0 else -1.0


@lru_cache(maxsize=2**14)
def _hash(term: str) -> int:
    return _murmur3(term, positive=True)


def _murmur3(term: str, positive: bool = False) -> int:
    if not checks.encodable(term):
        raise ValueError(f"a description must be text that UTF-8 can encode, got {term!r}")
    return _murmur()(term, seed=0, positive=positive)


@lru_cache(maxsize=1)
def _murmur() -> Any:
    try:
        from sklearn.utils import murmurhash3_32
    except ImportError as error:
        raise ImportError(
            "describing actions by dictionaries needs scikit-learn: "
            "pip install 'ensemble-sampling[sklearn]'"
        ) from error
    return murmurhash3_32


def missing(value: Any) -> bool:
    """Whether it stands for a value that is not there: None, NaN, or pandas' NaT and NA."""
    if value is None or value is getattr(sys.modules.get("pandas"), "NA", None):
        return True
    kinds = float | np.floating | datetime | np.datetime64 | np.timedelta64
    return isinstance(value, kinds) and bool(value != value)


def _terms(described: Any, where: str) -> Iterator[tuple[str, float, bool]]:
    """(name, value, whether that is a number) for everything a description says."""
    described = _native(described)
    if missing(described):
        if where not in ("action", "context"):  # of which nothing is said at all
            yield f"{where}=missing", 1.0, False
    elif isinstance(described, Mapping):
        for name, value in described.items():
            yield from _terms(value, f"{where}.{name}")
    elif isinstance(described, list | tuple | set | frozenset):
        for item in described:
            yield from _terms(item, where)
    elif isinstance(described, str | bool):
        yield f"{where}={described}", 1.0, False
    elif isinstance(described, int | float | Decimal):
        if not abs(described) < LARGEST:
            said = checks.shown(described)
            raise ValueError(f"{where} must be finite and below {LARGEST:g}, got {said}")
        yield where, float(described), True
    elif isinstance(described, date):
        yield from _moment(described, where)
    elif isinstance(described, timedelta):
        yield where, described.total_seconds() / 86400, True
    else:
        raise TypeError(
            f"{where} must be text, a number, a timestamp, a list or a dictionary, "
            f"got {described!r}"
        )


def _native(value: Any) -> Any:
    """A scalar of NumPy as Python has it; its nanoseconds would become mere integers."""
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"
        return value.astype(kind).item()
    return value.item()


def _moment(when: date, where: str) -> Iterator[tuple[str, float, bool]]:
    """A timestamp, or a day, as its own clock has it."""
    yield f"{where}.weekday={when.weekday()}", 1.0, False
    passed = float(when.toordinal() - BEGINNING)
    if isinstance(when, datetime):
        yield f"{where}.hour={when.hour}", 1.0, False
        passed += (when.hour + when.minute / 60) / 24
    yield f"{where}.day", passed / 365.25, True


def unmasked(what: str, given: Any) -> Any:
    """What is given, unless some of it is masked: only its owner knows what to put there."""
    rows = (given, *given) if isinstance(given, list | tuple) else (given,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ValueError(f"{what} must not be masked: fill it first, as in values.filled(0.0)")
    return given


def numbers(
    what: str,
    given: Any,
    names: Sequence[Any] | None = None,
    gaps: bool = False,
    columns: Sequence[str] | None = None,
) -> np.ndarray:
    """A table (K, d) of finite numbers in JAX's precision; some are missing (NaN) where `gaps`."""
    if type(given) is np.ndarray and given.dtype in FLOATS:
        with np.errstate(over="ignore"):  # too large a number is reported below
            table = given.astype(precision(), copy=False)
    else:
        table = _converted(what, given, gaps)
    if table.ndim != 2:
        raise ValueError(f"{what} must have shape (K, d), one row per action, got {table.shape}")
    if len(table) == 0:
        raise ValueError(f"{what} must describe at least one action, got none")
    if not np.vdot(table, table) < LARGEST**2 / 2:  # quickly done; only then look at each
        for row, column in np.argwhere(~(np.abs(table) < LARGEST)):  # NaN compares false
            if gaps and np.isnan(table[row, column]):
                continue
            where = f"row {row}" if names is None else f"action {names[row]!r}"
            which = column if columns is None else repr(columns[column])
            raise ValueError(
                f"{what} must be finite and below {LARGEST:g}, "
                f"got {table[row, column]} in {where}, column {which}"
            )
    return table


def _converted(what: str, given: Any, gaps: bool) -> np.ndarray:
    """As a plain array, of numbers only: text that looks like one is not."""
    unmasked(what, given)
    try:
        table = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"{what} must be rows of numbers of one width ({error})") from error
    if table.dtype.kind == "O":
        if gaps:
            table = np.where(np.vectorize(missing, otypes=[bool])(table), np.nan, table)
        kinds = {type(entry) for entry in table.flat}
    else:
        kinds = {table.dtype.type} if table.size else set()
    wrong = [kind.__name__ for kind in kinds if not issubclass(kind, Real | np.bool_)]
    if wrong:
        raise TypeError(
            f"{what} must be rows of numbers of one width, got {', '.join(sorted(wrong))}; "
            "text and dictionaries need Bandit(..., hasher=es.Hasher())"
        )
    try:
        with np.errstate(over="ignore"):
            return table.astype(precision())
    except OverflowError as error:  # a whole number that no float can be
        raise ValueError(f"{what} must be finite and below {LARGEST:g} ({error})") from error
