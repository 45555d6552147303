"""A bandit that several processes have loaded, each as the ledger says it is now."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..decide.replica import Mind, Taught
from ..decide.setup import Begun
from ..decide.shadows import recorded, watching
from ..decide.states import State
from ..files import Damaged
from ..inputs.hashing import Hasher
from ..ledger.ledger import Decided, Ledger
from .types import Refused, Settings

SETTINGS = "service"  # where a ledger keeps them
APPRENTICE = "apprentice"  # the shadow that the agent is while it does not decide


class Follower(Mind):
    """An agent whose state another process, or another thread, learns."""

    def sync(self, ledger: Ledger, most: int | None = None) -> State:
        if self.width is None:
            self.settle(ledger.width)
        if self.taught is None:
            self.taught = Taught(self._fresh(), 0, 0)
        return self.taught.state

    def learn(self, ledger: Ledger, rows: list[tuple[Decided, Any]]) -> None:
        """Somebody else does."""

    def informed(self, ledger: Ledger) -> bool:
        """Not while it was told nothing of what there is to know."""
        return self.taught is not None or not ledger.outcomes


class Followed(Begun):
    """Knows who decides, by what settings, and who watches, which any process may change.

    place: a folder, or `postgresql://...#name`.
    candidates: agents that may become shadows, by name.
    begins: whether to record the configuration where nobody has; else that is `unknown`.
    """

    _mind_type = Follower

    def __init__(
        self,
        place: Any,
        agent: Any = None,
        *,
        actions: Sequence[Any] | None = None,
        seed: int | None = None,
        floor: float | None = None,
        hasher: Hasher | None = None,
        candidates: Mapping[str, Any] | None = None,
        begins: bool = True,
    ):
        self._folder, self._snapshot_every = place, 0
        self._given = (agent, seed, None, hasher, actions, floor)
        self.candidates = dict(candidates or {})
        self._door = threading.RLock()
        self._compiled: dict[Any, int] = {}  # for how many offers of a shape at once
        self.loaded: tuple[int, int] | None = None  # what of the configuration it knows
        self._rng = np.random.default_rng()  # by chance: no two processes may draw alike
        self._setup(*self._given)
        self._ledger = Ledger(place, shared=True)
        self.began = False  # whether this one recorded the configuration
        try:
            self._load(begins)
        except BaseException:
            self._ledger.close()
            raise

    def refresh(self) -> None:
        """Take over a configuration that another process changed."""
        with self._door:
            self._load()

    def probe(self) -> None:
        """That its ledger answers; an error where it does not."""
        with self._door, self._ledger.turn(write=False):
            pass

    def mind(self, shadow: str | None = None) -> Mind | None:
        """That of the agent in charge, or of a shadow."""
        return self._mind if shadow is None else self._shadows.mind(shadow)

    def _load(self, begins: bool = False) -> None:
        with self._ledger.turn(write=False):
            begun = self._ledger.description is not None
        if not begun and not begins:
            raise Refused("unknown", "nobody has begun this bandit")
        with self._ledger.turn(write=not begun):  # whoever is first records the configuration
            self.began = self.began or self._ledger.description is None
            self._reload()

    def _reload(self) -> None:
        """Within a turn: who decides, by what settings, and who watches. Whoever was there before,
        in whatever part, goes on by what it knows."""
        former = [self._mind, *self._shadows.minds().values()]
        self._take_charge()
        self.settings = Settings.recorded(self._ledger.setting(SETTINGS))
        self._apprentice = recorded(self._ledger).get(APPRENTICE)
        others = {name: agent for name, agent in self.candidates.items() if name != APPRENTICE}
        for name, number, mind in watching(self._ledger, others, self._mind):
            self._shadows.attend(name, number, mind)
        for mind in (self._mind, *self._shadows.minds().values()):
            same = [m for m in former if m.width is not None and m.description == mind.description]
            if same and same[0].width == mind.width:
                mind.taught = same[0].taught
        self.loaded = self._ledger.configured

    @property
    def outdated(self) -> bool:
        """Within a turn: whether others have changed, or settled, what is loaded here."""
        settled = self._mind.width is None and self._ledger.decisions > 0
        return settled or self._ledger.configured != self.loaded

    def _settle_down(self) -> None:
        """Within a turn: know what others have settled meanwhile."""
        if self.outdated:
            self._reload()

    def _take_charge(self) -> None:
        """The agent that was given, or a candidate that was promoted since, by all else as it was
        recorded."""
        error, said = None, self._ledger.description
        tried = [("default", self._given)]
        if said is not None:
            others = (said["seed"], said["normalise"], Hasher.recorded(said["hasher"]))
            others += (said["actions"], said.get("floor"))
            tried += [(name, (agent, *others)) for name, agent in self.candidates.items()]
        for name, options in tried:
            self._setup(*options)
            try:
                self._begin(migrate=False)
                self.named, self.begun_with = name, options
                return
            except ValueError as other:
                error = error or other
        assert error is not None
        raise error

    def _outcome(self, given: Any) -> Any:
        """What the agent can learn, or a refusal."""
        with refusing():
            return self._mind.outcome(given, self._ledger)

    @property
    def floor(self) -> float:
        """The share of decisions left to chance, by the agent's configuration and the settings."""
        return 1 - (1 - self._mind.floor) * (1 - self.settings.floor)

    def diverged(self) -> int:
        """How often models had to be put back to their start, by what is known here."""
        with self._door:
            return self._mind.diverged(self._ledger)

    def noticed(self) -> tuple[str, ...]:
        """What its user should know of what is learned, by what is known here."""
        with self._door:
            return tuple(self._mind.noticed(self._ledger).values())

    def close(self) -> None:
        with self._door:
            self._ledger.close()


@contextmanager
def refusing() -> Iterator[None]:
    """Around what reads a request, and nothing else: what is wrong with it, said as such."""
    try:
        yield
    except Damaged:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("invalid", str(error)) from error
