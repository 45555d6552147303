"""Logs from where they are: a bandit, its folder, or the columns of a table."""

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..decide.bandit import Bandit, parts
from ..inputs.columns import is_frame
from ..ledger.ledger import Ledger
from ..ledger.sqlite import as_place, public
from .log import Log, missing

IN_MEMORY = 1 << 28  # bytes of features; more of them wait on disk
EXPORTED = ("index", "probabilities", "reward", "offer", "available", "actions")


def read(source: Any, **columns: Any) -> Log:
    """A `Log` of a bandit, of the folder of one, or of a table.

    A table is a data frame or a mapping from names to columns. Say which column is what, by the
    names that `Log` has for it: `chosen`, `outcome` and `propensity` or `propensities` (a column of
    lists, or a list of columns), `context` (likewise), `available`; `features` as an array
    and `actions` as a list. What `bandit.log()` and `export` write needs nothing said.
    """
    if isinstance(source, Log):
        return source
    if isinstance(source, Bandit | str | os.PathLike):
        if columns:
            raise TypeError(f"a bandit's log has its own columns, got {', '.join(columns)}")
        with _ledger(source) as ledger:
            most = ledger.ask("SELECT max(length(probabilities)) FROM decisions") or 0
            size = (ledger.outcomes, most // ledger.dtype.itemsize)
            where = "the bandit" if isinstance(source, Bandit) else public(source)
            log = _gathered(lambda: map(_decided, ledger.all(offers=True)), size, where)
            log.ledger = ledger.id
            return log
    if not isinstance(source, Mapping) and not is_frame(source):
        raise TypeError(f"a log comes from a bandit, a folder or a table, got {source!r}")
    if not columns and all(name in source for name in EXPORTED):
        rows = [_listed(source[name]) for name in EXPORTED]
        most = max((len(shares) for shares in map(_cell, rows[1]) if shares is not None), default=0)
        size = (len(rows[0]), most)
        return _gathered(
            lambda: (_exported(*row) for row in zip(*rows, strict=True)), size, "the table"
        )
    return _from_columns(source, columns)


@contextmanager
def _ledger(source: Any) -> Iterator[Ledger]:
    if isinstance(source, Bandit):
        with parts(source) as (_, ledger):
            yield ledger
        return
    ledger = Ledger(as_place(source), write=False)
    try:
        yield ledger
    finally:
        ledger.close()


class _Row(NamedTuple):
    """One decision; or why it cannot be used, as a text."""

    chosen: int
    reward: float
    propensity: float
    propensities: np.ndarray | None
    names: Sequence[Any] | None
    table: np.ndarray
    available: np.ndarray


def _decided(row: Any) -> _Row | str:
    """A decision of a ledger."""
    offer, shares = row.offer, None if row.foreign else row.probabilities
    if row.reward is None:
        return "outcome missing" if row.outcome is None else "reward not recorded"
    if row.probability is None:
        return "propensity missing"
    if offer is not None:
        about = (offer.names, offer.table, offer.available)
    elif shares is not None and len(row.features) == 0:  # there is nothing to know of it
        about = (None, np.zeros((1, 0)), np.ones(len(shares), bool))
    else:
        return "what was on offer was not recorded"
    return _Row(row.chosen, row.reward, row.probability, shares, *about)


def _exported(
    index: Any, shares: Any, reward: Any, offer: Any, available: Any, names: Any
) -> _Row | str:
    """A decision of a table that was written from a ledger."""
    if missing(reward) or math.isnan(reward):
        return "outcome missing"
    shares, offer, available, names = map(_cell, (shares, offer, available, names))
    if shares is None or offer is None:
        return "what was on offer was not recorded"
    shares = np.asarray(shares, np.float64)
    table = np.array([np.asarray(row, np.float64) for row in offer])
    if len(table) > 1 and all(np.array_equal(table[0], row, equal_nan=True) for row in table):
        table = table[:1]  # what all have in common
    names = None if names is None else list(names)
    on = np.asarray(available, bool)
    return _Row(int(index), float(reward), float(shares[int(index)]), shares, names, table, on)


def _cell(given: Any) -> Any:
    """What a cell holds: a list, which a CSV file has as text, or nothing."""
    if isinstance(given, str):
        return json.loads(given)
    return None if missing(given) or isinstance(given, float) else given  # a float is NaN here


def _gathered(rows: Callable[[], Iterable[_Row | str]], size: tuple[int, int], where: str) -> Log:
    """Decisions one by one into arrays; features of actions that share none of them to disk."""
    try:
        return _filled(rows(), size, where, shared=True)
    except _Unlike:
        return _filled(rows(), size, where, shared=False)


class _Unlike(Exception):
    """Not all actions of all decisions share their features."""


def _filled(rows: Iterable[_Row | str], size: tuple[int, int], where: str, shared: bool) -> Log:
    most, arms = size
    why, count, names, features = Counter[str](), 0, None, None
    index, reward, likely = np.zeros(most, np.int64), np.zeros(most), np.zeros(most)
    shares, free = np.zeros((most, arms)), np.zeros((most, arms), bool)
    unknown, fixed = False, True
    called: list[Any] = []
    for row in rows:
        if isinstance(row, str):
            why[row] += 1
            continue
        if shared and len(row.table) > 1:
            raise _Unlike
        width = row.table.shape[1]
        if features is None:
            names = row.names
            features = _zeros((most, width) if shared else (most, arms, width), row.table.dtype)
        fixed = fixed and (row.names is names or row.names == names)
        called.append(row.names)
        wide = len(row.available)
        if shared:
            features[count] = row.table[0]
        else:
            features[count, :wide] = row.table
        index[count], reward[count], likely[count] = row.chosen, row.reward, row.propensity
        free[count, :wide] = row.available
        if row.propensities is None:
            unknown = True
        else:
            shares[count, :wide] = row.propensities
        count += 1
    if features is None:
        said = ", ".join(f"{n} times {text}" for text, n in why.items()) or "it is empty"
        raise ValueError(f"no decision in {where} can be evaluated: {said}")
    told = not unknown
    log = Log(
        index[:count],
        reward[:count],
        likely[:count],
        propensities=shares[:count] if told else None,
        available=None if free[:count].all() else free[:count],
        actions=list(names) if fixed and names is not None and len(names) == arms else None,
        **{"context" if shared else "features": features[:count]},
    )
    if not fixed and all(each is not None for each in called):
        log.names = called
    log.excluded = dict(why) | log.excluded
    return log


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """In memory or, where that would be too much, in a file without a name."""
    if len(shape) > 2 and math.prod(shape) * dtype.itemsize > IN_MEMORY:
        file = tempfile.TemporaryFile(prefix="ensemble-sampling-")  # noqa: SIM115 (the map keeps it)
        return np.memmap(file, dtype, "w+", shape=shape)
    return np.zeros(shape, dtype)


def _from_columns(table: Any, columns: dict[str, Any]) -> Log:
    """A log from a table whose columns were named."""
    known = {"chosen", "outcome", "propensity", "propensities", "context", "available"}
    given: dict[str, Any] = {}
    for name, said in columns.items():
        if name in ("features", "actions"):
            given[name] = said
        elif name not in known:
            raise TypeError(f"a log has no {name!r}; say which columns are {', '.join(known)}")
        elif said is not None:
            given[name] = _taken(table, name, said)
    for name in ("chosen", "outcome"):
        if name not in given:
            raise ValueError(f"say which column is the {name}: Log.of(table, {name}=...)")
    return Log(**given)


def _taken(table: Any, what: str, said: Any) -> np.ndarray:
    names = [said] if isinstance(said, str) else list(said)
    if missing := [name for name in names if name not in table]:
        has = ", ".join(repr(name) for name in (table.columns if is_frame(table) else table))
        raise ValueError(
            f"{what}: the table has no column {', '.join(map(repr, missing))}; there are {has}"
        )
    parts = [_array(table[name]) for name in names]
    if isinstance(said, str):
        column = parts[0]
        nested = column.dtype.kind == "O" and len(column) and hasattr(column[0], "__len__")
        if nested and not isinstance(column[0], str):
            return np.array([np.asarray(row) for row in column])
        return column[:, None] if what == "context" and column.ndim == 1 else column
    return np.stack(parts, axis=1)


def _array(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _listed(column: Any) -> list[Any]:
    return column.to_list() if hasattr(column, "to_list") else list(column)
