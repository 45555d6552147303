"""Many realizations of an agent in an environment, as one compiled program."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import describe, settings
from ..core import Agent, Environment, Posterior, fact
from .checkpoint import Checkpoint
from .engines import Engine, as_engine
from .execution import Point, check_parts, chunk_size
from .loop import Measure
from .progress import Progress, reported
from .results import Moments, Result
from .work import Part, Work


def simulate(
    agent: Agent | Posterior,
    environment: Environment,
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
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
    engine: where chunks run: `es.Local()`, this machine and the default, or `es.Ray(address)`, a
        cluster; the numbers are the same.
    """
    began = time.perf_counter()
    agent, engine = as_agent(agent), as_engine(engine)
    label = fact(agent, "label")
    run = {
        "agent": agent,
        "environment": environment,
        "periods": checks.size("periods", periods),
        "realizations": checks.size("realizations", realizations),
        "seed": checks.size("seed", seed, least=0, below=2**32),  # JAX drops what is above
        "coupled": checks.flag("coupled", coupled),
        "keep": kept_periods(keep, 1 if last else periods),
        "expected": checks.flag("expected", expected),
        "measure": checked_measure(measure),
        **({"last": True} if checks.flag("last", last) else {}),
    }
    check_run(run, check_parts(agent, environment), progress)
    size = None if chunk is None else min(checks.count("chunk", chunk), realizations)
    chunks = Chunks.of([(agent, environment)], run, size, checkpoint)
    with reported(progress, label) as report:
        parts = run_all([chunks], report, engine)
    (found,) = chunks.found(parts[0])
    return Result(
        label=label,
        mean=found.moments.mean,
        stderr=found.moments.stderr,
        realizations=realizations,
        diverged=found.diverged,
        seconds=time.perf_counter() - began,
        regret=found.regret,
        cumulative_stderr=found.sums.stderr,
        settings=settings_of(agent, environment, run),
    )


def settings_of(agent: Agent, environment: Environment, run: dict[str, Any]) -> dict[str, str]:
    """What was simulated in a few words each, by where it is: results are told apart by it."""
    found = settings(agent, "agent") | settings(environment, "environment")
    return found | {name: str(run[name]) for name in ("seed", "coupled", "expected")}


def kept_periods(keep: Any, periods: int) -> bool | list[int]:
    """Which periods to return of every realization: all, none, or these."""
    if isinstance(keep, bool | np.bool_):
        return bool(keep)
    try:
        chosen = list(keep)
    except TypeError as error:
        raise TypeError(f"keep must be true, false or a list of periods, got {keep!r}") from error
    for period in chosen:
        if checks.size("a period to keep", period, least=-periods) >= periods:
            raise ValueError(f"cannot keep period {period} of {periods}")
    return [int(period) for period in chosen]


def checked_measure(measure: Any) -> Any:
    if measure is not None and not callable(measure):
        raise TypeError(
            f"measure must be a function of (agent, key, state, event), got {measure!r}"
        )
    return measure


def check_run(run: dict[str, Any], arms: int, progress: Any) -> None:
    """Refuse what cannot be run before anything is compiled."""
    if run.get("last") and run["measure"] is not None:
        raise ValueError("of the last period alone, the regret is recorded: leave out `measure`")
    if run["coupled"] and arms * run["periods"] >= 2**32:
        raise ValueError(
            f"coupled outcomes need arms x periods < 2^32, got {arms} x {run['periods']}"
        )
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress must be true, false or a function of (done, total), got {progress!r}"
        )


class Found(NamedTuple):
    """What the realizations of one point gave: of the regret, of its sums over time, and itself."""

    moments: Moments
    sums: Moments
    diverged: int
    regret: np.ndarray | None


@dataclass(frozen=True)
class Chunks:
    """Work and where its finished chunks are saved."""

    work: Work
    store: Checkpoint | None

    @classmethod
    def of(
        cls,
        points: Sequence[Point],
        run: dict[str, Any],
        size: int | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> "Chunks":
        """run: what decides the numbers; all of it is described in the checkpoint."""
        store = None
        if checkpoint is not None:
            described = {**describe(run), "precision": str(jnp.result_type(float))}
            store = Checkpoint(checkpoint, described)
        size = (store and store.chunk) or size
        if size is None:
            lanes = len(points) * run["realizations"]
            size = chunk_size(*points[0], run["periods"], lanes)
        if store is not None:
            store.begin(size)
        last = run.get("last", False)
        mode = (run["periods"], run["coupled"], run["expected"], run["measure"], last)
        which = run["realizations"], run["seed"], size
        return cls(Work(tuple(points), *which, mode, run["keep"], run.get("windows")), store)

    def save(self, number: int, part: Part) -> None:
        if self.store is not None:
            self.store.save(number, part)

    def saved(self) -> dict[int, Part]:
        """The chunks that an earlier run finished."""
        if self.store is None:
            return {}
        found = {number: self.store.load(number) for number in range(len(self.work))}
        return {number: part for number, part in found.items() if part is not None}

    def found(self, parts: Sequence[Part]) -> list[Found]:
        """What all chunks together say of each point."""
        work = self.work
        count = len(work.points)
        moments, sums = ([[] for _ in range(count)] for _ in range(2))
        diverged, kept = [0] * count, None
        for number, part in enumerate(parts):
            for i, (point, _, _) in enumerate(work.pieces(number)):
                had, mean = int(part["count"][i]), part["mean"][i]
                moments[point].append(Moments(had, mean, part["m2"][i]))
                sums[point].append(Moments(had, np.cumsum(mean, axis=0), part["sums_m2"][i]))
                diverged[point] += int(part["diverged"][i])
        if "regret" in parts[0]:
            regret = np.concatenate([part["regret"] for part in parts])
            kept = regret.reshape(count, work.realizations, *regret.shape[1:])
        return [
            Found(
                Moments.merged(moments[point]),
                Moments.merged(sums[point]),
                diverged[point],
                None if kept is None else kept[point],
            )
            for point in range(count)
        ]


def run_all(groups: Sequence[Chunks], report: Progress, engine: Engine) -> list[list[Part]]:
    """Every chunk of every group in order, telling how many realizations are done in all."""
    parts = [chunks.saved() for chunks in groups]
    works = [chunks.work for chunks in groups]
    total = sum(work.lanes for work in works)
    done = sum(int(part["count"].sum()) for group in parts for part in group.values())
    report(done, total)
    missing = [
        (g, n) for g, have in enumerate(parts) for n in range(len(works[g])) if n not in have
    ]
    with closing(engine.run(works, missing)) as finished:
        for (group, number), part in finished:
            groups[group].save(number, part)
            parts[group][number] = part
            done += int(part["count"].sum())
            report(done, total)
    return [[have[number] for number in sorted(have)] for have in parts]
