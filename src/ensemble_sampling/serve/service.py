"""What one process of the service holds: its bandits' engines, who may call, and the limits."""

import asyncio
import ctypes
import gc
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from ..decide.baselines import Unruled
from ..decide.setup import Options
from ..files import Damaged
from ..inputs.offer import names_of
from ..ledger.locks import Held
from .agents import read_agents
from .engine import Engine, Pools
from .http.admission import Access, Limits
from .storage import DEFAULT, Storage, by_name
from .types import Refused, refusing

ROLES = ("both", "decide", "learn")
RETRY = 1.0  # seconds until a request tries again to open a bandit after a failure
IDLE = 300.0  # seconds without a request after which a bandit is closed
TENDED = 5.0  # seconds between two looks for idle bandits

logger = logging.getLogger("ensemble_sampling.serve")


class Failed(NamedTuple):
    """A bandit that could not be opened: when to try again, the error, and what to answer."""

    again: float
    said: str
    answer: str


def why(error: Exception) -> str:
    """Why a bandit cannot be opened, without the address of its ledger."""
    if isinstance(error, Held):
        return str(error.__cause__ or error)
    if isinstance(error, Damaged):
        return "its ledger is damaged; restore a backup"
    if isinstance(error, OSError):
        return "its ledger cannot be read or written; the service's log says why"
    if isinstance(error, Unruled):
        return str(error)
    return "it was begun with another configuration; the service's log says more"


def checked(place: str | os.PathLike[str], bandits: Iterable[str], role: str) -> Storage:
    """The storage of a service, after checking its options."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    found = Storage.of(place)
    if found.folder is not None and found.folder.exists() and not found.folder.is_dir():
        raise ValueError(f"expected a folder or a URL postgresql://..., and {place} is a file")
    for name in bandits:
        found.ledger(name)  # raises ValueError for a wrong name
    return found


def give_back() -> None:
    """Return the memory of closed bandits to the system, which the C library would keep."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Service:
    """Bandits by name, and the keys to them.

    place: a folder, or postgresql://...
    bandits: names of those to begin besides `default` and those there are.
    agents: a Python file, see `read_agents`.
    role: "both", "decide" or "learn": what this process does.
    local: whether only this machine can reach it: without any key it is then open.
    processes: how many serve together, sharing the rates.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        bandits: Iterable[str] = (),
        agents: str | os.PathLike[str] | None = None,
        role: str = "both",
        limits: Limits | None = None,
        local: bool = True,
        processes: int = 1,
    ):
        self.agents, self.role, self.limits = read_agents(agents), role, limits or Limits()
        self._wanted = list(dict.fromkeys([DEFAULT, *bandits, *self.agents.options]))
        self.storage = checked(place, self._wanted, role)
        self.access = Access(self.storage, local, self.limits.rate / processes)
        self.ready = False
        self.broken: BaseException | None = None  # why it could not start
        self.when_broken: Callable[[], None] = lambda: None
        self.evaluating = threading.Lock()
        self._pools = Pools()
        # Those of open bandits. Only the event loop changes it, while it holds the bandit's lock.
        self.engines: dict[str, Engine] = {}
        self._failed: dict[str, Failed] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closed = False  # whether a bandit was closed since memory was given back
        self._stopping = asyncio.Event()
        self._tending: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None

    @property
    def away(self) -> bool:
        """Whether no ledger answers, so that nothing can be decided."""
        engines = self.engines.values()
        return self.access.away or (bool(engines) and all(engine.away for engine in engines))

    @property
    def failed(self) -> list[str]:
        """The bandits whose last opening failed."""
        return sorted(self._failed, key=by_name)

    async def start(self) -> None:
        """Open the bandits of the options, or all there are if this process only learns; they
        decide when it returns."""
        if self.storage.folder is not None:
            self.storage.folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(self.access.start)
        errors = []
        for name in self._wanted:
            try:
                engine, _ = await self._open(name, self._options(name), begins=True)
            except (OSError, Damaged) as error:  # the others can be served
                self._fail(name, error)
                errors.append(error)
            else:
                await asyncio.to_thread(engine.decider.warm)
        if errors and {*await asyncio.to_thread(self.storage.names)} <= {*self._failed}:
            raise errors[0]  # there are no others
        if self.role == "learn":
            await self._open_all()
        self._tending = asyncio.create_task(self._tend())
        # The objects of now live as long as the process: exempt them from garbage collection.
        gc.collect()
        gc.freeze()
        self.ready = True

    def begin(self) -> asyncio.Task[None]:
        """Start in a task: until it is ready it answers that it is starting."""

        async def start() -> None:
            try:
                await self.start()
            except Exception as error:
                self.broken = error
                self.when_broken()

        self._starting = asyncio.create_task(start())
        return self._starting

    async def stop(self) -> None:
        """Close all bandits; what was answered is on disk already."""
        if self._starting is not None:
            self.ready = False
            await self._starting  # so that what it opens is closed
        self.ready = False
        self._stopping.set()
        if self._tending is not None:
            await self._tending  # it may be closing a bandit
        await asyncio.gather(*(self._close(name, ending=True) for name in [*self.engines]))
        self._pools.close()
        await asyncio.to_thread(self.access.stop)

    async def find(self, name: str) -> Engine:
        """The engine of a bandit, which is opened if necessary. It stays open if the caller enters
        `engine.used()` before it awaits anything else."""
        found = self.engines.get(name)
        if found is not None:
            return found
        self.check_ready()
        begins = name in self._wanted and name in self._failed  # it could not be begun yet
        if not begins and not await asyncio.to_thread(self.storage.exists, name):
            self._failed.pop(name, None)
            raise Refused("unknown", f"there is no bandit {name!r}")
        engine, _ = await self._open(name, self._options(name), begins)
        return engine

    def check_ready(self) -> None:
        if not self.ready:
            raise Refused("unavailable", "the service is starting")

    async def create(self, name: str, actions: list[str] | None, floor: float | None) -> bool:
        """Begin a bandit; False if it exists already."""
        with refusing():
            self.storage.ledger(name)
            if actions is not None:
                names_of(actions)
        self.check_ready()
        try:
            await self.find(name)
            return False
        except Refused as refused:
            if refused.kind != "unknown":
                raise
        given = {"actions": actions, "floor": floor}
        options = self._options(name)._replace(**{k: v for k, v in given.items() if v is not None})
        try:
            _, began = await self._open(name, options, begins=True)
            return began
        except Refused as refused:
            cause = refused.__cause__
            if isinstance(cause, Damaged) or not isinstance(cause, TypeError | ValueError):
                raise
            self._failed.pop(name, None)
            if not await asyncio.to_thread(self.storage.exists, name):  # its message has no address
                raise Refused("invalid", str(cause)) from cause
        await self.find(name)  # another process began it first, with other arguments
        return False

    def _options(self, name: str) -> Options:
        return self.agents.options.get(name, Options())

    async def _open(self, name: str, options: Options, begins: bool) -> tuple[Engine, bool]:
        """The engine of a bandit, opened if it is not; and whether this call began the bandit.

        All bandits are opened here. One that cannot be is tried again upon requests, at most once
        a second.
        """
        async with self._locks[name]:
            if name in self.engines:
                return self.engines[name], False
            if name in self._failed and time.monotonic() < self._failed[name].again:
                raise Refused("unavailable", self._failed[name].answer)
            await self._make_room()
            try:
                engine = await asyncio.to_thread(self._engine, name, options, begins)
            except (OSError, TypeError, ValueError) as error:
                if not self.ready:
                    raise
                raise self._fail(name, error) from error
            except Refused as refused:  # nobody has begun it, or not quite
                raise Refused(refused.kind, f"there is no bandit {name!r}") from refused
            engine.start(self._pools)
            self.engines[name] = engine
            if self._failed.pop(name, None) is not None:
                logger.warning("bandit %s is served again", name)
        return engine, engine.replicas.began

    def _fail(self, name: str, error: Exception) -> Refused:
        """What to answer for a bandit that cannot be opened. The log has the whole error once, with
        the address of the ledger."""
        said = str(error)
        if name not in self._failed or self._failed[name].said != said:
            logger.error("bandit %s cannot be served for now: %s", name, said)
        answer = f"bandit {name!r} cannot be served for now: {why(error)}"
        self._failed[name] = Failed(time.monotonic() + RETRY, said, answer)
        return Refused("unavailable", answer)

    def _engine(self, name: str, options: Options, begins: bool) -> Engine:
        place, candidates = self.storage.ledger(name), self.agents.candidates
        learns = self.role != "decide"
        rule = self.agents.rules.get(name)
        return Engine(name, place, options, candidates, rule, learns=learns, begins=begins)

    async def _open_all(self) -> None:
        """No request comes to a process that only learns, so it opens bandits by itself."""
        for name in await asyncio.to_thread(self.storage.names):
            with suppress(Refused):
                try:
                    await self._open(name, self._options(name), begins=False)
                except (OSError, TypeError, ValueError) as error:  # such as another agent
                    logger.warning("bandit %s cannot be served: %s", name, error)

    async def _make_room(self) -> None:
        """Close bandits where too many are open, first those longest without a request."""
        if self.role == "learn":
            return
        unused = sorted((e.last, name) for name, e in self.engines.items() if not e.users)
        for _, name in unused[: max(0, len(self.engines) + 1 - self.limits.open)]:
            await self._close(name)

    async def _close(self, name: str, ending: bool = False) -> None:
        """Close a bandit, so that another process may learn it; the next request opens it again."""
        async with self._locks[name]:
            engine = self.engines.get(name)
            if engine is None or (engine.users and not ending):
                return
            del self.engines[name]
            self._closed = True
            try:
                await engine.close()
            except (OSError, ValueError) as error:  # all that was answered is on disk
                logger.error("bandit %s could not be closed in order: %s", name, error)

    async def _tend(self) -> None:
        """Close bandits without requests for a while, unless outcomes are to be assumed for them
        later. A process that only learns opens new ones instead, for which no request comes."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(TENDED, IDLE / 4)):
                    await self._stopping.wait()
                    return
            if self.role == "learn":
                with suppress(OSError):  # the next time
                    await self._open_all()
                continue
            before = time.monotonic() - IDLE
            engines = self.engines.items()
            for name in [n for n, e in engines if e.last < before and not e.updater.waits]:
                await self._close(name)
            if self._closed:
                self._closed = False
                await asyncio.to_thread(give_back)
