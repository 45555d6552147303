"""A log of decisions as arrays: what was on offer, what was chosen how likely, what came of it."""

import copy
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..inputs.descriptions import from_text, missing
from ..inputs.features import Inputs
from ..inputs.scale import Fields
from .said import Made, Said

CHUNK = 8192  # decisions looked at together: all of their features fit into the cache, nearly


class Offer(NamedTuple):
    """What was on offer in one decision, as a policy that is a function sees it.

    features: (K, d), the same row for all where they share a context
    available: (K,) which of the actions could be chosen
    actions: what was said of each action: a dictionary, text, a row of numbers, or None
    context: what was said of all of them, likewise
    names: of the actions, or None

    Where offers differ in size, features and available are filled up to the largest one; the rest
    has as many entries as there were actions. A compiled function sees features and available
    alone.
    """

    features: Any
    available: Any
    actions: Any = None
    context: Any = None
    names: Any = None


class Log:
    """n decisions that were made by some policy, and their outcomes.

    chosen: which action, by its position (n,), or by its name where `actions` names them
    outcome: what it earned (n,); decisions without one (NaN) are left out, and counted
    propensity: how likely the action was to be chosen (n,)
    propensities: how likely each action was to be chosen (n, K), instead of `propensity`. Only
        they say which actions could never have been chosen.
    features: of every action (n, K, d), or of actions that never change (K, d); NaN is a missing
        value, which the default agent takes for the usual one; anything of that
        shape that gives an array for a slice of its rows will do, so that it need not be in memory
    context: what the K actions had in common (n, d), in place of `features`
    available: which of the K could be chosen (n, K); None: all. Offers of different sizes are
        filled up to the largest and told apart by this.
    actions: the names of the K actions, where they are the same in every decision

    Errors say what is wrong and in how many decisions, before anything is computed.
    """

    def __init__(
        self,
        chosen: Any,
        outcome: Any,
        propensity: Any = None,
        *,
        propensities: Any = None,
        features: Any = None,
        context: Any = None,
        available: Any = None,
        actions: Sequence[Any] | None = None,
    ):
        self.actions = None if actions is None else list(actions)
        self.ledger: str | None = None  # the id of the one it was read from
        self.said: Said | None = None  # where actions have descriptions, or names that differ
        self.hashed = False  # whether features are made of descriptions by hashing
        self._sizes: Any = None  # how many actions each decision has, where they differ
        self._around = 0  # how many of the features are the context's
        if features is not None and context is not None:
            raise ValueError("give the features of all actions or the context they share, not both")
        chosen, outcome = _positions(chosen, self.actions), _column("outcome", outcome)
        propensity = None if propensity is None else _column("propensity", propensity)
        if propensities is not None:
            propensities = np.asarray(_array("propensities", propensities, 2), np.float64)
        if available is not None:
            available = np.asarray(_array("available", available, 2), bool)
        self.shared = features is None
        if self.shared:
            context = np.zeros((len(outcome), 0)) if context is None else context
            self._given = np.asarray(_array("context", context, 2))[:, None]
        else:
            self._given = _array("features", features, 3, 2)
            if len(self._given.shape) == 2:  # the same in every decision
                self._given = np.broadcast_to(self._given, (len(outcome), *self._given.shape))
        columns = {"chosen": chosen, "outcome": outcome, "propensity": propensity}
        tables = {"features": self._given, "propensities": propensities, "available": available}
        if self.shared:
            columns["context"] = tables.pop("features")
        sizes = {name: table.shape[1] for name, table in tables.items() if table is not None}
        sizes = sizes if self.actions is None else {"actions": len(self.actions), **sizes}
        lengths = {name: len(part) for name, part in (columns | tables).items() if part is not None}
        _check_same("the number of actions must be the same everywhere, got {}", "in", sizes)
        _check_same("a log has one entry per decision in everything, got {}", "of", lengths)
        if not len(chosen):
            raise ValueError("a log must hold at least one decision, got none")
        self.arms = next(iter(sizes.values()), int(chosen.max()) + 1)
        if available is None:
            available = np.broadcast_to(True, (len(chosen), self.arms))
        outside = (chosen < 0) | (chosen >= self.arms)
        words = f"chosen must be between 0 and {self.arms - 1}: {{}} are not, the first is {{}}"
        refuse(outside, words, chosen)
        refuse(~available[np.arange(len(chosen)), chosen], "{} chose what was not available")
        propensity = _checked_propensity(chosen, propensity, propensities, available)
        refuse(np.isinf(outcome), "outcomes must be finite: {} are infinite")
        self._rows = np.flatnonzero(np.isfinite(outcome))
        if not len(self._rows):
            raise ValueError(f"none of the {len(outcome)} decisions has an outcome")
        without = len(outcome) - len(self._rows)
        self.excluded = {"outcome missing": without} if without else {}
        kept = self._rows if without else slice(None)
        self.chosen, self.outcome, self.propensity = chosen[kept], outcome[kept], propensity[kept]
        self.propensities = None if propensities is None else propensities[kept]
        self.available = available[kept]

    @classmethod
    def of(cls, source: Any, **columns: Any) -> "Log":
        """The log of a bandit, of a bandit's folder, or in the columns of a table: see `read`."""
        from .sources import read

        return read(source, **columns)

    @classmethod
    def read_vw(cls, path: str | os.PathLike[str], arms: int | None = None) -> "Log":
        """The log of a file in Vowpal Wabbit's text format, of `--cb_adf` or `--cb K`, with costs
        as rewards of the other sign; `.gz` is unpacked.

        A file in which an example has several lines, at most one of them with a label, is taken for
        one of `--cb_adf`. Descriptions become dictionaries, one entry for each namespace, which
        are hashed for features.

        arms: the K of `--cb K`; None: the largest action in the file.
        """
        from .vw import read_text

        return read_text(path, arms)

    @classmethod
    def read_dsjson(cls, path: str | os.PathLike[str]) -> "Log":
        """The log of a file that has a decision with its label as JSON on every line, which Vowpal
        Wabbit calls dsjson; `.gz` is unpacked. Lines without a label are left out, and counted."""
        from .vw import read_dsjson

        return read_dsjson(path)

    def remember(self, said: Said | None, features: Any, inputs: Inputs, sizes: Any) -> None:
        """What was said in decisions that all have outcomes, and the features made of it."""
        self.said, self._given, self._sizes = said, features, sizes
        self.hashed = inputs.hasher is not None
        around = 0 if inputs.columns is None else inputs.columns.context
        self._around = around if isinstance(around, int) else 0

    def as_seen(self, inputs: Inputs, fields: Fields | None) -> "Log":
        """The log with the features that these inputs make of what was said, in units."""
        said, width = self.said, inputs.width
        if said is None or width is None:
            return self
        if inputs.covering(said[:1]).hasher is not inputs.hasher:
            raise ValueError(f"the policy takes rows of {inputs.columns}, the log has words")
        other = copy.copy(self)
        vars(other).pop("missing", None)
        other.hashed = inputs.hasher is not None
        other._given = Made(
            said, lambda: (inputs.table(offer, fields) for offer in said), width, self.shared
        )
        return other

    def __len__(self) -> int:
        """How many decisions have outcomes."""
        return len(self.chosen)

    def __repr__(self) -> str:
        kind = "a context of " if self.shared else ""
        out = "".join(f", {count} left out: {why}" for why, count in self.excluded.items())
        return f"Log({len(self)} decisions, {self.arms} actions, {kind}{self.dim} features{out})"

    @property
    def dim(self) -> int:
        """How many features describe an action, or the context."""
        return int(self._given.shape[-1])

    @property
    def mark(self) -> str:
        """A digest of decisions and outcomes, by which a log is recognised."""
        found = hashlib.blake2b(self.chosen.tobytes(), digest_size=16)
        found.update(self.outcome.tobytes())
        return found.hexdigest()

    @cached_property
    def missing(self) -> int:
        """In how many of the decisions features are missing (NaN)."""
        chunks = (np.isnan(self.features(rows)) for rows in slices(len(self)))
        return sum(int(chunk.any(axis=(1, 2)).sum()) for chunk in chunks)

    def features(self, rows: slice) -> np.ndarray:
        """Of every action in these decisions (m, K, d), or (m, 1, d) where they share a context."""
        wanted = self._rows[rows]
        found = np.asarray(self._given[slice(wanted[0], wanted[-1] + 1)])
        found = found if len(found) == len(wanted) else found[wanted - wanted[0]]
        words = f"features must be finite: {{}} decisions from {rows.start} on have others"
        refuse(np.isinf(found).any(axis=(1, 2)), words)
        return found

    def chosen_features(self) -> np.ndarray:
        """The features (n, d) of the actions that were chosen, or the contexts they share."""
        found = np.empty((len(self), self.dim), self._given.dtype)
        for rows in slices(len(self)):
            x = self.features(rows)
            found[rows] = x[np.arange(len(x)), 0 if self.shared else self.chosen[rows]]
        return found

    def offers(self) -> Iterator[Offer]:
        """What was on offer in each of the decisions with outcomes."""
        for rows in slices(len(self)):
            count = rows.stop - rows.start
            features = np.broadcast_to(self.features(rows), (count, self.arms, self.dim))
            about = self._said_in(rows, features)
            for x, free, (actions, context, names) in zip(
                features, self.available[rows], about, strict=True
            ):
                yield Offer(x, free, actions, context, names)

    def _said_in(self, rows: slice, features: np.ndarray) -> Iterator[tuple[Any, Any, Any]]:
        """What was said in some decisions of the actions and the context, and their names."""
        if self.said is not None:
            for offer in self.said[rows]:
                actions = [offer.said_of(n) for n in range(len(offer.available))]
                context = offer.context
                context = from_text(context) if isinstance(context, str) else context
                yield actions, context, offer.names
            return
        around = self.dim if self.shared else self._around
        sizes = [self.arms] * len(features) if self._sizes is None else self._sizes[rows]
        for x, size in zip(features, sizes, strict=True):
            actions = [None] * size if self.shared else x[:size, around:]
            yield actions, x[0, :around] if around else None, self.actions


def slices(stop: int, start: int = 0) -> Iterator[slice]:
    """The rows from `start` to `stop` in parts that are looked at together."""
    for first in range(start, stop, CHUNK):
        yield slice(first, min(first + CHUNK, stop))


def refuse(wrong: Any, message: str, *columns: Any) -> None:
    """Raise an error if anything is wrong: the message is filled with how many of how many are, and
    with the first of them in each of the columns."""
    if wrong.any():
        first = [np.asarray(column[int(wrong.argmax())]).tolist() for column in columns]
        raise ValueError(message.format(f"{int(wrong.sum())} of {len(wrong)}", *first))


def plain(given: Any) -> np.ndarray:
    """A column of a data frame, a list or an array as an array."""
    return np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given)


def _check_same(message: str, word: str, sizes: dict[str, int]) -> None:
    if len(set(sizes.values())) > 1:
        words = [f"{size} {word} {name}" for name, size in sizes.items()]
        raise ValueError(message.format(", ".join(words)))


def _column(name: str, given: Any) -> np.ndarray:
    """One number per decision; None and missing values of any kind are NaN."""
    try:
        column = plain(given)
        if column.dtype.kind == "O":
            column = np.array([np.nan if missing(value) else value for value in column], np.float64)
        column = column.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one number per decision: {error}") from error
    if column.ndim != 1:
        raise ValueError(f"{name} must be one number per decision, got shape {column.shape}")
    return column


def _array(name: str, given: Any, *dims: int) -> Any:
    """An array, or what can be sliced like one, left where it is."""
    given = given if hasattr(given, "shape") and hasattr(given, "dtype") else np.asarray(given)
    if len(given.shape) not in dims or given.dtype.kind not in "fiub":
        wanted = {"features": "(n, K, d) or (K, d)", "context": "(n, d)"}.get(name, "(n, K)")
        raise ValueError(
            f"{name} must be numbers of shape {wanted}, got {given.dtype} {tuple(given.shape)}"
        )
    return given


def _positions(chosen: Any, actions: list[Any] | None) -> np.ndarray:
    """The chosen actions by position; names are looked up."""
    where = {name: i for i, name in enumerate(actions or ())}
    if actions is not None and len(where) < len(actions):
        twice = ", ".join(repr(name) for name, n in Counter(actions).items() if n > 1)
        raise ValueError(f"the names in `actions` must differ, got {twice} more than once")
    given = plain(chosen)
    if given.ndim != 1:
        raise ValueError(f"chosen must be one action per decision, got shape {given.shape}")
    if given.dtype.kind in "iu" and not (actions and all(isinstance(a, int) for a in actions)):
        return given.astype(np.int64, copy=False)
    if actions is None:
        raise TypeError(f"chosen must be positions, or names with `actions=[...]`; got {given[:3]}")
    if unknown := Counter(name for name in given.tolist() if name not in where):
        words = ", ".join(f"{name!r} ({n} times)" for name, n in unknown.most_common(20))
        raise ValueError(f"chosen has actions that are not among `actions`: {words}")
    return np.array([where[name] for name in given.tolist()], np.int64)


def _checked_propensity(
    chosen: np.ndarray, propensity: Any, propensities: Any, available: np.ndarray
) -> np.ndarray:
    """That of the chosen actions (n,), given like this or among those of all actions (n, K)."""
    if propensity is None and propensities is None:
        raise ValueError(
            "give the propensity of every chosen action (or propensities of all of them): how "
            "likely it was to be chosen; nothing can be estimated without"
        )
    rows = np.arange(len(chosen))
    every: Any = propensity if propensities is None else propensities[rows, chosen]
    propensity = every if propensity is None else propensity
    wrong = {
        "missing": np.isnan(propensity),
        "0 or below": propensity <= 0,
        "above 1": propensity > 1 + 1e-6,
    }
    for what, where in wrong.items():
        words = "the propensity of a chosen action must be above 0 and at most 1: {} are "
        refuse(where, words + what)
    if propensities is not None:
        refuse(
            (propensities < 0).any(axis=1) | ~(np.abs(propensities.sum(axis=1) - 1) < 1e-3),
            "propensities of a decision must be at least 0 and sum to 1: {} do not, the first is "
            "decision {}: {}",
            *(rows, propensities),
        )
        beyond = ((propensities > 0) & ~available).any(axis=1)
        refuse(beyond, "there are propensities above 0 of actions not available in {} decisions")
    refuse(
        np.abs(propensity - every) > 1e-6 + 1e-3 * every,
        "propensity and propensities must agree: {} do not, the first is decision {}, whose "
        "propensity is {:g} and whose propensities say {:g} of the chosen action {}",
        *(rows, propensity, every, chosen),
    )
    return propensity
