"""What a ledger records, as values and as the rows of its tables, each with a checksum."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from ..files import Damaged
from ..inputs.offer import Offer

PAGE = 256  # rows that are read at a time


ERASED = ""  # the subject of a decision of which nothing is known any more


class DecisionRow(NamedTuple):
    """A decision as the ledger holds it; from `sequence` on, its outcome if that has come. What was
    on offer, which is in other tables, is last.

    context, description: what was said of the context and of the chosen action, as JSON.
    features: numbers that were given of either, those of the context first.
    available: a bit for every action on offer; None: all could be chosen.
    held: whether it was left to the baseline, where a part of decisions is; see `Held`.
    sequence: the place of its outcome in the order of learning.
    first: the outcome before it was revised.
    foreign: whether it was made elsewhere: only the chosen action's probability is known, if any.
    """

    number: int
    time: float
    chosen: int
    action: Any
    features: np.ndarray
    probabilities: np.ndarray
    context: str | None = None
    description: str | None = None
    subject: str | None = None
    available: bytes | None = None
    held: "Held | None" = None
    sequence: int | None = None
    outcome: Any = None
    reward: float | None = None
    learned: float | None = None
    expired: bool = False
    first: Any = None
    revised: float | None = None
    foreign: bool = False
    offer: Offer | None = None

    @property
    def erased(self) -> bool:
        """Whether nothing is known of it any more."""
        return self.subject == ERASED

    @property
    def probability(self) -> float | None:
        """How likely it was to choose what was chosen."""
        if not self.foreign:
            return float(self.probabilities[self.chosen])
        return float(self.probabilities[0]) if len(self.probabilities) else None


class Held(NamedTuple):
    """How a decision was made while a part of them is held back from the agent.

    The probabilities of such a decision are those of the whole process: `holdback` times those of
    the baseline, and the agent's for the rest.

    control: whether it was the baseline that chose.
    holdback: how likely that was.
    baseline: how likely the baseline was to choose what was chosen.
    """

    control: bool
    holdback: float
    baseline: float


class OutcomeRow(NamedTuple):
    """An outcome to be recorded."""

    decision: int
    outcome: Any
    reward: float | None
    expired: bool = False


class RevisionRow(NamedTuple):
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


class Change(NamedTuple):
    """A setting that was changed after so many decisions."""

    decision: int
    time: float
    name: str
    value: Any
    who: str | None


class Name(NamedTuple):
    """The id that decisions go by after the first `decisions`, until the next."""

    id: str
    decisions: int
    outcomes: int
    time: float


class Base(NamedTuple):
    """What is no longer in the tables of a ledger, and is known by a state that is kept.

    decisions: the number of the first that is left.
    outcomes, revisions: how many the base state knows, so that replays begin after them.
    gone: how many outcomes were removed.
    offers: the number of the first row of that table.
    counts: how many rows the tables had when some were removed.
    """

    decisions: int = 0
    outcomes: int = 0
    revisions: int = 0
    gone: int = 0
    offers: int = 0
    time: float | None = None
    counts: dict[str, int] = {}  # noqa: RUF012 (never changed)


def decided(
    number: int,
    time: float,
    offer: Offer,
    index: int,
    probabilities: np.ndarray,
    subject: str | None = None,
    held: Held | None = None,
) -> DecisionRow:
    """The row of a decision for one of the actions on offer."""
    context, actions, name = offer.context, offer.actions, None
    if offer.names is not None:
        name = offer.names[index]
    numbers, description = [], None
    if isinstance(context, np.ndarray):
        numbers, context = [context], None
    if isinstance(actions, np.ndarray):
        numbers.append(actions[index])
    elif actions is not None:
        description = actions[index]
    features = np.concatenate(numbers or [np.zeros(0)]).astype(probabilities.dtype)
    about = (features, probabilities, context, description, subject, None, held)
    return DecisionRow(number, time, index, name, *about, offer=offer)


def decision_row(
    row: DecisionRow, item: int | None, available: bytes | None, dtype: np.dtype
) -> tuple[Any, ...]:
    name = None if row.action is None else json.dumps(row.action)
    features, shares = (
        part.astype(dtype, copy=False).tobytes() for part in (row.features, row.probabilities)
    )
    control, *share = (None, None, None) if row.held is None else row.held
    held = (control if control is None else int(control), *share)
    about = (row.subject, row.context, item, features, shares, available, *held)
    return seal("decisions", (row.number, float(row.time), row.chosen, name, *about))


def event_row(number: int, row: Event) -> tuple[Any, ...]:
    return seal("events", (number, row.event, row.slot, row.decision, int(row.deferred)))


def outcome_row(sequence: int, time: float, row: OutcomeRow) -> tuple[Any, ...]:
    about = (json.dumps(row.outcome), stored_reward(row.reward), int(row.expired))
    return seal("outcomes", (sequence, row.decision, time, *about))


def revision_row(number: int, nth: int, time: float, row: RevisionRow) -> tuple[Any, ...]:
    added = None if row.added is None else json.dumps(row.added)
    about = (json.dumps(row.outcome), stored_reward(row.reward))
    return seal("revisions", (number, row.decision, nth, time, added, row.ref, *about))


def stored_reward(reward: float | None) -> float | None:
    """SQLite would not give back one that is not a number, nor the sign of zero."""
    return None if reward is None or isnan(reward) else float(reward) + 0.0


def from_rows(
    decision: Sequence[Any],
    description: str | None,
    outcome: Sequence[Any] | None,
    revision: Sequence[Any] | None,
    dtype: np.dtype,
) -> DecisionRow:
    number, at, chosen, action, subject, context, _, features, shares, available, *held = decision
    numbers = np.frombuffer(features, dtype), np.frombuffer(shares, dtype)
    name = None if action is None else _name(action)
    control, holdback, baseline = held
    group = None if control is None else Held(bool(control), holdback, baseline)
    about = (context, description, subject, available, group)
    made = (number, at, chosen, name, *numbers, *about)
    if outcome is None:
        return DecisionRow(*made)
    sequence, _, learned, text, reward, expired = outcome
    first = json.loads(text)
    if revision is None:
        return DecisionRow(*made, sequence, first, reward, learned, bool(expired), first)
    _, _, nth, revised, added, _, text, reward = revision
    now = json.loads(text)
    begun = nth == 1 and added is not None and now == first  # the first of what adds up
    at = None if begun else revised
    was = bool(expired) and begun
    return DecisionRow(*made, sequence, now, reward, learned, was, first, at)


_name = lru_cache(2**14)(json.loads)


def seal(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """The row as it is stored, with a checksum of all its fields behind them. Text that no
    database takes is refused."""
    for value in row:
        if type(value) is str:
            value.encode()
    return (*row, _checksum(table, row))


def _checksum(table: str, row: Sequence[Any]) -> bytes:
    """Of all fields: `repr` tells numbers exactly, and apart from text."""
    blobs = [value for value in row if type(value) is bytes]
    plain = [(len(value),) if type(value) is bytes else value for value in row]
    return blake2b(b"".join([repr((table, plain)).encode(), *blobs]), digest_size=8).digest()


def unseal(table: str, row: Sequence[Any]) -> Sequence[Any]:
    """A stored row without its checksum, or an error that names it."""
    if row[-1] != _checksum(table, row[:-1]):
        raise Damaged(f"row {row[0]!r} of the table {table} is not what was written")
    return row[:-1]


def consecutive(table: str, rows: Iterable[Sequence[Any]], first: int, count: int) -> Iterable[Any]:
    """Rows whose numbers must be `first`, `first` + 1, ... up to `count` of them."""
    expected = first
    for row in rows:
        if row[0] != expected:
            raise Damaged(f"row {expected} of the table {table} is missing")
        expected += 1
        yield row
    if expected - first != count:
        raise Damaged(f"row {expected} of the table {table} is missing")


def read_pages(db: Any, query: str, after: int, key: int = 0) -> Iterator[Sequence[Any]]:
    """Rows of a query, which has `> ?` and `ORDER BY` of column `key`, a few at a time: there are
    databases that hand over all at once."""
    while rows := db.execute(f"{query} LIMIT {PAGE}", (after,)).fetchall():
        yield from rows
        if rows[-1][key] <= after:
            raise Damaged("its rows are out of order")
        if len(rows) < PAGE:
            return
        after = rows[-1][key]
