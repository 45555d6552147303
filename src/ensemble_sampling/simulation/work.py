"""Realizations in pieces: all that decides their numbers, wherever the pieces are run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..core import fact
from .execution import Point, Runner, compiled, eager, fetched
from .results import Moments, Window, averages

Part = dict[str, np.ndarray]
"""What is left of a chunk: count, mean and sums of squared deviations, and what is to be kept."""


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
        return partial(self._part, run, _keeper(self.keep, self.windows))

    def _part(
        self, run: Runner, kept: Callable[[np.ndarray], np.ndarray] | None, number: int
    ) -> Part:
        pieces = self.pieces(number)
        first, last = pieces[0][1], pieces[-1][2]
        regret, tally = fetched(run(first))
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
        if kept is not None:
            part["regret"] = kept(regret)
        return part


def _keeper(
    keep: bool | list[int], windows: Sequence[Window] | None
) -> Callable[[np.ndarray], np.ndarray] | None:
    """What is kept of every realization: averages over windows, all periods, some, or nothing."""
    if windows is not None:
        return partial(averages, windows=windows)
    if isinstance(keep, bool):
        return (lambda regret: regret) if keep else None
    return lambda regret: regret[:, keep]
