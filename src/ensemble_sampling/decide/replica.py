"""An agent and what it has learned: a cache of the ledger, which replaying rebuilds."""

import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import describe
from ..core import Agent, Facts, fact
from ..fast import threefry
from ..inputs.hashing import LARGEST, precision, recordable, unmasked
from ..inputs.offer import Offers
from ..inputs.scale import LAST, Scale, Usual, frozen
from ..ledger.ledger import Decided, Ledger
from . import notices
from .decisions import Values
from .default import Default
from .programs import Sheet, Slip, rule_of
from .snapshots import SNAPSHOT, Snapshot, load_snapshot, pack
from .states import Layout, State

MANY = 16  # decisions in one call of a compiled program
SHEETS = 64  # shapes of offers for which there is an array to fill in
MARK = 1000  # outcomes after which to remember the state, for revisions of later ones
MARKS = 2  # states that are remembered
LARGE = 2**28  # bytes of a state that are said before they are taken


class Taught(NamedTuple):
    """A state with what it was made of, in one value, so that no interrupt can part them."""

    state: State
    outcomes: int  # how many were learned
    frozen: int  # how many its scale was taken from
    revisions: int = 0  # how many were made when it was
    usual: Usual = Usual()  # where outcomes are

    def knows(self, ledger: Ledger) -> bool:
        """Whether that is all there is."""
        return (self.outcomes, self.revisions) == ledger.known

    @property
    def known(self) -> tuple[int, int]:
        """How much of a ledger it knows."""
        return self.outcomes, self.revisions

    def follows(self, other: "Taught | None") -> bool:
        """Whether it knows more than the other does, and nothing less."""
        if other is None:
            return True
        pairs = zip(self.known, other.known, strict=True)
        return self.known != other.known and all(ours >= theirs for ours, theirs in pairs)


def _holds(ledger: Ledger, taught: Taught) -> bool:
    """Whether everything it was taught is still so."""
    first = ledger.first_revised(after=taught.revisions)
    return first is None or first > taught.outcomes


def _there(arrays: Sequence[Any]) -> bool:
    """Whether they are computed; of keys nobody can tell."""
    return all(getattr(array, "is_ready", bool)() for array in arrays)


def _room(rows: int) -> int:
    """A power of two, so that few sizes are compiled."""
    return max(8, 1 << (rows - 1).bit_length())


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


class Mind:
    """One agent, and the state it has from a ledger's outcomes in their order.

    agent: None where it is the default one (by `recipe`), which is made when the number of
        features is known.
    offers: which of its actions a decision chose.
    """

    def __init__(
        self,
        agent: Agent | None,
        recipe: Default | None,
        offers: Offers,
        seed: int,
        normalise: bool,
        floor: float,
    ):
        self.recipe, self.offers, self.file = recipe, offers, SNAPSHOT
        self.seed, self.normalise, self.floor = seed, normalise, floor
        self.dtype, self.width = precision(), None
        self._start, streams = threefry.begun(seed)
        self._streams = streams.tolist()  # words from which those of decisions and outcomes come
        self.taught: Taught | None = None  # also while it is being changed
        self._marks: list[Taught] = []  # what it was not long ago
        self.agent: Agent | None = None
        self.host = False  # whether it learns in plain Python, and has no state of arrays
        if agent is not None:
            self._adopt(agent)

    def _adopt(self, agent: Agent) -> None:
        """Let the agent choose and learn from now on."""
        self.agent, self._reward = agent, fact(agent, "reward")
        self.width = fact(agent, "dim") if self.width is None else self.width
        self.host = bool(fact(agent, "host"))
        check = fact(agent, "check_outcome")
        self._check = None if getattr(check, "__func__", 0) is Facts.check_outcome else check
        begun = rule_of(agent, self.floor)
        self._bound, self._init, self._programs, self._where, self._belief = begun
        _say_room(agent, begun.belief)
        self._use(None)
        self._known_outcomes: set[tuple[int, ...]] = set()
        self._sheets: dict[tuple[int, int], Sheet] = {}
        self._slip: Slip | None = None

    @property
    def description(self) -> Any:
        """What decides every number; the default agent by what it is made of, see `Default`."""
        who = {"agent": self.agent} if self.recipe is None else {"default": self.recipe.settings}
        return describe(
            {
                **who,
                "seed": self.seed,
                "normalise": self.normalise,
                "hasher": recordable(self.offers.hasher),
                "actions": self.offers.names,
                "precision": str(self.dtype),
                **({"floor": self.floor} if self.floor else {}),  # new: others go on unchanged
            }
        )

    def settle(self, width: int | None) -> None:
        """The first decisions fix the number of features, where the agent leaves it open."""
        if self.width is None and width is not None:
            self.width, self.taught = width, None  # the scale's width was unknown
        if self.agent is None and self.width is not None and self.recipe is not None:
            hashed = self.offers.hasher is not None
            self._adopt(self.recipe.agent(self.offers.arms, self.width, hashed))
            self.taught = None

    def unsettle(self) -> None:
        """Nothing was recorded: the next offer may have another number of features."""
        self.width = self.taught = None
        self.agent = None if self.recipe else self.agent

    def _is_saved(self, ledger: Ledger) -> bool:
        """Not while its shape is open, nor if it is not one of arrays."""
        return ledger.place is not None and self.width is not None and not self.host

    def _fresh(self) -> State:
        return State(None, ()) if self.agent is None else self._state(self._scale())

    def _scale(self) -> Scale | None:
        centred = self.recipe is not None and self.offers.hasher is None
        return Scale.init(self.width, centred) if self.normalise and self.width else None

    def like(self) -> State:
        """The shapes of a state, and where they are to lie: nothing is computed or compiled."""
        where = None if self._where is None else jax.sharding.SingleDeviceSharding(self._where)

        def about(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

        return jax.tree.map(about, State(self._scale(), self._belief))

    def _state(self, scale: Scale | None) -> State:
        """Before anything was learned."""
        start = jax.random.wrap_key_data(self._start, impl=threefry.PLAIN)
        state = State(scale, self._init(self._bound, start))
        if self.host:
            return state
        arrays = self._held(state)
        assert self._layout is not None
        return State.of(self._layout, arrays)

    def _use(self, layout: Layout | None) -> None:
        """The programs for such states; None: those in plain Python, or none yet."""
        self._layout, program = layout, self._programs(layout)
        self._choose, self._learn, self._rank, self._many = program[:4]
        self._choose_packed, self._learn_packed = program[4:]

    def _held(self, state: State) -> Any:
        """The state as the programs take it."""
        if self.host:
            return state
        layout, arrays = state.held(self._where)
        if layout is not self._layout:
            self._use(layout)
        return arrays

    def _begun(self, ledger: Ledger) -> Taught:
        """What to go on from: the snapshot, if there is one and it belongs to this ledger."""
        if self._is_saved(ledger):
            found = load_snapshot(ledger, self.file, self.like(), self.description)
            if found is not None:
                scaled = frozen(found.sequence)
                return Taught(found.state, found.sequence, scaled, found.revisions, found.usual)
        return Taught(self._fresh(), 0, 0, ledger.revisions)

    def sync(self, ledger: Ledger, most: int | None = None) -> State:
        """Bring the state up to the ledger: at opening, after an interrupt, for a new scale; by at
        most so many outcomes."""
        if self.width is None:
            self.settle(ledger.width)
        now = self.taught
        if now is not None and now.knows(ledger):
            return now.state
        now = now or self._begun(ledger)
        if now.revisions != ledger.revisions:
            now = self._revised(ledger, now)
        due = frozen(ledger.outcomes)
        if now.frozen < due and self._rescales:
            now = self._rescaled(ledger, now, due)
        self.taught = now
        for row in islice(ledger.learned(after=now.outcomes), most):
            self._apply(row, row.outcome)
        return self.taught.state

    def informed(self, ledger: Ledger) -> bool:
        """Whether it may speak: it is brought up to the ledger whenever it is asked."""
        return True

    def _revised(self, ledger: Ledger, now: Taught) -> Taught:
        """The last state that no revision touches: what it learned of are the outcomes of today."""
        marks = [mark for mark in self._marks if _holds(ledger, mark)]
        if _holds(ledger, now):
            found = now
        elif marks:
            found = marks[-1]._replace(state=marks[-1].state.copy())
        else:
            found = self._begun(ledger)
            found = found if _holds(ledger, found) else Taught(self._fresh(), 0, 0)
        self._marks = marks
        return found._replace(revisions=ledger.revisions)

    @property
    def _rescales(self) -> bool:
        """Whether anything is in units that the first outcomes decide."""
        return self.recipe is not None or bool(self.normalise and self.width)

    def _rescaled(self, ledger: Ledger, now: Taught, due: int) -> Taught:
        """In the units of the first `due` outcomes: what was learned in other ones is not."""
        rows, scale, usual = list(islice(ledger.learned(after=0), due)), now.state.scale, now.usual
        same, state = True, now.state
        if scale is not None:
            new = Scale.of(np.stack([row.features for row in rows]), scale.mean is not None)
            same, state = scale.agrees(new), State(new._replace(far=scale.far), now.state.belief)
            scale = new
        if self.recipe is not None:
            outcomes = np.array([row.outcome for row in rows], np.float64)
            usual = Usual.of(outcomes)
            same = same and now.usual.agrees(usual, outcomes, self.recipe.stray)
        if same:
            return now._replace(state=state, frozen=due, usual=usual)
        return Taught(self._state(scale), 0, due, now.revisions, usual)

    def _apply(self, row: Decided, outcome: Any) -> None:
        assert self.taught is not None
        if self.recipe is not None:
            now, stray = self.taught, self.recipe.stray
            outcome, usual = now.usual.counted(outcome, stray, now.outcomes + 1, now.frozen)
            self.taught = now._replace(usual=usual)
        arm = self.offers.arm(row.number, row.chosen, row.action)
        words = (self._streams[1], row.number, arm)
        features = row.features
        if features.dtype != self.dtype:
            features = features.astype(self.dtype)
        now, self.taught = self.taught, None  # consumed
        held = self._held(now.state)
        if isinstance(outcome, float) and not self.host:
            slip, self._slip = self._slip or Slip(len(features), self.dtype, self._where), None
            packed = slip.filled(words, features, outcome)
            learned = self._learn_packed(self._bound, packed, held)
            self._slip = slip if _there(learned) else None  # or it may not be read yet
        else:
            key, y = np.array(words, np.uint32), np.asarray(outcome, self.dtype)
            learned = self._learn(self._bound, key, held, features, y)
        state = learned if self._layout is None else State.of(self._layout, learned)
        self.taught = Taught(state, now.outcomes + 1, now.frozen, now.revisions, now.usual)
        if self.taught.outcomes % MARK == 0 and not self.host:
            mark = self.taught._replace(state=state.copy())
            self._marks = [*self._marks[1 - MARKS :], mark]

    def check_history(self, ledger: Ledger) -> None:
        """Refuse to begin with decisions whose features are missing, where the agent takes none."""
        if self.offers.missing:
            return
        lacking = sum(bool(np.isnan(row.features).any()) for row in ledger.all())
        if lacking:
            raise ValueError(
                f"features are missing (NaN) in {lacking} of {ledger.decisions} decisions of the "
                f"history, which only the default agent takes, agent=None; got {self.agent!r}"
            )

    def learn(self, ledger: Ledger, rows: list[tuple[Decided, Any]]) -> None:
        """The outcomes of these decisions, which were the last to be recorded."""
        (after, revisions), now = ledger.known, self.taught
        before = after - len(rows)
        if now is None or now.known != (before, revisions):
            self.sync(ledger)
        elif before >= LAST or frozen(before) == frozen(after) or not self._rescales:
            for decided, outcome in rows:
                self._apply(decided, outcome)
        else:
            self.sync(ledger)

    def pick(
        self, number: int, table: np.ndarray, mask: np.ndarray, state: State
    ) -> tuple[int, np.ndarray, Values | None]:
        """(the index drawn, the probabilities it was drawn from, what actions are worth)."""
        if self.offers.arms is None and not self.host and table.shape[1]:
            # Taken away, lest another thread fill it in meanwhile.
            shape = table.shape
            sheet = self._sheets.pop(shape, None)
            if sheet is None:
                sheet = Sheet(shape, table.dtype, _room(len(table)), self._where)
            packed = sheet.filled(self._streams[0], number, table, mask)
            held = self._held(state)  # first: it decides by which program
            drawn = np.asarray(self._choose_packed(self._bound, packed, held))
            if len(self._sheets) >= SHEETS:
                self._sheets.clear()
            self._sheets[shape] = sheet
            return self._drawn(drawn, len(mask), sheet.room)
        rows = len(mask)
        table, mask = self._filled(table, mask)
        held = self._held(state)
        drawn = np.asarray(self._choose(self._bound, self._key(number), held, table, mask))
        return self._drawn(drawn, rows, len(mask))

    def pick_many(
        self, numbers: Sequence[int], offers: Sequence[tuple[np.ndarray, np.ndarray]], state: State
    ) -> list[tuple[int, np.ndarray, Values | None]]:
        """As `pick` for each of several (features, mask), in few calls of a compiled program."""
        if not offers:
            return []  # perhaps before there is an agent
        found: dict[int, Any] = {}
        alike: dict[Any, list[int]] = {}
        filled = [self._filled(table, mask) for table, mask in offers]
        held = self._held(state)
        for n, (table, mask) in enumerate(filled):
            alike.setdefault((table.shape, len(mask)), []).append(n)
        for all_of in alike.values():
            for start in range(0, len(all_of), MANY):
                part = all_of[start : start + MANY]
                if len(part) == 1 or self._many is None:
                    for n in part:
                        key, (table, mask) = self._key(numbers[n]), filled[n]
                        found[n] = np.asarray(self._choose(self._bound, key, held, table, mask))
                    continue
                size = 1 << (len(part) - 1).bit_length()
                padded = part + part[:1] * (size - len(part))
                keys = np.stack([self._key(numbers[n]) for n in padded])
                tables = np.stack([filled[n][0] for n in padded])
                masks = np.stack([filled[n][1] for n in padded])
                drawn = np.asarray(self._many(self._bound, keys, held, tables, masks))
                found |= zip(part, drawn, strict=False)
        return [
            self._drawn(found[n], len(offers[n][1]), len(filled[n][1])) for n in range(len(offers))
        ]

    def _drawn(
        self, drawn: np.ndarray, rows: int, room: int
    ) -> tuple[int, np.ndarray, Values | None]:
        """What the compiled program put into one array."""
        index, shares, values = int(drawn.item(-1)), drawn[:rows], None
        if len(drawn) > room + 1:
            mean, last = drawn[room : room + rows], 2 * room
            if self.taught is not None and self.taught.usual.origin:
                mean = mean.astype(np.float64) + self.taught.usual.origin
            values = Values(mean, drawn[last : last + rows])
        if not shares.item(index) > 0:
            raise ValueError(
                "the agent's values are no numbers any more: features or outcomes were too large "
                "for its settings; migrate the history to an agent with other ones"
                if np.isnan(shares).any()
                else f"the agent gave no probabilities to choose by: {shares.tolist()}"
            )
        return index, shares, values

    def order(
        self, number: int, table: np.ndarray, mask: np.ndarray, state: State, index: int
    ) -> list[int]:
        """The actions by what one plausible model thinks of them, the chosen one first."""
        table, mask = self._filled(table, mask)
        key, first, held = self._key(number), np.int32(index), self._held(state)
        return np.asarray(self._rank(self._bound, key, held, table, mask, first)).tolist()

    def _key(self, number: int) -> np.ndarray:
        """The words of the key by which decision `number` is made."""
        return np.array([self._streams[0], number], np.uint32)

    def _filled(self, table: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Filled up to a power of two, so that few sizes are compiled."""
        if self.offers.arms is not None or self.host:
            return table, mask
        rows = len(mask)
        room = _room(rows)
        padded, offered = np.empty((room, table.shape[1]), table.dtype), np.zeros(room, bool)
        padded[:rows], padded[rows:], offered[:rows] = table, 0, mask
        return padded, offered

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
            key, features = np.zeros(3, np.uint32), np.zeros(self.width or 0, self.dtype)
            state = self.taught.state if self.taught is not None else self.sync(ledger)
            held = self._held(state)
            jax.eval_shape(self._learn, self._bound, key, held, features, outcome)
            if self._check is None:
                self._known_outcomes.add(outcome.shape)
        return exact.tolist()

    def worth(self, outcome: Any) -> float | None:
        """The reward of an outcome; None where only the agent knows."""
        if self._reward is not None:
            return float(self._reward.function(jnp.asarray(outcome, float)))
        return outcome if isinstance(outcome, float) else None

    def save(self, ledger: Ledger) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        self.sync(ledger)
        if self.taught is not None and self._is_saved(ledger):
            ledger.store(self.file, self.packed(ledger))

    def packed(self, ledger: Ledger) -> bytes:
        """What it has learned so far, as the contents of a file."""
        now = self.taught
        assert now is not None
        about = (ledger.id, now.outcomes, self.description, self._diverged(now.state))
        return pack(Snapshot(now.state, *about, now.revisions, now.usual))

    def forget(self, ledger: Ledger) -> None:
        """Remove the snapshot: it is another agent's, or will not be needed any more."""
        ledger.discard(self.file)

    def diverged(self, ledger: Ledger) -> int:
        """How often models had to be put back to their start."""
        return self._diverged(self.sync(ledger))

    def noticed(self, ledger: Ledger) -> dict[str, str]:
        """What its user should know of what it has learned, by kind."""
        diverged, now = self.diverged(ledger), self.taught
        scale = None if now is None else now.state.scale
        far, columns = None if scale is None else scale.far, self.offers.columns
        usual = Usual() if now is None else now.usual
        return notices.learned(diverged, ledger.outcomes, usual.strays, far, columns)

    def _diverged(self, state: State) -> int:
        return 0 if self.agent is None else int(fact(self.agent, "diverged")(state.belief))
