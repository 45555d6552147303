"""The log of a bandit as a table, in columns for data frames."""

import json
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

ARRAYS = ("[number]", "[bool]", "context", "action", "[action]")  # what may be one in an entry
TAGGED = '{"$'  # what JSON has not


class Entries:
    """Makes an entry of every decision: its columns in their order, numbers that belong together as
    arrays. Descriptions and names that are on offer again are the same objects again: a log of
    many actions takes little time and memory."""

    def __init__(self, id_of: Callable[[int], str]):
        self._id_of = id_of
        self._before: tuple[Any, Any] = (None, None)  # names and actions of the last offer
        self._told: tuple[Any, Any] = (None, None)  # what was said of it

    def __call__(self, row: DecisionRow) -> tuple[Any, ...]:
        offer, available, names, actions = row.offer, None, None, None
        chosen: Any = row.features
        context = said(row.context if offer is None or offer.context is None else offer.context)
        if offer is not None:
            if offer.actions is not self._before[1] or offer.names is not self._before[0]:
                names = None if offer.names is None else list(offer.names)
                self._before = offer.names, offer.actions
                self._told = names, said(offer.actions)
            available, (names, actions) = offer.available, self._told
        if row.description is not None:
            chosen = said(row.description) if actions is None else actions[row.chosen]
        return (
            self._id_of(row.number),
            row.time,
            row.chosen,
            row.action,
            row.probability,
            None if row.foreign else row.probabilities,
            chosen,
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
            names,
            available,
            actions,
        )


def said(given: Any) -> Any:
    """A row or table of numbers, or a description or several, as it was given."""
    if isinstance(given, str):
        return from_text(given) if TAGGED in given else json.loads(given)  # which is faster
    return given if given is None or isinstance(given, np.ndarray) else list(map(said, given))


def columns(entries: Iterable[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Entries in columns of plain values and lists."""
    found = list(zip(*entries, strict=True)) or [()] * len(COLUMNS)
    return {
        name: list(map(plain, one)) if kind in ARRAYS else list(one)
        for (name, kind), one in zip(COLUMNS.items(), found, strict=True)
    }


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
