"""Where chunks of realizations run: on this machine, or wherever an engine takes them."""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import Any, Protocol, TypeVar

import jax

from .chunks import Part, Work
from .programs import threads_at_a_time

Chunk = tuple[int, int]
"""Which work, and the number of the chunk in it."""


class Engine(Protocol):
    """Runs chunks: `simulate`, `sweep` and `run` say which are missing, and merge and save what
    comes back, in whatever order it comes.

    A chunk is a pure function of its work and number: `works[i].ready()` compiles it, and gives the
    function. An engine may run a chunk anywhere, and again where it was lost; on the same kind of
    device with the same versions its numbers are the same to the last bit. A work is a frozen
    dataclass of agents, environments and numbers; how it gets to another machine is the engine's
    own business, and nothing of it is kept in a file.
    """

    @property
    def jobs(self) -> int:
        """How many simulations of a study keep it busy, side by side."""
        ...

    def run(
        self, works: Sequence[Work], chunks: Sequence[Chunk]
    ) -> Generator[tuple[Chunk, Part], None, None]:
        """Each of the chunks with what it gave, as they come. Closed early (an interrupt, or a
        chunk that failed), it gives up what is still on its way."""
        ...


@dataclass(frozen=True)
class Local:
    """This machine: all of its accelerators together, or its cores side by side."""

    @property
    def jobs(self) -> int:
        return 2 if jax.default_backend() == "cpu" else max(4, os.cpu_count() or 4)

    def run(
        self, works: Sequence[Work], chunks: Sequence[Chunk]
    ) -> Generator[tuple[Chunk, Part], None, None]:
        ready = {at: works[at].ready() for at in dict.fromkeys(at for at, _ in chunks)}
        found = completed(lambda at: ready[at[0]](at[1]), chunks, threads_at_a_time())
        with closing(found) as finished:
            yield from finished


def as_engine(engine: Any) -> Engine:
    if engine is None:
        return Local()
    if isinstance(engine, type) or not callable(getattr(engine, "run", None)):
        raise TypeError(
            "engine must be es.simulation.Local(), es.simulation.Ray() or one of your own, "
            f"got {engine!r}"
        )
    return engine


Item = TypeVar("Item")
Found = TypeVar("Found")


def completed(
    work: Callable[[Item], Found], items: Iterable[Item], threads: int, stop: Event | None = None
) -> Generator[tuple[Item, Found]]:
    """Each item with what `work` made of it, as they come; leave it by `contextlib.closing`.

    Only one more than there are threads is begun ahead of the caller, so that little is left to
    wait for once it is interrupted. Pieces on their way end by themselves; those that can end
    early look at `stop`.
    """
    pool, waiting = ThreadPoolExecutor(threads), iter(items)
    try:
        running = {pool.submit(work, item): item for item in islice(waiting, threads + 1)}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
                running |= {pool.submit(work, item): item for item in islice(waiting, 1)}
    finally:
        if stop is not None:
            stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
