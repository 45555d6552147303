"""Candidates beside the agent in charge: they learn what it learns and say what they would do."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..agents.thompson import as_agent
from ..config import differences
from ..core import fact
from ..inputs.features import Columns
from ..inputs.offer import shown
from ..intervals import NEVER, POWERS, TAIL, Span, Weights
from ..ledger.ledger import DecisionRow, Ledger, Opinion
from .replica import Replica
from .setup import Options, Setup

SHADOWS, REMOVED = "shadows", "removed"  # changes that are no settings
SUMS = ", ".join(f"sum({' * '.join('w' * a + 'r' * b)})" for a, b in POWERS)
WEIGHTS = f"""
SELECT shadow, count(*), avg(r), max(w), {SUMS}
FROM (
  SELECT p.shadow, p.probability / nullif(p.propensity, 0) AS w, CASE
    WHEN EXISTS (SELECT 1 FROM revisions WHERE decision = p.decision) THEN
      (SELECT reward FROM revisions WHERE decision = p.decision ORDER BY nth DESC LIMIT 1)
    ELSE o.reward END - (SELECT avg(reward) FROM outcomes) AS r
  FROM opinions AS p JOIN outcomes AS o ON o.decision = p.decision
) AS weighted WHERE r IS NOT NULL AND w IS NOT NULL GROUP BY shadow
"""
RANGE = (  # the first is taken off before powers are summed, lest they cancel
    "SELECT (SELECT avg(reward) FROM outcomes), min(reward), max(reward), "
    "min(CASE WHEN reward IN (0, 1) THEN 1 ELSE 0 END) FROM "
    "(SELECT reward FROM outcomes UNION ALL SELECT reward FROM revisions) AS every "
    "WHERE reward IS NOT NULL"
)
SUPPORT = 0.05  # of its choices may have had no chance, before nothing can be said of their value
CHANCES = (  # of what a shadow chose lately, to be chosen by the agent in charge
    "SELECT p.chosen, d.probabilities FROM opinions AS p JOIN decisions AS d "
    "ON d.number = p.decision WHERE p.shadow = {} ORDER BY p.number DESC LIMIT 1000"
)
AGREEMENT = (
    "SELECT p.shadow, count(*), avg(CASE WHEN p.chosen = d.chosen THEN 1.0 ELSE 0.0 END) "
    "FROM opinions AS p "
    "JOIN decisions AS d ON d.number = p.decision GROUP BY p.shadow"
)


@dataclass(frozen=True)
class Compared:
    """How a shadow would have done, over the decisions it was there for.

    agreement: how often it would have chosen what was chosen.
    value: the mean reward it would have had, by self-normalised inverse propensity weighting as in
        `evaluate`, with its standard error and 95% interval; these are None while all rewards are
        the same, but for clicks (0 or 1). What it would choose must have had a chance: decide with
        a `floor`.
    effective: how many decisions made by itself would tell as much.
    reward: the mean reward of the agent in charge over the same decisions.
    unsupported: the share of its latest choices that had no chance; there is no value where it is
        above 5%.
    """

    name: str
    decisions: int
    agreement: float | None
    value: float | None
    stderr: float | None
    low: float | None
    high: float | None
    effective: float
    reward: float | None
    unsupported: float = 0.0

    def __str__(self) -> str:
        if self.agreement is None:
            return f"{self.name}: no decision yet"
        text = f"{self.name}: agrees in {self.agreement:.3g} of {self.decisions} decisions"
        if self.unsupported > SUPPORT:
            return (
                f"{text}; what it would have earned cannot be told: {self.unsupported:.0%} of "
                "its choices had no chance. Decide with a floor"
            )
        if self.value is None or self.low is None or self.reward is None:
            return text
        return (
            f"{text}, would have earned {self.value:.4g} ({self.low:.4g} to {self.high:.4g}, as "
            f"from {self.effective:.0f} of its own), in charge {self.reward:.4g}"
        )


class Unknown(ValueError):
    """There is no such shadow."""


class Recorded(NamedTuple):
    """A shadow as the ledger has it."""

    number: int
    first: int
    description: Any


def candidate(agent: Any, like: Replica, begun: Recorded | None = None) -> Replica:
    """Another replica for the decisions of this one, as a migration would make it. A shadow that
    has `begun` keeps the columns it began with: those of the agent in charge may have grown."""
    ours, width = like.inputs, like.width
    hasher, columns = ours.hasher, ours.columns
    if begun is not None and (known := Columns.recorded(begun.description.get("columns"))):
        hasher, columns, width = None, known, known.width
    if width is None:
        raise ValueError("a shadow needs to know the number of features: make a decision first")
    arms, names = ours.arms, ours.names
    if agent is not None:
        agent = as_agent(agent)
        arms, dim = fact(agent, "arms"), fact(agent, "dim")
        if arms not in (None, ours.arms):
            has = "a free choice of actions" if ours.arms is None else f"{ours.arms} actions"
            raise ValueError(f"the shadow has {arms} actions, this bandit {has}")
        if dim not in (None, width):
            raise ValueError(f"this bandit's actions have {width} features, the shadow {dim}")
        names = None if arms is None else names
    about = like.setup.seed, like.setup.normalise, hasher, names, like.setup.floor
    setup = Setup(Options(agent, *about), arms=arms, columns=columns)
    return Replica(setup, like.follows)


def known(ledger: Ledger, name: str) -> Recorded:
    """The shadow of this name."""
    there = recorded(ledger)
    if name not in there and any(name == former for _, former, *_ in ledger.shadows()):
        raise Unknown(f"the shadow {name!r} was promoted or dismissed, and is one no more")
    if name not in there:
        raise Unknown(f"there is no shadow {name!r}; there are {shown(list(there))}")
    return there[name]


def opinions(ledger: Ledger, name: str) -> dict[str, list[Any]]:
    """What a shadow would have done, as columns."""
    said = list(ledger.opinions(known(ledger, name).number))
    return {
        "id": [ledger.decision_id(one.decision) for one in said],
        "index": [one.chosen for one in said],
        "probability": [one.probability for one in said],
        "propensity": [one.propensity for one in said],
    }


def recorded(ledger: Ledger) -> dict[str, Recorded]:
    """The shadows that there are, by name."""
    found: dict[str, Recorded] = {}
    for number, name, first, description in ledger.shadows():
        found.pop(name, None)
        if description is not None:
            found[name] = Recorded(number, first, description)
    return found


def dismiss(ledger: Ledger, name: str) -> None:
    """There is no shadow of this name from now on; what it said stays."""
    known(ledger, name)
    ledger.add_shadow(name, None)


def promote(ledger: Ledger, name: str, replica: Replica) -> None:
    """Record that a shadow decides from now on."""
    ledger.describe(replica.setup.description, promoted=name)


def watching(
    ledger: Ledger, candidates: Mapping[str, Any], like: Replica
) -> Iterator[tuple[str, int, Replica]]:
    """(name, number, replica) of the recorded shadows whose agents are at hand, as they began."""
    for name, known in recorded(ledger).items():
        if name not in candidates or like.agent is None:
            continue
        try:
            replica = candidate(candidates[name], like, known)
            if changed := differences(known.description, replica.setup.description):
                raise ValueError(f"it was begun with another configuration: {'; '.join(changed)}")
        except ValueError as error:
            warnings.warn(f"the shadow {name!r} sleeps: {error}", stacklevel=2)
            continue
        replica.file = f"shadow-{known.number}.safetensors"
        yield name, known.number, replica


def compare(ledger: Ledger) -> tuple[Compared, ...]:
    """How every shadow would have done."""
    agreed = {row[0]: row[1:] for row in ledger.ask_all(AGREEMENT)}
    sums = {row[0]: row[1:] for row in ledger.ask_all(WEIGHTS)}
    ((origin, low, high, clicks),) = ledger.ask_all(RANGE)
    span = Span.seen(low or 0.0, high or 0.0, bool(clicks))
    return tuple(
        _compared(
            name,
            agreed.get(shadow.number),
            sums.get(shadow.number),
            span,
            origin or 0.0,
            _unsupported(ledger, shadow.number),
        )
        for name, shadow in recorded(ledger).items()
    )


def _unsupported(ledger: Ledger, shadow: int) -> float:
    """The share of a shadow's latest choices that the agent in charge could not have made, or as
    good as not."""
    rows = ledger.ask_all(CHANCES.format(shadow))
    shares = [np.frombuffer(chances, ledger.dtype) for _, chances in rows]
    never = [own[chosen] < NEVER for (chosen, _), own in zip(rows, shares, strict=True)]
    return float(np.mean(never)) if never else 0.0


def _compared(
    name: str, agreed: Any, sums: Any, span: Span, origin: float, unsupported: float
) -> Compared:
    """By sums over its decisions with outcomes: their number, the mean reward, the largest weight,
    and those of `Weights`; rewards are less `origin`."""
    decisions, agreement = agreed or (0, None)
    value = stderr = low = high = reward = None
    effective = 0.0
    if sums is not None:
        count, reward, largest, *powers = sums
        weights = Weights(count, tuple(powers), largest, origin)
        reward += origin
        if largest > 0 and unsupported <= SUPPORT:
            effective, found = weights.effective, weights.mean(span)
            value = found.value
            if span.high > span.low and math.isfinite(found.stderr or 0.0):
                by = weights.missing(TAIL) * (span.high - span.low)
                _, stderr, low, high = found.widened(by).within(span)
    return Compared(
        name, decisions, agreement, value, stderr, low, high, effective, reward, unsupported
    )


class Shadows:
    """The shadows that are awake. One that fails says so once and sleeps: no decision is harmed."""

    def __init__(self) -> None:
        self.awake: dict[str, tuple[int, Replica]] = {}  # by name, with the ledger's number

    def admit(self, ledger: Ledger, name: str, replica: Replica) -> None:
        """Begin, or go on after the folder was opened again, by what the ledger has taught."""
        there, ours = recorded(ledger).get(name), replica.setup.description
        if there is not None and (changed := differences(there.description, ours)):
            raise ValueError(
                f"the shadow {name!r} was begun with another configuration; it differs in\n  "
                + "\n  ".join(changed)
                + "\nGo on with that one, dismiss it, or give the new one another name."
            )
        if there is None:
            replica.check_history(ledger)
        number = ledger.next_shadow if there is None else there.number
        replica.file = f"shadow-{number}.safetensors"
        if there is None:
            replica.forget(ledger)
        for row in ledger.learned(after=0):
            replica.outcome(row.outcome, ledger)
        replica.sync(ledger)
        if there is None:
            ledger.add_shadow(name, ours)
        self.awake[name] = (number, replica)

    def replica(self, name: str) -> Replica | None:
        return self.awake[name][1] if name in self.awake else None

    def replicas(self) -> dict[str, Replica]:
        return {name: replica for name, (_, replica) in self.awake.items()}

    def take(self, ledger: Ledger, name: str) -> Replica:
        """One that is awake."""
        if name in self.awake:
            return self.awake[name][1]
        known(ledger, name)
        raise ValueError(f"the shadow {name!r} sleeps: wake it by bandit.shadow(name, agent)")

    def drop(self, ledger: Ledger, name: str) -> None:
        """It sleeps from now on, and what it knows is forgotten."""
        if name in self.awake:
            self.awake.pop(name)[1].forget(ledger)

    def opinions(self, ledger: Ledger, rows: Sequence[DecisionRow]) -> list[Opinion]:
        """What each would have done in these decisions, which are about to be recorded."""
        found = []
        for name, (number, replica) in list(self.awake.items()):
            try:
                if not replica.informed(ledger):
                    continue
                state = replica.sync(ledger)
                said = []
                for row in rows:
                    assert row.offer is not None
                    index, shares, _ = replica.choose(row.number, row.offer, state)
                    chances = float(shares[row.chosen]), float(row.probabilities[row.chosen])
                    said.append(Opinion(row.number, number, index, *chances))
                found += said
            except Exception as error:  # whatever is wrong with it
                self._sleep(name, error)
        return found

    def learn(self, ledger: Ledger, rows: list[tuple[DecisionRow, Any]]) -> None:
        """What was just recorded."""
        for name, (_, replica) in list(self.awake.items()):
            try:
                for _, outcome in rows:
                    replica.outcome(outcome, ledger)
                replica.learn(ledger, rows)
            except Exception as error:
                self._sleep(name, error)

    def sync(self, ledger: Ledger, most: int) -> None:
        """Bring each up to the ledger, by at most so many outcomes."""
        for name, (_, replica) in list(self.awake.items()):
            try:
                replica.sync(ledger, most)
            except Exception as error:
                self._sleep(name, error)

    def save(self, ledger: Ledger) -> None:
        for _, replica in self.awake.values():
            replica.save(ledger)

    def _sleep(self, name: str, error: Exception) -> None:
        del self.awake[name]
        warnings.warn(f"the shadow {name!r} failed and sleeps: {error}", stacklevel=6)
