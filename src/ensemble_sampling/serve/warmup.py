"""For which offers programs are compiled, so that nobody waits for it who need not."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..decide.replica import MANY, Mind, _room
from ..decide.states import State
from ..inputs.offer import Offer
from .replicas import Followed

RECENT = 100  # decisions whose offers are compiled for at the start


class Compiled(Followed):
    """Knows the shapes of offers that can be decided at once, and compiles for others."""

    warmed = False  # whether it has compiled for what was there already

    def _shape(self, offer: Offer) -> Any:
        """What programs are compiled for; a fixed set of actions has one."""
        rows = len(offer.mask)
        rows = _room(rows) if self._offers.arms is None else rows
        minds = (self._mind, *self._shadows.minds().values())
        return rows, len(offer.table) > 1, *(mind._choose for mind in minds)

    def _new(self, offers: Sequence[Offer], size: int = 1) -> list[Offer]:
        """Those for which nothing is compiled that would decide so many of them at once."""
        if self._mind.host:
            return []
        return [offer for offer in offers if self._compiled.get(self._shape(offer), 0) < size]

    def prepare(self, offer: Offer, size: int) -> bool:
        """Compile for so many offers like this one at once, in any thread; whether more would be
        compiled apart from it."""
        with self._door:  # lest a configuration be half loaded
            mind, shadows = self._mind, list(self._shadows.minds().values())
            if mind.host:
                return False
            shape = self._shape(offer)
        if self._compiled.get(shape, 0) < size:
            about = (offer.table, offer.mask)
            with suppress(Exception):  # decisions will say what is wrong
                mind.pick_many([0] * size, [about] * size, _state(mind))
                if size == 1:
                    for shadow in shadows:
                        shadow.pick(0, *about, _state(shadow))
                    if mind.taught is not None:
                        mind.outcome(0.0, self._ledger)
            self._compiled[shape] = size
        return size < MANY

    def warm(self, seconds: float = 3.0) -> None:
        """Compile for offers like the last ones, so that the first requests need not wait."""
        with self._door:
            with self._ledger.turn(write=False):
                number = self._ledger.decisions
                rows = [*self._ledger.between(max(0, number - RECENT), number)]
            if self._mind.agent is None or not rows:
                return
            self.warmed, hasher = True, self._offers.hasher
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


def _state(mind: Mind) -> State:
    """What to try a program with."""
    return mind._fresh() if mind.taught is None else mind.taught.state
