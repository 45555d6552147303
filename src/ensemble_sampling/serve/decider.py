"""Decides for a bandit that several processes serve, and records what came of decisions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from ..decide.bandit import Bandit
from ..decide.decisions import Values
from ..decide.programs import Drawn
from ..decide.replica import MANY
from ..decide.setup import HASHER, common_width
from ..inputs.columns import needs_hasher
from ..inputs.offer import Offer
from ..ledger.ledger import DecisionRow, Event, Opinion
from ..ledger.offers import StoredOffer
from .outcomes import Reply, Report, observe
from .replicas import Replicas, refusing
from .types import Choice, ChoiceRequest, Refused
from .warmup import WarmUp


class Draft(NamedTuple):
    """A decision that is not recorded yet, and so has no number."""

    request: ChoiceRequest
    names: Sequence[Any] | None
    row: DecisionRow
    values: Values | None
    opinions: list[Opinion]


class Later(NamedTuple):
    """Decisions that can be made when programs for offers like this one are compiled."""

    offer: Offer


Answer = list[Any] | Refused | Later


class Changed(Exception):
    """The ledger's configuration is no longer the one that is loaded."""


class DryRun(Exception):
    """What was settled is not to be recorded."""


class Decider:
    """Decides for a bandit whose ledger others write to as well.

    A state that is a little old costs little; what is recorded is exact all the same: the
    probabilities a decision was really drawn from, and every outcome once, in one order for all.
    """

    def __init__(self, replicas: Replicas):
        self._replicas, self._ledger = replicas, replicas.ledger
        self.warmup = WarmUp(replicas)
        self._rng = np.random.default_rng()  # by chance: no two processes may draw alike

    def work(
        self,
        decisions: Sequence[Sequence[ChoiceRequest]],
        outcomes: Sequence[Sequence[Report]],
        hurry: bool = False,
    ) -> tuple[list[Answer], list[Reply]]:
        """Groups of decisions and groups of outcomes in one transaction. Each group is done or
        refused as a whole, whatever becomes of the others; in a `hurry`, those for which there is
        something to compile are left for `Later`."""
        replicas = self._replicas
        with replicas.door:
            self._ledger.check()
            first: list[Answer] = []
            while True:
                if replicas.loaded is None:
                    replicas.load()
                try:
                    if replicas.main.width is None:
                        first += self._first(decisions[len(first) :])
                    drafts = self._drafts(decisions[len(first) :], hurry)
                    with self._ledger.turn():
                        if replicas.outdated:
                            raise Changed
                        answers = first + self._record(drafts)
                        return answers, observe(replicas, outcomes) if outcomes else []
                except Changed:
                    replicas.load()

    def _first(self, groups: Sequence[Sequence[ChoiceRequest]]) -> list[Answer]:
        """While the number of features is open, one group after another tries to settle it."""
        replicas = self._replicas
        done: list[Answer] = []
        while replicas.main.width is None and len(done) < len(groups):
            group = groups[len(done)]
            with suppress(Refused, DryRun), self._settling(group) as read:
                # Compile what is needed before the turn in which others wait for it.
                replicas.main.settle(common_width(read))
                self._draft(group, read)
                raise DryRun
            try:
                with self._ledger.turn():
                    if replicas.outdated:
                        replicas.reload()
                        continue
                    try:
                        made = self._settled(group)
                    except Refused as refused:
                        made = refused
                    replicas.loaded = self._ledger.configured
            except BaseException:
                replicas.loaded = None  # what it settled was not recorded
                raise
            done.append(made)
        return done

    @contextmanager
    def _settling(self, group: Sequence[ChoiceRequest]) -> Iterator[list[Offer]]:
        """Offers as the first ones, of one number of features. Who asks over HTTP cannot choose a
        hasher later, and what is said by names may be more the next time: it is hashed from the
        first."""
        main = self._replicas.main
        with main.setup.tentative(main):
            worded = (needs_hasher(one.actions, one.context) or _described(one) for one in group)
            main.setup.bring_hasher(main, worded)
            with refusing():
                read = self._read(group)
                common_width(read)
            yield read

    def _settled(self, group: Sequence[ChoiceRequest]) -> Answer:
        main = self._replicas.main
        with self._settling(group) as read:
            main.setup.settle(main, self._ledger, common_width(read))
            (answer,) = self._record([self._draft(group, read)])
            return answer

    def _read(self, group: Sequence[ChoiceRequest]) -> list[Offer]:
        main = self._replicas.main
        read, width = main.inputs.read, main.width
        return [read(one.actions, one.context, one.available, width) for one in group]

    def _drafts(
        self, groups: Sequence[Sequence[ChoiceRequest]], hurry: bool
    ) -> list[list[Draft] | Refused | Later]:
        """Read all, then choose for all that can be at once."""
        answers: list[Any] = []
        requests: list[ChoiceRequest] = []
        offers: list[Offer] = []
        inputs = self._replicas.main.inputs
        for group in groups:
            columns = inputs.columns
            try:
                with refusing():
                    read = self._read(group)
            except Refused as refused:
                inputs.columns = columns
                answers.append(refused)
                continue
            new = self.warmup.new(read) if hurry else []
            answers.append(Later(new[0]) if new else len(read))
            if not new:
                requests += group
                offers += read
        drafts = iter(self._draft(requests, offers, hurry))
        return [
            [next(drafts) for _ in range(answer)] if isinstance(answer, int) else answer
            for answer in answers
        ]

    def _draft(
        self, requests: Sequence[ChoiceRequest], offers: Sequence[Offer], hurry: bool = False
    ) -> list[Draft]:
        """Choose for each, and let shadows say what they would have done."""
        # No decision's number yet: that is known when it is recorded.
        numbers, main = self._rng.integers(2**32, size=len(offers)).tolist(), self._replicas.main
        state, tables = main.sync(self._ledger), [(offer.table, offer.mask) for offer in offers]
        if hurry and len(offers) > 1 and self.warmup.new(offers, MANY):  # one by one, until it is
            each = zip(numbers, tables, strict=True)
            drawn = [main.choose_many([n], [one], state)[0] for n, one in each]
        else:
            drawn = main.choose_many(numbers, tables, state)
        return [self._chosen(*one) for one in zip(numbers, requests, offers, drawn, strict=True)]

    def _chosen(self, number: int, request: ChoiceRequest, offer: Offer, drawn: Drawn) -> Draft:
        """What the settings make of what the agent would choose."""
        table, names, mask, context = offer
        index, shares, values = drawn
        settings, ledger = self._replicas.settings, self._ledger
        if settings.mode == "apprentice":
            index = int(mask.argmax())
            shares = (np.arange(len(mask)) == index).astype(shares.dtype)
        elif settings.floor:
            shares = (1 - settings.floor) * shares + settings.floor * mask / mask.sum()
            index = self._index(shares)
        shares = shares.astype(ledger.dtype, copy=False)
        chosen = table[index if len(table) > 1 else 0].astype(ledger.dtype)
        kept = StoredOffer(names, table, context, mask) if ledger.keeps == "all" else None
        name = None if names is None else names[index]
        row = DecisionRow(number, time.time(), index, name, chosen, shares, offer=kept)
        shadows, apprentice = self._replicas.shadows, self._replicas.apprentice
        said = shadows.opinions(ledger, [row], [offer]) if shadows.awake else []
        if settings.mode == "apprentice" and apprentice is not None:
            chance = float(drawn.probabilities[index])
            said.append(Opinion(number, apprentice.number, drawn.index, chance, 1.0))
        return Draft(request, names, row, values, said)

    def _index(self, shares: np.ndarray) -> int:
        total = np.where(shares > 0, np.cumsum(shares, dtype=float), -1.0)
        return int(np.argmax(total > total.max() * self._rng.random()))

    def _record(self, groups: Sequence[list[Draft] | Refused | Later]) -> list[Answer]:
        """Within a turn: give every decision its number; those asked before keep theirs."""
        drafts = [draft for group in groups if isinstance(group, list) for draft in group]
        keys = [(one.request.event, one.request.slot) for one in drafts if one.request.event]
        known = {
            key: self._again(event)
            for key, event in (self._ledger.find_events(keys) if keys else {}).items()
        }
        rows: list[DecisionRow] = []
        said: list[Opinion] = []
        events: list[Event] = []
        choices: list[Choice] = []
        first = self._ledger.decisions
        for request, names, row, values, opinions in drafts:
            event, slot = request.event, request.slot
            if event and (event, slot) in known:
                choices.append(known[event, slot])
                continue
            number = first + len(rows)
            rows.append(row._replace(number=number))
            said += [opinion._replace(decision=number) for opinion in opinions]
            action = row.chosen if row.action is None else row.action
            about = (event, slot, row.chosen, action, names, row.probabilities)
            mean, spread = (None, None) if values is None else values
            id = self._ledger.decision_id(number)
            choices.append(Choice(id, *about, mean, spread, row.time))
            if event:
                events.append(Event(event, slot, number, request.deferred))
                known[event, slot] = choices[-1]._replace(again=True)
        if rows:
            self._replicas.main.setup.record_columns(self._ledger)
            self._replicas.loaded = self._ledger.configured
            self._ledger.add_decisions(rows, said, events=events)
        made = iter(choices)
        return [
            [next(made) for _ in group] if isinstance(group, list) else group for group in groups
        ]

    def _again(self, event: Event) -> Choice:
        """The answer that was given before."""
        (row,) = self._ledger.between(event.decision, event.decision + 1)
        names = None if row.offer is None else row.offer.names
        action = row.chosen if row.action is None else row.action
        id = self._ledger.decision_id(row.number)
        about = (row.probabilities, None, None, row.time, True)
        return Choice(id, event.event, event.slot, row.chosen, action, names, *about)

    def predict(self, request: ChoiceRequest) -> dict[str, Any]:
        """What a decision would be made of; nothing is recorded."""
        replicas = self._replicas
        if replicas.main.width is None:
            return self._first_prediction(request)
        with replicas.door:
            inputs = replicas.main.inputs
            columns = inputs.columns
            try:
                with refusing():
                    (offer,) = self._read([request])
            finally:
                inputs.columns = columns
        self.warmup.prepare(offer, 1)
        with replicas.door:
            (draft,) = self._draft([request], [offer])
        return _foreseen(offer.names, draft.row.probabilities, draft.values)

    def _first_prediction(self, request: ChoiceRequest) -> dict[str, Any]:
        """What the first decision would be made of."""
        agent, seed, _, hasher, actions, _ = self._replicas.given
        with refusing():
            if agent is None and hasher is None and _described(request):
                hasher = HASHER
            twin = Bandit(agent, seed, actions=actions, hasher=hasher)
            about = {"context": request.context, "available": request.available}
            found = twin.predict(request.actions, **about)
        names = list(request.actions) if isinstance(request.actions, Mapping) else actions
        return _foreseen(names, found.probabilities, found.values)

    def value(self, offer: StoredOffer) -> Values | None:
        """What every action of an earlier offer is worth by what is known now."""
        self.warmup.prepare(Offer(offer.table, offer.names, offer.available), 1)
        with self._replicas.door:
            main = self._replicas.main
            state = main.sync(self._ledger)
            return main.choose_many([0], [(offer.table, offer.available)], state)[0].values


def _foreseen(names: Any, probabilities: np.ndarray, values: Values | None) -> dict[str, Any]:
    mean, spread = (None, None) if values is None else values
    return {"names": names, "probabilities": probabilities, "mean": mean, "spread": spread}


def _described(request: ChoiceRequest) -> bool:
    """Whether anything is said in words, or by names, that may be others the next time."""
    actions = request.actions
    each = actions.values() if isinstance(actions, Mapping) else actions or ()
    return any(isinstance(one, Mapping | str | None) for one in (*each, request.context or ()))
