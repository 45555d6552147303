"""Rewards that are made of several metrics, by weights that can be changed later.

What a decision is worth is recorded as its outcome, so that all that reads outcomes needs to know
nothing of metrics: a metric that comes later, or other weights, correct it.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from .. import checks
from ..ledger.ledger import DecisionRow, Ledger
from ..rewards import Reward
from .metrics import NAMES, checked_values
from .outcomes import Outcomes
from .replica import Replica

REWARD = "reward"  # the setting of a ledger
PAGE = 256  # decisions that are read at a time
ALL = "SELECT decision, name, value FROM metrics WHERE name <> '' ORDER BY number"
OTHERS = (
    "SELECT count(*) FROM outcomes AS o JOIN decisions AS d ON d.number = o.decision WHERE "
    "coalesce(d.subject, 'nobody') <> '' AND NOT EXISTS "
    "(SELECT 1 FROM metrics WHERE decision = o.decision AND name IN ({}))"
)
Weights = Mapping[str, float]
Learned = list[tuple[DecisionRow, Any]]


def weights(ledger: Ledger) -> Weights:
    """Those of a ledger; none where outcomes are told as they are."""
    return ledger.setting(REWARD) or {}


def checked(given: Any) -> dict[str, float]:
    """Weights by the names of metrics; none: outcomes are told as they are."""
    given = given.weights if isinstance(given, Reward) else given
    if not isinstance(given, Mapping):
        raise TypeError(
            f'reward must be es.Reward(weights={{"click": 1.0}}), got {checks.shown(given)}'
        )
    return dict(checked_values("the weight of", given)) if given else {}


def worth(weights: Weights, known: Mapping[str, float]) -> float:
    """What a decision is worth; a metric that did not come counts as 0."""
    return math.fsum(weight * known.get(name, 0.0) for name, weight in weights.items())


class Observations:
    """What came of decisions, recorded together, all or none: metrics, and the outcome that those
    are worth which count in the reward.

    A decision is learned once all of these are known, or when it is said that no more will come.
    """

    def __init__(self, outcomes: Outcomes, ledger: Ledger, weights: Weights):
        self._outcomes, self._ledger, self._weights = outcomes, ledger, weights
        self._new: list[tuple[int, str, float]] = []
        self._known: dict[int, dict[str, float]] = {}  # by decision

    def copy(self) -> "Observations":
        """One that goes on without changing this one."""
        other = Observations(self._outcomes.copy(), self._ledger, self._weights)
        other._new, other._known = list(self._new), dict(self._known)
        return other

    def observe(self, id: str, decided: DecisionRow, values: Any, final: bool = False) -> bool:
        """What else came of a decision; whether anything is new. A value that is there is replaced.
        `final`: whether what is missing counts as 0 from now on."""
        if decided.erased:
            raise ValueError(f"decision {id} was erased: nothing can come of it any more")
        number, said = decided.number, checked_values("the metric", values)
        known = self._known.get(number) or self._ledger.metrics(number)
        new = {name: value for name, value in said.items() if known.get(name) != value}
        self._known[number] = known = {**known, **new}
        self._new += [(number, name, value) for name, value in new.items()]
        return self.settle(id, decided, known, final) or bool(new)

    def settle(
        self, id: str, decided: DecisionRow, known: Mapping[str, float], final: bool = False
    ) -> bool:
        """Let its outcome be what the metrics are worth, if it is time for that."""
        if not self._weights:
            return False
        value = worth(self._weights, known)
        if self._outcomes.known(decided) is not None:
            return self._outcomes.correct(id, decided, value)
        whole = final or self._weights.keys() <= known.keys()
        return whole and self._outcomes.learn(id, decided, value)

    def learn(self, id: str, decided: DecisionRow, given: Any) -> bool:
        """The outcome of a decision; metrics by name, where the reward is made of them."""
        if not isinstance(given, Mapping):
            self.refuse()
            return self._outcomes.learn(id, decided, given)
        if not self._weights:
            raise TypeError(
                f"an outcome is a number here, got {checks.shown(given)}: `observe` takes metrics, "
                "and a reward that is made of them needs weights, es.Reward(weights=...)"
            )
        return self.observe(id, decided, given, final=True)

    def add(self, id: str, decided: DecisionRow, given: Any, ref: str | None = None) -> bool:
        """See `Outcomes.add`."""
        self.refuse()
        return self._outcomes.add(id, decided, given, ref)

    def correct(self, id: str, decided: DecisionRow, given: Any) -> bool:
        """See `Outcomes.correct`."""
        self.refuse()
        return self._outcomes.correct(id, decided, given)

    def expire(self, id: str, decided: DecisionRow, outcome: Any) -> bool:
        """Assume an outcome, or that the rest of its metrics is 0 where some are known."""
        known = self._ledger.metrics(decided.number) if self._weights else {}
        if self._weights.keys() & known.keys():
            return self.settle(id, decided, known, final=True)
        return self._outcomes.learn(id, decided, outcome)

    def refuse(self) -> None:
        """Refuse an outcome that is no metric, where only these count."""
        if self._weights:
            raise ValueError(
                f"the reward is made of {', '.join(map(repr, self._weights))}: give these by name, "
                f'{{"{next(iter(self._weights))}": 1.0}}, or `observe` them as they come'
            )

    def record(self, expired: bool = False) -> Learned:
        """Write them to the ledger; the decisions that had no outcome before, with theirs."""
        if not self._new:
            return self._outcomes.record(expired)
        with self._ledger.turn():
            self._ledger.add_metrics(self._new)
            return self._outcomes.record(expired)


def change(replica: Replica, ledger: Ledger, given: Any, who: str | None = None) -> Learned:
    """Within a turn: let rewards be made by other weights, those of decisions that were made
    before too; the decisions that are learned only now. The state follows by replay."""
    now, before = checked(given), weights(ledger)
    if now == before:
        return []
    sent = {name for (name,) in ledger.ask_all(NAMES)}
    if sent and (unknown := now.keys() - sent):
        raise ValueError(
            f"there is no metric {', '.join(map(repr, sorted(unknown)))}, of those that were sent: "
            f"{', '.join(map(repr, sorted(sent)))}; `observe` one before it counts"
        )
    outcomes = Outcomes(replica, ledger)
    seen = Observations(outcomes, ledger, now)
    for id, decided, known in _observed(ledger, {*now, *before} if now else set()):
        seen.settle(id, decided, known)
    if now and not before and (rest := ledger.ask(OTHERS.format(", ".join("?" * len(now))), *now)):
        warnings.warn(
            f"{rest} outcomes were told without {' or '.join(map(repr, now))}, and stay as they "
            "were told",
            stacklevel=4,
        )
    ledger.change(REWARD, now, who)
    return outcomes.record()


def _observed(
    ledger: Ledger, names: set[str]
) -> Iterator[tuple[str, DecisionRow, dict[str, float]]]:
    """The decisions of which any of these came, with all that did."""
    known: dict[int, dict[str, float]] = {}
    for number, name, value in ledger.ask_all(ALL) if names else ():
        known.setdefault(number, {})[name] = value
    numbers = sorted(number for number, one in known.items() if names & one.keys())
    for start in range(0, len(numbers), PAGE):
        found = ledger.find(numbers[start : start + PAGE])
        for number, decided in sorted(found.items()):
            if not decided.erased:
                yield ledger.decision_id(number), decided, known[number]
