"""What a ledger records, as values and as the rows of its tables."""

import json
from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any, NamedTuple

import numpy as np

from .offers import Offered


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
    first: Any = None  # the outcome before it was revised
    revised: float | None = None
    foreign: bool = False  # made elsewhere: only the chosen action's probability is known, if any
    offer: Offered | None = None

    @property
    def probability(self) -> float | None:
        """How likely it was to choose what was chosen."""
        if not self.foreign:
            return float(self.probabilities[self.chosen])
        return float(self.probabilities[0]) if len(self.probabilities) else None


class Observed(NamedTuple):
    """An outcome to be recorded."""

    decision: int
    outcome: Any
    reward: float | None
    expired: bool = False


class Revised(NamedTuple):
    """An outcome that takes the place of another, to be recorded; the sum, where it was added."""

    decision: int
    outcome: Any
    reward: float | None
    added: Any = None
    ref: str | None = None


class Opinion(NamedTuple):
    """What a shadow would have done in a decision."""

    decision: int
    shadow: int
    chosen: int
    probability: float  # of what was really chosen
    propensity: float  # which that really had


class Event(NamedTuple):
    """By what id of their own callers know a decision.

    slot: which of several decisions of one event.
    deferred: nothing is assumed of its outcome before it is activated.
    """

    event: str
    slot: str
    decision: int
    deferred: bool = False


class Name(NamedTuple):
    """The id that decisions go by after the first `decisions`, until the next."""

    id: str
    decisions: int
    outcomes: int
    time: float


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


def event_row(number: int, row: Event) -> tuple[Any, ...]:
    return (number, row.event, row.slot, row.decision, int(row.deferred))


def outcome_row(sequence: int, time: float, row: Observed) -> tuple[Any, ...]:
    about = (_spelled(row.outcome), _number(row.reward), int(row.expired))
    return (sequence, row.decision, time, *about)


def _spelled(outcome: Any) -> str:
    """As JSON, which spells a finite number as Python does, in ten times the time."""
    return repr(outcome) if type(outcome) is float and isfinite(outcome) else json.dumps(outcome)


def revision_row(number: int, nth: int, time: float, row: Revised) -> tuple[Any, ...]:
    added = None if row.added is None else json.dumps(row.added)
    about = (json.dumps(row.outcome), _number(row.reward))
    return (number, row.decision, nth, time, added, row.ref, *about)


def _number(reward: float | None) -> float | None:
    """SQLite would not give back one that is not a number, nor the sign of zero."""
    return None if reward is None or isnan(reward) else float(reward) + 0.0


def from_rows(
    decision: Sequence[Any],
    outcome: Sequence[Any] | None,
    revision: Sequence[Any] | None,
    dtype: np.dtype,
) -> Decided:
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
    first = json.loads(text)
    if revision is None:
        return Decided(*row[:6], first, reward, learned, bool(expired), first)
    _, _, nth, revised, added, _, text, reward = revision
    now = json.loads(text)
    begun = nth == 1 and added is not None and now == first  # the first of what adds up
    at = None if begun else revised
    return Decided(*row[:6], now, reward, learned, bool(expired) and begun, first, at)
