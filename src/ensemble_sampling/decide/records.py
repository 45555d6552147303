"""What a ledger records, as values and as the rows of its tables."""

import json
from collections.abc import Sequence
from math import isnan
from typing import Any, NamedTuple

import numpy as np


class Decided(NamedTuple):
    """A decision as the ledger holds it, with its outcome if that has come."""

    number: int
    time: float
    chosen: int
    action: Any
    features: np.ndarray
    probabilities: np.ndarray
    outcome: Any = None
    reward: float | None = None
    learned: float | None = None
    expired: bool = False


class Observed(NamedTuple):
    """An outcome to be recorded."""

    decision: int
    outcome: Any
    reward: float | None
    expired: bool = False


class Name(NamedTuple):
    """The id that decisions go by after the first `decisions`, until the next."""

    id: str
    decisions: int
    outcomes: int


def rounded(row: Decided, dtype: np.dtype) -> Decided:
    """As a reading of the ledger will give it."""
    if row.features.dtype == dtype and row.probabilities.dtype == dtype:
        return row
    return row._replace(
        features=row.features.astype(dtype), probabilities=row.probabilities.astype(dtype)
    )


def decision_row(row: Decided) -> tuple[Any, ...]:
    name = None if row.action is None else json.dumps(row.action)
    numbers = (row.features.tobytes(), row.probabilities.tobytes())
    return (row.number, float(row.time), row.chosen, name, *numbers)


def outcome_row(sequence: int, time: float, row: Observed) -> tuple[Any, ...]:
    """SQLite would not give back a reward that is not a number, nor the sign of zero."""
    reward = None if row.reward is None or isnan(row.reward) else float(row.reward) + 0.0
    return (sequence, row.decision, time, json.dumps(row.outcome), reward, int(row.expired))


def from_rows(decision: Sequence[Any], outcome: Sequence[Any] | None, dtype: np.dtype) -> Decided:
    number, at, chosen, action, features, shares = decision
    row = Decided(
        number,
        at,
        chosen,
        None if action is None else json.loads(action),
        np.frombuffer(features, dtype),
        np.frombuffer(shares, dtype),
    )
    if outcome is None:
        return row
    _, _, learned, text, reward, expired = outcome
    known = (json.loads(text), reward, learned, bool(expired))
    return Decided(*row[:6], *known)
