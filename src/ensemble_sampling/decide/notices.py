"""What a bandit notices that its user should know, said in words.

Every condition is one that hardly comes about by chance, and what is said says what to do. Nothing
here changes a decision.
"""

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core import fact
from ..inputs.features import Columns
from ..inputs.scale import FAR, out_of_range
from ..learners.losses import SquaredError
from ..ledger.ledger import DecisionRow, Ledger

if TYPE_CHECKING:
    from .replica import Replica

FIRST = 128  # outcomes after which to look; then after twice as many, and so on
RECENT = 100  # outcomes that are compared with what is expected
LATE = 256  # decisions, the first and the last, whose features are looked at
TIMES = 3.0  # by which a noise level must be wrong
SELDOM = 10_000  # outcomes of which one may lie far out by chance


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


def _new(ledger: Ledger) -> str | None:
    """On what is said since some decision on, or no longer."""
    count = ledger.decisions
    if count < 2 * LATE:
        return None
    first = [_fields(row) for row in ledger.between(0, LATE)]
    last = [_fields(row) for row in ledger.between(count - LATE, count)]
    then, now = ({name for each in part for name in each} for part in (first, last))
    words = []
    for what, name in sorted(now - then):
        often = sum((what, name) in each for each in last)
        since = ledger.first_said(what, name)
        words.append(f"{name!r} of {what} since decision {since}, in {often} of the last {LATE}")
    for what, name in sorted(then - now):
        words.append(f"{name!r} of {what} not in any of the last {LATE}")
    if not words:
        return None
    more = f" and {len(words) - 5} more" if len(words) > 5 else ""
    return f"what is said of decisions changed: {'; '.join(words[:5])}{more}"


def _fields(row: DecisionRow) -> set[tuple[str, str]]:
    """(side, name) of everything that is said by name in a decision."""
    sides = (("the context", row.context), ("the action", row.description))
    said = [(what, json.loads(text)) for what, text in sides if text is not None]
    return {(what, name) for what, each in said if isinstance(each, dict) for name in each}


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
        "changed": _changed(changed),
    }
    return {kind: text for kind, text in found.items() if text is not None}


def _strays(strays: int, outcomes: int) -> str | None:
    if strays == 0:
        return None
    return (
        f"{strays} of {outcomes} outcomes lie far beyond all others: they count for little, and "
        "for nothing where none like them follow; correct them if they are wrong"
    )


def _changed(changed: Changed) -> str | None:
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
