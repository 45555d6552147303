"""What is on offer, however it is given: features, names, context and availability."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from .features import Hasher, numbers, precision, unmasked


class Offer(NamedTuple):
    """Features (K, d), or one row that all K actions share; names, if any; what may be chosen."""

    table: np.ndarray
    names: Sequence[Any] | None
    mask: np.ndarray


class Offers:
    """How offers are read for one bandit: `arms` fixed actions, or None; their names, or None.

    missing: whether numbers may be missing (NaN).
    """

    def __init__(
        self, arms: int | None, actions: Any, hasher: Hasher | None, missing: bool = False
    ):
        self.arms, self.hasher, self.missing = arms, hasher, missing
        self.names = None if actions is None else names_of(actions)
        if self.names is not None and len(self.names) != arms:
            has = "a free choice of actions" if arms is None else f"{arms} actions"
            raise ValueError(f"the agent has {has}, but {len(self.names)} are named")

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names or ())}

    def read(self, features: Any, context: Any, available: Any, width: int | None) -> Offer:
        """The offer in rows of `width` numbers, if that is known yet."""
        if features is not None:
            table, names = read(features, context, self.hasher, self.missing)
            if self.arms is not None:
                table, names = self._in_order(table, names), self.names
            if self.arms not in (None, len(table)):
                raise ValueError(f"the agent has {self.arms} actions, got {len(table)}")
            rows = len(table)
        elif self.arms is not None:
            table, names, rows = self._shared(context, width), self.names, self.arms
        else:
            raise ValueError("give the features of the actions on offer, one row per action")
        if width not in (None, table.shape[1]):
            raise ValueError(f"this bandit's actions have {width} features, got {table.shape[1]}")
        return Offer(table, names, mask(available, names, rows))

    def _in_order(self, table: np.ndarray, names: list[Any] | None) -> np.ndarray:
        """Rows in the order of the agent's own actions, to which a name refers."""
        if names is None:
            return table
        if self.names is None:
            raise ValueError(
                "this agent knows its actions by position: name them with Bandit(..., "
                f"actions=[...]), or give rows without names; got {shown(names)}"
            )
        if self._positions.keys() != set(names):
            raise ValueError(
                f"the agent's actions are {shown(self.names)}, got {shown(names)}; "
                "to offer only some of them give `available`"
            )
        at = {name: row for row, name in enumerate(names)}
        return table[[at[name] for name in self.names]]

    def _shared(self, context: Any, width: int | None) -> np.ndarray:
        """The context of a fixed set of actions, as a table of one row."""
        if context is None:
            if width:
                raise ValueError(
                    f"this agent decides by {width} features: give choose(context=...)"
                )
            return np.zeros((1, 0), precision())
        if self.hasher is not None:
            return numbers("context", self.hasher([None], context))
        unmasked("context", context)
        try:
            row = np.asarray(context)
        except ValueError:  # rows of different lengths
            row = np.empty(())
        if row.ndim != 1:
            raise ValueError(f"context must be one row of numbers, got {context!r}")
        return numbers("context", row[None], missing=self.missing)

    def arm(self, number: int, chosen: int, action: Any) -> int:
        """Which of the agent's actions decision `number` chose: by its name where it has one."""
        if self.arms is None:
            return chosen
        if self.names is not None and action is not None:
            if action not in self._positions:
                raise ValueError(
                    f"decision {number} chose {action!r}, which is none of the agent's "
                    f"actions {shown(self.names)}"
                )
            return self._positions[action]
        if chosen >= self.arms:
            raise ValueError(f"decision {number} chose action {chosen}, but there are {self.arms}")
        return chosen


def read(
    given: Any, context: Any, hasher: Hasher | None, missing: bool = False
) -> tuple[np.ndarray, list[Any] | None]:
    """(features (K, d), names or None) of actions given as an array, a data frame (whose index, if
    it has one, names them), a mapping from names, or, with a hasher, descriptions."""
    rows, names = given, None
    if isinstance(given, np.ndarray):
        pass  # the common case, and what follows takes time
    elif hasattr(given, "to_numpy") and hasattr(given, "columns"):
        names = list(given.index) if hasattr(given, "index") else None
        rows = _records(given) if hasher else given.to_numpy()
    elif isinstance(given, Mapping):
        names, rows = list(given), list(given.values())
    elif isinstance(given, set | frozenset):
        raise TypeError(f"actions must come in an order, as in a list or a mapping, got {given!r}")
    elif hasher and isinstance(given, Sequence) and all(isinstance(row, str) for row in given):
        names = list(given)
    if names is not None:
        names = names_of(names)
    if hasher is None:
        if context is not None:
            raise ValueError(
                "context beside the features of actions needs Bandit(..., hasher=es.Hasher()); "
                "or describe every action in its context by one row of numbers"
            )
        return numbers("features", rows, names, missing), names
    if isinstance(rows, str) or not isinstance(rows, Sequence):
        raise TypeError(
            f"with a hasher, actions are a list or a mapping of descriptions, got {given!r}"
        )
    return numbers("features", hasher(rows, context) if rows else [], names), names


def _records(frame: Any) -> list[dict[str, Any]]:
    """The rows of a data frame of pandas, or of polars, as dictionaries."""
    return frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")


def names_of(given: Any) -> list[Any]:
    """The names of actions: each text or a number, no two alike, in an order."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"names of actions must be a list, got {given!r}")
    if isinstance(given, set | frozenset):
        raise TypeError(f"names of actions must be a list: a set has no order, got {given!r}")
    names = [_name(name) for name in given]
    if len(set(names)) < len(names):
        seen: set[Any] = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise ValueError(f"names of actions must differ, but {twice!r} occurs twice")
    return names


def _name(name: Any) -> Any:
    name = name.item() if isinstance(name, np.generic) else name
    if not isinstance(name, str | int | float | bool):
        raise TypeError(f"an action's name must be text or a number, got {name!r}")
    if isinstance(name, float) and not math.isfinite(name):
        raise ValueError(f"an action's name must be finite where it is a number, got {name!r}")
    return name


def shown(names: Sequence[Any]) -> str:
    """Names for a message: the first few of many."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"{list(names[:20])!r}{more}"


def mask(available: Any, names: Sequence[Any] | None, rows: int) -> np.ndarray:
    """Which of the actions may be chosen: from a truth value for each, in the order of the offer
    or by name (a mapping, a Series), or from the names of those that may."""
    if available is None:
        return np.ones(rows, bool)
    if isinstance(available, str | bytes) or not isinstance(available, Iterable):
        raise TypeError(
            "available must be true or false for every action, or the names of those on offer, "
            f"got {available!r}"
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
