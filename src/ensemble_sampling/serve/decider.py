"""A bandit that several processes serve: each decides by a state it follows, one of them learns."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from ..decide.bandit import Bandit
from ..decide.decisions import Values
from ..decide.replica import MANY
from ..decide.setup import HASHER
from ..inputs.offer import Offer
from ..ledger.ledger import Decided, Event, Opinion
from ..ledger.offers import Offered
from .admin import Steered
from .outcomes import Heard, Hearing, Told
from .replicas import refusing
from .types import Ask, Made, Refused
from .warmup import Compiled


class Draft(NamedTuple):
    """A decision that is not recorded yet, and so has no number."""

    ask: Ask
    offer: Offer
    row: Decided
    mean: np.ndarray | None
    spread: np.ndarray | None
    said: list[Opinion]


class Later(NamedTuple):
    """Decisions that can be made when programs for offers like this one are compiled."""

    offer: Offer


Answer = list[Any] | Refused | Later


class Changed(Exception):
    """The ledger's configuration is no longer the one that is loaded."""


class Rehearsed(Exception):
    """What was settled holds for nothing but to see what follows from it."""


class Shared(Hearing, Steered, Compiled):
    """Decides for a bandit whose ledger others write to as well.

    A state that is a little old costs little; what is recorded is exact all the same: the
    probabilities a decision was really drawn from, and every outcome once, in one order for all.
    """

    def work(
        self,
        decisions: Sequence[Sequence[Ask]],
        outcomes: Sequence[Sequence[Told]],
        hurry: bool = False,
    ) -> tuple[list[Answer], list[Heard]]:
        """Groups of decisions and groups of outcomes in one transaction. Each group is done or
        refused as a whole, whatever becomes of the others; in a `hurry`, those for which there is
        something to `prepare` are left for `Later`."""
        with self._door:
            self._ledger.check()
            first: list[Answer] = []
            while True:
                if self.loaded is None:
                    self._load()
                try:
                    first += self._open(decisions[len(first) :])
                    drafts = self._drafted(decisions[len(first) :], hurry)
                    with self._ledger.turn():
                        if self.outdated:
                            raise Changed
                        return first + self._record(drafts), self._observe(outcomes)
                except Changed:
                    self._load()

    def _open(self, groups: Sequence[Sequence[Ask]]) -> list[Answer]:
        """While the number of features is open, one group after another tries to settle it."""
        done: list[Answer] = []
        while self._mind.width is None and len(done) < len(groups):
            self._rehearse(groups[len(done)])
            try:
                with self._ledger.turn():
                    if self.outdated:
                        self._reload()
                        continue
                    try:
                        made: Answer = self._settled(groups[len(done)])
                    except Refused as refused:
                        made = refused
                    self.loaded = self._ledger.configured
            except BaseException:
                self.loaded = None  # what it settled was not recorded
                raise
            done.append(made)
        return done

    def _look(self, offers: list[tuple[Any, Any, Any]]) -> None:
        """Who asks over HTTP cannot choose a hasher later, and what is said by names may be more
        the next time: it is hashed from the first."""
        super()._look(offers)
        said = any(_described(Ask(actions, context)) for actions, context, _ in offers)
        if said and self._mind.recipe is not None and self._mind.width is None:
            self._offers.hasher = HASHER
            self._mind.settle(HASHER.width)

    @contextmanager
    def _settling(self, group: Sequence[Ask]) -> Iterator[tuple[list[Offer], set[int]]]:
        """Offers as the first ones, and their numbers of features, of which there is one."""
        offers = [(ask.actions, ask.context, ask.available) for ask in group]
        with self._tentative(offers):
            with refusing():
                read = [self._offers.read(*offer, self._mind.width) for offer in offers]
                widths = {offer.table.shape[1] for offer in read}
                if len(widths) > 1:
                    raise ValueError(f"offers differ in their number of features: {sorted(widths)}")
            yield read, widths

    def _rehearse(self, group: Sequence[Ask]) -> None:
        """Compile what the first decisions need, before the turn in which others wait for them."""
        with suppress(Refused, Rehearsed), self._settling(group) as (read, widths):
            self._mind.settle(next(iter(widths), None))
            self._drafts([*zip(group, read, strict=True)])
            raise Rehearsed

    def _settled(self, group: Sequence[Ask]) -> list[Made]:
        with self._settling(group) as (read, widths):
            self._settle(widths)
            (made,) = self._record([self._drafts([*zip(group, read, strict=True)])])
            assert isinstance(made, list)
            return made

    def _drafted(
        self, groups: Sequence[Sequence[Ask]], hurry: bool
    ) -> list[list[Draft] | Refused | Later]:
        read: list[list[Offer] | Refused | Later] = []
        for group in groups:
            offers = self._read(group)
            new = [] if isinstance(offers, Refused) or not hurry else self._new(offers)
            read.append(Later(new[0]) if new else offers)
        asked = [
            both
            for group, offers in zip(groups, read, strict=True)
            if isinstance(offers, list)
            for both in zip(group, offers, strict=True)
        ]
        drafts = iter(self._drafts(asked, hurry))
        return [
            [next(drafts) for _ in offers] if isinstance(offers, list) else offers
            for offers in read
        ]

    def _read(self, group: Sequence[Ask]) -> list[Offer] | Refused:
        columns = self._offers.columns
        try:
            return [self._offer(ask) for ask in group]
        except Refused as refused:
            self._offers.columns = columns
            return refused

    def _offer(self, ask: Ask) -> Offer:
        with refusing():
            return self._offers.read(ask.actions, ask.context, ask.available, self._mind.width)

    def _drafts(self, asked: Sequence[tuple[Ask, Offer]], hurry: bool = False) -> list[Draft]:
        """Choose for each, and let shadows say what they would have done."""
        # No decision's number yet: that is known when it is recorded.
        numbers = self._rng.integers(2**32, size=len(asked)).tolist()
        state, offers = self._mind.sync(self._ledger), [(o.table, o.mask) for _, o in asked]
        if hurry and self._new([offer for _, offer in asked], MANY):  # one by one, until it is
            pick = self._mind.pick_many
            picked = [pick([n], [o], state)[0] for n, o in zip(numbers, offers, strict=True)]
        else:
            picked = self._mind.pick_many(numbers, offers, state)
        return [self._draft(*one) for one in zip(numbers, asked, picked, strict=True)]

    def _draft(self, number: int, asked: tuple[Ask, Offer], picked: Any) -> Draft:
        ask, offer = asked
        table, names, mask, context = offer
        index, shares, values = picked
        own, likely, settings = index, shares, self.settings
        if settings.mode == "apprentice":
            index = int(mask.argmax())
            shares = (np.arange(len(mask)) == index).astype(shares.dtype)
        elif settings.floor:
            shares = (1 - settings.floor) * shares + settings.floor * mask / mask.sum()
            index = self._drawn(shares)
        shares = shares.astype(self._ledger.dtype, copy=False)
        chosen = table[index if len(table) > 1 else 0].astype(self._ledger.dtype)
        kept = Offered(names, table, context, mask) if self._ledger.keeps == "all" else None
        name = None if names is None else names[index]
        row = Decided(number, time.time(), index, name, chosen, shares, offer=kept)
        said = self._shadows.opinions(self._ledger, [row], [offer])
        if settings.mode == "apprentice" and self._apprentice is not None:
            chances = float(likely[index]), 1.0
            said.append(Opinion(number, self._apprentice.number, own, *chances))
        mean, spread = (None, None) if values is None else values
        return Draft(ask, offer, row, mean, spread, said)

    def _drawn(self, shares: np.ndarray) -> int:
        total = np.where(shares > 0, np.cumsum(shares, dtype=float), -1.0)
        return int(np.argmax(total > total.max() * self._rng.random()))

    def _record(self, groups: Sequence[list[Draft] | Refused | Later]) -> list[Answer]:
        """Within a turn: give every decision its number; those asked before keep theirs."""
        drafts = [draft for group in groups if isinstance(group, list) for draft in group]
        asked = [(draft.ask.event, draft.ask.slot) for draft in drafts if draft.ask.event]
        known = self._ledger.find_events(asked) if asked else {}
        rows: list[Decided] = []
        said: list[Opinion] = []
        events: list[Event] = []
        new: dict[Any, Made] = {}
        first = self._ledger.decisions

        def made(draft: Draft) -> Made:
            event, slot = draft.ask.event, draft.ask.slot
            if event and (event, slot) in known:
                return self._again(known[event, slot])
            if event and (event, slot) in new:
                return new[event, slot]._replace(again=True)
            number = first + len(rows)
            rows.append(draft.row._replace(number=number))
            said.extend(opinion._replace(decision=number) for opinion in draft.said)
            if event:
                events.append(Event(event, slot, number, draft.ask.deferred))
            row = draft.row
            action = row.chosen if row.action is None else row.action
            id, offer = self._ledger.decision_id(number), draft.offer
            about = (row.probabilities, draft.mean, draft.spread, row.time)
            found = Made(id, event, slot, row.chosen, action, offer.names, *about)
            if event:
                new[event, slot] = found
            return found

        answers: list[Answer] = [
            [made(draft) for draft in group] if isinstance(group, list) else group
            for group in groups
        ]
        if rows:
            self._describe_columns()
            self.loaded = self._ledger.configured
            self._ledger.add_decisions(rows, said, events=events)
        return answers

    def _again(self, event: Event) -> Made:
        """The answer that was given before."""
        (row,) = self._ledger.between(event.decision, event.decision + 1)
        names = None if row.offer is None else row.offer.names
        action = row.chosen if row.action is None else row.action
        id = self._ledger.decision_id(row.number)
        about = (row.probabilities, None, None, row.time, True)
        return Made(id, event.event, event.slot, row.chosen, action, names, *about)

    def predict(self, ask: Ask) -> dict[str, Any]:
        """What a decision would be made of; nothing is recorded."""
        if self._mind.width is None:
            return self._foreseen(ask)
        with self._door:
            columns = self._offers.columns
            try:
                offer = self._offer(ask)
            finally:
                self._offers.columns = columns
        self.prepare(offer, 1)
        with self._door:
            (draft,) = self._drafts([(ask, offer)])
        about = {"mean": draft.mean, "spread": draft.spread}
        return {"names": offer.names, "probabilities": draft.row.probabilities, **about}

    def _foreseen(self, ask: Ask) -> dict[str, Any]:
        """What the first decision would be made of."""
        agent, seed, _, hasher, actions, _ = self._given
        with refusing():
            if agent is None and hasher is None and _described(ask):
                hasher = HASHER
            twin = Bandit(agent, seed, actions=actions, hasher=hasher)
            found = twin.predict(ask.actions, context=ask.context, available=ask.available)
        mean, spread = (None, None) if found.values is None else found.values
        names = list(ask.actions) if isinstance(ask.actions, Mapping) else actions
        about = {"probabilities": found.probabilities, "mean": mean, "spread": spread}
        return {"names": names, **about}

    def value(self, offer: Offered) -> Values | None:
        """What every action of an earlier offer is worth by what is known now."""
        self.prepare(Offer(offer.table, offer.names, offer.available), 1)
        with self._door:
            state = self._mind.sync(self._ledger)
            return self._mind.pick_many([0], [(offer.table, offer.available)], state)[0][2]


def _described(ask: Ask) -> bool:
    """Whether anything is said in words, or by names, that may be others the next time."""
    each = ask.actions.values() if isinstance(ask.actions, Mapping) else ask.actions or ()
    return any(isinstance(one, Mapping | str | None) for one in (*each, ask.context or ()))
