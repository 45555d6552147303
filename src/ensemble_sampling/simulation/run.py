"""Many realizations of an agent in an environment, as one compiled program."""

import os
import time
from collections.abc import Iterable
from dataclasses import replace

from ..agents.thompson import as_agent
from ..core import Agent, Environment, Posterior, fact
from .chunks import Engine, Task, as_engine, run_all
from .loop import Measure
from .programs import Run
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
    run = Run(periods, realizations, seed, coupled, expected, measure, keep, last)
    run.check(agent, environment)
    about = {"agent": agent, "environment": environment}
    with reported(progress, fact(agent, "label")) as report:
        task = Task.of([(agent, environment)], run, chunk, checkpoint, about)
        ((result,),) = run_all([task], report, engine)
    return replace(result, seconds=time.perf_counter() - began)
