"""The same action again for a subject, for a while."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import checks
from ..inputs.offer import Offer
from ..ledger.ledger import DecisionRow, Ledger
from .control import Control

SUBJECT_LETTERS = 256  # characters of a subject


def checked_subject(subject: Any) -> str:
    """Whom a decision is about."""
    checks.text("subject", subject)
    if len(subject) > SUBJECT_LETTERS:
        raise ValueError(f"a subject has at most {SUBJECT_LETTERS} characters, got {len(subject)}")
    return subject


def again(
    control: Control,
    ledger: Ledger,
    subject: str | None,
    offer: Offer,
    now: float,
    batch: Mapping[str | None, DecisionRow],
) -> tuple[DecisionRow, int] | None:
    """The decision that holds for a subject, and where its action is now; None: a new one is due.

    It holds for `sticky` seconds from when it was made, as long as its action is on offer, and
    one by the agent not while the baseline is in charge.

    batch: decisions that are about to be recorded, by subject.
    """
    if subject is None:
        return None
    row = batch.get(subject) or ledger.last_about(subject)
    if row is None or row.time <= now - control.sticky or row.foreign:
        return None
    if control.halted is not None and not (row.held is not None and row.held.control):
        return None
    place = _place(row, offer)
    return None if place is None else (row, place)


def _place(row: DecisionRow, offer: Offer) -> int | None:
    """Where the action that was chosen then is among those that are available now: by its name,
    or where it has none, by what was said of it."""
    names, actions, free = offer.names, offer.actions, offer.available
    if row.action is not None:
        same = np.array([name == row.action for name in names or ()], bool)
    elif actions is None:
        same = np.arange(len(free)) == row.chosen
    elif isinstance(actions, np.ndarray):
        if len(row.features) < actions.shape[1]:
            return None
        own = row.features[len(row.features) - actions.shape[1] :]
        now = actions.astype(own.dtype)
        same = ((now == own) | (np.isnan(now) & np.isnan(own))).all(axis=1)
    else:
        same = np.array([text == row.description for text in actions], bool)
    if len(same) != len(free):
        return None
    places = np.flatnonzero(same & free).tolist()
    return row.chosen if row.chosen in places else next(iter(places), None)
