"""Lift, metrics, segments and health are the same from every kind of ledger."""

# pyright: reportOptionalMemberAccess=false

import numpy as np
import pytest
from servers import new_place

from ensemble_sampling.decide import health
from ensemble_sampling.decide.control import Control
from ensemble_sampling.decide.lift import lift
from ensemble_sampling.decide.metrics import metrics
from ensemble_sampling.decide.segments import segments
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow, RevisionRow
from ensemble_sampling.ledger.rows import Held

COUNT = 700


def filled(place):
    """Decisions of a few subjects, every third left to the baseline; some outcomes revised."""
    rng, ledger = np.random.default_rng(0), Ledger(place)
    control = Control(0.3, {"action": "tea"}, guard={"margin": ("<=", -1.0), "x": (">=", 0.0)})
    control.record(ledger, "ann")
    shares, none = np.array([0.6, 0.4, 0.0], np.float32), np.zeros(0, np.float32)
    rows = []
    for n in range(COUNT):
        who, context = f"u{n % 90}" if n % 2 else None, f'{{"device": "{"ab"[n % 2]}"}}'
        held = Held(n % 3 == 0, 0.3, float(n % 2 == 0))
        about = (context, None, who, None, held)
        rows.append(DecisionRow(n, 1e9 + 600 * n, n % 2, '"c"', none, shares, *about))
    ledger.add_decisions(rows)
    worth = rng.normal(size=COUNT).tolist()
    ledger.add_outcomes([OutcomeRow(n, y, y) for n, y in enumerate(worth[:650])])
    ledger.add_outcomes([], [RevisionRow(3, 9.0, 9.0), RevisionRow(4, 8.0, 8.0)])
    ledger.add_metrics([(n, "margin", worth[n]) for n in range(300)])
    ledger.add_metrics([(0, "margin", 5.0), (1, "returned", 1.0)])
    return ledger


def told(ledger):
    control = Control.of(ledger)
    found = lift(ledger), lift(ledger, "margin", daily=True), metrics(ledger, control)
    about = ledger.last_about("u7")
    assert about is not None
    changes = [(change.who, change.value["holdback"]) for change in ledger.changes()]
    return *found, segments(ledger, "device"), health.found(ledger), about.number, changes


@pytest.mark.parametrize("kind", ["disk", "postgres"])
def test_what_is_told_is_what_is_told_in_memory(kind, tmp_path):
    expected, found = filled(None), filled(tmp_path / "b" if kind == "disk" else new_place())
    ours, theirs = told(expected), told(found)
    assert {*theirs[4]} >= {"guard", "baseline"}
    for one, other in zip(ours, theirs, strict=True):
        assert repr(one)[:200] == repr(other)[:200]
    one, other = (side[0].difference for side in (ours, theirs))
    assert one is not None
    assert other is not None
    assert (one.value, one.low) == pytest.approx((other.value, other.low))
    found.close()
