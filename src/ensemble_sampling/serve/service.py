"""What one process of the service holds: its bandits' engines, the keys, limits and counts."""

import asyncio
import ctypes
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..code import load
from ..files import Damaged
from ..inputs.offer import names_of
from ..ledger.locks import Held
from .engine import Engine, Refused
from .http.keys import KeyCache, Keys
from .http.limits import Limits, Rates
from .pools import Pools
from .storage import DEFAULT, Storage, by_name

ROLES = ("both", "decide", "learn")
AGAIN = 0.5  # seconds between two looks at the keys
RETRY = 1.0  # seconds after which a bandit that could not be opened is tried again, if asked for
IDLE = 300.0  # seconds after which a bandit that nobody asks is closed
TENDED = 5.0  # seconds between two looks for such
SILENT = 3.0  # seconds without an answer to such a look, after which the database is away

logger = logging.getLogger("ensemble_sampling.serve")


class Spec(NamedTuple):
    """What a bandit is begun with; None: the default, or what its ledger says."""

    agent: Any = None
    actions: list[Any] | None = None
    floor: float | None = None
    hasher: Any = None


class Failed(NamedTuple):
    """A bandit that could not be opened: when to try again, why it was, and what to answer."""

    again: float
    said: str
    answer: str


def why(error: Exception) -> str:
    """Why a bandit cannot be opened, without saying where it is."""
    if isinstance(error, Held):
        return str(error.__cause__ or error)
    if isinstance(error, Damaged):
        return "its ledger is damaged; restore a backup"
    return "its ledger cannot be read or written; the service's log says why"


class Agents(NamedTuple):
    """What a file of the user's declares."""

    specs: dict[str, Spec]
    candidates: dict[str, Any]


def read_agents(path: str | os.PathLike[str] | None) -> Agents:
    """AGENTS = {name: agent, or {"agent": ..., "actions": ..., "floor": ..., "hasher": ...}} and
    CANDIDATES = {name: agent} of a Python file; one of them will do."""
    if path is None:
        return Agents({}, {})
    found = vars(load(path))
    if "AGENTS" not in found and "CANDIDATES" not in found:
        raise ValueError(f"{path} must define AGENTS = {{name: agent}} or CANDIDATES; has neither")
    for what in ("AGENTS", "CANDIDATES"):
        if not isinstance(found.get(what, {}), Mapping):
            raise ValueError(f"{path} must define {what} = {{name: agent}}; got {found[what]!r}")
    specs = {str(name): _spec(name, given) for name, given in found.get("AGENTS", {}).items()}
    return Agents(specs, {str(name): given for name, given in found.get("CANDIDATES", {}).items()})


def _spec(name: str, given: Any) -> Spec:
    if not isinstance(given, Mapping):
        return Spec(given)
    unknown = set(given) - set(Spec._fields)
    if unknown:
        raise ValueError(
            f"AGENTS[{name!r}] may have {', '.join(Spec._fields)}; got {sorted(unknown)}"
        )
    return Spec(**given)


def checked(place: str | os.PathLike[str], bandits: Iterable[str], role: str) -> Storage:
    """Where it is, if what is asked for can be."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    found = Storage.of(place)
    if found.folder is not None and found.folder.exists() and not found.folder.is_dir():
        raise ValueError(f"expected a folder or a URL postgresql://..., and {place} is a file")
    for name in bandits:
        found.ledger(name)  # says what is wrong with it
    return found


def give_back() -> None:
    """Return memory that is free to the system, where the C library would keep it: what bandits
    took that are closed."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Service:
    """Bandits by name, and who may ask them.

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
        self.storage = checked(place, bandits, role)
        self.role, self.local = role, local
        self.limits = limits or Limits()
        self.keys = KeyCache(Keys(self.storage))
        self.rates = Rates(self.limits.rate, processes)
        self.agents = read_agents(agents)
        self.ready, self._heard = False, 0.0  # when the keys were last read
        self.broken: BaseException | None = None  # why it could not start
        self.evaluating = asyncio.Lock()
        self._pools = Pools()
        # Those that are open. Only the event loop changes it, under the lock of the bandit.
        self._engines: dict[str, Engine] = {}
        self._failed: dict[str, Failed] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wanted = list(dict.fromkeys([DEFAULT, *bandits, *self.agents.specs]))
        self._closed = False  # whether any was since memory was given back
        self._ended = threading.Event()
        self._following = threading.Thread(target=self._follow, name="keys", daemon=True)
        self._tending: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self.when_broken: Callable[[], None] = lambda: None
        for name in self._wanted:
            self.storage.ledger(name)  # says what is wrong with it

    def engine(self, name: str) -> Engine:
        """The engine of a bandit that is open; raises `Refused`."""
        found = self._engines.get(name)
        if found is not None:
            return found
        if not self.ready:
            raise Refused("unavailable", "the service is starting")
        raise Refused("unknown", f"there is no bandit {name!r}")

    @property
    def away(self) -> bool:
        """Whether nothing can be decided, since no ledger answers. The keys are in the same place:
        they say so also of a database that neither answers nor goes away."""
        if time.monotonic() > self._heard + SILENT:
            return True
        engines = self._engines.values()
        return bool(engines) and all(engine.away for engine in engines)

    @property
    def engines(self) -> dict[str, Engine]:
        """Those that are open in this process, by name."""
        return {name: self._engines[name] for name in sorted(self._engines, key=by_name)}

    @property
    def open(self) -> bool:
        """Whether no key is asked for: none was ever made, and only this machine can ask."""
        return self.local and self.keys.empty

    async def start(self) -> None:
        """Open the bandits that were asked for, and where others only decide, all that there are;
        when it returns they decide."""
        first: Exception | None = None
        await asyncio.to_thread(self._look)
        self._following.start()
        for name in self._wanted:
            try:
                engine, _ = await self._open(name, self._spec(name), begins=True)
            except (OSError, Damaged) as error:  # the others are served all the same
                self._fail(name, error)
                first = first or error
            else:
                await asyncio.to_thread(engine.warm)
        if first is not None and {*await asyncio.to_thread(self.storage.names)} <= {*self._failed}:
            raise first  # there are no others
        if self.role == "learn":
            await self._open_all()
        self._tending = asyncio.create_task(self._tend())
        self.ready = True

    def begin(self) -> asyncio.Task[None]:
        """Start without waiting: until it is ready it answers that it is not."""

        async def started() -> None:
            try:
                await self.start()
            except Exception as error:
                self.broken = error
                self.when_broken()

        self._starting = asyncio.create_task(started())
        return self._starting

    async def stop(self) -> None:
        """Close what is open; whatever was answered is on disk already."""
        self.ready = False
        if self._starting is not None:
            await self._starting  # what is being opened has to be closed
        self.ready = False
        self._ended.set()
        if self._tending is not None:
            self._tending.cancel()
            with suppress(asyncio.CancelledError):
                await self._tending
        await asyncio.gather(*(self._close(name, ending=True) for name in [*self._engines]))
        await asyncio.to_thread(self._pools.close)
        if self._following.ident is not None:
            await asyncio.to_thread(self._following.join, 5.0)
        self.keys.store.close()

    async def __aenter__(self) -> "Service":
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop()

    async def find(self, name: str) -> Engine:
        """The engine of a bandit, opened if it is not. Who goes on with it without waiting in
        between, `with engine.used()`, has it open until then."""
        found = self._engines.get(name)
        if found is not None:
            return found
        if not self.ready:
            raise Refused("unavailable", "the service is starting")
        begins = name in self._wanted and name in self._failed  # it is still to be begun
        if not begins and not await asyncio.to_thread(self.storage.exists, name):
            self._failed.pop(name, None)
            raise Refused("unknown", f"there is no bandit {name!r}")
        engine, _ = await self._open(name, self._spec(name), begins)
        return engine

    async def create(self, name: str, actions: list[str] | None, floor: float | None) -> bool:
        """Begin a bandit; False if there is one already, whoever began it, and when."""
        declared = self._spec(name)
        try:
            self.storage.ledger(name)
            if actions is not None:
                names_of(actions)
        except ValueError as error:
            raise Refused("invalid", str(error)) from error
        if not self.ready:
            raise Refused("unavailable", "the service is starting")
        try:
            await self.find(name)
            return False
        except Refused as refused:
            if refused.kind != "unknown":
                raise
        given = {"actions": actions, "floor": floor}
        spec = declared._replace(**{k: v for k, v in given.items() if v is not None})
        try:
            _, began = await self._open(name, spec, begins=True)
            return began
        except Refused as refused:
            cause = refused.__cause__
            if not isinstance(cause, TypeError | ValueError):
                raise
            if not await asyncio.to_thread(self.storage.exists, name):  # so that it says no place
                raise Refused("invalid", str(cause)) from cause
        await self.find(name)  # another process was first, and began it otherwise
        return False

    def _spec(self, name: str) -> Spec:
        return self.agents.specs.get(name, Spec())

    async def _open(self, name: str, spec: Spec, begins: bool) -> tuple[Engine, bool]:
        """The engine of a bandit, opened if it is not; and whether this call began the bandit.

        The one place where bandits are opened. One that could not be is tried again when it is
        asked for again, but not more often than once a second.
        """
        async with self._locks[name]:
            if name in self._engines:
                return self._engines[name], False
            if name in self._failed and time.monotonic() < self._failed[name].again:
                raise Refused("unavailable", self._failed[name].answer)
            await self._make_room()
            try:
                engine = await asyncio.to_thread(self._engine, name, spec, begins)
            except (OSError, Damaged) as error:
                if not self.ready:
                    raise
                raise self._fail(name, error) from error
            except (TypeError, ValueError) as error:  # for the log: it may say where the ledger is
                if not self.ready:
                    raise
                logger.error("bandit %s cannot be opened: %s", name, error)
                said = f"bandit {name!r} cannot be opened; the service's log says why"
                raise Refused("unavailable", said) from error
            except Refused as refused:  # somebody is about to begin it, or never did
                raise Refused(refused.kind, f"there is no bandit {name!r}") from refused
            self._engines[name] = engine
            if self._failed.pop(name, None) is not None:
                logger.warning("bandit %s is served again", name)
        if self.ready:
            engine.warm_soon()
        return engine, engine.began

    def _fail(self, name: str, error: Exception) -> Refused:
        """What to answer for a bandit that cannot be opened. The log has it all, once: there it may
        be said where the ledger is."""
        said = str(error)
        if name not in self._failed or self._failed[name].said != said:
            logger.error("bandit %s cannot be served for now: %s", name, said)
        answer = f"bandit {name!r} cannot be served for now: {why(error)}"
        self._failed[name] = Failed(time.monotonic() + RETRY, said, answer)
        return Refused("unavailable", answer)

    @property
    def failed(self) -> list[str]:
        """The bandits that could not be opened when they were last asked for."""
        return sorted(self._failed, key=by_name)

    def _engine(self, name: str, spec: Spec, begins: bool) -> Engine:
        return Engine(
            name,
            self.storage.ledger(name),
            spec.agent,
            actions=spec.actions,
            floor=spec.floor,
            hasher=spec.hasher,
            candidates=self.agents.candidates,
            learns=self.role != "decide",
            begins=begins,
            pools=self._pools,
        )

    async def _open_all(self) -> None:
        """Nobody asks a process that only learns, and what it does not open nobody learns."""
        for name in await asyncio.to_thread(self.storage.names):
            with suppress(Refused):
                try:
                    await self._open(name, self._spec(name), begins=False)
                except (OSError, TypeError, ValueError) as error:  # perhaps begun with an agent
                    # that nobody declared
                    logger.warning("bandit %s cannot be served: %s", name, error)

    async def _make_room(self) -> None:
        """Close the bandits longest not asked for, where too many are open."""
        if self.role == "learn":
            return
        unused = sorted((e.last, name) for name, e in self._engines.items() if not e.users)
        for _, name in unused[: max(0, len(self._engines) + 1 - self.limits.open)]:
            await self._close(name)

    async def _close(self, name: str, ending: bool = False) -> None:
        """Let another process learn, and this one forget; the next request opens it again."""
        async with self._locks[name]:
            engine = self._engines.get(name)
            if engine is None or (engine.users and not ending):
                return
            del self._engines[name]
            self._closed = True
            try:
                await asyncio.to_thread(engine.close)
            except (OSError, ValueError) as error:  # all that was answered is on disk
                logger.error("bandit %s could not be closed in order: %s", name, error)

    async def _tend(self) -> None:
        """Close bandits that nobody has asked for a while, unless there is something to be done
        for them at its time; look for new ones, where nobody would ask for them."""
        while True:
            await asyncio.sleep(min(TENDED, IDLE / 4))
            if self.role == "learn":
                with suppress(OSError):  # the next time
                    await self._open_all()
                continue
            before = time.monotonic() - IDLE
            idle = [n for n, e in self._engines.items() if e.last < before and not e.waits]
            for name in idle:
                await self._close(name)
            if self._closed:
                self._closed = False
                await asyncio.to_thread(give_back)

    def _follow(self) -> None:
        """Keys made or revoked elsewhere hold here within a second, whatever else is going on: in
        a thread of its own, which waits behind no request."""
        trouble = ""
        while not self._ended.wait(AGAIN):
            try:
                self._look()
                trouble = ""
            except OSError as error:  # the keys known so far go on being known
                self._heard = -SILENT
                if trouble != (trouble := str(error)):
                    logger.warning("%s", trouble)

    def _look(self) -> None:
        self.keys.refresh()
        if self.ready:
            self.storage.check()
        self._heard = time.monotonic()
