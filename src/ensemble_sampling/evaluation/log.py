"""A log of decisions as arrays: what was on offer, what was chosen how likely, what came of it."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

CHUNK = 8192  # decisions looked at together: all of their features fit into the cache, nearly


class Offers(NamedTuple):
    """What was on offer in some of the decisions.

    features: (m, K, d) of every action, or (m, 1, d) where they share a context
    available: (m, K) which of the K could be chosen, or None for all
    propensities: (m, K) how likely each was to be chosen, or None where only the chosen one's is
        known
    names: of the actions of each decision, where these differ; None: see `Log.actions`
    """

    rows: slice
    features: np.ndarray
    available: np.ndarray | None
    propensities: np.ndarray | None
    names: Sequence[Sequence[Any]] | None = None


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

    What is wrong is said by name and with its count, before anything is computed from it.
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
        self.names: Sequence[Sequence[Any]] | None = None  # of each decision, where they differ
        if self.actions is not None and len(set(self.actions)) < len(self.actions):
            twice = [name for name, n in Counter(self.actions).items() if n > 1]
            said = ", ".join(map(repr, twice))
            raise ValueError(f"the names in `actions` must differ, got {said} more than once")
        outcome = _column("outcome", outcome)
        count = len(outcome)
        if features is not None and context is not None:
            raise ValueError("give the features of all actions or the context they share, not both")
        self._fixed = features is not None and len(np.shape(features)) == 2
        self.shared = features is None
        if features is None and context is None:
            context = np.zeros((count, 0))
        what, given = ("context", context) if features is None else ("features", features)
        self._given: Any = _shaped(what, given, 3 - (self.shared or self._fixed))
        self._propensities = _optional("propensities", propensities)
        self._available = _optional("available", available)
        self._index = _positions(chosen, self.actions)
        self.arms = self._arms()
        self._lengths(count, propensity)
        self._check_chosen()
        likely = self._checked_propensity(propensity)
        self._check_all()
        self._check_same(likely)
        known = np.isfinite(outcome)
        if np.isinf(outcome).any():
            raise ValueError(f"outcomes must be finite: {_counted(np.isinf(outcome))} are infinite")
        if not known.any():
            raise ValueError(f"none of the {count} decisions has an outcome")
        self._rows = rows = None if known.all() else np.flatnonzero(known)
        self.excluded = {} if rows is None else {"outcome missing": count - len(rows)}
        self.chosen = self._index if rows is None else self._index[rows]
        self.outcome = outcome if rows is None else outcome[rows]
        self.propensity = likely if rows is None else likely[rows]

    def _arms(self) -> int:
        """How many actions there are, as everything that says so agrees on."""
        said = {
            "actions": self.actions and len(self.actions),
            "features": None if self.shared else self._given.shape[-2],
            "propensities": self._propensities is not None and self._propensities.shape[1],
            "available": self._available is not None and self._available.shape[1],
        }
        said = {name: int(size) for name, size in said.items() if size}
        if len(set(said.values())) > 1:
            words = ", ".join(f"{size} in {name}" for name, size in said.items())
            raise ValueError(f"the number of actions must be the same everywhere, got {words}")
        return next(iter(said.values()), int(self._index.max(initial=0)) + 1)

    def _lengths(self, count: int, propensity: Any) -> None:
        said = {
            "chosen": len(self._index),
            "outcome": count,
            "propensity": None if propensity is None else len(propensity),
            "propensities": None if self._propensities is None else len(self._propensities),
            "available": None if self._available is None else len(self._available),
            "context" if self.shared else "features": None if self._fixed else len(self._given),
        }
        said = {name: size for name, size in said.items() if size is not None}
        if len(set(said.values())) > 1:
            words = ", ".join(f"{size} of {name}" for name, size in said.items())
            raise ValueError(f"a log has one entry per decision in everything, got {words}")
        if not count:
            raise ValueError("a log must hold at least one decision, got none")

    def _check_chosen(self) -> None:
        wrong = (self._index < 0) | (self._index >= self.arms)
        if wrong.any():
            raise ValueError(
                f"chosen must be between 0 and {self.arms - 1}: {_counted(wrong)} are not, the "
                f"first is {self._index[wrong][0]}"
            )
        if self._available is not None:
            offered = np.asarray(self._available)[np.arange(len(self._index)), self._index]
            if not offered.all():
                raise ValueError(f"{_counted(~offered.astype(bool))} chose what was not available")

    def _checked_propensity(self, given: Any) -> np.ndarray:
        """That of the chosen action, whichever way it was given."""
        if given is not None:
            propensity = _column("propensity", given)
        elif self._propensities is not None:
            rows = np.arange(len(self._index))
            propensity = np.asarray(self._propensities)[rows, self._index].astype(np.float64)
        else:
            raise ValueError(
                "give the propensity of every chosen action (or propensities of all of them): how "
                "likely it was to be chosen; nothing can be estimated without"
            )
        words = {
            "are missing": np.isnan(propensity),
            "are 0 or below": propensity <= 0,
            "are above 1": propensity > 1 + 1e-6,
        }
        if said := [f"{_counted(wrong)} {word}" for word, wrong in words.items() if wrong.any()]:
            raise ValueError(
                "the propensity of a chosen action must be above 0 and at most 1: "
                + "; ".join(said)
            )
        return propensity

    def _check_all(self) -> None:
        """The propensities of all actions are probabilities of those on offer."""
        if self._propensities is None:
            return
        for rows in slices(len(self._index)):
            chances = np.asarray(self._propensities[rows], np.float64)
            off = ~((chances >= 0).all(axis=1) & (np.abs(chances.sum(axis=1) - 1) < 1e-3))
            if off.any():
                at = rows.start + int(off.argmax())
                raise ValueError(
                    "propensities of a decision must be at least 0 and sum to 1: those of decision "
                    f"{at} do not, nor of {int(off.sum()) - 1} after it: "
                    f"{self._propensities[at].tolist()}"
                )
            if self._available is not None and (chances[~self._available[rows].astype(bool)]).any():
                raise ValueError("there are propensities above 0 of actions not available")

    def _check_same(self, propensity: np.ndarray) -> None:
        """What was said of the chosen action is what was said of all of them."""
        if self._propensities is None:
            return
        every = np.asarray(self._propensities)[np.arange(len(self._index)), self._index]
        off = np.abs(propensity - every) > 1e-6 + 1e-3 * every
        if off.any():
            at = int(off.argmax())
            raise ValueError(
                f"propensity and propensities must agree: {_counted(off)} do not, the first is "
                f"decision {at}, whose propensity is {propensity[at]:g} and whose propensities say "
                f"{every[at]:g} of the chosen action {self._index[at]}"
            )

    @property
    def mark(self) -> str:
        """By which the same decisions and outcomes are known again."""
        found = hashlib.blake2b(self.chosen.tobytes(), digest_size=16)
        found.update(self.outcome.tobytes())
        return found.hexdigest()

    @cached_property
    def missing(self) -> int:
        """In how many of the decisions features are missing (NaN)."""
        return sum(
            int(np.isnan(offers.features).reshape(len(offers.features), -1).any(axis=1).sum())
            for offers in self.offers()
        )

    @classmethod
    def of(cls, source: Any, **columns: Any) -> "Log":
        """The log of a bandit, of a bandit's folder, or in the columns of a table: see `read`."""
        from .sources import read

        return read(source, **columns)

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
    def has_all_propensities(self) -> bool:
        return self._propensities is not None

    def _some(self, given: Any, rows: slice) -> np.ndarray:
        if self._rows is None:
            return np.asarray(given[rows])
        wanted = self._rows[rows]
        span = given[slice(wanted[0], wanted[-1] + 1)]  # a slice is what anything can give
        return np.asarray(span)[wanted - wanted[0]]

    def chosen_rows(self) -> np.ndarray:
        """The features (n, d) of the actions that were chosen, or the contexts they share."""
        if self.shared and self._rows is None:
            return self._given[:]
        if self._fixed:
            return np.asarray(self._given)[self.chosen]
        found = np.empty((len(self), self.dim), self._given.dtype)
        for offers in self.offers():
            index = 0 if self.shared else self.chosen[offers.rows]
            found[offers.rows] = offers.features[np.arange(len(offers.features)), index]
        return found

    def offers(self, size: int = CHUNK) -> Iterator[Offers]:
        """What was on offer in the decisions with outcomes, so many at a time."""
        for rows in slices(len(self), size):
            count = rows.stop - rows.start
            if self._fixed:
                features = np.broadcast_to(self._given, (count, *self._given.shape))
            else:
                features = self._some(self._given, rows)
                features = features[:, None] if self.shared else features
            off = np.isinf(features).reshape(count, -1).any(axis=1)
            if off.any():
                raise ValueError(
                    f"features must be finite: {_counted(off)} decisions from {rows.start} on have "
                    "others"
                )
            available = self._available
            available = None if available is None else self._some(available, rows).astype(bool)
            chances = self._propensities
            chances = None if chances is None else self._some(chances, rows)
            names = self.names and [self.names[at] for at in range(rows.start, rows.stop)]
            yield Offers(rows, features, available, chances, names)


def slices(count: int, size: int = CHUNK) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def missing(value: Any) -> bool:
    """Whether a cell of a table holds nothing: None, or pandas' word for it."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _counted(wrong: Any) -> str:
    return f"{int(wrong.sum())} of {len(wrong)}"


def _column(name: str, given: Any) -> np.ndarray:
    """One number per decision; None and missing values of any kind are NaN."""
    try:
        column = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given)
        if column.dtype.kind == "O":
            column = np.array([np.nan if missing(value) else value for value in column], np.float64)
        column = column.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be one number per decision: {error}") from error
    if column.ndim != 1:
        raise ValueError(f"{name} must be one number per decision, got shape {column.shape}")
    return column


def _optional(name: str, given: Any) -> Any:
    return None if given is None else _shaped(name, given, 2)


def _shaped(name: str, given: Any, dims: int) -> Any:
    """An array, or what can be sliced like one, left where it is."""
    given = given if hasattr(given, "shape") and hasattr(given, "dtype") else np.asarray(given)
    if len(given.shape) != dims or given.dtype.kind not in "fiub":
        wanted = {"features": "(n, K, d) or (K, d)", "context": "(n, d)"}.get(name, "(n, K)")
        raise ValueError(
            f"{name} must be numbers of shape {wanted}, got {given.dtype} {tuple(given.shape)}"
        )
    return given


def _positions(chosen: Any, actions: list[Any] | None) -> np.ndarray:
    """The chosen actions by position; names are looked up."""
    given = np.asarray(chosen.to_numpy() if hasattr(chosen, "to_numpy") else chosen)
    if given.ndim != 1:
        raise ValueError(f"chosen must be one action per decision, got shape {given.shape}")
    if given.dtype.kind in "iu" and not (actions and all(isinstance(a, int) for a in actions)):
        return given.astype(np.int64, copy=False)
    if actions is None:
        raise TypeError(f"chosen must be positions, or names with `actions=[...]`; got {given[:3]}")
    where: Mapping[Any, int] = {name: i for i, name in enumerate(actions)}
    found = np.array([where.get(name, -1) for name in given.tolist()], np.int64)
    if (found < 0).any():
        counts = Counter(given[found < 0].tolist()).most_common(20)
        words = ", ".join(f"{name!r} ({n} times)" for name, n in counts)
        raise ValueError(f"chosen has actions that are not among `actions`: {words}")
    return found
