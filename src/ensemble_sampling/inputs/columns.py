"""Columns are matched by name: frames, dictionaries and plain rows as one array of numbers."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from .hashing import missing, numbers

Labels = tuple[str, ...] | int
"""The names of columns in their order, or how many there are where they have no names."""


class Columns(NamedTuple):
    """What a row of numbers is made of: what is said of the context, then of the action."""

    context: Labels
    action: Labels

    @property
    def named(self) -> bool:
        return isinstance(self.context, tuple) or isinstance(self.action, tuple)

    @property
    def plain(self) -> bool:
        """Whether a row is one array without names, of which there is nothing to remember."""
        return not self.named and not (self.context and self.action)

    @property
    def flat(self) -> tuple[str, ...] | None:
        """The names of all of them, if all have names."""
        sides = [side for side in self if side != 0]
        if not all(isinstance(side, tuple) for side in sides):
            return None
        return tuple(name for side in sides if isinstance(side, tuple) for name in side)

    @property
    def around(self) -> int:
        """How many columns are those of the context."""
        return self.context if isinstance(self.context, int) else len(self.context)

    @property
    def description(self) -> dict[str, Any]:
        """For the ledger."""
        return {} if self.plain else {"columns": [_listed(self.context), _listed(self.action)]}

    @classmethod
    def recorded(cls, description: Any) -> "Columns | None":
        """Those of a folder, as `description` wrote them."""
        if description is None:
            return None
        return cls(*(tuple(side) if isinstance(side, list) else side for side in description))


def _listed(labels: Labels) -> list[str] | int:
    return list(labels) if isinstance(labels, tuple) else labels


def is_frame(given: Any) -> bool:
    """Whether it is a data frame, of pandas or polars."""
    return hasattr(given, "to_numpy") and hasattr(given, "columns")


def records(frame: Any) -> list[dict[str, Any]]:
    """The rows of a data frame of pandas, or of polars, as dictionaries."""
    return frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")


def frame_names(frame: Any) -> list[Any] | None:
    """The names of its rows: its index, if it has one."""
    return list(frame.index) if hasattr(frame, "index") else None


def are_names(names: Sequence[Any] | None) -> bool:
    """Whether names say more than 0, 1, ..., which a frame has that was given no index."""
    return names is not None and list(names) != list(range(len(names)))


def _labels(columns: Any) -> tuple[str, ...] | None:
    """Names of columns; None for 0, 1, ..., which is what a frame calls those without names."""
    given = list(columns)
    if not are_names(given):
        return None
    names = tuple(map(str, given))
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"names of columns must differ, but {twice!r} occurs twice")
    return names


def one(context: Any) -> Any:
    """A context that is a Series with an index, or a frame of one row, as a dictionary of what it
    says, or as a row where it has no names."""
    if is_frame(context):
        if len(context) != 1:
            raise ValueError(f"a context is one row, got a data frame of {len(context)}")
        row = records(context)[0]
    elif hasattr(context, "to_numpy") and hasattr(context, "index"):  # not that of polars
        row = dict(context.items())
        if len(row) < len(context):
            raise ValueError("the index of the context must name everything in it once")
    else:
        return context
    return row if are_names(list(row)) else list(row.values())


def dense(
    what: str,
    given: Any,
    names: Sequence[Any] | None = None,
    gaps: bool = False,
    known: Labels | None = None,
) -> tuple[np.ndarray, Labels]:
    """Rows of numbers (K, d) and what their columns are; in the order of the known ones, if any."""
    values: Any = given
    labels, framed = None, False
    if type(given) is np.ndarray:
        pass
    elif framed := is_frame(given):
        labels, values = _labels(given.columns), given.to_numpy()
    elif isinstance(given, Sequence) and given and not isinstance(given, str | bytes):
        values = [one(row) for row in given]
        if isinstance(values[0], Mapping):
            labels = _labels(map(str, values[0]))
    order = labels
    if labels is not None:
        order = known if isinstance(known, tuple) else labels
        if not framed:
            values = _cells(what, values, order)
        elif labels != order:
            _same(what, labels, order)
            values = values[:, [labels.index(name) for name in order]]
    table = numbers(what, values, names, gaps, order)
    _agree(what, labels, known)
    return table, table.shape[1] if order is None else order


def _agree(what: str, given: tuple[str, ...] | None, known: Labels | None) -> None:
    """Whether columns have names or not is for the first decision to say."""
    if isinstance(known, tuple) and given is None:
        raise ValueError(
            f"this bandit's columns have names: give the {what} as a data frame or dictionaries "
            f"with the columns {_shown(known)}, not as rows without names"
        )
    if isinstance(known, int) and given is not None:
        raise ValueError(
            f"this bandit's columns have no names: give the {what} as rows of numbers in the order "
            f"of the first decision, as by frame.to_numpy(); got the columns {_shown(given)}"
        )


def _cells(what: str, rows: Sequence[Any], order: tuple[str, ...]) -> list[list[Any]]:
    """The values of dictionaries, in order."""
    cells = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"{what} must be dictionaries one and all, got {row!r} among them")
        if tuple(row) != order:
            row = {str(name): value for name, value in row.items()}
            _same(what, tuple(row), order)
        cells.append([row[name] for name in order])
    return cells


def _same(what: str, given: tuple[str, ...], order: tuple[str, ...]) -> None:
    lacking = [name for name in order if name not in set(given)]
    unknown = [name for name in given if name not in set(order)]
    if lacking or unknown:
        words = [f"{_shown(lacking)} missing"] if lacking else []
        words += [f"{_shown(unknown)} unknown"] if unknown else []
        raise ValueError(
            f"{what} must have the columns {_shown(order)}, in any order: {', '.join(words)}; "
            "what varies in what it says needs Bandit(..., hasher=es.Hasher())"
        )


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def needs_hasher(features: Any, context: Any) -> bool:
    """Whether it takes a hasher to turn an offer into numbers: text, categories or timestamps
    anywhere, dictionaries that hold more than numbers, or that do not all say the same."""
    if is_frame(features):
        rows = records(features)
    else:
        rows = list(features.values()) if isinstance(features, Mapping) else features
    try:
        around = [] if context is None else [context]
        return _need_hasher([] if rows is None else rows) or _need_hasher(around)
    except RecursionError as error:
        raise ValueError("a description contains itself, or is nested too deeply") from error


def _need_hasher(rows: Any) -> bool:
    """Whether rows are more than rows of numbers."""
    if not isinstance(rows, list | tuple):
        kind = getattr(getattr(rows, "dtype", None), "kind", "")
        return isinstance(rows, str) or kind in ("U", "S", "M", "m") or _has_words(rows)
    given = [one(row) for row in rows]
    if any(isinstance(row, Mapping) for row in given):
        return not _all_numbers(given)
    return any(_has_words(row) for row in given)


def _has_words(value: Any) -> bool:
    """Whether something in it is text, a time or a dictionary."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in "OUS" else value.flat[:1].tolist()
    if isinstance(value, list | tuple):
        return any(_has_words(item) for item in value)
    return isinstance(value, str | Mapping | date | timedelta)


def _all_numbers(rows: Sequence[Any]) -> bool:
    """Whether dictionaries say the same things, all of them numbers, truth values or missing."""
    if not all(isinstance(row, Mapping) and row.keys() == rows[0].keys() for row in rows):
        return False
    values = [value for row in rows for value in row.values()]
    # Who says nothing is known by name, which is for a hasher.
    return bool(values) and all(_is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | np.bool_) or missing(value)
