"""How many members does it take? The search behind Figure 1b, for any conjugate learner."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..agents.thompson import ThompsonSampling
from ..core import ConjugateLearner, Environment
from ..posteriors.ensemble import Ensemble
from ..posteriors.exact import Exact
from ..simulation import Progress, Result, chunk_size, footprint, mean_and_error, memory, simulate
from ..simulation.checkpoint import as_folder
from ..simulation.programs import Run, check_parts
from ..simulation.progress import reported
from ..simulation.run import Engine, Local, Task, as_engine, run_all
from . import nested
from .nested import nested_ensemble, nested_problem, padded_members

CONFIDENT = 1.96
"""Standard errors either side of a 95% range."""

EXPLORE = 1000
"""Realizations that place the answer roughly, before all of them are spent near it."""

ROUGHLY = tuple(2**power for power in range(1, 16))
"""The sizes that are tried for it, as far as is needed or comes with what is needed."""


@dataclass(frozen=True)
class Evaluation:
    """Regret at the last period minus Thompson sampling's, in the same worlds."""

    members: int
    difference: float
    stderr: float
    realizations: int


@dataclass(frozen=True)
class EnsembleSize:
    """The smallest ensemble, and the sizes from `low` to `high` that 95% cannot exclude.

    `thompson` is Thompson sampling's regret at the last period, `threshold` that plus the
    tolerance; `evaluated` lists every size that was simulated, in order of size.
    """

    members: int
    low: int
    high: int
    thompson: float
    thompson_stderr: float
    threshold: float
    realizations: int
    evaluated: tuple[Evaluation, ...]
    seconds: float


def smallest_ensemble(
    learner: ConjugateLearner,
    environment: Environment,
    periods: int,
    *,
    tolerance: float,
    realizations: int,
    seed: int = 0,
    most: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> EnsembleSize:
    """The smallest ensemble whose regret at the last period is within `tolerance` of exact
    Thompson sampling's (Figure 1b).

    All face the same worlds. Sizes 2, 8, 32, ... are tried on about `EXPLORE` realizations until
    the difference to Thompson sampling falls below the tolerance, and bisected; all `realizations`
    are then spent on sizes either side of the crossing. There the difference is taken to be a
    straight line in 1 / members, and the range is where its 95% band meets the tolerance.

    Thompson sampling is scored by the regret expected under its action probabilities, which
    removes most of its noise; an ensemble gains nothing from that, its members nearly always agree.

    most: the largest ensemble to consider, by default 1024 or what memory holds; it is an error
        if that does not suffice.
    checkpoint: a folder; a search that was interrupted goes on where it stopped.
    progress: as for `simulate`, of each simulation in turn.
    engine: where simulations run, as for `simulate`.
    """
    tolerance = checks.positive("tolerance", tolerance)
    most = affordable(learner, environment, periods, most)
    runs = Runs(learner, environment, periods, realizations, seed, checkpoint, progress, engine)
    return search(runs, tolerance, most)


def search(runs: "Runs", tolerance: float, most: int) -> EnsembleSize:
    """`smallest_ensemble` on runs that can be asked for more afterwards."""
    members, low, high = _locate(runs, tolerance, most)
    thompson, error = mean_and_error(runs.thompson)
    return EnsembleSize(
        members=members,
        low=low,
        high=high,
        thompson=thompson,
        thompson_stderr=error,
        threshold=thompson + tolerance,
        realizations=runs.realizations,
        evaluated=runs.evaluated(),
        seconds=time.perf_counter() - runs.began,
    )


def too_few(most: int, gap: float, tolerance: float) -> ValueError:
    return ValueError(
        f"{most} members are not enough: regret at the last period exceeds Thompson sampling's by "
        f"{gap:.3g} there, and {tolerance:g} is tolerated; allow more with `most`, or tolerate more"
    )


def affordable(
    learner: ConjugateLearner, environment: Environment, periods: int, most: int | None
) -> int:
    """The largest size to consider: as asked, if it fits in memory, or else one that does."""
    asked = 1024 if most is None else checks.size("most", most, least=2)
    periods = checks.size("periods", periods)
    check_parts(ThompsonSampling(Exact(learner)), environment)

    def need(members: int) -> int:
        agent = ThompsonSampling(Ensemble(learner, padded_members(members)))
        return footprint(agent, environment, periods)

    if most is None:
        while asked > 2 and need(asked) > memory():
            asked //= 2
    elif need(most) > memory():
        raise ValueError(
            f"{most} members need about {need(most) / 2**30:.3g} GiB of memory, "
            f"and there are {memory() / 2**30:.3g}"
        )
    return asked


class Runs:
    """Simulated ensembles of any size, as differences to Thompson sampling in the same worlds.

    curves: whether `results` have all periods, or the last alone
    """

    def __init__(
        self,
        learner: ConjugateLearner,
        environment: Environment,
        periods: int,
        realizations: int,
        seed: int,
        checkpoint: str | os.PathLike[str] | None,
        progress: bool | Progress | None,
        engine: Engine | None = None,
        curves: bool = False,
    ):
        self.began = time.perf_counter()
        self.learner, self.environment = nested_problem(learner, environment)
        self.periods = periods
        self.realizations = checks.size("realizations", realizations, least=2)
        self.seed, self.progress, self.engine = seed, progress, engine
        self.curves = curves
        self.folder = None if checkpoint is None else as_folder("checkpoint", checkpoint)
        self.results: dict[int | str, Result] = {}
        self.differences: dict[int, np.ndarray] = {}
        self.compiling = self._compiling()
        exact = ThompsonSampling(Exact(self.learner), draws=100)
        self.thompson = self._regret("thompson", exact, realizations, expected=True)

    def _regret(
        self, name: int | str, agent: ThompsonSampling, realizations: int, expected: bool = False
    ) -> np.ndarray:
        """Regret at the last period of every realization."""
        # One chunk for all, or a different number of realizations would be compiled anew.
        chunk = chunk_size(agent, self.environment, self.periods, self.realizations)
        self.results[name] = result = simulate(
            agent,
            self.environment,
            self.periods,
            min(self.realizations, -(-realizations // chunk) * chunk),
            self.seed,
            keep=[-1],
            last=not self.curves,
            expected=expected,
            chunk=chunk,
            checkpoint=None if self.folder is None else self.folder / f"{name}-{realizations}",
            progress=self.progress,
            engine=self.engine,
        )
        assert result.regret is not None
        return result.regret[:, 0]

    def explore(self, members: int) -> Evaluation:
        """By about `EXPLORE` realizations; an accelerator tries all of a program at once."""
        few = min(EXPLORE, self.realizations)
        if members in ROUGHLY and members not in self.differences:
            self.together(_roughly_like(members), few)
        return self.evaluate(members, 0 if members in self.differences else few)

    @property
    def at_once(self) -> bool:
        """Whether several sizes are simulated in the same calls, for their last periods."""
        return nested.accelerated() and not self.curves

    def _compiling(self) -> Future[Any] | None:
        """Compile for the first sizes to be tried while Thompson sampling runs."""
        if not self.at_once or not isinstance(as_engine(self.engine), Local):
            return None
        work = self._task(_roughly_like(ROUGHLY[0]), self.realizations, None).work
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(work.ready)
        finally:
            pool.shutdown(wait=False)

    def together(self, sizes: Sequence[int], realizations: int) -> None:
        """Simulate sizes that share a program as lanes of the same calls, where that is faster.

        Each has so many realizations, or as many as fill the calls that roughly so many would take.
        """
        if not self.at_once:
            return
        sizes = [m for m in sizes if len(self.differences.get(m, ())) < realizations]
        if len(sizes) == 1:  # alone it would be another program
            sizes = [sizes[0] - 1, sizes[0]] if sizes[0] > 1 else [1, 2]
        if len({padded_members(members) for members in sizes}) != 1:
            return
        if self.compiling is not None:
            self.compiling.result()  # or it would be compiled twice
        name = f"{sizes[0]}-to-{sizes[-1]}-{realizations}"
        task = self._task(sizes, realizations, self.folder and self.folder / name)
        with reported(self.progress, f"{sizes[0]} to {sizes[-1]} models") as report:
            (all_found,) = run_all([task], report, as_engine(self.engine))
        for members, found in zip(sizes, all_found, strict=True):
            assert found.regret is not None
            self.differences[members] = found.regret[:, 0] - self.thompson[: len(found.regret)]

    def _task(self, sizes: Sequence[int], realizations: int, folder: Path | None) -> Task:
        points = [(nested_ensemble(self.learner, members), self.environment) for members in sizes]
        chunk = chunk_size(*points[0], self.periods, self.realizations)
        if realizations < self.realizations:
            calls = max(1, round(len(sizes) * realizations / chunk))
            realizations = min(self.realizations, max(2, calls * chunk // len(sizes)))
        run = Run(self.periods, realizations, self.seed, keep=True, last=True)
        return Task.of(points, run, chunk, folder)

    def evaluate(self, members: int, realizations: int) -> Evaluation:
        have = self.differences.get(members)
        if have is None or len(have) < realizations:
            regret = self._regret(members, nested_ensemble(self.learner, members), realizations)
            self.differences[members] = regret - self.thompson[: len(regret)]
        differences = self.differences[members]
        return Evaluation(members, *mean_and_error(differences), len(differences))

    def in_full(self, least: int, most: int) -> dict[int, np.ndarray]:
        """Differences of the sizes from `least` to `most` that all realizations were spent on."""
        return {
            members: differences
            for members, differences in sorted(self.differences.items())
            if least <= members <= most and len(differences) == self.realizations
        }

    def evaluated(self) -> tuple[Evaluation, ...]:
        return tuple(self.evaluate(members, 0) for members in sorted(self.differences))


def _roughly_like(members: int) -> list[int]:
    """The sizes to be tried roughly that share a program with this one."""
    return [size for size in ROUGHLY if padded_members(size) == padded_members(members)]


def _locate(runs: Runs, tolerance: float, most: int) -> tuple[int, int, int]:
    """The smallest size, and the lowest and highest that cannot be excluded."""
    line = _refine(runs, tolerance, most, *_explore(runs, tolerance, most))
    members = line.first(tolerance, most)
    low, high = (line.first(tolerance, most, errors) for errors in (-CONFIDENT, CONFIDENT))
    # A size that was itself measured to be too small is out, whatever the line says far from it.
    for e in runs.evaluated():
        if e.difference - CONFIDENT * e.stderr > tolerance:
            low = max(low, e.members + 1)
    return members, min(low, members), high


def _explore(runs: Runs, tolerance: float, most: int) -> tuple[float, float]:
    """Roughly where the difference crosses the tolerance, and how far either side to measure."""
    below, above = None, runs.explore(2)
    while above.difference > tolerance and above.members < most:
        below, above = above, runs.explore(min(4 * above.members, most))
    if below is None:
        return 1.5, 0.5
    if above.difference > tolerance:
        return most, 0.1
    while above.members > 2 * below.members:
        middle = runs.explore(round((below.members * above.members) ** 0.5))
        below, above = (middle, above) if middle.difference > tolerance else (below, middle)
    # Between the two, take the difference to be a straight line in 1 / members.
    rise = below.difference - above.difference
    slope = rise / (1 / below.members - 1 / above.members)
    centre = 1 / (1 / above.members + (tolerance - above.difference) / slope)
    fall = slope / centre  # per unit of log(members)
    # Measure so far apart that the difference falls by three standard errors on the way.
    error = above.stderr * (above.realizations / runs.realizations) ** 0.5
    return centre, float(np.clip(3 * error / fall, 0.1, 0.4))


@dataclass(frozen=True)
class _Line:
    """The difference as a straight line in 1 / members, fitted to the sizes measured in full."""

    members: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, differences: dict[int, np.ndarray]) -> "_Line":
        table = np.stack([d.astype(np.float64) for d in differences.values()])
        covariance = np.atleast_2d(np.cov(table)) / table.shape[1]
        return cls(np.array([*differences]), table.mean(axis=1), covariance)

    def at(self, members: Any, errors: float = 0.0) -> np.ndarray:
        """The line, plus so many of its standard errors, at each size."""
        design = np.stack([np.ones(len(self.members)), 1 / self.members], axis=1)
        wanted = np.stack([np.ones(np.size(members)), 1 / np.atleast_1d(members)], axis=1)
        weights = wanted @ np.linalg.pinv(design)
        variance = np.einsum("ij,jk,ik->i", weights, self.covariance, weights)
        return weights @ self.mean + errors * np.sqrt(variance)

    def first(self, level: float, most: int, errors: float = 0.0) -> int:
        """The smallest size at which the line (plus errors) is at most `level`, or else `most`."""
        reached = self.at(np.arange(1, most + 1), errors) <= level
        return int(np.argmax(reached)) + 1 if reached.any() else most


def _refine(runs: Runs, tolerance: float, most: int, centre: float, apart: float) -> _Line:
    """Measure in full either side of the crossing, further out until the line crosses between."""
    low = max(1, min(int(centre / (1 + apart)), most - 1))
    high = min(most, max(low + 1, int(np.ceil(centre * (1 + apart)))))
    end = padded_members(low)
    if nested.accelerated() and end < high:  # one program for both, rather than two
        low, high = (low, end) if low < centre <= end else (min(end + 1, high - 1), high)
    full = {low, high}
    while True:
        runs.together(sorted(full), runs.realizations)
        for members in sorted(full):
            runs.evaluate(members, runs.realizations)
        line = _Line.of(runs.in_full(min(full), max(full)))
        first, last = line.at([min(full), max(full)])
        if last > tolerance:
            if max(full) == most:
                raise too_few(most, last, tolerance)
            full.add(min(most, int(np.ceil(max(full) * (1 + 2 * apart)))))
        elif first <= tolerance and min(full) > 1:
            full.add(max(1, int(min(full) / (1 + 2 * apart))))
        else:
            return line
