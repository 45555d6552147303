"""What an administrator changes of a bandit that several processes serve."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

from .. import checks
from ..decide.shadows import candidate, recorded
from ..decide.snapshots import SNAPSHOT
from ..decide.transfer import import_history, read_history
from ..files import Damaged
from ..inputs.hashing import Hasher
from .replicas import APPRENTICE, SETTINGS, Followed, refusing
from .types import Refused, Settings

IMPORTED = "imported"  # where a ledger keeps the digests of files that were taken in
KEPT = "kept"  # where a ledger keeps what others want to be kept


class Steered(Followed):
    """Changes settings, shadows and who is in charge, and takes in what was learned elsewhere."""

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes."""
        with self._door:
            with self._ledger.turn():
                with refusing():
                    checks.outcome(settings.default)
                if settings.wait is not None and self._mind.width is not None:
                    self._outcome(settings.default)  # which it will have to learn
                apprentice = recorded(self._ledger).get(APPRENTICE)
                if settings.mode == "apprentice" and apprentice is None:
                    self._ledger.add_shadow(APPRENTICE, self._mind.description)
                if settings.mode != "apprentice" and apprentice is not None:
                    self._ledger.add_shadow(APPRENTICE, None)
                self._ledger.set(SETTINGS, settings.record())
            self._load()

    def keep(self, name: str, content: bytes | None) -> None:
        """Remember something small with the ledger; None forgets it."""
        with self._door, self._ledger.turn():
            kept = self._ledger.setting(KEPT) or {}
            kept.pop(name, None)
            if content is not None:
                kept[name] = b64encode(content).decode()
            self._ledger.set(KEPT, kept)

    def take_in(self, content: bytes) -> int:
        """Learn what another bandit of the same configuration has learned from; how much. The same
        file again is no news: nothing of it is learned twice."""
        with self._door:
            try:
                about, features = read_history(content)
            except Damaged as error:
                raise Refused("invalid", str(error)) from error
            try:
                with self._ledger.turn():
                    self._settle_down()
                    known = self._ledger.setting(IMPORTED) or []
                    if (digest := sha256(content).hexdigest()) in known:
                        return 0
                    if self._mind.width is None:
                        self._settle_as(about)
                    with refusing():
                        found = import_history(self._ledger, self._mind, about, features)
                    self._ledger.set(IMPORTED, [*known, digest])
                    return found
            finally:
                self._load()

    def _settle_as(self, about: dict[str, Any]) -> None:
        """Within a turn: what the first decision settles was settled elsewhere."""
        said, theirs = self._ledger.description, about["agent"]
        known = {name: theirs[name] for name in ("hasher", "columns") if name in theirs}
        if self._mind.recipe is not None and {**said, **known} != said:
            with refusing():
                Hasher.recorded(known.get("hasher"))
            self._ledger.describe({**said, **known})
            self._reload()
        self._mind.settle(about["width"])

    def shadow(self, name: str) -> None:
        """Let one of the candidates watch from now on; it learns all that is recorded."""
        if name not in self.candidates:
            raise Refused("unknown", f"there is no candidate {name!r}, but {[*self.candidates]}")
        with self._door:
            with self._ledger.turn():
                if self._mind.agent is None:
                    raise Refused("conflict", "there is no decision yet, on which shadows watch")
                if name in recorded(self._ledger):
                    return
                with refusing():
                    mind = candidate(self.candidates[name], self._mind)
                self._ledger.add_shadow(name, mind.description)
            self._load()

    def dismiss(self, name: str) -> None:
        """Let a shadow go; what it said stays in the ledger."""
        with self._door:
            with self._ledger.turn():
                if name not in recorded(self._ledger):
                    raise Refused("unknown", f"there is no shadow {name!r}")
                self._ledger.add_shadow(name, None)
            self._load()

    def promote(self, name: str) -> None:
        """Put a shadow in charge, in all processes."""
        with self._door:
            with self._ledger.turn():
                known = recorded(self._ledger).get(name)
                if known is None or name not in self.candidates:
                    raise Refused("unknown", f"there is no shadow {name!r}")
                learned = self._ledger.stored(f"shadow-{known.number}.safetensors")
                mind = candidate(self.candidates[name], self._mind)
                named = self._offers.columns.description if self._offers.columns else {}
                self._ledger.describe({**mind.description, **named}, promoted=name)
            if learned is not None:
                self._ledger.store(SNAPSHOT, learned)
            self._load()
