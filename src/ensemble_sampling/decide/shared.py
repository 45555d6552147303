"""A bandit that several processes serve: each decides by a state it follows, one of them learns."""

import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..files import Damaged
from .asked import Ask, Made, Refused, Settings
from .bandit import Bandit
from .begun import HASHER, Begun
from .decisions import Values
from .features import Hasher
from .ledger import Decided, Event, Ledger, Observed, Opinion, Revised
from .mind import MANY, Mind, Taught, _room
from .offered import Offered
from .offers import Offer
from .shadows import candidate, recorded, watching
from .snapshots import SNAPSHOT
from .states import State
from .transfer import import_history, read_history

SETTINGS, KEPT = "service", "kept"  # where a ledger keeps them
RECENT = 100  # decisions whose offers are compiled for at the start
APPRENTICE = "apprentice"  # the shadow that the agent is while it does not decide
Told = tuple[str, Any, str | None]  # id of a decision or event, what came of it, and its `ref`


class Follower(Mind):
    """An agent whose state another process, or another thread, learns."""

    def sync(self, ledger: Ledger, most: int | None = None) -> State:
        if self.width is None:
            self.settle(ledger.width)
        if self.taught is None:
            self.taught = Taught(self._fresh(), 0, 0)
        return self.taught.state

    def learn(self, ledger: Ledger, rows: list[tuple[Decided, Any]]) -> None:
        """Somebody else does."""

    def informed(self, ledger: Ledger) -> bool:
        """Not while it was told nothing of what there is to know."""
        return self.taught is not None or not ledger.outcomes


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


class Shared(Begun):
    """Decides for a bandit whose ledger others write to as well.

    A state that is a little old costs little; what is recorded is exact all the same: the
    probabilities a decision was really drawn from, and every outcome once, in one order for all.

    place: a folder, or `postgresql://...#name`.
    candidates: agents that may become shadows, by name.
    """

    _mind_type = Follower

    def __init__(
        self,
        place: Any,
        agent: Any = None,
        *,
        actions: Sequence[Any] | None = None,
        seed: int | None = None,
        floor: float | None = None,
        hasher: Hasher | None = None,
        candidates: Mapping[str, Any] | None = None,
    ):
        self._folder, self._snapshot_every = place, 0
        self._given = (agent, seed, None, hasher, actions, floor)
        self.candidates = dict(candidates or {})
        self._door = threading.RLock()
        self._compiled: dict[Any, int] = {}  # for how many offers of a shape at once
        self.loaded: tuple[int, int] | None = None  # what of the configuration it knows
        self._rng = np.random.default_rng()  # by chance: no two processes may draw alike
        self._setup(*self._given)
        self._ledger = Ledger(place, shared=True)
        try:
            self._load()
        except BaseException:
            self._ledger.close()
            raise

    def refresh(self) -> None:
        """Take over a configuration that another process changed."""
        with self._door:
            self._load()

    def mind(self, shadow: str | None = None) -> Mind | None:
        """That of the agent in charge, or of a shadow."""
        return self._mind if shadow is None else self._shadows.mind(shadow)

    def _load(self) -> None:
        with self._ledger.turn(write=False):
            begun = self._ledger.description is not None
        with self._ledger.turn(write=not begun):  # whoever is first records the configuration
            self._reload()

    def _reload(self) -> None:
        """Within a turn: who decides, by what settings, and who watches. Whoever was there before,
        in whatever part, goes on by what it knows."""
        former = [self._mind, *self._shadows.minds().values()]
        self._take_charge()
        self.settings = Settings.recorded(self._ledger.setting(SETTINGS))
        self._apprentice = recorded(self._ledger).get(APPRENTICE)
        others = {name: agent for name, agent in self.candidates.items() if name != APPRENTICE}
        for name, number, mind in watching(self._ledger, others, self._mind):
            self._shadows.attend(name, number, mind)
        for mind in (self._mind, *self._shadows.minds().values()):
            same = [m for m in former if m.width is not None and m.description == mind.description]
            if same and same[0].width == mind.width:
                mind.taught = same[0].taught
        self._programs = tuple(m._choose for m in self._shadows.minds().values())
        self.loaded = self._ledger.configured

    @property
    def outdated(self) -> bool:
        """Within a turn: whether others have changed, or settled, what is loaded here."""
        settled = self._mind.width is None and self._ledger.decisions > 0
        return settled or self._ledger.configured != self.loaded

    def _take_charge(self) -> None:
        """The agent that was given, or a candidate that was promoted since, by all else as it was
        recorded."""
        error, said = None, self._ledger.description
        tried = [("default", self._given)]
        if said is not None:
            others = (said["seed"], said["normalise"], Hasher.recorded(said["hasher"]))
            others += (said["actions"], said.get("floor"))
            tried += [(name, (agent, *others)) for name, agent in self.candidates.items()]
        for name, options in tried:
            self._setup(*options)
            try:
                self._begin(migrate=False)
                self.named, self.begun_with = name, options
                return
            except ValueError as other:
                error = error or other
        assert error is not None
        raise error

    def work(
        self,
        decisions: Sequence[Sequence[Ask]],
        outcomes: Sequence[Sequence[Told]],
        hurry: bool = False,
    ) -> tuple[list[Answer], list[Answer]]:
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
            with _refusing():
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
        with _refusing():
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

    def _shape(self, offer: Offer) -> Any:
        """What programs are compiled for; a fixed set of actions has one."""
        rows = len(offer.mask)
        rows = _room(rows) if self._offers.arms is None else rows
        return rows, len(offer.table) > 1, self._mind._choose, self._programs

    def _new(self, offers: Sequence[Offer], size: int = 1) -> list[Offer]:
        """Those for which nothing is compiled that would decide so many of them at once."""
        if self._mind.host:
            return []
        return [offer for offer in offers if self._compiled.get(self._shape(offer), 0) < size]

    def prepare(self, offer: Offer, size: int) -> bool:
        """Compile for so many offers like this one at once, in any thread; whether more would be
        compiled apart from it."""
        with self._door:  # lest a configuration be half loaded
            mind, shadows = self._mind, list(self._shadows.minds().values())
            if mind.host:
                return False
            shape = self._shape(offer)
        if self._compiled.get(shape, 0) < size:
            about = (offer.table, offer.mask)
            with suppress(Exception):  # decisions will say what is wrong
                mind.pick_many([0] * size, [about] * size, _state(mind))
                if size == 1:
                    for shadow in shadows:
                        shadow.pick(0, *about, _state(shadow))
                    if mind.taught is not None:
                        mind.outcome(0.0, self._ledger)
            self._compiled[shape] = size
        return size < MANY

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

    def _observe(self, groups: Sequence[Sequence[Told]]) -> list[Answer]:
        """Within a turn: record what is new of groups of outcomes."""
        numbers = self._numbers([id for group in groups for id, _, _ in group])
        known = self._ledger.find(list(numbers.values()))
        news, answers = News(), []
        for group in groups:
            trial, flags = news.copy(), []
            try:
                for id, given, ref in group:
                    if id not in numbers:
                        raise Refused("unknown", f"there is no decision {id!r}")
                    decided = known[numbers[id]]
                    amount = self._outcome(given)
                    with _refusing():
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

    def _outcome(self, given: Any) -> Any:
        """What the agent can learn, or a refusal."""
        with _refusing():
            return self._mind.outcome(given, self._ledger)

    def _told(self, id: str, decided: Decided, outcome: Any, ref: str | None, news: "News") -> bool:
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

    def _added(self, id: str, decided: Decided, amount: Any, ref: str | None, news: "News") -> bool:
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

    def _settle_down(self) -> None:
        """Within a turn: know what others have settled meanwhile."""
        if self.outdated:
            self._reload()

    def activate(self, event: str) -> bool:
        """Deferred decisions of an event count from now on; False if they did already."""
        with self._door, self._ledger.turn():
            found = self._ledger.events(event)
            if not found:
                raise Refused("unknown", f"there is no event {event!r}")
            counted = [self._ledger.activate(one.decision) for one in found if one.deferred]
            return any(counted)

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
        with _refusing():
            if agent is None and hasher is None and _described(ask):
                hasher = HASHER
            twin = Bandit(agent, seed, actions=actions, hasher=hasher)
            found = twin.predict(ask.actions, context=ask.context, available=ask.available)
        mean, spread = (None, None) if found.values is None else found.values
        names = list(ask.actions) if isinstance(ask.actions, Mapping) else actions
        about = {"probabilities": found.probabilities, "mean": mean, "spread": spread}
        return {"names": names, **about}

    @property
    def floor(self) -> float:
        """The share of decisions left to chance, by the agent's configuration and the settings."""
        return 1 - (1 - self._mind.floor) * (1 - self.settings.floor)

    def diverged(self) -> int:
        """How often models had to be put back to their start, by what is known here."""
        with self._door:
            return self._mind.diverged(self._ledger)

    def value(self, offer: Offered) -> Values | None:
        """What every action of an earlier offer is worth by what is known now."""
        self.prepare(Offer(offer.table, offer.names, offer.available), 1)
        with self._door:
            state = self._mind.sync(self._ledger)
            return self._mind.pick_many([0], [(offer.table, offer.available)], state)[0][2]

    def warm(self, seconds: float = 5.0) -> None:
        """Compile for offers like the last ones, so that the first requests need not wait."""
        with self._door:
            with self._ledger.turn(write=False):
                number = self._ledger.decisions
                rows = [*self._ledger.between(max(0, number - RECENT), number)]
            if self._mind.agent is None or self._mind.host:
                return
            self._mind.sync(self._ledger)
            if self._offers.hasher is not None:
                self._offers.hasher([{"a": "b"}])  # which imports something large
            found = [Offer(o.table, o.names, o.available) for r in rows if (o := r.offer)]
            often = Counter(map(self._shape, found))
            offers = sorted({self._shape(o): o for o in found}.items(), key=lambda o: -often[o[0]])
            end, size = time.monotonic() + seconds, 1
            while size <= MANY:
                for _, offer in offers:
                    if time.monotonic() < end:
                        self.prepare(offer, size)
                size *= 2

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes."""
        with self._door:
            with self._ledger.turn():
                with _refusing():
                    checks.outcome(settings.default)
                if settings.wait is not None and self._mind.width is not None:
                    self._outcome(settings.default)  # which it will have to learn
                apprentice = recorded(self._ledger).get(APPRENTICE)
                if settings.mode == "apprentice" and apprentice is None:
                    self._ledger.add_shadow(APPRENTICE, self._mind.description)
                if settings.mode != "apprentice" and apprentice is not None:
                    self._ledger.add_shadow(APPRENTICE, None)
                self._ledger.set(SETTINGS, settings.record())
            self._load()

    def keep(self, name: str, content: bytes | None) -> None:
        """Remember something small with the ledger; None forgets it."""
        with self._door, self._ledger.turn():
            kept = self._ledger.setting(KEPT) or {}
            kept.pop(name, None)
            if content is not None:
                kept[name] = b64encode(content).decode()
            self._ledger.set(KEPT, kept)

    def take_in(self, content: bytes) -> int:
        """Learn what another bandit of the same configuration has learned from; how much."""
        with self._door:
            try:
                about, features = read_history(content)
            except Damaged as error:
                raise Refused("invalid", str(error)) from error
            try:
                with self._ledger.turn():
                    self._settle_down()
                    if self._mind.width is None:
                        self._settle_as(about)
                    with _refusing():
                        return import_history(self._ledger, self._mind, about, features)
            finally:
                self._load()

    def _settle_as(self, about: dict[str, Any]) -> None:
        """Within a turn: what the first decision settles was settled elsewhere."""
        said, theirs = self._ledger.description, about["agent"]
        known = {name: theirs[name] for name in ("hasher", "columns") if name in theirs}
        if self._mind.recipe is not None and {**said, **known} != said:
            with _refusing():
                Hasher.recorded(known.get("hasher"))
            self._ledger.describe({**said, **known})
            self._reload()
        self._mind.settle(about["width"])

    def shadow(self, name: str) -> None:
        """Let one of the candidates watch from now on; it learns all that is recorded."""
        if name not in self.candidates:
            raise Refused("unknown", f"there is no candidate {name!r}, but {[*self.candidates]}")
        with self._door:
            with self._ledger.turn():
                if self._mind.agent is None:
                    raise Refused("conflict", "there is no decision yet, on which shadows watch")
                if name in recorded(self._ledger):
                    return
                with _refusing():
                    mind = candidate(self.candidates[name], self._mind)
                self._ledger.add_shadow(name, mind.description)
            self._load()

    def dismiss(self, name: str) -> None:
        """Let a shadow go; what it said stays in the ledger."""
        with self._door:
            with self._ledger.turn():
                if name not in recorded(self._ledger):
                    raise Refused("unknown", f"there is no shadow {name!r}")
                self._ledger.add_shadow(name, None)
            self._load()

    def promote(self, name: str) -> None:
        """Put a shadow in charge, in all processes."""
        with self._door:
            with self._ledger.turn():
                known = recorded(self._ledger).get(name)
                if known is None or name not in self.candidates:
                    raise Refused("unknown", f"there is no shadow {name!r}")
                learned = self._ledger.stored(f"shadow-{known.number}.safetensors")
                mind = candidate(self.candidates[name], self._mind)
                named = self._offers.columns.description if self._offers.columns else {}
                self._ledger.describe({**mind.description, **named}, promoted=name)
            if learned is not None:
                self._ledger.store(SNAPSHOT, learned)
            self._load()

    def close(self) -> None:
        with self._door:
            if not self._ledger.closed:
                self._ledger.close()


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


def _state(mind: Mind) -> State:
    """What to try a program with."""
    return mind._fresh() if mind.taught is None else mind.taught.state


@contextmanager
def _refusing() -> Iterator[None]:
    """Around what reads a request, and nothing else: what is wrong with it, said as such."""
    try:
        yield
    except Damaged:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("invalid", str(error)) from error


def _described(ask: Ask) -> bool:
    """Whether anything is said in words, or by names, that may be others the next time."""
    each = ask.actions.values() if isinstance(ask.actions, Mapping) else ask.actions or ()
    return any(isinstance(one, Mapping | str | None) for one in (*each, ask.context or ()))
