"""Decisions that were made elsewhere, as the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .descriptions import LARGEST, missing
from .features import Inputs
from .offer import Offer, is_frame, names_of, records, shown

Which = str | Sequence[str] | None
SHOWN = 5  # rows that are named where many are wrong


class Foreign(NamedTuple):
    """n decisions: what describes the chosen actions and their contexts, one row each; the names
    of the actions, outcomes, and how likely each choice was (None where nobody knows)."""

    features: Any
    contexts: Any
    actions: list[Any] | None
    outcomes: list[Any]
    propensities: np.ndarray | None


def read(
    frame: Any, features: Which, context: Which, action: str | None, outcome: str, propensity: Any
) -> Foreign:
    """Look up the columns; rows that cannot be are counted by what is wrong with them."""
    if not is_frame(frame) and not isinstance(frame, Mapping):
        raise TypeError(f"decisions come as a data frame or as a dictionary of columns: {frame!r}")
    outcomes = _column(frame, "outcome", outcome)
    if not outcomes:
        raise ValueError("there are no decisions to learn from: the columns are empty")
    names = None if action is None else _column(frame, "action", action)
    shares = None if propensity is None else _column(frame, "propensity", propensity)
    sides = [_side(frame, *side) for side in (("features", features), ("context", context))]
    lengths = {len(side) for side in (outcomes, names, shares, *sides) if side is not None}
    if len(lengths) > 1:
        raise ValueError(f"columns must be of one length, got {sorted(lengths)}")
    wrong = {
        "without an outcome": [_lacks(y) for y in outcomes],
        "with an outcome that is not a finite number": [_no_number(y) for y in outcomes],
    }
    if names is not None:
        wrong["without an action"] = [missing(name) for name in names]
    if shares is not None:
        wrong["without a propensity"] = [_lacks(p) for p in shares]
        wrong["with a propensity that is not above 0 and at most 1"] = [
            not _lacks(p) and not _is_share(p) for p in shares
        ]
    refuse(wrong)
    if names is not None:
        names = [names_of([name])[0] for name in names]
    chances = None if shares is None else np.array([float(p) for p in shares])
    outcomes = [float(y) if type(y) is int else y for y in outcomes]
    return Foreign(sides[0], sides[1], names, outcomes, chances)


def arms(given: Foreign, inputs: Inputs) -> list[int]:
    """Which of a fixed set of actions was chosen in each."""
    if inputs.arms is None:
        return [0] * len(given.outcomes)
    if given.actions is None:
        raise ValueError(
            f"this bandit has {inputs.arms} fixed actions: say which column names the chosen one "
            "(action=...)"
        )
    known = list(range(inputs.arms)) if inputs.names is None else list(inputs.names)
    places = {name: n for n, name in enumerate(known)}
    strange = [name not in places for name in given.actions]
    refuse({f"with an action that is none of {shown(known)}": strange})
    return [places[name] for name in given.actions]


def offers(given: Foreign, inputs: Inputs) -> list[Offer]:
    """What was chosen in each, as an offer of one action, or of a fixed set of them."""
    features, contexts, count = given.features, given.contexts, len(given.outcomes)
    if inputs.arms is not None and contexts is None:
        features, contexts = None, features  # a fixed set of actions is told apart by itself
    each = [None] * count if features is None else [[row] for row in features]
    around = [None] * count if contexts is None else contexts
    if features is None and contexts is None and inputs.arms is None:
        raise ValueError("give the features of the actions, or their contexts")
    read = inputs.read if features is None else inputs.of_one_action().read
    return [read(row, context, None) for row, context in zip(each, around, strict=True)]


def refuse(wrong: dict[str, list[bool]]) -> None:
    """Say what is wrong with how many rows, and which; if any is."""
    told = []
    for what, rows in wrong.items():
        if found := [n for n, bad in enumerate(rows) if bad]:
            more = ", ..." if len(found) > SHOWN else ""
            which = ", ".join(map(str, found[:SHOWN])) + more
            told.append(f"{len(found)} of {len(rows)} rows {what} (rows {which})")
    if told:
        raise ValueError("nothing was learned: " + "; ".join(told))


def _column(frame: Any, what: str, name: str) -> list[Any]:
    if not isinstance(name, str):
        raise TypeError(f"{what} must be the name of a column, got {name!r}")
    known = list(frame.columns) if is_frame(frame) else list(frame)
    if name not in known:
        raise ValueError(f"there is no column {name!r} for the {what}, but {known}")
    if known.count(name) > 1:
        raise ValueError(f"the column {name!r} for the {what} occurs twice: which one is meant?")
    column = frame[name]
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _side(frame: Any, what: str, which: Which) -> Any:
    """Rows of one side: a column of rows or descriptions, or a dictionary of several columns."""
    if which is None:
        return None
    if isinstance(which, str):
        return _column(frame, what, which)
    if isinstance(which, Mapping) or not isinstance(which, Sequence) or not which:
        raise TypeError(f"{what} must name a column or several, got {which!r}")
    if twice := [name for name in which if list(which).count(name) > 1]:
        raise ValueError(f"{what} must name every column once, but {twice[0]!r} occurs twice")
    columns = [_column(frame, what, name) for name in which]
    if is_frame(frame):
        return records(frame[list(which)])
    return [dict(zip(which, row, strict=True)) for row in zip(*columns, strict=True)]


def _lacks(value: Any) -> bool:
    return not isinstance(value, list | tuple | np.ndarray) and missing(value)


def _no_number(outcome: Any) -> bool:
    """Whether it is there, and no number or row of them."""
    if _lacks(outcome):
        return False
    try:
        value = np.asarray(outcome)
        return value.dtype.kind not in "fiub" or not bool((np.abs(value) < LARGEST).all())
    except ValueError:
        return True


def _is_share(value: Any) -> bool:
    return isinstance(value, float | int) and 0 < value <= 1
