"""How a bandit has been doing lately, by queries whose cost does not grow with its history."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..inputs.offer import Offer
from ..intervals import Span, mean
from ..ledger.ledger import DecisionRow, Ledger
from ..ledger.reading import REVISED, REWARD
from .decisions import Values
from .explain import called, likeliest

LATEST = 10_000  # decisions that are looked at
BYTES = 2**24  # of their rows; where there are more, votes are those of every so many-th
NAMED = 8  # actions whose shares are told; what is missing of 1 are the others'
SPARSE, MUCH = 0.05, 0.5  # of decisions, the first; of the time, which they take
FEW, SHORT = 5, 1.0  # decisions, by and large, and seconds that a part has at least

LATE = f"number > (SELECT max(number) FROM decisions) - {LATEST}"
MADE = (
    "SELECT d.number, d.time, d.chosen, d.action, {reward}, "
    "CASE WHEN d.number - d.number / {every} * {every} = 0 THEN d.probabilities END "
    "FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision = d.number{revised} "
    f"WHERE d.{LATE} ORDER BY d.number"
)
PLAIN = {"reward": "o.sequence, o.reward", "revised": ""}
CURRENT = {"reward": f"o.sequence, {REWARD}", "revised": REVISED.format("d.number")}
ARRIVED = (
    "SELECT sequence, time FROM outcomes "
    f"WHERE sequence > (SELECT max(sequence) FROM outcomes) - {LATEST} ORDER BY sequence"
)
SIZE = "SELECT length(features) + length(probabilities) FROM decisions ORDER BY number DESC LIMIT 1"
IMPORTS = "SELECT first, count FROM imports WHERE first + count > {}"


def history(ledger: Ledger, buckets: int = 60, since: float | None = None) -> list[dict[str, Any]]:
    """The last decisions in equal parts of time, oldest first: so many parts, or fewer where there
    is little to tell. They begin at the time `since`, in seconds since 1970; None: where decisions
    are dense, so that a few trials of long ago do not take most of the axis.

    time: of its end.
    decisions, outcomes: made in it, and how many of these have an outcome by now.
    reward, stderr, low, high: of these, with a 95% interval.
    agreement: how likely two members are to choose alike; exploration: how often something else
        was chosen than what had the best chance.
    pending: outcomes waited for at its end.
    actions: shares of those chosen most often by and large, the same ones in every part.
    What is not known is None.
    """
    if not isinstance(buckets, int) or not 1 <= buckets <= 1000:
        raise ValueError(f"buckets must be a number from 1 to 1000, got {buckets!r}")
    revised = bool(ledger.ask_all("SELECT number FROM revisions LIMIT 1"))
    size = ledger.ask_all(SIZE)
    if not size:
        return []
    every = 1 + LATEST * size[0][0] // BYTES
    made = ledger.ask_all(MADE.format(every=every, **(CURRENT if revised else PLAIN)))
    times = np.array([row[1] for row in made])
    late = times >= (_dense(times) if since is None else since)
    if not late.any():
        return []
    made, times = made[late.argmax() :], times[late.argmax() :]
    first = made[0][0]
    arrived = ledger.ask_all(ARRIVED)
    begin, end = times.min(), max([times.max(), *(at for _, at in arrived)])
    parts = max(1, min(buckets, len(made) // FEW, int((end - begin) / SHORT)))
    ends = np.linspace(begin, end, parts + 1)[1:]
    part = np.minimum(np.searchsorted(ends, times), len(ends) - 1)
    count = np.bincount(part, minlength=len(ends))
    agreement, exploration = _votes(ledger, made, part, len(ends))
    rewards = _rewards(part, [row[5] for row in made], len(ends))
    outcomes = np.bincount(part[[row[4] is not None for row in made]], minlength=len(ends))
    pending = _pending(first + np.cumsum(count), ends, arrived)
    names = {key: named(*key) for key in {(row[3], row[2]) for row in made}}
    shares = _shares(part, [names[row[3], row[2]] for row in made], count)
    return [
        {
            "time": float(ends[n]),
            "decisions": int(count[n]),
            "outcomes": int(outcomes[n]),
            **rewards[n],
            "agreement": agreement[n],
            "exploration": exploration[n],
            "pending": pending[n],
            "actions": shares[n],
        }
        for n in range(len(ends))
    ]


def _dense(times: np.ndarray) -> float:
    """When decisions became dense: at the first, unless a few of them take most of the time."""
    start, end = np.quantile(times, SPARSE, method="lower"), times.max()
    return start if end - start < (1 - MUCH) * (end - times.min()) else times.min()


def named(action: str | None, chosen: int) -> str:
    """What to call an action that is recorded as JSON, or by its place alone."""
    name = chosen if action is None else json.loads(action)
    return name if isinstance(name, str) else json.dumps(name)


def _rewards(part: np.ndarray, rewards: Sequence[float | None], parts: int) -> list[dict[str, Any]]:
    known = np.array([reward is not None for reward in rewards])
    part, worth = part[known], np.array([reward for reward in rewards if reward is not None])
    order = np.argsort(part, kind="stable")
    groups = np.split(worth[order], np.searchsorted(part[order], np.arange(1, parts)))
    span = Span.of(worth) if len(worth) else None
    return [_interval(group, span) for group in groups]


def _interval(rewards: np.ndarray, span: Span | None) -> dict[str, Any]:
    found = [None] * 4 if span is None or not len(rewards) else [*mean(rewards, span)]
    found = [value if value is None or math.isfinite(value) else None for value in found]
    return dict(zip(("reward", "stderr", "low", "high"), found, strict=True))


def _votes(
    ledger: Ledger, made: Sequence[Any], part: np.ndarray, parts: int
) -> tuple[list[Any], list[Any]]:
    """Agreement and exploration in every part, by what choices were drawn from."""
    first = made[0][0]
    foreign = np.zeros(len(made), bool)
    for start, count in ledger.ask_all(IMPORTS.format(first)):
        foreign[max(0, start - first) : max(0, start + count - first)] = True
    by_length: dict[int, list[int]] = {}
    for n, row in enumerate(made):
        if row[6] is not None and not foreign[n]:
            by_length.setdefault(len(row[6]), []).append(n)
    total = np.zeros((parts, 3))
    for rows in by_length.values():
        blobs = b"".join([made[n][6] for n in rows])
        shares = np.frombuffer(blobs, ledger.dtype).reshape(len(rows), -1)
        mine = shares[np.arange(len(rows)), [made[n][2] for n in rows]]
        seen = (np.ones(len(rows)), (shares**2).sum(axis=1), mine < shares.max(axis=1))
        np.add.at(total, part[rows], np.stack(seen, axis=1))
    count, alike, other = total.T
    known = np.maximum(count, 1)
    return (
        [float(a) if n else None for n, a in zip(count, alike / known, strict=True)],
        [float(o) if n else None for n, o in zip(count, other / known, strict=True)],
    )


def _pending(made: np.ndarray, ends: np.ndarray, arrived: Sequence[Any]) -> list[int | None]:
    """How many outcomes were waited for at the end of each part; None where so many came since
    that it would take longer to count them."""
    if not arrived:
        return made.tolist()
    times, before = np.sort([at for _, at in arrived]), arrived[0][0] - 1
    come = before + np.searchsorted(times, ends, side="right")
    known = (ends >= times[0]) | (before == 0)
    return [max(0, int(m - c)) if k else None for m, c, k in zip(made, come, known, strict=True)]


def _shares(part: np.ndarray, names: Sequence[str], count: np.ndarray) -> list[dict[str, float]]:
    kinds, which, often = np.unique(
        np.array(names, object), return_inverse=True, return_counts=True
    )
    most = sorted(range(len(kinds)), key=lambda kind: (-often[kind], kinds[kind]))[:NAMED]
    table = np.zeros((len(kinds), len(count)))
    np.add.at(table, (which, part), 1.0)
    table /= np.maximum(count, 1)
    return [
        {kinds[kind]: float(table[kind, n]) for kind in most} if count[n] else {}
        for n in range(len(count))
    ]


def recent(
    ledger: Ledger, count: int = 20, value: Callable[[Offer], Values | None] | None = None
) -> list[dict[str, Any]]:
    """The last decisions, newest first, and why they were made.

    `value` says what actions are worth by what is known now: a ledger holds what members voted for,
    not what they thought.
    """
    if not isinstance(count, int) or not 1 <= count <= 1000:
        raise ValueError(f"count must be a number from 1 to 1000, got {count!r}")
    last = ledger.decisions
    rows = list(ledger.between(max(0, last - count), last))
    return [_explained(row, ledger.decision_id(row.number), value) for row in reversed(rows)]


def _explained(
    row: DecisionRow, id: str, value: Callable[[Offer], Values | None] | None
) -> dict[str, Any]:
    offer, shares = row.offer, np.zeros(0) if row.foreign else row.probabilities
    free = np.flatnonzero(np.ones(len(shares), bool) if offer is None else offer.available)
    found = None if value is None or offer is None else value(offer)
    control = row.held is not None and row.held.control
    return {
        "id": id,
        "time": row.time,
        "action": row.chosen if row.action is None else row.action,
        "probability": row.probability,
        "explored": not control and bool(len(shares) and shares[row.chosen] < shares.max()),
        "control": None if row.held is None else control,
        "outcome": row.outcome,
        "reward": row.reward,
        "expired": row.expired,
        "foreign": row.foreign,
        "offered": len(free),
        "actions": [
            {
                "name": called(row, k),
                "chosen": k == row.chosen,
                "probability": float(shares[k]),
                "mean": None if found is None else _number(found.mean[k]),
                "spread": None if found is None else _number(found.spread[k]),
            }
            for k in likeliest(row)
        ],
    }


def _number(value: Any) -> float | None:
    """JSON has no other numbers."""
    return float(value) if math.isfinite(value) else None
