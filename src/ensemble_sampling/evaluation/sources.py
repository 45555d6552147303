"""Readers of logs: from a bandit, from its folder, or from the columns of a table."""

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from numbers import Real
from typing import Any

import numpy as np

from ..decide.bandit import Bandit, parts
from ..inputs.descriptions import as_text, missing
from ..inputs.features import Columns, Inputs
from ..inputs.hashing import Hasher
from ..inputs.offer import Offer, everything, is_frame
from ..ledger.ledger import Ledger
from ..ledger.rows import DecisionRow
from ..ledger.sqlite import as_place, public
from .log import Log, plain
from .said import Made, Ragged, Said, in_units

EXPORTED = (
    "index",
    "probabilities",
    "reward",
    "features",
    "context",
    "offer",
    "available",
    "actions",
)
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
            with parts(source) as (replica, ledger):
                return _of_ledger(ledger, "the bandit", replica.inputs)
        with closing(Ledger(as_place(source), write=False)) as ledger:
            return _of_ledger(ledger, public(source), _recorded(ledger))
    if not isinstance(source, Mapping) and not is_frame(source):
        raise TypeError(
            f"a log comes from a bandit, a folder or a table, got {source!r}; evaluate "
            "and replay take the log first"
        )
    if columns or any(name not in source for name in EXPORTED):
        return _of_columns(source, columns)
    rows = zip(*(source[name] for name in EXPORTED), strict=True)
    framed = is_frame(source)
    return gather((_exported(framed, *row) for row in rows), "the table", Inputs(grows=True))


def gather(
    rows: Iterable[DecisionRow],
    where: str,
    inputs: Inputs,
    units: bool = True,
    excluded: Counter[str] | None = None,
) -> Log:
    """A log of decisions that are read one by one; what cannot be used is left out, and counted.

    inputs: make numbers of what was said; they grow with it.
    units: whether numbers in descriptions that are hashed are in units, as for the default agent.
    excluded: how often, and why, `rows` itself leaves something out.
    """
    excluded, said = Counter[str]() if excluded is None else excluded, Said()
    columns = chosen, outcomes, chances = array("q"), array("d"), array("d")
    shares, available = Ragged(), Ragged()
    described, shared, same, first = False, True, True, None
    for row in rows:
        if why := _unusable(row):
            excluded[why] += 1
            continue
        offer = row.offer or Offer(None, None, None, everything(len(row.probabilities)))
        inputs = inputs.covering([offer])
        described, shared = described or offer.described, shared and offer.actions is None
        first = offer.names if not len(said) else first
        same = same and (offer.names is first or offer.names == first)
        numbers = row.chosen, row.reward, row.probability
        for column, number in zip(columns, numbers, strict=True):
            column.append(number)  # pyright: ignore[reportArgumentType]
        said.add(offer)
        available.add(np.asarray(offer.available, bool))
        if not row.foreign:
            shares.add(np.asarray(row.probabilities, np.float64))
    if not len(said):
        out = ", ".join(f"{n} times {text}" for text, n in excluded.items()) or "it is empty"
        raise ValueError(f"no decision in {where} can be evaluated: {out}")

    def tables() -> Iterable[np.ndarray]:
        if units and inputs.hasher is not None:
            return in_units(said, chosen, inputs)
        return map(inputs.table, said)

    features: Any = Made(said, tables, inputs.width or 0, shared)
    if not described:  # what was said are the features themselves
        features = features.made
    log = Log(
        *map(np.array, (chosen, outcomes, chances)),
        propensities=shares[:] if len(shares) == len(said) else None,
        available=available[:],
        features=None if shared else features,
    )
    if same and first is not None and len(first) == log.arms:
        log.actions = list(first)  # not given above, where numbers would be looked up among them
    log.remember(said if described or not same else None, features, inputs, said.sizes)
    log.excluded = dict(excluded) | log.excluded
    return log


def _unusable(row: DecisionRow) -> str | None:
    """Why nothing can be learned from a decision, if so."""
    if row.reward is None:
        return "outcome missing" if row.outcome is None else "reward not recorded"
    if row.probability is None:
        return "propensity missing"
    known = len(row.features) or row.description is not None or row.context is not None
    if row.offer is None and (row.foreign or known):  # else there is nothing to know
        return "what was on offer was not recorded"
    return None


def _of_ledger(ledger: Ledger, where: str, inputs: Inputs) -> Log:
    units = "default" in (ledger.description or {"default": None})
    log = gather(ledger.all(offers=True), where, inputs, units)
    log.ledger = ledger.id
    return log


def _recorded(ledger: Ledger) -> Inputs:
    """How the bandit of a ledger makes numbers of what is said."""
    about = ledger.description
    if about is None:
        return Inputs(grows=True)
    try:
        hasher = Hasher.recorded(about["hasher"])
    except TypeError as error:
        raise ValueError(
            f"{public(ledger.place)} was begun with a hasher of its own, {about['hasher']}: open "
            "the bandit with it, and give that in place of the folder"
        ) from error
    columns = Columns.recorded(about.get("columns"))
    return Inputs(hasher=hasher, grows="default" in about, columns=columns)


def _exported(
    framed: bool,
    index: Any,
    shares: Any,
    reward: Any,
    row: Any,
    context: Any,
    offer: Any,
    free: Any,
    names: Any,
) -> DecisionRow:
    """A decision of a table that was written from a ledger; `framed`: of a data frame."""
    shares, row, context, offer, free, names = map(
        _cell, (shares, row, context, offer, free, names)
    )
    reward, stored = None if missing(reward) else float(reward), None
    if free is not None:
        structs = framed and not isinstance(free, list)
        actions = (
            None if offer is None else _given([_said(one, structs) for one in offer], "action")
        )
        around = None if context is None else _given([_said(context, structs)], "context")
        around = around if around is None else around[0]
        names = None if names is None else list(names)
        stored = Offer(actions, around, names, np.asarray(free, bool))
    said = "" if isinstance(row, str | Mapping) else None  # that something was
    numbers = np.zeros(0 if row is None or said is not None else len(row))
    chances = np.asarray([] if shares is None else shares, float)
    about = DecisionRow(0, 0.0, int(index), None, numbers, chances, description=said, offer=stored)
    return about._replace(reward=reward, outcome=reward, foreign=shares is None)


def _cell(given: Any) -> Any:
    """What a cell holds: a list or a description, which a CSV file has as JSON, or nothing."""
    if isinstance(given, str):
        return _from_json(given)
    return None if missing(given) else given


def _from_json(text: str) -> Any:
    """Text, unless it is a list or a description as JSON."""
    try:
        return json.loads(text) if text[:1] in ("[", "{") else text
    except ValueError:
        return text


def _said(value: Any, structs: bool) -> Any:
    """What was said, of a frame; structs, as of Parquet and polars, have all fields there are, and
    what is nested in them, or of several kinds, as JSON."""
    if isinstance(value, Mapping):
        if not structs:
            return value
        return {name: _said(one, True) for name, one in value.items() if not missing(one)}
    return _from_json(value) if structs and isinstance(value, str) else value


def _given(said: list[Any], what: str) -> Any:
    """Rows of numbers as a table, anything else as descriptions."""
    if not all(_is_row(one) for one in said):
        return [as_text(one, what) for one in said]
    rows = [[np.nan if missing(number) else number for number in one] for one in said]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"actions must have as many numbers each, got {rows}")
    return np.array(rows, np.float64)


def _is_row(said: Any) -> bool:
    """Whether it is a row of numbers, of which some may be missing."""
    if isinstance(said, np.ndarray) or not isinstance(said, str | Mapping):
        several = hasattr(said, "__len__")
        return several and all(missing(n) or isinstance(n, Real) for n in said)
    return False


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
