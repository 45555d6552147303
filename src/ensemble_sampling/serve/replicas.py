"""A bandit as one of several processes has it: as its ledger says it is now."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..decide.outcomes import Conflict
from ..decide.replica import Replica, resume
from ..decide.setup import Options, Setup
from ..decide.shadows import Shadows, Unknown, recorded, watching
from ..files import Damaged
from ..ledger.ledger import Ledger
from .types import Refused, Settings

SETTINGS = "service"  # where a ledger keeps them
APPRENTICE = "apprentice"  # the shadow that the agent is while it does not decide


class Replicas:
    """Who decides, by what settings, and who watches, which any process may change.

    What they know, another thread or another process learns, and hands over.

    place: a folder, or `postgresql://...#name`.
    options: the configuration as it was given.
    candidates: agents that may become shadows, by name.
    begins: whether to record the configuration where nobody has; else that is `unknown`.
    main: the replica of the agent in charge.
    name: of the candidate that was promoted, else "default".
    door: held while any of this is changed, or the ledger is used.
    """

    def __init__(
        self,
        place: Any,
        options: Options | None = None,
        candidates: Mapping[str, Any] | None = None,
        begins: bool = True,
    ):
        self.given, self.candidates = options or Options(), dict(candidates or {})
        self.door = threading.RLock()
        self.loaded: tuple[int, int] | None = None  # what of the configuration it knows
        self.main, self.shadows = Replica(Setup(self.given), follows=True), Shadows()
        self.settings, self.began = Settings(), False  # whether it recorded the configuration
        self.ledger = Ledger(place, shared=True)
        try:
            self.load(begins)
        except BaseException:
            self.ledger.close()
            raise

    def replica(self, shadow: str | None = None) -> Replica | None:
        """That of the agent in charge, or of a shadow."""
        return self.main if shadow is None else self.shadows.replica(shadow)

    def load(self, begins: bool = False) -> None:
        """Take over the configuration that is recorded, or record it."""
        with self.door:
            with self.ledger.turn(write=False):
                begun = self.ledger.description is not None
            if not begun and not begins:
                raise Refused("unknown", "nobody has begun this bandit")
            with self.ledger.turn(write=not begun):  # whoever is first records the configuration
                self.began = self.began or self.ledger.description is None
                self.reload()

    def reload(self) -> None:
        """Within a turn: whoever was there before, in whatever part, goes on by what it knows."""
        former = [self.main, *self.shadows.replicas().values()]
        self.name, self.options, self.main = in_charge(self.ledger, self.given, self.candidates)
        self.settings = Settings.recorded(self.ledger.setting(SETTINGS))
        self.apprentice = recorded(self.ledger).get(APPRENTICE)
        self.shadows = observers(self.ledger, self.candidates, self.main)
        for replica in (self.main, *self.shadows.replicas().values()):
            about = replica.setup.description
            same = [m for m in former if m.width is not None and m.setup.description == about]
            if same and same[0].width == replica.width:
                replica.version = same[0].version
        self.loaded = self.ledger.configured

    @property
    def outdated(self) -> bool:
        """Within a turn: whether others have changed, or settled, what is loaded here."""
        settled = self.main.width is None and self.ledger.decisions > 0
        return settled or self.ledger.configured != self.loaded

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A transaction in which what others have settled meanwhile is known."""
        with self.door, self.ledger.turn():
            if self.outdated:
                self.reload()
            yield

    def probe(self) -> None:
        """That its ledger answers; an error where it does not."""
        with self.door, self.ledger.turn(write=False):
            pass

    @property
    def floor(self) -> float:
        """The share of decisions left to chance, by the agent's configuration and the settings."""
        return 1 - (1 - self.main.setup.floor) * (1 - self.settings.floor)

    def diverged(self) -> int:
        """How often models had to be put back to their start, by what is known here."""
        with self.door:
            return self.main.diverged(self.ledger)

    def notices(self) -> tuple[str, ...]:
        """What its user should know of what is learned, by what is known here."""
        with self.door:
            return tuple(self.main.notices(self.ledger).values())

    def close(self) -> None:
        with self.door:
            self.ledger.close()


def in_charge(
    ledger: Ledger, options: Options, candidates: Mapping[str, Any], follows: bool = True
) -> tuple[str, Options, Replica]:
    """(name, options, replica) of the agent that was given or, by all else as it is recorded, of a
    candidate that was promoted since."""
    error, said = None, ledger.description
    tried = [("default", options)]
    if said is not None:
        tried += [(name, Options.recorded(said, agent)) for name, agent in candidates.items()]
    for name, one in tried:
        try:
            return name, one, resume(Replica(Setup(one), follows), ledger)
        except ValueError as other:
            error = error or other
    assert error is not None
    raise error


def observers(ledger: Ledger, candidates: Mapping[str, Any], main: Replica) -> Shadows:
    """The shadows that are recorded, whatever they know."""
    others = {name: agent for name, agent in candidates.items() if name != APPRENTICE}
    found = Shadows()
    found.awake = {name: (number, one) for name, number, one in watching(ledger, others, main)}
    return found


@contextmanager
def refusing() -> Iterator[None]:
    """Around what reads a request, and nothing else: what is wrong with it, said as such."""
    try:
        yield
    except Damaged:
        raise
    except Conflict as error:
        raise Refused("conflict", str(error)) from error
    except Unknown as error:
        raise Refused("unknown", str(error)) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("invalid", str(error)) from error
