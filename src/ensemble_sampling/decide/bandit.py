"""Real decisions, one at a time, by the same functions the simulator runs."""

import copy
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import differences
from ..core import Agent, Posterior
from ..inputs import foreign
from ..inputs.columns import is_frame, needs_hasher, records
from ..inputs.hashing import Hasher, precision
from ..inputs.offer import Offer
from ..ledger.ledger import DecisionRow, Ledger, OutcomeRow
from ..ledger.offers import StoredOffer
from ..ledger.sqlite import Place, as_place, exists, public
from ..ledger.transactions import Process
from . import notices
from .decisions import Decision, Prediction
from .default import Default
from .outcomes import Outcomes
from .programs import State
from .replica import Replica, resume
from .setup import Options, Setup, common_width
from .shadows import Shadows, candidate, dismiss, opinions, promote
from .summary import Summary, draw, summarize

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    offers: what the ledger keeps of an offer: "all" of it, what repeats once, so that other agents
        can be evaluated on it; or only the "chosen" action's row, where space matters. None is
        "all", or what the folder was last told.
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
        offers: str | None = None,
    ):
        options = Options(agent, seed, normalise, hasher, actions, floor)
        self._begin(None, options, offers)

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
        offers: str | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """The bandit kept in a folder: created, or reopened where it left off.

        `snapshot_every` so many outcomes, and when it is closed, its state is saved; what comes
        after a snapshot is replayed when it is opened.
        """
        options = Options(agent, seed, normalise, hasher, actions, floor)
        bandit, place = cls.__new__(cls), as_place(folder)
        bandit._begin(place, options, offers, snapshot_every, migrate=False)
        return bandit

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
        offers: str | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """Replay the folder's history into another agent, which decides from now on."""
        options = Options(agent, seed, normalise, hasher, actions, floor)
        bandit, place = cls.__new__(cls), as_place(folder)
        bandit._begin(place, options, offers, snapshot_every, migrate=True)
        return bandit

    def _begin(
        self,
        place: Place,
        options: Options,
        offers: str | None = None,
        snapshot_every: int = 0,
        migrate: bool = False,
        recipe: Default | None = None,
    ) -> None:
        """Open the ledger and go on where it left off; what cannot be is refused before."""
        replica = Replica(Setup(options, recipe))
        every = checks.count("snapshot_every", snapshot_every) if place is not None else 0
        self._snapshot_every, checked = every, _kept(offers)
        if migrate and place is not None and not exists(place):
            where = public(place)
            raise FileNotFoundError(f"there is no ledger in {where}: Bandit.open begins a new one")
        self._mutex, self._pid = threading.RLock(), os.getpid()
        self._watch, self._shadows = notices.Watch(), Shadows()
        self._ledger = Ledger(place)
        try:
            self._use(resume(replica, self._ledger, migrate))
            self._ledger.keep(checked or self._ledger.keeps)
        except BaseException:
            self._ledger.close()
            raise

    def _use(self, replica: Replica) -> None:
        """Let this one decide and learn from now on."""
        self._replica, self._setup, self._inputs = replica, replica.setup, replica.inputs

    def _turn(self) -> Any:
        """The mutex, to be followed by `_ready`; in a fork another may hold it for ever."""
        if Process.id != self._pid:
            self._ledger.check()  # says what to do
        return self._mutex

    def _ready(self, writes: bool = False) -> None:
        """Refuse to go on where what follows could not be right."""
        self._ledger.check(writes)
        if precision() is not self._setup.dtype:
            raise ValueError(
                f"jax_enable_x64 was changed while this bandit was open in {self._setup.dtype}: "
                "change it back, or close the bandit and migrate it"
            )

    def choose(
        self,
        actions: Any = None,
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
            checks.count("top", top)
        return self._decide([(actions, context, available)], top)[0]

    def predict(
        self, actions: Any = None, *, context: Any = None, available: Any = None
    ) -> Prediction:
        """What the next decision would be made of, without making it: nothing is recorded.

        Takes what `choose` takes.
        """
        with self._turn():
            self._ready()
            state = self._replica.sync(self._ledger)
            if self._replica.width is None:
                return self._twin_prediction(actions, context, available)
            columns = self._inputs.columns
            offer = self._inputs.read(actions, context, available, self._replica.width)
            self._inputs.columns = columns  # only a decision fixes them
            number = self._ledger.decisions
            _, shares, values = self._replica.choose(number, offer.table, offer.mask, state)
            return Prediction(shares, values)

    def _twin_prediction(self, actions: Any, context: Any, available: Any) -> Prediction:
        """What the first decision would be made of. It settles more than a prediction may, so a
        bandit in memory makes it that will decide as this one."""
        twin = Bandit.__new__(Bandit)
        twin._begin(None, self._setup.options, recipe=self._setup.recipe)
        (decision,) = twin._decide([(actions, context, available)])
        return Prediction(decision.probabilities, decision.values)

    def choose_many(
        self,
        actions: Iterable[Any] | None = None,
        *,
        contexts: Iterable[Any] | None = None,
        available: Iterable[Any] | None = None,
    ) -> list[Decision]:
        """One decision for every set of actions, every context, or every pair of the two;
        `available` has what may be chosen in each, as `choose` takes it, or None for all.

        The same decisions as by `choose` one after another, written to disk together.
        """
        if actions is None and contexts is None:
            raise ValueError("give the actions or the contexts to choose for")
        if is_frame(contexts):
            contexts = records(contexts)  # every row is a context
        several = None if actions is None else _listed("actions", actions)
        around = [None] * len(several or ()) if contexts is None else _listed("contexts", contexts)
        several = [None] * len(around) if several is None else several
        if len(several) != len(around):
            raise ValueError(f"{len(several)} sets of actions, but {len(around)} contexts")
        free = [None] * len(around) if available is None else _listed("available", available)
        if len(free) != len(around):
            raise ValueError(f"{len(around)} decisions, but {len(free)} entries in available")
        return self._decide(list(zip(several, around, free, strict=True)))

    def _decide(self, offers: list[tuple[Any, Any, Any]], top: int | None = None) -> list[Decision]:
        """All is read before anything is decided, and decided before it is recorded."""
        with self._turn():
            self._ready(writes=True)
            setup, replica = self._setup, self._replica
            state, first = replica.sync(self._ledger), self._ledger.decisions
            with setup.tentative(replica):
                if replica.width is None:
                    setup.bring_hasher(replica, (needs_hasher(*offer[:2]) for offer in offers))
                read = [self._inputs.read(*offer, replica.width) for offer in offers]
                if first == 0:
                    setup.settle(replica, self._ledger, common_width(read))
                    state = replica.sync(self._ledger)
                return self._record_choices(read, first, state, top)

    def _record_choices(
        self, offers: list[Offer], first: int, state: Any, top: int | None
    ) -> list[Decision]:
        """Choose for each offer, numbered from `first`."""
        replica, ledger, now = self._replica, self._ledger, time.time()
        dtype, rows, decisions = ledger.dtype, [], []
        for number, (table, names, mask, context) in enumerate(offers, start=first):
            if top is not None and top > mask.sum():
                raise ValueError(f"top is {top}, but only {mask.sum()} actions can be chosen")
            index, shares, values = replica.choose(number, table, mask, state)
            order = None
            if top is not None:
                order = replica.rank(number, table, mask, state, index)[:top]
                order = tuple(order if names is None else [names[i] for i in order])
            if shares.dtype != dtype:
                shares = shares.astype(dtype)  # what a reading of the ledger will give
            name = None if names is None else names[index]
            chosen = table[index if len(table) > 1 else 0].astype(dtype)  # one's own
            whole = StoredOffer(names, table, context, mask) if ledger.keeps == "all" else None
            rows.append(DecisionRow(number, now, index, name, chosen, shares, offer=whole))
            id, action = ledger.decision_id(number), index if names is None else name
            decisions.append(Decision(id, index, action, shares.item(index), shares, values, order))
        self._setup.record_columns(ledger)
        said = self._shadows.opinions(ledger, rows, offers) if self._shadows.awake else ()
        ledger.add_decisions(rows, said)
        for row, offer, made in zip(rows, offers, decisions, strict=True):
            self._watch.offered(row.number, offer.table, row.chosen, made.values)
        return decisions

    def learn(self, id: str, outcome: Any) -> bool:
        """Learn the outcome of a decision; False if it was known already and nothing changed."""
        with self._turn():
            self._ready(writes=True)
            self._replica.sync(self._ledger)
            outcomes = Outcomes(self._replica, self._ledger)
            outcomes.learn(id, self._decision(id), outcome)
            return self._record(outcomes) == 1

    def learn_many(self, outcomes: Iterable[tuple[str, Any]]) -> int:
        """Learn pairs (id, outcome) in the given order, or none of them; how many were new.

        The same state as by `learn` one after another, written to disk together.
        """
        pairs = [checks.pair(each) for each in _listed("outcomes", outcomes)]
        with self._turn():
            self._ready()
            self._replica.sync(self._ledger)
            several = Outcomes(self._replica, self._ledger)
            known = [(id, self._decision(id), outcome) for id, outcome in pairs]
            for each in known:
                several.learn(*each)
            return self._record(several)

    def expire(self, older_than: float | timedelta, outcome: Any) -> int:
        """Assume `outcome` for decisions older than so many seconds whose own never came."""
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        checks.scalar("older_than", seconds, low=0.0)
        with self._turn():
            self._ready()
            self._replica.sync(self._ledger)
            if self._replica.agent is None:  # nothing was decided
                return 0
            self._replica.outcome(outcome, self._ledger)
            assumed = Outcomes(self._replica, self._ledger)
            for number in self._ledger.pending(before=time.time() - seconds):
                id = self._ledger.decision_id(number)
                assumed.learn(id, self._decision(id), outcome)
            return self._record(assumed, expired=True)

    def correct(self, id: str, outcome: Any) -> bool:
        """The outcome of a decision turned out to be another; False if it is what is known.

        Both are kept. The state follows at the next decision: it is then what it would be had the
        decision had this outcome from the start. So many corrections in a row cost one replay,
        from a state before the first of them that is still at hand, or else from the beginning.
        """
        with self._turn():
            self._ready()
            outcomes = Outcomes(self._replica, self._ledger)
            new = outcomes.correct(id, self._decision(id), outcome)
            outcomes.record()
            return new

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        """Add to the outcome of a decision, which begins at 0, or at what `learn` or `expire` said:
        rewards that come bit by bit.

        `ref` names the amount (an order, a payment), so that the same told twice counts once:
        False then. Without it every call counts.
        """
        if ref is not None:
            checks.text("ref", ref)
        with self._turn():
            self._ready()
            outcomes = Outcomes(self._replica, self._ledger)
            new = outcomes.add(id, self._decision(id), amount, ref)
            self._record(outcomes)
            return new

    def _decision(self, id: str) -> DecisionRow:
        decided = self._ledger.decision(self._ledger.number(id))
        assert decided is not None  # it has a number
        return decided

    def _record(self, outcomes: Outcomes, expired: bool = False) -> int:
        """Record outcomes and learn those that are the first of their decision; how many."""
        before, learned = self._ledger.outcomes, outcomes.record(expired)
        if not learned:
            self._ledger.check()
            return 0
        self._learn(learned, before)
        if not expired:
            for decided, outcome in learned:
                self._watch.learned(decided.number, outcome)
        return len(learned)

    def _learn(self, learned: list[tuple[DecisionRow, Any]], before: int) -> None:
        """Learn what was just recorded; there were `before` outcomes. After so many of them: save,
        and say what was noticed."""
        self._replica.learn(self._ledger, learned)
        if self._shadows.awake:
            self._shadows.learn(self._ledger, learned)
        every, now = self._snapshot_every, before + len(learned)
        if every and now // every > before // every:
            self._save_or_warn()
        if self._watch.due(before, now):
            for text in self._watch.new(self._notices()):
                warnings.warn(text, stacklevel=4)

    def learn_from(
        self,
        frame: Any,
        *,
        features: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        action: str | None = None,
        outcome: str = "outcome",
        propensity: str | None = None,
    ) -> int:
        """Learn decisions that were made elsewhere, all of them or none; how many.

        `frame` is a data frame or a dictionary of columns, with a row per decision; the rest says
        which columns are what: `features` describe the action that was chosen, `context` what it
        was chosen in (of a fixed set of actions that is all), `action` its name, `outcome` what
        came of it, and `propensity` how likely the choice was. They are recorded in the ledger as
        made elsewhere, and the state is the same as had their outcomes been learned one by one.
        """
        with self._turn():
            self._ready()
            given = foreign.read(frame, features, context, action, outcome, propensity)
            arms = foreign.arms(given, self._inputs)
            setup, replica = self._setup, self._replica
            replica.sync(self._ledger)
            with setup.tentative(replica):
                setup.bring_hasher(replica, (needs_hasher(*first[:2]) for first in [given.first]))
                table = foreign.table(given, self._inputs, replica.width)
                setup.settle(replica, self._ledger, table.shape[1])
                outcomes = [replica.outcome(y, self._ledger) for y in given.outcomes]
                return self._record_foreign(table, arms, given, outcomes)

    def _record_foreign(
        self, table: np.ndarray, arms: list[int], given: foreign.Foreign, outcomes: list[Any]
    ) -> int:
        """Decisions and their outcomes in one transaction."""
        now, first, dtype = time.time(), self._ledger.decisions, self._ledger.dtype
        before, chances = self._ledger.outcomes, given.propensities
        shares = np.zeros((len(arms), 0)) if chances is None else chances[:, None]
        named = given.actions if self._inputs.arms is None or self._inputs.names else None
        rows = [
            DecisionRow(first + n, now, arm, named and named[n], row, share, foreign=True)
            for n, (arm, row, share) in enumerate(
                zip(arms, table.astype(dtype), shares.astype(dtype), strict=True)
            )
        ]
        self._setup.record_columns(self._ledger)
        reward = self._replica.reward
        observed = [OutcomeRow(first + n, y, reward(y)) for n, y in enumerate(outcomes)]
        self._ledger.add_decisions(rows, outcomes=observed)
        self._learn(list(zip(rows, outcomes, strict=True)), before)
        return len(rows)

    @property
    def state(self) -> State:
        """A copy of what has been learned."""
        with self._turn():
            self._ready()
            return copy.deepcopy(jax.tree.map(_copied, self._replica.state(self._ledger)))

    @overload
    def log(self) -> dict[str, list[Any]]: ...

    @overload
    def log(self, chunk: int) -> Iterator[dict[str, list[Any]]]: ...

    def log(self, chunk: int | None = None) -> Any:
        """Decisions, what was on offer, propensities and outcomes as columns, in which nothing is
        missing: `pandas.DataFrame(bandit.log())`.

        `chunk=1000` gives so many decisions at a time, for logs that are larger than memory.
        """
        if chunk is not None:
            return self._chunks(checks.count("chunk", chunk))
        with self._turn():
            self._ready()
            return self._ledger.table()

    def _chunks(self, size: int) -> Iterator[dict[str, list[Any]]]:
        """The decisions that there are when it begins; others may be made meanwhile."""
        with self._turn():
            self._ready()
            end = self._ledger.decisions
        for first in range(0, end, size):
            with self._turn():
                self._ready()
                part = self._ledger.table(range(first, min(first + size, end)))
            yield part

    def summary(self) -> Summary:
        """How it is doing, for people: `print(bandit.summary())`."""
        with self._turn():
            self._ready()
            noticed = tuple(self._notices().values())
            return summarize(self._ledger, self._replica.diverged(self._ledger), warnings=noticed)

    def _notices(self) -> dict[str, str]:
        """What its user should know, by kind."""
        alone = self._setup.recipe is not None and self._replica.width == 0
        hashed, fixed = self._inputs.hasher is not None, self._inputs.arms is not None
        found = {
            "noise": self._watch.noise(self._replica.agent),
            "alone": notices.alone(self._ledger.outcomes) if alone else None,
            "constant": self._watch.constant(hashed, fixed),
        }
        noticed = {kind: text for kind, text in found.items() if text is not None}
        return noticed | self._replica.notices(self._ledger)

    def plot(self) -> "Figure":
        """A figure of how it has been doing: reward, agreement and waiting outcomes."""
        with self._turn():
            self._ready()
            return draw(self._ledger)

    def shadow(self, name: str, agent: Agent | Posterior | None = None) -> None:
        """Let a candidate (None: the default agent) watch from now on: it learns what the agent in
        charge learns, all that is recorded to begin with, and says what it would have done, see
        `summary` and `opinions`.

        It shares all settings but the agent, and goes on after the folder was opened again when
        it is called again with the same name and agent.
        """
        checks.text("a shadow's name", name)
        with self._turn():
            self._ready()
            self._replica.sync(self._ledger)
            self._shadows.admit(self._ledger, name, candidate(agent, self._replica))

    def opinions(self, name: str) -> dict[str, list[Any]]:
        """What a shadow would have done, as columns: in which decision (`id`), what (`index`), how
        likely it was to choose what was really chosen (`probability`), and how likely the agent in
        charge was (`propensity`)."""
        with self._turn():
            self._ready()
            return opinions(self._ledger, name)

    def dismiss(self, name: str) -> None:
        """Let a shadow go; what it said stays in the ledger."""
        with self._turn():
            self._ready()
            dismiss(self._ledger, name)
            self._shadows.drop(self._ledger, name)

    def promote(self, name: str) -> None:
        """Put a shadow in charge, as `migrate` would: it decides from now on, and the folder is to
        be opened with its agent."""
        with self._turn():
            self._ready()
            replica, former = self._shadows.take(self._ledger, name), self._replica
            replica.sync(self._ledger)
            former.forget(self._ledger)
            try:
                self._use(replica)
                promote(self._ledger, name, replica, former)
            finally:
                now = self._ledger.description
                now.pop("columns", None)
                if differences(now, replica.setup.description):  # it was not recorded
                    self._use(former)
                else:
                    self._shadows.drop(self._ledger, name)
            replica.file = former.file
            self._watch = notices.Watch()
            self.save()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the ledger as it is now to a new folder, from which a bandit can be opened."""
        with self._turn():
            self._ready()
            self._ledger.backup(as_place(path))

    def save(self) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        with self._turn():
            self._ready()
            self._replica.save(self._ledger)
            self._shadows.save(self._ledger)

    def _save_or_warn(self) -> None:
        try:
            self.save()
        except OSError as error:  # the outcomes are safe in the ledger
            warnings.warn(f"could not save a snapshot: {error}", stacklevel=4)

    def close(self) -> None:
        """Save a snapshot and let others open the folder. After an interrupt, call it again."""
        if os.getpid() != self._pid:  # a fork: all this is the parent's, the mutex may be held
            return self._ledger.close()
        with self._mutex:
            try:
                if not self._ledger.closed and precision() == self._setup.dtype:
                    self._save_or_warn()
                self._ledger.close()
            except BaseException:  # also an interrupt just before it is closed
                self._ledger.close()
                raise

    def __enter__(self) -> "Bandit":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@contextmanager
def parts(bandit: Bandit) -> Iterator[tuple[Replica, Ledger]]:
    """Its replica and its ledger, while no other thread changes them: for what reads a bandit."""
    with bandit._turn():
        bandit._ready()
        yield bandit._replica, bandit._ledger


def _copied(leaf: Any) -> Any:
    """An array of one's own, with which nothing happens when the state is consumed."""
    return leaf.copy() if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.array(leaf)


def _kept(offers: Any) -> str | None:
    """What to keep of an offer, if that was said."""
    if offers not in (None, "all", "chosen"):
        raise ValueError(f'offers must be "all" or "chosen", got {offers!r}')
    return offers


def _listed(what: str, given: Any) -> list[Any]:
    """Several of something, in an order."""
    unordered = isinstance(given, Mapping | set | frozenset)
    if unordered or is_frame(given) or not checks.is_several(given):
        raise TypeError(f"{what} must be a list, one entry per decision, got {checks.shown(given)}")
    return list(given)
