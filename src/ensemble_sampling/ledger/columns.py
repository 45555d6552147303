"""The log of a bandit as a table, in columns for data frames."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .rows import DecisionRow

COLUMNS = {  # and what they are in Parquet: one value, or lists of values, or lists of those
    "id": "text",
    "time": "float",
    "index": "int",
    "action": "text",
    "probability": "float",
    "probabilities": "[number]",
    "features": "[number]",
    "outcome": "outcome",
    "reward": "float",
    "learned": "float",
    "expired": "bool",
    "first": "outcome",
    "revised": "float",
    "foreign": "bool",
    "context": "[number]",
    "actions": "[text]",
    "available": "[bool]",
    "offer": "[[number]]",
}


def entry(row: DecisionRow, id_of: Callable[[int], str]) -> tuple[Any, ...]:
    """One decision in the order of COLUMNS, numbers that belong together as arrays."""
    offer, offered = row.offer, (None, None, None, None)
    if offer is not None:
        around = row.features[: offer.context] if offer.context else None
        names = None if offer.names is None else list(offer.names)
        offered = (around, names, offer.available, offer.rows)
    return (
        id_of(row.number),
        row.time,
        row.chosen,
        row.action,
        row.probability,
        None if row.foreign else row.probabilities,
        row.features,
        row.outcome,
        row.reward,
        row.learned,
        row.expired,
        row.first,
        row.revised,
        row.foreign,
        *offered,
    )


def columns(entries: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Every `entry` in columns of plain values and lists."""
    rows = [[plain(value) for value in one] for one in entries]
    return {name: [values[n] for values in rows] for n, name in enumerate(COLUMNS)}


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
