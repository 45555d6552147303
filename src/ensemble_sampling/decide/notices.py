"""Words instead of silence: what a bandit notices that its user should know.

Every condition is one that hardly comes about by chance, and what is said says what to do. Nothing
here changes a decision: a bandit that is opened again begins to notice anew.
"""

import dataclasses
import math
from collections import deque
from typing import Any

import numpy as np

from ..core import fact
from ..inputs.columns import Columns
from ..inputs.scale import FAR
from ..learners.losses import SquaredError
from .decisions import Values

FIRST = 128  # outcomes after which to look; then after twice as many, and so on
RECENT = 100  # surprises that count, and must be there
TIMES = 3.0  # by which a noise level must be wrong
SELDOM = 10_000  # outcomes of which one may lie far out by chance
LAST = 1024  # decisions after which no feature is expected to begin to vary
WAITING = 1000  # decisions whose outcome is compared with what was expected


class Watch:
    """What one bandit has noticed, and said."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._expected: dict[int, tuple[int, Values]] = {}
        self._surprises: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._decisions, self._until = 0, LAST  # when to look no more for features that vary
        self._first, self._varied = np.zeros(0), np.zeros(0, bool)

    def offered(self, number: int, table: np.ndarray, index: int, values: Values | None) -> None:
        """Features (K, d) were on offer in decision `number`, and `index` was chosen."""
        if values is not None:
            self._expected[number] = index, values
            if len(self._expected) > WAITING:
                del self._expected[next(iter(self._expected))]
        if self._decisions == 0:
            self._first, self._varied = table[0].copy(), np.zeros(table.shape[1], bool)
        if self._decisions < self._until:
            new = (table != self._first) & ~np.isnan(table)
            self._varied |= new.any(axis=0)
            self._until = 0 if self._varied.all() else LAST
        self._decisions += 1

    def learned(self, number: int, outcome: Any) -> None:
        """The outcome of decision `number` came: how far is it from what was expected then?"""
        index, values = self._expected.pop(number, (0, None))
        if values is not None and isinstance(outcome, float):
            surprise, spread = outcome - values.mean.item(index), values.spread.item(index)
            self._surprises.append((surprise * surprise, spread * spread))

    @staticmethod
    def due(before: int, now: int) -> bool:
        """Whether it is time to look, when there were `before` outcomes and are `now`."""
        return now >= FIRST and now.bit_length() > before.bit_length()

    def new(self, words: dict[str, str]) -> list[str]:
        """What is to be said: everything once."""
        found = [text for kind, text in words.items() if kind not in self._said]
        self._said |= words.keys()
        return found

    def noise(self, agent: Any) -> str | None:
        """On a noise level that was told, and that outcomes contradict.

        Surprises (y - m)^2, where m was expected before, are on average noise_std^2 and how much
        models differ besides. More may also be due to the model, but members that are so sure of
        it explore too little all the same.
        """
        noise = told(agent)
        if noise is None or len(self._surprises) < RECENT:
            return None
        surprise, differ = np.mean(self._surprises, axis=0)
        real, most = math.sqrt(surprise), math.sqrt(noise**2 + differ)
        if noise / TIMES <= real <= TIMES * most:
            return None
        how = "less" if real < noise else "more"
        return (
            f"noise_std is {noise:g}, but the last {RECENT} outcomes were off what was expected by "
            f"{real:.3g}, which is far {how}: give the right one, or none to have it learned"
        )

    def constant(self, hashed: bool, fixed: bool) -> str | None:
        """On features that never varied, in no offer.

        One column of ones is a constant that somebody added, and a column of zeros may stand for
        what has not occurred yet.
        """
        width = len(self._varied)
        if hashed or self._decisions < FIRST or width == 0:
            return None
        steady = np.flatnonzero(~self._varied)
        if len(steady) == width and (width > 1 or not fixed):
            return (
                f"no feature has varied in {self._decisions} decisions: all are treated alike; "
                "give what is known of each action, or of each decision"
            )
        steady = [int(column) for column in steady if self._first[column] != 0]
        if len(steady) < 2:
            return None
        return (
            f"{len(steady)} of {width} features have not varied in {self._decisions} decisions "
            f"(columns {', '.join(map(str, steady[:10]))}{', ...' if len(steady) > 10 else ''}): "
            "are they what they should be?"
        )


def alone(outcomes: int) -> str | None:
    """On decisions by the default agent among fixed actions that were given no context."""
    if outcomes < FIRST:
        return None
    return (
        "no context was ever given: all decisions are treated alike; where anything is known of "
        "one, such as who it is for, give choose(context=...) from the first decision on"
    )


def learned(
    diverged: int, outcomes: int, strays: int, far: Any, columns: Columns | None
) -> dict[str, str]:
    """On what so many outcomes were to the agent, by kind: how often models were lost, how many
    outcomes strayed (see `Usual`), and in how many each feature was out of range (see `Scale`)."""
    found = {
        "diverged": _diverged(diverged),
        "strays": _strays(strays, outcomes),
        "far": None if far is None else _far(np.asarray(far), outcomes, columns),
    }
    return {kind: text for kind, text in found.items() if text is not None}


def _strays(strays: int, outcomes: int) -> str | None:
    if strays == 0:
        return None
    return (
        f"{strays} of {outcomes} outcomes lie far beyond all others: they count for little, and "
        "for nothing where none like them follow; correct them if they are wrong"
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
