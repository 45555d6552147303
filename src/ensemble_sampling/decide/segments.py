"""How a bandit does where the context says one thing, and where it says another."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..ledger.ledger import Ledger
from ..ledger.reading import REWARD
from ..sequences import ALPHA, mean
from ..tables import Told
from .lift import OUTCOME, Compared, Interval, Lift, estimated, numbered, read, some
from .overview import named

LARGEST = 10  # segments that are told apart; the rest are the others
PARTS = 4  # of numbers
ABSENT, OTHERS = "not said", "others"
NAMED = 5  # actions whose shares are told
MADE = f"""
SELECT d.context, d.chosen, d.action, {REWARD}, d.control, d.probabilities, d.subject
FROM decisions AS d LEFT {OUTCOME} WHERE d.context IS NOT NULL AND d.time >= {{since}}
ORDER BY d.number
"""


@dataclass(frozen=True, repr=False)
class Segment(Told):
    """The decisions in whose context a key has one value, or one in a range.

    decisions: how many there are; outcomes: of how many an outcome came.
    reward: of these, as a mean with its interval.
    lift: compared with the baseline, where a part is held back from the bandit.
    actions: shares of those chosen most often.
    exploration: how often the bandit chose something else than what had the best chance.

    Intervals hold at every look, and for all segments together: each of m may be wrong m times more
    seldom than one alone (Bonferroni).
    """

    name: str
    decisions: int
    outcomes: int
    reward: Interval | None
    lift: Lift | None
    actions: dict[str, float]
    exploration: float | None

    def __str__(self) -> str:
        text = f"{self.name}: {self.decisions} decisions"
        if self.reward is not None:
            text += f", reward {self.reward}"
        if self.lift is not None and self.lift.difference is not None:
            text += f", {self.lift.difference} more with the bandit: {self.lift.verdict}"
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.actions.items())
        return f"{text}; {shares}" + (
            "" if self.exploration is None else f"; {self.exploration:.0%} explored"
        )


@dataclass(frozen=True, repr=False)
class Segments(Told):
    """The segments of one key, the largest first.

    most, least: the names of the segments that gain most and least by the bandit, among those that
        surely gain more and less than the others do; None for none.
    """

    key: str
    parts: tuple[Segment, ...]
    most: str | None
    least: str | None

    def __str__(self) -> str:
        gains = [f"{self.most} gains most"] * (self.most is not None)
        gains += [f"{self.least} gains least"] * (self.least is not None)
        told = "; ".join(gains) or "no part is told apart from the others"
        return "\n  ".join([f"{self.key}: {told}", *map(str, self.parts)])


def segments(ledger: Ledger, key: str, since: float = 0.0) -> Segments:
    """How the bandit does by a key of the context, in decisions since a time."""
    texts, chosen, rewards, best, subjects = [], [], [], [], []
    query = MADE.format(since=float(since))
    for context, index, action, reward, control, shares, subject in ledger.iterate(query):
        subjects.append(subject)
        probabilities = np.frombuffer(shares, ledger.dtype)
        texts.append(context)
        chosen.append(named(action, index))
        rewards.append(np.nan if reward is None else reward)
        mine = control != 1 and index < len(probabilities)
        best.append(float(probabilities[index] == probabilities.max()) if mine else np.nan)
    names = _grouped(texts, key)
    if not texts or (names == ABSENT).all():
        raise ValueError(f"no context has {key!r}: segments are by a key of contexts in words")
    known, made = dict(zip(texts, names, strict=True)), read(ledger, more="d.context", since=since)
    groups = np.array([known.get(text) for text in made.keys], object)
    order = [name for name, _ in Counter(names.tolist()).most_common()]
    alpha, worth, likeliest = ALPHA / len(order), np.array(rewards, float), np.array(best, float)
    found, units, apart = [], numbered(subjects), dict[str, int]()
    for name in order:
        rows = np.flatnonzero(names == name)
        rewarded = rows[~np.isnan(worth[rows])]
        mine = groups == name
        part = estimated(name, some(made, mine), alpha) if mine.any() else None
        counts = Counter(chosen[n] for n in rows.tolist()).most_common(NAMED)
        shares = {action: count / len(rows) for action, count in counts}
        reward = _mean(worth[rewarded], units[rewarded], alpha)
        apart[name] = _apart(made, mine, alpha / 2)
        own = likeliest[rows]
        own = own[~np.isnan(own)]
        explored = 1 - float(own.mean()) if len(own) else None
        found.append(Segment(name, len(rows), len(rewarded), reward, part, shares, explored))
    return Segments(key, tuple(found), *_extremes(found, apart))


def _mean(rewards: np.ndarray, units: np.ndarray, alpha: float) -> Interval | None:
    if not len(rewards):
        return None
    return Interval.of(mean(rewards, np.unique(units, return_inverse=True)[1], alpha))


def _apart(made: Compared, mine: np.ndarray, alpha: float) -> int:
    """1 where a segment surely gains more by the bandit than the others do, -1 where less. Each of
    the two intervals, which must not meet, may be wrong with the chance `alpha`."""
    others = np.array([key is not None for key in made.keys], bool) & ~mine
    parts = [estimated("", some(made, which), alpha).difference for which in (mine, others)]
    (own, rest) = parts
    if own is None or rest is None:
        return 0
    above = own.low is not None and rest.high is not None and own.low > rest.high
    below = own.high is not None and rest.low is not None and own.high < rest.low
    return above - below


def _extremes(found: Sequence[Segment], apart: Mapping[str, int]) -> tuple[str | None, str | None]:
    """The segments that gain most and least, of those that surely gain more or less."""
    gains = [
        (one.lift.difference.value, one.name)
        for one in found
        if one.lift is not None and one.lift.difference is not None
    ]
    above = [(value, name) for value, name in gains if apart[name] > 0]
    below = [(value, name) for value, name in gains if apart[name] < 0]
    return max(above)[1] if above else None, min(below)[1] if below else None


def _grouped(texts: Sequence[str], key: str) -> np.ndarray:
    """The segment of every context: its value, or the range it is in where numbers differ much."""
    values: dict[str, Any] = {text: _value(text, key) for text in set(texts)}
    numbers = [v for t in texts if isinstance(v := values[t], float)]
    if len(set(numbers)) > LARGEST:
        ends = np.unique(np.quantile(numbers, np.linspace(0, 1, PARTS + 1)))
        ranges = [f"{a:.4g} to {b:.4g}" for a, b in pairwise(ends)]
        for text, value in values.items():
            if isinstance(value, float):
                place = int(np.searchsorted(ends[1:-1], value, "right"))
                values[text] = ranges[place]
    names = {text: _shown(value) for text, value in values.items()}
    often = Counter(names[text] for text in texts).most_common(LARGEST)
    kept = {name for name, _ in often}
    return np.array([name if (name := names[t]) in kept else OTHERS for t in texts], object)


def _value(text: str, key: str) -> Any:
    said = json.loads(text)
    value = said.get(key) if isinstance(said, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
