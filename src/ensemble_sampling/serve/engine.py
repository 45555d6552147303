"""One bandit as a process of the service has it: what is asked together is done together."""

import asyncio
import gc
import logging
import queue
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count
from typing import Any

from ..decide import overview, words
from ..decide.asked import Ask, Made, Refused, Settings
from ..decide.decisions import Values
from ..decide.keeper import EVERY, Keeper
from ..decide.ledger import ID, Ledger
from ..decide.offered import Offered
from ..decide.shared import Later, Shared
from ..decide.steered import KEPT
from ..decide.summary import summarize
from ..decide.told import Told
from ..decide.transfer import export_history

__all__ = ["Ask", "Engine", "Made", "Refused", "Settings"]

logger = logging.getLogger("ensemble_sampling.serve")

PACE = 0.1  # seconds from one step of learning to the next, at least
PATIENCE = 30.0  # seconds that a request waits for its turn
AGAIN = 10.0  # seconds after which the same trouble is logged again
SETTLED = (0, 100, 2000)  # batches after which most of what lives long is there
MOST = 64  # requests done in one transaction, lest the first of them wait too long


class Engine:
    """Decides and learns for one bandit.

    `decide` and `outcome` are for the event loop; all other methods block, and are to be called
    in a thread. Every one raises `Refused` for what is wrong with a request. Three threads do the
    work: one decides and records, by what the other has learned, or has read of another process;
    the third compiles for offers unlike those before, while others are decided.

    place: a folder, or `postgresql://...#name`.
    learns: whether this process may become the one that learns.
    """

    def __init__(
        self,
        name: str,
        place: Any,
        agent: Any = None,
        *,
        actions: Sequence[Any] | None = None,
        floor: float | None = None,
        hasher: Any = None,
        candidates: Mapping[str, Any] | None = None,
        learns: bool = True,
    ):
        self.name, self._place = name, place
        about: dict[str, Any] = {"actions": actions, "floor": floor, "hasher": hasher}
        self._front = Shared(place, agent, candidates=candidates, **about)
        self._keeper = Keeper(self._front, place, learns)
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._new: queue.PriorityQueue[Any] = queue.PriorityQueue()  # what to compile for
        self._order = count()
        self._summarizing, self._summary = threading.Lock(), (0.0, {})
        self._wake, self._ending = threading.Event(), False
        self._said, self._told = ("", 0.0), 0.0  # what was logged last, and when
        self.trouble: str | None = None  # what keeps the other thread from its work, if anything
        self.away = False  # whether that is that the ledger does not answer
        self._keeper_step()
        if not self._front.warmed:
            self._front.warm()
        self._threads = [
            threading.Thread(target=work, name=f"{name}-{what}", daemon=True)
            for what, work in (
                ("compile", self._compile),
                ("decide", self._work),
                ("keep", self._keep),
            )
        ]
        for thread in self._threads:
            thread.start()

    async def decide(self, asks: Sequence[Ask]) -> list[Made]:
        """All of them or none; on disk when it returns."""
        for ask in asks:
            if ask.event is not None and ID.fullmatch(ask.event):  # outcomes are told by either
                said = f"an event must not look like a decision's own id, got {ask.event!r}"
                raise Refused("invalid", said)
        return await self._put("decide", asks)

    async def outcome(self, outcomes: Sequence[Told]) -> list[bool]:
        """Learn (id of a decision or "event" or "event/slot", outcome, ref), all or none: which
        of them were new. Told twice, an outcome counts once; where outcomes add up, one with the
        same `ref` does."""
        return await self._put("outcome", outcomes)

    async def _put(self, kind: str, what: Any) -> Any:
        if self._ending:
            raise Refused("unavailable", "the service is ending")
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._asked.put((kind, what, future, loop))
        try:
            async with asyncio.timeout(PATIENCE):
                return await future
        except TimeoutError as error:  # of a database that neither answers nor goes away
            raise self._unavailable(OSError(f"no answer within {PATIENCE:g} s")) from error

    def _work(self) -> None:
        for number in count():
            if number in SETTLED:  # what there is by now stays: it need not be looked through again
                gc.collect()
                gc.freeze()
            batch = [self._asked.get()]
            while len(batch) < MOST and not self._asked.empty():
                batch.append(self._asked.get())
            asked = [one for one in batch if one is not None and not one[2].done()]  # it waits yet
            if asked:
                self._do(asked)
            if None in batch:
                return self._fail()

    def _do(self, batch: list[Any]) -> None:
        decisions = [what for kind, what, *_ in batch if kind == "decide"]
        outcomes = [what for kind, what, *_ in batch if kind == "outcome"]
        try:
            made, told = map(iter, self._front.work(decisions, outcomes, hurry=True))
            answers = [next(made if kind == "decide" else told) for kind, *_ in batch]
        except OSError as error:
            answers = [self._unavailable(error)] * len(batch)
        except Exception as error:  # a fault of ours; the others are not to suffer from it
            if len(batch) > 1:
                for request in batch:
                    self._do([request])
                return
            answers = [error]
        now = []
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Later):
                self._new.put((1, next(self._order), answer.offer, request))
            else:
                now.append((request, answer))
        _answer(now)
        if outcomes:
            self._wake.set()

    def _compile(self) -> None:
        """For one offer of a new shape first, which somebody waits for, and then for two, four, ...
        at once."""
        while True:
            size, _, offer, request = self._new.get()
            if offer is None:
                return
            more = not self._ending and self._front.prepare(offer, size)
            if request is not None:
                self._asked.put(request)
            if more:
                self._new.put((2 * size, next(self._order), offer, None))

    def _fail(self) -> None:
        batch = []
        while not self._asked.empty():
            batch.append(self._asked.get())
        batch = [request for request in batch if request is not None]
        ending = Refused("unavailable", "the service is ending")
        _answer([(request, ending) for request in batch])

    def _keep(self) -> None:
        while not self._ending:
            self._wake.wait(EVERY if self.trouble is None else 1.0)
            self._wake.clear()
            if not self._ending:
                self._keeper_step()
                time.sleep(PACE)  # several outcomes are learned with less ado than one

    def _keeper_step(self) -> None:
        try:
            self._keeper.step()
            self.trouble, self.away = None, False
            if not self._keeper.learning and not self._front.warmed:
                self._front.warm()  # for what others have been asked
        except Exception as error:  # decisions go on by what is known; said by `status`
            ours, now = not isinstance(error, OSError | Refused), time.monotonic()
            if self.trouble is None or now > self._told + AGAIN:
                self._told = now
                logger.error("%s: cannot learn or follow: %s", self.name, error, exc_info=ours)
            self.trouble, self.away = str(error), isinstance(error, OSError)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """A ledger that cannot be reached is nobody's mistake."""
        try:
            yield
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> Refused:
        """Who asks is told that much; where the ledger is, and what it says, is for the log: once,
        and again after a while."""
        now, said = time.monotonic(), str(error)
        if said != self._said[0] or now > self._said[1] + AGAIN:
            self._said = (said, now)
            logger.error("%s: the ledger does not answer: %s", self.name, said)
        return Refused("unavailable", "the ledger does not answer: ask again")

    @contextmanager
    def _reader(self) -> Iterator[Ledger]:
        """The ledger for a question that may take a while."""
        with self._away():
            ledger = Ledger(self._place, write=False)
            try:
                yield ledger
            finally:
                ledger.close()

    @property
    def settings(self) -> Settings:
        return self._front.settings

    def correct(self, id: str, outcome: Any) -> bool:
        with self._away():
            return self._front.correct(id, outcome)

    def add(self, id: str, amount: Any, ref: str | None = None) -> bool:
        with self._away():
            return self._front.add(id, amount, ref)

    def expire(self, older_than: float, outcome: Any) -> int:
        total, before = 0, time.time() - older_than
        with self._away():
            while found := self._front.expire(before, outcome):
                total += found
        self._wake.set()
        return total

    def activate(self, event: str) -> bool:
        """A deferred decision counts from now on; False if it did already."""
        with self._away():
            return self._front.activate(event)

    def predict(self, ask: Ask) -> dict[str, Any]:
        """What a decision would be made of: names, probabilities, mean, spread."""
        with self._away():
            return self._front.predict(ask)

    def log(self, first: int, count: int) -> dict[str, list[Any]]:
        """The decisions first, first + 1, ... as columns, see `Bandit.log`."""
        with self._reader() as ledger:
            return ledger.table(range(min(first, ledger.decisions), first + count))

    def summary(self) -> dict[str, Any]:
        """Of `decide.summary.Summary`, with its shadows as dictionaries; of a moment ago, where
        it takes long: it looks at the whole history."""
        with self._summarizing:
            due, found = self._summary
            if time.monotonic() < due:
                return found
            with self._away():
                times = self._front.diverged()
            noticed = words.diverged(times)
            warnings = () if noticed is None else (noticed,)
            began = time.monotonic()
            with self._reader() as ledger:
                found = asdict(summarize(ledger, times, warnings=warnings))
            took = time.monotonic() - began
            self._summary = (time.monotonic() + (20 * took if took > 0.1 else 0.0), found)
            return found

    def status(self) -> dict[str, Any]:
        """Where this process stands. Cheap.

        learned: outcomes in the state that decides here, of `outcomes` in the ledger.
        behind: seconds, the age of the oldest outcome it does not know.
        learner: who learns, None for nobody; `learning`: whether that is this process.
        trouble: what keeps it from learning or following; None: nothing.
        floor: the share of decisions left to chance.
        """
        keeper = self._keeper
        return {
            "decisions": keeper.decisions,
            "outcomes": keeper.outcomes,
            "learned": keeper.known,
            "behind": keeper.behind,
            "learner": keeper.learner,
            "learning": keeper.learning,
            "trouble": self.trouble,
            "floor": self._front.floor,
        }

    def history(self, buckets: int = 60) -> list[dict[str, Any]]:
        """Decisions over time in equal parts of it, oldest first: for each `time` (of its end),
        `decisions`, `outcomes`, `reward` and `stderr` (None where there is none), `agreement`,
        `pending`, `actions` (name: share)."""
        with self._reader() as ledger:
            return overview.history(ledger, buckets)

    def recent(self, count: int = 20) -> list[dict[str, Any]]:
        """The last decisions, newest first, and why: id, time, action, probability, outcome, and
        for every action on offer name, probability (the share of members that vote for it), mean
        and spread by what is known now, or None."""
        with self._reader() as ledger:
            return overview.recent(ledger, count, self._value)

    def _value(self, offer: Offered) -> Values | None:
        return self._front.value(offer)

    def configure(self, settings: Settings) -> None:
        """From now on, in all processes of the service."""
        with self._away():
            self._front.configure(settings)

    def candidates(self) -> list[str]:
        """Names of agents that may become shadows."""
        return list(self._front.candidates)

    def candidate(self, name: str) -> Any:
        """The agent of that name, one of `candidates`."""
        if name not in self._front.candidates:
            raise Refused("unknown", f"there is no candidate {name!r}")
        return self._front.candidates[name]

    def in_charge(self) -> tuple[str, str]:
        """The agent that decides: the name it was promoted by, else "default", and as text."""
        return self._front.named, repr(self._front.begun_with[0])

    def keep(self, name: str, content: bytes | None) -> None:
        """Remember something small with the ledger, in all processes; None forgets it."""
        with self._away():
            self._front.keep(name, content)

    def kept(self, prefix: str = "") -> dict[str, bytes]:
        """What was kept by names that begin so."""
        with self._reader() as ledger:
            found = ledger.setting(KEPT) or {}
        return {n: b64decode(text) for n, text in found.items() if n.startswith(prefix)}

    def shadow(self, name: str) -> None:
        with self._away():
            self._front.shadow(name)

    def dismiss(self, name: str) -> None:
        with self._away():
            self._front.dismiss(name)

    def promote(self, name: str) -> None:
        with self._away():
            self._front.promote(name)

    def export_state(self) -> bytes:
        """What it has learned from, as a file, see `transfer`."""
        with self._reader() as ledger:
            if not ledger.outcomes:
                raise Refused("unknown", "nothing has been learned yet")
            try:
                return export_history(ledger)
            except ValueError as error:
                raise Refused("conflict", str(error)) from error

    def import_state(self, content: bytes) -> None:
        """Learn what another bandit of the same configuration has learned from."""
        with self._away():
            self._front.take_in(content)
        self._wake.set()

    def close(self) -> None:
        """Answer what is asked already, save what was learned, and let others learn."""
        self._ending = True
        self._wake.set()
        compiling, *others = self._threads
        self._new.put((MOST, next(self._order), None, None))
        compiling.join(timeout=10)
        self._asked.put(None)  # after what was compiled for
        for thread in others:
            thread.join(timeout=10)
        self._keeper.close()
        self._front.close()


def _answer(answers: list[tuple[Any, Any]]) -> None:
    """Hand answers to requests back to the loops that wait, each loop woken once."""
    loops: dict[Any, list[Any]] = {}
    for (_, _, future, loop), answer in answers:
        loops.setdefault(loop, []).append((future, answer))
    for loop, pairs in loops.items():
        with suppress(RuntimeError):  # a loop that has ended waits for nothing
            loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: list[Any]) -> None:
    for future, answer in pairs:
        if future.done():  # whoever asked has gone
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
