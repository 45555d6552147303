"""Real decisions, one at a time, by the same functions the simulator runs."""

import copy
import os
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..agents import as_agent
from ..config import describe, differences
from ..core import Agent, Facts, Posterior, fact
from . import words
from .copies import NAME
from .decisions import Decision, Prediction, Values
from .default import Default
from .features import LARGEST, Hasher, precision, recordable, unmasked
from .ledger import Decided, Ledger, Observed
from .offers import Offer, Offers, names_of
from .programs import State, programs
from .scale import Scale, frozen
from .snapshots import SNAPSHOT, Snapshot, load_snapshot, save_snapshot
from .summary import Summary, draw, summarize
from .tables import Columns, is_frame, needs_hasher, records

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Taught(NamedTuple):
    """A state with what it was made of, in one value, so that no interrupt can part them."""

    state: State
    outcomes: int  # how many were learned
    frozen: int  # how many its scale was taken from


class Bandit:
    """Chooses among actions and learns from what comes of it, whenever that comes.

    `Bandit()` lives in memory, `Bandit.open(folder)` on disk. The state is a cache of the ledger
    of decisions and outcomes: replaying it gives the same state bit for bit.

    agent: what chooses and learns; or a posterior, which means Thompson sampling over it. None is
        the default agent, which has to be told nothing (see `Default`).
    seed: None is 0, or that of the folder.
    normalise: whether features are put into units of their usual size (see `Scale`), as learned so
        far; for the default agent also around their mean. None is True, or that of the folder.
    hasher: for actions and contexts described by dictionaries or text; the default agent brings
        its own where it needs one.
    actions: the names of the actions, where there is a fixed set of them.
    floor: the share of decisions left to chance: every action on offer has at least this
        probability over their number, so that logs can tell what other choices would have brought.
        None is 0, or that of the folder where the agent is the default one.
    """

    def __init__(
        self,
        agent: Agent | Posterior | None = None,
        seed: int | None = None,
        *,
        normalise: bool | None = None,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
        floor: float | None = None,
    ):
        self._ledger, self._folder, self._snapshot_every = Ledger(None), None, 0
        self._setup(agent, seed, normalise, hasher, actions, floor)
        self._begin(migrate=False)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        agent: Agent | Posterior | None = None,
        seed: int | None = None,
        *,
        normalise: bool | None = None,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
        floor: float | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """The bandit kept in a folder: created, or reopened where it left off.

        `snapshot_every` so many outcomes, and when it is closed, its state is saved; what comes
        after a snapshot is replayed when it is opened.
        """
        options = (agent, seed, normalise, hasher, actions, floor)
        return cls._in_folder(folder, options, snapshot_every, migrate=False)

    @classmethod
    def migrate(
        cls,
        folder: str | os.PathLike[str],
        agent: Agent | Posterior | None = None,
        seed: int | None = None,
        *,
        normalise: bool | None = None,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
        floor: float | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """Replay the folder's history into another agent, which decides from now on."""
        options = (agent, seed, normalise, hasher, actions, floor)
        return cls._in_folder(folder, options, snapshot_every, migrate=True)

    @classmethod
    def _in_folder(
        cls, folder: Any, options: tuple[Any, ...], snapshot_every: int, migrate: bool
    ) -> "Bandit":
        bandit = cls.__new__(cls)
        bandit._folder = folder = _path(folder)
        bandit._setup(*options)
        bandit._snapshot_every = checks.size("snapshot_every", snapshot_every)
        if migrate and not (folder / NAME).exists():
            raise FileNotFoundError(f"there is no ledger in {folder}: Bandit.open begins a new one")
        bandit._ledger = Ledger(folder)
        try:
            bandit._begin(migrate)
        except BaseException:
            bandit._ledger.close()
            raise
        return bandit

    def _setup(
        self,
        agent: Any,
        seed: int | None,
        normalise: bool | None,
        hasher: Hasher | None,
        actions: Any,
        floor: float | None,
        recipe: Default | None = None,
    ) -> None:
        self._recipe = (recipe or Default()) if agent is None else None
        if seed is not None:
            checks.size("seed", seed, least=0, below=2**32)
        if floor is not None:
            floor = float(checks.scalar("floor", floor, low=0.0, high=1.0))
        self._options = (seed, normalise, hasher, actions, floor)
        self._normalise = normalise is None or checks.flag("normalise", normalise)
        self._floor, self._watch = floor or 0.0, words.Watch()
        if hasher is not None:
            checks.part("hasher", hasher, "width", "__call__")
        self._mutex, self._pid = threading.RLock(), os.getpid()
        self._dtype, self._width = precision(), None
        keys = jax.random.split(jax.random.key(seed or 0, impl="threefry2x32"))
        self._start_key = keys[0]
        self._streams = np.asarray(jax.random.bits(keys[1], (2,), np.uint32)).tolist()
        self._state: Taught | None = None  # also while it is being changed
        self._agent: Agent | None = None
        if agent is not None:
            self._adopt(as_agent(agent))
            arms, columns = fact(self._agent, "arms"), fact(self._agent, "columns")
            self._offers = Offers(arms, actions, hasher, expected=columns)
        else:
            names = None if actions is None else names_of(actions)
            if names is not None and not names:
                raise ValueError("actions must name at least one action, got none")
            arms = None if names is None else len(names)
            self._offers = Offers(arms, names, hasher, missing=True)
        dim = self._width
        if hasher is not None and dim not in (None, hasher.width):
            raise ValueError(f"the hasher makes {hasher.width} features, the agent takes {dim}")
        self._settle_width(hasher.width if hasher else None)

    def _adopt(self, agent: Agent) -> None:
        """Let the agent choose and learn from now on."""
        self._agent, self._reward = agent, fact(agent, "reward")
        self._width = fact(agent, "dim") if self._width is None else self._width
        self._host = bool(fact(agent, "host"))
        check = fact(agent, "check_outcome")
        self._check = None if getattr(check, "__func__", 0) is Facts.check_outcome else check
        program = programs(agent, self._floor)
        self._bound, self._init, self._choose, self._learn, self._rank = program
        self._known_outcomes: set[tuple[int, ...]] = set()

    @property
    def _description(self) -> Any:
        """What decides every number; the default agent by what it is made of, see `Default`."""
        seed = self._options[0]
        who = {"agent": self._agent} if self._recipe is None else {"default": self._recipe.settings}
        return describe(
            {
                **who,
                "seed": seed or 0,
                "normalise": self._normalise,
                "hasher": recordable(self._offers.hasher),
                "actions": self._offers.names,
                "precision": str(self._dtype),
                **({"floor": self._floor} if self._floor else {}),  # new: others go on unchanged
            }
        )

    def _begin(self, migrate: bool) -> None:
        recorded = self._ledger.description
        columns = None if recorded is None else Columns.recorded(recorded.pop("columns", None))
        if self._recipe is not None and recorded is not None:
            self._take_over(recorded, migrate)
        if self._offers.hasher is None:
            self._offers.columns = columns
        self._columns, self._offers.begun = columns, self._ledger.decisions > 0
        changed = [] if recorded is None else differences(recorded, self._description)
        if changed and not migrate:
            raise ValueError(
                f"{self._folder} was begun with another configuration; it differs in\n  "
                + "\n  ".join(changed)
                + "\nOpen it with that one, or let Bandit.migrate replay its history into this one."
            )
        width = self._ledger.width
        if width is not None and self._width not in (None, width):
            raise ValueError(
                f"the decisions in {self._folder} have {width} features, this agent {self._width}"
            )
        self._settle_width(width)
        if changed and self._folder is not None:
            (self._folder / SNAPSHOT).unlink(missing_ok=True)  # it is the former agent's
        self._sync()
        if changed or recorded is None:
            self._describe()
            self.save()

    def _describe(self) -> None:
        """Record what decides every number, and what the columns are called."""
        columns = self._offers.columns
        self._ledger.describe({**self._description, **(columns.description if columns else {})})
        self._columns = columns

    def _describe_anew(self) -> None:
        """Record a hasher that the first offers brought, or that others before them had brought."""
        recorded = self._ledger.description
        if recorded["hasher"] != self._description["hasher"]:
            self._describe()

    def _take_over(self, recorded: Any, migrate: bool) -> None:
        """What the folder was begun with, where it is not told otherwise.

        Migrating, the numbers of today's default agent take the place of those recorded.
        """
        if "default" not in recorded and not migrate:
            raise ValueError(f"{self._folder} was begun with an agent: open it with that one")
        seed, normalise, hasher, actions, floor = self._options
        self._setup(
            None,
            recorded["seed"] if seed is None else seed,
            recorded["normalise"] if normalise is None else normalise,
            Hasher.recorded(recorded["hasher"]) if hasher is None else hasher,
            recorded["actions"] if actions is None else actions,
            recorded.get("floor") if floor is None else floor,
            None if migrate else Default.recorded(recorded["default"]),
        )

    def _settle_width(self, width: int | None) -> None:
        """The first decisions fix the number of features, where the agent leaves it open."""
        if self._width is None and width is not None:
            self._width, self._state = width, None  # the scale's width was unknown
        if self._agent is None and self._width is not None and self._recipe is not None:
            hashed = self._offers.hasher is not None
            self._adopt(self._recipe.agent(self._offers.arms, self._width, hashed))
            self._state = None

    @property
    def _snapshot(self) -> Path | None:
        """Where to save the state: nowhere while its shape is open, or not one of arrays."""
        if self._folder is None or self._width is None or self._host:
            return None
        return self._folder / SNAPSHOT

    def _fresh(self) -> State:
        if self._agent is None:
            return State(None, ())
        centred = self._recipe is not None and self._offers.hasher is None
        scale = Scale.init(self._width, centred) if self._normalise and self._width else None
        return State(scale, self._init(self._bound, self._start_key))

    def _begun(self) -> Taught:
        """What to go on from: the snapshot, if there is one and it belongs to this ledger."""
        fresh = self._fresh()
        if self._snapshot is not None:
            found = load_snapshot(self._snapshot, fresh, self._ledger, self._description)
            if found is not None:
                return Taught(found.state, found.sequence, frozen(found.sequence))
        return Taught(fresh, 0, 0)

    def _turn(self) -> Any:
        """The mutex, to be followed by `_ready`; in a fork another may hold it for ever."""
        if os.getpid() != self._pid:
            self._ledger.check()  # says what to do
        return self._mutex

    def _ready(self) -> None:
        """Refuse to go on where what follows could not be right."""
        self._ledger.check()
        if precision() != self._dtype:
            raise ValueError(
                f"jax_enable_x64 was changed while this bandit was open in {self._dtype}: change "
                "it back, or close the bandit and migrate it"
            )

    def _sync(self) -> State:
        """Bring the state up to the ledger: at opening, after an interrupt, for a new scale."""
        if self._width is None:
            self._settle_width(self._ledger.width)
        if self._state is not None and self._state.outcomes == self._ledger.outcomes:
            return self._state.state
        now = self._state or self._begun()
        due = frozen(self._ledger.outcomes)
        if now.state.scale is not None and now.frozen < due:
            now = self._rescaled(now, now.state.scale, due)
        self._state = now
        for row in self._ledger.learned(after=now.outcomes):
            self._apply(row, row.outcome)
        return self._state.state

    def _rescaled(self, now: Taught, scale: Scale, due: int) -> Taught:
        """With the scale of the first `due` outcomes: what was learned in other units is not."""
        rows = islice(self._ledger.learned(after=0), due)
        new = Scale.of(np.stack([row.features for row in rows]), scale.mean is not None)
        if scale.agrees(new):
            return Taught(State(new, now.state.belief), now.outcomes, due)
        return Taught(State(new, self._init(self._bound, self._start_key)), 0, due)

    def _apply(self, row: Decided, outcome: Any) -> None:
        assert self._state is not None
        arm = self._offers.arm(row.number, row.chosen, row.action)
        key = np.array([self._streams[1], row.number, arm], np.uint32)
        features, y = row.features.astype(self._dtype, copy=False), np.asarray(outcome, self._dtype)
        (state, count, scaled), self._state = self._state, None  # consumed
        state = self._learn(self._bound, key, state, features, y)
        self._state = Taught(state, count + 1, scaled)

    def choose(
        self,
        features: Any = None,
        *,
        context: Any = None,
        available: Any = None,
        top: int | None = None,
    ) -> Decision:
        """Choose among actions, described by rows of numbers, a DataFrame, or a mapping of names
        to either; or, with a hasher, by dictionaries, in a context.

        Agents with a fixed set of actions take `context=x`, or nothing where they have no
        features. `available` restricts the choice: true or false for every action, in their order
        or by name, or the names of those on offer. `top=3` also gives the best three in order, the
        chosen one first: `decision.ranking`.
        """
        if top is not None:
            checks.size("top", top)
        return self._decide([(features, context, available)], top)[0]

    def predict(
        self, features: Any = None, *, context: Any = None, available: Any = None
    ) -> Prediction:
        """What the next decision would be made of, without making it: nothing is recorded.

        Takes what `choose` takes.
        """
        with self._turn():
            self._ready()
            state = self._sync()
            if self._width is None:  # the first decision settles more, so another one makes it
                return self._twin()._foresee(features, context, available)
            columns = self._offers.columns
            offer = self._offers.read(features, context, available, self._width)
            self._offers.columns = columns  # only a decision fixes them
            _, shares, values = self._pick(self._ledger.decisions, offer.table, offer.mask, state)
            return Prediction(shares, values)

    def _foresee(self, features: Any, context: Any, available: Any) -> Prediction:
        decision = self.choose(features, context=context, available=available)
        return Prediction(decision.probabilities, decision.values)

    def _twin(self) -> "Bandit":
        """A bandit in memory that will decide as this one, which has decided nothing yet."""
        twin = Bandit.__new__(Bandit)
        twin._ledger, twin._folder, twin._snapshot_every = Ledger(None), None, 0
        twin._setup(self._agent, *self._options, self._recipe)
        twin._begin(migrate=False)
        return twin

    def choose_many(
        self, features: Iterable[Any] | None = None, *, contexts: Iterable[Any] | None = None
    ) -> list[Decision]:
        """One decision for every set of features, every context, or every pair of the two.

        The same decisions as by `choose` one after another, written to disk together.
        """
        if features is None and contexts is None:
            raise ValueError("give the features or the contexts to choose for")
        if is_frame(contexts):
            contexts = records(contexts)  # every row is a context
        several = None if features is None else _listed("features", features)
        around = [None] * len(several or ()) if contexts is None else _listed("contexts", contexts)
        several = [None] * len(around) if several is None else several
        if len(several) != len(around):
            raise ValueError(f"{len(several)} sets of features, but {len(around)} contexts")
        return self._decide([(f, c, None) for f, c in zip(several, around, strict=True)])

    def _decide(self, offers: list[tuple[Any, Any, Any]], top: int | None = None) -> list[Decision]:
        with self._turn():
            self._ready()
            if self._width is None:
                self._sync()
            open_width, columns = self._width is None, self._offers.columns
            hasher = self._offers.hasher
            try:
                self._look(offers)
                # All is checked before anything is decided, and decided before it is recorded.
                read = [self._offers.read(*offer, self._width) for offer in offers]
                widths = {offer.table.shape[1] for offer in read}
                if len(widths) > 1:
                    raise ValueError(f"offers differ in their number of features: {sorted(widths)}")
                self._settle_width(next(iter(widths), None))
                if open_width and self._recipe is not None:
                    self._describe_anew()
                return self._record_choices(read, top)
            except BaseException:
                self._offers.columns = columns or self._columns
                if open_width:  # unless it was recorded, the next offer may be another
                    self._offers.hasher = hasher
                    self._width = self._state = None
                    self._agent = None if self._recipe else self._agent
                raise

    def _look(self, offers: list[tuple[Any, Any, Any]]) -> None:
        """Bring a hasher where the first offers are not numbers and nobody gave one."""
        if self._recipe is None or self._width is not None:
            return
        if any(needs_hasher(features, context) for features, context, _ in offers):
            self._offers.hasher = Hasher(256, numbers=64, names=True)
            self._settle_width(self._offers.hasher.width)

    def _record_choices(self, offers: list[Offer], top: int | None) -> list[Decision]:
        now, first, dtype = time.time(), self._ledger.decisions, self._ledger.dtype
        rows, decisions, state = [], [], self._sync()
        for number, (table, names, mask) in enumerate(offers, start=first):
            if top is not None and top > mask.sum():
                raise ValueError(f"top is {top}, but only {mask.sum()} actions can be chosen")
            index, shares, values = self._pick(number, table, mask, state)
            order = None if top is None else self._order(number, table, mask, state, index)[:top]
            shares = shares.astype(dtype, copy=False)  # what a reading of the ledger will give
            action = index if names is None else names[index]
            chosen = table[index if len(table) > 1 else 0].astype(dtype)  # not the caller's own
            name = None if names is None else names[index]
            rows.append(Decided(number, now, index, name, chosen, shares))
            id = self._ledger.decision_id(number)
            if order is not None and names is not None:
                order = [names[i] for i in order]
            known = (shares, values, None if order is None else tuple(order))
            decisions.append(Decision(id, index, action, float(shares[index]), *known))
        columns = self._offers.columns
        if columns is not None and columns != self._columns and not columns.plain:
            self._describe()
        self._ledger.add_decisions(rows)
        for row, offer, made in zip(rows, offers, decisions, strict=True):
            self._watch.offered(row.number, offer.table, row.chosen, made.values)
        return decisions

    def _pick(
        self, number: int, table: np.ndarray, mask: np.ndarray, state: State
    ) -> tuple[int, np.ndarray, Values | None]:
        """(the index drawn, the probabilities it was drawn from, what actions are worth)."""
        rows, (table, mask) = len(mask), self._filled(table, mask)
        drawn = np.asarray(self._choose(self._bound, self._key(number), state, table, mask))
        index, parts = int(drawn[-1]), drawn[:-1].reshape(-1, len(mask))[:, :rows]
        shares, values = parts[0], Values(*parts[1:]) if len(parts) > 1 else None
        if not shares[index] > 0:
            raise ValueError(
                "the agent's values are no numbers any more: features or outcomes were too large "
                "for its settings; migrate the history to an agent with other ones"
                if np.isnan(shares).any()
                else f"the agent gave no probabilities to choose by: {shares.tolist()}"
            )
        return index, shares, values

    def _order(
        self, number: int, table: np.ndarray, mask: np.ndarray, state: State, index: int
    ) -> list[int]:
        """The actions by what one plausible model thinks of them, the chosen one first."""
        table, mask = self._filled(table, mask)
        key, first = self._key(number), np.int32(index)
        return np.asarray(self._rank(self._bound, key, state, table, mask, first)).tolist()

    def _key(self, number: int) -> np.ndarray:
        """The words of the key by which decision `number` is made."""
        return np.array([self._streams[0], number], np.uint32)

    def _filled(self, table: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Filled up to a power of two, so that few sizes are compiled."""
        if self._offers.arms is not None or self._host:
            return table, mask
        rows = len(mask)
        room = max(8, 1 << (rows - 1).bit_length())
        padded, offered = np.empty((room, table.shape[1]), table.dtype), np.zeros(room, bool)
        padded[:rows], padded[rows:], offered[:rows] = table, 0, mask
        return padded, offered

    def learn(self, id: str, outcome: Any) -> bool:
        """Learn the outcome of a decision; False if it was known already and nothing changed."""
        with self._turn():
            self._ready()
            return self._record([(self._ledger.number(id), outcome)], expired=False) == 1

    def learn_many(self, outcomes: Iterable[tuple[str, Any]]) -> int:
        """Learn pairs (id, outcome) in the given order, or none of them; how many were new.

        The same state as by `learn` one after another, written to disk together.
        """
        pairs = _listed("outcomes", outcomes)
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"learn_many takes pairs (id, outcome), got {pair!r}")
        with self._turn():
            self._ready()
            numbered = [(self._ledger.number(id), y) for id, y in pairs]
            return self._record(numbered, expired=False)

    def expire(self, older_than: float | timedelta, outcome: Any) -> int:
        """Assume `outcome` for decisions older than so many seconds whose own never came."""
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        checks.scalar("older_than", seconds, low=0.0)
        with self._turn():
            self._ready()
            self._outcome(outcome, self._sync())
            numbers = self._ledger.pending(before=time.time() - seconds)
            return self._record([(number, outcome) for number in numbers], expired=True)

    def _record(self, outcomes: list[tuple[int, Any]], expired: bool) -> int:
        state = self._sync()
        fresh: dict[int, tuple[Decided, Any]] = {}
        for number, given in outcomes:
            outcome = self._outcome(given, state)
            decided = self._ledger.decision(number)
            assert decided is not None  # it has a number
            known = fresh[number][1] if number in fresh else decided.outcome
            if known is None:
                # Refused now, not after it is recorded.
                self._offers.arm(number, decided.chosen, decided.action)
                fresh[number] = (decided, outcome)
            elif known != outcome:
                how = "expired with" if decided.expired else "has"
                raise ValueError(
                    f"decision {self._ledger.decision_id(number)} {how} the outcome {known} "
                    f"and cannot have {outcome} as well"
                )
        rows = [Observed(n, y, self._worth(y), expired) for n, (_, y) in fresh.items()]
        if not rows:
            return 0
        before = self._ledger.outcomes
        self._ledger.add_outcomes(rows)
        if state.scale is None or frozen(before) == frozen(before + len(rows)):
            for decided, outcome in fresh.values():
                self._apply(decided, outcome)
        else:
            self._sync()
        if not expired:
            for row in rows:
                self._watch.learned(row.decision, row.outcome)
        every, now = self._snapshot_every, before + len(rows)
        if every and now // every > before // every:
            self._save_or_warn()
        if self._watch.due(before, now):
            for text in self._watch.new(self._noticed()):
                warnings.warn(text, stacklevel=3)
        return len(rows)

    def _outcome(self, given: Any, state: State) -> Any:
        """The outcome as a number or a list, after checking that the agent can learn it."""
        if isinstance(given, float) and abs(given) < LARGEST and () in self._known_outcomes:
            return given  # the common case, many times faster
        checks.outcome(unmasked("an outcome", given))
        exact = np.asarray(given, np.float64)
        if exact.ndim > 1 or exact.size == 0:
            raise ValueError(
                f"an outcome must be a single number or a row of them, got shape {exact.shape}"
            )
        outcome = exact.astype(self._dtype)
        if self._check is not None:
            self._check(outcome)
        if not self._host and outcome.shape not in self._known_outcomes:
            key, features = np.zeros(3, np.uint32), np.zeros(self._width or 0, self._dtype)
            jax.eval_shape(self._learn, self._bound, key, state, features, outcome)
            if self._check is None:
                self._known_outcomes.add(outcome.shape)
        return exact.tolist()

    def _worth(self, outcome: Any) -> float | None:
        if self._reward is not None:
            return float(self._reward.function(jnp.asarray(outcome, float)))
        return outcome if isinstance(outcome, float) else None

    @property
    def state(self) -> State:
        """A copy of what has been learned."""
        with self._turn():
            self._ready()
            return copy.deepcopy(jax.tree.map(_copied, self._sync()))

    def log(self) -> dict[str, list[Any]]:
        """Decisions, propensities and outcomes as columns: `pandas.DataFrame(bandit.log())`."""
        with self._turn():
            self._ready()
            return self._ledger.table()

    def summary(self) -> Summary:
        """How it is doing, for people: `print(bandit.summary())`."""
        with self._turn():
            self._ready()
            noticed = tuple(self._noticed().values())
            return summarize(self._ledger, self._diverged(), warnings=noticed)

    def _noticed(self) -> dict[str, str]:
        """What its user should know, by kind."""
        alone = self._recipe is not None and self._width == 0
        hashed, fixed = self._offers.hasher is not None, self._offers.arms is not None
        found = {
            "noise": self._watch.noise(self._agent),
            "diverged": words.diverged(self._diverged()),
            "alone": words.alone(self._ledger.outcomes) if alone else None,
            "constant": self._watch.constant(hashed, fixed),
        }
        return {kind: text for kind, text in found.items() if text is not None}

    def plot(self) -> "Figure":
        """A figure of how it has been doing: reward, agreement and waiting outcomes."""
        with self._turn():
            self._ready()
            return draw(self._ledger)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the ledger as it is now to a new folder, from which a bandit can be opened."""
        with self._turn():
            self._ready()
            self._ledger.backup(_path(path))

    def save(self) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        with self._turn():
            self._ready()
            state = self._sync()
            if self._snapshot is None or self._state is None:
                return
            about = (self._ledger.id, self._state.outcomes, self._description, self._diverged())
            save_snapshot(self._snapshot, Snapshot(state, *about))

    def _save_or_warn(self) -> None:
        try:
            self.save()
        except OSError as error:  # the outcomes are safe in the ledger
            warnings.warn(f"could not save a snapshot: {error}", stacklevel=4)

    def _diverged(self) -> int:
        belief = self._sync().belief
        return 0 if self._agent is None else int(fact(self._agent, "diverged")(belief))

    def close(self) -> None:
        """Save a snapshot and let others open the folder."""
        if os.getpid() != self._pid:  # a fork: all this is the parent's, the mutex may be held
            return self._ledger.close()
        with self._mutex:
            if self._ledger.closed:
                return
            try:
                if precision() == self._dtype:
                    self._save_or_warn()
            finally:
                self._ledger.close()

    def __enter__(self) -> "Bandit":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _copied(leaf: Any) -> Any:
    """An array of one's own, with which nothing happens when the state is consumed."""
    return leaf.copy() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.array(leaf)


def _path(folder: Any) -> Path:
    """The path of a folder; an empty one would be wherever the process happens to be."""
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise TypeError(f"expected the path of a folder, got {folder!r}")
    return Path(folder)


def _listed(what: str, given: Any) -> list[Any]:
    """Several of something, in an order."""
    kinds = str | bytes | Mapping | set | frozenset
    if isinstance(given, kinds) or is_frame(given) or not isinstance(given, Iterable):
        raise TypeError(f"{what} must be a list, one entry per decision, got {given!r}")
    return list(given)
