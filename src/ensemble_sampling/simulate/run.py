"""Many realizations of an agent in an environment, as one compiled program."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..config import as_array, describe
from ..core import Agent, Environment
from .checkpoint import Checkpoint
from .execution import (
    check_parts,
    chunk_size,
    compiled,
    device_turn,
    eager,
    pool_of,
    threads_at_a_time,
)
from .loop import Measure, on_host
from .progress import Progress, reported
from .results import Moments, Result


def simulate(
    agent: Agent,
    environment: Environment,
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
    coupled: bool = False,
    keep: bool | Sequence[int] = False,
    expected: bool = False,
    measure: Measure | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
) -> Result:
    """Regret per period of `agent` in `environment`, over many independent realizations.

    Realization r draws its world, outcomes and agent from `fold_in(key(seed), r)`, so the same
    seed gives every agent the same worlds, and neither `chunk` nor the number of devices changes
    a number beyond rounding.

    coupled: the n-th pull of an arm brings the same noise to every agent, which makes paired
        comparisons sharp.
    keep: also return the regret of every realization, (realizations, periods); a list of periods
        keeps only those.
    expected: score the last period by the regret expected under the agent's `probabilities`
        instead of the action it drew: the same mean with less noise.
    measure: what to record in every period in place of the regret.
    chunk: realizations per compiled call; by default chosen from the problem's size.
    checkpoint: a folder; finished chunks are saved there, and a run that was interrupted goes on
        where it stopped and gives the same numbers.
    progress: a bar on the terminal (the default where there is one), or a function told
        (done, total).
    """
    periods = checks.size("periods", periods)
    realizations = checks.size("realizations", realizations)
    seed = checks.size("seed", seed, least=0, below=2**32)  # JAX drops what is above
    arms = check_parts(agent, environment)
    if coupled and arms * periods >= 2**32:
        raise ValueError(f"coupled outcomes need arms x periods < 2^32, got {arms} x {periods}")
    kept = _kept(keep, periods)
    began = time.perf_counter()
    store = None
    if checkpoint is not None:
        run = {
            "agent": describe(agent),
            "environment": describe(environment),
            "periods": periods,
            "realizations": realizations,
            "seed": seed,
            "coupled": coupled,
            "keep": keep,
            "expected": expected,
            "measure": describe(measure),
            "precision": str(jnp.result_type(float)),
        }
        store = Checkpoint(Path(checkpoint), run)
        chunk = store.chunk or chunk
    if chunk is None:
        size = chunk_size(agent, environment, periods, realizations)
    else:
        size = min(checks.size("chunk", chunk), realizations)
    if store is not None:
        store.begin(size)
    agent, environment = jax.tree.map(as_array, (agent, environment))
    runner = eager if on_host(agent) else compiled
    run_chunk = runner(agent, environment, seed, size, (periods, coupled, expected, measure))

    def work(number: int) -> dict[str, Any]:
        first, count = number * size, min(size, realizations - number * size)
        with device_turn():
            regret, tally = jax.tree.map(np.asarray, run_chunk(first))
        regret, tally = regret[:count], {k: v[:count] for k, v in tally.items()}
        finite = np.isfinite(regret.reshape(count, -1)).all(axis=1)
        if tally["nonfinite"].any() or not finite.all():
            r = first + int(np.argmax((tally["nonfinite"] > 0) | ~finite))
            raise ValueError(
                f"{type(environment).__name__} gave an outcome or mean reward that is not finite "
                f"in realization {r} of seed {seed}"
            )
        moments = Moments.of(regret)
        part = {"count": count, "mean": moments.mean, "m2": moments.m2}
        part["diverged"] = int(tally["diverged"].sum())
        if kept is not None:
            part["regret"] = regret[:, kept]
        if store is not None:
            store.save(number, part)
        return part

    chunks = -(-realizations // size)
    parts = {n: p for n in range(chunks) if store is not None and (p := store.load(n)) is not None}
    with (
        reported(progress, agent.label, realizations) as report,
        pool_of(threads_at_a_time()) as pool,
    ):
        done = sum(int(p["count"]) for p in parts.values())
        report(done, realizations)
        pending = {pool.submit(work, n): n for n in range(chunks) if n not in parts}
        while pending:
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                number = pending.pop(future)
                parts[number] = future.result()
                done += int(parts[number]["count"])
                report(done, realizations)

    ordered = [parts[n] for n in range(chunks)]
    moments = Moments(int(ordered[0]["count"]), ordered[0]["mean"], ordered[0]["m2"])
    for part in ordered[1:]:
        moments = moments.merge(Moments(int(part["count"]), part["mean"], part["m2"]))
    return Result(
        label=agent.label,
        mean=moments.mean,
        stderr=moments.stderr,
        realizations=realizations,
        diverged=sum(int(p["diverged"]) for p in ordered),
        seconds=time.perf_counter() - began,
        regret=np.concatenate([p["regret"] for p in ordered]) if kept is not None else None,
    )


def _kept(keep: bool | Sequence[int], periods: int) -> Any:
    """Which periods to return of every realization, as an index; None: none of them."""
    if isinstance(keep, bool):
        return slice(None) if keep else None
    for period in keep:
        if checks.size("a period to keep", period, least=-periods) >= periods:
            raise ValueError(f"cannot keep period {period} of {periods}")
    return list(keep)
