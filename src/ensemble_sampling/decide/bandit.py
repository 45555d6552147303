"""Real decisions, one at a time, by the same functions the simulator runs."""

import copy
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import differences
from ..core import Agent, Posterior
from ..inputs import foreign
from ..inputs.hashing import Hasher
from ..inputs.offer import Offer, is_frame, records
from ..ledger.ledger import DecisionRow, Ledger, OutcomeRow
from ..ledger.rows import Change, decided
from ..ledger.sqlite import Place, as_place, exists, public
from ..rewards import Reward
from . import notices, weighted
from .control import Control, Divider
from .decisions import Decision, Prediction
from .explain import Explanation, explain, find
from .lift import Lift, lift, moment
from .metrics import Guarding, Metric, bounds, metrics
from .outcomes import Outcomes
from .programs import State
from .replica import Replica, base_states, resume
from .segments import Segments, segments
from .setup import Options, Setup
from .shadows import REMOVED, SHADOWS, Shadows, candidate, dismiss, opinions, promote, recorded
from .sticky import again, checked_subject
from .summary import Summary, draw, summarize
from .weighted import Observations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

JAX: Any = jax.config


class Bandit:
    """Chooses among actions and learns from what comes of it, whenever that comes.

    `Bandit()` lives in memory, `Bandit.open(folder)` on disk. The state is a cache of the ledger
    of decisions and outcomes: replaying it gives the same state bit for bit.

    agent: what chooses and learns; or a posterior, which means Thompson sampling over it. None is
        the default agent, which needs no settings (see `Default`).
    seed: of its random draws; None takes the folder's, or 0 for a new bandit.
    normalise: whether features are put into units of their usual size (see `Scale`), as learned so
        far; for the default agent also around their mean. None takes the folder's, or True.
    hasher: for actions and contexts described by dictionaries or text; the default agent brings
        its own where it needs one.
    actions: the names of the actions, where there is a fixed set of them.
    floor: the share of decisions left to chance: every action on offer has at least this
        probability over their number, so that logs can tell what other choices would have brought.
        None takes the folder's, or 0.
    steady: whether the world is known to stay as it is; the default agent otherwise starts again
        when outcomes surprise more than they used to (see `posteriors.Restarting`). None takes the
        folder's, or False.
    offers: what the ledger keeps of an offer: "all" of it, what repeats once, so that other agents
        can be evaluated on it; or only the "chosen" action's row, where space matters. None takes
        the folder's, or "all".
    holdback: the share of decisions, or of subjects where these are named, that is left to a
        `baseline`, so that `lift` can say what the bandit earns.
    baseline: what decides them: "first" (that is available), "uniform", {"action": NAME}, "frozen"
        (the agent as it is now), {"frozen": DATE}, or a function of the context and the actions by
        name, which names one.
    sticky: how long a subject is given the same action again, as `timedelta` or in seconds.
    reward: `es.Reward(weights={"click": 1.0, "margin": 0.2})`: a decision is worth the sum of these
        metrics, each times its weight; see `observe`. None is the outcome that is told.
        Of these four None takes the folder's; `configure` changes them, and more.
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
        steady: bool | None = None,
        offers: str | None = None,
        holdback: float | None = None,
        baseline: Any = None,
        sticky: float | timedelta | None = None,
        reward: Reward | Mapping[str, float] | None = None,
    ):
        options = Options(agent, seed, normalise, hasher, actions, floor, steady)
        self._begin(None, options, (holdback, baseline, sticky, reward), offers)

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
        steady: bool | None = None,
        offers: str | None = None,
        holdback: float | None = None,
        baseline: Any = None,
        sticky: float | timedelta | None = None,
        reward: Reward | Mapping[str, float] | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """The bandit kept in a folder: created, or reopened where it left off. The agent and the
        settings that are not given are those of the folder.

        snapshot_every: after so many outcomes, and when it is closed, the state is saved. Opening
            the folder replays what came after that.
        """
        options = Options(agent, seed, normalise, hasher, actions, floor, steady)
        bandit, place = cls.__new__(cls), as_place(folder)
        terms = holdback, baseline, sticky, reward
        bandit._begin(place, options, terms, offers, snapshot_every, migrate=False)
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
        steady: bool | None = None,
        offers: str | None = None,
        holdback: float | None = None,
        baseline: Any = None,
        sticky: float | timedelta | None = None,
        reward: Reward | Mapping[str, float] | None = None,
        snapshot_every: int = 1000,
    ) -> "Bandit":
        """Replay the folder's history into another agent, which decides from now on."""
        options = Options(agent, seed, normalise, hasher, actions, floor, steady)
        bandit, place = cls.__new__(cls), as_place(folder)
        terms = holdback, baseline, sticky, reward
        bandit._begin(place, options, terms, offers, snapshot_every, migrate=True)
        return bandit

    def _begin(
        self,
        place: Place,
        options: Options,
        terms: tuple[Any, Any, Any, Any],
        offers: str | None = None,
        snapshot_every: int = 0,
        migrate: bool = False,
    ) -> None:
        """Open the ledger and go on where it left off; what cannot be is refused before."""
        replica = Replica(Setup(options))
        reward = terms[3]
        given: dict[str, Any] = dict(zip(("holdback", "baseline", "sticky"), terms, strict=False))
        if reward is not None:
            weighted.checked(reward)
        Control().changed(None, replica.setup, **given)
        every = checks.count("snapshot_every", snapshot_every) if place is not None else 0
        self._snapshot_every, checked = every, _kept(offers)
        if migrate and place is not None and not exists(place):
            where = public(place)
            raise FileNotFoundError(f"there is no ledger in {where}: Bandit.open begins a new one")
        self._mutex, self._pid = threading.RLock(), os.getpid()
        self._shadows = Shadows()
        self._said: set[str] = set()  # the kinds of notices that were warnings already
        self._guarding = Guarding()
        self._ledger = Ledger(place)
        try:
            self._replica = resume(replica, self._ledger, migrate)
            self._double = self._replica.dtype == np.float64
            self._ledger.keep(checked or self._ledger.keeps)
            self._control, self._rule = Control.of(self._ledger, self._replica.setup.seed), None
            self._agree(given)
            self._weights = weighted.weights(self._ledger)
            if reward is not None:
                self._reweigh(reward)
        except BaseException:
            self._ledger.close()
            raise

    def _agree(self, given: dict[str, Any], who: str | None = None) -> None:
        """Hold back from now on what is given, and record that."""
        ledger, setup, rule = self._ledger, self._replica.setup, self._rule
        control = self._control.changed(ledger, setup, **given)
        rule = given["baseline"] if callable(given.get("baseline")) else rule
        self._adopt(control, rule, who)

    def _adopt(self, control: Control, rule: Any, who: str | None) -> None:
        divider = Divider.of(control, rule, self._replica.setup, self._ledger)
        control.record(self._ledger, who)
        self._control, self._divider, self._rule = control, divider, rule

    def _reweigh(self, reward: Any, who: str | None = None) -> None:
        """Let rewards be made by these weights, also those of decisions that were made before."""
        with self._ledger.turn():
            learned = weighted.change(self._replica, self._ledger, reward, who)
        self._weights = weighted.weights(self._ledger)
        if learned:
            self._learn(learned)

    def configure(
        self,
        *,
        holdback: float | None = None,
        baseline: Any = None,
        sticky: float | timedelta | None = None,
        guard: Mapping[str, tuple[str, float]] | None = None,
        fallback: bool | None = None,
        reward: Reward | Mapping[str, float] | None = None,
        who: str | None = None,
    ) -> None:
        """Change what is held back, and when the baseline takes over; None leaves a setting as it
        is.

        holdback, baseline, sticky: see `Bandit`.
        guard: bounds of the means of metrics by name, {"returned": ("<=", 0.05)}; see `observe`.
        fallback: whether a broken bound leaves all decisions to the baseline until `resume`.
        reward: other weights of metrics; the state is as if they had held from the start.
        who: the name of whoever changes it, which the ledger keeps with the time.
        """
        given = {"holdback": holdback, "baseline": baseline, "sticky": sticky}
        given = {**given, "guard": guard, "fallback": fallback}
        if who is not None:
            checks.text("who", who)
        self._ready(writes=True)
        with self._mutex:
            if reward is not None:  # and refuse the others before anything changes
                self._control.changed(self._ledger, self._replica.setup, **given)
                self._reweigh(reward, who)
            self._agree(given, who)

    def _ready(self, writes: bool = False) -> None:
        """Refuse to go on where what follows could not be right; before the mutex is taken, which
        in a fork another may hold for ever."""
        self._ledger.check(writes)
        if JAX.jax_enable_x64 is not self._double:
            raise ValueError(
                f"jax_enable_x64 was changed while this bandit was open in {self._replica.dtype}: "
                "change it back, or close the bandit and migrate it"
            )

    def choose(
        self,
        actions: Any = None,
        *,
        context: Any = None,
        available: Any = None,
        top: int | None = None,
        subject: str | None = None,
    ) -> Decision:
        """Choose among actions, described by rows of numbers, dictionaries, a DataFrame, or a
        mapping of names to any of these, in a context that is described likewise.

        Agents with a fixed set of actions take `context=x`, or nothing where they have no
        features. `available` restricts the choice: true or false for every action, in their order
        or by name, or the names of those on offer. `top=3` also gives the best three in order, the
        chosen one first: `decision.ranking`. `subject` names whom the decision is about, see
        `erase`.
        """
        if top is not None:
            checks.count("top", top)
        if subject is not None:
            checked_subject(subject)
        return self._decide([(actions, context, available)], [subject], top)[0]

    def predict(
        self, actions: Any = None, *, context: Any = None, available: Any = None
    ) -> Prediction:
        """The probabilities and values of the next decision, without making it: nothing is
        recorded.

        Takes what `choose` takes.
        """
        self._ready()
        with self._mutex:
            offer = self._replica.inputs.read(actions, context, available)
            replica = self._replica.covering([offer])
            state = replica.sync(self._ledger)
            number = self._ledger.decisions
            _, shares, values = replica.choose(number, offer, state)
            if self._divider is not None:
                shares = self._divider.mixed(number, offer, shares)
            return Prediction(shares, values)

    def choose_many(
        self,
        actions: Iterable[Any] | None = None,
        *,
        contexts: Iterable[Any] | None = None,
        available: Iterable[Any] | None = None,
        subjects: Iterable[str | None] | None = None,
    ) -> list[Decision]:
        """One decision for every set of actions, every context, or every pair of the two.
        `available` is None, or has for each of them what `choose` takes.

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
        free, whom = (
            [None] * len(around) if given is None else _listed(what, given)
            for what, given in (("available", available), ("subjects", subjects))
        )
        for what, given in (("available", free), ("subjects", whom)):
            if len(given) != len(around):
                raise ValueError(f"{len(around)} decisions, but {len(given)} entries in {what}")
        for subject in whom:
            if subject is not None:
                checked_subject(subject)
        return self._decide(list(zip(several, around, free, strict=True)), whom)

    def _decide(
        self,
        given: list[tuple[Any, Any, Any]],
        subjects: Sequence[str | None],
        top: int | None = None,
    ) -> list[Decision]:
        """All is read before anything is decided, and decided before it is recorded."""
        self._ready(writes=True)
        with self._mutex:
            replica = self._replica
            inputs = replica.inputs
            offers = [inputs.read(*one) for one in given]
            if all(map(inputs.covers, offers)):
                return self._record_choices(replica, offers, subjects, top)
            replica = replica.covering(offers)
            with self._ledger.turn():  # what the first offers settle holds only if they are kept
                self._ledger.describe(replica.setup.description)
                decisions = self._record_choices(replica, offers, subjects, top)
            self._replica = replica
            return decisions

    def _record_choices(
        self,
        replica: Replica,
        offers: list[Offer],
        subjects: Sequence[str | None],
        top: int | None,
    ) -> list[Decision]:
        """Choose for each offer, and record it."""
        ledger, now, rows, decisions = self._ledger, self._ledger.clock(), [], []
        state, first = replica.sync(ledger), ledger.decisions
        control, divider, mine = self._control, self._divider, dict[str | None, DecisionRow]()
        for offer, subject in zip(offers, subjects, strict=True):
            if top is not None and top > offer.available.sum():
                count = offer.available.sum()
                raise ValueError(f"top is {top}, but only {count} actions can be chosen")
            known = again(control, ledger, subject, offer, now, mine) if control.sticky else None
            if known is not None:
                row, index = known
                number, shares, values = row.number, row.probabilities, None
            else:
                number, held = first + len(rows), None
                index, shares, values = drawn = replica.choose(number, offer, state)
                if divider is not None:
                    index, shares, held = divider.divide(number, offer, drawn, subject)
                shares = shares.astype(ledger.dtype, copy=False)  # what reading the ledger gives
                row = decided(number, now, offer, index, shares, subject, held)
                rows.append(row)
                mine[subject] = row
            names, order = offer.names, None
            if top is not None:
                ranked = replica.rank(number, offer, state, index)[:top]
                order = tuple(ranked if names is None else [names[i] for i in ranked])
            id, action = ledger.decision_id(number), index if names is None else names[index]
            about = shares.item(row.chosen), shares, values, order
            group = None if row.held is None else row.held.control
            decisions.append(Decision(id, index, action, *about, group, known is not None))
        said = self._shadows.opinions(ledger, rows) if self._shadows.awake else ()
        ledger.add_decisions(rows, said)
        return decisions

    def learn(self, id: str | Decision, outcome: Any) -> bool:
        """Learn the outcome of a decision; False if it was known already and nothing changed.

        Where the reward is made of metrics: {"click": 1, "margin": 3.2}, what is missing being 0.
        """
        id = id.id if isinstance(id, Decision) else id
        self._ready(writes=True)
        if self._weights or isinstance(outcome, Mapping):
            return self._observe([(id, outcome)], final=True) == 1
        with self._mutex:
            ledger = self._ledger
            outcomes = Outcomes(self._replica, ledger)
            outcomes.learn(id, ledger.decision(ledger.number(id)), outcome)
            return self._record(outcomes) == 1

    def learn_many(self, outcomes: Iterable[tuple[str, Any]]) -> int:
        """Learn pairs (id, outcome) in the given order, or none of them; returns how many were new.

        The same state as by `learn` one after another, written to disk together.
        """
        pairs = [checks.pair(each) for each in _listed("outcomes", outcomes)]
        self._ready()
        if self._weights or any(isinstance(outcome, Mapping) for _, outcome in pairs):
            return self._observe(pairs, final=True)
        with self._mutex:
            self._replica.sync(self._ledger)
            several = Outcomes(self._replica, self._ledger)
            ids = [id.id if isinstance(id, Decision) else id for id, _ in pairs]
            known = [(id, self._decision(id), y) for id, (_, y) in zip(ids, pairs, strict=True)]
            for each in known:
                several.learn(*each)
            return self._record(several)

    def expire(self, older_than: float | timedelta, outcome: Any) -> int:
        """Assume `outcome` for decisions that are older than so many seconds and have none."""
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        checks.scalar("older_than", seconds, low=0.0)
        self._ready()
        with self._mutex:
            self._replica.sync(self._ledger)
            if self._replica.agent is None:  # nothing was decided
                return 0
            self._replica.outcome(outcome, self._ledger)
            assumed = self._observations()
            for number in self._ledger.pending(before=self._ledger.clock() - seconds):
                id = self._ledger.decision_id(number)
                assumed.expire(id, self._decision(id), outcome)
            return self._record(assumed, expired=True)

    def correct(self, id: str | Decision, outcome: Any) -> bool:
        """Replace the outcome of a decision; False if it has this one already.

        The ledger keeps both. At the next decision the state becomes what it would be with this
        outcome from the start, so that many corrections in a row cost one replay: from a state
        before the first of them if one is still at hand, or else from the beginning.
        """
        id = id.id if isinstance(id, Decision) else id
        self._ready()
        with self._mutex:
            outcomes = self._observations()
            new = outcomes.correct(id, self._decision(id), outcome)
            outcomes.record()
            return new

    def add(self, id: str | Decision, amount: Any, ref: str | None = None) -> bool:
        """Add to the outcome of a decision, for rewards that come in parts. It begins at 0, or at
        what `learn` or `expire` recorded.

        `ref` names the amount (an order, a payment): sent twice it counts once, and the second call
        returns False. Without it every call counts.
        """
        if ref is not None:
            checks.text("ref", ref)
        id = id.id if isinstance(id, Decision) else id
        self._ready()
        with self._mutex:
            outcomes = self._observations()
            new = outcomes.add(id, self._decision(id), amount, ref)
            self._record(outcomes)
            return new

    def _decision(self, id: str) -> DecisionRow:
        return self._ledger.decision(self._ledger.number(id))

    def _observations(self) -> Observations:
        return Observations(Outcomes(self._replica, self._ledger), self._ledger, self._weights)

    def _observe(self, pairs: Iterable[tuple[Any, Any]], final: bool) -> int:
        """Metrics of decisions, which may be their outcomes; of how many anything was new."""
        with self._mutex:
            seen, count = self._observations(), 0
            for id, values in pairs:
                id = id.id if isinstance(id, Decision) else id
                how = seen.learn if final else seen.observe
                count += how(id, self._decision(id), values)
            self._record(seen)
            return count

    def _record(self, outcomes: Outcomes | Observations, expired: bool = False) -> int:
        """Record outcomes and learn those that are the first of their decision; how many."""
        learned = outcomes.record(expired)
        if not learned:
            self._ledger.check()
            return 0
        self._learn(learned)
        return len(learned)

    def _learn(self, learned: list[tuple[DecisionRow, Any]]) -> None:
        """Learn what was just recorded; now and then save, and say what was noticed."""
        now, every = self._replica.learn(self._ledger, learned), self._snapshot_every
        before = now - len(learned)
        if self._shadows.awake:
            self._shadows.learn(self._ledger, learned)
        if every and now // every > before // every:
            self._save_or_warn()
        if now.bit_length() > before.bit_length() and now >= notices.FIRST:
            noticed = self._replica.notices(self._ledger)
            for text in [text for kind, text in noticed.items() if kind not in self._said]:
                warnings.warn(text, stacklevel=4)
            self._said |= noticed.keys()

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
        """Learn decisions that were made elsewhere, all of them or none; returns how many.

        `frame` is a data frame or a dictionary of columns, with a row per decision; the rest says
        which columns are what: `features` describe the action that was chosen, `context` what it
        was chosen in (of a fixed set of actions that is all), `action` its name, `outcome` what
        came of it, and `propensity` how likely the choice was. They are recorded in the ledger as
        made elsewhere, and the state is the same as had their outcomes been learned one by one.
        """
        self._ready()
        with self._mutex:
            given = foreign.read(frame, features, context, action, outcome, propensity)
            arms = foreign.arms(given, self._replica.inputs)
            offers = foreign.offers(given, self._replica.inputs)
            replica = self._replica.covering(offers)
            outcomes = [replica.outcome(y, self._ledger) for y in given.outcomes]
            grown = replica is not self._replica
            with self._ledger.turn() if grown else nullcontext():
                if grown:
                    self._ledger.describe(replica.setup.description)
                rows = self._record_foreign(replica, offers, arms, given, outcomes)
            self._replica = replica
            self._learn(list(zip(rows, outcomes, strict=True)))
            return len(rows)

    def _record_foreign(
        self,
        replica: Replica,
        offers: list[Offer],
        arms: list[int],
        given: foreign.Foreign,
        outcomes: list[Any],
    ) -> list[DecisionRow]:
        """Decisions and their outcomes in one transaction."""
        now, first, dtype = self._ledger.clock(), self._ledger.decisions, self._ledger.dtype
        chances, fixed = given.propensities, replica.inputs.arms is not None
        shares = np.zeros((len(arms), 0)) if chances is None else chances[:, None]
        named = given.actions if not fixed or replica.inputs.names else None
        rows = []
        for n, (arm, share) in enumerate(zip(arms, shares.astype(dtype), strict=True)):
            row = decided(first + n, now, offers[n], 0, share)
            name = None if named is None else named[n]
            rows.append(row._replace(chosen=arm, action=name, foreign=True, offer=None))
        reward = replica.reward
        observed = [OutcomeRow(first + n, y, reward(y)) for n, y in enumerate(outcomes)]
        self._ledger.add_decisions(rows, outcomes=observed)
        return rows

    @property
    def state(self) -> State:
        """A copy of what has been learned."""
        self._ready()
        with self._mutex:
            return copy.deepcopy(jax.tree.map(_copied, self._replica.state(self._ledger)))

    @overload
    def log(self) -> dict[str, list[Any]]: ...

    @overload
    def log(self, chunk: int) -> Iterator[dict[str, list[Any]]]: ...

    def log(self, chunk: int | None = None) -> Any:
        """All decisions as columns, with what was on offer, propensities and outcomes:
        `pandas.DataFrame(bandit.log())`.

        `chunk=1000` gives so many decisions at a time, for logs that are larger than memory.
        """
        if chunk is not None:
            return self._chunks(checks.count("chunk", chunk))
        self._ready()
        with self._mutex:
            return self._ledger.table()

    def _chunks(self, size: int) -> Iterator[dict[str, list[Any]]]:
        """The decisions that there are when it begins; others may be made meanwhile."""
        self._ready()
        with self._mutex:
            end = self._ledger.decisions
        for first in range(0, end, size):
            self._ready()
            with self._mutex:
                part = self._ledger.table(range(first, min(first + size, end)))
            yield part

    def summary(self) -> Summary:
        """How the bandit is doing: `print(bandit.summary())`."""
        self._ready()
        with self._mutex:
            noticed = tuple(self._replica.notices(self._ledger).values())
            return summarize(self._ledger, self._replica.diverged(self._ledger), warnings=noticed)

    def lift(
        self,
        metric: str | None = None,
        *,
        daily: bool = False,
        since: datetime | timedelta | float | None = None,
    ) -> Lift:
        """What the bandit earns compared with the baseline: `print(bandit.lift())`.

        metric: what to compare in place of the reward. daily: also day by day. since: a date, a
        while ago, or seconds since 1970; decisions in which another baseline had its part never
        count. The intervals hold however often you look at them.
        """
        self._ready()
        with self._mutex:
            return lift(self._ledger, metric, daily, moment(since))

    def segments(self, key: str, *, since: datetime | timedelta | float | None = None) -> Segments:
        """Reward, lift, actions and exploration for every value of a key of the context; `since`:
        see `lift`."""
        self._ready()
        with self._mutex:
            return segments(self._ledger, checks.text("key", key), moment(since))

    def observe(self, id: str | Decision, values: Mapping[str, float]) -> bool:
        """Record other numbers that came of a decision, by name: {"margin": 3.2, "returned": 0}.
        `lift(metric)` compares them, and `configure(guard=...)` bounds them. Where the reward is
        made of metrics, the decision is learned once all of these are known, and again when one of
        them changes. False if they were known already."""
        id = id.id if isinstance(id, Decision) else id
        self._ready(writes=True)
        with self._mutex:
            new = self._observe([(id, values)], final=False) == 1
            beyond = self._guarding.broken(self._ledger, self._control) if new else None
            if beyond is not None and f"guard {beyond}" not in self._said:
                self._said.add(f"guard {beyond}")
                if self._control.fallback:
                    self._adopt(replace(self._control, halted=beyond), self._rule, "guardrail")
                warnings.warn(bounds(self._ledger, self._control)[beyond], stacklevel=2)
            return new

    def metrics(self, *, since: datetime | timedelta | float | None = None) -> tuple[Metric, ...]:
        """The numbers that `observe` recorded: their means with the bandit and without, and whether
        they keep their bounds; `since`: see `lift`."""
        self._ready()
        with self._mutex:
            return metrics(self._ledger, self._control, moment(since))

    def resume(self, who: str | None = None) -> bool:
        """Let the bandit decide again after a bound was broken; False if it decides already. From
        then on only new decisions count for the bounds."""
        self._ready(writes=True)
        with self._mutex:
            if self._control.halted is None:
                return False
            self._said.discard(f"guard {self._control.halted}")
            control = replace(self._control, halted=None, since=self._ledger.decisions)
            self._adopt(control, self._rule, who)
            return True

    def explain(self, id: str | Decision, *, top: int = 5) -> Explanation:
        """Why a decision was made: `print(bandit.explain(decision))`.

        It lists the `top` fields of the context and the actions that speak most for the chosen
        action and against the next best one, by what the agent knows now. Each is left out in turn:
        its weight is how much smaller the difference between the two values is without it.
        """
        checks.count("top", top)
        id = id.id if isinstance(id, Decision) else id
        self._ready()
        with self._mutex:
            state, row = self._replica.sync(self._ledger), find(self._ledger, id)
            return explain(id, row, self._replica, state, top)

    def plot(self) -> "Figure":
        """A figure of the past: reward with its interval, shares of actions, agreement and waiting
        outcomes."""
        self._ready()
        with self._mutex:
            return draw(self._ledger)

    def changes(self) -> list[Change]:
        """What was changed of its settings and shadows, and removed, when and by whom, as far as
        that is known; the oldest first."""
        self._ready()
        with self._mutex:
            return [*self._ledger.changes()]

    def shadow(
        self, name: str, agent: Agent | Posterior | None = None, *, who: str | None = None
    ) -> None:
        """Let a candidate (None: the default agent) watch. It learns all that is recorded and then
        what the agent in charge learns, and the ledger keeps what it would have done: see `summary`
        and `opinions`.

        It shares all settings but the agent. After the folder was opened again, call this with the
        same name and agent, and it goes on. `who` begins it: see `changes`.
        """
        checks.text("a shadow's name", name)
        self._ready()
        with self._mutex:
            self._replica.sync(self._ledger)
            begun = recorded(self._ledger).get(name)
            self._shadows.admit(self._ledger, name, candidate(agent, self._replica, begun))
            if begun is None:
                self._ledger.change(SHADOWS, {"began": name}, who)

    def opinions(self, name: str) -> dict[str, list[Any]]:
        """What a shadow would have done, as columns: the decision (`id`), the shadow's choice
        (`index`), and how likely the action that was really chosen was for the shadow
        (`probability`) and for the agent in charge (`propensity`)."""
        self._ready()
        with self._mutex:
            return opinions(self._ledger, name)

    def dismiss(self, name: str, *, who: str | None = None) -> None:
        """Stop a shadow; its opinions stay in the ledger."""
        self._ready()
        with self._mutex:
            with self._ledger.turn():
                dismiss(self._ledger, name)
                self._ledger.change(SHADOWS, {"dismissed": name}, who)
            self._shadows.drop(self._ledger, name)

    def promote(self, name: str, *, who: str | None = None) -> None:
        """Put a shadow in charge: it decides from now on, and `open` finds its agent in the folder.
        The history stays, as with `migrate`."""
        self._ready()
        with self._mutex:
            replica, former = self._shadows.take(self._ledger, name), self._replica
            replica.sync(self._ledger)
            former.forget(self._ledger)
            try:
                self._replica = replica
                with self._ledger.turn():
                    promote(self._ledger, name, replica)
                    self._ledger.change(SHADOWS, {"promoted": name}, who)
            finally:
                if differences(self._ledger.description, replica.setup.description):
                    self._replica = former  # it was not recorded
                else:
                    self._shadows.drop(self._ledger, name)
            replica.file, self._said = former.file, set()
            self.save()

    def retain(self, days: float | timedelta, *, who: str | None = None) -> int:
        """Remove decisions that are older than so many days, with their offers and outcomes;
        returns how many.

        The state keeps what it learned from them. It is now the base at which replays begin, since
        nothing before it can be replayed: a corrected outcome that it knows, and another agent
        (`migrate`), learn only what is left.
        """
        seconds = days.total_seconds() if isinstance(days, timedelta) else days
        if not isinstance(days, timedelta):
            seconds = float(checks.scalar("days", days, low=0.0)) * 86400
        checks.scalar("days", seconds, low=0.0)
        self._ready()
        with self._mutex:
            since = self._ledger.clock() - seconds
            if waiting := len(self._ledger.pending(before=since)):
                warnings.warn(
                    f"{waiting} decisions that go have no outcome yet, and can have none any more",
                    stacklevel=2,
                )
            removed = 0
            while part := self._ledger.retain(since, self._base_states):
                removed += part
            if removed:
                self._ledger.change(REMOVED, {"retained": seconds / 86400, "gone": removed}, who)
            return removed

    def erase(self, subject: str, *, keep: bool = False, who: str | None = None) -> int:
        """Remove the contexts, actions and outcomes of all decisions about a subject: from the log,
        and from later exports and backups; returns how many decisions.

        keep: whether the state keeps what it learned from them. Otherwise the history is learned
            again without them at the next decision.
        """
        checks.text("subject", subject)
        checks.flag("keep", keep)
        self._ready()
        with self._mutex:
            if not keep and (known := self._ledger.knows_only_base(subject)):
                warnings.warn(
                    f"{known} of their outcomes are known to the state from before decisions were "
                    "removed, and stay known to it: only Bandit.migrate begins without",
                    stacklevel=2,
                )
            erased = self._ledger.erase(subject, self._base_states if keep else None)
            if erased and not keep:
                self._control.forget(self._ledger)
            if erased:
                self._ledger.change(REMOVED, {"erased": erased, "known": keep}, who)
            return erased

    def _base_states(self) -> dict[str, bytes]:
        return base_states([self._replica, *self._shadows.replicas().values()], self._ledger)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the ledger as it is now to a new folder, from which a bandit can be opened."""
        self._ready()
        with self._mutex:
            self._ledger.backup(as_place(path))

    def save(self) -> None:
        """Write a snapshot of the state, so that the next opening need not replay so much."""
        self._ready()
        with self._mutex:
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
                if not self._ledger.closed and JAX.jax_enable_x64 is self._double:
                    self._save_or_warn()
                self._ledger.close()
            except BaseException:  # also an interrupt just before it is closed
                self._ledger.close()
                raise

    def __repr__(self) -> str:
        where = "in memory" if self._ledger.place is None else repr(public(self._ledger.place))
        agent = "the default agent" if self._replica.setup.recipe else repr(self._replica.agent)
        done = "closed" if self._ledger.closed else f"{self._ledger.decisions} decisions"
        return f"Bandit({where}, {agent}, {done})"

    def _repr_html_(self) -> str:
        said = "" if self._ledger.closed else self.summary()._repr_html_()
        return f"<code>{escape(repr(self))}</code>{said}"

    def __enter__(self) -> "Bandit":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@contextmanager
def parts(bandit: Bandit) -> Iterator[tuple[Replica, Ledger]]:
    """Its replica and its ledger, while no other thread changes them: for what reads a bandit."""
    bandit._ready()
    with bandit._mutex:
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
