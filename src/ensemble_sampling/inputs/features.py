"""Offers as rows of numbers: rows as they are, columns by name, or descriptions hashed."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import checks
from .descriptions import LARGEST, as_text, from_text, missing, numbers_of, terms_of
from .hashing import Hasher
from .offer import Offer, descriptions, everything, mask, names_of, one, parted, shown, unmasked
from .scale import Fields

SINGLE, DOUBLE = FLOATS = np.dtype(np.float32), np.dtype(np.float64)
SMALL = LARGEST**2 / 2  # a sum of squares below this has no number that is too large
HASHER = Hasher(256, numbers=64, names=True)  # for the default agent

Labels = tuple[str, ...] | int
"""The names of columns in their order, or how many there are where they have no names."""


def precision() -> np.dtype:
    """The type of JAX's arrays, `jnp.result_type(float)`, without its cost in every call."""
    return DOUBLE if jax.config.jax_enable_x64 else SINGLE  # pyright: ignore[reportAttributeAccessIssue]


class Columns(NamedTuple):
    """What a row of numbers is made of: what is said of the context, then of the action."""

    context: Labels
    action: Labels

    @property
    def width(self) -> int:
        return sum(side if isinstance(side, int) else len(side) for side in self)

    def of_context(self, count: int) -> int:
        """How many of the numbers that a decision has are the context's: of fewer than there are by
        now none, since it was not given then."""
        context = self.context if isinstance(self.context, int) else len(self.context)
        return 0 if count < self.width else context

    @property
    def flat(self) -> tuple[str, ...] | None:
        """The names of all of them, if all have names."""
        sides = [side for side in self if side != 0]
        if not all(isinstance(side, tuple) for side in sides):
            return None
        return tuple(name for side in sides if isinstance(side, tuple) for name in side)

    @property
    def description(self) -> list[Any]:
        """For the ledger."""
        return [list(side) if isinstance(side, tuple) else side for side in self]

    @classmethod
    def recorded(cls, description: Any) -> "Columns | None":
        """The columns of a ledger, as `description` wrote them."""
        if description is None:
            return None
        return cls(*(tuple(side) if isinstance(side, list) else side for side in description))

    def __str__(self) -> str:
        words = []
        for what, side in zip(("the context", "the action"), self, strict=True):
            if side:
                said = shown(side) if isinstance(side, tuple) else f"{side} numbers"
                words.append(f"{said} of {what}")
        return " and ".join(words) or "nothing"


class Inputs:
    """How one bandit reads offers, and makes numbers of them.

    arms: the number of fixed actions, or None; names: theirs, or None.
    hasher: makes rows of descriptions; None: these are numbers by name, in `columns`.
    columns: what rows are made of; None until the first offer says so, or where they are hashed.
    grows: whether new columns may come, and text, for which descriptions are then hashed; numbers
        may also be missing (NaN). So it is for the default agent.
    hashes: whether to hash whatever is described from the first offer on.
    expected: the columns that the agent was told of, if any.
    """

    def __init__(
        self,
        arms: int | None = None,
        actions: Any = None,
        hasher: Any = None,
        *,
        grows: bool = False,
        hashes: bool = False,
        expected: Sequence[str] | None = None,
        columns: Columns | None = None,
    ):
        self.arms, self.hasher, self.columns, self.dtype = arms, hasher, columns, precision()
        self.grows, self.hashes = grows, hashes
        self.expected = None if expected is None else tuple(expected)
        self.names = None if actions is None else names_of(actions)
        if self.names is not None and len(self.names) != arms:
            has = "a free choice of actions" if arms is None else f"{arms} actions"
            raise ValueError(f"the agent has {has}, but {len(self.names)} are named")

    @property
    def width(self) -> int | None:
        """The number of features; None until the first offer says so."""
        if self.hasher is not None:
            return self.hasher.width
        return None if self.columns is None else self.columns.width

    @cached_property
    def _plain(self) -> tuple[int] | None:
        """The width of rows that are numbers without names, of which any number is on offer."""
        if self.arms is not None or self.hasher is not None or self.columns is None:
            return None
        context, action = self.columns
        return (action,) if context == 0 and isinstance(action, int) and action else None

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names or ())}

    def read(self, actions: Any, context: Any, available: Any) -> Offer:
        """What is on offer in a context."""
        alone = context is None and available is None
        if (
            alone
            and type(actions) is np.ndarray
            and actions.dtype in FLOATS
            and actions.shape[1:] == self._plain
            and len(actions)
            and np.vdot(actions, actions) < SMALL
        ):  # finite numbers, as many in a row as ever: the normal case, many times faster
            rows = actions.astype(self.dtype, copy=False)
            return Offer(rows, None, None, everything(len(rows)))
        if actions is not None:
            self._refuse_misplaced(actions)
            rows, names = self._read_actions(actions)
            if self.arms is not None:
                rows, names = self._in_order(rows, names), self.names
            count = len(rows)
            if self.arms not in (None, count):
                raise ValueError(f"the agent has {self.arms} actions, got {count}")
        elif self.arms is not None:
            rows, names, count = None, self.names, self.arms
        else:
            raise ValueError(
                "give the features of the actions on offer, one row per action, as in "
                "choose({'tea': [1.0, 0.0], ...}); or, where they are always the same, begin with "
                "their names, Bandit(actions=['tea', ...])"
            )
        if rows is None and context is None and self.hasher is not None:
            raise no_context(self.hasher.width)
        around = None if context is None else self._read_context(context)
        free = everything(count) if available is None else mask(available, names, count)
        return Offer(rows, around, names, free)

    def _refuse_misplaced(self, actions: Any) -> None:
        """Refuse a context, or the names of those available, in the place of the actions."""
        if isinstance(actions, Mapping) and actions:
            if self.names is not None and not self._positions.keys() & actions.keys():
                raise ValueError(
                    f"the agent's actions are {shown(self.names)}, got {shown(list(actions))} in "
                    f"{checks.shown(actions)}: did you mean context=...?"
                )
            if self.hasher is None and not _has_more(actions):
                raise ValueError(
                    "actions must be a mapping from the name of each to what is said of it, got "
                    f"{checks.shown(actions)}: did you mean context=...?"
                )
        elif self.names is not None and isinstance(actions, list | tuple | str):
            some = [actions] if isinstance(actions, str) else actions
            if some and all(isinstance(name, str) and name in self._positions for name in some):
                raise ValueError(
                    f"this bandit knows its actions {shown(self.names)}; to offer some of them "
                    f"give available={list(some)!r}"
                )

    def _read_actions(self, given: Any) -> tuple[Any, list[Any] | None]:
        rows, names = parted(given)
        if self.hasher is not None:
            if self.grows and isinstance(rows, np.ndarray) and rows.ndim == 2:
                return in_words(numbers("features", rows, names, self.grows), "action"), names
            said = descriptions(given, rows)
            if not said:
                raise ValueError("actions must be described, one row per action, got none")
            return said, names
        several = isinstance(rows, list | tuple)
        words = [isinstance(row, Mapping | str | None) for row in rows] if several else [False]
        if rows is None or not any(words):
            return numbers("features", rows, names, self.grows), names
        if not all(words):
            odd = next(row for row, word in zip(rows, words, strict=True) if not word)
            raise TypeError(f"features must be dictionaries one and all, got {odd!r} among them")
        said = descriptions(given, rows)
        if not self.grows:
            for text, row in zip(said, rows, strict=True):
                _refuse_words("features", text, row)
        return said, names

    def _read_context(self, given: Any) -> np.ndarray | str:
        row = given if type(given) is dict else one(unmasked("context", given))
        if self.hasher is not None or isinstance(row, Mapping):
            text = as_text(row, "context")
            if self.hasher is None and not self.grows:
                _refuse_words("context", text, row)
            return text
        if self.grows and _has_words(row):
            return as_text(row, "context")
        try:
            array = np.asarray(row)
        except ValueError:  # rows of different lengths
            array = np.empty(())
        if array.ndim != 1:
            raise ValueError(f"context must be one row of numbers, got {given!r}")
        return numbers("context", array[None], None, self.grows)[0]

    def _in_order(self, rows: Any, names: list[Any] | None) -> Any:
        """Rows in the order of the agent's own actions, to which a name refers."""
        if names is None:
            return rows
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
        order = [at[name] for name in self.names]
        return rows[order] if isinstance(rows, np.ndarray) else [rows[n] for n in order]

    def covers(self, offer: Offer) -> bool:
        """Whether all that is said in an offer has its place in a row already."""
        if self.hasher is not None:
            return True
        context, actions = offer.context, offer.actions
        if context is None and isinstance(actions, np.ndarray) and self._plain:
            return actions.shape[1:] == self._plain
        return self.columns is not None and self._columns_with(self.columns, offer) == self.columns

    def covering(self, offers: Sequence[Offer]) -> "Inputs":
        """Inputs that make numbers of all that is said in these offers: these, or where new columns
        came, or text, others that grow out of them."""
        if self.hasher is not None:
            return self
        columns = self.columns
        for offer in offers:
            more = self._columns_with(columns, offer)
            if more is None:  # its columns tell what rows of numbers from before are
                return self._changed(hasher=HASHER, columns=columns)
            columns = more
        return self if columns == self.columns else self._changed(columns=columns)

    def of_one_action(self) -> "Inputs":
        """Inputs for offers of a single action, of which nobody knows the others."""
        return self._changed(arms=None, names=None)

    def _changed(self, **parts: Any) -> "Inputs":
        other = copy.copy(self)
        for known in ("_plain", "_positions"):
            vars(other).pop(known, None)
        vars(other).update(parts)
        return other

    def _columns_with(self, known: Columns | None, offer: Offer) -> Columns | None:
        """The columns with those of an offer; None where these are not all numbers by name."""
        if offer.described and known is None and self.hashes:
            return None
        sides = []
        for given in (offer.context, offer.actions):
            labels = _labels(given, known is None)
            if labels is None:
                return None
            sides.append(labels)
        found = Columns(*sides)
        if known is None:
            return found if self.expected is None else self._as_expected(found, self.expected)
        if found == known:
            return known
        return Columns(*(self._side(what, known, found) for what in ("context", "action")))

    def _as_expected(self, found: Columns, expected: tuple[str, ...]) -> Columns:
        """The columns of the first offer, which must be those that the agent was told of."""
        if found.flat == expected:
            return found
        if 0 in found and found.flat is not None and set(expected) <= set(found.flat):
            return Columns(*(side and expected for side in found))
        raise ValueError(
            f"the agent's columns are {shown(expected)}, got {found}: "
            "begin with these, those of the context first"
        )

    def _side(self, what: str, known: Columns, found: Columns) -> Labels:
        """The labels of one side, after an offer that has others."""
        ours, theirs = getattr(known, what), getattr(found, what)
        called = "features" if what == "action" else what
        if isinstance(ours, int) and isinstance(theirs, int):
            if ours != theirs and not (self.grows and 0 in (ours, theirs)):
                raise _mismatch(known, found)
            return ours or theirs
        if isinstance(theirs, int) and theirs:
            raise ValueError(
                f"this bandit's columns have names: give the {called} as a data frame or "
                f"dictionaries with the columns {_quoted(ours or ())}, not as rows without names"
            )
        if isinstance(ours, int) and ours:
            raise ValueError(
                f"this bandit's columns have no names: give the {called} as rows of numbers in the "
                "order of the first decision, as by frame.to_numpy(); got the columns "
                f"{_quoted(theirs or ())}"
            )
        ours, theirs = ours or (), theirs or ()
        lacking = [name for name in ours if name not in set(theirs)]
        if lacking and not self.grows:
            raise ValueError(
                f"{called} must have the columns {_quoted(ours)}, in any order: "
                f"{_quoted(lacking)} missing"
            )
        new = tuple(name for name in theirs if name not in set(ours))
        return (ours + new if self.grows else ours) or 0

    def table(self, offer: Offer, fields: Fields | None = None) -> np.ndarray:
        """Features (K, d), or one row that all K actions share."""
        actions, context = offer.actions, offer.context
        if context is None and isinstance(actions, np.ndarray) and self._plain:
            return actions.astype(self.dtype, copy=False)
        if self.hasher is not None:
            if self.columns is None and not offer.described:  # by a version that kept no words
                hashed = context[None] if isinstance(context, np.ndarray) else actions
                if isinstance(hashed, np.ndarray):
                    return self._fitting(hashed)
            actions, context, *_ = self.worded(offer)
            said, names = (["null"], None) if actions is None else ([*actions], offer.names)
            return numbers("features", self._hashed(said, context, names, fields), names)
        columns = self.columns
        if columns is None:
            raise ValueError(
                f"this agent takes rows of numbers, and a decision was described as {_said(offer)}"
                ": give a hasher, as in hasher=es.Hasher(256), or the default agent, agent=None"
            )
        parts = []
        if columns.context:
            rows = None if context is None else [context] if isinstance(context, str) else context
            parts.append(self._dense("context", rows, columns.context, None))
        if columns.action or not parts:
            parts.append(self._dense("features", actions, columns.action, offer.names))
        if len(parts) == 1:
            return parts[0]
        parts[0] = parts[0].repeat(len(parts[1]), 0)
        return np.concatenate(parts, axis=1)

    def _hashed(
        self, said: Sequence[str], context: Any, names: Any, fields: Fields | None
    ) -> np.ndarray:
        if isinstance(self.hasher, Hasher):
            return self.hasher.table(said, context, names, fields)
        return self.hasher([from_text(text) for text in said], from_text(context))

    def worded(self, offer: Offer) -> Offer:
        """The same with rows of numbers as descriptions, of which each number has its place."""
        actions, context = offer.actions, offer.context
        if isinstance(actions, np.ndarray):
            actions = in_words(actions, "action")
        if isinstance(context, np.ndarray):
            (context,) = in_words(context[None], "context")
        return offer._replace(actions=actions, context=context)

    def _fitting(self, rows: np.ndarray) -> np.ndarray:
        if rows.shape[1] != self.width:
            raise ValueError(
                f"this bandit's actions have {self.width} features, got {rows.shape[1]}"
            )
        return rows.astype(self.dtype, copy=False)

    def _dense(
        self, what: str, given: Any, labels: Labels, names: Sequence[Any] | None
    ) -> np.ndarray:
        """The numbers of one side, in the order of the known columns."""
        if isinstance(labels, int) or isinstance(given, np.ndarray):
            rows = np.zeros((1, 0)) if given is None else np.atleast_2d(given)
            if self.grows and isinstance(labels, int) and not rows.shape[1]:  # not said then
                rows = np.full((len(rows), labels), np.nan)
            return rows.astype(self.dtype, copy=False)
        cells = []
        for text in [] if given is None else given:
            said = numbers_of(text)
            if said is None:
                _refuse_words(what, text, from_text(text))
            cells.append([(said or {}).get(name, np.nan) for name in labels])
        cells = cells or [[np.nan] * len(labels)]
        return numbers(what, np.array(cells), names, self.grows, labels)

    def row(self, said: Any, fields: Fields | None = None) -> np.ndarray | None:
        """The features (d,) of the action that was chosen in a decision of a ledger; None where
        its words are gone, and were hashed otherwise."""
        context, action, given, columns = (
            said.context,
            said.description,
            said.features,
            self.columns,
        )
        if context is None and action is None:
            if self.hasher is None and (len(given),) == self._plain:
                return given  # mostly
            if columns is None:
                return given if self.hasher is None or len(given) == self.width else None
            if self.hasher is None and len(given) == columns.width:
                return given
        actions = None if action is None else [action]
        if self.hasher is not None:
            context, action = self._said_in(said)
            actions = None if action is None else [action]
        elif columns is not None:
            if context is None and isinstance(columns.context, int):
                n = columns.context if action is not None else columns.of_context(len(given))
                context, given = given[:n], given[n:]
            if action is None and isinstance(columns.action, int):
                actions = given[None]
        names = None if said.action is None or actions is None else [said.action]
        return self.table(Offer(actions, context, names, everything(1)), fields)[0]

    def _said_in(self, said: Any) -> tuple[str | None, str | None]:
        """The descriptions of context and action in a decision of a ledger; rows of numbers as
        `worded` has them."""
        context, action, given = said.context, said.description, said.features
        columns, around, rest = self.columns, 0, 0
        if context is None and action is None and columns is not None:
            n, (around, rest) = columns.of_context(len(given)), columns
        else:
            n = len(given) if context is None and action is not None else 0
        if n:
            (context,) = in_words(given[None, :n], "context", around)
        if n < len(given) and (columns is not None or context is not None):
            (action,) = in_words(given[None, n:], "action", rest)
        return context, action

    def numbers_in(self, said: Any) -> dict[str, float]:
        """The numbers that were given by name in a decision of a ledger."""
        pairs = zip(("context", "action"), self._said_in(said), strict=True)
        terms = [term for what, text in pairs if text is not None for term in terms_of(text, what)]
        return {name: value for name, value, number in terms if number}

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


def in_words(rows: np.ndarray, what: str, labels: Labels = 0) -> list[str]:
    """Rows of numbers as JSON, by name where their columns have names."""
    if isinstance(labels, tuple):
        return [as_text(dict(zip(labels, row, strict=True)), what) for row in rows.tolist()]
    return [as_text(row, what) for row in rows.tolist()]


def _has_more(actions: Mapping[Any, Any]) -> bool:
    """Whether more is said of any of the actions than a number, which is no row of features."""
    return any(not isinstance(said, Real) for said in actions.values())


def _said(offer: Offer) -> str:
    """What was said in an offer, for a message."""
    actions = offer.actions if isinstance(offer.actions, list) else ()
    texts = [text for text in (*actions[:1], offer.context) if isinstance(text, str)]
    return " in the context ".join(text if len(text) < 80 else f"{text[:80]}..." for text in texts)


def no_context(width: int) -> ValueError:
    return ValueError(f"this agent decides by {width} features: give choose(context=...)")


def _labels(given: np.ndarray | Sequence[str] | str | None, first: bool) -> Labels | None:
    """The columns of one side of an offer; None where it says more than numbers by name.

    first: whether it is the first offer, in which actions that say different things are hashed.
    """
    if given is None:
        return 0
    if isinstance(given, np.ndarray):
        return given.shape[-1]
    return _names(tuple([given] if isinstance(given, str) else given), first)


@lru_cache(maxsize=1024)
def _names(texts: tuple[str, ...], first: bool) -> tuple[str, ...] | None:
    said = [numbers_of(text) for text in texts]
    if any(fields is None for fields in said):
        return None
    if first and len({frozenset(fields or ()) for fields in said}) > 1:
        return None
    return tuple(dict.fromkeys(name for fields in said for name in fields or ()))


def _mismatch(known: Columns, found: Columns) -> ValueError:
    if not found.width:
        return no_context(known.width)
    if all(0 in columns for columns in (known, found)) and known.width != found.width:
        return ValueError(f"this bandit's actions have {known.width} features, got {found.width}")
    return ValueError(f"this bandit's rows are made of {known}, got {found}")


def _quoted(names: Any) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name) for name in names[:20]) + more


def _refuse_words(what: str, text: str, given: Any) -> None:
    """Refuse words where there is no hasher: only numbers by name are taken."""
    if numbers_of(text) is None:
        kinds = (
            {type(v).__name__ for v in given.values()} if isinstance(given, Mapping) else {"str"}
        )
        raise _not_numbers(what, sorted(kinds - {"int", "float", "bool"}) or ["nothing"])


def _not_numbers(what: str, kinds: Iterable[str]) -> TypeError:
    return TypeError(
        f"{what} must be rows of numbers of one width, got {', '.join(kinds)}; "
        "text and dictionaries need Bandit(..., hasher=es.Hasher())"
    )


def _has_words(value: Any) -> bool:
    """Whether something in it is text, a time or a dictionary."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in "OUS" else value.flat[:1].tolist()
    if isinstance(value, list | tuple):
        return any(_has_words(item) for item in value)
    return isinstance(value, str | Mapping | date | timedelta)


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
    if not np.vdot(table, table) < SMALL:  # quickly done; only then look at each
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
        raise _not_numbers(what, sorted(wrong))
    try:
        with np.errstate(over="ignore"):
            return table.astype(precision())
    except OverflowError as error:  # a whole number that no float can be
        raise ValueError(f"{what} must be finite and below {LARGEST:g} ({error})") from error
