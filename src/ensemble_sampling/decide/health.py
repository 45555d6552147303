"""What is wrong with the data a bandit lives by, each a sentence that says what to do.

Every condition is one that hardly comes about by chance. `KINDS` names them all, for alerts.
"""

import json
import math

import numpy as np

from ..intervals import NEVER
from ..ledger.ledger import Ledger
from ..sequences import evidence
from . import metrics
from .control import Control

KINDS = {
    "split": "the control group has another share than it should",
    "arrival": "outcomes come more often in one group than in the other",
    "few": "outcomes come of few decisions",
    "late": "outcomes come late",
    "never": "an action is never on offer",
    "baseline": "the baseline's action was not on offer",
    "chances": "actions had no chance, so that logs cannot evaluate others",
    "guard": "a bound of a metric is broken, or nobody sends the metric",
    "halted": "the baseline decides, since a bound was broken",
    "behind": "the state does not know outcomes of a while ago",
    "changed": "the world changed lately, and models started again",
}
SURE = math.log(100)  # the odds at which shares are wrong: by chance in at most 1 of 100 histories
LATEST = 10_000  # decisions that are looked at
ENOUGH = 500  # of them, before anything is said
FEW = 0.1  # of decisions have an outcome
LATE, LEAST = 0.25, 3600.0  # of the time that there is; seconds of it
GREEDY = 0.5  # of decisions in which some action had no chance
LATELY = "number > (SELECT max(number) FROM decisions) - {}"
SPLIT = """
SELECT holdback, control, count(DISTINCT subject), sum(CASE WHEN subject IS NULL THEN 1 ELSE 0 END)
FROM decisions {join} WHERE control IS NOT NULL AND holdback < 1 GROUP BY holdback, control
"""
TIMES = """
SELECT d.time, o.time, o.expired
FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number
WHERE d.{lately} ORDER BY d.number
"""


def found(ledger: Ledger) -> dict[str, str]:
    """Everything that is wrong, by kind."""
    control = Control.of(ledger)
    guards = metrics.bounds(ledger, control) if control.guard else {}
    said = {
        **_split(ledger),
        **_outcomes(ledger),
        "never": _never(ledger),
        "baseline": _baseline(ledger, control),
        "chances": _chances(ledger),
        "guard": "; ".join(guards.values()) or None,
        "halted": _halted(control),
    }
    return {kind: text for kind, text in said.items() if text is not None}


def _halted(control: Control) -> str | None:
    if control.halted is None:
        return None
    return (
        f"the baseline decides all, since the bound of {control.halted!r} was broken: `resume` "
        "lets the bandit go on"
    )


def _split(ledger: Ledger) -> dict[str, str]:
    """On the shares of control and bandit, by a test that may be looked at every day."""
    odds, left, units, share = _counted(ledger, "")
    if odds > SURE:
        return {
            "split": (
                f"{left} of {units} decisions or subjects were left to the baseline, and "
                f"{share:.3g} of them should be: some are lost, or made twice, on the way here. "
                "Until that is found the lift means nothing"
            )
        }
    odds, left, units, share = _counted(ledger, "JOIN outcomes ON decision = number")
    if odds > SURE:
        return {
            "arrival": (
                f"of {units} decisions or subjects with outcomes {left} were left to the baseline, "
                f"and {share:.3g} of them should be: outcomes come more often in one group, so the "
                "lift compares others than were decided about. Report what did not happen as well, "
                "or let `expire` do it"
            )
        }
    return {}


def _counted(ledger: Ledger, join: str) -> tuple[float, int, int, float]:
    """The evidence against the shares, how many units were left to the baseline, of how many, and
    the share that should have been. A subject is one unit."""
    by_share: dict[float, list[int]] = {}
    for share, control, subjects, others in ledger.ask_all(SPLIT.format(join=join)):
        by_share.setdefault(share, [0, 0])[int(control)] = int(subjects) + int(others)
    if not by_share:
        return 0.0, 0, 0, 0.0
    shares = np.array([*by_share])
    rest, held = np.array([*by_share.values()]).T
    total = int((rest + held).sum())
    should = float((shares * (rest + held)).sum()) / max(1, total)
    return evidence(held, rest, shares), int(held.sum()), total, should


def _outcomes(ledger: Ledger) -> dict[str, str]:
    """On outcomes that are few, or late. Decisions as young as most outcomes are old may wait."""
    rows = ledger.ask_all(TIMES.format(lately=LATELY.format(LATEST)))
    if len(rows) < ENOUGH:
        return {}
    made = np.array([row[0] for row in rows])
    delays = np.array([np.nan if row[1] is None else row[1] - row[0] for row in rows])
    came = ~np.isnan(delays)
    real = came & np.array([row[2] != 1 for row in rows])
    now, begin = max(made[-1], *(row[1] for row in rows if row[1] is not None), 0), made[0]
    usual = float(np.quantile(delays[real], 0.9)) if real.any() else 0.0
    due = made < now - usual
    if due.sum() >= ENOUGH and came[due].mean() < FEW:
        return {
            "few": (
                f"outcomes came of {came[due].mean():.1%} of the {int(due.sum())} last decisions "
                "that had time for one: where silence means 0, let "
                "`expire(older_than=..., outcome=0)` say so; else look for what gets lost"
            )
        }
    middle = float(np.median(delays[real])) if real.sum() >= ENOUGH else 0.0
    if now - begin > LEAST and middle > LATE * (now - begin):
        return {
            "late": (
                f"half of the outcomes come later than {_time(middle)} after their decision, and "
                f"the last {len(rows)} decisions took {_time(now - begin)}: most are made without "
                "them. Learn from an earlier sign of success, and observe the rest as a metric"
            )
        }
    return {}


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _never(ledger: Ledger) -> str | None:
    """On actions of a fixed set that could not be chosen lately."""
    names = (ledger.description or {}).get("actions")
    if not names:
        return None
    query = f"SELECT available, count(*) FROM decisions WHERE {LATELY.format(LATEST)} GROUP BY 1"
    masks = ledger.ask_all(query)
    if sum(count for _, count in masks) < ENOUGH or any(mask is None for mask, _ in masks):
        return None
    bits = np.stack([np.unpackbits(np.frombuffer(mask, np.uint8)) for mask, _ in masks])
    gone = [
        name for name, free in zip(names, np.atleast_1d(bits.any(axis=0)), strict=False) if not free
    ]
    if not gone:
        return None
    return (
        f"{', '.join(map(str, gone[:5]))} of {len(names)} actions could not be chosen in any of the"
        f" last {sum(count for _, count in masks)} decisions: is `available` what it should be?"
    )


def _baseline(ledger: Ledger, control: Control) -> str | None:
    """On decisions that the baseline's one action was not on offer in."""
    if not isinstance(control.baseline, dict) or "action" not in control.baseline:
        return None
    query = (
        "SELECT count(*), sum(CASE WHEN coalesce(action, CAST(chosen AS TEXT)) <> ? THEN 1 ELSE 0 "
        "END) "
        f"FROM decisions WHERE control = 1 AND {LATELY.format(LATEST)}"
    )
    name = control.baseline["action"]
    ((count, other),) = ledger.ask_all(query, json.dumps(name))
    if not other:
        return None
    return (
        f"the baseline {name!r} was not on offer in {int(other)} of the {count} last decisions "
        "left to it: the first on offer was taken instead. Give a baseline that always is"
    )


def _chances(ledger: Ledger) -> str | None:
    """On actions without any chance, of which a log can tell nothing; one in memory is not kept to
    be asked."""
    floor = ledger.place is None or (ledger.description or {}).get("floor", 0.0)
    rows = [row for row in ledger.latest(ENOUGH) if not row.foreign]
    if floor or len(rows) < ENOUGH:
        return None
    never = []
    for row in rows:
        free = np.ones(len(row.probabilities), bool)
        if row.available is not None:
            free = np.unpackbits(np.frombuffer(row.available, np.uint8))[: len(free)].astype(bool)
        never.append(bool((row.probabilities[free] < NEVER).any()))
    share = float(np.mean(never))
    if share < GREEDY:
        return None
    return (
        f"in {share:.0%} of the last {len(rows)} decisions some action had no chance, so that the "
        "log cannot tell what others would have earned: floor=0.02 gives each one, for about 2% "
        "of what the bandit earns beyond chance"
    )
