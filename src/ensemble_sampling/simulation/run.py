"""Many realizations of an agent in an environment: in chunks, run by an engine, and merged.

A chunk is reduced to count, mean and sum of squared deviations per period, which merge exactly in
any order: to resume, to use several devices or several machines is then one code path.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import islice
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import describe, settings
from ..core import Agent, Environment, Posterior, fact
from .checkpoint import Checkpoint
from .loop import Measure
from .programs import Point, Run, Runner, Stack, compiled, eager, threads_at_a_time
from .progress import Progress, reported
from .results import Result, averages

Part = dict[str, np.ndarray]
"""What is left of a chunk: count, mean and sums of squared deviations, and what is to be kept."""

Chunk = tuple[int, int]
"""Which work, and the number of the chunk in it."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations per period; merging is exact in any order."""

    count: int
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def of(cls, regret: np.ndarray, summed: bool = False) -> "Moments":
        """Of the regret (realizations, periods), or of its sums from the first period on."""
        mean = regret.mean(axis=0, dtype=np.float64)
        mean = np.cumsum(mean, axis=0) if summed else mean
        m2 = np.zeros((1, *mean.shape))
        # So few rows at a time stay in cache; so many that other threads are not waited for often.
        for i in range(0, len(regret), 256):
            rows = regret[i : i + 256]
            rows = np.cumsum(rows, axis=1, dtype=np.float64) if summed else rows
            squares = np.square(rows - mean)
            whole = len(squares) // 16 * 16
            sums = squares[:whole].reshape(-1, 16, *mean.shape).sum(axis=1)
            rest = squares[whole:].sum(axis=0, keepdims=True)
            m2 = np.concatenate([m2, sums, rest]).sum(axis=0, keepdims=True)
        return cls(len(regret), mean, m2[0])

    def merge(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return Moments(count, mean, m2)

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the mean; unknown (NaN) from a single realization."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.sqrt(self.m2 / (self.count - 1) / self.count)


@dataclass(frozen=True)
class Work:
    """Realizations of points that share a program, in chunks of `size`. A chunk may end one point
    and begin the next."""

    points: tuple[Point, ...]
    run: Run
    size: int

    @cached_property
    def lanes(self) -> int:
        """Realizations of all points."""
        return len(self.points) * self.run.realizations

    def __len__(self) -> int:
        return -(-self.lanes // self.size)

    def pieces(self, number: int) -> list[tuple[int, int, int]]:
        """(point, first lane, last lane + 1) of each point that a chunk has realizations of."""
        first, last = number * self.size, min((number + 1) * self.size, self.lanes)
        each = self.run.realizations
        points = range(first // each, (last - 1) // each + 1)
        return [(p, max(first, p * each), min(last, (p + 1) * each)) for p in points]

    def ready(self) -> Callable[[int], Part]:
        """Compile it; -> a function of a chunk's number."""
        runner = eager if fact(self.points[0][0], "host") else compiled
        return partial(self._part, runner(self.points, self.run, self.size))

    def _part(self, runner: Runner, number: int) -> Part:
        pieces = self.pieces(number)
        first, last = pieces[0][1], pieces[-1][2]
        regret, tally = jax.tree.map(lambda array: array[: last - first], runner(first))
        nonfinite = ~np.isfinite(regret.reshape(len(regret), -1)).all(axis=1)
        tally = tally | {"nonfinite": tally["nonfinite"] + nonfinite}
        for mistake, bad in self.run.mistakes(self.points[0][1], tally).items():
            if bad.any():
                raise ValueError(
                    f"{type(self.points[0][1]).__name__} {mistake} in realization "
                    f"{(first + int(np.argmax(bad))) % self.run.realizations} of seed "
                    f"{self.run.seed}"
                )
        spans = [slice(a - first, b - first) for _, a, b in pieces]
        moments = [Moments.of(regret[span]) for span in spans]
        part = {
            "count": np.array([m.count for m in moments]),
            "mean": np.stack([m.mean for m in moments]),
            "m2": np.stack([m.m2 for m in moments]),
            "sums_m2": np.stack([Moments.of(regret[span], summed=True).m2 for span in spans]),
            "diverged": np.array([int(tally["diverged"][span].sum()) for span in spans]),
        }
        keep = self.run.keep
        if self.run.windows is not None:
            part["regret"] = averages(regret, self.run.windows)
        elif keep is not False:
            part["regret"] = regret if keep is True else regret[:, keep]
        return part

    def merge(self, parts: Sequence[Part]) -> list[Result]:
        """What all chunks together say of each point, merged in their order: the same chunks give
        the same bits."""
        of_point: list[list[tuple[Moments, Moments, int]]] = [[] for _ in self.points]
        for number, part in enumerate(parts):
            for i, (point, _, _) in enumerate(self.pieces(number)):
                count, mean = int(part["count"][i]), part["mean"][i]
                moments = Moments(count, mean, part["m2"][i])
                sums = Moments(count, np.cumsum(mean, axis=0), part["sums_m2"][i])
                of_point[point].append((moments, sums, int(part["diverged"][i])))
        kept: Any = [None] * len(self.points)
        if "regret" in parts[0]:
            regret = np.concatenate([part["regret"] for part in parts])
            kept = regret.reshape(len(self.points), self.run.realizations, *regret.shape[1:])
        results, about = [], self.run.about
        for (agent, environment), chunks, regret in zip(self.points, of_point, kept, strict=True):
            moments, sums, diverged = zip(*chunks, strict=True)
            found = reduce(Moments.merge, moments)
            result = Result(
                label=fact(agent, "label"),
                mean=found.mean,
                stderr=found.stderr,
                realizations=found.count,
                diverged=sum(diverged),
                seconds=0.0,
                regret=regret,
                cumulative_stderr=reduce(Moments.merge, sums).stderr,
                settings=settings(agent, "agent") | settings(environment, "environment") | about,
            )
            results.append(result)
        return results


class Task(NamedTuple):
    """Work, and the folder that its finished chunks are saved in."""

    work: Work
    store: Checkpoint | None

    @classmethod
    def of(
        cls,
        points: Sequence[Point],
        run: Run,
        chunk: int | None,
        checkpoint: str | os.PathLike[str] | None,
        about: Mapping[str, Any] | None = None,
    ) -> "Task":
        """about: the points as the checkpoint describes them."""
        lanes = len(points) * run.realizations
        if chunk is None:
            chunk = run.chunk_size(*points[0], lanes, Stack.of(points).own)
        store, size = None, min(checks.count("chunk", chunk), lanes)
        if checkpoint is not None:
            described = describe(run) | describe(about or {"points": list(map(list, points))})
            described["precision"] = str(jnp.result_type(float))
            del described["type"]
            store = Checkpoint(checkpoint, described, size)
            size = store.chunk
        return cls(Work(tuple(points), run, size), store)


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
        config: Any = jax.config
        x64 = config.jax_enable_x64  # of the caller: it need not be that of other threads

        def run(chunk: Chunk) -> Part:
            at, number = chunk
            with jax.enable_x64(x64):
                return ready[at](number)

        with closing(completed(run, chunks, threads_at_a_time())) as finished:
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


def run_all(tasks: Sequence[Task], report: Progress, engine: Engine) -> list[list[Result]]:
    """The results of every point of every task, while telling how many realizations are done."""
    works = [work for work, _ in tasks]
    parts = [{} if store is None else store.load() for _, store in tasks]
    total = sum(work.lanes for work in works)
    done = sum(int(part["count"].sum()) for group in parts for part in group.values())
    report(done, total)
    missing = [
        (at, number)
        for at, have in enumerate(parts)
        for number in range(len(works[at]))
        if number not in have
    ]
    with closing(engine.run(works, missing)) as finished:
        for (at, number), part in finished:
            if (store := tasks[at].store) is not None:
                store.save(number, part)
            parts[at][number] = part
            done += int(part["count"].sum())
            report(done, total)
    return [
        work.merge([have[number] for number in sorted(have)])
        for work, have in zip(works, parts, strict=True)
    ]


def simulate(
    agent: Agent | Posterior,
    environment: Environment,
    periods: int,
    realizations: int,
    *,
    seed: int = 0,
    coupled: bool = False,
    keep: bool | Iterable[int] = False,
    expected: bool = False,
    measure: Measure | None = None,
    last: bool = False,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> Result:
    """Regret per period of `agent` in `environment`, over many independent realizations.

    Realization r draws its world, outcomes and agent from `fold_in(key(seed), r)`, so the same
    seed gives every agent the same worlds, and neither `chunk` nor the number of devices changes
    a number beyond rounding.

    agent: a posterior in its place means Thompson sampling on it.
    coupled: the n-th pull of an arm brings the same noise to every agent, which makes paired
        comparisons sharp.
    keep: also return the regret of every realization, (realizations, periods); a list of periods
        keeps only those.
    expected: score the last period by the regret expected under the agent's `probabilities`
        instead of the action it drew: the same mean with less noise.
    measure: what to record in every period in place of the regret.
    last: record the last period alone, in memory that does not grow with their number; mean,
        standard error and what is kept then have this one entry.
    chunk: realizations per compiled call; by default chosen from the problem's size.
    checkpoint: a folder; finished chunks are saved there, and a run that was interrupted goes on
        where it stopped and gives the same numbers.
    progress: a bar on the terminal (the default where there is one), or a function told
        (done, total).
    engine: where chunks run: `es.simulation.Local()`, this machine and the default, or
        `es.simulation.Ray(address)`, a cluster; the numbers are the same.
    """
    began = time.perf_counter()
    agent, engine = as_agent(agent), as_engine(engine)
    run = Run(periods, realizations, seed, coupled, expected, measure, keep, last)
    run.check(agent, environment)
    about = {"agent": agent, "environment": environment}
    with reported(progress, fact(agent, "label")) as report:
        task = Task.of([(agent, environment)], run, chunk, checkpoint, about)
        ((result,),) = run_all([task], report, engine)
    return replace(result, seconds=time.perf_counter() - began)
