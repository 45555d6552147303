"""One bandit as a process of the service has it: what is asked together is done together."""

import asyncio
import gc
import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..decide.setup import Options
from ..ledger.ledger import ID
from .decider import Decider, Later
from .reader import Reader
from .replicas import Replicas
from .types import Choose, Decision, Learn, Refused
from .updater import EVERY, Updater

logger = logging.getLogger("ensemble_sampling.serve")

DECIDERS, COMPILERS, UPDATERS = 8, 2, 4  # several, since one may wait for another process or disk
SETTLED = (0, 100, 2000)  # batches after which to freeze the objects there are
PACE = 0.1  # seconds from one step of learning to the next, at least
QUIET = 5.0  # seconds without a request or anything new, after which it is looked at less often
SELDOM = 1.0  # seconds between two looks then
PATIENCE = 30.0  # seconds that a request waits for its turn
AGAIN = 10.0  # seconds after which the same trouble is logged again
MOST = 64  # requests done in one transaction, lest the first of them wait too long
TROUBLE = ("it cannot learn or follow; the service's log says why", "the ledger does not answer")
ENDING = 10.0  # seconds for what is being done when it is closed


class Pool:
    """Threads that do jobs as they become due, the earliest first."""

    def __init__(self, name: str, size: int):
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._changed, self._ending = count(), threading.Condition(), False
        names = [f"{name}-{n}" for n in range(size)]
        self._threads = [threading.Thread(target=self._work, name=n, daemon=True) for n in names]
        self._begun = False

    def add(self, job: Callable[[], None], due: float = 0.0) -> None:
        """Do it in one of the threads, not before the time `due` of `time.monotonic`."""
        with self._changed:
            heapq.heappush(self._jobs, (due, next(self._order), job))
            self._changed.notify()
            begins, self._begun = not self._begun, True
        if begins:
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # the next job is another bandit's
                logger.exception("a job of the service failed")
            del job  # it may hold an engine that is closed before the next one comes

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._ending:
                wait = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._jobs)[2]
                self._changed.wait(wait)
            return None

    def close(self) -> None:
        """Let every thread end after its job; jobs not begun are dropped."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads if self._begun else ():
            thread.join(timeout=10)


class Pools:
    """The threads of a process, which all of its bandits share: those that decide and record,
    those that compile, and those that learn or follow."""

    def __init__(self) -> None:
        self.decide = Pool("decide", DECIDERS)
        self.compile = Pool("compile", COMPILERS)
        self.update = Pool("update", UPDATERS)
        self._batches = count()

    def settle(self) -> None:
        """Before a batch: after many of them, exempt the objects there are from garbage collection.
        They live as long as the process, and looking through them takes time."""
        if next(self._batches) in SETTLED:
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        for pool in (self.decide, self.compile, self.update):
            pool.close()


class Request(NamedTuple):
    """Decisions to be made, or outcomes to be learned, all of them or none."""

    decides: bool
    what: Sequence[Any]
    future: Future[list[Any]]


class Engine:
    """Decides and learns for one bandit.

    `decide` and `learn` are for the event loop; all other methods, and those of its parts, block
    and are called in threads. For one bandit, one thread at a time decides and records, by
    what another has learned, or has read of another process; a third compiles for offers unlike
    those before, while others are decided.

    place: a folder, or `postgresql://...#name`.
    options: the configuration of a bandit that is begun.
    candidates: agents that may become shadows, by name.
    learns: whether this process may become the one that learns.
    begins: whether to begin a bandit that is not there yet; else that is refused as unknown.
    pools: the threads; None: some of its own.
    """

    def __init__(
        self,
        name: str,
        place: Any,
        options: Options | None = None,
        candidates: Mapping[str, Any] | None = None,
        *,
        learns: bool = True,
        begins: bool = True,
        pools: Pools | None = None,
    ):
        self.name, self.replicas = name, Replicas(place, options, candidates, begins)
        self.decider = Decider(self.replicas)
        self.reader = Reader(place, self.decider)
        try:
            self.updater = Updater(self.replicas, place, learns)
        except BaseException:
            self.replicas.close()
            raise
        self.users, self.last = 0, time.monotonic()  # requests at it now; when there was one
        self._latencies: deque[float] = deque(maxlen=1000)  # seconds that decisions took
        self._changed = threading.Condition()  # over what follows
        self._queue: deque[Request] = deque()
        self._unanswered: set[Future[Any]] = set()
        self._working = False  # whether a thread sees to the queue, or was told to
        self._due = inf  # when to update next; -inf while it is updated
        self._woken = False  # whether there is something new since that was begun
        self._ending = False
        self._updating = threading.Lock()
        self.trouble: str | None = None  # what keeps it from learning or following, if anything
        self.away = False  # whether that is that the ledger does not answer
        self._doubtful = False  # whether it did not answer a request
        self._logged: dict[str, tuple[str, float]] = {}  # what was logged last, and when, by kind
        self._pools, self._alone = Pools() if pools is None else pools, pools is None
        self._update()
        self._plan(time.monotonic() + EVERY)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Around a request: it is not idle meanwhile, and a ledger that does not answer is nobody's
        mistake."""
        with self._changed:
            self.users, self.last = self.users + 1, time.monotonic()
        try:
            yield
        except OSError as error:
            raise self.unavailable(error) from error
        finally:
            with self._changed:
                self.users, self.last = self.users - 1, time.monotonic()

    async def decide(self, choices: Sequence[Choose]) -> list[Decision]:
        """All of them or none; on disk when it returns."""
        began = time.perf_counter()
        for one in choices:
            if one.event is not None and ID.fullmatch(one.event):  # outcomes are told by either
                said = f"an event must not look like a decision's own id, got {one.event!r}"
                raise Refused("invalid", said)
        made = await self._put(Request(True, choices, Future()))
        self._latencies.append(time.perf_counter() - began)
        return made

    async def learn(self, outcomes: Sequence[Learn]) -> list[bool]:
        """All of them or none: which of them were new. Told twice, an outcome counts once; where
        outcomes add up, one with the same `ref` does."""
        return await self._put(Request(False, outcomes, Future()))

    async def _put(self, request: Request) -> list[Any]:
        if not request.what:
            return []
        with self._changed:
            if self._ending:
                raise Refused("unavailable", "the service is ending")
            self._unanswered.add(request.future)
        request.future.add_done_callback(self._answered)
        self._submit(request)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.wrap_future(request.future)
        except TimeoutError as error:  # of a database that neither answers nor goes away
            raise self.unavailable(OSError(f"no answer within {PATIENCE:g} s")) from error

    def _answered(self, future: Future[Any]) -> None:
        with self._changed:
            self._unanswered.discard(future)
            self._changed.notify_all()

    def _submit(self, request: Request) -> None:
        with self._changed:
            self._queue.append(request)
            idle, self._working = not self._working, True
        if idle:
            self._pools.decide.add(self._work)

    def _work(self) -> None:
        """Do what has come together; one thread at a time."""
        self._pools.settle()
        with self._changed:
            batch = [self._queue.popleft() for _ in range(min(MOST, len(self._queue)))]
        waiting = [request for request in batch if not request.future.done()]  # others have gone
        if waiting:
            self._answer(waiting)
        with self._changed:
            again = self._working = bool(self._queue)
        if again:
            self._pools.decide.add(self._work)

    def _answer(self, batch: list[Request]) -> None:
        asks, tells = ([each for each in batch if each.decides is side] for side in (True, False))
        try:
            made, new = self.decider.work(
                [each.what for each in asks], [each.what for each in tells], hurry=True
            )
            answers = [*made, *new]
        except OSError as error:
            answers = [self.unavailable(error)] * len(batch)
        except Exception as error:  # a fault of ours; the others are not to suffer from it
            if len(batch) > 1:
                for request in batch:
                    self._answer([request])
                return
            answers = [error]
        for request, answer in zip([*asks, *tells], answers, strict=True):
            with suppress(InvalidStateError):  # it was given up meanwhile
                if isinstance(answer, Later):
                    self._prepare(answer.offer, 1, request)
                elif isinstance(answer, Exception):
                    request.future.set_exception(answer)
                else:
                    request.future.set_result(answer)
        if tells:
            self._wake()

    def _prepare(self, offer: Any, size: int, request: Request | None = None) -> None:
        """Compile for one offer of a new shape first, which somebody waits for, and then for two,
        four, ... at once: the smaller first, whichever bandit it is for."""

        def compiled() -> None:
            wanted = request is not None or not self._ending
            more = wanted and self.decider.prepare(offer, size)
            if request is not None:
                self._submit(request)
            if more and not self._ending:
                self._prepare(offer, 2 * size)

        self._pools.compile.add(compiled, due=size)  # long past, all of them

    def warm_soon(self) -> None:
        """Compile for offers like the last ones, when nobody waits for something else."""
        self._pools.compile.add(self.decider.warm, due=MOST)

    def _wake(self) -> None:
        """There is something to learn."""
        self._woken = True
        self._plan(time.monotonic())

    def _plan(self, due: float) -> None:
        """Update by then, unless that is to be done earlier, or is being done."""
        with self._changed:
            if due >= self._due:
                return
            self._due = due
        self._pools.update.add(partial(self._update_when, due), due)

    def _update_when(self, due: float) -> None:
        """Update, if no earlier time took the place of this one; and plan the next."""
        with self._changed:
            if self._ending or due != self._due or not self._updating.acquire(blocking=False):
                return
            self._due, self._woken = -inf, False
        try:
            self._update()
        finally:
            self._due = inf
            self._updating.release()
        quiet = time.monotonic() > max(self.updater.changed, self.last) + QUIET
        pause = SELDOM if quiet or self.trouble is not None else EVERY
        # Several outcomes are learned with less ado than one.
        self._plan(time.monotonic() + (PACE if self._woken else pause))

    def _update(self) -> None:
        """Learn or follow; what keeps it from that is said by `status`, and decisions go on by what
        is known."""
        try:
            self.updater.step()
            if self._doubtful:
                self.replicas.probe()  # which has a connection of its own
                self._doubtful = False
            self.trouble, self.away = None, False
            if self.updater.decisions and not self.updater.learning and not self.decider.warmed:
                self.warm_soon()  # for what others have been asked
        except Exception as error:
            ours = not isinstance(error, OSError | Refused)
            self._log("cannot learn or follow", error, ours)
            self.away = isinstance(error, OSError)
            # What else there is to it may say where the ledger is.
            self.trouble = str(error) if isinstance(error, Refused) else TROUBLE[self.away]

    def unavailable(self, error: OSError) -> Refused:
        """What to answer while the ledger does not. Where it is, and what it says, is for the
        log."""
        self._doubtful = True
        self._wake()
        self._log("the ledger does not answer", error)
        return Refused("unavailable", "the ledger does not answer: ask again")

    def _log(self, what: str, error: Exception, ours: bool = False) -> None:
        """Log trouble once, and again after a while."""
        said, now = str(error), time.monotonic()
        before, when = self._logged.get(what, ("", -inf))
        if said != before or now > when + AGAIN:
            self._logged[what] = said, now
            logger.error("%s: %s: %s", self.name, what, said, exc_info=error if ours else None)

    def status(self) -> dict[str, Any]:
        """Where this process stands. Cheap.

        learned: outcomes in the state that decides here, of `outcomes` in the ledger.
        behind: seconds, the age of the oldest outcome it does not know.
        learner: who learns, None for nobody; `learning`: whether that is this process.
        trouble: what keeps it from learning or following; None: nothing.
        floor: the share of decisions left to chance.
        latency: milliseconds of the last 1,000 decisions.
        """
        updater, took = self.updater, [*self._latencies] or [np.nan]
        low, high = 1000 * np.quantile(took, [0.5, 0.99])
        return {
            "decisions": updater.decisions,
            "outcomes": updater.outcomes,
            "learned": updater.known,
            "behind": updater.behind,
            "learner": updater.learner,
            "learning": updater.learning,
            "trouble": self.trouble,
            "floor": self.replicas.floor,
            "latency": {"p50": low, "p99": high},
        }

    def close(self) -> None:
        """Answer what is asked already, save what was learned, and let others learn."""
        with self._changed:
            self._ending = True
            self._changed.wait_for(lambda: not self._unanswered, timeout=ENDING)
            left = list(self._unanswered)
        for future in left:
            with suppress(InvalidStateError):
                future.set_exception(Refused("unavailable", "the service is ending"))
        held = self._updating.acquire(timeout=ENDING)
        try:
            self.updater.close()
        finally:
            self.replicas.close()
            if held:
                self._updating.release()
            if self._alone:
                self._pools.close()
