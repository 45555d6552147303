"""The threads that serve one bandit: requests that wait at the same time are done in one batch."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..decide.setup import Options
from ..ledger.ledger import ID
from .decider import Decider, Later
from .reader import Reader
from .replicas import Replicas
from .types import Choose, Decision, Learn, Refused
from .updater import EVERY, Updater

T = TypeVar("T")
logger = logging.getLogger("ensemble_sampling.serve")

PACE = 0.1  # seconds between two updates, at least
QUIET = 5.0  # seconds without requests and news, after which updates become rare
SELDOM = 1.0  # seconds between two updates then
PATIENCE = 30.0  # seconds that a request waits for its turn
BEHIND = 60.0  # seconds that a state may be behind before that is said
AGAIN = 10.0  # seconds after which the same trouble is logged again
BATCH = 64  # requests in one transaction, so that the first does not wait too long
TROUBLE = ("it cannot learn or follow; the service's log says why", "the ledger does not answer")
ENDING = 10.0  # seconds to finish what is under way when it is closed


class Pools:
    """The threads of a process, shared by its bandits. There are several of each kind, since one
    may wait for another process or for the disk."""

    def __init__(self) -> None:
        self.decide = ThreadPoolExecutor(8, "decide")
        self.compile = ThreadPoolExecutor(2, "compile")  # programs that a request waits for
        self.prepare = ThreadPoolExecutor(1, "prepare")  # programs that requests may need later
        self.update = ThreadPoolExecutor(4, "update")

    def close(self) -> None:
        for pool in (self.decide, self.compile, self.prepare, self.update):
            pool.shutdown(wait=False, cancel_futures=True)


class Request(NamedTuple):
    """Decisions to be made, or outcomes to be learned, all of them or none."""

    decides: bool
    what: Sequence[Any]
    future: asyncio.Future[list[Any]]


class Engine:
    """Decides and learns for one bandit.

    Its coroutines, `start` and `used` belong to the event loop. Its parts block, and so does making
    an engine: they are called in threads. One thread at a time decides and records; a second one
    learns, or reads what another process has learned; a third compiles programs for offers of a new
    shape, while offers of known shapes are decided.

    place: a folder, or `postgresql://...#name`.
    options: the configuration of a bandit that is begun.
    candidates: agents that may become shadows, by name.
    rule: the function that decides for the control group, if it is one.
    learns: whether this process may become the one that learns.
    begins: whether to begin a bandit that is not there yet; else that is refused as unknown.
    """

    def __init__(
        self,
        name: str,
        place: Any,
        options: Options | None = None,
        candidates: Mapping[str, Any] | None = None,
        rule: Any = None,
        *,
        learns: bool = True,
        begins: bool = True,
    ):
        self.name, self.replicas = name, Replicas(place, options, candidates, rule, begins)
        self.decider = Decider(self.replicas)
        self.reader = Reader(place, self.decider)
        try:
            self.updater = Updater(self.replicas, place, learns)
        except BaseException:
            self.replicas.close()
            raise
        self.users, self.last = 0, time.monotonic()  # requests under way; the time of the last
        self._counting = threading.Lock()
        self._latencies: deque[float] = deque(maxlen=1000)  # seconds that decisions took
        self._queue: deque[Request] = deque()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()  # a task needs a reference
        self._working = self._warming = self._ending = False
        self._woken = asyncio.Event()  # there is something to learn
        self.trouble: str | None = None  # what keeps it from learning or following, if anything
        self.away = False  # whether the trouble is that the ledger does not answer
        self._doubtful = False  # whether a request found that the ledger does not answer
        self._logged: dict[str, tuple[str, float]] = {}  # what was logged last, and when, by kind
        self._update()

    def start(self, pools: Pools) -> None:
        """Begin to answer requests and to update, with these threads."""
        self._pools = pools
        self._updating = self._begin(self._update_often())

    def _begin(self, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextmanager
    def used(self) -> Iterator[None]:
        """Around a request: the engine is not idle meanwhile, and an `OSError` of the ledger
        becomes a refusal."""
        with self._counting:
            self.users, self.last = self.users + 1, time.monotonic()
        try:
            yield
        except OSError as error:
            raise self.unavailable(error) from error
        finally:
            with self._counting:
                self.users, self.last = self.users - 1, time.monotonic()

    async def decide(self, choices: Sequence[Choose]) -> list[Decision]:
        """Make decisions, all of them or none; they are on disk when it returns."""
        began = time.perf_counter()
        for one in choices:
            if one.event is not None and ID.fullmatch(one.event):  # an outcome names either
                said = f"an event must not look like a decision's own id, got {one.event!r}"
                raise Refused("invalid", said)
        made = await self._ask(True, choices)
        self._latencies.append(time.perf_counter() - began)
        return made

    async def learn(self, outcomes: Sequence[Learn]) -> list[bool]:
        """Record outcomes, all of them or none; which of them were new. An outcome that comes twice
        counts once; where outcomes add up, one with the same `ref` does."""
        return await self._ask(False, outcomes)

    async def _ask(self, decides: bool, what: Sequence[Any]) -> list[Any]:
        if not what:
            return []
        if self._ending:
            raise Refused("unavailable", "the service is ending")
        request = Request(decides, what, asyncio.get_running_loop().create_future())
        self._unanswered.add(request.future)
        request.future.add_done_callback(self._unanswered.discard)
        self._submit(request)
        try:
            async with asyncio.timeout(PATIENCE):
                return await request.future
        except TimeoutError as error:  # the database neither answers nor disconnects
            raise self.unavailable(OSError(f"no answer within {PATIENCE:g} s")) from error

    def _submit(self, request: Request) -> None:
        self._queue.append(request)
        if not self._working:
            self._working = True
            self._begin(self._work())

    async def _work(self) -> None:
        """Answer what is in the queue, batch by batch."""
        while self._queue:
            several = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            batch = [
                request for request in several if not request.future.done()
            ]  # or the caller left
            answers = await self._run(self._pools.decide, self._do, batch) if batch else []
            for request, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Later):
                    self._begin(self._compile(answer.offer, request))
                elif request.future.done():  # the caller left meanwhile
                    continue
                elif isinstance(answer, Exception):
                    request.future.set_exception(answer)
                else:
                    request.future.set_result(answer)
            for offer in self.decider.missing():
                self._begin(self._compile(offer))
            if not all(request.decides for request in batch):
                self._woken.set()
        self._working = False

    def _do(self, batch: list[Request]) -> list[Any]:
        """In a thread: the answer to each request, which may be an error or `Later`."""
        asks, tells = ([r.what for r in batch if r.decides is side] for side in (True, False))
        try:
            made, new = map(iter, self.decider.work(asks, tells, hurry=True))
            return [next(made if request.decides else new) for request in batch]
        except OSError as error:
            return [self.unavailable(error)] * len(batch)
        except Exception as error:  # a fault of ours must not harm the other requests
            if len(batch) == 1:
                return [error]
            return [answer for request in batch for answer in self._do([request])]

    async def _run(self, pool: ThreadPoolExecutor, job: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, job, *given)

    async def _compile(self, offer: Any, request: Request | None = None) -> None:
        """Compile for one offer of a new shape, for which the request waits if there is one, and
        then for two, four, ... at once."""
        more, size = await self._run(self._pools.compile, self.decider.prepare, offer, 1), 2
        if request is not None:
            self._submit(request)
        while more and not self._ending:
            more = await self._run(self._pools.prepare, self.decider.prepare, offer, size)
            size *= 2

    async def _update_often(self) -> None:
        """Update soon when there is something to learn, else now and then."""
        while not self._ending:
            self._woken.clear()
            await self._run(self._pools.update, self._update)
            if self.updater.decisions and not self._warming:
                self._warming = True
                self._begin(self._run(self._pools.prepare, self.decider.warm))
            quiet = time.monotonic() > max(self.updater.changed, self.last) + QUIET
            pause = SELDOM if quiet or self.trouble is not None else EVERY
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await asyncio.sleep(PACE)  # several outcomes cost less than one by one
                    await self._woken.wait()

    def _update(self) -> None:
        """In a thread: learn or follow. If that fails, `status` says why, and decisions go on by
        the present state."""
        try:
            self.updater.step()
            if self._doubtful:
                self.replicas.load()  # by the connection that decides
                self._doubtful = False
            self.trouble, self.away = None, False
        except Exception as error:
            self._log("cannot learn or follow", error)
            self.away = isinstance(error, OSError)
            # The message of another error may have the address of the ledger.
            self.trouble = str(error) if isinstance(error, Refused) else TROUBLE[self.away]

    def unavailable(self, error: OSError) -> Refused:
        """The answer while the ledger gives none. The error, which may have the ledger's address,
        is for the log."""
        self._doubtful = True
        self._log("the ledger does not answer", error)
        return Refused("unavailable", "the ledger does not answer: ask again")

    def _log(self, what: str, error: Exception) -> None:
        """Log trouble once, and again after a while."""
        said, now = str(error), time.monotonic()
        before, when = self._logged.get(what, ("", -inf))
        if said != before or now > when + AGAIN:
            self._logged[what] = said, now
            ours = not isinstance(error, OSError | Refused)
            logger.error("%s: %s: %s", self.name, what, said, exc_info=error if ours else None)

    def status(self) -> dict[str, Any]:
        """The state of the bandit in this process, without any query.

        learned: outcomes in the state that decides here, of `outcomes` in the ledger.
        behind: seconds, the age of the oldest outcome it does not know.
        learner: who learns, None for nobody; `learning`: whether that is this process.
        trouble: what keeps it from learning or following; None: nothing.
        floor: the share of decisions left to chance; holdback: to the baseline.
        health: what is wrong, a sentence by kind, see `decide.health`.
        restarts: how often models started again because the world changed.
        latency: milliseconds of the last 1,000 decisions.
        """
        updater, took = self.updater, [*self._latencies] or [np.nan]
        health = dict(updater.health)
        if updater.behind > BEHIND:
            health["behind"] = (
                f"the state that decides does not know outcomes of {updater.behind:.0f} s ago: "
                "look at `trouble`, at the learner's process and at its load"
            )
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
            "holdback": self.replicas.control.share,
            "health": health,
            "restarts": updater.restarts,
            "latency": {"p50": low, "p99": high},
        }

    async def close(self) -> None:
        """Answer the requests under way, save what was learned, and let another process learn."""
        self._ending = True
        self._woken.set()
        if self._unanswered:
            await asyncio.wait(self._unanswered, timeout=ENDING)
        for future in self._unanswered.copy():
            future.set_exception(Refused("unavailable", "the service is ending"))
        await asyncio.wait([self._updating], timeout=ENDING)
        try:
            await asyncio.to_thread(self.updater.close)
        finally:
            await asyncio.to_thread(self.replicas.close)
