"""Reports on what a bandit has recorded, by connections of their own, so that no decision waits."""

import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Any

from ..decide import overview
from ..decide.control import Control
from ..decide.explain import find
from ..decide.lift import Lift, lift
from ..decide.metrics import Metric, metrics
from ..decide.notices import Changed
from ..decide.segments import Segments, segments
from ..decide.summary import summarize
from ..decide.transfer import export_history
from ..files import Damaged
from ..ledger.columns import COLUMNS, Entries, columns
from ..ledger.ledger import Ledger
from ..ledger.rows import Change
from .admin import KEPT
from .decider import Decider
from .types import Page, Refused, encoded

NOTICED = "SELECT decision, time FROM outcomes WHERE sequence = ?"
REMEMBERED = 20  # answers that took long
PAGE = 4_000_000  # bytes of JSON in one part of a log, unless a single decision takes more


class Reader:
    """Reads the ledger at `place`, as it is now."""

    def __init__(self, place: Any, decider: Decider):
        self._place, self._decider = place, decider
        self._reading, self._found = threading.Lock(), dict[Any, tuple[float, Any]]()

    def _ledger(self) -> closing[Ledger]:
        return closing(Ledger(self._place, write=False))

    def page(self, first: int, count: int) -> Page:
        """The decisions first, first + 1, ... as columns, see `Bandit.log`: `count` of them, or as
        many as fit into PAGE bytes of JSON, but at least one."""
        entries, size = [], 0
        with self._ledger() as ledger:
            entry = Entries(ledger.decision_id)
            after = end = min(first + count, ledger.decisions)
            for row in ledger.between(min(first, end), end):
                one = entry(row)
                size += len(encoded(one))
                if entries and size > PAGE:
                    after = row.number
                    break
                entries.append(one)
            more = after if after < ledger.decisions else None
            return Page(first, len(entries), more, columns(entries))

    def made_between(self, start: float, end: float, most: int) -> dict[str, list[Any]]:
        """The decisions of a period as `Log.of` takes them; they may take `most` bytes of
        JSON."""
        entries, size = [], 0
        with self._ledger() as ledger:
            entry = Entries(ledger.decision_id)
            for row in ledger.all(offers=True):
                if start <= row.time <= end:
                    entries.append(entry(row))
                    size += len(encoded(entries[-1]))
                if size > most:
                    said = f"its log takes more than {most >> 20} MiB: choose a shorter time"
                    raise ValueError(said)
        return {name: [one[n] for one in entries] for n, name in enumerate(COLUMNS)}

    def summary(self) -> dict[str, Any]:
        """`decide.summary.Summary` as a dictionary."""
        replicas = self._decider.replicas
        return self._seldom(("summary", replicas.loaded), self._summary, replicas.noticed)

    def _summary(self, times: int, noticed: dict[str, str]) -> dict[str, Any]:
        with self._ledger() as ledger:
            return asdict(summarize(ledger, times, warnings=tuple(noticed.values())))

    def _seldom(
        self, what: Any, read: Callable[..., Any], given: Callable[[], tuple[Any, ...]] = tuple
    ) -> Any:
        """What takes the whole history; where that takes long, what was found earlier is returned
        for a while. How long `given` takes, which may compile, does not count."""
        with self._reading:
            due, found = self._found.get(what, (0.0, None))
            if time.monotonic() < due:
                return found
            arguments = given()
            began, worked = time.monotonic(), time.thread_time()
            found = read(*arguments)
            # Waiting counts little: else summaries of short histories were old on a busy machine.
            took = max(time.thread_time() - worked, (time.monotonic() - began) / 10)
            self._found.pop(what, None)
            if took > 0.1:
                self._found[what] = time.monotonic() + 20 * took, found
            while len(self._found) > REMEMBERED:
                del self._found[next(iter(self._found))]
            return found

    def lift(self, metric: str | None, daily: bool, since: float = 0.0) -> Lift:
        """See `Bandit.lift`."""

        def read() -> Lift:
            with self._ledger() as ledger:
                return lift(ledger, metric, daily, since)

        return self._seldom(("lift", metric, daily, since), read)

    def metrics(self, since: float = 0.0) -> tuple[Metric, ...]:
        """See `Bandit.metrics`."""

        def read() -> tuple[Metric, ...]:
            with self._ledger() as ledger:
                return metrics(ledger, Control.of(ledger), since)

        return self._seldom(("metrics", since), read)

    def segments(self, key: str, since: float = 0.0) -> Segments:
        """See `Bandit.segments`."""

        def read() -> Segments:
            with self._ledger() as ledger, _refused("unknown"):
                return segments(ledger, key, since)

        return self._seldom(("segments", key, since), read)

    def changes(self) -> list[dict[str, Any]]:
        """Which settings were changed, when and by whom, oldest first; and when the agent last
        noticed that the world had changed, as its state tells (nothing is written of it)."""
        main = self._decider.replicas.main
        noticed = Changed() if main.host else main.changed
        with self._ledger() as ledger:
            found = [change._asdict() for change in ledger.changes()]
            when = ledger.ask_all(NOTICED, noticed.last)
        value = {"all": noticed.all, "one": noticed.one}
        told = [Change(decision, time, "noticed", value, "world") for decision, time in when]
        return sorted(found + [one._asdict() for one in told], key=lambda one: one["time"])

    def history(self, buckets: int = 60, since: float | None = None) -> list[dict[str, Any]]:
        """Decisions over time in equal parts of it, oldest first, see `overview.history`."""
        with self._ledger() as ledger:
            return overview.history(ledger, buckets, since)

    def recent(self, count: int = 20) -> list[dict[str, Any]]:
        """The last decisions, newest first, with the present values of the actions on offer, see
        `overview.recent`."""
        with self._ledger() as ledger:
            return overview.recent(ledger, count, self._decider.value)

    def explain(self, id: str, top: int) -> dict[str, Any]:
        """Why a decision was made, see `Bandit.explain`."""
        with self._ledger() as ledger, _refused("unknown"):
            row = find(ledger, id)
        return asdict(self._decider.explain(id, row, top))

    def kept(self, prefix: str) -> dict[str, bytes]:
        """What `admin.keep` stored, by those names that begin with `prefix`."""
        with self._ledger() as ledger:
            found = ledger.setting(KEPT) or {}
        return {n: b64decode(text) for n, text in found.items() if n.startswith(prefix)}

    def export(self) -> bytes:
        """The history it has learned from, as a file, see `decide.transfer`."""
        with self._ledger() as ledger:
            if not ledger.outcomes:
                raise Refused("unknown", "nothing has been learned yet")
            with _refused("conflict"):
                return export_history(ledger)


@contextmanager
def _refused(kind: str) -> Iterator[None]:
    """A mistake of the caller is refused; what means that the ledger is damaged is not one."""
    try:
        yield
    except Damaged:
        raise
    except ValueError as error:
        raise Refused(kind, str(error)) from error
