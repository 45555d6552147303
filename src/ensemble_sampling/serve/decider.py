"""Makes and records decisions of a bandit that several processes serve."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from ..decide.decisions import Values
from ..decide.programs import Drawn, room
from ..decide.replica import MANY, Replica
from ..decide.setup import common_width
from ..inputs.columns import needs_hasher
from ..inputs.offer import Offer
from ..ledger.ledger import DecisionRow, Event, Opinion
from ..ledger.offers import StoredOffer
from . import types
from .outcomes import observe
from .replicas import Replicas
from .types import Choose, Decision, Learn, Refused

RECENT = 100  # decisions whose shapes of offers are compiled for at the start


class Draft(NamedTuple):
    """A decision that is not recorded yet, and so has neither a number nor an id."""

    request: Choose
    row: DecisionRow
    opinions: list[Opinion]
    decision: Decision


class Later(NamedTuple):
    """Decisions that can be made when programs for offers like this one are compiled."""

    offer: Offer


Answer = list[Decision] | Refused | Later


class Changed(Exception):
    """The ledger's configuration is no longer the one that is loaded."""


class DryRun(Exception):
    """Nothing of what a block has settled holds."""


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
            self._ledger.check()
            while True:
                if replicas.loaded is None:
                    replicas.load()
                main, first = replicas.main, replicas.main.width is None
                with suppress(Changed), main.setup.tentative(main):
                    # Programs are compiled before the transaction, for which other processes wait.
                    drafts = self._drafts(decisions, hurry and not first)
                    with self._ledger.turn():
                        if self._ledger.configured != replicas.loaded or (
                            first and self._ledger.decisions
                        ):
                            raise Changed
                        answers = self._record(drafts)
                        return answers, observe(replicas, outcomes) if outcomes else []
                replicas.load()

    def _drafts(
        self, groups: Sequence[Sequence[Choose]], hurry: bool
    ) -> list[list[Draft] | Refused | Later]:
        """Read all, then choose for all that can be at once."""
        read = [self._offers(group, hurry) for group in groups]
        able = [(group, one) for group, one in zip(groups, read, strict=True) if type(one) is list]
        asked = [pair for group, one in able for pair in zip(group, one, strict=True)]
        drafts = iter(self._draft(asked, hurry))
        return [[next(drafts) for _ in one] if isinstance(one, list) else one for one in read]

    def _offers(self, group: Sequence[types.Offer], hurry: bool) -> list[Offer] | Refused | Later:
        """Offers as numbers. The first ones settle how many features there are. Over HTTP nobody
        can choose a hasher later, and a description by names may have more of them the next time:
        such descriptions are hashed from the first."""
        main = self.replicas.main
        try:
            with main.setup.tentative(main):
                if main.width is None:
                    worded = (needs_hasher(o.actions, o.context) or _described(o) for o in group)
                    main.setup.bring_hasher(main, worded)
                read, width = main.inputs.read, main.width
                offers = [read(o.actions, o.context, o.available, width) for o in group]
                if width is None:
                    main.settle(common_width(offers))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return Refused("invalid", str(error))
        new = self._new(offers) if hurry else []
        return Later(new[0]) if new else offers

    def _draft(self, asked: Sequence[tuple[Choose, Offer]], hurry: bool) -> list[Draft]:
        """Choose for each, and ask the shadows for their opinions."""
        # Random numbers in place of the decisions' own, which are known when they are recorded.
        numbers, main = self._rng.integers(2**32, size=len(asked)).tolist(), self.replicas.main
        state, tables = main.sync(self._ledger), [(offer.table, offer.mask) for _, offer in asked]
        if hurry and len(asked) > 1 and self._new([offer for _, offer in asked], MANY):
            each = zip(numbers, tables, strict=True)  # one by one, until programs are compiled
            drawn = [main.choose_many([n], [one], state)[0] for n, one in each]
        else:
            drawn = main.choose_many(numbers, tables, state)
        every = zip(numbers, asked, drawn, strict=True)
        return [self._chosen(number, *pair, found) for number, pair, found in every]

    def _chosen(self, number: int, request: Choose, offer: Offer, drawn: Drawn) -> Draft:
        """The decision, from what the agent has drawn and by the settings."""
        table, names, mask, context = offer
        index, shares, values = drawn
        settings, ledger = self.replicas.settings, self._ledger
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
        shadows, apprentice = self.replicas.shadows, self.replicas.apprentice
        said = shadows.opinions(ledger, [row], [offer]) if shadows.awake else []
        if settings.mode == "apprentice" and apprentice is not None:
            chance = float(drawn.probabilities[index])
            said.append(Opinion(number, apprentice.number, drawn.index, chance, 1.0))
        return Draft(request, row, said, _decision(request, row, names, values))

    def _index(self, shares: np.ndarray) -> int:
        total = np.where(shares > 0, np.cumsum(shares, dtype=float), -1.0)
        return int(np.argmax(total > total.max() * self._rng.random()))

    def _record(self, groups: Sequence[list[Draft] | Refused | Later]) -> list[Answer]:
        """Within a turn: number and record the decisions; one whose event is known is answered as
        before."""
        ledger, main = self._ledger, self.replicas.main
        drafts = [draft for group in groups if isinstance(group, list) for draft in group]
        keys = [(one.request.event, one.request.slot) for one in drafts if one.request.event]
        known: dict[tuple[str | None, str], Decision] = {
            key: self._again(event)
            for key, event in (ledger.find_events(keys) if keys else {}).items()
        }
        rows: list[DecisionRow] = []
        said: list[Opinion] = []
        events: list[Event] = []
        first, made = ledger.decisions, []
        for request, row, opinions, decision in drafts:
            key = (request.event, request.slot)
            if key in known:
                made.append(known[key])
                continue
            number = first + len(rows)
            decision.id = ledger.decision_id(number)
            rows.append(row._replace(number=number))
            said += [opinion._replace(decision=number) for opinion in opinions]
            made.append(decision)
            if request.event:
                events.append(Event(request.event, request.slot, number, request.deferred))
                known[key] = structs.replace(decision, again=True)
        if rows:
            if first == 0:
                main.setup.settle(main, ledger, main.width)
            main.setup.record_columns(ledger)
            self.replicas.loaded = ledger.configured
            ledger.add_decisions(rows, said, events=events)
        answers = iter(made)
        return [
            [next(answers) for _ in group] if isinstance(group, list) else group for group in groups
        ]

    def _again(self, event: Event) -> Decision:
        """The answer that an event got before."""
        (row,) = self._ledger.between(event.decision, event.decision + 1)
        request = Choose(event=event.event, slot=event.slot)
        names = None if row.offer is None else row.offer.names
        found = _decision(request, row, names, None)
        found.id, found.again = self._ledger.decision_id(row.number), True
        return found

    def predict(self, request: types.Offer) -> types.Prediction:
        """What a decision would be made of; nothing is recorded."""
        if self.replicas.main.width is not None:
            with self._dry_run():
                offer = self._offer(request)
            self.prepare(offer, 1)  # while others are decided
        with self._dry_run():
            (draft,) = self._draft([(Choose(), self._offer(request))], hurry=False)
        made = draft.decision
        return types.Prediction(made.actions, made.probabilities, made.mean, made.spread)

    def _offer(self, request: types.Offer) -> Any:
        found = self._offers([request], hurry=False)
        if isinstance(found, Refused):
            raise found
        return found[0]

    @contextmanager
    def _dry_run(self) -> Iterator[None]:
        """A block after which nothing holds that offers have settled in it."""
        with self.replicas.door, suppress(DryRun):
            main = self.replicas.main
            with main.setup.tentative(main):
                yield
                raise DryRun

    def value(self, offer: StoredOffer) -> Values | None:
        """The values of an earlier offer's actions, by the present state."""
        self.prepare(Offer(offer.table, offer.names, offer.available), 1)
        with self.replicas.door:
            main = self.replicas.main
            state = main.sync(self._ledger)
            return main.choose_many([0], [(offer.table, offer.available)], state)[0].values

    def _shape(self, offer: Offer) -> Any:
        """The shape for which programs are compiled; a fixed set of actions has one."""
        rows, main = len(offer.mask), self.replicas.main
        rows = room(rows) if main.inputs.arms is None else rows
        others = [one.programs.kind for _, one in self.replicas.shadows.awake.values()]
        return rows, len(offer.table) > 1, main.programs.kind, *others

    def _new(self, offers: Iterable[Offer], size: int = 1) -> list[Offer]:
        """The offers without a compiled program for so many of their shape at once."""
        if self.replicas.main.host:
            return []
        return [offer for offer in offers if self._sizes.get(self._shape(offer), 0) < size]

    def prepare(self, offer: Offer, size: int) -> bool:
        """Compile programs for so many offers of this shape at once; whether there are programs for
        more. Any thread may call it."""
        with self.replicas.door:  # no configuration is half loaded
            main, shadows = self.replicas.main, self.replicas.shadows.replicas()
            if main.host:
                return False
            shape = self._shape(offer)
        if self._sizes.get(shape, 0) < size:
            about = (offer.table, offer.mask)
            with suppress(Exception):  # a decision will raise it again
                main.choose_many([0] * size, [about] * size, _state(main))
                if size == 1:
                    for shadow in shadows.values():
                        shadow.choose(0, *about, _state(shadow))
                    if main.version is not None:
                        main.outcome(0.0, self._ledger)
            self._sizes[shape] = size
        return size < MANY

    def warm(self, seconds: float = 3.0) -> None:
        """Compile for the shapes of the last offers, so that the first requests need not wait."""
        if self.warmed:
            return
        with self.replicas.door:
            ledger, main = self._ledger, self.replicas.main
            with ledger.turn(write=False):
                number = ledger.decisions
                rows = [*ledger.between(max(0, number - RECENT), number)]
            if main.agent is None or not rows:
                return
            self.warmed, hasher = True, main.inputs.hasher
            found = [Offer(o.table, o.names, o.available) for r in rows if (o := r.offer)]
            shapes = [self._shape(offer) for offer in found]
        often, offers = Counter(shapes), dict(zip(shapes, found, strict=True))
        if hasher is not None:
            with suppress(ImportError):
                hasher([{"a": "b"}])  # imports a large library
        end, size = time.monotonic() + seconds, 1
        while size <= MANY:
            for shape, _ in often.most_common():
                if time.monotonic() < end:
                    self.prepare(offers[shape], size)
            size *= 2


def _decision(
    request: Choose, row: DecisionRow, names: Sequence[Any] | None, values: Values | None
) -> Decision:
    """The answer for a row, without its id."""
    mean, spread = (None, None) if values is None else values
    return Decision(
        id="",
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
        again=False,
    )


def _described(request: types.Offer) -> bool:
    """Whether an action or the context is described in words or by names."""
    actions = request.actions
    each = actions.values() if isinstance(actions, Mapping) else actions or ()
    return any(isinstance(one, Mapping | str | None) for one in (*each, request.context or ()))


def _state(replica: Replica) -> Any:
    """A state to compile programs with."""
    return replica.fresh() if replica.version is None else replica.version.state
