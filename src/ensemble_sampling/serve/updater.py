"""Whoever holds the lease of a ledger learns for all; the others follow what it publishes."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from ..decide.replica import Mind, Taught
from ..decide.setup import Begun
from ..decide.shadows import watching
from ..decide.snapshots import SNAPSHOT, unpack
from ..ledger.ledger import Ledger
from .decider import Shared
from .replicas import APPRENTICE, SETTINGS
from .types import Refused, Settings

LEASE = 5.0  # seconds for which nobody else may learn, renewed in a third of it
STEP = 256  # outcomes learned before they are handed on
SAVE = 1000  # outcomes after which the state is saved for good
FOLLOWER = "follower"  # the lease that says that there is somebody to publish for
TIDY = 1.0  # seconds from one tidying of the database to the next
EVERY = 0.25  # seconds between two looks, where nobody calls


def _named(pid: int) -> str:
    """A process as the holder of a lease. By chance too: those of two containers may have one name
    and one number. On Linux it ends with what tells whose numbers of processes these are."""
    name = f"{socket.gethostname()}:{pid}:{secrets.token_hex(3)}"
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
        return f"{name}:{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}-{numbers}"
    except OSError:
        return name


def _gone(holder: str) -> bool:
    """Whether a process is known to have ended: one of this machine that is not there any more."""
    if holder.count(":") != 3:
        return False
    name, pid, _, numbers = holder.split(":")
    here, _, _, *ours = _named(0).split(":")
    try:
        if (name, [numbers]) == (here, ours):
            os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):  # another user's
        pass
    return False


class Keeper(Begun):
    """Keeps the state of a `Shared` bandit up to date, by learning or by following.

    It has a ledger of its own, so that no decision waits for it. `step` is to be called again and
    again, by one thread.
    """

    def __init__(self, front: Shared, place: Any, learns: bool = True):
        self.front, self._folder, self._snapshot_every = front, place, 0
        self.holder = _named(os.getpid())
        self.learning, self.behind = False, 0.0
        self.learner: str | None = None
        self.decisions = self.outcomes = self.known = 0
        self.waits = False  # whether outcomes are to be assumed here, when their time has come
        self._learns, self._renew, self._due = learns, 0.0, 0.0
        self._seen: dict[str, Any] = {}  # what was followed last, by file
        self._loaded: Any = None
        self._published: dict[str, tuple[int, int]] = {}
        self._untidy = 0.0
        self._saved, self._followed = 0, False
        self._ledger = Ledger(place, shared=True, durable=False)  # it writes nothing but leases

    def step(self) -> None:
        """Learn what is new, or take it over."""
        now = time.monotonic()
        if self._learns and self.learner not in (None, self.holder) and _gone(self.learner):
            self._ledger.release(self.learner)
            self._renew = 0.0
        if now >= self._renew:
            self._renew = now + LEASE / 3
            held = self._learns and self._ledger.lease(self.holder, LEASE)
            if held and not self.learning:
                self._loaded = None  # others may have changed anything
            self.learning, self.learner = held, self._ledger.holder()
            if not held:
                self._ledger.lease(self.holder, 4 * LEASE, FOLLOWER)  # one of them will do
            self._followed = self._ledger.holder(FOLLOWER) is not None
        with self._ledger.turn(write=False):
            begun = self._ledger.decisions > 0
            changed = self.front.loaded != self._ledger.configured
        if changed or (begun and self.front._mind.width is None):
            self.front.refresh()
        if self.learning:
            self._learn()
            if now >= self._untidy:
                self._untidy = now + TIDY
                self._ledger.tidy()
        else:
            self._follow()

    def _learn(self) -> None:
        with self._ledger.turn(write=False):
            if self._loaded != self._ledger.configured:
                self._reload()
            self._mind.sync(self._ledger, STEP)
            self._shadows.sync(self._ledger, STEP)
            settings = Settings.recorded(self._ledger.setting(SETTINGS))
        self.front.settings = settings
        minds = {None: self._mind, **self._shadows.minds()}
        self._publish([mind for name, mind in minds.items() if self._hand_on(name, mind)])
        self._measure()
        self.waits = settings.wait is not None and bool(self._ledger.pending(time.time()))
        if settings.wait is not None:
            due = time.time() - settings.wait
            while self._ledger.pending(due) and self.front.expire(due, settings.default):
                pass

    def _hand_on(self, name: str | None, mind: Mind) -> bool:
        """Let the front decide by what was learned, unless it knows more: after a correction, or
        in new units, all is learned anew, and what it knows is better than the half of it."""
        theirs, taught = self.front.mind(name), mind.taught
        if taught is None or theirs is None or mind.width != theirs.width:
            return False
        if taught.follows(theirs.taught):
            if theirs.description != mind.description:  # it was changed meanwhile
                return False
            theirs.taught = taught._replace(state=taught.state.copy())  # learning consumes its own
        return theirs.taught is not None and theirs.taught.known == taught.known

    def _reload(self) -> None:
        """Within a turn: begin as the front did, with minds that learn."""
        front = self.front
        self._setup(*front.begun_with)
        self._begin(migrate=False)
        others = {name: agent for name, agent in front.candidates.items() if name != APPRENTICE}
        for name, number, mind in watching(self._ledger, others, self._mind):
            self._shadows.attend(name, number, mind)
        self._published = {}  # others may know less than they should by the same name
        self._loaded = self._ledger.configured

    def _publish(self, minds: list[Mind]) -> None:
        """For the other processes, as often as it costs no more than a twentieth of the time."""
        now = time.monotonic()
        if now < self._due:
            return
        saved = self._saved
        for mind in minds:
            taught = mind.taught
            if taught is None or mind.width is None or mind.host:
                continue
            if self._published.get(mind.file) == taught.known:
                continue
            durable = taught.outcomes - saved >= SAVE
            if not durable and not self._followed:
                continue
            self._ledger.store(mind.file, mind.packed(self._ledger), durable=durable)
            self._published[mind.file] = taught.known
            if durable and mind is self._mind:
                self._saved = taught.outcomes
        self._due = now + max(EVERY, 20 * (time.monotonic() - now))

    def _follow(self) -> None:
        self.waits = False
        if self.front._mind.host:
            raise Refused(
                "unavailable",
                "an agent in plain Python has no state that another process could follow: serve it "
                "with one worker",
            )
        files = {None: SNAPSHOT} | {n: m.file for n, m in self.front._shadows.minds().items()}
        read = {}
        for name, file in files.items():
            seen = (self._ledger.stored_version(file), self.front.mind(name))
            if seen[0] is not None and seen != self._seen.get(file):
                read[name] = (seen, self._ledger.stored(file))
        with self._ledger.turn(write=False):  # after they were read: it knows all they know
            self.front.settings = Settings.recorded(self._ledger.setting(SETTINGS))
            for name, ((version, mind), content) in read.items():
                if mind is None or mind.width is None or content is None:
                    continue
                found = unpack(content, mind.like(), self._ledger, mind.description)
                self._seen[files[name]] = (version, mind)
                if found is not None:
                    counts = (found.sequence, 0, found.revisions, found.usual)
                    taught = Taught(found.state, *counts)
                    mind.taught = taught if taught.follows(mind.taught) else mind.taught
        self._measure()

    def _measure(self) -> None:
        """How old the oldest outcome or revision is that decisions here do not know."""
        taught = self.front._mind.taught
        known, revised = (0, 0) if taught is None else taught.known
        with self._ledger.turn(write=False):
            self.decisions, self.outcomes = self._ledger.decisions, self._ledger.outcomes
            unknown = []
            if known < self._ledger.outcomes:
                unknown.append(f"SELECT time FROM outcomes WHERE sequence = {known + 1}")
            if revised < self._ledger.revisions:
                unknown.append(f"SELECT time FROM revisions WHERE number = {revised + 1}")
            times = [self._ledger.ask(query) for query in unknown]
        self.known = known
        self.behind = max(0.0, time.time() - min(times)) if times else 0.0

    def close(self) -> None:
        """Save what was learned, if anything was, and let others learn at once."""
        try:
            if self.learning and not self._ledger.closed:
                known = self._loaded is not None
                for mind in (self._mind, *self._shadows.minds().values()) if known else ():
                    if mind.taught is not None and mind.width is not None and not mind.host:
                        self._ledger.store(mind.file, mind.packed(self._ledger))
                self._ledger.release(self.holder)
        finally:
            self._ledger.close()
