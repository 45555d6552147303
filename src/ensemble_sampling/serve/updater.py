"""Whoever holds the lease of a ledger learns for all; the others follow what it publishes."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from ..decide.replica import Replica, resume
from ..decide.setup import Setup
from ..decide.shadows import Shadows
from ..decide.snapshots import unpack
from ..ledger.ledger import Ledger
from .outcomes import expire
from .replicas import Replicas, settings
from .types import Refused

LEASE = 5.0  # seconds for which nobody else may learn, renewed in a third of it
STEP = 256  # outcomes learned before they are handed on
SAVE = 1000  # outcomes after which the state is saved for good
FOLLOWER = "follower"  # the lease that says that there is somebody to publish for
TIDY = 1.0  # seconds from one tidying of the database to the next
EVERY = 0.25  # seconds between two looks, where nobody calls


def process_name(pid: int) -> str:
    """A process as the holder of a lease. By chance too: those of two containers may have one name
    and one number. On Linux it ends with what tells whose numbers of processes these are."""
    name = f"{socket.gethostname()}:{pid}:{secrets.token_hex(3)}"
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
        return f"{name}:{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}-{numbers}"
    except OSError:
        return name


def has_ended(holder: str) -> bool:
    """Whether a process is known to have ended: one of this machine that is not there any more."""
    theirs, ours = holder.split(":"), process_name(0).split(":")
    if len(theirs) != 4 or (theirs[0], theirs[3:]) != (ours[0], ours[3:]):
        return False
    try:
        os.kill(int(theirs[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):  # another user's
        pass
    return False


class Updater:
    """Keeps what the replicas of a process know up to date, by learning or by following.

    It has a ledger of its own, so that no decision waits for it. `step` is to be called again and
    again, by one thread.

    holder: this process, as it is named in leases; `learner` is the one that learns.
    behind: seconds, the age of the oldest outcome or revision that decisions here do not know.
    decisions, outcomes: in the ledger; `known` outcomes are in the state that decides here.
    changed: when there were others the last time, by `time.monotonic`.
    waits: whether outcomes are to be assumed here, when their time has come.
    """

    def __init__(self, replicas: Replicas, place: Any, learns: bool = True):
        self._replicas, self._replica, self._shadows = replicas, replicas.main, Shadows()
        self.holder = process_name(os.getpid())
        self.learning, self.waits, self.behind = False, False, 0.0
        self.learner: str | None = None
        self.decisions = self.outcomes = self.known = 0
        self.changed = time.monotonic()
        self._learns, self._renew, self._due, self._untidy = learns, 0.0, 0.0, 0.0
        self._seen: dict[str, Any] = {}  # what was followed last, by file
        self._loaded: Any = None
        self._published: dict[str, tuple[int, int]] = {}
        self._saved, self._followed = 0, False
        self._ledger = Ledger(place, shared=True, durable=False)  # it writes nothing but leases

    def step(self) -> None:
        """Learn what is new, or take it over."""
        now = time.monotonic()
        if self._learns and self.learner not in (None, self.holder) and has_ended(self.learner):
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
            changed = self._replicas.loaded != self._ledger.configured
        if changed or (begun and self._replicas.main.width is None):
            self._replicas.load()
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
            self._replica.sync(self._ledger, STEP)
            self._shadows.sync(self._ledger, STEP)
            self._replicas.settings = now = settings(self._ledger)
        replicas = {None: self._replica, **self._shadows.replicas()}
        self._publish([one for name, one in replicas.items() if self._hand_on(name, one)])
        self._measure()
        self.waits = now.wait is not None and bool(self._ledger.pending(time.time()))
        if now.wait is not None and self._ledger.pending(time.time() - now.wait):
            expire(self._replicas, now.wait, now.default)

    def _hand_on(self, shadow: str | None, replica: Replica) -> bool:
        """Let decisions be made by what was learned, unless more is known there: after a
        correction, or in new units, all is learned anew, and that is better than the half of it."""
        front, version = self._replicas, replica.version
        theirs = front.main if shadow is None else front.shadows.replica(shadow)
        if version is None or theirs is None or replica.width != theirs.width:
            return False
        if version.follows(theirs.version):
            if theirs.setup.description != replica.setup.description:  # it was changed meanwhile
                return False
            theirs.version = replica.copy()
        return theirs.version is not None and theirs.version.known == version.known

    def _reload(self) -> None:
        """Within a turn: begin as the others did, with replicas that learn."""
        self._replica = resume(Replica(Setup(self._replicas.options)), self._ledger)
        self._shadows = self._replicas.watching(self._ledger, self._replica)
        self._published = {}  # others may know less than they should by the same name
        self._loaded = self._ledger.configured

    def _publish(self, replicas: list[Replica]) -> None:
        """For the other processes, as often as it costs no more than a twentieth of the time."""
        now = time.monotonic()
        if now < self._due:
            return
        saved = self._saved
        for replica in filter(_has_state, replicas):
            outcomes, known = replica.version.outcomes, replica.version.known  # pyright: ignore
            durable = outcomes - saved >= SAVE
            if self._published.get(replica.file) == known or not (durable or self._followed):
                continue
            self._ledger.store(replica.file, replica.packed(self._ledger), durable=durable)
            self._published[replica.file] = known
            if durable and replica is self._replica:
                self._saved = outcomes
        self._due = now + max(EVERY, 20 * (time.monotonic() - now))

    def _follow(self) -> None:
        self.waits = False
        if self._replicas.main.host:
            raise Refused(
                "unavailable",
                "an agent in plain Python has no state that another process could follow: serve it "
                "with one worker",
            )
        read = []
        for replica in (self._replicas.main, *self._replicas.shadows.replicas().values()):
            seen = (self._ledger.stored_version(replica.file), replica)
            if seen[0] is not None and seen != self._seen.get(replica.file):
                read.append((seen, replica, self._ledger.stored(replica.file)))
        with self._ledger.turn(write=False):  # after they were read: it knows all they know
            self._replicas.settings = settings(self._ledger)
            for seen, replica, content in read:
                if replica.width is None or content is None:
                    continue
                found = unpack(content, replica.like(), self._ledger, replica.setup.description)
                self._seen[replica.file] = seen
                version = None if found is None else replica.restored(found)
                if version is not None and version.follows(replica.version):
                    replica.version = version
        self._measure()

    def _measure(self) -> None:
        """How far what decides here is behind the ledger."""
        version = self._replicas.main.version
        known, revised = (0, 0) if version is None else version.known
        with self._ledger.turn(write=False):
            there = self._ledger.decisions, self._ledger.outcomes
            unknown = []
            if known < self._ledger.outcomes:
                unknown.append(f"SELECT time FROM outcomes WHERE sequence = {known + 1}")
            if revised < self._ledger.revisions:
                unknown.append(f"SELECT time FROM revisions WHERE number = {revised + 1}")
            times = [self._ledger.ask(query) for query in unknown]
        if there != (self.decisions, self.outcomes):
            (self.decisions, self.outcomes), self.changed = there, time.monotonic()
        self.known = known
        self.behind = max(0.0, time.time() - min(times)) if times else 0.0

    def close(self) -> None:
        """Save what was learned, if anything was, and let others learn at once."""
        try:
            if self.learning and not self._ledger.closed:
                if self._loaded is not None:
                    replicas = [self._replica, *self._shadows.replicas().values()]
                    for replica in filter(_has_state, replicas):
                        self._ledger.store(replica.file, replica.packed(self._ledger))
                self._ledger.release(self.holder)
        finally:
            self._ledger.close()


def _has_state(replica: Replica) -> bool:
    """Whether there is a state of arrays, which can be stored."""
    return replica.version is not None and replica.width is not None and not replica.host
