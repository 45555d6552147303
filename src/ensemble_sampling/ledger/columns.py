"""The log of a bandit as a table, in columns for data frames."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..inputs.descriptions import from_text
from .rows import DecisionRow

COLUMNS = {  # and what they are in Parquet: one value, or lists of values
    "id": "text",
    "time": "float",
    "index": "int",
    "action": "text",
    "probability": "float",
    "probabilities": "[number]",
    "features": "action",
    "outcome": "outcome",
    "reward": "float",
    "learned": "float",
    "expired": "bool",
    "first": "outcome",
    "revised": "float",
    "foreign": "bool",
    "control": "bool",
    "holdback": "float",
    "baseline": "float",
    "subject": "text",
    "context": "context",
    "actions": "[text]",
    "available": "[bool]",
    "offer": "[action]",
}


def entry(row: DecisionRow, id_of: Callable[[int], str]) -> tuple[Any, ...]:
    """One decision in the order of COLUMNS, numbers that belong together as arrays."""
    offer, context, offered = row.offer, from_text(row.context), (None, None, None)
    if offer is not None:
        context = context if offer.context is None else said(offer.context)
        names = None if offer.names is None else list(offer.names)
        offered = (names, offer.available, said(offer.actions))
    return (
        id_of(row.number),
        row.time,
        row.chosen,
        row.action,
        row.probability,
        None if row.foreign else row.probabilities,
        row.features if row.description is None else from_text(row.description),
        row.outcome,
        row.reward,
        row.learned,
        row.expired,
        row.first,
        row.revised,
        row.foreign,
        *(row.held or (None, None, None)),
        row.subject,
        context,
        *offered,
    )


def said(given: Any) -> Any:
    """A row or table of numbers, or a description or several, as it was given."""
    if isinstance(given, str):
        return from_text(given)
    return given if given is None or isinstance(given, np.ndarray) else list(map(from_text, given))


def columns(entries: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Every `entry` in columns of plain values and lists."""
    rows = [[plain(value) for value in one] for one in entries]
    return {name: [values[n] for values in rows] for n, name in enumerate(COLUMNS)}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
