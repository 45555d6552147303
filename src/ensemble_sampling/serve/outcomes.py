"""What came of decisions, reported to a bandit that several processes serve: every outcome is
recorded once, in one order for all."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..decide.outcomes import Outcomes
from ..ledger.ledger import DecisionRow, Ledger
from .replicas import Replicas, refusing
from .types import Refused

Report = tuple[str, Any, str | None]  # id of a decision or event, what came of it, and its `ref`
Reply = list[bool] | Refused  # which of them were new


def observe(replicas: Replicas, groups: Sequence[Sequence[Report]]) -> list[Reply]:
    """Within a turn: record what is new of groups of outcomes, each as a whole or not at all."""
    ledger, replies = replicas.ledger, []
    numbers = _numbers(ledger, [id for group in groups for id, _, _ in group])
    known = ledger.find(list(numbers.values()))
    outcomes = Outcomes(replicas.main, ledger)
    for group in groups:
        trial = outcomes.copy()
        try:
            flags = []
            for id, given, ref in group:
                if id not in numbers:
                    raise _unknown(id)
                with refusing():
                    if replicas.settings.aggregation == "sum":
                        flags.append(trial.add(id, known[numbers[id]], given, ref))
                    else:
                        flags.append(trial.learn(id, known[numbers[id]], given))
            outcomes = trial
            replies.append(flags)
        except Refused as refused:
            replies.append(refused)
    outcomes.record()
    return replies


def _numbers(ledger: Ledger, ids: Sequence[str]) -> dict[str, int]:
    """The decisions that ids mean: their own, "event", or "event/slot"."""
    found: dict[str, int] = {}
    wanted: dict[tuple[str, str], str] = {}
    for id in ids:
        try:
            found[id] = ledger.number(id)
        except (TypeError, ValueError):
            event, _, slot = id.rpartition("/")
            wanted |= {(id, ""): id} | ({(event, slot): id} if event and slot else {})
    if wanted:
        for key, event in ledger.find_events(list(wanted)).items():
            found.setdefault(wanted[key], event.decision)
    return found


def _decision(ledger: Ledger, id: str) -> DecisionRow:
    """Within a turn: the decision that an id means."""
    number = _numbers(ledger, [id]).get(id)
    decided = None if number is None else ledger.decision(number)
    if decided is None:
        raise _unknown(id)
    return decided


def _unknown(id: str) -> Refused:
    return Refused("unknown", f"there is no decision {id!r}")


def correct(replicas: Replicas, id: str, outcome: Any) -> bool:
    """See `Bandit.correct`."""
    with replicas.turn():
        decided = _decision(replicas.ledger, id)
        outcomes = Outcomes(replicas.main, replicas.ledger)
        with refusing():
            new = outcomes.correct(id, decided, outcome)
        outcomes.record()
        return new


def add(replicas: Replicas, id: str, amount: Any, ref: str | None = None) -> bool:
    """See `Bandit.add`."""
    with replicas.turn():
        decided = _decision(replicas.ledger, id)
        outcomes = Outcomes(replicas.main, replicas.ledger)
        with refusing():
            new = outcomes.add(id, decided, amount, ref)
        outcomes.record()
        return new


def expire(replicas: Replicas, before: float, outcome: Any, most: int = 1000) -> int:
    """Assume `outcome` for decisions made by the time `before` whose own never came; at most so
    many of them, lest others wait. One that was migrated to may lack some of their actions."""
    with replicas.turn():
        ledger, main = replicas.ledger, replicas.main
        if main.agent is None:  # nothing was decided
            return 0
        with refusing():
            main.outcome(outcome, ledger)
        assumed, waiting, count = Outcomes(main, ledger), ledger.pending(before), 0
        while waiting and not count:
            found, part, waiting = ledger.find(waiting[:most]), waiting[:most], waiting[most:]
            for number in part:
                with suppress(ValueError):
                    count += assumed.learn(ledger.decision_id(number), found[number], outcome)
        assumed.record(expired=True)
        return count


def activate(replicas: Replicas, event: str) -> bool:
    """Deferred decisions of an event count from now on; False if they did already."""
    with replicas.door, replicas.ledger.turn():
        found = replicas.ledger.events(event)
        if not found:
            raise Refused("unknown", f"there is no event {event!r}")
        counted = [replicas.ledger.activate(one.decision) for one in found if one.deferred]
        return any(counted)
