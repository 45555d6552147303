"""An agent and what it has learned: a cache of the ledger, which replaying rebuilds."""

import warnings
from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import differences
from ..core import Agent, Facts, fact
from ..fast import faster
from ..inputs.descriptions import LARGEST
from ..inputs.offer import Offer, unmasked
from ..inputs.scale import LAST, Fields, Scale, Usual, fields_of, frozen, with_fields
from ..ledger.ledger import Base, DecisionRow, Ledger
from ..primitives import split_seed
from . import notices
from .decisions import Values
from .notices import Changed
from .programs import Drawn, Found, Programs, Rule, State, room
from .setup import Setup
from .snapshots import SNAPSHOT, Snapshot, load_snapshot, pack, unpack

MANY = 16  # decisions in one call of a compiled program
MARK = 1000  # outcomes after which to remember the state, for revisions of later ones
MARKS = 2  # states that are remembered
LARGE = 2**28  # bytes of a state that are said before they are taken
COMPILED = faster("packing", "Packed")(Programs)


class Version(NamedTuple):
    """A state with what it was made of, in one value, so that no interrupt can part them."""

    state: Any  # as the replica's programs hold it
    outcomes: int  # how many were learned
    frozen: int  # how many its units were taken from
    revisions: int = 0  # how many were made when it was
    usual: Usual = Usual()  # where outcomes are
    fields: Fields = {}  # noqa: RUF012 (never changed) the units of numbers in descriptions

    @property
    def known(self) -> tuple[int, int]:
        """How much of a ledger it knows."""
        return self.outcomes, self.revisions

    @property
    def rescaled_at(self) -> float:
        """The number of outcomes from which its units are taken anew."""
        return max(1, 2 * self.frozen) if self.frozen < LAST else inf

    def follows(self, other: "Version | None") -> bool:
        """Whether it knows more than the other does, and nothing less."""
        if other is None:
            return True
        pairs = zip(self.known, other.known, strict=True)
        return self.known != other.known and all(ours >= theirs for ours, theirs in pairs)


def _holds(ledger: Ledger, version: Version) -> bool:
    """Whether everything it was taught is still so."""
    first = ledger.first_revised(after=version.revisions)
    return first is None or first > version.outcomes


def _say_room(agent: Agent, belief: Any) -> None:
    """Warn of a state that takes much memory, by its shapes: nothing is there yet."""
    leaves = jax.tree.leaves(belief)
    room = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves if hasattr(leaf, "dtype"))
    if room >= LARGE:
        arms, width = fact(agent, "arms"), fact(agent, "dim")
        of = "" if arms is None else f"{arms} actions of "
        warnings.warn(
            f"what this agent learns takes {room / 2**20:,.0f} MiB for {of}{width} features, and "
            f"up to {1 + MARKS} times as much once {MARKS * MARK:,} outcomes are learned, in "
            "memory: fewer actions, or actions described by features, take less",
            stacklevel=2,
        )


class Replica:
    """One agent, and the state it has from a ledger's outcomes in their order.

    agent: None until the number of features is known, where it is the default one.
    follows: whether another thread or process learns, and hands over versions.
    file: the name of its snapshot.
    """

    def __init__(self, setup: Setup, follows: bool = False, file: str = SNAPSHOT):
        self.setup, self.inputs, self.follows, self.file = setup, setup.inputs, follows, file
        self.agent, self.width, self.dtype = setup.agent, setup.width, setup.dtype
        self._key, streams = split_seed(setup.seed)
        self._streams = streams.tolist()  # words from which those of decisions and outcomes come
        self.version: Version | None = None  # also while it is being changed
        self._marks: list[Version] = []  # what it was not long ago
        self._base = Base()  # that of the ledger when it learned last
        self.host = False  # whether it learns in plain Python, and has no state of arrays
        # Whether anything is in units that the first outcomes decide.
        self._rescales = setup.recipe is not None or bool(setup.normalise and self.width)
        # Descriptions of the default agent have their numbers in units before they are hashed.
        self._has_fields = setup.recipe is not None and self.inputs.hasher is not None
        if self.agent is not None:
            self._prepare(self.agent)

    def _prepare(self, agent: Agent) -> None:
        self._reward = fact(agent, "reward")
        check = fact(agent, "check_outcome")
        self._check = None if getattr(check, "__func__", 0) is Facts.check_outcome else check
        self.host = bool(fact(agent, "host"))
        programs = Programs if self.host else COMPILED
        self.programs = programs(Rule(agent, self.setup.floor or None))
        self.programs.expect(self._scale())
        _say_room(agent, self.programs.belief)
        self._known_outcomes: set[tuple[int, ...]] = set()

    def covering(self, offers: Sequence[Offer]) -> "Replica":
        """A replica for all that is said in these offers: mostly this one, or one of a setup that
        grew, which learns the history anew."""
        setup = self.setup.covering(offers)
        return self if setup is self.setup else Replica(setup, self.follows, self.file)

    def _is_saved(self, ledger: Ledger) -> bool:
        """Not while its shape is open, nor if it is not one of arrays."""
        return ledger.place is not None and self.width is not None and not self.host

    def fresh(self) -> Any:
        """The state before anything is learned."""
        return State(None, ()) if self.agent is None else self._begin(self._scale())

    def _begin(self, scale: Scale | None) -> Any:
        return self.programs.begin(self._key, scale)

    def _scale(self) -> Scale | None:
        centred = self.setup.recipe is not None and self.inputs.hasher is None
        return Scale.init(self.width, centred) if self.setup.normalise and self.width else None

    def like(self) -> State:
        """The shapes of a state, and where they are to lie: nothing is computed or compiled."""
        return self.programs.like(self._scale())

    def _begun(self, ledger: Ledger) -> Version:
        """What to go on from: the snapshot, if there is one and it belongs to this ledger. What
        revised one older than the base may be gone."""
        base, found = ledger.base, None
        if self._is_saved(ledger):
            found = load_snapshot(ledger, self.file, self.like(), self.setup.description)
        if found is None or found.sequence < base.outcomes or found.revisions < base.revisions:
            return self._start_of(ledger)._replace(revisions=ledger.revisions)
        stays = self._base_of(ledger) is not None
        return self.restored(found, LAST if stays else frozen(found.sequence))

    def _start_of(self, ledger: Ledger) -> Version:
        """What a replay begins with: nothing learned; or the base, where decisions were removed
        from the ledger, whose units stay as they are."""
        found = self._base_of(ledger)
        return Version(self.fresh(), 0, 0) if found is None else self.restored(found, LAST)

    def _base_of(self, ledger: Ledger) -> Snapshot | None:
        content = None
        if ledger.base.outcomes and self.width is not None and not self.host:
            content = ledger.base_state(self.file)
        if content is None:
            return None
        return unpack(content, self.like(), ledger, self.setup.description, self.file)

    def restored(self, found: Snapshot, scaled: int = 0) -> Version:
        """What a snapshot has, whose scale was taken from so many outcomes."""
        state = self.programs.hold(found.state)
        known = (found.sequence, scaled, found.revisions)
        return Version(state, *known, found.usual, found.fields)

    def copy(self) -> Version | None:
        """What it knows, for another to hold: learning consumes a state."""
        now = self.version
        return now and now._replace(state=self.programs.copy(now.state))

    def sync(self, ledger: Ledger, most: int | None = None) -> Any:
        """The state, brought up to the ledger: at opening, after an interrupt, for a new scale; by
        at most so many outcomes. That of a follower is what was handed over to it."""
        now = self.version
        if self.follows:
            now = self.version = now or Version(self.fresh(), 0, 0)
        elif self._base != ledger.base:  # replays begin elsewhere now
            now, self._marks, self._base = None, [], ledger.base
        if now is not None and (self.follows or (now.outcomes, now.revisions) == ledger.known):
            return now.state
        now = now or self._begun(ledger)
        if now.revisions != ledger.revisions:
            now = self._revised(ledger, now)
        due = frozen(ledger.outcomes)
        if now.frozen < due and self._rescales:
            now = self._rescaled(ledger, now, due)
        self.version, rows = now, ledger.learned(after=now.outcomes)
        for row in islice(rows, most):
            if row.erased:  # nothing can be learned of it
                self.version = self.version._replace(outcomes=row.sequence)
            else:
                self._apply(row, row.outcome)
        if self.version.outcomes < ledger.base.outcomes and next(rows, None) is None:
            self.version = self.version._replace(outcomes=ledger.base.outcomes)  # the rest is gone
        return self.version.state

    def state(self, ledger: Ledger) -> State:
        """The state as a scale and a belief, for those who look at it."""
        held = self.sync(ledger)
        return held if self.agent is None else self.programs.state(held)

    def informed(self, ledger: Ledger) -> bool:
        """Whether it may speak: not while it follows and was handed nothing of what there is."""
        return self.version is not None or not self.follows or not ledger.outcomes

    def _revised(self, ledger: Ledger, now: Version) -> Version:
        """The last state that no revision touches: what it learned of are the outcomes of today."""
        marks = [mark for mark in self._marks if _holds(ledger, mark)]
        if _holds(ledger, now):
            found = now
        elif marks:
            found = marks[-1]._replace(state=self.programs.copy(marks[-1].state))
        else:
            found = self._begun(ledger)
            found = found if _holds(ledger, found) else self._start_of(ledger)
        self._marks = marks
        return found._replace(revisions=ledger.revisions)

    def _rescaled(self, ledger: Ledger, now: Version, due: int) -> Version:
        """In the units of the first `due` outcomes: what was learned in other ones is not."""
        known = (row for row in ledger.learned(after=0) if not row.erased)
        rows, recipe = list(islice(known, due)), self.setup.recipe
        state, usual, fields = self.programs.state(now.state), now.usual, now.fields
        scale, same = state.scale, True
        if self._has_fields:
            fields = fields_of([self.inputs.numbers_in(row) for row in rows])
            same = fields == now.fields
        if scale is not None:
            units = fields if self._has_fields else None
            features = [self.inputs.row(row, units) for row in rows]
            known = np.stack(
                [row for row in features if row is not None] or [np.zeros(self.width or 0)]
            )
            new = Scale.of(known, scale.mean is not None)
            same, state = (
                same and scale.agrees(new),
                State(new._replace(far=scale.far), state.belief),
            )
            scale = new
        if recipe is not None:
            outcomes = np.array([row.outcome for row in rows], np.float64)
            usual = Usual.of(outcomes) if len(outcomes) else Usual()
            same = same and now.usual.agrees(usual, outcomes, recipe.stray)
        if same:
            held = self.programs.hold(state)
            return now._replace(state=held, frozen=due, usual=usual, fields=fields)
        return Version(self._begin(scale), 0, due, now.revisions, usual, fields)

    def _apply(self, row: DecisionRow, outcome: Any) -> None:
        """Learn one outcome. Of a decision whose words are gone and were hashed otherwise, nothing
        can be learned."""
        now, recipe = self.version, self.setup.recipe
        assert now is not None
        usual, fields, sequence = now.usual, now.fields, row.sequence or now.outcomes + 1
        if recipe is not None:
            outcome, usual = usual.counted(outcome, recipe.stray, now.outcomes + 1, now.frozen)
        if self._has_fields:
            fields = with_fields(fields, self.inputs.numbers_in(row))
        arm = self.inputs.arm(row.number, row.chosen, row.action)
        features = self.inputs.row(row, fields if self._has_fields else None)
        state = now.state
        if features is not None:
            words, self.version = (self._streams[1], row.number, arm), None  # its state is consumed
            state = self.programs.learn(now.state, words, features, outcome)
        self.version = Version(state, sequence, now.frozen, now.revisions, usual, fields)
        if self.version.outcomes % MARK == 0 and not self.host:
            mark = self.version._replace(state=self.programs.copy(state))
            self._marks = [*self._marks[1 - MARKS :], mark]

    def check_history(self, ledger: Ledger) -> None:
        """Refuse to begin with decisions that this agent could not learn from; say how many say
        nothing to it any more."""
        lacking, gone = 0, 0
        for row in ledger.all():
            features = self.inputs.row(row)
            gone += features is None
            lacking += features is not None and bool(np.isnan(features).any())
        if lacking and not self.inputs.grows:
            raise ValueError(
                f"features are missing (NaN) in {lacking} of {ledger.decisions} decisions of the "
                f"history, which only the default agent takes, agent=None; got {self.agent!r}"
            )
        if gone:
            warnings.warn(
                f"{gone} of {ledger.decisions} decisions were hashed by a version that did not "
                "keep what was said: this agent, which hashes otherwise, cannot learn from them",
                stacklevel=3,
            )

    def learn(self, ledger: Ledger, rows: list[tuple[DecisionRow, Any]]) -> int:
        """The outcomes of these decisions, which were the last to be recorded; how many there are
        now in all."""
        (after, revisions), now = ledger.known, self.version
        ready = now is not None and (now.outcomes + len(rows), now.revisions) == (after, revisions)
        if now is None or not ready or (self._rescales and after >= now.rescaled_at):
            self.sync(ledger)
        else:
            for decided, outcome in rows:
                self._apply(decided, outcome)
        return after

    def table(self, offer: Offer) -> np.ndarray:
        """The features of the actions on offer, as the agent is given them now."""
        return self.inputs.table(offer, self._fields if self._has_fields else None)

    @property
    def _fields(self) -> Fields | None:
        """The units of numbers in descriptions, where these are hashed in units."""
        if not self._has_fields:
            return None
        return {} if self.version is None else self.version.fields

    def choose(self, number: int, offer: Offer, state: Any) -> Drawn:
        """What decision `number` would choose, from what probabilities, and why."""
        fields = self._fields if self._has_fields else None
        table = self.inputs.table(offer, fields)
        words, free = (self._streams[0], number), offer.available
        return self._drawn(self.programs.choose(state, words, table, free), len(free))

    def choose_many(
        self,
        numbers: Sequence[int],
        offers: Sequence[Offer],
        tables: Sequence[np.ndarray],
        state: Any,
    ) -> list[Drawn]:
        """As `choose` for each of several offers, in few calls of a compiled program; `tables` are
        theirs, see `table`."""
        found: dict[int, Drawn] = {}
        alike: dict[Any, list[int]] = {}
        for n, (table, offer) in enumerate(zip(tables, offers, strict=True)):
            rows = room(len(offer.available)) if self.inputs.arms is None else len(table)
            alike.setdefault((rows, table.shape[1]), []).append(n)
        for all_of in alike.values():
            for start in range(0, len(all_of), MANY):
                part = all_of[start : start + MANY]
                size = 1 << (len(part) - 1).bit_length()
                filled = part if self.host else part + part[:1] * (size - len(part))
                words = [(self._streams[0], numbers[n]) for n in filled]
                some = [tables[n] for n in filled], [offers[n].available for n in filled]
                drawn = self.programs.choose_many(state, words, *some)
                for n, one in zip(part, drawn, strict=False):  # the rest fills up
                    found[n] = self._drawn(one, len(offers[n].available))
        return [found[n] for n in range(len(offers))]

    def expected(self, ledger: Ledger, rows: Sequence[DecisionRow]) -> Values | None:
        """What the actions chosen in some decisions bring by what is known now; None for an agent
        that expects nothing, or where nobody can tell any more."""
        state, arms = self.sync(ledger), self.inputs.arms
        fields = self._fields
        features = [row for one in rows if (row := self.inputs.row(one, fields)) is not None]
        if len(features) < len(rows) or not rows:
            return None
        found = []
        # As many rows at a time as an offer has, for which there is a program already.
        size = 1 if arms is not None else len(rows[-1].probabilities)
        for start in range(0, len(rows), size):
            part = np.stack(features[start : start + size])
            mask = np.ones(len(part) if arms is None else arms, bool)
            values = self.values(0, part, mask, state)
            if values is None:
                return None
            one = rows[start]
            at = (
                slice(None)
                if arms is None
                else [self.inputs.arm(one.number, one.chosen, one.action)]
            )
            found.append((values.mean[at], values.spread[at]))
        mean, spread = (np.concatenate(part) for part in zip(*found, strict=True))
        return Values(mean, spread)

    def values(
        self, number: int, table: np.ndarray, available: np.ndarray, state: Any
    ) -> Values | None:
        """What actions with these features are worth, looked at as decision `number` would."""
        words = (self._streams[0], number)
        found = self.programs.choose(state, words, table, available)
        return self._drawn(found, len(available)).values

    def _drawn(self, found: Found, rows: int) -> Drawn:
        """What a program found for so many actions; an error where it could not choose. Values are
        in the units of outcomes, of which the agent learns how far they are from where they usually
        are."""
        numbers, room = found
        index, shares, values = int(numbers.item(-1)), numbers[:rows], None
        if not shares.item(index) > 0:
            raise ValueError(
                "the agent's values are no numbers any more: features or outcomes were too large "
                "for its settings; migrate the history to an agent with other ones"
                if np.isnan(shares).any()
                else f"the agent gave no probabilities to choose by: {shares.tolist()}"
            )
        if len(numbers) > room + 1:
            mean, spread = numbers[room : room + rows], numbers[2 * room : 2 * room + rows]
            if self.version is not None and self.version.usual.origin:
                mean = mean.astype(np.float64) + self.version.usual.origin
            values = Values(mean, spread)
        return Drawn(index, shares, values)

    def rank(self, number: int, offer: Offer, state: Any, index: int) -> list[int]:
        """The actions by what one plausible model thinks of them, the chosen one first."""
        words, table = (self._streams[0], number), self.table(offer)
        return self.programs.rank(state, words, table, offer.available, index)

    def outcome(self, given: Any, ledger: Ledger) -> Any:
        """The outcome as a number or a list, after checking that the agent can learn it."""
        if isinstance(given, float) and abs(given) < LARGEST and () in self._known_outcomes:
            return given  # the common case, many times faster
        checks.outcome(unmasked("an outcome", given))
        exact = np.asarray(given, np.float64)
        if exact.ndim > 1 or exact.size == 0:
            raise ValueError(
                f"an outcome must be a single number or a row of them, got shape {exact.shape}"
            )
        outcome = exact.astype(self.dtype)
        if self._check is not None:
            self._check(outcome)
        if not self.host and outcome.shape not in self._known_outcomes:
            state = self.version.state if self.version is not None else self.sync(ledger)
            self.programs.check(state, np.zeros(self.width or 0, self.dtype), outcome)
            if self._check is None:
                self._known_outcomes.add(outcome.shape)
        return exact.tolist()

    def reward(self, outcome: Any) -> float | None:
        """The reward of an outcome; None where only the agent knows."""
        if self._reward is not None:
            return float(self._reward.function(jnp.asarray(outcome, float)))
        return outcome if isinstance(outcome, float) else None

    def save(self, ledger: Ledger) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        self.sync(ledger)
        if self.version is not None and self._is_saved(ledger):
            ledger.store(self.file, self.packed(ledger))

    def packed(self, ledger: Ledger) -> bytes:
        """What it has learned so far, as the contents of a file."""
        now = self.version
        assert now is not None
        state = self.programs.state(now.state)
        about = (ledger.id, now.outcomes, self.setup.description, self._diverged(state))
        units = now.revisions, now.usual, now.fields
        return pack(Snapshot(state, *about, *units, self._changes(state)))

    def forget(self, ledger: Ledger) -> None:
        """Remove the snapshot: it is another agent's, or will not be needed any more."""
        ledger.discard(self.file)

    def diverged(self, ledger: Ledger) -> int:
        """How often models had to be put back to their start."""
        return self._diverged(self.state(ledger))

    def changes(self, ledger: Ledger) -> Changed:
        """What it noticed of a world that changes."""
        return self._changes(self.state(ledger))

    def notices(self, ledger: Ledger) -> dict[str, str]:
        """What its user should know, by kind."""
        return notices.noticed(self, ledger)

    @property
    def changed(self) -> Changed:
        """The same of the state as it is, however far behind the ledger."""
        now = self.version
        if now is None or self.agent is None:
            return Changed()
        return self._changes(self.programs.state(now.state))

    def _changes(self, state: State) -> Changed:
        found = None if self.agent is None else fact(self.agent, "changes")(state.belief)
        return Changed() if found is None else Changed(*(int(part) for part in found[1:]))

    def _diverged(self, state: State) -> int:
        return 0 if self.agent is None else int(fact(self.agent, "diverged")(state.belief))


def base_states(replicas: Sequence[Replica], ledger: Ledger) -> dict[str, bytes]:
    """What agents know of every outcome there is, by the names of their snapshots. It is where they
    begin from now on."""
    found = {}
    for replica in replicas:
        replica.sync(ledger)
        if replica.width is not None and not replica.host:
            found[replica.file], replica.version = replica.packed(ledger), None
    return found


def resume(replica: Replica, ledger: Ledger, migrate: bool = False) -> Replica:
    """The replica to go on with: by the configuration given where it is the ledger's or, with
    `migrate`, takes its place, and for the rest by what is recorded."""
    recorded = ledger.description
    if recorded is not None:
        setup = replica.setup.as_recorded(ledger, recorded, migrate)
        if not migrate:
            setup.check(recorded, ledger.place)
        replica = Replica(setup, replica.follows)
    changed = recorded is not None and bool(differences(recorded, replica.setup.description))
    if changed:
        replica.check_history(ledger)
        replica.forget(ledger)
    if not replica.follows:  # else it begins when it decides, which may have to be compiled for
        replica.sync(ledger)
    if changed or recorded is None:
        ledger.describe(replica.setup.description)
        replica.save(ledger)
    return replica
