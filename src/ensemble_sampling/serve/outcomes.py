"""What came of decisions, told to a bandit that several processes serve."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..ledger.ledger import Decided, Observed, Revised
from .replicas import Followed, refusing
from .types import Refused

Told = tuple[str, Any, str | None]  # id of a decision or event, what came of it, and its `ref`
Heard = list[bool] | Refused  # which of them were new


class News:
    """Outcomes that are to be recorded together."""

    def __init__(self) -> None:
        self.first: dict[int, Any] = {}
        self._more: dict[int, tuple[Revised, ...]] = {}

    def copy(self) -> "News":
        other = News()
        other.first, other._more = dict(self.first), dict(self._more)
        return other

    def revise(self, row: Revised) -> None:
        self._more[row.decision] = (*self._more.get(row.decision, ()), row)

    @property
    def revised(self) -> list[Revised]:
        return [row for rows in self._more.values() for row in rows]

    def of(self, decided: Decided) -> Any:
        """The outcome of a decision after these."""
        if decided.number in self._more:
            return self._more[decided.number][-1].outcome
        return self.first.get(decided.number, decided.outcome)

    def refs(self, number: int) -> list[tuple[Any, str | None]]:
        return [(row.added, row.ref) for row in self._more.get(number, ())]


class Hearing(Followed):
    """Records every outcome once, in one order for all, and how outcomes were revised."""

    def _observe(self, groups: Sequence[Sequence[Told]]) -> list[Heard]:
        """Within a turn: record what is new of groups of outcomes."""
        numbers = self._numbers([id for group in groups for id, _, _ in group])
        known = self._ledger.find(list(numbers.values()))
        news = News()
        answers: list[Heard] = []
        for group in groups:
            trial = news.copy()
            flags: list[bool] = []
            try:
                for id, given, ref in group:
                    if id not in numbers:
                        raise Refused("unknown", f"there is no decision {id!r}")
                    decided = known[numbers[id]]
                    amount = self._outcome(given)
                    with refusing():
                        self._offers.arm(decided.number, decided.chosen, decided.action)
                    flags.append(self._told(id, decided, amount, ref, trial))
            except Refused as refused:
                answers.append(refused)
                continue
            news = trial
            answers.append(flags)
        worth = self._mind.worth
        rows = [Observed(number, y, worth(y)) for number, y in news.first.items()]
        self._ledger.add_outcomes(rows, news.revised)
        return answers

    def _told(self, id: str, decided: Decided, outcome: Any, ref: str | None, news: News) -> bool:
        """Whether an outcome is new; into `news` with it."""
        known = news.of(decided)
        if self.settings.aggregation == "sum":
            return self._added(id, decided, outcome, ref, news)
        if known is None:
            news.first[decided.number] = outcome
            return True
        if outcome in (known, decided.first):  # what was revised may come again too
            return False
        how = "expired with" if decided.expired else "has"
        raise Refused(
            "conflict", f"decision {id} {how} the outcome {known} and cannot have {outcome} as well"
        )

    def _added(self, id: str, decided: Decided, amount: Any, ref: str | None, news: News) -> bool:
        """Whether an amount is new, told by what it refers to; into `news` with it."""
        number, known, worth = decided.number, news.of(decided), self._mind.worth
        if ref is not None:
            for added, name in [*self._ledger.revised(number), *news.refs(number)]:
                if name == ref and added != amount:
                    raise Refused("conflict", f"{ref!r} added {added}, and cannot add {amount}")
                if name == ref:
                    return False
        if known is None:
            news.first[number] = amount
            if ref is not None:
                news.revise(Revised(number, amount, worth(amount), amount, ref))
            return True
        if np.shape(known) != np.shape(amount):
            raise Refused("invalid", f"decision {id} has the outcome {known}, got {amount}")
        total = self._outcome((np.asarray(known) + np.asarray(amount)).tolist())
        news.revise(Revised(number, total, worth(total), amount, ref))
        return True

    def _numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """The decisions that ids mean: their own, "event", or "event/slot"."""
        found: dict[str, int] = {}
        wanted: dict[tuple[str, str], str] = {}
        for id in ids:
            try:
                found[id] = self._ledger.number(id)
            except (TypeError, ValueError):
                event, _, slot = id.rpartition("/")
                wanted |= {(id, ""): id} | ({(event, slot): id} if event and slot else {})
        if wanted:
            for key, event in self._ledger.find_events(list(wanted)).items():
                found.setdefault(wanted[key], event.decision)
        return found

    def _decided(self, id: str) -> Decided:
        """Within a turn: the decision that an id means."""
        self._settle_down()
        number = self._numbers([id]).get(id)
        decided = None if number is None else self._ledger.decision(number)
        if decided is None:
            raise Refused("unknown", f"there is no decision {id!r}")
        return decided

    def correct(self, id: str, outcome: Any) -> bool:
        """See `Bandit.correct`."""
        with self._door, self._ledger.turn():
            decided = self._decided(id)
            new = self._outcome(outcome)
            if decided.outcome is None:
                raise Refused("conflict", f"decision {id} has no outcome yet to be corrected")
            if new == decided.outcome:
                return False
            self._ledger.add_outcomes([], [Revised(decided.number, new, self._mind.worth(new))])
            return True

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        """See `Bandit.add`."""
        with self._door, self._ledger.turn():
            decided, news = self._decided(id), News()
            new = self._added(id, decided, self._outcome(amount), ref, news)
            rows = [Observed(number, y, self._mind.worth(y)) for number, y in news.first.items()]
            self._ledger.add_outcomes(rows, news.revised)
            return new

    def expire(self, before: float, outcome: Any, most: int = 1000) -> int:
        """Assume `outcome` for decisions made by the time `before` whose own never came; at most
        so many of them, lest others wait."""
        with self._door, self._ledger.turn():
            self._settle_down()
            if self._mind.agent is None:  # nothing was decided
                return 0
            outcome, numbers = self._outcome(outcome), []
            waiting, worth = self._ledger.pending(before), self._mind.worth(outcome)
            while waiting and not numbers:
                numbers, waiting = self._learnable(waiting[:most]), waiting[most:]
            self._ledger.add_outcomes([Observed(n, outcome, worth, True) for n in numbers])
            return len(numbers)

    def _learnable(self, numbers: list[int]) -> list[int]:
        """Decisions for actions that the agent has: one that was migrated to may lack some."""
        if self._offers.arms is None:
            return numbers
        found = []
        for number, row in self._ledger.find(numbers).items():
            with suppress(ValueError):
                self._offers.arm(number, row.chosen, row.action)
                found.append(number)
        return sorted(found)

    def activate(self, event: str) -> bool:
        """Deferred decisions of an event count from now on; False if they did already."""
        with self._door, self._ledger.turn():
            found = self._ledger.events(event)
            if not found:
                raise Refused("unknown", f"there is no event {event!r}")
            counted = [self._ledger.activate(one.decision) for one in found if one.deferred]
            return any(counted)
