"""An agent and what it has learned: a cache of the ledger, which replaying rebuilds."""

import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import differences
from ..core import Agent, Facts, fact
from ..fast import threefry
from ..fast.packing import Packed
from ..inputs.columns import Columns
from ..inputs.hashing import LARGEST, unmasked
from ..inputs.scale import Scale, Usual, frozen
from ..ledger.ledger import DecisionRow, Ledger
from ..ledger.sqlite import public
from . import notices
from .decisions import Values
from .programs import Drawn, Programs, Rule, State, room
from .setup import Setup
from .snapshots import SNAPSHOT, Snapshot, load_snapshot, pack

MANY = 16  # decisions in one call of a compiled program
MARK = 1000  # outcomes after which to remember the state, for revisions of later ones
MARKS = 2  # states that are remembered
LARGE = 2**28  # bytes of a state that are said before they are taken


class Version(NamedTuple):
    """A state with what it was made of, in one value, so that no interrupt can part them."""

    state: Any  # as the replica's programs hold it
    outcomes: int  # how many were learned
    frozen: int  # how many its scale was taken from
    revisions: int = 0  # how many were made when it was
    usual: Usual = Usual()  # where outcomes are

    @property
    def known(self) -> tuple[int, int]:
        """How much of a ledger it knows."""
        return self.outcomes, self.revisions

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
    """

    def __init__(self, setup: Setup, follows: bool = False):
        self.setup, self.inputs, self.follows = setup, setup.inputs, follows
        self.file, self.width, self.dtype = SNAPSHOT, None, setup.dtype
        self._start, streams = threefry.split_seed(setup.seed)
        self._streams = streams.tolist()  # words from which those of decisions and outcomes come
        self.version: Version | None = None  # also while it is being changed
        self._marks: list[Version] = []  # what it was not long ago
        self.agent: Agent | None = None
        self.host = False  # whether it learns in plain Python, and has no state of arrays
        if setup.agent is not None:
            self._adopt(setup.agent)
        self.settle(setup.inputs.hasher.width if setup.inputs.hasher else None)

    def _adopt(self, agent: Agent) -> None:
        """Let the agent choose and learn from now on."""
        self.agent, self._reward = agent, fact(agent, "reward")
        self.width = fact(agent, "dim") if self.width is None else self.width
        check = fact(agent, "check_outcome")
        self._check = None if getattr(check, "__func__", 0) is Facts.check_outcome else check
        self.host = bool(fact(agent, "host"))
        programs = Programs if self.host else Packed
        self.programs = programs(Rule(agent, self.setup.floor or None))
        _say_room(agent, self.programs.belief)
        self._known_outcomes: set[tuple[int, ...]] = set()

    def settle(self, width: int | None) -> None:
        """The first decisions fix the number of features, where the agent leaves it open."""
        if self.width is None and width is not None:
            self.width, self.version = width, None  # the scale's width was unknown
        recipe = self.setup.recipe
        if self.agent is None and self.width is not None and recipe is not None:
            hashed = self.inputs.hasher is not None
            self._adopt(recipe.agent(self.inputs.arms, self.width, hashed))
            self.version = None

    def unsettle(self) -> None:
        """Nothing was recorded: the next offer may have another number of features."""
        self.width = self.version = None
        self.agent = None if self.setup.recipe else self.agent

    def _is_saved(self, ledger: Ledger) -> bool:
        """Not while its shape is open, nor if it is not one of arrays."""
        return ledger.place is not None and self.width is not None and not self.host

    def fresh(self) -> Any:
        """The state before anything is learned."""
        return State(None, ()) if self.agent is None else self._begin(self._scale())

    def _begin(self, scale: Scale | None) -> Any:
        return self.programs.begin(self._start, scale)

    def _scale(self) -> Scale | None:
        centred = self.setup.recipe is not None and self.inputs.hasher is None
        return Scale.init(self.width, centred) if self.setup.normalise and self.width else None

    def like(self) -> State:
        """The shapes of a state, and where they are to lie: nothing is computed or compiled."""
        return self.programs.like(self._scale())

    def _begun(self, ledger: Ledger) -> Version:
        """What to go on from: the snapshot, if there is one and it belongs to this ledger."""
        if self._is_saved(ledger):
            found = load_snapshot(ledger, self.file, self.like(), self.setup.description)
            if found is not None:
                return self.restored(found, frozen(found.sequence))
        return Version(self.fresh(), 0, 0, ledger.revisions)

    def restored(self, found: Snapshot, scaled: int = 0) -> Version:
        """What a snapshot has, whose scale was taken from so many outcomes."""
        state = self.programs.hold(found.state)
        return Version(state, found.sequence, scaled, found.revisions, found.usual)

    def copy(self) -> Version | None:
        """What it knows, for another to hold: learning consumes a state."""
        now = self.version
        return now and now._replace(state=self.programs.copy(now.state))

    def sync(self, ledger: Ledger, most: int | None = None) -> Any:
        """The state, brought up to the ledger: at opening, after an interrupt, for a new scale; by
        at most so many outcomes. That of a follower is what was handed over to it."""
        if self.width is None:
            self.settle(ledger.width)
        now = self.version
        if self.follows:
            now = self.version = now or Version(self.fresh(), 0, 0)
        if now is not None and (self.follows or (now.outcomes, now.revisions) == ledger.known):
            return now.state
        now = now or self._begun(ledger)
        if now.revisions != ledger.revisions:
            now = self._revised(ledger, now)
        due = frozen(ledger.outcomes)
        if now.frozen < due and self._rescales:
            now = self._rescaled(ledger, now, due)
        self.version = now
        for row in islice(ledger.learned(after=now.outcomes), most):
            self._apply(row, row.outcome)
        return self.version.state

    def state(self, ledger: Ledger) -> State:
        """The same for people: a scale, and what the agent believes."""
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
            found = found if _holds(ledger, found) else Version(self.fresh(), 0, 0)
        self._marks = marks
        return found._replace(revisions=ledger.revisions)

    @property
    def _rescales(self) -> bool:
        """Whether anything is in units that the first outcomes decide."""
        return self.setup.recipe is not None or bool(self.setup.normalise and self.width)

    def _rescaled(self, ledger: Ledger, now: Version, due: int) -> Version:
        """In the units of the first `due` outcomes: what was learned in other ones is not."""
        rows, recipe = list(islice(ledger.learned(after=0), due)), self.setup.recipe
        state, usual = self.programs.state(now.state), now.usual
        scale, same = state.scale, True
        if scale is not None:
            new = Scale.of(np.stack([row.features for row in rows]), scale.mean is not None)
            same, state = scale.agrees(new), State(new._replace(far=scale.far), state.belief)
            scale = new
        if recipe is not None:
            outcomes = np.array([row.outcome for row in rows], np.float64)
            usual = Usual.of(outcomes)
            same = same and now.usual.agrees(usual, outcomes, recipe.stray)
        if same:
            return now._replace(state=self.programs.hold(state), frozen=due, usual=usual)
        return Version(self._begin(scale), 0, due, now.revisions, usual)

    def _apply(self, row: DecisionRow, outcome: Any) -> None:
        now, recipe = self.version, self.setup.recipe
        assert now is not None
        usual = now.usual
        if recipe is not None:
            outcome, usual = usual.counted(outcome, recipe.stray, now.outcomes + 1, now.frozen)
        arm = self.inputs.arm(row.number, row.chosen, row.action)
        features = row.features
        if features.dtype != self.dtype:
            features = features.astype(self.dtype)
        words, self.version = (self._streams[1], row.number, arm), None  # its state is consumed
        state = self.programs.learn(now.state, words, features, outcome)
        self.version = Version(state, now.outcomes + 1, now.frozen, now.revisions, usual)
        if self.version.outcomes % MARK == 0 and not self.host:
            mark = self.version._replace(state=self.programs.copy(state))
            self._marks = [*self._marks[1 - MARKS :], mark]

    def check_history(self, ledger: Ledger) -> None:
        """Refuse to begin with decisions whose features are missing, where the agent takes none."""
        if self.inputs.missing:
            return
        lacking = sum(bool(np.isnan(row.features).any()) for row in ledger.all())
        if lacking:
            raise ValueError(
                f"features are missing (NaN) in {lacking} of {ledger.decisions} decisions of the "
                f"history, which only the default agent takes, agent=None; got {self.agent!r}"
            )

    def learn(self, ledger: Ledger, rows: list[tuple[DecisionRow, Any]]) -> None:
        """The outcomes of these decisions, which were the last to be recorded."""
        (after, revisions), now = ledger.known, self.version
        ready = now is not None and (now.outcomes + len(rows), now.revisions) == (after, revisions)
        if now is None or not ready or (frozen(after) > now.frozen and self._rescales):
            self.sync(ledger)
        else:
            for decided, outcome in rows:
                self._apply(decided, outcome)

    def choose(self, number: int, table: np.ndarray, mask: np.ndarray, state: Any) -> Drawn:
        """What decision `number` would choose, from what probabilities, and why."""
        found = self.programs.choose(state, (self._streams[0], number), table, mask)
        now = self.version
        return found if now is None or not now.usual.origin else self._shifted(found)

    def choose_many(
        self, numbers: Sequence[int], offers: Sequence[tuple[np.ndarray, np.ndarray]], state: Any
    ) -> list[Drawn]:
        """As `choose` for each of several (features, mask), in few calls of a compiled program."""
        found: dict[int, Drawn] = {}
        alike: dict[Any, list[int]] = {}
        for n, (table, mask) in enumerate(offers):
            rows = room(len(mask)) if self.inputs.arms is None else len(table)
            alike.setdefault((rows, table.shape[1]), []).append(n)
        for all_of in alike.values():
            for start in range(0, len(all_of), MANY):
                part = all_of[start : start + MANY]
                size = 1 << (len(part) - 1).bit_length()
                filled = part if self.host else part + part[:1] * (size - len(part))
                words = [(self._streams[0], numbers[n]) for n in filled]
                tables, masks = ([offers[n][side] for n in filled] for side in (0, 1))
                drawn = self.programs.choose_many(state, words, tables, masks)
                found |= zip(part, map(self._shifted, drawn), strict=False)
        return [found[n] for n in range(len(offers))]

    def _shifted(self, drawn: Drawn) -> Drawn:
        """With values in the units of outcomes, of which the agent learns how far they are from
        where they usually are."""
        origin = 0.0 if self.version is None else self.version.usual.origin
        if drawn.values is None or not origin:
            return drawn
        mean, spread = drawn.values
        return drawn._replace(values=Values(mean.astype(np.float64) + origin, spread))

    def rank(
        self, number: int, table: np.ndarray, mask: np.ndarray, state: Any, index: int
    ) -> list[int]:
        """The actions by what one plausible model thinks of them, the chosen one first."""
        return self.programs.rank(state, (self._streams[0], number), table, mask, index)

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
        return pack(Snapshot(state, *about, now.revisions, now.usual))

    def forget(self, ledger: Ledger) -> None:
        """Remove the snapshot: it is another agent's, or will not be needed any more."""
        ledger.discard(self.file)

    def diverged(self, ledger: Ledger) -> int:
        """How often models had to be put back to their start."""
        return self._diverged(self.state(ledger))

    def notices(self, ledger: Ledger) -> dict[str, str]:
        """What its user should know of what it has learned, by kind."""
        state, now = self.state(ledger), self.version
        far, columns = None if state.scale is None else state.scale.far, self.inputs.columns
        strays = 0 if now is None else now.usual.strays
        return notices.learned(self._diverged(state), ledger.outcomes, strays, far, columns)

    def _diverged(self, state: State) -> int:
        return 0 if self.agent is None else int(fact(self.agent, "diverged")(state.belief))


def resume(replica: Replica, ledger: Ledger, migrate: bool = False) -> Replica:
    """The replica to go on with: by the configuration given where it is the ledger's or, with
    `migrate`, takes its place, and for the rest by what is recorded."""
    recorded = ledger.description
    columns = None if recorded is None else Columns.recorded(recorded.pop("columns", None))
    if replica.setup.recipe is not None and recorded is not None:
        setup = replica.setup.taken_over(ledger, recorded, migrate)
        replica = Replica(setup, replica.follows)
    setup, inputs = replica.setup, replica.inputs
    if inputs.hasher is None:
        inputs.columns = columns
    setup.columns, inputs.begun = columns, ledger.decisions > 0
    if recorded is not None and not migrate:
        setup.check(recorded, ledger.place)
    width = ledger.width
    if width is not None and replica.width not in (None, width):
        raise ValueError(
            f"the decisions in {public(ledger.place)} have {width} features, this agent "
            f"{replica.width}"
        )
    replica.settle(width)
    changed = recorded is not None and bool(differences(recorded, setup.description))
    if changed:
        replica.check_history(ledger)
        replica.forget(ledger)
    replica.sync(ledger)
    if changed or recorded is None:
        setup.record(ledger)
        replica.save(ledger)
    return replica
