"""A bandit that several processes serve: each decides by a state it follows, one of them learns."""

import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .asked import Ask, Made, Refused, Settings
from .bandit import Bandit
from .begun import Begun
from .decisions import Values
from .features import Hasher
from .ledger import Decided, Event, Ledger, Observed, Opinion, Revised
from .mind import Mind, Taught
from .offered import Offered
from .offers import Offer
from .programs import State
from .shadows import candidate, recorded
from .snapshots import SNAPSHOT
from .transfer import import_history

SETTINGS, KEPT = "service", "kept"  # where a ledger keeps them
APPRENTICE = "apprentice"  # the shadow that the agent is while it does not decide
Answer = list[Any] | Refused


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


class Draft(NamedTuple):
    """A decision that is not recorded yet, and so has no number."""

    ask: Ask
    offer: Offer
    row: Decided
    mean: np.ndarray | None
    spread: np.ndarray | None
    said: list[Opinion]


class Changed(Exception):
    """The ledger's configuration is no longer the one that is loaded."""


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
        candidates: Mapping[str, Any] | None = None,
    ):
        self._folder, self._snapshot_every = place, 0
        self._given = (agent, seed, None, None, actions, floor)
        self.candidates = dict(candidates or {})
        self._door = threading.RLock()
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
        """Within a turn: who decides, by what settings, and who watches."""
        self._take_charge()
        self.settings = Settings.recorded(self._ledger.setting(SETTINGS))
        watching = recorded(self._ledger)
        self._apprentice = watching.pop(APPRENTICE, None)
        for name, known in watching.items():
            if name in self.candidates and self._mind.agent is not None:
                mind = candidate(self.candidates[name], self._mind)
                mind.file = f"shadow-{known.number}.safetensors"
                self._shadows.attend(name, known.number, mind)
        self.loaded = self._ledger.configured

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

    def adopt(self, taught: Taught, shadow: str | None = None) -> None:
        """Decide by what was learned elsewhere from now on; arrays that nobody consumes."""
        mind = self.mind(shadow)
        if mind is not None and mind.width is not None:
            mind.taught = taught

    def work(
        self, decisions: Sequence[Sequence[Ask]], outcomes: Sequence[Sequence[tuple[str, Any]]]
    ) -> tuple[list[Answer], list[Answer]]:
        """Groups of decisions and groups of outcomes in one transaction. Each group is done or
        refused as a whole, whatever becomes of the others."""
        with self._door:
            self._ledger.check()
            while True:
                try:
                    first = self._open(decisions)
                    drafts = self._drafted(decisions[len(first) :])
                    with self._ledger.turn():
                        if self._ledger.configured != self.loaded:
                            raise Changed
                        return first + self._record(drafts), self._observe(outcomes)
                except Changed:
                    self._load()

    def _open(self, groups: Sequence[Sequence[Ask]]) -> list[Answer]:
        """While the number of features is open, one group after another tries to settle it."""
        done: list[Answer] = []
        while self._mind.width is None and len(done) < len(groups):
            group = groups[len(done)]
            with self._ledger.turn():
                if self._ledger.configured != self.loaded or self._ledger.decisions:
                    self._reload()
                    continue
                try:
                    done.append(self._settled(group))
                except (TypeError, ValueError) as error:
                    done.append(Refused("invalid", str(error)))
                self.loaded = self._ledger.configured
        return done

    def _settled(self, group: Sequence[Ask]) -> list[Made]:
        offers = [(ask.actions, ask.context, ask.available) for ask in group]
        with self._tentative(offers):
            read = [self._offers.read(*offer, self._mind.width) for offer in offers]
            self._settle({offer.table.shape[1] for offer in read})
            (made,) = self._record([self._drafts([*zip(group, read, strict=True)])])
            assert not isinstance(made, Refused)
            return made

    def _drafted(self, groups: Sequence[Sequence[Ask]]) -> list[list[Draft] | Refused]:
        read = [self._read(group) for group in groups]
        asked = [
            both
            for group, offers in zip(groups, read, strict=True)
            if not isinstance(offers, Refused)
            for both in zip(group, offers, strict=True)
        ]
        drafts = iter(self._drafts(asked))
        return [
            offers if isinstance(offers, Refused) else [next(drafts) for _ in offers]
            for offers in read
        ]

    def _read(self, group: Sequence[Ask]) -> list[Offer] | Refused:
        columns, width = self._offers.columns, self._mind.width
        try:
            return [
                self._offers.read(ask.actions, ask.context, ask.available, width) for ask in group
            ]
        except (TypeError, ValueError) as error:
            self._offers.columns = columns
            return Refused("invalid", str(error))

    def _drafts(self, asked: Sequence[tuple[Ask, Offer]]) -> list[Draft]:
        """Choose for each, and let shadows say what they would have done."""
        # No decision's number yet: that is known when it is recorded.
        numbers = self._rng.integers(2**32, size=len(asked)).tolist()
        state, offers = self._mind.sync(self._ledger), [(o.table, o.mask) for _, o in asked]
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

    def _record(self, groups: Sequence[list[Draft] | Refused]) -> list[Answer]:
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
            group if isinstance(group, Refused) else [made(draft) for draft in group]
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

    def _observe(self, groups: Sequence[Sequence[tuple[str, Any]]]) -> list[Answer]:
        """Within a turn: record what is new of groups of (id, outcome)."""
        numbers = self._numbers([id for group in groups for id, _ in group])
        added: dict[int, Any] = {}  # outcomes to be recorded
        revised: dict[int, Any] = {}  # and those to take another's place, with what was added
        answers: list[Answer] = []
        for group in groups:
            fresh, more, flags = dict(added), dict(revised), []
            try:
                for id, given in group:
                    flags.append(self._told(id, numbers.get(id), given, fresh, more))
            except Refused as refused:
                answers.append(refused)
                continue
            added, revised = fresh, more
            answers.append(flags)
        worth = self._mind.worth
        rows = [Observed(number, y, worth(y)) for number, y in added.items()]
        sums = [Revised(n, total, worth(total), part) for n, (total, part) in revised.items()]
        self._ledger.add_outcomes(rows, sums)
        return answers

    def _told(
        self, id: str, number: int | None, given: Any, fresh: dict[int, Any], more: dict[int, Any]
    ) -> bool:
        """Whether an outcome is new; into `fresh` or `more` with it."""
        if number is None:
            raise Refused("unknown", f"there is no decision {id!r}")
        decided = self._ledger.decision(number)
        assert decided is not None  # it has a number
        try:
            outcome = self._mind.outcome(given, self._ledger)
            self._offers.arm(number, decided.chosen, decided.action)
        except (TypeError, ValueError) as error:
            raise Refused("invalid", str(error)) from error
        known = more[number][0] if number in more else fresh.get(number, decided.outcome)
        if known is None:
            fresh[number] = outcome
            return True
        if self.settings.aggregation == "sum":
            return self._summed(id, number, known, outcome, fresh, more)
        if outcome in (known, decided.first):  # what was revised may come again too
            return False
        how = "expired with" if decided.expired else "has"
        raise Refused(
            "conflict", f"decision {id} {how} the outcome {known} and cannot have {outcome} as well"
        )

    def _summed(
        self,
        id: str,
        number: int,
        known: Any,
        amount: Any,
        fresh: dict[int, Any],
        more: dict[int, Any],
    ) -> bool:
        if np.shape(known) != np.shape(amount):
            raise Refused("invalid", f"decision {id} has the outcome {known}, got {amount}")
        total = (np.asarray(known) + np.asarray(amount)).tolist()
        if number in fresh:
            fresh[number] = total
        else:
            before = more[number][1] if number in more else 0.0
            more[number] = (total, (np.asarray(before) + np.asarray(amount)).tolist())
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
                wanted |= {(id, ""): id} | ({(event, slot): id} if event else {})
        if wanted:
            for key, event in self._ledger.find_events(list(wanted)).items():
                found.setdefault(wanted[key], event.decision)
        return found

    def _one(self, id: str) -> str:
        """Within a turn: the decision's own id."""
        numbers = self._numbers([id])
        if id not in numbers:
            raise Refused("unknown", f"there is no decision {id!r}")
        return self._ledger.decision_id(numbers[id])

    def correct(self, id: str, outcome: Any) -> bool:
        """See `Bandit.correct`."""
        with self._door, self._ledger.turn(), _told_as_refused():
            number = self._ledger.number(self._one(id))
            decided = self._ledger.decision(number)
            assert decided is not None
            new = self._mind.outcome(outcome, self._ledger)
            if decided.outcome is None:
                raise Refused("conflict", f"decision {id} has no outcome yet to be corrected")
            if new == decided.outcome:
                return False
            self._ledger.add_outcomes([], [Revised(number, new, self._mind.worth(new))])
            return True

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        """See `Bandit.add`."""
        with self._door, self._ledger.turn(), _told_as_refused():
            number = self._ledger.number(self._one(id))
            decided = self._ledger.decision(number)
            assert decided is not None
            amount = self._mind.outcome(amount, self._ledger)
            for added, known in self._ledger.revised(number):
                if ref is not None and known == ref:
                    if added != amount:
                        raise Refused("conflict", f"{ref!r} added {added}, and cannot add {amount}")
                    return False
            worth = self._mind.worth
            if decided.outcome is None:
                first = [Revised(number, amount, worth(amount), amount, ref)] if ref else []
                self._ledger.add_outcomes([Observed(number, amount, worth(amount))], first)
                return True
            if np.shape(amount) != np.shape(decided.outcome):
                raise Refused("invalid", f"the outcome so far is {decided.outcome}, got {amount}")
            total = (np.asarray(decided.outcome) + np.asarray(amount)).tolist()
            total = self._mind.outcome(total, self._ledger)
            self._ledger.add_outcomes([], [Revised(number, total, worth(total), amount, ref)])
            return True

    def expire(self, older_than: float, outcome: Any, most: int = 1000) -> int:
        """Assume `outcome` for decisions older than so many seconds whose own never came; at most
        so many of them, lest others wait."""
        with self._door, self._ledger.turn(), _told_as_refused():
            outcome = self._mind.outcome(outcome, self._ledger)
            numbers = self._ledger.pending(before=time.time() - older_than)[:most]
            worth = self._mind.worth(outcome)
            self._ledger.add_outcomes([Observed(n, outcome, worth, True) for n in numbers])
            return len(numbers)

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
        with self._door, _told_as_refused():
            if self._mind.width is None:
                agent, seed, _, _, actions, _ = self._given
                twin = Bandit(agent, seed, actions=actions)
                found = twin.predict(ask.actions, context=ask.context, available=ask.available)
                mean, spread = (None, None) if found.values is None else found.values
                names = list(ask.actions) if isinstance(ask.actions, Mapping) else actions
                about = {"probabilities": found.probabilities, "mean": mean, "spread": spread}
                return {"names": names, **about}
            columns = self._offers.columns
            offer = self._offers.read(ask.actions, ask.context, ask.available, self._mind.width)
            self._offers.columns = columns
            (draft,) = self._drafts([(ask, offer)])
            about = {"mean": draft.mean, "spread": draft.spread}
            return {"names": offer.names, "probabilities": draft.row.probabilities, **about}

    @property
    def floor(self) -> float:
        """The share of decisions left to chance, by the agent's configuration and the settings."""
        return 1 - (1 - self._mind.floor) * (1 - self.settings.floor)

    def value(self, offer: Offered) -> Values | None:
        """What every action of an earlier offer is worth by what is known now."""
        with self._door:
            state = self._mind.sync(self._ledger)
            return self._mind.pick(0, offer.table, offer.available, state)[2]

    def warm(self, seconds: float = 5.0) -> None:
        """Compile for offers like the last one, so that the first requests need not wait."""
        with self._door:
            with self._ledger.turn(write=False):
                number = self._ledger.decisions
                found = [*self._ledger.between(number - 1, number)] if number else []
            if not found or found[0].offer is None or self._mind.agent is None:
                return
            offer, end = found[0].offer, time.monotonic() + seconds
            for size in (1, 2, 4, 8, 16):
                if time.monotonic() < end:
                    several = [(offer.table, offer.available)] * size
                    self._mind.pick_many([0] * size, several, self._mind.sync(self._ledger))

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes."""
        with self._door, self._ledger.turn():
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
        with self._door, _told_as_refused():
            with self._ledger.turn():
                found = import_history(self._ledger, self._mind, content)
            self._load()
            return found

    def shadow(self, name: str) -> None:
        """Let one of the candidates watch from now on; it learns all that is recorded."""
        if name not in self.candidates:
            raise Refused("unknown", f"there is no candidate {name!r}, but {[*self.candidates]}")
        with self._door, _told_as_refused():
            with self._ledger.turn():
                if self._mind.agent is None:
                    raise Refused("conflict", "there is no decision yet, on which shadows watch")
                if name in recorded(self._ledger):
                    return
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


class _told_as_refused:
    """What is wrong with a request, said as such."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, TypeError | ValueError):
            raise Refused("invalid", str(error)) from error
