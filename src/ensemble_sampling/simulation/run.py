"""Many realizations of an agent in an environment, as one compiled program."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import settings
from ..core import Agent, Environment, Posterior, fact
from .chunks import Task, Totals
from .engines import Engine, as_engine
from .loop import Measure
from .programs import check_parts
from .progress import Progress, reported
from .results import Result


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
    engine: where chunks run: `es.simulation.Local()`, this machine and the default, or
        `es.simulation.Ray(address)`, a cluster; the numbers are the same.
    """
    began = time.perf_counter()
    agent, engine = as_agent(agent), as_engine(engine)
    run = {
        "agent": agent,
        "environment": environment,
        "periods": checks.size("periods", periods),
        "realizations": checks.size("realizations", realizations),
        "seed": checks.size("seed", seed, least=0, below=2**32),  # JAX drops what is above
        "coupled": checks.flag("coupled", coupled),
        "expected": checks.flag("expected", expected),
        **({"last": True} if checks.flag("last", last) else {}),
        "keep": kept_periods(keep, 1 if last else periods),
        "measure": measure,
    }
    check_run(run, check_parts(agent, environment), progress)
    size = None if chunk is None else min(checks.count("chunk", chunk), realizations)
    task = Task.of([(agent, environment)], run, size, checkpoint)
    label = fact(agent, "label")
    with reported(progress, label) as report:
        ((found,),) = run_all([task], report, engine)
    return result_of(found, label, agent, environment, run, time.perf_counter() - began)


def result_of(
    found: Totals,
    label: str,
    agent: Agent,
    environment: Environment,
    run: dict[str, Any],
    seconds: float,
) -> Result:
    """What was found of one point, with what it was in a few words each: by these, results are
    told apart."""
    about = settings(agent, "agent") | settings(environment, "environment")
    about |= {name: str(run[name]) for name in ("seed", "coupled", "expected")}
    return Result(
        label=label,
        mean=found.moments.mean,
        stderr=found.moments.stderr,
        realizations=run["realizations"],
        diverged=found.diverged,
        seconds=seconds,
        regret=found.regret if run.get("windows") is None else None,
        cumulative_stderr=found.sums.stderr,
        settings=about,
    )


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


def check_run(run: dict[str, Any], arms: int, progress: Any) -> None:
    """Refuse what cannot be run before anything is compiled."""
    measure = run["measure"]
    if measure is not None and not callable(measure):
        raise TypeError(
            f"measure must be a function of (agent, key, state, event), got {measure!r}"
        )
    if run.get("last") and measure is not None:
        raise ValueError("of the last period alone, the regret is recorded: leave out `measure`")
    if run["coupled"] and arms * run["periods"] >= 2**32:
        raise ValueError(
            f"coupled outcomes need arms x periods < 2^32, got {arms} x {run['periods']}"
        )
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress must be true, false or a function of (done, total), got {progress!r}"
        )


def run_all(tasks: Sequence[Task], report: Progress, engine: Engine) -> list[list[Totals]]:
    """What every point of every task gave, telling how many realizations are done in all."""
    works = [task.work for task in tasks]
    parts = [task.saved() for task in tasks]
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
