"""What one process of the service holds: its bandits' engines, the keys, limits and counts."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..code import load
from .engine import Engine, Refused
from .keys import Keys, Ring
from .limits import Limits, Rates
from .places import DEFAULT, Place

ROLES = ("both", "decide", "learn")
AGAIN = 0.5  # seconds between two looks at the keys
SILENT = 3.0  # seconds without an answer to such a look, after which the database is away

logger = logging.getLogger("ensemble_sampling.serve")


class Spec(NamedTuple):
    """What a bandit is begun with; None: the default, or what its ledger says."""

    agent: Any = None
    actions: list[Any] | None = None
    floor: float | None = None
    hasher: Any = None


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


def checked(place: str | os.PathLike[str], bandits: Iterable[str], role: str) -> Place:
    """Where it is, if what is asked for can be."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    found = Place.of(place)
    if found.folder is not None and found.folder.exists() and not found.folder.is_dir():
        raise ValueError(f"expected a folder or a URL postgresql://..., and {place} is a file")
    for name in bandits:
        found.where(name)  # says what is wrong with it
    return found


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
        self.place = checked(place, bandits, role)
        self.role, self.local = role, local
        self.limits = limits or Limits()
        self.ring = Ring(Keys(self.place))
        self.rates = Rates(self.limits.rate, processes)
        self.agents = read_agents(agents)
        self.ready, self._heard = False, 0.0  # when the keys were last read
        self.broken: BaseException | None = None  # why it could not start
        self.evaluating = asyncio.Lock()
        self._engines: dict[str, Engine] = {}
        self._opening = asyncio.Lock()
        self._wanted = [DEFAULT, *bandits, *self.agents.specs]
        self._following: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self.when_broken: Callable[[], None] = lambda: None
        for name in self._wanted:
            self.place.where(name)  # says what is wrong with it

    def engine(self, name: str) -> Engine:
        """The engine of a bandit; raises `Refused`."""
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
        return all(engine.away for engine in self._engines.values())

    @property
    def names(self) -> list[str]:
        return sorted(self._engines, key=lambda name: (name != DEFAULT, name))

    @property
    def open(self) -> bool:
        """Whether no key is asked for: none was ever made, and only this machine can ask."""
        return self.local and self.ring.empty

    async def start(self) -> None:
        """Open all bandits; when it returns they decide."""
        await self._look()
        self._following = asyncio.create_task(self._follow())
        names = await asyncio.to_thread(self.place.names)
        for name in dict.fromkeys(self._wanted):
            await self._open(name, self.agents.specs.get(name, Spec()))
        for name in names:
            try:
                await self._open(name, self.agents.specs.get(name, Spec()))
            except (ValueError, TypeError) as error:  # begun with an agent that nobody declared
                logger.warning("bandit %s cannot be served: %s", name, error)
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
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        async with self._opening:
            engines, self._engines = self._engines, {}
            for engine in engines.values():
                await asyncio.to_thread(engine.close)
        self.ring.keys.close()

    async def __aenter__(self) -> "Service":
        await self.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.stop()

    async def find(self, name: str) -> Engine:
        """The engine of a bandit, also of one that another process has begun."""
        if name not in self._engines and self.ready:
            if not await asyncio.to_thread(self.place.exists, name):
                raise Refused("unknown", f"there is no bandit {name!r}")
            await self._open(name, self.agents.specs.get(name, Spec()))
        return self.engine(name)

    async def create(self, name: str, actions: list[str] | None, floor: float | None) -> bool:
        """Begin a bandit; False if there is one already."""
        try:
            self.place.where(name)
        except ValueError as error:
            raise Refused("invalid", str(error)) from error
        if not self.ready:
            raise Refused("unavailable", "the service is starting")
        if name in self._engines or await asyncio.to_thread(self.place.exists, name):
            await self.find(name)
            return False
        declared = self.agents.specs.get(name, Spec())
        spec = Spec(
            declared.agent,
            declared.actions if actions is None else actions,
            declared.floor if floor is None else floor,
            declared.hasher,
        )
        await self._open(name, spec)
        return True

    async def _open(self, name: str, spec: Spec) -> None:
        async with self._opening:
            if name not in self._engines:
                try:
                    self._engines[name] = await asyncio.to_thread(self._engine, name, spec)
                except (ValueError, TypeError) as error:
                    if not self.ready:
                        raise
                    raise Refused("invalid", str(error)) from error
                except OSError as error:
                    if not self.ready:
                        raise
                    raise Refused("unavailable", str(error)) from error

    def _engine(self, name: str, spec: Spec) -> Engine:
        """The one place where engines are made."""
        return Engine(
            name,
            self.place.where(name),
            spec.agent,
            actions=spec.actions,
            floor=spec.floor,
            hasher=spec.hasher,
            candidates=self.agents.candidates,
            learns=self.role != "decide",
        )

    async def _follow(self) -> None:
        """Keys made or revoked elsewhere hold here within a second."""
        trouble = ""
        while True:
            await asyncio.sleep(AGAIN)
            try:
                await self._look()
                trouble = ""
            except OSError as error:  # the keys known so far go on being known
                self._heard = -SILENT
                if trouble != (trouble := str(error)):
                    logger.warning("%s", trouble)

    async def _look(self) -> None:
        await asyncio.to_thread(self.ring.refresh)
        self._heard = time.monotonic()
