"""One bandit as a process of the service has it: what is asked together is done together."""

import asyncio
import logging
import queue
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from math import inf
from typing import Any, NamedTuple

from ..decide import overview
from ..decide.setup import Options
from ..decide.summary import summarize
from ..decide.transfer import export_history
from ..files import Damaged
from ..ledger.columns import columns, entry
from ..ledger.ledger import ID, Ledger
from . import admin, outcomes
from .decider import Decider, Later
from .http.types import encoded
from .outcomes import Report
from .pools import Pools
from .replicas import Replicas
from .types import Choice, ChoiceRequest, Refused, Settings
from .updater import EVERY, Updater

__all__ = ["Choice", "ChoiceRequest", "Engine", "Refused", "Settings"]

logger = logging.getLogger("ensemble_sampling.serve")

PACE = 0.1  # seconds from one step of learning to the next, at least
QUIET = 5.0  # seconds without a request or anything new, after which it is looked at less often
SELDOM = 1.0  # seconds between two looks then
PATIENCE = 30.0  # seconds that a request waits for its turn
AGAIN = 10.0  # seconds after which the same trouble is logged again
MOST = 64  # requests done in one transaction, lest the first of them wait too long
PAGE = 4_000_000  # bytes of JSON in one part of a log, unless a single decision takes more
TROUBLE = ("it cannot learn or follow; the service's log says why", "the ledger does not answer")
ENDING = 10.0  # seconds for what is being done when it is closed


class Request(NamedTuple):
    """What is asked in the event loop `loop`, where `future` waits for the answer."""

    kind: str
    what: Any
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Engine:
    """Decides and learns for one bandit.

    `decide` and `outcome` are for the event loop; all other methods block, and are to be called
    in a thread. Every one raises `Refused` for what is wrong with a request. The work is done by
    threads that all engines of a process share. For one bandit, one at a time decides and records,
    by what another has learned, or has read of another process; a third compiles for offers unlike
    those before, while others are decided.

    place: a folder, or `postgresql://...#name`.
    learns: whether this process may become the one that learns.
    begins: whether to begin a bandit that is not there yet; else that is refused as unknown.
    pools: the threads; None: some of its own.
    """

    def __init__(
        self,
        name: str,
        place: Any,
        agent: Any = None,
        *,
        actions: Sequence[Any] | None = None,
        floor: float | None = None,
        hasher: Any = None,
        candidates: Mapping[str, Any] | None = None,
        learns: bool = True,
        begins: bool = True,
        pools: Pools | None = None,
    ):
        self.name, self._place = name, place
        options = Options(agent, hasher=hasher, actions=actions, floor=floor)
        self._replicas = Replicas(place, options, candidates, begins)
        self._decider = Decider(self._replicas)
        try:
            self._updater = Updater(self._replicas, place, learns)
        except BaseException:
            self._replicas.close()
            raise
        self.users, self.last = 0, time.monotonic()  # requests at it now; when there was one
        self._asked: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._changed = threading.Condition()  # over what follows
        self._unanswered: dict[asyncio.Future[Any], Request] = {}
        self._working = False  # whether a thread sees to what is asked, or was told to
        self._due = inf  # when to learn or follow next; infinite while that is done
        self._woken = False  # whether there is something new since that was begun
        self._ending = False
        self._stepping = threading.Lock()
        self._seen, self._stirred = (0, 0), self.last  # what there was; when it last changed
        self._summarizing, self._summary = threading.Lock(), (0.0, {})
        self._said, self._told = ("", 0.0), 0.0  # what was logged last, and when
        self.trouble: str | None = None  # what keeps it from learning or following, if anything
        self.away = False  # whether that is that the ledger does not answer
        self._doubtful = False  # whether it did not answer somebody who asked
        self._pools, self._alone = Pools() if pools is None else pools, pools is None
        self._update()
        self._keep_at(time.monotonic() + EVERY)

    @property
    def began(self) -> bool:
        """Whether the bandit was begun by opening it here."""
        return self._replicas.began

    @property
    def waits(self) -> bool:
        """Whether outcomes are to be assumed here for decisions whose own do not come in time."""
        return self._updater.waits

    @contextmanager
    def used(self) -> Iterator[None]:
        """In the event loop, around a request: it is not idle meanwhile."""
        self.users, self.last = self.users + 1, time.monotonic()
        try:
            yield
        finally:
            self.users, self.last = self.users - 1, time.monotonic()

    def warm(self) -> None:
        """Compile for offers like the last ones, so that the first requests need not wait."""
        if not self._decider.warmup.done:
            self._decider.warmup.warm()

    def warm_soon(self) -> None:
        """The same when nobody waits for something else to be compiled."""
        self._pools.compile.add(self.warm, due=MOST)

    async def decide(self, asks: Sequence[ChoiceRequest]) -> list[Choice]:
        """All of them or none; on disk when it returns."""
        for ask in asks:
            if ask.event is not None and ID.fullmatch(ask.event):  # outcomes are told by either
                said = f"an event must not look like a decision's own id, got {ask.event!r}"
                raise Refused("invalid", said)
        return await self._put("decide", asks)

    async def outcome(self, outcomes: Sequence[Report]) -> list[bool]:
        """Learn (id of a decision or "event" or "event/slot", outcome, ref), all or none: which
        of them were new. Told twice, an outcome counts once; where outcomes add up, one with the
        same `ref` does."""
        return await self._put("outcome", outcomes)

    async def _put(self, kind: str, what: Any) -> Any:
        loop = asyncio.get_running_loop()
        request = Request(kind, what, loop.create_future(), loop)
        with self._changed:
            if self._ending:
                raise Refused("unavailable", "the service is ending")
            self._unanswered[request.future] = request
        self._ask(request)
        try:
            async with asyncio.timeout(PATIENCE):
                return await request.future
        except TimeoutError as error:  # of a database that neither answers nor goes away
            raise self._unavailable(OSError(f"no answer within {PATIENCE:g} s")) from error

    def _ask(self, request: Request) -> None:
        self._asked.put(request)
        with self._changed:
            call, self._working = not self._working, True
        if call:
            self._pools.decide.add(self._work)

    def _work(self) -> None:
        """Do what has come together; one thread at a time."""
        self._pools.settle()
        batch: list[Request] = []
        while len(batch) < MOST and not self._asked.empty():
            batch.append(self._asked.get())
        gone = [request for request in batch if request.future.done()]  # nobody waits any more
        self._answer([(request, None) for request in gone])
        waiting = [request for request in batch if not request.future.done()]
        if waiting:
            self._do(waiting)
        with self._changed:
            self._working = not self._asked.empty()
            again = self._working
        if again:
            self._pools.decide.add(self._work)

    def _do(self, batch: list[Request]) -> None:
        decisions = [request.what for request in batch if request.kind == "decide"]
        outcomes = [request.what for request in batch if request.kind == "outcome"]
        try:
            made, told = map(iter, self._decider.work(decisions, outcomes, hurry=True))
            answers = [next(made if request.kind == "decide" else told) for request in batch]
        except OSError as error:
            answers = [self._unavailable(error)] * len(batch)
        except Exception as error:  # a fault of ours; the others are not to suffer from it
            if len(batch) > 1:
                for request in batch:
                    self._do([request])
                return
            answers = [error]
        now = []
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Later):
                self._prepare(answer.offer, 1, request)
            else:
                now.append((request, answer))
        self._answer(now)
        if outcomes:
            self._wake()

    def _prepare(self, offer: Any, size: int, request: Request | None = None) -> None:
        """Compile for one offer of a new shape first, which somebody waits for, and then for two,
        four, ... at once: the smaller first, whichever bandit it is for."""

        def compiled() -> None:
            wanted = request is not None or not self._ending
            more = wanted and self._decider.warmup.prepare(offer, size)
            if request is not None:
                self._ask(request)
            if more and not self._ending:
                self._prepare(offer, 2 * size)

        self._pools.compile.add(compiled, due=size)  # long past, all of them

    def _answer(self, answers: list[tuple[Request, Any]]) -> None:
        """Hand answers back to the loops that wait, each loop woken once."""
        loops: dict[Any, list[Any]] = {}
        for request, answer in answers:
            loops.setdefault(request.loop, []).append((request.future, answer))
        for loop, pairs in loops.items():
            with suppress(RuntimeError):  # a loop that has ended waits for nothing
                loop.call_soon_threadsafe(_resolve, pairs)
        with self._changed:
            for request, _ in answers:
                self._unanswered.pop(request.future, None)
            self._changed.notify_all()

    def _wake(self) -> None:
        """There is something to learn."""
        with self._changed:
            self._woken = True
        self._keep_at(time.monotonic())

    def _keep_at(self, due: float) -> None:
        """Learn or follow by then, unless that is to be done earlier, or is being done."""
        with self._changed:
            if self._stepping.locked() or due >= self._due:
                return
            self._due = due
        self._pools.keep.add(partial(self._keep, due), due)

    def _keep(self, due: float) -> None:
        """Learn or follow, if no earlier time took the place of this one; and plan the next."""
        with self._changed:
            if self._ending or due != self._due or not self._stepping.acquire(blocking=False):
                return
            self._due, self._woken = inf, False
        try:
            self._update()
        finally:
            self._stepping.release()
        # Several outcomes are learned with less ado than one.
        self._keep_at(time.monotonic() + (PACE if self._woken else self._pause()))

    def _pause(self) -> float:
        """Seconds until the next look, where nobody calls."""
        now, there = time.monotonic(), (self._updater.decisions, self._updater.outcomes)
        if there != self._seen:
            self._seen, self._stirred = there, now
        if self.trouble is not None or now > max(self._stirred, self.last) + QUIET:
            return SELDOM
        return EVERY

    def _update(self) -> None:
        try:
            self._updater.step()
            if self._doubtful:
                self._replicas.probe()  # which has a connection of its own
                self._doubtful = False
            self.trouble, self.away = None, False
            if (
                self._updater.decisions
                and not self._updater.learning
                and not self._decider.warmup.done
            ):
                self.warm_soon()  # for what others have been asked
        except Exception as error:  # decisions go on by what is known; said by `status`
            ours, now = not isinstance(error, OSError | Refused), time.monotonic()
            if self.trouble is None or now > self._told + AGAIN:
                self._told = now
                logger.error("%s: cannot learn or follow: %s", self.name, error, exc_info=ours)
            self.away = isinstance(error, OSError)
            said = str(error) if isinstance(error, Refused) else TROUBLE[self.away]
            self.trouble = said  # what else there is to it may say where the ledger is

    @contextmanager
    def _away(self) -> Iterator[None]:
        """A ledger that cannot be reached is nobody's mistake."""
        try:
            yield
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> Refused:
        """Who asks is told that much; where the ledger is, and what it says, is for the log: once,
        and again after a while."""
        self._doubtful = True
        self._wake()
        now, said = time.monotonic(), str(error)
        if said != self._said[0] or now > self._said[1] + AGAIN:
            self._said = (said, now)
            logger.error("%s: the ledger does not answer: %s", self.name, said)
        return Refused("unavailable", "the ledger does not answer: ask again")

    @contextmanager
    def _reader(self) -> Iterator[Ledger]:
        """The ledger for a question that may take a while."""
        with self._away():
            ledger = Ledger(self._place, write=False)
            try:
                yield ledger
            finally:
                ledger.close()

    @property
    def settings(self) -> Settings:
        return self._replicas.settings

    def correct(self, id: str, outcome: Any) -> bool:
        with self._away():
            return outcomes.correct(self._replicas, id, outcome)

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        with self._away():
            return outcomes.add(self._replicas, id, amount, ref)

    def expire(self, older_than: float, outcome: Any) -> int:
        total, before = 0, time.time() - older_than
        with self._away():
            while found := outcomes.expire(self._replicas, before, outcome):
                total += found
        self._wake()
        return total

    def activate(self, event: str) -> bool:
        """A deferred decision counts from now on; False if it did already."""
        with self._away():
            return outcomes.activate(self._replicas, event)

    def predict(self, ask: ChoiceRequest) -> dict[str, Any]:
        """What a decision would be made of: names, probabilities, mean, spread."""
        with self._away():
            return self._decider.predict(ask)

    def page(self, first: int, count: int) -> tuple[dict[str, list[Any]], bool]:
        """The decisions first, first + 1, ... as columns, see `Bandit.log`, and whether there are
        more: so many, or as many as take a PAGE of JSON, but one at least."""
        entries, size = [], 0
        with self._reader() as ledger:
            end = min(first + count, ledger.decisions)
            for row in ledger.between(min(first, end), end):
                one = entry(row, ledger.decision_id)
                size += len(encoded(one))
                if entries and size > PAGE:
                    break
                entries.append(one)
            return columns(entries), first + len(entries) < ledger.decisions

    def pages(self, first: int, count: int) -> Iterator[dict[str, list[Any]]]:
        """The same decisions, page by page."""
        last, more = first + count, True
        while more and first < last:
            part, more = self.page(first, last - first)
            first += len(part["id"])
            yield part

    def summary(self) -> dict[str, Any]:
        """Of `decide.summary.Summary`, with its shadows as dictionaries; of a moment ago, where
        it takes long: it looks at the whole history."""
        with self._summarizing:
            due, found = self._summary
            if time.monotonic() < due:
                return found
            with self._away():
                times, warnings = self._replicas.diverged(), self._replicas.notices()
            began, worked = time.monotonic(), time.thread_time()
            with self._reader() as ledger:
                found = asdict(summarize(ledger, times, warnings=warnings))
            # Waiting counts little: a busy machine would make small summaries old ones.
            took = max(time.thread_time() - worked, (time.monotonic() - began) / 10)
            self._summary = (time.monotonic() + (20 * took if took > 0.1 else 0.0), found)
            return found

    def status(self) -> dict[str, Any]:
        """Where this process stands. Cheap.

        learned: outcomes in the state that decides here, of `outcomes` in the ledger.
        behind: seconds, the age of the oldest outcome it does not know.
        learner: who learns, None for nobody; `learning`: whether that is this process.
        trouble: what keeps it from learning or following; None: nothing.
        floor: the share of decisions left to chance.
        """
        updater = self._updater
        return {
            "decisions": updater.decisions,
            "outcomes": updater.outcomes,
            "learned": updater.known,
            "behind": updater.behind,
            "learner": updater.learner,
            "learning": updater.learning,
            "trouble": self.trouble,
            "floor": self._replicas.floor,
        }

    def history(self, buckets: int = 60) -> list[dict[str, Any]]:
        """Decisions over time in equal parts of it, oldest first: for each `time` (of its end),
        `decisions`, `outcomes`, `reward` and `stderr` (None where there is none), `agreement`,
        `pending`, `actions` (name: share)."""
        with self._reader() as ledger:
            return overview.history(ledger, buckets)

    def recent(self, count: int = 20) -> list[dict[str, Any]]:
        """The last decisions, newest first, and why: id, time, action, probability, outcome, and
        for every action on offer name, probability (the share of members that vote for it), mean
        and spread by what is known now, or None."""
        with self._reader() as ledger:
            return overview.recent(ledger, count, self._decider.value)

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes of the service."""
        with self._away():
            admin.configure(self._replicas, settings)

    def candidates(self) -> list[str]:
        """Names of agents that may become shadows."""
        return list(self._replicas.candidates)

    def candidate(self, name: str) -> Any:
        """The agent of that name, one of `candidates`."""
        if name not in self._replicas.candidates:
            raise Refused("unknown", f"there is no candidate {name!r}")
        return self._replicas.candidates[name]

    def in_charge(self) -> tuple[str, str]:
        """The agent that decides: the name it was promoted by, else "default", and as text."""
        return self._replicas.name, repr(self._replicas.options.agent)

    def keep(self, name: str, content: bytes | None) -> None:
        """Remember something small with the ledger, in all processes; None forgets it."""
        with self._away():
            admin.keep(self._replicas, name, content)

    def kept(self, prefix: str = "") -> dict[str, bytes]:
        """What was kept by names that begin so."""
        with self._reader() as ledger:
            found = ledger.setting(admin.KEPT) or {}
        return {n: b64decode(text) for n, text in found.items() if n.startswith(prefix)}

    def shadow(self, name: str) -> None:
        with self._away():
            admin.shadow(self._replicas, name)

    def dismiss(self, name: str) -> None:
        with self._away():
            admin.dismiss(self._replicas, name)

    def promote(self, name: str) -> None:
        with self._away():
            admin.promote(self._replicas, name)

    def export_state(self) -> bytes:
        """What it has learned from, as a file, see `transfer`."""
        with self._reader() as ledger:
            if not ledger.outcomes:
                raise Refused("unknown", "nothing has been learned yet")
            try:
                return export_history(ledger)
            except Damaged:
                raise
            except ValueError as error:
                raise Refused("conflict", str(error)) from error

    def import_state(self, content: bytes) -> None:
        """Learn what another bandit of the same configuration has learned from."""
        with self._away():
            admin.take_in(self._replicas, content)
        self._wake()

    def close(self) -> None:
        """Answer what is asked already, save what was learned, and let others learn."""
        with self._changed:
            self._ending = True
            self._changed.wait_for(lambda: not self._unanswered, timeout=ENDING)
            left = list(self._unanswered.values())
        ending = Refused("unavailable", "the service is ending")
        self._answer([(request, ending) for request in left])
        held = self._stepping.acquire(timeout=ENDING)
        try:
            self._updater.close()
        finally:
            self._replicas.close()
            if held:
                self._stepping.release()
            if self._alone:
                self._pools.close()


def _resolve(pairs: list[Any]) -> None:
    for future, answer in pairs:
        if future.done():  # whoever asked has gone
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
