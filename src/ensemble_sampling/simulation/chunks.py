"""Realizations in chunks: all that decides their numbers wherever they run, and how they merge.

A chunk is reduced to count, mean and sum of squared deviations per period, which merge exactly in
any order: to resume, to use several devices or several machines is then one code path.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..config import describe
from ..core import fact
from .checkpoint import Checkpoint
from .programs import Point, Runner, chunk_size, compiled, eager, to_numpy
from .results import Window, averages

Part = dict[str, np.ndarray]
"""What is left of a chunk: count, mean and sums of squared deviations, and what is to be kept."""


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
            squares = rows - mean
            np.square(squares, out=squares)
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


class Totals(NamedTuple):
    """What the realizations of one point gave: of the regret, of its sums over time, and itself."""

    moments: Moments
    sums: Moments
    diverged: int
    regret: np.ndarray | None


@dataclass(frozen=True)
class Work:
    """Realizations of points that share a program, in chunks of `size`. A chunk may end one point
    and begin the next."""

    points: tuple[Point, ...]
    realizations: int
    seed: int
    size: int
    mode: tuple[Any, ...]
    keep: bool | list[int]
    windows: Sequence[Window] | None

    @property
    def lanes(self) -> int:
        return len(self.points) * self.realizations

    def __len__(self) -> int:
        return -(-self.lanes // self.size)

    def pieces(self, number: int) -> list[tuple[int, int, int]]:
        """(point, first lane, last lane + 1) of each point that a chunk has realizations of."""
        first, last = number * self.size, min((number + 1) * self.size, self.lanes)
        each = self.realizations
        points = range(first // each, (last - 1) // each + 1)
        return [(p, max(first, p * each), min(last, (p + 1) * each)) for p in points]

    def ready(self) -> Callable[[int], Part]:
        """Compile it; -> a function of a chunk's number."""
        runner = eager if fact(self.points[0][0], "host") else compiled
        run = runner(self.points, self.realizations, self.seed, self.size, self.mode)
        return partial(self._part, run)

    def _part(self, run: Runner, number: int) -> Part:
        pieces = self.pieces(number)
        first, last = pieces[0][1], pieces[-1][2]
        regret, tally = to_numpy(run(first))
        regret, tally = regret[: last - first], {k: v[: last - first] for k, v in tally.items()}
        bad = ~np.isfinite(regret.reshape(len(regret), -1)).all(axis=1) | (tally["nonfinite"] > 0)
        if bad.any():
            raise ValueError(
                f"{type(self.points[0][1]).__name__} gave an outcome or mean reward that is not "
                f"finite in realization {(first + int(np.argmax(bad))) % self.realizations} of "
                f"seed {self.seed}"
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
        if self.windows is not None:
            part["regret"] = averages(regret, self.windows)
        elif self.keep is not False:
            part["regret"] = regret if self.keep is True else regret[:, self.keep]
        return part

    def merge(self, parts: Sequence[Part]) -> list[Totals]:
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
            kept = regret.reshape(len(self.points), self.realizations, *regret.shape[1:])
        found = []
        for chunks, regret in zip(of_point, kept, strict=True):
            moments, sums, diverged = zip(*chunks, strict=True)
            whole, summed = reduce(Moments.merge, moments), reduce(Moments.merge, sums)
            found.append(Totals(whole, summed, sum(diverged), regret))
        return found


class Task(NamedTuple):
    """Work, and the folder that its finished chunks are saved in."""

    work: Work
    store: Checkpoint | None

    @classmethod
    def of(
        cls,
        points: Sequence[Point],
        run: dict[str, Any],
        size: int | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> "Task":
        """run: what decides the numbers; all of it is described in the checkpoint."""
        store = None
        if checkpoint is not None:
            described = {**describe(run), "precision": str(jnp.result_type(float))}
            store = Checkpoint(checkpoint, described)
            size = store.chunk or size
        if size is None:
            lanes = len(points) * run["realizations"]
            size = chunk_size(*points[0], run["periods"], lanes)
        if store is not None:
            store.begin(size)
        last = run.get("last", False)
        mode = (run["periods"], run["coupled"], run["expected"], run["measure"], last)
        which = run["realizations"], run["seed"], size
        return cls(Work(tuple(points), *which, mode, run["keep"], run.get("windows")), store)

    def saved(self) -> dict[int, Part]:
        """The chunks that an earlier run finished."""
        if self.store is None:
            return {}
        found = {number: self.store.load(number) for number in range(len(self.work))}
        return {number: part for number, part in found.items() if part is not None}
