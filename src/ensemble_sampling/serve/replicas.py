"""One process's copy of a bandit that several processes serve, configured as its ledger says."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ..decide.control import Control, Divider
from ..decide.replica import Replica, resume
from ..decide.setup import Options, Setup
from ..decide.shadows import Recorded, Shadows, recorded, watching
from ..decide.weighted import REWARD, Weights, weights
from ..ledger.ledger import Ledger
from .types import Refused, Settings

SETTINGS = "service"  # the name under which a ledger stores them
HELD = ("holdback", "baseline", "sticky", "guard", "fallback")  # settings that `Control` has
APPRENTICE = "apprentice"  # the shadow that stands for the agent while it does not decide


class Replicas:
    """The agent in charge, its shadows and the settings, any of which another process may change.

    These replicas do not learn: an `Updater`, or another process, learns and hands them states.

    place: a folder, or `postgresql://...#name`.
    given: the configuration as it was given; `options` are those of the agent in charge.
    candidates: agents that may become shadows, by name.
    rule: the function that decides for the control group, if it is one.
    begins: whether to record the configuration where nobody has; else that is `unknown`.
    main: the replica of the agent in charge.
    name: of the candidate that was promoted, else "default".
    weights: of metrics, where the reward is made of them.
    control: what is held back from it, which `divider` does; None: nothing is.
    changes: how many of settings are known here.
    loaded: the version of the configuration that is known here.
    began: whether it was this one that recorded the configuration.
    door: held while any of this is changed, or the ledger is used.
    """

    name: str
    options: Options
    apprentice: Recorded | None

    def __init__(
        self,
        place: Any,
        given: Options | None = None,
        candidates: Mapping[str, Any] | None = None,
        rule: Any = None,
        begins: bool = True,
    ):
        self.given, self.candidates = given or Options(), dict(candidates or {})
        self.rule = rule
        self.door = threading.RLock()
        self.main, self.shadows = Replica(as_served(self.given), follows=True), Shadows()
        self.settings, self.began = Settings(), False
        self.control, self.divider, self.changes = Control(), None, -1
        self.weights: Weights = {}
        self.loaded: tuple[int, int] | None = None
        self.ledger = Ledger(place, shared=True)
        try:
            self.load(begins)
        except BaseException:
            self.ledger.close()
            raise

    def load(self, begins: bool = False) -> None:
        """Take over the configuration that is recorded, or record it."""
        with self.door:
            with self.ledger.turn(write=False):
                begun = self.ledger.description is not None
            if not begun and not begins:
                raise Refused("unknown", "nobody has begun this bandit")
            with self.ledger.turn(write=not begun):  # the first process records the configuration
                self.began = self.began or self.ledger.description is None
                self.reload()

    def reload(self) -> None:
        """Within a turn: load the configuration. An agent that was here before, in charge or as a
        shadow, keeps its state."""
        former = [self.main, *self.shadows.replicas().values()]
        self.name, self.options, self.main = self._in_charge()
        self.divider = self.divided(self.control)
        self.take_settings(self.ledger)
        self.apprentice = recorded(self.ledger).get(APPRENTICE)
        self.shadows = self.watching(self.ledger, self.main)
        for replica in (self.main, *self.shadows.replicas().values()):
            about = replica.setup.description
            same = [m for m in former if m.width is not None and m.setup.description == about]
            if same and same[0].width == replica.width:
                replica.version = same[0].version
        self.loaded = self.ledger.configured

    def take_settings(self, ledger: Ledger) -> None:
        """Within a turn: take over settings that are recorded, unless later ones are known."""
        if ledger.changed <= self.changes:
            return
        with self.door:  # a frozen baseline reads the ledger that decides
            self.changes = ledger.changed
            self.settings, control = settings(ledger), Control.of(ledger)
            self.weights = weights(ledger)
            if control != self.control:
                self.control, self.divider = control, self.divided(control)

    def divided(self, control: Control) -> Divider | None:
        """What leaves decisions to the baseline by these settings."""
        return Divider.of(control, self.rule, self.main.setup, self.ledger)

    def _in_charge(self) -> tuple[str, Options, Replica]:
        """(name, options, replica) of the agent that the ledger was begun with, or else of the
        candidate that was promoted since."""
        errors, said = [], self.ledger.description
        tried = [("default", self.given)]
        if said is not None:
            tried += [(name, Options.recorded(said, one)) for name, one in self.candidates.items()]
        for name, options in tried:
            try:
                return name, options, resume(Replica(as_served(options), follows=True), self.ledger)
            except ValueError as error:
                errors.append(error)
        raise errors[0]

    def watching(self, ledger: Ledger, main: Replica) -> Shadows:
        """New replicas of the shadows that are recorded, beside `main`."""
        others = {name: one for name, one in self.candidates.items() if name != APPRENTICE}
        found = Shadows()
        found.awake = {name: (number, one) for name, number, one in watching(ledger, others, main)}
        return found

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A transaction, after loading what other processes have changed."""
        with self.door, self.ledger.turn():
            if not self.current:
                self.reload()
            yield

    @property
    def current(self) -> bool:
        """Within a turn: whether nothing was changed by another process."""
        return (self.ledger.configured, self.ledger.changed) == (self.loaded, self.changes)

    @contextmanager
    def change(self) -> Iterator[None]:
        """A transaction that changes the configuration, and loads it."""
        with self.door:
            try:
                with self.turn():
                    yield
            finally:
                self.load()

    @property
    def floor(self) -> float:
        """The share of decisions left to chance, by the agent's configuration and the settings."""
        return 1 - (1 - self.main.setup.floor) * (1 - self.settings.floor)

    def noticed(self) -> tuple[int, dict[str, str]]:
        """How often models diverged and were reset, and the warnings about what was learned, by
        kind."""
        with self.door:
            return self.main.diverged(self.ledger), self.main.notices(self.ledger)

    def close(self) -> None:
        with self.door:
            self.ledger.close()


def as_served(options: Options) -> Setup:
    """The setup of a bandit over HTTP, where whatever is described by names is hashed from the
    first: nobody is there to choose a hasher when more of them come."""
    return Setup(options, hashes=True)


def settings(ledger: Ledger) -> Settings:
    """The settings that a ledger stores, or the defaults."""
    control = Control.of(ledger)
    held = {name: getattr(control, name) for name in HELD}
    made = {REWARD: weights(ledger)}
    return msgspec.convert({**(ledger.setting(SETTINGS) or {}), **held, **made}, Settings)
