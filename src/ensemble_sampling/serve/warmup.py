"""For which offers programs are compiled, so that nobody waits for it who need not."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..decide.programs import room
from ..decide.replica import MANY, Replica
from ..inputs.offer import Offer
from .replicas import Replicas

RECENT = 100  # decisions whose offers are compiled for at the start


class WarmUp:
    """Knows the shapes of offers that can be decided at once, and compiles for others."""

    def __init__(self, replicas: Replicas):
        self._replicas = replicas
        self._sizes: dict[Any, int] = {}  # for how many offers of a shape at once
        self.done = False  # whether it has compiled for what was there already

    def _shape(self, offer: Offer) -> Any:
        """What programs are compiled for; a fixed set of actions has one."""
        rows, main = len(offer.mask), self._replicas.main
        rows = room(rows) if main.inputs.arms is None else rows
        others = [one.programs.kind for _, one in self._replicas.shadows.awake.values()]
        return rows, len(offer.table) > 1, main.programs.kind, *others

    def new(self, offers: Sequence[Offer], size: int = 1) -> list[Offer]:
        """Those for which nothing is compiled that would decide so many of them at once."""
        if self._replicas.main.host:
            return []
        return [offer for offer in offers if self._sizes.get(self._shape(offer), 0) < size]

    def prepare(self, offer: Offer, size: int) -> bool:
        """Compile for so many offers like this one at once, in any thread; whether more would be
        compiled apart from it."""
        with self._replicas.door:  # lest a configuration be half loaded
            main, shadows = self._replicas.main, self._replicas.shadows.replicas()
            if main.host:
                return False
            shape = self._shape(offer)
        if self._sizes.get(shape, 0) < size:
            about = (offer.table, offer.mask)
            with suppress(Exception):  # decisions will say what is wrong
                main.choose_many([0] * size, [about] * size, _state(main))
                if size == 1:
                    for shadow in shadows.values():
                        shadow.choose(0, *about, _state(shadow))
                    if main.version is not None:
                        main.outcome(0.0, self._replicas.ledger)
            self._sizes[shape] = size
        return size < MANY

    def warm(self, seconds: float = 3.0) -> None:
        """Compile for offers like the last ones, so that the first requests need not wait."""
        with self._replicas.door:
            ledger, main = self._replicas.ledger, self._replicas.main
            with ledger.turn(write=False):
                number = ledger.decisions
                rows = [*ledger.between(max(0, number - RECENT), number)]
            if main.agent is None or not rows:
                return
            self.done, hasher = True, main.inputs.hasher
            found = [Offer(o.table, o.names, o.available) for r in rows if (o := r.offer)]
            shapes = [self._shape(offer) for offer in found]
        often, offers = Counter(shapes), dict(zip(shapes, found, strict=True))
        if hasher is not None:
            with suppress(ImportError):
                hasher([{"a": "b"}])  # which imports something large
        end, size = time.monotonic() + seconds, 1
        while size <= MANY:
            for shape, _ in often.most_common():
                if time.monotonic() < end:
                    self.prepare(offers[shape], size)
            size *= 2


def _state(replica: Replica) -> Any:
    """What to try a program with."""
    return replica.fresh() if replica.version is None else replica.version.state
