"""How a bandit does where the context says one thing, and where it says another."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..intervals import Span, weighted
from ..ledger.ledger import Ledger
from ..sequences import ALPHA, tail
from ..tables import Told
from .lift import OUTCOME, REWARD, Interval, Lift, estimated, read, some
from .overview import named

LARGEST = 10  # segments that are told apart; the rest are the others
PARTS = 4  # of numbers
ABSENT, OTHERS = "not said", "others"
NAMED = 5  # actions whose shares are told
MADE = f"""
SELECT d.context, d.chosen, d.action, {REWARD}, d.control, d.probabilities
FROM decisions AS d LEFT {OUTCOME} WHERE d.context IS NOT NULL ORDER BY d.number
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

    most, least: the segments that surely gain more from the bandit than the average, and less: the
        one farthest from it whose interval leaves it out. None where there is none.
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


def segments(ledger: Ledger, key: str) -> Segments:
    """How the bandit does by a key of the context."""
    texts, chosen, rewards, best = [], [], [], []
    for context, index, action, reward, control, shares in ledger.iterate(MADE):
        probabilities = np.frombuffer(shares, ledger.dtype)
        texts.append(context)
        chosen.append(named(action, index))
        rewards.append(np.nan if reward is None else reward)
        mine = control != 1 and index < len(probabilities)
        best.append(float(probabilities[index] == probabilities.max()) if mine else np.nan)
    names = _grouped(texts, key)
    if not texts or (names == ABSENT).all():
        raise ValueError(f"no context has {key!r}: segments are by a key of contexts in words")
    known, made = dict(zip(texts, names, strict=True)), read(ledger, more="d.context")
    groups = np.array([known.get(text) for text in made.keys], object)
    order = [name for name, _ in Counter(names.tolist()).most_common()]
    alpha, worth, likeliest = ALPHA / len(order), np.array(rewards, float), np.array(best, float)
    found = []
    for name in order:
        rows = np.flatnonzero(names == name)
        some_rewards = worth[rows][~np.isnan(worth[rows])]
        mine = groups == name
        part = estimated(name, some(made, mine), alpha) if mine.any() else None
        counts = Counter(chosen[n] for n in rows.tolist()).most_common(NAMED)
        shares = {action: count / len(rows) for action, count in counts}
        mean = _mean(some_rewards, alpha)
        own = likeliest[rows]
        own = own[~np.isnan(own)]
        explored = 1 - float(own.mean()) if len(own) else None
        found.append(Segment(name, len(rows), len(some_rewards), mean, part, shares, explored))
    whole = estimated("all", some(made, np.isin(groups, order)))
    return Segments(key, tuple(found), *_extremes(found, whole))


def _mean(rewards: np.ndarray, alpha: float) -> Interval | None:
    if not len(rewards):
        return None
    every = weighted(np.ones(len(rewards)), rewards)
    return Interval.of(every.mean(Span.of(rewards), tail(len(rewards), alpha)))


def _extremes(found: Sequence[Segment], whole: Lift) -> tuple[str | None, str | None]:
    """The segments that gain most and least, of those that surely gain more or less than all."""
    if whole.difference is None:
        return None, None
    middle = whole.difference.value
    gains = [(one.name, one.lift.difference) for one in found if one.lift and one.lift.difference]
    above = [(g.value, name) for name, g in gains if g.low is not None and g.low > middle]
    below = [(g.value, name) for name, g in gains if g.high is not None and g.high < middle]
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
