"""The threads of a process that serves: few, and shared by all of its bandits."""

import gc
import heapq
import logging
import threading
import time
from collections.abc import Callable
from itertools import count

DECIDERS, COMPILERS, KEEPERS = 8, 2, 4  # several, since one may wait for another process or disk
SETTLED = (0, 100, 2000)  # batches after which to freeze the objects there are

logger = logging.getLogger("ensemble_sampling.serve")


class Pool:
    """Threads that do jobs as they become due, the earliest first."""

    def __init__(self, name: str, size: int):
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._changed, self._ending = count(), threading.Condition(), False
        names = [f"{name}-{n}" for n in range(size)]
        self._threads = [threading.Thread(target=self._work, name=n, daemon=True) for n in names]
        self._begun = False

    def add(self, job: Callable[[], None], due: float = 0.0) -> None:
        """Do it in one of the threads, not before the time `due` of `time.monotonic`."""
        with self._changed:
            heapq.heappush(self._jobs, (due, next(self._order), job))
            self._changed.notify()
            begins, self._begun = not self._begun, True
        if begins:
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:  # the next job is another bandit's
                logger.exception("a job of the service failed")
            del job  # it may hold an engine that is closed before the next one comes

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._ending:
                wait = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._jobs)[2]
                self._changed.wait(wait)
            return None

    def close(self) -> None:
        """Let every thread end after its job; jobs not begun are dropped."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads if self._begun else ():
            thread.join(timeout=10)


class Pools:
    """Those for deciding and recording, for compiling, and for learning and following."""

    def __init__(self) -> None:
        self.decide = Pool("decide", DECIDERS)
        self.compile = Pool("compile", COMPILERS)
        self.keep = Pool("keep", KEEPERS)
        self._batches = count()

    def settle(self) -> None:
        """Before a batch: after many of them, exempt the objects there are from garbage collection.
        They live as long as the process, and looking through them takes time."""
        if next(self._batches) in SETTLED:
            gc.collect()
            gc.freeze()

    def close(self) -> None:
        for pool in (self.decide, self.compile, self.keep):
            pool.close()
