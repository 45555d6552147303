"""Makes and records decisions of a bandit that several processes serve."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from ..decide.decisions import Values
from ..decide.explain import Explanation, explain
from ..decide.programs import Drawn, room
from ..decide.replica import MANY, Replica
from ..decide.sticky import again
from ..inputs.offer import Offer
from ..ledger.ledger import DecisionRow, Event, Opinion
from ..ledger.rows import Held, decided
from . import types
from .outcomes import observe
from .replicas import Replicas
from .types import Choose, Decision, Learn, Refused

MISTAKES = (TypeError, ValueError, OverflowError, RecursionError)  # in a request
ELSEWHERE = Held(True, 1.0, 1.0)  # made by a caller: no part of what is compared
RECENT = 100  # decisions whose shapes of offers are compiled for at the start


class Draft(NamedTuple):
    """A decision that is not recorded yet: the number of its row is one drawn at random."""

    request: Choose
    row: DecisionRow
    values: Values | None
    opinions: list[Opinion]


class Later(NamedTuple):
    """Decisions that can be made when programs for offers like this one are compiled."""

    offer: Offer


Answer = list[Decision] | Refused | Later


class Changed(Exception):
    """The ledger's configuration is no longer the one that is loaded."""


class Decider:
    """Decides for a bandit whose ledger other processes write to as well.

    The state it decides by may be a little old. What it records is exact all the same: the
    probabilities from which the decision was drawn, and every outcome once, in one order.

    warmed: whether it has compiled for offers like those of former decisions.
    """

    def __init__(self, replicas: Replicas):
        self.replicas, self._ledger, self.warmed = replicas, replicas.ledger, False
        self._rng = np.random.default_rng()  # without a seed: no two processes may draw alike
        self._sizes: dict[Any, int] = {}  # for how many offers of a shape there are programs
        self._missing: dict[Any, Offer | None] = {}  # by shape; None: they are being compiled

    def work(
        self,
        decisions: Sequence[Sequence[Choose]],
        outcomes: Sequence[Sequence[Learn]],
        hurry: bool = False,
    ) -> tuple[list[Answer], list[list[bool] | Refused]]:
        """Record groups of decisions and of outcomes in one transaction. Each group is recorded or
        refused as a whole, independently of the others. In a `hurry`, the answer to a group that
        needs a program to be compiled is `Later`."""
        replicas = self.replicas
        with replicas.door:
            while True:
                if replicas.loaded is None:
                    replicas.load()
                main, drafts = self._drafts(decisions, hurry)
                with suppress(Changed):
                    with self._ledger.turn():
                        if not replicas.current:
                            raise Changed
                        if main is not replicas.main:
                            self._ledger.describe(main.setup.description)
                        answers = self._record(drafts)
                        flags = observe(replicas, main, outcomes) if outcomes else []
                    if main is not replicas.main:
                        replicas.main = main
                        replicas.load()
                    return answers, flags
                replicas.load()

    def _drafts(
        self, groups: Sequence[Sequence[Choose]], hurry: bool
    ) -> tuple[Replica, list[list[Draft] | Refused | Later]]:
        """Choose for all groups at once, by a replica that covers all that is said in them."""
        main, read = self.replicas.main, []
        for group in groups:
            main, offers = self._read(main, group)
            read.append(offers)
        given = [offer for offers in read if isinstance(offers, list) for offer in offers]
        chance = hurry and self._guesses(main, given)
        # One that grew is compiled in any case.
        hurry = hurry and not chance and main is self.replicas.main
        made: list[list[Draft] | Refused | Later] = []
        able: list[tuple[Choose, Offer, np.ndarray]] = []
        for group, offers in zip(groups, read, strict=True):
            tables = self._tables(main, offers, hurry)
            made.append([] if isinstance(tables, list) else tables)
            if isinstance(tables, list) and isinstance(offers, list):
                able += zip(group, offers, tables, strict=True)
        drafts = iter(self._by_chance(able) if chance else self._draft(main, able, hurry))
        for group, found in zip(groups, made, strict=True):
            if isinstance(found, list):
                found += islice(drafts, len(group))
        return main, made

    def _guesses(self, main: Replica, offers: Sequence[Offer]) -> bool:
        """Whether chance decides: the default agent has learned nothing, and would do the same once
        its programs are compiled, for which the first visitors need not wait."""
        now = main.version
        if main.setup.recipe is None or main.agent is None or self.replicas.shadows.awake:
            return False
        if now is not None and now.outcomes:
            return False
        missing = self._new(main, offers)
        for offer in missing:
            self._missing.setdefault(self._shape(main, offer), offer)
        return bool(missing)

    def missing(self) -> list[Offer]:
        """The offers of those shapes for which programs have to be compiled; once each."""
        found = [offer for offer in self._missing.values() if offer is not None]
        self._missing = dict.fromkeys(self._missing)
        return found

    def _read(
        self, main: Replica, group: Sequence[Choose]
    ) -> tuple[Replica, list[Offer] | Refused]:
        """Offers as they were given, and a replica that covers them. One that grew out of `main`
        learns the history first: it would else decide as if there were none."""
        try:
            offers = [main.inputs.read(o.actions, o.context, o.available) for o in group]
            for one, offer in zip(group, offers, strict=True):
                if one.made_at is not None and offer.available.sum() != 1:
                    raise ValueError("a decision with `made_at` has one available action: its own")
            if all(map(main.inputs.covers, offers)):
                return main, offers
            grown = main.covering(offers)
        except MISTAKES as error:
            return main, Refused("invalid", str(error))
        with self._ledger.turn(write=False):
            if self._ledger.outcomes:
                learner = Replica(grown.setup)
                learner.sync(self._ledger)
                grown.version = learner.version
        return grown, offers

    def _tables(
        self, main: Replica, offers: list[Offer] | Refused, hurry: bool
    ) -> list[np.ndarray] | Refused | Later:
        """What is on offer as numbers."""
        if isinstance(offers, Refused):
            return offers
        try:
            tables = [main.table(offer) for offer in offers]
        except MISTAKES as error:
            return Refused("invalid", str(error))
        new = self._new(main, offers) if hurry else []
        return Later(new[0]) if new else tables

    def _draft(
        self, main: Replica, asked: Sequence[tuple[Choose, Offer, np.ndarray]], hurry: bool
    ) -> list[Draft]:
        """Choose for each request, by its offer and that as numbers, and ask the shadows for their
        opinions."""
        # Random numbers in place of the decisions' own, which are known when they are recorded.
        numbers = self._rng.integers(2**32, size=len(asked)).tolist()
        offers, tables = [offer for _, offer, _ in asked], [table for *_, table in asked]
        state = main.sync(self._ledger)
        if hurry and len(asked) > 1 and self._new(main, offers, MANY):
            each = zip(numbers, offers, tables, strict=True)  # until programs are compiled
            drawn = [main.choose_many([n], [o], [t], state)[0] for n, o, t in each]
        else:
            drawn = main.choose_many(numbers, offers, tables, state)
            if len(asked) == 1:
                self._sizes.setdefault(self._shape(main, offers[0]), 1)
        every = zip(numbers, asked, drawn, strict=True)
        return [self._chosen(number, *one[:2], found) for number, one, found in every]

    def _by_chance(self, asked: Sequence[tuple[Choose, Offer, np.ndarray]]) -> list[Draft]:
        """Choose any of the available actions, all as likely."""
        made = []
        for request, offer, _ in asked:
            shares = offer.available / offer.available.sum()
            drawn = Drawn(self._index(shares), shares, None)
            made.append(self._chosen(int(self._rng.integers(2**32)), request, offer, drawn))
        return made

    def _chosen(self, number: int, request: Choose, offer: Offer, drawn: Drawn) -> Draft:
        """The decision, from what the agent has drawn and by the settings."""
        (index, shares, values), free = drawn, offer.available
        settings, ledger, now = self.replicas.settings, self._ledger, time.time()
        theirs = request.made_at
        if settings.mode == "apprentice" or theirs is not None:
            index = int(free.argmax())
            shares = (np.arange(len(free)) == index).astype(shares.dtype)
        elif settings.floor:
            shares = (1 - settings.floor) * shares + settings.floor * free / free.sum()
            index = self._index(shares)
        held, divider = None, self.replicas.divider
        if theirs is not None:
            now, held = min(theirs, now), ELSEWHERE
        elif divider is not None and settings.mode != "apprentice":
            made = Drawn(index, shares, values)
            index, shares, held = divider.divide(number, offer, made, request.subject)
        shares = shares.astype(ledger.dtype, copy=False)
        row = decided(number, now, offer, index, shares, request.subject, held)
        shadows, apprentice = self.replicas.shadows, self.replicas.apprentice
        said = shadows.opinions(ledger, [row]) if shadows.awake else []
        if settings.mode == "apprentice" and apprentice is not None:
            chance = float(drawn.probabilities[index])
            said.append(Opinion(number, apprentice.number, drawn.index, chance, 1.0))
        return Draft(request, row, values, said)

    def _index(self, shares: np.ndarray) -> int:
        total = np.where(shares > 0, np.cumsum(shares, dtype=float), -1.0)
        return int(np.argmax(total > total.max() * self._rng.random()))

    def _record(self, groups: Sequence[list[Draft] | Refused | Later]) -> list[Answer]:
        """Within a turn: number and record the decisions; one whose event is known is answered as
        before."""
        ledger = self._ledger
        drafts = [draft for group in groups if isinstance(group, list) for draft in group]
        keys = [(one.request.event, one.request.slot) for one in drafts if one.request.event]
        known: dict[tuple[str | None, str], Decision] = {
            key: self._again(event)
            for key, event in (ledger.find_events(keys) if keys else {}).items()
        }
        rows: list[DecisionRow] = []
        said: list[Opinion] = []
        events: list[Event] = []
        mine: dict[str | None, DecisionRow] = {}
        first, made, sticky = ledger.decisions, [], self.replicas.control.sticky
        for request, row, values, opinions in drafts:
            key = (request.event, request.slot)
            if key in known:
                made.append(known[key])
                continue
            again = sticky and request.made_at is None
            held = self._holds(row, mine) if again else None
            if held is not None:
                made.append(held)
                if request.event:
                    number = ledger.number(held.id)
                    events.append(Event(request.event, request.slot, number, request.deferred))
                    known[key] = held
                continue
            number = first + len(rows)
            numbered = mine[row.subject] = row._replace(number=number)
            rows.append(numbered)
            said += [opinion._replace(decision=number) for opinion in opinions]
            decision = self._decision(request, numbered, values)
            made.append(decision)
            if request.event:
                events.append(Event(request.event, request.slot, number, request.deferred))
                known[key] = structs.replace(decision, again=True)
        if rows or events:
            ledger.add_decisions(rows, said, events=events)
        answers = iter(made)
        return [
            [next(answers) for _ in group] if isinstance(group, list) else group for group in groups
        ]

    def _holds(self, row: DecisionRow, batch: Mapping[str | None, DecisionRow]) -> Decision | None:
        """The decision that holds for a subject already, see `sticky.again`."""
        control, offer = self.replicas.control, row.offer
        if offer is None:
            return None
        known = again(control, self._ledger, row.subject, offer, row.time, batch)
        if known is None:
            return None
        before, place = known
        found = self._decision(Choose(), before._replace(offer=offer), again=True)
        found.index = place
        return found

    def _again(self, event: Event) -> Decision:
        """The answer that an event got before."""
        (row,) = self._ledger.between(event.decision, event.decision + 1)
        return self._decision(Choose(event=event.event, slot=event.slot), row, again=True)

    def _decision(
        self,
        request: Choose,
        row: DecisionRow,
        values: Values | None = None,
        again: bool = False,
    ) -> Decision:
        """The answer for a row."""
        names = None if row.offer is None else row.offer.names
        mean, spread = (None, None) if values is None else values
        return Decision(
            id=self._ledger.decision_id(row.number),
            event=request.event,
            slot=request.slot,
            index=row.chosen,
            action=row.chosen if row.action is None else row.action,
            probability=float(row.probabilities[row.chosen]),
            actions=None if names is None else list(names),
            probabilities=row.probabilities.tolist(),
            mean=None if mean is None else mean.tolist(),
            spread=None if spread is None else spread.tolist(),
            time=row.time,
            again=again,
            control=None if row.held is None else row.held.control,
        )

    def predict(self, request: types.Offer) -> types.Prediction:
        """What a decision would be made of; nothing is recorded."""
        asked = Choose(request.actions, request.context, request.available)
        with self.replicas.door:
            main, (_, offer, _) = self._one(asked)
        if main is self.replicas.main:
            self.prepare(offer, 1)  # while others are decided
        with self.replicas.door:
            main, one = self._one(asked)
            ((_, row, values, _),) = self._draft(main, [one], hurry=False)
            made = self._decision(asked, row, values)
        return types.Prediction(made.actions, made.probabilities, made.mean, made.spread)

    def _one(self, request: Choose) -> tuple[Replica, tuple[Choose, Offer, np.ndarray]]:
        """A single request with its offer, and that as numbers, as it would be decided."""
        main, offers = self._read(self.replicas.main, [request])
        tables = self._tables(main, offers, hurry=False)
        if not (isinstance(offers, list) and isinstance(tables, list)):
            raise tables if isinstance(tables, Refused) else AssertionError(tables)
        return main, (request, offers[0], tables[0])

    def value(self, offer: Offer) -> Values | None:
        """The values of an earlier offer's actions, by the present state; None where nobody can
        tell any more."""
        self.prepare(offer, 1)
        with self.replicas.door, suppress(*MISTAKES):
            main = self.replicas.main
            tables, state = [main.table(offer)], main.sync(self._ledger)
            return main.choose_many([0], [offer], tables, state)[0].values

    def explain(self, id: str, row: DecisionRow | None, top: int) -> Explanation:
        """Why a recorded decision was made, by the present state."""
        if row is not None and row.offer is not None:
            self.prepare(row.offer, 1)
        with self.replicas.door:
            main = self.replicas.main
            return explain(id, row, main, main.sync(self._ledger), top)

    def _shape(self, main: Replica, offer: Offer) -> Any:
        """The shape for which programs are compiled; a fixed set of actions has one."""
        rows = len(offer.available)
        rows = room(rows) if main.inputs.arms is None else rows
        others = [one.programs.kind for _, one in self.replicas.shadows.awake.values()]
        return rows, offer.actions is None, main.programs.kind, *others

    def _new(self, main: Replica, offers: Iterable[Offer], size: int = 1) -> list[Offer]:
        """The offers without a compiled program for so many of their shape at once."""
        if main.host:
            return []
        return [offer for offer in offers if self._sizes.get(self._shape(main, offer), 0) < size]

    def prepare(self, offer: Offer, size: int) -> bool:
        """Compile programs for so many offers of this shape at once; whether there are programs for
        more. Any thread may call it."""
        with self.replicas.door:  # no configuration is half loaded
            main, shadows = self.replicas.main, self.replicas.shadows.replicas()
            if main.host:
                return False
            shape = self._shape(main, offer)
        if self._sizes.get(shape, 0) < size:
            with suppress(Exception):  # a decision will raise it again
                tables = [main.table(offer)] * size
                main.choose_many([0] * size, [offer] * size, tables, _state(main))
                if size == 1:
                    for shadow in shadows.values():
                        shadow.choose(0, offer, _state(shadow))
                    if main.version is not None:
                        main.outcome(0.0, self._ledger)
            self._sizes[shape] = size
        return size < MANY

    def warm(self, seconds: float = 3.0) -> None:
        """Compile for the shapes of the last offers, or where there were none for those that a
        declared agent must expect, so that the first requests need not wait."""
        if self.warmed:
            return
        with self.replicas.door:
            ledger, main = self._ledger, self.replicas.main
            with ledger.turn(write=False):
                number = ledger.decisions
                rows = [*ledger.between(max(0, number - RECENT), number)]
            if main.agent is None or not rows:
                return self._warm_declared(main)
            self.warmed = True
            found = [row.offer for row in rows if row.offer is not None]
            shapes = [self._shape(main, offer) for offer in found]
        often, offers = Counter(shapes), dict(zip(shapes, found, strict=True))
        end, size = time.monotonic() + seconds, 1
        while size <= MANY:
            for shape, _ in often.most_common():
                if time.monotonic() < end:
                    self.prepare(offers[shape], size)
            size *= 2

    def _warm_declared(self, main: Replica) -> None:
        """Compile for the first offer to an agent whose actions or features are known: its fixed
        actions, or two rows."""
        if main.agent is None or main.host or main.setup.recipe is not None:
            return
        width = main.width or 0
        row = [0.0] * width if main.inputs.hasher is None else {"feature": 0.0}
        for given in ((None, None), (None, row), ([row, row], None)):
            with suppress(*MISTAKES):
                offer = main.inputs.read(*given, None)
                grown = main.covering([offer])
                grown.choose_many([0], [offer], [grown.table(offer)], grown.fresh())
                self._sizes[self._shape(grown, offer)] = 1
                return


def _state(replica: Replica) -> Any:
    """A state to compile programs with."""
    return replica.fresh() if replica.version is None else replica.version.state
