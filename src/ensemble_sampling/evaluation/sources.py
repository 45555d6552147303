"""Readers of logs: from a bandit, from its folder, or from the columns of a table."""

import json
import math
import os
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from ..decide.bandit import Bandit, parts
from ..inputs.columns import is_frame
from ..inputs.hashing import missing
from ..ledger.ledger import Ledger
from ..ledger.rows import DecisionRow, StoredOffer
from ..ledger.sqlite import as_place, public
from .log import Log, plain

IN_MEMORY = 1 << 28  # bytes of features; more of them wait on disk
EXPORTED = ("index", "probabilities", "reward", "features", "offer", "available", "actions")
COLUMNS = ("chosen", "outcome", "propensity", "propensities", "context", "available")


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
        if isinstance(source, Bandit):
            with parts(source) as (_, ledger):
                return _of_ledger(ledger, "the bandit")
        with closing(Ledger(as_place(source), write=False)) as ledger:
            return _of_ledger(ledger, public(source))
    if not isinstance(source, Mapping) and not is_frame(source):
        raise TypeError(f"a log comes from a bandit, a folder or a table, got {source!r}")
    if columns or any(name not in source for name in EXPORTED):
        return _of_columns(source, columns)
    rows = zip(*(source[name] for name in EXPORTED), strict=True)
    return gather((_exported(*row) for row in rows), "the table")


def gather(rows: Iterable[DecisionRow], where: str) -> Log:
    """A log of decisions that are read one by one; what cannot be used is left out, and counted."""
    excluded, names = Counter[str](), []
    columns: list[Any] = [array("q"), array("d"), array("d")]
    tables, shares, available = _Ragged(), _Ragged(), _Ragged()
    for row in rows:
        if why := _unusable(row):
            excluded[why] += 1
            continue
        every = np.ones(len(row.probabilities), bool)
        offer = row.offer or StoredOffer(None, np.zeros((1, 0)), 0, every)
        numbers = row.chosen, row.reward, row.probability
        for column, number in zip(columns, numbers, strict=True):
            column.append(number)
        names.append(offer.names)
        tables.add(offer.table)
        available.add(np.asarray(offer.available, bool))
        if not row.foreign:
            shares.add(np.asarray(row.probabilities, np.float64))
    if not names:
        said = ", ".join(f"{n} times {text}" for text, n in excluded.items()) or "it is empty"
        raise ValueError(f"no decision in {where} can be evaluated: {said}")
    first, arms = names[0], available.shape[1]
    same = all(each is first or each == first for each in names)
    offered = {"context": tables[:][:, 0]} if tables.shape[1] == 1 else {"features": tables}
    tables.widths = available.sizes
    log = Log(
        *map(np.array, columns),
        propensities=shares[:] if len(shares) == len(names) else None,
        available=available[:],
        actions=list(first) if same and first is not None and len(first) == arms else None,
        **offered,
    )
    log.names = names if not same and None not in names else None
    log.excluded = dict(excluded) | log.excluded
    return log


def _unusable(row: DecisionRow) -> str | None:
    """Why nothing can be learned from a decision, if so."""
    if row.reward is None:
        return "outcome missing" if row.outcome is None else "reward not recorded"
    if row.probability is None:
        return "propensity missing"
    if row.offer is None and (row.foreign or len(row.features)):  # else there is nothing to know
        return "what was on offer was not recorded"
    return None


class _Ragged:
    """An array (K, ...) for every decision, where K differs, read as one array (n, K, ...) that is
    filled up with zeros. Beyond `IN_MEMORY` it waits in a file without a name.

    sizes: the K of every decision
    widths: how many actions each has: more, where a single row stands for all of them
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 (slices read it later)
        self.sizes = self.widths = array("q")

    def add(self, part: np.ndarray) -> None:
        if not self.sizes:
            self.dtype, self._row = part.dtype, part.shape[1:]
        elif part.shape[1:] != self._row:
            raise ValueError(f"actions must have {self._row} features, got {part.shape[1:]}")
        self.sizes.append(len(part))
        self._file.write(part.astype(self.dtype, copy=False).tobytes())

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), max(self.widths), *self._row

    def __getitem__(self, decisions: slice) -> np.ndarray:
        start, stop, _ = decisions.indices(len(self))
        sizes, widths = (np.array(each[start:stop])[:, None] for each in (self.sizes, self.widths))
        count, size = sizes.sum(), math.prod(self._row) * self.dtype.itemsize
        self._file.seek(sum(self.sizes[:start]) * size)
        rows = np.frombuffer(self._file.read(count * size), self.dtype).reshape(count, *self._row)
        action = np.arange(self.shape[1])
        found = rows[np.cumsum(sizes, axis=0) - sizes + np.minimum(action, sizes - 1)]
        found[action >= widths] = 0
        return found


def _of_ledger(ledger: Ledger, where: str) -> Log:
    log = gather(ledger.all(offers=True), where)
    log.ledger = ledger.id
    return log


def _exported(
    index: Any, shares: Any, reward: Any, row: Any, offer: Any, available: Any, names: Any
) -> DecisionRow:
    """A decision of a table that was written from a ledger."""
    shares, row, offer, available, names = map(_cell, (shares, row, offer, available, names))
    reward, stored = None if missing(reward) else float(reward), None
    if offer is not None:
        table = np.array([np.asarray(each, np.float64) for each in offer])
        same = all(np.array_equal(table[0], each, equal_nan=True) for each in table)
        names = None if names is None else list(names)
        stored = StoredOffer(names, table[:1] if same else table, 0, np.asarray(available, bool))
    row, chances = (np.asarray([] if part is None else part, float) for part in (row, shares))
    about = (None, row, chances, reward, reward)
    return DecisionRow(0, 0.0, int(index), *about, foreign=shares is None, offer=stored)


def _cell(given: Any) -> Any:
    """What a cell holds: a list, which a CSV file has as text, or nothing."""
    if isinstance(given, str):
        return json.loads(given)
    return None if missing(given) else given


def _of_columns(table: Any, columns: dict[str, Any]) -> Log:
    """A log from a table whose columns were named."""
    given = {name: columns[name] for name in ("features", "actions") if name in columns}
    for name, said in columns.items():
        if name not in (*COLUMNS, *given):
            raise TypeError(f"a log has no {name!r}; say which columns are {', '.join(COLUMNS)}")
        if name not in given and said is not None:
            given[name] = _taken(table, name, said)
    for name in ("chosen", "outcome"):
        if name not in given:
            raise ValueError(f"say which column is the {name}: Log.of(table, {name}=...)")
    return Log(**given)


def _taken(table: Any, what: str, said: Any) -> np.ndarray:
    """A column, or several beside each other."""
    names = [said] if isinstance(said, str) else list(said)
    if unknown := [name for name in names if name not in table]:
        has = ", ".join(repr(name) for name in (table.columns if is_frame(table) else table))
        raise ValueError(
            f"{what}: the table has no column {', '.join(map(repr, unknown))}; there are {has}"
        )
    columns = [plain(table[name]) for name in names]
    if not isinstance(said, str):
        return np.stack(columns, axis=1)
    (column,) = columns
    nested = column.dtype.kind == "O" and len(column) and hasattr(column[0], "__len__")
    if nested and not isinstance(column[0], str):
        return np.array([np.asarray(row) for row in column])
    return column[:, None] if what == "context" and column.ndim == 1 else column
