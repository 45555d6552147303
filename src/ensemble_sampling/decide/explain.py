"""Why an action was chosen: what each field of its description counts, found by leaving it out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..inputs.descriptions import as_text, from_text
from ..inputs.features import Labels
from ..inputs.hashing import Hasher
from ..inputs.offer import Offer, everything
from ..ledger.columns import plain, said
from ..ledger.ledger import DecisionRow, Ledger
from ..tables import Told
from .programs import room
from .replica import Replica

SHOWN = 25  # actions of one decision: those most likely to be chosen
FIELDS = 1000  # that are left out, one at a time; further ones are not looked at
ROUNDING = 1e-6  # of the values: a smaller weight is none

ERASED = "what was said in this decision was erased"
FOREIGN = "it was made elsewhere: what else was on offer is not known"
CHOSEN = "of what was on offer only the chosen action was kept"
HASHED = "an earlier version kept only the numbers that its words were hashed into"
ALONE = "nothing else could be chosen"
VALUELESS = "the agent values nothing"

Path = tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class Reason(Told):
    """How much one field speaks for the chosen action, and against the next best one.

    side: "context" or "action", of which it was said.
    field: its name, with dots where it is nested; x0, x1, ... in a row of numbers; "" where a text
        is all that was said.
    chosen, next: what it says of either action; of the context it is the same.
    weight: how much smaller the difference between their values is without it; negative where it
        speaks for the next one.
    """

    side: str
    field: str
    chosen: Any
    next: Any
    weight: float

    def __str__(self) -> str:
        of = " ".join(["the", self.side, self.field] if self.field else ["the", self.side])
        against = "" if self.side == "context" else f" against {_brief(self.next)}"
        return f"{of} ({_brief(self.chosen)}{against}): {self.weight:+.3g}"


@dataclass(frozen=True, repr=False)
class Explanation(Told):
    """What was said in a decision, and which of it spoke most for the chosen action.

    It is by what is known now: a ledger holds what was chosen and how likely that was, not what
    the agent thought then.

    action: the name of the chosen action, or its index.
    next: the action that is worth most among the others that could be chosen.
    difference: how much more the chosen action is worth than the next, the mean over members;
        negative where the next one is worth more by now, or the choice explored.
    reasons: the fields that count most, the largest first.
    context: as it was described.
    actions, offer: the names of the actions most likely to be chosen, and their descriptions.
    note: why there are no reasons, or "".
    """

    id: str
    action: Any = None
    next: Any = None
    difference: float | None = None
    reasons: tuple[Reason, ...] = ()
    context: Any = None
    actions: tuple[Any, ...] = ()
    offer: tuple[Any, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if self.difference is None:
            return f"decision {self.id}: {self.note}"
        about = f"decision {self.id}: {self.action!r} rather than {self.next!r}, worth "
        lines = [f"{about}{self.difference:+.3g} as valued now", *map(str, self.reasons)]
        return "\n  ".join([*lines, self.note] if self.note else lines)


def _brief(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def likeliest(row: DecisionRow) -> list[int]:
    """The actions of a decision that were most likely to be chosen, and the chosen one."""
    offer, shares = row.offer, np.zeros(0) if row.foreign else row.probabilities
    free = np.flatnonzero(np.ones(len(shares), bool) if offer is None else offer.available)
    order = sorted(free.tolist(), key=lambda k: (k != row.chosen, -shares[k]))[:SHOWN]
    return sorted(order, key=lambda k: (-shares[k], k))


def called(row: DecisionRow, k: int) -> Any:
    """The name of an action, or its place where it has none."""
    if row.offer is not None and row.offer.names is not None:
        return row.offer.names[k]
    return row.action if k == row.chosen and row.action is not None else k


def find(ledger: Ledger, id: str) -> DecisionRow | None:
    """A decision with what was on offer; None where it was erased."""
    number = ledger.number(id)
    return next(iter(list(ledger.between(number, number + 1))), None)


def explain(
    id: str, row: DecisionRow | None, replica: Replica, state: Any, top: int
) -> Explanation:
    """A decision as `find` gives it, by what a replica knows in this state."""
    if row is None:
        return Explanation(id, note=ERASED)
    offer, name = row.offer, called(row, row.chosen)
    if offer is None:
        context, action = _kept(row, replica)
        note = FOREIGN if row.foreign else CHOSEN
        return Explanation(id, name, None, None, (), context, (name,), (action,), note)
    about, order = {"context": plain(said(offer.context)), "action": name}, likeliest(row)
    try:
        other, difference, reasons = _weigh(row, offer, replica, state)
    except (Silent, TypeError, ValueError) as error:
        note = str(error) if isinstance(error, Silent) else f"the agent cannot value it: {error}"
        return Explanation(id, **about, **_described(row, offer, order), note=note)
    order += [] if other in order else [other]
    reasons.sort(key=lambda one: -abs(one.weight))
    return Explanation(
        id,
        next=called(row, other),
        difference=difference,
        reasons=tuple(reasons[:top]),
        note="" if reasons else "no field that was given tells the two apart",
        **about,
        **_described(row, offer, order),
    )


def _kept(row: DecisionRow, replica: Replica) -> tuple[Any, Any]:
    """What is known of the context and of the chosen action, where nothing else is."""
    columns = replica.inputs.columns
    n = 0 if columns is None or isinstance(columns.context, tuple) else columns.context
    numbers = row.features.tolist()
    context = (numbers[:n] or None) if row.context is None else from_text(row.context)
    rest = numbers[n:] if row.context is None else numbers
    return context, (rest or None) if row.description is None else from_text(row.description)


def _described(row: DecisionRow, offer: Offer, order: Sequence[int]) -> dict[str, Any]:
    return {
        "actions": tuple(called(row, k) for k in order),
        "offer": tuple(plain(offer.said_of(k)) for k in order),
    }


class Silent(Exception):
    """Why nothing can be said of an offer."""


class Left(NamedTuple):
    """A field, what it says of the two actions, and the features of an offer without it."""

    side: str
    field: str
    chosen: Any
    next: Any
    table: np.ndarray


def _weigh(
    row: DecisionRow, offer: Offer, replica: Replica, state: Any
) -> tuple[int, float, list[Reason]]:
    """The next action, how much more the chosen one is worth, and what each field counts."""
    inputs, i = replica.inputs, row.chosen
    if inputs.hasher is not None:
        if inputs.columns is None and not offer.described:
            raise Silent(HASHED)
        offer = inputs.worded(offer)
    others = [k for k in np.flatnonzero(offer.available).tolist() if k != i]
    if not others:
        raise Silent(ALONE)
    found = replica.values(row.number, replica.table(offer), offer.available, state)
    if found is None:
        raise Silent(VALUELESS)
    worth = np.asarray(found.mean, np.float64)
    j = max(others, key=lambda k: worth[k])
    difference, least = float(worth[i] - worth[j]), ROUNDING * float(np.abs(worth[[i, j]]).max())
    names = None if offer.names is None else [offer.names[i], offer.names[j]]
    tell = (plain(offer.said_of(i)), plain(offer.said_of(j)), names)
    fixed = inputs.arms is not None
    if not fixed:  # the features of two actions are all that matters
        assert offer.actions is not None
        both = offer.actions[[i, j]] if isinstance(offer.actions, np.ndarray) else None
        pair = [offer.actions[i], offer.actions[j]] if both is None else both
        offer, at = Offer(pair, offer.context, names, everything(2)), (0, 1)
    else:
        at = (i, j)
    size = 1 if fixed else room(len(row.probabilities)) // 2  # a program of this size is there
    reasons, left = [], islice(_left_out(replica, offer, tell), FIELDS)
    while some := list(islice(left, size)):
        if fixed:
            table, available = some[0].table, offer.available
        else:
            table, available = np.concatenate([one.table for one in some]), everything(2 * size)
            table = np.pad(table, ((0, 2 * size - len(table)), (0, 0)))
        values = replica.values(row.number, table, available, state)
        assert values is not None
        for n, (side, field, chosen, following, _) in enumerate(some):
            one, other = (values.mean[2 * n * (not fixed) + k] for k in at)
            weight = difference - float(one - other)
            if abs(weight) > least:
                reasons.append(Reason(side, field, chosen, following, weight))
    return j, difference, reasons


def _left_out(
    replica: Replica, offer: Offer, tell: tuple[Any, Any, Sequence[Any] | None]
) -> Iterator[Left]:
    """Every field in turn, and the features of an offer in which no action has it."""
    inputs, (chosen, following, names) = replica.inputs, tell
    around = plain(said(offer.context))
    sides = {"context": (around, around), "action": (chosen, following)}
    leaves = {side: [_leaves(one) for one in both] for side, both in sides.items()}
    if inputs.hasher is None:
        table, columns = replica.table(offer), inputs.columns
        labels = [] if columns is None else [*zip(("context", "action"), columns, strict=True)]
        named = [(side, path) for side, given in labels for path in _paths(given)]
        for column, (side, path) in enumerate(named):
            other = table.copy()
            other[:, column] = np.nan if inputs.grows else 0.0
            first, second = (one.get(path) for one in leaves[side])
            yield Left(side, _spelled(path), first, second, other)
        return
    for side, (first, second) in leaves.items():
        for path in {**first, **second}:
            other = replica.table(_without(offer, side, path))
            yield Left(side, _spelled(path), first.get(path), second.get(path), other)
    if names is not None and isinstance(inputs.hasher, Hasher) and inputs.hasher.names:
        nameless = replica.table(offer._replace(names=None))
        yield Left("action", "name", names[0], names[1], nameless)


def _paths(labels: Labels) -> list[Path]:
    return (
        [(n,) for n in range(labels)] if isinstance(labels, int) else [(name,) for name in labels]
    )


def _leaves(given: Any) -> dict[Path, Any]:
    """What is said, by its place: keys of dictionaries within one another, or a number in a row."""
    if given is None:
        return {}
    if isinstance(given, Mapping) and given:
        parts = ((key, _leaves(value) or {(): value}) for key, value in given.items())
        return {(key, *path): value for key, inner in parts for path, value in inner.items()}
    if isinstance(given, list) and not any(isinstance(v, str | list | dict) for v in given):
        return {(n,): value for n, value in enumerate(given)}
    return {(): given}


def _spelled(path: Path) -> str:
    return ".".join(f"x{key}" if isinstance(key, int) else key for key in path)


def _without(offer: Offer, side: str, path: Path) -> Offer:
    """The offer, with one field of the context, or of all actions, left out."""

    def cut(text: Any) -> str:
        return as_text(_cut(from_text(text), path), side)

    if side == "context":
        return offer._replace(context=cut(offer.context))
    return offer._replace(actions=[cut(text) for text in offer.actions or ()])


def _cut(given: Any, path: Path) -> Any:
    if not path:
        return None
    if isinstance(given, list):  # by place, so that none moves
        given = {str(n): value for n, value in enumerate(given)}
        path = (str(path[0]), *path[1:])
    if not isinstance(given, Mapping) or path[0] not in given:
        return given
    rest = {key: value for key, value in given.items() if key != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _cut(given[path[0]], path[1:])}
