"""One bandit as a process of the service has it: what is asked at the same time is done together."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..decide.bandit import Bandit


class Refused(Exception):
    """A request that cannot be met.

    kind: "invalid" (400), "unknown" (404), "conflict" (409) or "unavailable" (503).
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be decided.

    actions: descriptions or rows by name, or in a list; None where the bandit has fixed ones.
    available: names (or truth values) of those that may be chosen; None for all.
    event: the caller's own id: asked again, it gets the same answer. None: it needs no other id
        than the decision's.
    slot: which of several decisions of one event.
    deferred: not learned from before it is activated.
    """

    actions: Any = None
    context: Any = None
    available: Any = None
    event: str | None = None
    slot: str = ""
    deferred: bool = False


class Made(NamedTuple):
    """A decision that was recorded."""

    id: str
    event: str | None
    slot: str
    index: int
    action: Any  # its name, or its index where actions have none
    names: Sequence[Any] | None  # of all actions on offer
    probabilities: np.ndarray  # of all actions on offer
    mean: np.ndarray | None = None  # what each is expected to bring
    spread: np.ndarray | None = None
    time: float = 0.0
    again: bool = False  # it was made by an earlier request

    @property
    def probability(self) -> float:
        return float(self.probabilities[self.index])


@dataclass(frozen=True, slots=True)
class Settings:
    """How a bandit is served; kept with its ledger.

    wait: seconds after which a decision without an outcome gets `default`; None: never.
    aggregation: "first": an outcome is final (a different second one is a conflict); "sum":
        outcomes of one decision add up.
    mode: "online": the agent decides; "apprentice": the first action available is taken, and the
        agent only says what it would have done.
    floor: the share of decisions left to chance.
    """

    wait: float | None = None
    default: float = 0.0
    aggregation: str = "first"
    mode: str = "online"
    floor: float = 0.0


class Engine:
    """Decides and learns for one bandit.

    `decide` and `outcome` are for the event loop; all other methods block, and are to be called
    in a thread. Every one raises `Refused` for what is wrong with a request.
    """

    def __init__(self, name: str, bandit: Bandit):
        self.name, self._bandit = name, bandit
        self._events: dict[tuple[str, str], Made] = {}
        self._mutex = threading.RLock()
        self.settings = Settings()

    async def decide(self, asks: Sequence[Ask]) -> list[Made]:
        """All of them or none; on disk when it returns."""
        return await asyncio.to_thread(self._decide, asks)

    def _decide(self, asks: Sequence[Ask]) -> list[Made]:
        made = []
        with self._mutex:
            for ask in asks:
                known = self._events.get((ask.event or "", ask.slot)) if ask.event else None
                if known is not None:
                    made.append(known._replace(again=True))
                    continue
                try:
                    d = self._bandit.choose(
                        ask.actions, context=ask.context, available=ask.available
                    )
                except (ValueError, TypeError) as error:
                    raise Refused("invalid", str(error)) from error
                names = list(ask.actions) if isinstance(ask.actions, dict) else None
                mean, spread = (None, None) if d.values is None else d.values
                new = Made(
                    d.id, ask.event, ask.slot, d.index, d.action, names, d.probabilities, mean,
                    spread, time.time(),
                )
                if ask.event:
                    self._events[(ask.event, ask.slot)] = new
                made.append(new)
        return made

    async def outcome(self, outcomes: Sequence[tuple[str, Any]]) -> list[bool]:
        """Learn pairs (id of a decision or "event" or "event/slot", outcome), all or none: which
        of them were new. Told twice, an outcome counts once."""
        return await asyncio.to_thread(self._outcome, outcomes)

    def _id(self, id: str) -> str:
        event, _, slot = id.partition("/")
        made = self._events.get((event, slot))
        return id if made is None else made.id

    def _outcome(self, outcomes: Sequence[tuple[str, Any]]) -> list[bool]:
        with self._mutex:
            try:
                return [self._bandit.learn(self._id(id), y) for id, y in outcomes]
            except (ValueError, TypeError) as error:
                kind = "conflict" if "as well" in str(error) else "unknown"
                raise Refused(kind, str(error)) from error

    def correct(self, id: str, outcome: Any) -> bool:
        with self._mutex:
            return self._bandit.correct(self._id(id), outcome)

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        with self._mutex:
            return self._bandit.add(self._id(id), amount, ref)

    def expire(self, older_than: float, outcome: Any) -> int:
        with self._mutex:
            return self._bandit.expire(older_than, outcome)

    def activate(self, event: str) -> bool:
        """A deferred decision counts from now on; False if it did already."""
        if not any(known[0] == event for known in self._events):
            raise Refused("unknown", f"there is no event {event!r}")
        return True

    def predict(self, ask: Ask) -> dict[str, Any]:
        """What a decision would be made of: names, probabilities, mean, spread."""
        with self._mutex:
            found = self._bandit.predict(ask.actions, context=ask.context, available=ask.available)
        mean, spread = (None, None) if found.values is None else found.values
        names = list(ask.actions) if isinstance(ask.actions, dict) else None
        return {"names": names, "probabilities": found.probabilities, "mean": mean,
                "spread": spread}

    def log(self, first: int, count: int) -> dict[str, list[Any]]:
        """The decisions first, first + 1, ... as columns, see `Bandit.log`."""
        with self._mutex:
            return self._bandit._ledger.table(range(first, first + count))

    def summary(self) -> dict[str, Any]:
        """Of `decide.summary.Summary`, with its shadows as dictionaries."""
        from dataclasses import asdict

        with self._mutex:
            return asdict(self._bandit.summary())

    def status(self) -> dict[str, Any]:
        """Where this process stands: see keys. Cheap."""
        with self._mutex:
            ledger = self._bandit._ledger
            return {
                "decisions": ledger.decisions,
                "outcomes": ledger.outcomes,
                "learned": ledger.outcomes,  # outcomes in the state that decides here
                "behind": 0.0,  # seconds: the age of the oldest outcome it does not know
                "learner": "host:pid",  # who learns; None: nobody at the moment
                "learning": True,  # whether that is this process
            }

    def history(self, buckets: int = 60) -> list[dict[str, Any]]:
        """Decisions over time in equal parts of it, oldest first: for each `time` (of its end),
        `decisions`, `outcomes`, `reward` and `stderr` (None where there is none), `agreement`,
        `pending`, `actions` (name: share)."""
        return []

    def recent(self, count: int = 20) -> list[dict[str, Any]]:
        """The last decisions, newest first, and why: id, time, action, probability, outcome, and
        for every action on offer name, probability (the share of members that vote for it), mean
        and spread as of then or None."""
        return []

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes of the service."""
        self.settings = settings

    def candidates(self) -> list[str]:
        """Names of agents that may become shadows."""
        return []

    def shadow(self, name: str) -> None: ...

    def dismiss(self, name: str) -> None: ...

    def promote(self, name: str) -> None: ...

    def export_state(self) -> bytes:
        """What has been learned, as a file of safetensors."""
        return b""

    def import_state(self, content: bytes) -> None:
        """Go on from what another bandit of the same configuration has learned."""

    def close(self) -> None:
        self._bandit.close()
