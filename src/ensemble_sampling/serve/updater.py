"""The process that holds the lease of a ledger learns; the others follow what it publishes."""

import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from ..decide import health
from ..decide.metrics import Guarding
from ..decide.notices import Changed
from ..decide.replica import Replica, base_states, resume
from ..decide.shadows import Shadows
from ..decide.snapshots import unpack
from ..ledger.ledger import PART, Ledger
from . import admin
from .outcomes import expire
from .replicas import Replicas, as_served
from .types import Refused

LEASE = 5.0  # seconds for which nobody else may learn, renewed in a third of it
STEP = 256  # outcomes learned before the state is handed on
SAVE = 1000  # outcomes after which the state is saved for good
FOLLOWER = "follower"  # the lease that shows that a process follows
REMOVE = 3600.0  # seconds between two removals of old decisions
LATELY = 1000  # outcomes for which a change of the world is news
EXAMINED = 10.0  # seconds between two looks at the health of a bandit, or more
TIDY = 1.0  # seconds between two tidyings of the database
EVERY = 0.25  # seconds between two steps, unless there is something new


def process_name(pid: int) -> str:
    """The name of a process in leases: host, process id, random digits (two containers may agree in
    the first two) and, on Linux, the boot and the namespace in which the process id counts."""
    name = f"{socket.gethostname()}:{pid}:{secrets.token_hex(3)}"
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
        return f"{name}:{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}-{numbers}"
    except OSError:
        return name


def has_ended(holder: str) -> bool:
    """Whether a process of this machine has ended; False where that cannot be known."""
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
    """Keeps the states of a process's replicas up to date, by learning or by following.

    It has a connection of its own, so that no decision waits for it. One thread calls `step` again
    and again.

    holder: this process, as it is named in leases; `learner` is the one that learns.
    behind: seconds, the age of the oldest outcome or revision that decisions here do not know.
    decisions, outcomes: in the ledger; `known` outcomes are in the state that decides here.
    changed: when these last changed, by `time.monotonic`.
    health: what is wrong, by kind, see `decide.health`; looked at now and then.
    restarts: how often models started again because the world changed.
    waits: whether it will assume outcomes for decisions that are pending.
    """

    def __init__(self, replicas: Replicas, place: Any, learns: bool = True):
        self._replicas, self._replica, self._shadows = replicas, replicas.main, Shadows()
        self.holder = process_name(os.getpid())
        self.learning, self.waits, self.behind = False, False, 0.0
        self.learner: str | None = None
        self.decisions = self.outcomes = self.known = 0
        self.changed = time.monotonic()
        self._learns, self._renew, self._due, self._untidy = learns, 0.0, 0.0, 0.0
        self._remove, self._examine = 0.0, 0.0
        self._guarding = Guarding()
        self.health: dict[str, str] = {}
        self.restarts = 0
        self._seen: dict[str, Any] = {}  # the last version read, by file
        self._loaded: Any = None
        self._published: dict[str, tuple[int, int]] = {}
        self._saved, self._followed = 0, False
        self._ledger = Ledger(place, shared=True, durable=False)  # it writes leases, and removes

    def step(self) -> None:
        """Learn new outcomes, or take over the state that another process has learned."""
        now = time.monotonic()
        if self._learns and self.learner not in (None, self.holder) and has_ended(self.learner):
            self._ledger.release(self.learner)
            self._renew = 0.0
        if now >= self._renew:
            self._renew = now + LEASE / 3
            held = self._learns and self._ledger.lease(self.holder, LEASE)
            if held and not self.learning:
                self._loaded = None  # another process may have changed anything
            self.learning, self.learner = held, self._ledger.holder()
            if not held:
                self._ledger.lease(self.holder, 4 * LEASE, FOLLOWER)  # one follower will do
            self._followed = self._ledger.holder(FOLLOWER) is not None
        with self._ledger.turn(write=False):
            changed = self._replicas.loaded != self._ledger.configured
        if changed:
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
            self._replicas.take_settings(self._ledger)
            now = self._replicas.settings
        replicas = {None: self._replica, **self._shadows.replicas()}
        self._publish([one for name, one in replicas.items() if self._hand_on(name, one)])
        self._measure()
        self.waits = now.wait is not None and bool(self._ledger.pending(time.time()))
        if now.wait is not None and self._ledger.pending(time.time() - now.wait):
            expire(self._replicas, now.wait, now.default)
        if now.retain is not None and time.monotonic() >= self._remove:
            self._remove = time.monotonic() + REMOVE
            since = time.time() - now.retain * 86400
            if self._ledger.retain(since, self._base_states) == PART:  # there may be more
                self._remove = 0.0
        beyond = self._guarding.broken(self._ledger, self._replicas.control)
        if beyond is not None and now.fallback:
            admin.halt(self._replicas, beyond)

    def _base_states(self) -> dict[str, bytes]:
        """Within the turn that removes decisions."""
        if self._loaded != self._ledger.configured:
            self._reload()
        return base_states([self._replica, *self._shadows.replicas().values()], self._ledger)

    def _hand_on(self, shadow: str | None, replica: Replica) -> bool:
        """Give the deciding replica what this one has learned, unless that one knows more: after a
        correction, or in new units, everything is learned anew, and until that is done the former
        state is the better one. Whether both know the same now."""
        front, version = self._replicas, replica.version
        theirs = front.main if shadow is None else front.shadows.replica(shadow)
        if version is None or theirs is None or replica.width != theirs.width:
            return False
        if version.follows(theirs.version):
            if theirs.setup.description != replica.setup.description:  # reconfigured meanwhile
                return False
            theirs.version = replica.copy()
        return theirs.version is not None and theirs.version.known == version.known

    def _reload(self) -> None:
        """Within a turn: new replicas by the configuration of today, which learn."""
        self._replica = resume(Replica(as_served(self._replicas.options)), self._ledger)
        self._shadows = self._replicas.watching(self._ledger, self._replica)
        self._published = {}  # a file of the same name may be another agent's
        self._loaded = self._ledger.configured

    def _publish(self, replicas: list[Replica]) -> None:
        """Store states for the other processes, in at most a twentieth of the time."""
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
        with self._ledger.turn(write=False):  # begun after reading: it knows all that they know
            self._replicas.take_settings(self._ledger)
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
        """Measure how far the deciding state is behind the ledger."""
        version = self._replicas.main.version
        known, revised = (0, 0) if version is None else version.known
        with self._ledger.turn(write=False):
            there = self._ledger.decisions, self._ledger.outcomes
            unknown = []
            if known < self._ledger.outcomes:
                unknown.append(f"SELECT time FROM outcomes WHERE sequence = {known + 1}")
            if revised < self._ledger.revisions:
                unknown.append(f"SELECT time FROM revisions WHERE number = {revised + 1}")
            times = [at for query in unknown for (at,) in self._ledger.ask_all(query)]
        if there != (self.decisions, self.outcomes):
            (self.decisions, self.outcomes), self.changed = there, time.monotonic()
        self.known = known
        self.behind = max(0.0, time.time() - min(times)) if times else 0.0
        if time.monotonic() >= self._examine:
            began = time.monotonic()
            with self._ledger.turn(write=False):
                found = health.found(self._ledger)
            self.health = {**found, **self._replicas.noticed()[1]}
            self._notice()
            self._examine = time.monotonic() + max(EXAMINED, 50 * (time.monotonic() - began))

    def _notice(self) -> None:
        """What the agent noticed of a world that changes, and whether that is news."""
        replica = self._replicas.main
        changed = Changed() if replica.host else replica.changed
        self.restarts = changed.all + changed.one
        if self.known - changed.last >= LATELY:
            self.health.pop("changed", None)

    def close(self) -> None:
        """Save what was learned, and let another process learn at once."""
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
