"""What a bandit notices that its user should know, said in words.

Every condition is one that hardly comes about by chance, and what is said says what to do. Nothing
here changes a decision.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core import fact
from ..inputs.descriptions import SPAN, TIME
from ..inputs.features import Columns
from ..inputs.scale import FAR, out_of_range
from ..learners.losses import SquaredError
from ..ledger.ledger import DecisionRow, Ledger

if TYPE_CHECKING:
    from .replica import Replica

KINDS = {
    "noise": "outcomes contradict the noise level that was told",
    "constant": "features do not vary",
    "new": "something is said of decisions since a while, or no longer",
    "diverged": "models diverged and began anew",
    "strays": "outcomes lie far beyond all others",
    "far": "features are far from their mean",
    "changed": "the world changed, and models started again",
}
FIRST = 128  # outcomes after which to look; then after twice as many, and so on
RECENT = 100  # outcomes that are compared with what is expected
LATE = 256  # decisions, the first and the last, whose features are looked at
TIMES = 3.0  # by which a noise level must be wrong
SHOWN = 5  # fields that came, changed or went
SELDOM = 10_000  # outcomes of which one may lie far out by chance


MISSING = "nothing"
VALUES: tuple[tuple[Any, str], ...] = (  # of what is said, as JSON has them
    (str, "text"),
    (bool, "a truth value"),
    (int | float, "a number"),
    (list, "a list"),
    (dict, "a time"),
    (object, MISSING),
)
STARTS = {  # of their JSON
    "text": ['"'],
    "a truth value": ["t", "f"],
    "a number": [*"-0123456789"],
    "a list": ["["],
    "a time": ["{"],
}


class Changed(NamedTuple):
    """How often all models started again, or that of one action; and at which outcome last."""

    all: int = 0
    one: int = 0
    last: int = 0


def noticed(replica: "Replica", ledger: Ledger) -> dict[str, str]:
    """Everything, by kind."""
    state, now, columns = replica.state(ledger), replica.version, replica.inputs.columns
    far = None if state.scale is None else out_of_range(*state.scale)
    strays = 0 if now is None else now.usual.strays
    found = {
        "noise": _noise(replica, ledger),
        "constant": _constant(replica, ledger),
        "new": _new(ledger),
    }
    found = {kind: text for kind, text in found.items() if text is not None}
    about = replica.diverged(ledger), ledger.outcomes, strays, far, columns
    return found | learned(*about, replica.changes(ledger))


def _noise(replica: "Replica", ledger: Ledger) -> str | None:
    """On a noise level that was told, and that outcomes contradict.

    Outcomes are off what is expected now by noise_std^2, on average of the squares, and by how much
    models differ. More may also be due to the model, but members that are so sure of it explore too
    little all the same.
    """
    noise = told(replica.agent)
    if noise is None or ledger.outcomes < FIRST:
        return None
    rows = [row for row in ledger.learned(after=ledger.outcomes - RECENT) if not row.foreign]
    rows = [row for row in rows if isinstance(row.outcome, float)]
    expected = replica.expected(ledger, rows)
    if expected is None or len(rows) < RECENT // 2:
        return None
    off = np.array([row.outcome for row in rows]) - expected.mean
    real, differ = math.sqrt(np.mean(off**2)), float(np.mean(expected.spread**2))
    if noise / TIMES <= real <= TIMES * math.sqrt(noise**2 + differ):
        return None
    how = "less" if real < noise else "more"
    return (
        f"noise_std is {noise:g}, but the last {len(rows)} outcomes are off what is expected by "
        f"{real:.3g}, which is far {how}: give the right one, or none to have it learned"
    )


def _constant(replica: "Replica", ledger: Ledger) -> str | None:
    """On features that did not vary lately, in no offer.

    One column of ones is a constant that somebody added, and a column of zeros may stand for
    what has not occurred yet.
    """
    count, fixed = ledger.decisions, replica.inputs.arms is not None
    if replica.inputs.hasher is not None or count < FIRST or not replica.width:
        return None
    offers = [row.offer for row in ledger.between(max(0, count - LATE), count)]
    tables = [replica.table(offer) for offer in offers if offer is not None]
    if not tables:
        return None
    first, width = tables[0][0], replica.width
    varied = np.zeros(width, bool)
    for table in tables:
        varied |= ((table != first) & ~np.isnan(table)).any(axis=0)
    steady = np.flatnonzero(~varied)
    if len(steady) == width and (width > 1 or not fixed):
        return (
            f"no feature has varied in the last {len(tables)} decisions: all are treated alike; "
            "give what is known of each action, or of each decision"
        )
    steady = [int(column) for column in steady if first[column] != 0]
    if len(steady) < 2:
        return None
    return (
        f"{len(steady)} of {width} features have not varied in the last {len(tables)} decisions "
        f"(columns {', '.join(map(str, steady[:10]))}{', ...' if len(steady) > 10 else ''}): "
        "are they what they should be?"
    )


class Field(NamedTuple):
    """What is said by a name: of the context or the action, with dots where it is nested."""

    side: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'.'.join(self.path)!r} of {self.side}"


def _new(ledger: Ledger) -> str | None:
    """On what is said since some decision on, as another kind of thing, or no longer."""
    begin, count = ledger.base.decisions, ledger.decisions
    if count - begin < 2 * LATE:
        return None
    first = [_fields(row) for row in ledger.between(begin, begin + LATE)]
    last = [_fields(row) for row in ledger.between(count - LATE, count)]
    then, now = _kinds(first), _kinds(last)
    changes: list[tuple[Field, str | None]] = [(field, None) for field in now.keys() - then.keys()]
    for field in now.keys() & then.keys():
        changes += [(field, kind) for kind in now[field] - then[field] if then[field]]
    said = [
        partial(_change, ledger, field, kind, then.get(field, set()), last)
        for field, kind in sorted(changes, key=str)
    ]
    gone = [f"{field} not in any of the last {LATE}" for field in sorted(then.keys() - now.keys())]
    if not said and not gone:
        return None
    # Only what is shown is looked for.
    words = [*(say() for say in said[:SHOWN]), *gone][:SHOWN]
    more = len(said) + len(gone) - len(words)
    rest = f" and {more} more" if more else ""
    return f"what is said of decisions changed: {'; '.join(words)}{rest}"


def _change(
    ledger: Ledger,
    field: Field,
    kind: str | None,
    was: set[str],
    last: Sequence[Mapping[Field, str]],
) -> str:
    """Since which decision a field is said, or is of another kind than it was, and how often."""
    often = sum(field in each and kind in (None, each[field]) for each in last)
    words = "" if kind is None else f" as {kind} in place of {' or '.join(sorted(was))}"
    found = ledger.saying(field.side, field.path[-1], [""] if kind is None else STARTS[kind])
    kinds = ((row.number, _fields(row).get(field)) for row in found)
    since = next((n for n, own in kinds if own is not None and kind in (None, own)), None)
    return f"{field}{words} since decision {since}, in {often} of the last {LATE}"


def _kinds(rows: Sequence[Mapping[Field, str]]) -> dict[Field, set[str]]:
    """As what a field is said in some decisions; what is missing is of no kind."""
    found: dict[Field, set[str]] = {}
    for each in rows:
        for field, kind in each.items():
            found.setdefault(field, set()).update({kind} - {MISSING})
    return found


def _fields(row: DecisionRow) -> dict[Field, str]:
    """Everything that is said by name in a decision, and as what kind of thing."""
    sides = (("the context", row.context), ("the action", row.description))
    said = [(side, json.loads(text)) for side, text in sides if text is not None]
    found: dict[Field, str] = {}
    for side, each in said:
        if isinstance(each, dict):
            _add(found, side, (), each)
    return found


def _add(found: dict[Field, str], side: str, above: tuple[str, ...], said: dict[str, Any]) -> None:
    for name, value in said.items():
        field = Field(side, (*above, name))
        if isinstance(value, dict) and value.keys() not in ({TIME}, {SPAN}):
            _add(found, side, field.path, value)
        else:
            found[field] = next(kind for kinds, kind in VALUES if isinstance(value, kinds))


def learned(
    diverged: int,
    outcomes: int,
    strays: int,
    far: Any,
    columns: Columns | None,
    changed: Changed,
) -> dict[str, str]:
    """On what so many outcomes were to the agent, by kind: how often models were lost, how many
    outcomes strayed (see `Usual`), in how many each feature was out of range (see `Scale`), and
    what started again (see `Restarting`)."""
    found = {
        "diverged": _diverged(diverged),
        "strays": _strays(strays, outcomes),
        "far": None if far is None else _far(np.asarray(far), outcomes, columns),
        "changed": surprised(changed),
    }
    return {kind: text for kind, text in found.items() if text is not None}


def _strays(strays: int, outcomes: int) -> str | None:
    if strays == 0:
        return None
    return (
        f"{strays} of {outcomes} outcomes lie far beyond all others: they count for little, and "
        "for nothing where none like them follow; correct them if they are wrong"
    )


def surprised(changed: Changed) -> str | None:
    """On what started again, since the world is not what it was."""
    if not changed.last:
        return None
    each = ((changed.all, "of all actions"), (changed.one, "of one action"))
    what = " and ".join(f"{times} times {who}" for times, who in each if times)
    return (
        f"outcomes surprised far more than before, last at outcome {changed.last}: what was "
        f"learned started again {what}; that is as it should be where the world did change, and "
        "where it cannot, say so: Bandit(..., steady=True)"
    )


def _far(far: np.ndarray, outcomes: int, columns: Columns | None) -> str | None:
    places = [n for n in np.argsort(-far, kind="stable").tolist() if far[n] * SELDOM > outcomes]
    if outcomes < FIRST or not places:
        return None
    names = None if columns is None else columns.flat
    each = [
        f"{f'column {n}' if names is None else repr(names[n])} in {far[n]:.0f}" for n in places[:10]
    ]
    return (
        f"features were more than {FAR:g} standard deviations from their mean in some of "
        f"{outcomes} outcomes ({', '.join(each)}{', ...' if len(places) > 10 else ''}), where they "
        f"count as {FAR:g}: if that is often, give their logarithm, say"
    )


def _diverged(times: int) -> str | None:
    if times == 0:
        return None
    return (
        f"models diverged {times} times and began anew: try a smaller learning_rate, or outcomes "
        "and features in smaller units"
    )


def told(agent: Any) -> float | None:
    """The noise's standard deviation that an agent was told; None if it learns it, or needs none.

    Estimators in plain Python take one for how far members spread, not as what outcomes have.
    """
    if agent is None or fact(agent, "host") or fact(agent, "reward") is not None:
        return None
    if not dataclasses.is_dataclass(agent):
        return None
    if not isinstance(getattr(agent, "loss", SquaredError()), SquaredError):
        return None
    noise = getattr(agent, "noise_std", None)
    if noise is not None and np.ndim(noise) == 0:
        return float(noise)
    parts = (getattr(agent, name, None) for name in ("posterior", "learner"))
    return next((found for part in parts if (found := told(part)) is not None), None)
