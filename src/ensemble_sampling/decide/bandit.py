"""Real decisions, one at a time, by the same functions the simulator runs."""

import os
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import as_array, describe, differences
from ..core import Action, Agent, Key
from .features import LARGEST, Hasher, Scale, names_of, numbers, precision, read
from .ledger import Decided, Ledger, Observed
from .snapshots import SNAPSHOT, Snapshot, load_snapshot, save_snapshot
from .summary import Summary, draw, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class State(NamedTuple):
    """Everything learned; a function of the ledger's outcomes in their order."""

    scale: Scale | None
    belief: Any


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, and how likely that was.

    `action` is the name of the chosen action, or its `index` where actions have no names.
    `probabilities` are those the index was drawn from: `probability` is what off-policy
    evaluation divides by.
    """

    id: str
    index: int
    action: Any
    probability: float
    probabilities: np.ndarray


def _key(words: Array) -> Key:
    """A key for (stream, number), those of every decision: the cipher takes any two words."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _choose(agent: Agent, words: Array, state: State, features: Array, available: Array) -> Array:
    """The probabilities of a decision and, as one more entry, the index drawn from them.

    That is how `agent.act` is distributed; drawing from what is recorded makes the propensity
    exact for every agent, also where probabilities are themselves estimated from samples.
    """
    key = _key(words)
    features = features if state.scale is None else state.scale.apply(features)
    features = jnp.broadcast_to(features, (*jnp.shape(available), jnp.shape(features)[1]))
    shares = agent.probabilities(state.belief, features, available, jax.random.fold_in(key, 1))
    total = jnp.where(shares > 0, jnp.cumsum(shares), -1.0)  # rounding picks none that has no share
    index = jnp.argmax(total > total.max() * jax.random.uniform(key, dtype=shares.dtype))
    return jnp.append(shares, index.astype(shares.dtype))


def _learn(agent: Agent, words: Array, state: State, features: Array, outcome: Array) -> State:
    """The state after the outcome of a decision; its index is the third of the words."""
    key, index = _key(words[:2]), words[2].astype(jnp.int32)
    scale = None if state.scale is None else state.scale.see(features)
    features = features if scale is None else scale.apply(features)
    return State(scale, agent.update(key, state.belief, Action(index, features), outcome))


@lru_cache(maxsize=64)
def _compiled(structure: Any) -> tuple[Any, Any, Any]:
    """`init`, `_choose` and `_learn` for agents of one structure; settings stay free."""
    agent = lambda leaves: jax.tree.unflatten(structure, leaves)  # noqa: E731
    init = jax.jit(lambda leaves, key: agent(leaves).init(key))
    choose = jax.jit(lambda leaves, *rest: _choose(agent(leaves), *rest))
    learn = jax.jit(lambda leaves, *rest: _learn(agent(leaves), *rest), donate_argnums=2)
    return init, choose, learn


class Bandit:
    """Chooses among actions and learns from what comes of it, whenever that comes.

    `Bandit(agent)` lives in memory, `Bandit.open(folder, agent)` on disk. The state is a cache of
    the ledger of decisions and outcomes: replaying it gives the same state bit for bit.

    normalise: divide every feature by its usual size (see `Scale`), as learned so far.
    hasher: for actions and contexts described by dictionaries or text.
    actions: the names of the actions, for agents with a fixed set of them.
    """

    def __init__(
        self,
        agent: Agent,
        seed: int = 0,
        *,
        normalise: bool = True,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
    ):
        self._setup(agent, seed, normalise, hasher, actions)
        self._ledger, self._folder, self._snapshot_every = Ledger(None), None, 0
        self._begin(migrate=False)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        agent: Agent,
        seed: int = 0,
        *,
        normalise: bool = True,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """The bandit kept in a folder: created, or reopened where it left off.

        `snapshot_every` so many outcomes, and when it is closed, its state is saved; what comes
        after a snapshot is replayed when it is opened.
        """
        options = (agent, seed, normalise, hasher, actions)
        return cls._in_folder(Path(folder), options, snapshot_every, migrate=False)

    @classmethod
    def migrate(
        cls,
        folder: str | os.PathLike[str],
        agent: Agent,
        seed: int = 0,
        *,
        normalise: bool = True,
        hasher: Hasher | None = None,
        actions: Sequence[Any] | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """Replay the folder's history into another agent, which decides from now on."""
        options = (agent, seed, normalise, hasher, actions)
        return cls._in_folder(Path(folder), options, snapshot_every, migrate=True)

    @classmethod
    def _in_folder(
        cls, folder: Path, options: tuple[Any, ...], snapshot_every: int, migrate: bool
    ) -> "Bandit":
        bandit = cls.__new__(cls)
        bandit._setup(*options)
        bandit._folder = folder
        bandit._snapshot_every = checks.size("snapshot_every", snapshot_every)
        bandit._ledger = Ledger(folder)
        try:
            bandit._begin(migrate)
        except BaseException:
            bandit._ledger.close()
            raise
        return bandit

    def _setup(
        self,
        agent: Agent,
        seed: int,
        normalise: bool,
        hasher: Hasher | None,
        actions: Sequence[Any] | None,
    ) -> None:
        checks.part("agent", agent, "init", "probabilities", "update")
        checks.size("seed", seed, least=0, below=2**32)
        learner = getattr(getattr(agent, "posterior", None), "learner", agent)
        self._arms: int | None = getattr(learner, "arms", None)
        self._names = None if actions is None else names_of(actions)
        if self._names is not None and len(self._names) != self._arms:
            has = "a free choice of actions" if self._arms is None else f"{self._arms} actions"
            raise ValueError(f"the agent has {has}, but {len(self._names)} are named")
        self._reward = getattr(learner, "reward", None)
        dim: int | None = getattr(learner, "dim", None)
        self._width = hasher.width if hasher else dim
        if hasher is not None and dim not in (None, hasher.width):
            raise ValueError(f"the hasher makes {hasher.width} features, the agent takes {dim}")
        self._hasher, self._normalise = hasher, normalise
        self._host = bool(getattr(agent, "host", False))
        keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
        self._agent, self._start_key = agent, keys[0]
        self._streams = np.asarray(jax.random.bits(keys[1], (2,), np.uint32)).tolist()
        self._description = describe(
            {
                "agent": agent,
                "seed": seed,
                "normalise": normalise,
                "hasher": hasher,
                "actions": self._names,
                "precision": str(precision()),
            }
        )
        self._bound: Any = agent
        programs: Any = (lambda agent, key: agent.init(key), _choose, _learn)
        if not self._host:
            self._bound, structure = jax.tree.flatten(jax.tree.map(as_array, agent))
            programs = _compiled(structure)
        self._init, self._choose, self._learn = programs
        self._dtype = precision()
        self._known_outcomes: set[tuple[int, ...]] = set()
        self._mutex = threading.RLock()
        self._state: State | None = None
        self._applied = 0

    def _begin(self, migrate: bool) -> None:
        recorded = self._ledger.description
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
        self._width = width if self._width is None else self._width
        if not changed:
            self._restore()
        self._sync()
        if changed or recorded is None:
            if self._snapshot is not None:
                self._snapshot.unlink(missing_ok=True)  # it is the former agent's
            self._ledger.describe(self._description)
            self.save()

    @property
    def _snapshot(self) -> Path | None:
        return None if self._folder is None or self._host else self._folder / SNAPSHOT

    def _fresh(self) -> State:
        scale = Scale.init(self._width) if self._normalise and self._width else None
        belief = self._init(self._bound, self._start_key)
        return State(scale, belief)

    def _restore(self) -> None:
        """Start from the snapshot, if there is one and it belongs to this ledger."""
        path = self._snapshot
        if path is None or not path.exists():
            return
        snapshot = load_snapshot(path, self._fresh())
        foreign = differences(snapshot.description, self._description)
        if foreign or snapshot.ledger != self._ledger.id:
            raise ValueError(f"the snapshot {path} belongs to another ledger or agent; delete it")
        if snapshot.sequence > self._ledger.outcomes:
            raise ValueError(
                f"the snapshot {path} knows {snapshot.sequence} outcomes, the ledger beside it "
                f"only {self._ledger.outcomes}: restore the ledger, or delete the snapshot"
            )
        self._state, self._applied = snapshot.state, snapshot.sequence

    def _sync(self) -> State:
        """Bring the state up to the ledger: at opening, and after an interrupted update."""
        if self._ledger.closed:
            raise ValueError("this bandit was closed: open it again")
        if self._state is None:
            self._state, self._applied = self._fresh(), 0
        if self._applied < self._ledger.outcomes:
            for row in self._ledger.learned(after=self._applied):
                self._apply(row, row.outcome)
        return self._state

    def _apply(self, row: Decided, outcome: Any) -> None:
        words = np.array([self._streams[1], row.number, self._arm(row)], np.uint32)
        y = np.asarray(outcome, row.features.dtype)
        state, self._state = self._state, None  # consumed: an interrupted update leaves none
        self._state = self._learn(self._bound, words, state, row.features, y)
        self._applied += 1

    def choose(
        self, features: Any = None, *, context: Any = None, available: Any = None
    ) -> Decision:
        """Choose among actions, described by rows of numbers, a DataFrame, or a mapping of names
        to either; or, with a hasher, by dictionaries, in a context.

        Agents with a fixed set of actions take `context=x`, or nothing. `available` restricts the
        choice: true or false for every action, or the names of those on offer.
        """
        return self._decide([(features, context, available)])[0]

    def choose_many(
        self, features: Iterable[Any] | None = None, *, contexts: Iterable[Any] | None = None
    ) -> list[Decision]:
        """One decision for every set of features, every context, or every pair of the two.

        The same decisions as by `choose` one after another, written to disk together.
        """
        if features is None and contexts is None:
            raise ValueError("give the features or the contexts to choose for")
        several = list(features) if features is not None else None
        around = list(contexts) if contexts is not None else [None] * len(several or [])
        several = [None] * len(around) if several is None else several
        if len(several) != len(around):
            raise ValueError(f"{len(several)} sets of features, but {len(around)} contexts")
        return self._decide([(f, c, None) for f, c in zip(several, around, strict=True)])

    def _decide(self, offers: list[tuple[Any, Any, Any]]) -> list[Decision]:
        with self._mutex:
            # Everything is checked before anything is decided, and decided before it is recorded.
            read = [self._offer(*offer) for offer in offers]
            open_width = self._width is None
            if open_width:
                self._settle_width({table.shape[1] for table, _, _ in read})
            try:
                return self._record_choices(read)
            except BaseException:
                if open_width:  # nothing was decided: the next offer may be another
                    self._width = self._state = None
                raise

    def _record_choices(
        self, offers: list[tuple[np.ndarray, list[Any] | None, np.ndarray]]
    ) -> list[Decision]:
        now, first = time.time(), self._ledger.decisions
        rows, decisions = [], []
        for number, (table, names, mask) in enumerate(offers, start=first):
            index, shares = self._pick(number, table, mask)
            action = index if names is None else names[index]
            chosen = table[index if len(table) > 1 else 0].copy()  # the table is the caller's
            rows.append(Decided(number, now, index, names and names[index], chosen, shares))
            id = f"{self._ledger.id}-{number}"
            decisions.append(Decision(id, index, action, float(shares[index]), shares))
        self._ledger.add_decisions(rows)
        return decisions

    def _settle_width(self, widths: set[int]) -> None:
        """The first decisions fix the number of features, where the agent leaves it open."""
        if len(widths) > 1:
            raise ValueError(f"offers differ in their number of features: {sorted(widths)}")
        if widths:
            self._width, self._state = widths.pop(), None  # the scale's width was unknown

    def _offer(
        self, features: Any, context: Any, available: Any
    ) -> tuple[np.ndarray, list[Any] | None, np.ndarray]:
        """(table, names, mask); a context for a fixed set of actions is a table of one row."""
        if features is not None:
            table, names = read(features, context, self._hasher)
            if self._arms is not None:
                table, names = self._in_order(table, names), self._names
            if self._arms not in (None, len(table)):
                raise ValueError(f"the agent has {self._arms} actions, got {len(table)}")
            rows = len(table)
        elif self._arms is not None:
            table, names, rows = self._context(context), self._names, self._arms
        else:
            raise ValueError("give the features of the actions on offer, one row per action")
        if self._width not in (None, table.shape[1]):
            raise ValueError(
                f"this bandit's actions have {self._width} features, got {table.shape[1]}"
            )
        return table, names, _mask(available, names, rows)

    def _in_order(self, table: np.ndarray, names: list[Any] | None) -> np.ndarray:
        """Rows in the order of the agent's own actions, to which a name refers."""
        if names is None:
            return table
        if self._names is None:
            raise ValueError(
                "this agent knows its actions by position: name them with Bandit(..., "
                f"actions=[...]), or give rows without names; got {names}"
            )
        if set(names) != set(self._names):
            raise ValueError(
                f"the agent's actions are {self._names}, got {names}; "
                "to offer only some of them give `available`"
            )
        return table[[names.index(name) for name in self._names]]

    def _arm(self, row: Decided) -> int:
        """Which of this agent's actions a decision chose: by its name where it has one."""
        if self._arms is None:
            return row.chosen
        if self._names is not None and row.action is not None:
            if row.action not in self._names:
                raise ValueError(
                    f"decision {row.number} chose {row.action!r}, which is none of the agent's "
                    f"actions {self._names}"
                )
            return self._names.index(row.action)
        if row.chosen >= self._arms:
            raise ValueError(
                f"decision {row.number} chose action {row.chosen}, but there are {self._arms}"
            )
        return row.chosen

    def _context(self, context: Any) -> np.ndarray:
        if self._hasher is not None:
            return numbers("context", self._hasher([None], context))
        if context is None:
            return np.zeros((1, self._width or 0), self._dtype)
        if np.ndim(context) != 1:
            raise ValueError(f"context must be one row of numbers, got {context!r}")
        return numbers("context", [context])

    def _pick(self, number: int, table: np.ndarray, mask: np.ndarray) -> tuple[int, np.ndarray]:
        """Decide; tables are filled up to a power of two, so that few sizes are compiled."""
        rows = len(mask)
        if self._arms is None and not self._host:
            room = max(8, 1 << (rows - 1).bit_length())
            padded, offered = np.empty((room, table.shape[1]), table.dtype), np.zeros(room, bool)
            padded[:rows], padded[rows:], offered[:rows] = table, 0, mask
            table, mask = padded, offered
        words = np.array([self._streams[0], number], np.uint32)
        drawn = np.asarray(self._choose(self._bound, words, self._sync(), table, mask))
        index, shares = int(drawn[-1]), drawn[:rows]
        if not shares[index] > 0:
            raise ValueError(f"the agent gave no probabilities to choose by: {shares.tolist()}")
        return index, shares

    def learn(self, id: str, outcome: Any) -> bool:
        """Learn the outcome of a decision; False if it was known already and nothing changed."""
        return self.learn_many([(id, outcome)]) == 1

    def learn_many(self, outcomes: Iterable[tuple[str, Any]]) -> int:
        """Learn pairs (id, outcome) in the given order, or none of them; how many were new.

        The same state as by `learn` one after another, written to disk together.
        """
        with self._mutex:
            return self._record([(self._number(id), y) for id, y in outcomes], expired=False)

    def expire(self, older_than: float | timedelta, outcome: Any) -> int:
        """Assume `outcome` for decisions older than so many seconds whose own never came."""
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        checks.scalar("older_than", seconds, low=0.0)
        with self._mutex:
            numbers = self._ledger.pending(before=time.time() - seconds)
            return self._record([(number, outcome) for number in numbers], expired=True)

    def _record(self, outcomes: list[tuple[int, Any]], expired: bool) -> int:
        state = self._sync()
        fresh: dict[int, tuple[Decided, Any]] = {}
        for number, given in outcomes:
            outcome = self._outcome(given, state)
            decided = self._ledger.decision(number)
            if decided is None:
                raise ValueError(f"there is no decision {self._ledger.id}-{number} in this ledger")
            known = fresh[number][1] if number in fresh else decided.outcome
            if known is None:
                self._arm(decided)  # refused now, not after it is recorded
                fresh[number] = (decided, outcome)
            elif known != outcome:
                how = "expired with" if decided.expired else "has"
                raise ValueError(
                    f"decision {self._ledger.id}-{number} {how} the outcome {known} "
                    f"and cannot have {outcome} as well"
                )
        rows = [Observed(n, y, self._worth(y), expired) for n, (_, y) in fresh.items()]
        if rows:
            self._ledger.add_outcomes(rows)
        before = self._applied
        for decided, outcome in fresh.values():
            self._apply(decided, outcome)
        every = self._snapshot_every
        if every and self._applied // every > before // every:
            self._save_or_warn()
        return len(rows)

    def _number(self, id: str) -> int:
        if not isinstance(id, str):
            raise TypeError(f"a decision's id is text, got {id!r}")
        ledger, _, number = id.rpartition("-")
        if not ledger or not number.isdecimal():
            raise ValueError(f"{id!r} is not the id of a decision")
        if ledger != self._ledger.id:
            raise ValueError(
                f"decision {id!r} belongs to the ledger {ledger}, and this is {self._ledger.id}"
            )
        return int(number)

    def _outcome(self, given: Any, state: State) -> Any:
        """The outcome as a number or a list, after checking that the agent can learn it."""
        if isinstance(given, float) and abs(given) < LARGEST and () in self._known_outcomes:
            return given  # the common case, many times faster
        exact = np.asarray(checks.outcome(given), np.float64)
        with np.errstate(over="ignore"):
            outcome = exact.astype(self._dtype)
        checks.outcome(outcome)  # still finite in the agent's precision
        if self._host:
            self._bound.check_outcome(outcome)
        elif outcome.shape not in self._known_outcomes:
            self._check_outcome(outcome, state)
            self._known_outcomes.add(outcome.shape)
        return exact.tolist()

    def _check_outcome(self, outcome: np.ndarray, state: State) -> None:
        words, features = np.zeros(3, np.uint32), np.zeros(self._width or 0, outcome.dtype)
        jax.eval_shape(self._learn, self._bound, words, state, features, outcome)

    def _worth(self, outcome: Any) -> float | None:
        if self._reward is not None:
            return float(self._reward.function(jnp.asarray(outcome, float)))
        return outcome if isinstance(outcome, float) else None

    @property
    def state(self) -> State:
        """A copy of what has been learned."""
        with self._mutex:
            return jax.tree.map(lambda leaf: np.array(leaf), self._sync())

    def log(self) -> dict[str, list[Any]]:
        """Decisions, propensities and outcomes as columns: `pandas.DataFrame(bandit.log())`."""
        with self._mutex:
            return self._ledger.table()

    def summary(self) -> Summary:
        """How it is doing, for people: `print(bandit.summary())`."""
        with self._mutex:
            return summarize(self._ledger, self._diverged())

    def plot(self) -> "Figure":
        """A figure of how it has been doing: reward, agreement and waiting outcomes."""
        with self._mutex:
            return draw(self._ledger)

    def save(self) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        if self._snapshot is None:
            return
        with self._mutex:
            state = self._sync()
            snapshot = Snapshot(
                state, self._ledger.id, self._applied, self._description, self._diverged()
            )
            save_snapshot(self._snapshot, snapshot)

    def _save_or_warn(self) -> None:
        try:
            self.save()
        except OSError as error:  # the outcomes are safe in the ledger
            warnings.warn(f"could not save a snapshot: {error}", stacklevel=4)

    def _diverged(self) -> int:
        count = getattr(self._agent, "diverged", None)
        return 0 if count is None else int(count(self._sync().belief))

    def close(self) -> None:
        """Save a snapshot and let others open the folder."""
        with self._mutex:
            if not self._ledger.closed:
                self._save_or_warn()
                self._ledger.close()

    def __enter__(self) -> "Bandit":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _mask(available: Any, names: list[Any] | None, rows: int) -> np.ndarray:
    """Which of the actions may be chosen, from truth values or from names."""
    if available is None:
        return np.ones(rows, bool)
    if names is not None and not any(isinstance(a, bool | np.bool_) for a in available):
        unknown = [name for name in available if name not in names]
        if unknown:
            raise ValueError(f"available names {unknown[0]!r}, which is not on offer: {names}")
        available = [name in available for name in names]
    return checks.available(np.asarray(available), rows)
