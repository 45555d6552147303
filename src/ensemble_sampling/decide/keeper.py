"""Whoever holds the lease of a ledger learns for all; the others follow what it publishes."""

import os
import secrets
import socket
import time
from typing import Any

import jax
import jax.numpy as jnp

from .asked import Settings
from .begun import Begun
from .ledger import Ledger
from .mind import Mind, Taught
from .shadows import candidate, recorded
from .shared import APPRENTICE, SETTINGS, Shared
from .snapshots import SNAPSHOT, Snapshot, pack, unpack

LEASE = 3.0  # seconds for which nobody else may learn, renewed in a third of it
STEP = 256  # outcomes learned before they are handed on
SAVE = 1000  # outcomes after which the state is saved for good
FOLLOWER = "follower"  # the lease that says that there is somebody to publish for
EVERY = 0.25  # seconds between two looks, where nobody calls


@jax.jit
def _copy(state: Any) -> Any:
    return jax.tree.map(jnp.copy, state)


class Keeper(Begun):
    """Keeps the state of a `Shared` bandit up to date, by learning or by following.

    It has a ledger of its own, so that no decision waits for it. `step` is to be called again and
    again, by one thread.
    """

    def __init__(self, front: Shared, place: Any, learns: bool = True):
        self.front, self._folder, self._snapshot_every = front, place, 0
        # By chance too: processes of two containers may have one name and one number.
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.learning, self.learner, self.behind = False, None, 0.0
        self.decisions = self.outcomes = self.known = 0
        self._learns, self._renew, self._due = learns, 0.0, 0.0
        self._seen: dict[str, Any] = {}  # what was followed last, by file
        self._loaded: Any = None
        self._published: dict[str, tuple[int, int]] = {}
        self._saved, self._followed = 0, False
        self._ledger = Ledger(place, shared=True)

    def step(self) -> None:
        """Learn what is new, or take it over."""
        now = time.monotonic()
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
            changed = self.front.loaded != self._ledger.configured
        if changed:
            self.front.refresh()
        if self.learning:
            self._learn()
        else:
            self._follow()

    def _learn(self) -> None:
        with self._ledger.turn(write=False):
            if self._loaded != self._ledger.configured:
                self._reload()
            self._mind.sync(self._ledger, STEP)
            self._shadows.sync(self._ledger, STEP)
            settings = Settings.recorded(self._ledger.setting(SETTINGS))
            self._measure(self._mind.taught)
        self.front.settings = settings
        minds = {None: self._mind, **self._shadows.minds()}
        for name, mind in minds.items():
            theirs = self.front.mind(name)
            if mind.taught is None or theirs is None or mind.width != theirs.width:
                continue
            if theirs.taught is None or theirs.taught.known != mind.taught.known:
                state = _copy(mind.taught.state)  # learning consumes its own
                self.front.adopt(mind.taught._replace(state=state), name)
        self._publish([*minds.values()])
        if settings.wait is not None:
            due = time.time() - settings.wait
            while self.front.expire(due, settings.default):
                pass

    def _reload(self) -> None:
        """Within a turn: begin as the front did, with minds that learn."""
        front = self.front
        self._setup(*front.begun_with)
        self._begin(migrate=False)
        for name, known in recorded(self._ledger).items():
            if name in front.candidates and name != APPRENTICE and self._mind.agent is not None:
                mind = candidate(front.candidates[name], self._mind)
                mind.file = f"shadow-{known.number}.safetensors"
                self._shadows.attend(name, known.number, mind)
        self._loaded = self._ledger.configured

    def _publish(self, minds: list[Mind]) -> None:
        """For the other processes, as often as it costs no more than a twentieth of the time."""
        now = time.monotonic()
        if now < self._due:
            return
        for mind in minds:
            taught = mind.taught
            if taught is None or mind.width is None or mind.host:
                continue
            if self._published.get(mind.file) == taught.known:
                continue
            durable = taught.outcomes - self._saved >= SAVE
            if not durable and not self._followed:
                continue
            self._ledger.store(mind.file, self._packed(mind, taught), durable=durable)
            self._published[mind.file] = taught.known
            if durable and mind is self._mind:
                self._saved = taught.outcomes
        self._due = now + max(EVERY, 20 * (time.monotonic() - now))

    def _packed(self, mind: Mind, taught: Taught) -> bytes:
        about = (self._ledger.id, taught.outcomes, mind.description, 0)
        return pack(Snapshot(taught.state, *about, taught.revisions, taught.origin))

    def _follow(self) -> None:
        files = {None: SNAPSHOT} | {n: m.file for n, m in self.front._shadows.minds().items()}
        read = {}
        for name, file in files.items():
            version = self._ledger.stored_version(file)
            if version is not None and version != self._seen.get(file):
                read[name] = (version, self._ledger.stored(file))
        with self._ledger.turn(write=False):  # after they were read: it knows all they know
            self.front.settings = Settings.recorded(self._ledger.setting(SETTINGS))
            for name, (version, content) in read.items():
                mind = self.front.mind(name)
                if mind is None or mind.width is None or content is None:
                    continue
                found = unpack(content, mind._fresh(), self._ledger, mind.description)
                self._seen[files[name]] = version
                if found is not None:
                    counts = (found.sequence, 0, found.revisions, found.origin)
                    self.front.adopt(Taught(found.state, *counts), name)
            self._measure(self.front._mind.taught)

    def _measure(self, taught: Taught | None) -> None:
        """Within a turn: how old the oldest outcome is that decisions here do not know."""
        known = 0 if taught is None else taught.outcomes
        self.decisions, self.outcomes = self._ledger.decisions, self._ledger.outcomes
        self.known, self.behind = known, 0.0
        if known < self._ledger.outcomes:
            query = f"SELECT time FROM outcomes WHERE sequence = {known + 1}"
            self.behind = max(0.0, time.time() - self._ledger.ask(query))

    def close(self) -> None:
        """Save what was learned, and let others learn at once."""
        if self._ledger.closed:
            return
        if self.learning:
            for mind in (self._mind, *self._shadows.minds().values()):
                if mind.taught is not None and mind.width is not None and not mind.host:
                    self._ledger.store(mind.file, self._packed(mind, mind.taught))
            self._ledger.release(self.holder)
        self._ledger.close()
