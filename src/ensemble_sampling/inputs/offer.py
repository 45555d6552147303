"""What is on offer, however it is given: features, names, context and availability."""

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from .columns import Columns, Labels, are_names, dense, frame_names, is_frame, one, records
from .hashing import FLOATS, LARGEST, TEXT, Hasher, numbers, precision, unmasked

LONGEST = 1000  # bits of a number that is a name: Python writes and reads no number without end
SMALL = LARGEST**2 / 2  # a sum of squares below this has no number that is too large


class Offer(NamedTuple):
    """Features (K, d), or one row that all K actions share; names, if any; what may be chosen; and
    how many numbers at the start of a row say something of the context."""

    table: np.ndarray
    names: Sequence[Any] | None
    mask: np.ndarray
    context: int = 0


class Offers:
    """How offers are read for one bandit: `arms` fixed actions, or None; their names, or None.

    missing: whether numbers may be missing (NaN).
    columns: what rows are made of, as the first offer had it; None before. It is kept by whoever
        records decisions, so that an offer that is not recorded fixes nothing.
    expected: the columns that the agent was told of, if any.
    begun: whether there are decisions of which nobody knows whether their columns had names.
    """

    def __init__(
        self,
        arms: int | None,
        actions: Any,
        hasher: Hasher | None,
        missing: bool = False,
        expected: Sequence[str] | None = None,
    ):
        self.arms, self.hasher, self.missing = arms, hasher, missing
        self.expected = None if expected is None else tuple(expected)
        self.columns: Columns | None = None
        self.begun = False
        self.names = None if actions is None else names_of(actions)
        if self.names is not None and len(self.names) != arms:
            has = "a free choice of actions" if arms is None else f"{arms} actions"
            raise ValueError(f"the agent has {has}, but {len(self.names)} are named")

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names or ())}

    def read(self, features: Any, around: Any, available: Any, width: int | None) -> Offer:
        """The offer in a context, in rows of `width` numbers, if that is known yet."""
        if around is None and available is None and type(features) is np.ndarray:
            table = self._plain(features, width)
            if table is not None:
                return Offer(table, None, everything(len(table)))
        columns = self.columns
        if features is not None:
            table, names, columns = self._described(features, around)
            if self.arms is not None:
                table, names = self._in_order(table, names), self.names
            if self.arms not in (None, len(table)):
                raise ValueError(f"the agent has {self.arms} actions, got {len(table)}")
            rows, context = len(table), 0 if columns is None else columns.around
        elif self.arms is not None:
            table, columns = self._shared(around, width)
            names, rows, context = self.names, self.arms, table.shape[1]
        else:
            raise ValueError("give the features of the actions on offer, one row per action")
        fixed = self._settled(columns)
        if width not in (None, table.shape[1]):
            raise ValueError(f"this bandit's actions have {width} features, got {table.shape[1]}")
        offer = Offer(table, names, mask(available, names, rows), context)
        self.columns = fixed
        return offer

    def _plain(self, features: np.ndarray, width: int | None) -> np.ndarray | None:
        """The normal case, many times faster: an array of finite numbers, each row an action. None
        where there is more to it, or something wrong with it."""
        if self.arms is not None or self.hasher is not None or features.dtype not in FLOATS:
            return None
        if features.ndim != 2 or len(features) == 0 or self.columns != (0, features.shape[1]):
            return None
        if features.shape[1] != width or not np.vdot(features, features) < SMALL:
            return None
        return features.astype(precision(), copy=False)

    def _described(
        self, features: Any, context: Any
    ) -> tuple[np.ndarray, list[Any] | None, Columns | None]:
        """Actions, each described in its context: what is said of that comes first in a row."""
        if self.hasher is not None:
            return *read(features, context, self.hasher, self.missing), None
        rows, names = parted(features)
        known = self._known("action", alone=context is None)
        table, action = dense("features", rows, names, self.missing, known)
        if context is None:
            return table, names, Columns(0, action)
        around, labels = self._around(context, alone=False)
        table = np.concatenate([around.repeat(len(table), 0), table], axis=1)
        return table, names, Columns(labels, action)

    def rows(self, features: Any, contexts: Any) -> np.ndarray:
        """Rows (n, d) of n actions that were chosen, each in a context of its own: descriptions or
        rows of numbers, one per action, of what is said of either."""
        several = features if features is not None else contexts
        if several is None:
            raise ValueError("give the features of the actions, or their contexts")
        if self.hasher is not None:
            return self._hashed(features, contexts)
        if self.arms is not None and contexts is None and not (self.columns and self.columns[1]):
            features, contexts = None, features  # a fixed set of actions is told apart by itself
        alone, parts = features is None or contexts is None, []
        around: Labels = 0
        action: Labels = 0
        if contexts is not None:
            known = self._known("context", alone)
            part, around = dense("context", contexts, None, self.missing, known)
            parts.append(part)
        if features is not None:
            known = self._known("action", alone)
            part, action = dense("features", features, None, self.missing, known)
            parts.append(part)
        fixed = self._settled(Columns(around, action))
        table = np.concatenate(parts, axis=1)
        self.columns = fixed
        return table

    def _hashed(self, features: Any, contexts: Any) -> np.ndarray:
        assert self.hasher is not None
        if self.arms is not None and contexts is None:
            features, contexts = None, features
        count = len(features if features is not None else contexts)
        each = [None] * count if features is None else [one(row) for row in features]
        around = [None] * count if contexts is None else [one(row) for row in contexts]
        pairs = zip(each, around, strict=True)
        table = [self.hasher([action], context)[0] for action, context in pairs]
        return numbers("features", np.array(table))

    def _known(self, side: str, alone: bool) -> Labels | None:
        """The columns of one side of a row, as far as they are known; `alone` it is all of it."""
        if self.columns is not None:
            return getattr(self.columns, side) or None
        return self.expected if alone else None

    def _around(self, context: Any, alone: bool) -> tuple[np.ndarray, Labels]:
        """The context as a table of one row, in the order of the known columns."""
        unmasked("context", context)
        row = one(context)
        if not isinstance(row, Mapping):
            try:
                row = np.asarray(row)
            except ValueError:  # rows of different lengths
                row = np.empty(())
            if row.ndim != 1:
                raise ValueError(f"context must be one row of numbers, got {context!r}")
        rows = [row] if isinstance(row, Mapping) else row[None]
        return dense("context", rows, None, self.missing, self._known("context", alone))

    def _settled(self, columns: Columns | None) -> Columns | None:
        """Those the first offer fixed, which may be this one; later ones must have the same."""
        known = self.columns
        if columns is None or columns == known:
            return known
        if known is None:
            if self.expected not in (None, columns.flat):
                raise ValueError(
                    f"the agent's columns are {shown(self.expected or ())}, got {_sides(columns)}: "
                    "begin with these, those of the context first"
                )
            if self.begun and columns.named:
                warnings.warn(
                    "the decisions so far do not say what their columns are called: from now on "
                    f"they are, in this order, {_sides(columns)}",
                    stacklevel=5,
                )
            return columns
        if known.plain and columns.plain:  # the width says whether they fit
            return known
        raise ValueError(f"this bandit's rows are made of {_sides(known)}, got {_sides(columns)}")

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

    def _shared(self, context: Any, width: int | None) -> tuple[np.ndarray, Columns | None]:
        """The context of a fixed set of actions, as a table of one row."""
        if context is None:
            if width:
                raise ValueError(
                    f"this agent decides by {width} features: give choose(context=...)"
                )
            return np.zeros((1, 0), precision()), None
        if self.hasher is not None:
            return numbers("context", self.hasher([None], one(context))), None
        table, labels = self._around(context, alone=True)
        return table, Columns(labels, 0)

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


def parted(given: Any) -> tuple[Any, list[Any] | None]:
    """(rows, names or None) of actions given as an array, a data frame (whose index, if it has
    one, names them), a mapping from names, or a list."""
    if isinstance(given, np.ndarray):
        return given, None  # the common case, and what follows takes time
    rows, names = given, None
    if is_frame(given):
        names = frame_names(given)
    elif isinstance(given, Mapping):
        names, rows = list(given), list(given.values())
    elif isinstance(given, set | frozenset):
        raise TypeError(f"actions must come in an order, as in a list or a mapping, got {given!r}")
    return rows, None if names is None else names_of(names)


def read(
    given: Any, context: Any, hasher: Hasher | None, missing: bool = False
) -> tuple[np.ndarray, list[Any] | None]:
    """(features (K, d), names or None) of actions in whatever form, with a hasher in a context."""
    rows, names = parted(given)
    if hasher is None:
        return dense("features", rows, names, missing)[0], names
    called = names if are_names(names) else None
    if is_frame(rows):
        rows = records(rows)
    if isinstance(rows, str) or not isinstance(rows, Sequence):
        raise TypeError(
            f"with a hasher, actions are a list or a mapping of descriptions, got {given!r}"
        )
    if not rows:
        return numbers("features", [], names), names
    if names is None and all(isinstance(row, str) for row in rows):
        names = names_of(rows)  # and describe themselves
    rows, context = [row if type(row) is dict else one(row) for row in rows], one(context)
    own = isinstance(hasher, Hasher) and hasher.names  # others know nothing of names
    hashed = hasher(rows, context, called) if own else hasher(rows, context)
    return numbers("features", hashed, names), names


def _sides(columns: Columns) -> str:
    """Columns for a message."""
    words = []
    for what, side in zip(("the context", "the action"), columns, strict=True):
        if side:
            said = shown(side) if isinstance(side, tuple) else f"{side} numbers"
            words.append(f"{said} of {what}")
    return " and ".join(words) or "nothing"


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
    if available is None:
        return everything(rows)
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
