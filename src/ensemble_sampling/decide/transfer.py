"""What a bandit has learned from, as a file: another one learns the same by reading it.

A state is a function of the outcomes in their order, and of nothing else; so what is carried over
are these, and the state follows. The file is one of safetensors: numbers and text, no code.
"""

import hashlib
import json
import time
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..files import Damaged
from ..ledger.ledger import DecisionRow, Ledger, OutcomeRow
from .replica import Replica

KIND = "ensemble-sampling history 2"
LARGEST = 2**28  # bytes
COLUMNS = ("chosen", "actions", "contexts", "descriptions", "widths", "outcomes", "chances")


def export_history(ledger: Ledger) -> bytes:
    """Every outcome in the order of learning, with what was chosen, and how likely that was."""
    rows = list(ledger.learned(after=0))
    if not rows:
        raise ValueError("nothing has been learned yet")
    spans = [range(at, at + n) for at, n in ledger.ask_all("SELECT first, count FROM imports")]
    foreign = {number for span in spans for number in span}
    rows = [row._replace(foreign=row.number in foreign) for row in rows]
    features = np.concatenate([row.features for row in rows])
    columns = [
        (
            *(row.chosen, row.action, row.context, row.description),
            *(len(row.features), row.outcome, row.probability),
        )
        for row in rows
    ]
    about = {
        "kind": KIND,
        "dtype": str(features.dtype),
        "agent": {k: v for k, v in ledger.description.items() if k != "seed"},
        **dict(zip(COLUMNS, map(list, zip(*columns, strict=True)), strict=True)),
    }
    text, numbers = json.dumps(about).encode(), features.tobytes()
    digest = hashlib.sha256(text + numbers).digest()
    parts = {"about": text, "features": numbers, "sha256": digest}
    content = save({name: np.frombuffer(part, np.uint8) for name, part in parts.items()})
    if len(content) > LARGEST:
        raise ValueError(
            f"its history takes {len(content)} bytes, more than the {LARGEST} that are handed out "
            "as one file: take a backup of the ledger instead"
        )
    return content


def read_history(content: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What a file says, and the features of what was chosen, row by row."""
    try:
        parts = {name: part.tobytes() for name, part in load(content).items()}
        text, numbers, digest = parts["about"], parts["features"], parts["sha256"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise Damaged(f"it is no exported history: {error}") from error
    if hashlib.sha256(text + numbers).digest() != digest:
        raise Damaged("its checksum does not fit its contents")
    try:
        about = json.loads(text)
        if about.get("kind") != KIND:
            raise Damaged(f"it is {about.get('kind')!r}, expected {KIND!r}")
        features = np.frombuffer(numbers, np.dtype(about["dtype"]))
        lengths = {len(about[name]) for name in COLUMNS}
        fits = len(lengths) == 1 and sum(about["widths"]) == len(features)
        if not fits or not isinstance(about["agent"], dict):
            raise Damaged("its columns are not of one length")
        return about, np.split(features, np.cumsum(about["widths"])[:-1])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"it is no exported history: {error!r}") from error


def import_history(
    ledger: Ledger, replica: Replica, about: dict[str, Any], features: list[np.ndarray]
) -> int:
    """Within a turn: record as made elsewhere what a file has, all of it or nothing; how many.

    What could not be learned is refused now: once it is recorded, it stands in the way for ever.
    """
    ours = {k: v for k, v in (ledger.description or {}).items() if k != "seed"}
    if about["agent"] != ours:
        differ = sorted(k for k in {*ours, *about["agent"]} if ours.get(k) != about["agent"].get(k))
        raise ValueError(f"it is another configuration's: they differ in {', '.join(differ)}")
    first, now, dtype = ledger.decisions, time.time(), ledger.dtype
    rows, outcomes = [], []
    columns = zip(*(about[name] for name in COLUMNS), strict=True)
    for n, (chosen, action, context, said, _, outcome, chance) in enumerate(columns):
        if type(chosen) is not int or chosen < 0:
            raise ValueError(f"the index of an action is a number from 0, got {chosen!r}")
        if chance is not None and not 0 < chance <= 1.0001:  # in single precision
            raise ValueError(f"a chance is a number above 0 and at most 1, got {chance!r}")
        replica.inputs.arm(first + n, chosen, action)
        outcome = replica.outcome(outcome, ledger)
        chances = np.array([] if chance is None else [chance], dtype)
        given = (features[n].astype(dtype), chances, context, said)
        row = DecisionRow(first + n, now, chosen, action, *given, foreign=True)
        _check_features(row, replica)
        rows.append(row)
        outcomes.append(OutcomeRow(first + n, outcome, replica.reward(outcome)))
    ledger.add_decisions(rows, outcomes=outcomes)
    return len(rows)


def _check_features(row: DecisionRow, replica: Replica) -> None:
    """Refuse a row that this replica cannot learn from."""
    found = replica.inputs.row(row)
    if found is None or len(found) != replica.width:
        count = "none" if found is None else len(found)
        raise ValueError(f"its rows have {count} features, this bandit's {replica.width}")
    if not (np.isfinite(found) | (np.isnan(found) & replica.inputs.grows)).all():
        raise ValueError("its features must be finite")
