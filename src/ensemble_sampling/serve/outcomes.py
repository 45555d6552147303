"""Outcomes of decisions that several processes serve: each is recorded once, in one order."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..decide.outcomes import Outcomes
from ..decide.replica import Replica
from ..decide.weighted import Observations
from ..ledger.ledger import Ledger
from .replicas import Replicas
from .types import Learn, Refused, refusing

MOST = 1000  # outcomes assumed in one transaction, so that other processes need not wait long


def observe(
    replicas: Replicas, main: Replica, groups: Sequence[Sequence[Learn]]
) -> list[list[bool] | Refused]:
    """Within a turn: record groups of outcomes that `main` can learn, each as a whole or not at
    all; for each group, which of its outcomes were new."""
    ledger, replies = replicas.ledger, []
    numbers = _numbers(ledger, [one.id for group in groups for one in group])
    known = ledger.find(list(numbers.values()))
    outcomes = observations(replicas, main)
    for group in groups:
        trial = outcomes.copy()
        try:
            flags = []
            for one in group:
                if (decided := known.get(numbers.get(one.id, -1))) is None:
                    raise _unknown(one.id)
                with refusing():
                    if replicas.settings.aggregation == "sum" and not replicas.weights:
                        flags.append(trial.add(one.id, decided, one.outcome, one.ref))
                    else:
                        flags.append(trial.learn(one.id, decided, one.outcome))
            outcomes = trial
            replies.append(flags)
        except Refused as refused:
            replies.append(refused)
    outcomes.record()
    return replies


def observations(replicas: Replicas, main: Replica) -> Observations:
    """What is to be recorded of decisions, by the weights of today."""
    return Observations(Outcomes(main, replicas.ledger), replicas.ledger, replicas.weights)


def _numbers(ledger: Ledger, ids: Sequence[str]) -> dict[str, int]:
    """The numbers of decisions by id, which is a decision's own, "event", or "event/slot"."""
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


def _unknown(id: str) -> Refused:
    return Refused("unknown", f"there is no decision {id!r}")


def correct(replicas: Replicas, id: str, outcome: Any) -> bool:
    """See `Bandit.correct`."""
    return _revise(replicas, Observations.correct, id, outcome)


def add(replicas: Replicas, id: str, amount: Any, ref: str | None = None) -> bool:
    """See `Bandit.add`."""
    return _revise(replicas, Observations.add, id, amount, ref)


def _revise(replicas: Replicas, how: Any, id: str, *given: Any) -> bool:
    with replicas.turn():
        number = _numbers(replicas.ledger, [id]).get(id)
        if number is None or not (known := replicas.ledger.find([number])):
            raise _unknown(id)
        decided = known[number]
        outcomes = observations(replicas, replicas.main)
        with refusing():
            new = how(outcomes, id, decided, *given)
        outcomes.record()
        return new


def observe_metrics(replicas: Replicas, id: str, values: dict[str, float]) -> bool:
    """See `Bandit.observe`."""
    return _revise(replicas, Observations.observe, id, values)


def expire(replicas: Replicas, older_than: float, outcome: Any) -> int:
    """Assume `outcome` for decisions without one that are older than so many seconds; how many."""
    total, before = 0, time.time() - older_than
    while found := _expire_some(replicas, before, outcome):
        total += found
    return total


def _expire_some(replicas: Replicas, before: float, outcome: Any) -> int:
    """The same for the first of them. An agent that the bandit was migrated to may not know the
    action of some; these stay without an outcome."""
    with replicas.turn():
        ledger, main = replicas.ledger, replicas.main
        if main.agent is None:  # nothing was decided
            return 0
        with refusing():
            main.outcome(outcome, ledger)
        assumed, waiting, count = observations(replicas, main), ledger.pending(before), 0
        while waiting and not count:
            found, part, waiting = ledger.find(waiting[:MOST]), waiting[:MOST], waiting[MOST:]
            for number in part:
                with suppress(ValueError):
                    count += assumed.expire(ledger.decision_id(number), found[number], outcome)
        assumed.record(expired=True)
        return count


def activate(replicas: Replicas, event: str) -> bool:
    """End the deferral of an event's decisions: outcomes may be assumed for them. False if there
    was none."""
    with replicas.turn():
        found = replicas.ledger.events(event)
        if not found:
            raise Refused("unknown", f"there is no event {event!r}")
        counted = [replicas.ledger.activate(one.decision) for one in found if one.deferred]
        return any(counted)
