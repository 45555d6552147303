"""The smallest ensemble that does as well as Thompson sampling, found by simulating a problem."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from .. import checks
from ..agents.thompson import ThompsonSampling
from ..core import ConjugateLearner, Environment
from ..posteriors.ensemble import Ensemble
from ..posteriors.exact import Exact
from ..simulation import Progress, Result, chunk_size, footprint, mean_and_error, memory, simulate
from ..simulation.checkpoint import as_folder
from ..simulation.plot import CONFIDENT
from ..simulation.programs import Run, check_parts
from ..simulation.progress import reported
from ..simulation.run import Engine, Task, as_engine, run_all
from . import nested
from .nested import nested_ensemble, nested_problem, padded_members

EXPLORE = 1000
"""Realizations that place the answer roughly, before all of them are spent near it."""

POWERS = tuple(2**power for power in range(1, 16))
"""The sizes that an accelerator explores together, as far as they share a program."""


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


class Runs:
    """Simulated ensembles of any size, as differences to Thompson sampling in the same worlds.

    most: the largest ensemble to consider, by default 1024 or what memory holds
    checkpoint: a folder; a search that was interrupted goes on where it stopped
    progress, engine: as for `simulate`, of each simulation in turn
    curves: whether `results` have all periods, or the last alone

    An accelerator simulates sizes that share a program as lanes of the same calls, unless their
    curves are wanted.
    """

    def __init__(
        self,
        learner: ConjugateLearner,
        environment: Environment,
        periods: int,
        realizations: int,
        seed: int,
        *,
        most: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: bool | Progress | None = None,
        engine: Engine | None = None,
        curves: bool = False,
    ):
        self.periods = checks.size("periods", periods)
        self.realizations = checks.size("realizations", realizations, least=2)
        self.most = _affordable(learner, environment, self.periods, most)
        self.learner, self.environment = nested_problem(learner, environment)
        self.seed, self.progress, self.engine, self.curves = seed, progress, engine, curves
        self.folder = None if checkpoint is None else as_folder("checkpoint", checkpoint)
        self.lanes = nested.accelerated() and not curves
        self.results: dict[int | str, Result] = {}
        self.differences: dict[int, np.ndarray] = {}

    @cached_property
    def thompson(self) -> np.ndarray:
        """Thompson sampling's regret at the last period of every realization.

        It is the regret expected under the action probabilities, which has less noise. An ensemble
        would gain nothing from that: its members nearly always agree.
        """
        exact = ThompsonSampling(Exact(self.learner), draws=100)
        return self._regret("thompson", exact, self.realizations, expected=True)

    def explore(self, members: int) -> Evaluation:
        """A size by about `EXPLORE` realizations, unless it was simulated before."""
        sizes = {members}
        if self.lanes:  # what shares its program comes nearly for free
            sizes |= {m for m in POWERS if padded_members(m) == padded_members(members)}
        self.measure(sorted(sizes), min(EXPLORE, self.realizations))
        return self.evaluation(members)

    def measure(self, sizes: Sequence[int], realizations: int) -> None:
        """Simulate those of the sizes that have fewer realizations than these."""
        missing = [m for m in sizes if len(self.differences.get(m, ())) < realizations]
        found: dict[int, np.ndarray] = {}
        if self.lanes:
            for _, sharing in groupby(sorted(missing), padded_members):
                found |= self._regret_side_by_side([*sharing], realizations)
        else:
            for members in missing:
                agent = nested_ensemble(self.learner, members)
                found[members] = self._regret(members, agent, realizations)
        for members, regret in found.items():
            if len(regret) > len(self.differences.get(members, ())):
                self.differences[members] = regret - self.thompson[: len(regret)]

    def _regret(
        self, name: int | str, agent: ThompsonSampling, realizations: int, expected: bool = False
    ) -> np.ndarray:
        """Regret at the last period of every realization."""
        chunk, filled = self._calls([agent], realizations)
        self.results[name] = result = simulate(
            agent,
            self.environment,
            self.periods,
            filled,
            seed=self.seed,
            keep=[-1],
            last=not self.curves,
            expected=expected,
            chunk=chunk,
            checkpoint=self.folder and self.folder / f"{name}-{realizations}",
            progress=self.progress,
            engine=self.engine,
        )
        assert result.regret is not None
        return result.regret[:, 0]

    def _regret_side_by_side(
        self, sizes: Sequence[int], realizations: int
    ) -> dict[int, np.ndarray]:
        """The same of sizes that share a program, as lanes of its calls."""
        if len(sizes) == 1:  # alone it would be another program
            sizes = _with_neighbour(sizes[0])
        name = f"{sizes[0]}-to-{sizes[-1]}-{realizations}"
        agents = [nested_ensemble(self.learner, members) for members in sizes]
        points = [(agent, self.environment) for agent in agents]
        chunk, realizations = self._calls(agents, realizations)
        run = Run(self.periods, realizations, self.seed, keep=True, last=True)
        task = Task.of(points, run, chunk, self.folder and self.folder / name)
        with reported(self.progress, f"{sizes[0]} to {sizes[-1]} models") as report:
            (found,) = run_all([task], report, as_engine(self.engine))
        return {
            members: np.asarray(totals.regret)[:, 0]
            for members, totals in zip(sizes, found, strict=True)
        }

    def _calls(self, agents: Sequence[ThompsonSampling], realizations: int) -> tuple[int, int]:
        """How many lanes a call has, and how many realizations of each agent fill whole calls."""
        # The same chunk for all, or a different number of realizations would be compiled anew.
        chunk = chunk_size(agents[0], self.environment, self.periods, self.realizations)
        calls = -(-len(agents) * realizations // chunk)
        return chunk, min(self.realizations, calls * chunk // len(agents))

    def evaluation(self, members: int) -> Evaluation:
        """What was measured of a size."""
        differences = self.differences[members]
        return Evaluation(members, *mean_and_error(differences), len(differences))

    def evaluated(self) -> tuple[Evaluation, ...]:
        return tuple(self.evaluation(members) for members in sorted(self.differences))


def _with_neighbour(members: int) -> list[int]:
    """A size and the one beside it with which it shares a program."""
    shares = members > 1 and padded_members(members - 1) == padded_members(members)
    return [members - 1, members] if shares else [members, members + 1]


def _affordable(
    learner: ConjugateLearner, environment: Environment, periods: int, most: int | None
) -> int:
    """The largest size to consider: as asked, if it fits in memory, or else one that does."""
    size = 1024 if most is None else checks.size("most", most, least=2)
    check_parts(ThompsonSampling(Exact(learner)), environment)

    def need(members: int) -> int:
        agent = ThompsonSampling(Ensemble(learner, padded_members(members)))
        return footprint(agent, environment, periods)

    if most is not None and need(most) > memory():
        raise ValueError(
            f"{most} members need about {need(most) / 2**30:.3g} GiB of memory, "
            f"and there are {memory() / 2**30:.3g}"
        )
    while size > 2 and need(size) > memory():
        size //= 2
    return size


def smallest_ensemble(runs: Runs, tolerance: float) -> EnsembleSize:
    """The smallest ensemble whose regret at the last period is within `tolerance` of exact
    Thompson sampling's (Figure 1b).

    All face the same worlds. Sizes 2, 8, 32, ... are tried on about `EXPLORE` realizations until
    the difference to Thompson sampling falls below the tolerance, and bisected; all realizations
    are then spent on sizes either side of the crossing. There the difference is taken to be a
    straight line in 1 / members, and the range is where its 95% band meets the tolerance.
    """
    tolerance = checks.positive("tolerance", tolerance)
    thompson, error = mean_and_error(runs.thompson)
    line = _refine(runs, tolerance, *_explore(runs, tolerance))
    members, low, high = (
        line.first(tolerance, runs.most, errors) for errors in (0.0, -CONFIDENT, CONFIDENT)
    )
    # A size that was itself measured to be too small is out, whatever the line says far from it.
    for e in runs.evaluated():
        if e.difference - CONFIDENT * e.stderr > tolerance:
            low = max(low, e.members + 1)
    return EnsembleSize(
        members=members,
        low=min(low, members),
        high=high,
        thompson=thompson,
        thompson_stderr=error,
        threshold=thompson + tolerance,
        realizations=runs.realizations,
        evaluated=runs.evaluated(),
    )


def confirmed(runs: Runs, size: EnsembleSize, tolerance: float) -> EnsembleSize:
    """The size that was found, or the next larger one that is itself measured to suffice.

    The line through its neighbours may be too low at a size that was not measured.
    """
    members = size.members
    while True:
        runs.measure([members], runs.realizations)
        difference = runs.evaluation(members).difference
        if difference <= tolerance:
            break
        if members >= runs.most:
            raise _too_few(runs, difference, tolerance)
        members = min(runs.most, members + max(1, members // 20))
    high = max(size.high, members)
    return replace(size, members=members, high=high, evaluated=runs.evaluated())


def _too_few(runs: Runs, difference: float, tolerance: float) -> ValueError:
    return ValueError(
        f"{runs.most} members are not enough: regret at the last period exceeds Thompson "
        f"sampling's by {difference:.3g} there, and {tolerance:g} is tolerated; allow more with "
        "`most`, or tolerate more"
    )


def _explore(runs: Runs, tolerance: float) -> tuple[float, float]:
    """Roughly where the difference crosses the tolerance, and how far either side to measure."""
    below, above = None, runs.explore(2)
    while above.difference > tolerance and above.members < runs.most:
        below, above = above, runs.explore(min(4 * above.members, runs.most))
    if below is None:
        return 1.5, 0.5
    if above.difference > tolerance:
        return runs.most, 0.1
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


def _refine(runs: Runs, tolerance: float, centre: float, apart: float) -> "_Line":
    """Measure in full either side of the crossing, further out until the line crosses between."""
    low = max(1, min(int(centre / (1 + apart)), runs.most - 1))
    high = min(runs.most, max(low + 1, int(np.ceil(centre * (1 + apart)))))
    end = padded_members(low)
    if nested.accelerated() and end < high:  # one program for both, rather than two
        low, high = (low, end) if low < centre <= end else (min(end + 1, high - 1), high)
    while True:
        runs.measure([low, high], runs.realizations)
        line = _Line.of(
            {
                members: differences
                for members, differences in sorted(runs.differences.items())
                if low <= members <= high and len(differences) == runs.realizations
            }
        )
        first, last = line.at([low, high])
        if last > tolerance:
            if high == runs.most:
                raise _too_few(runs, last, tolerance)
            high = min(runs.most, int(np.ceil(high * (1 + 2 * apart))))
        elif first <= tolerance and low > 1:
            low = max(1, int(low / (1 + 2 * apart)))
        else:
            return line


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
