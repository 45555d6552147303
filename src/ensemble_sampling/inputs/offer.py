"""What can be chosen among, as it was given: actions, context, names, and which may be chosen."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from .descriptions import as_text, from_text

LONGEST = 1000  # bits of a number that is a name: Python writes and reads no number without end
TEXT = {str}
KEYS = ("id", "name")  # of descriptions in a list, which say what an action is called


class Offer(NamedTuple):
    """What can be chosen among.

    actions: rows of numbers (K, d), or K descriptions as JSON; None where nothing is said of them.
    context: a row of numbers, a description as JSON, or None.
    names: of the actions, or None.
    available: which of the K may be chosen.
    """

    actions: np.ndarray | Sequence[str] | None
    context: np.ndarray | str | None
    names: Sequence[Any] | None
    available: np.ndarray

    @property
    def described(self) -> bool:
        """Whether anything in it is said by name."""
        return isinstance(self.actions, list) or isinstance(self.context, str)

    def said_of(self, index: int) -> Any:
        """What was said of one action: a row of numbers, a description, or None."""
        if self.actions is None:
            return None
        one = self.actions[index]
        return from_text(one) if isinstance(one, str) else one


def is_frame(given: Any) -> bool:
    """Whether it is a data frame, of pandas or polars."""
    return hasattr(given, "to_numpy") and hasattr(given, "columns")


def records(frame: Any) -> list[dict[str, Any]]:
    """The rows of a data frame of pandas, or of polars, as dictionaries."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"names of columns must differ, but {twice!r} occurs twice")
    return frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")


def are_names(names: Sequence[Any] | None) -> bool:
    """Whether names say more than 0, 1, ..., which a frame has that was given no index."""
    return names is not None and list(names) != list(range(len(names)))


def one(given: Any) -> Any:
    """A Series with an index, or a frame of one row, as a dictionary of what it says, or as a row
    where it has no names."""
    if is_frame(given):
        if len(given) != 1:
            raise ValueError(f"a context is one row, got a data frame of {len(given)}")
        row = records(given)[0]
    elif hasattr(given, "to_numpy") and hasattr(given, "index"):  # not that of polars
        row = dict(given.items())
        if len(row) < len(given):
            raise ValueError("the index of the context must name everything in it once")
    else:
        return given
    return row if are_names(list(row)) else list(row.values())


def parted(given: Any) -> tuple[Any, list[Any] | None]:
    """(rows, names or None) of actions given as an array, a data frame (whose index, if it has
    one, names them), a mapping from names, or a list (whose ids or names name them)."""
    if isinstance(given, np.ndarray):
        return given, None
    rows, names = given, None
    if is_frame(given):
        names = list(given.index) if hasattr(given, "index") else None
        rows = records(given) if are_names(list(given.columns)) else given.to_numpy()
    elif isinstance(given, Mapping):
        names, rows = list(given), list(given.values())
    elif isinstance(given, set | frozenset):
        raise TypeError(f"actions must come in an order, as in a list or a mapping, got {given!r}")
    if isinstance(rows, list | tuple):
        rows = [row if type(row) is dict else one(row) for row in rows]
        if not are_names(names):
            rows, names = _named(rows)
    return rows, names_of(names) if names is not None and are_names(names) else None


def _named(rows: list[Any]) -> tuple[list[Any], list[Any] | None]:
    """Descriptions without the key that says what each is called, and what it says: text that
    describes itself, or an id that all have and no two share."""
    if rows and all(isinstance(row, str) for row in rows):
        return rows, rows
    if not all(isinstance(row, Mapping) for row in rows):
        return rows, None
    for key in KEYS:
        names = [row.get(key) for row in rows]
        fit = all(isinstance(name, str | int) and not isinstance(name, bool) for name in names)
        if rows and fit and len(set(names)) == len(names):
            return [{k: v for k, v in row.items() if k != key} for row in rows], names
    return rows, None


def descriptions(given: Any, rows: Any) -> list[str]:
    """Rows of actions as JSON; `given` is what they came from."""
    if isinstance(rows, str | np.ndarray) or not isinstance(rows, Sequence):
        raise TypeError(
            f"with a hasher, actions are a list or a mapping of descriptions, got {given!r}"
        )
    return [as_text(row, "action") for row in rows]


def names_of(given: Any) -> list[Any]:
    """The names of actions: each text or a number, no two alike, in an order."""
    if isinstance(given, Mapping) or not checks.is_several(given):
        raise TypeError(f"names of actions must be a list, got {checks.shown(given)}")
    if isinstance(given, set | frozenset):
        raise TypeError(f"names of actions must be a list: a set has no order, got {given!r}")
    names = list(given)
    if not TEXT.issuperset(map(type, names)):  # the common case, many times faster
        names = [_name(name) for name in names]
    if len(set(names)) < len(names):
        seen: set[Any] = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise ValueError(f"names of actions must differ, but {twice!r} occurs twice")
    return names


def _name(name: Any) -> Any:
    name = name.item() if isinstance(name, np.generic) else name
    if not isinstance(name, str | int | float | bool):
        raise TypeError(f"an action's name must be text or a number, got {checks.shown(name)}")
    if isinstance(name, int) and name.bit_length() > LONGEST:
        raise ValueError(
            f"an action's name must be a number of at most {LONGEST} bits, got {checks.shown(name)}"
        )
    if isinstance(name, float) and not math.isfinite(name):
        raise ValueError(f"an action's name must be finite where it is a number, got {name!r}")
    return name


def shown(names: Sequence[Any]) -> str:
    """Names for a message: the first few of many."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"{list(names[:20])!r}{more}"


@lru_cache(maxsize=1024)
def everything(rows: int) -> np.ndarray:
    """That all may be chosen; not to be written to."""
    free = np.ones(rows, bool)
    free.setflags(write=False)
    return free


def mask(available: Any, names: Sequence[Any] | None, rows: int) -> np.ndarray:
    """Which of the actions may be chosen: from a truth value for each, in the order of the offer
    or by name (a mapping, a Series), or from the names of those that may."""
    if not checks.is_several(available):
        raise TypeError(
            "available must be true or false for every action, or the names of those on offer, "
            f"got {checks.shown(available)}"
        )
    if hasattr(available, "columns"):
        raise TypeError("available must have one truth value per action, got a data frame")
    if (table := _truths(available)) is not None:
        return _by_name(table, range(rows) if names is None else names)
    given = unmasked("available", available)
    given = given if isinstance(given, np.ndarray) else list(given)
    if names is None or _is_truth(*given[:1]):
        if isinstance(available, set | frozenset):
            raise TypeError(f"available as a set must hold names of actions, got {available!r}")
        return checks.available(np.asarray(given), rows)
    try:
        chosen = dict.fromkeys(given, True)
    except TypeError as error:
        raise TypeError(f"available must hold names of actions, got {available!r}") from error
    return _by_name(dict.fromkeys(names, False) | chosen, names)


def _is_truth(*values: Any) -> bool:
    return any(isinstance(value, bool | np.bool_) for value in values)


def _truths(available: Any) -> Mapping[Any, Any] | None:
    """Truth values by name, where that is what was given: a mapping, or a Series with an index."""
    if isinstance(available, Mapping):
        return available
    if not (hasattr(available, "to_numpy") and hasattr(available, "index")):
        return None
    table = dict(zip(available.index, available, strict=True))
    if not _is_truth(*table.values()):
        return None
    if len(table) < len(available):
        raise ValueError("the index of available must name every action once")
    return table


def _by_name(table: Mapping[Any, Any], names: Sequence[Any]) -> np.ndarray:
    """The truth values of a table in the order of the names, all of which it must know."""
    known = set(names)
    for name in table:
        if name not in known:
            raise ValueError(f"available names {name!r}, which is not on offer: {shown(names)}")
    for name in names:
        if name not in table:
            raise ValueError(f"available says nothing of the action {name!r}")
    values = [table[name] for name in names]
    if not all(isinstance(value, bool | np.bool_) for value in values):
        raise TypeError(f"available must be true or false for every action, got {shown(values)}")
    return checks.available(np.array(values, bool), len(names))


def unmasked(what: str, given: Any) -> Any:
    """What is given, unless some of it is masked: only its owner knows what to put there."""
    rows = (given, *given) if isinstance(given, list | tuple) else (given,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ValueError(f"{what} must not be masked: fill it first, as in values.filled(0.0)")
    return given
