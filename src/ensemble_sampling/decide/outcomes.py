"""What came of decisions, checked by what the agent can learn and by what is recorded."""

from typing import Any

import numpy as np

from ..ledger.ledger import DecisionRow, Ledger, OutcomeRow, RevisionRow
from ..ledger.rows import ERASED
from .replica import Replica


class Conflict(ValueError):
    """It contradicts what is recorded."""


class Outcomes:
    """Outcomes that are recorded together, in their order, all or none.

    Each is refused before anything is recorded, where it could not be learned: once it is in the
    ledger, it stands in the way for ever. A decision is given with the id its caller knows it by.
    """

    def __init__(self, replica: Replica, ledger: Ledger):
        self._replica, self._ledger = replica, ledger
        # By the number of the decision: it, its outcome and what that is worth.
        self._first: dict[int, tuple[DecisionRow, Any, float | None]] = {}
        self._revised: dict[int, list[RevisionRow]] = {}

    def copy(self) -> "Outcomes":
        """One that goes on without changing this one."""
        other = Outcomes(self._replica, self._ledger)
        other._first = dict(self._first)
        other._revised = {number: list(rows) for number, rows in self._revised.items()}
        return other

    def learn(self, id: str, decided: DecisionRow, given: Any) -> bool:
        """The outcome of a decision; whether it is new."""
        if decided.subject == ERASED:
            raise _erased(id)
        outcome, number = self._replica.outcome(given, self._ledger), decided.number
        reward, known = self._replica.reward(outcome), decided.outcome
        if number in self._first or number in self._revised:
            known = self.known(decided)
        if known is None:
            self._replica.inputs.arm(number, decided.chosen, decided.action)
            self._first[number] = decided, outcome, reward
            return True
        if outcome in (known, decided.first):  # what was revised may come again too
            return False
        how = "expired with" if decided.expired else "has"
        raise Conflict(
            f"decision {id} {how} the outcome {known} and cannot have {outcome} as well: `correct` "
            "replaces an outcome, `add` adds to it"
        )

    def add(self, id: str, decided: DecisionRow, given: Any, ref: str | None = None) -> bool:
        """An amount that counts beside what is known; whether it is new, by its `ref`."""
        if decided.subject == ERASED:
            raise _erased(id)
        number, known = decided.number, self.known(decided)
        amount = self._replica.outcome(given, self._ledger)
        if ref is not None:
            now = [(row.added, row.ref) for row in self._revised.get(number, ())]
            for added, name in [*self._ledger.revised(number), *now]:
                if name == ref and added != amount:
                    raise Conflict(
                        f"{ref!r} added {added} to decision {id}, and cannot add {amount}"
                    )
                if name == ref:
                    return False
        if known is None:
            self.learn(id, decided, given)
            if ref is not None:
                self._revise(number, amount, amount, ref)
            return True
        if np.shape(known) != np.shape(amount):
            raise ValueError(f"decision {id} has the outcome {known}, got {amount}")
        total = (np.asarray(known) + np.asarray(amount)).tolist()
        self._revise(number, self._replica.outcome(total, self._ledger), amount, ref)
        return True

    def correct(self, id: str, decided: DecisionRow, given: Any) -> bool:
        """Another outcome in the place of what is known; whether it is another."""
        if decided.subject == ERASED:
            raise _erased(id)
        outcome, known = self._replica.outcome(given, self._ledger), self.known(decided)
        if known is None:
            raise Conflict(f"decision {id} has no outcome yet that could be corrected: learn one")
        if outcome != known:
            self._revise(decided.number, outcome)
        return outcome != known

    def record(self, expired: bool = False) -> list[tuple[DecisionRow, Any]]:
        """Write them to the ledger; the decisions that had no outcome before, with theirs."""
        first, revised = self._first, [row for rows in self._revised.values() for row in rows]
        rows = [OutcomeRow(n, y, reward, expired) for n, (_, y, reward) in first.items()]
        self._ledger.add_outcomes(rows, revised)
        return [(decided, outcome) for decided, outcome, _ in first.values()]

    def known(self, decided: DecisionRow) -> Any:
        """The outcome of a decision after these."""
        number = decided.number
        if number in self._revised:
            return self._revised[number][-1].outcome
        return self._first[number][1] if number in self._first else decided.outcome

    def _revise(self, number: int, outcome: Any, added: Any = None, ref: str | None = None) -> None:
        row = RevisionRow(number, outcome, self._replica.reward(outcome), added, ref)
        self._revised.setdefault(number, []).append(row)


def _erased(id: str) -> ValueError:
    return ValueError(f"decision {id} was erased: nothing can come of it any more")
