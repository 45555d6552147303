"""Many realizations of an agent in an environment, as one compiled program."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..agents import as_agent
from ..config import as_array, describe
from ..core import Agent, Environment, Posterior, fact
from .checkpoint import Checkpoint
from .execution import (
    check_parts,
    chunk_size,
    compiled,
    completed,
    device_turn,
    eager,
    threads_at_a_time,
)
from .loop import Measure
from .progress import Progress, reported
from .results import Moments, Result


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
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
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
    chunk: realizations per compiled call; by default chosen from the problem's size.
    checkpoint: a folder; finished chunks are saved there, and a run that was interrupted goes on
        where it stopped and gives the same numbers.
    progress: a bar on the terminal (the default where there is one), or a function told
        (done, total).
    """
    began = time.perf_counter()
    agent = as_agent(agent)
    label = fact(agent, "label")
    run = {
        "agent": agent,
        "environment": environment,
        "periods": checks.size("periods", periods),
        "realizations": checks.size("realizations", realizations),
        "seed": checks.size("seed", seed, least=0, below=2**32),  # JAX drops what is above
        "coupled": checks.flag("coupled", coupled),
        "keep": _kept(keep, periods),
        "expected": checks.flag("expected", expected),
        "measure": _measure(measure),
    }
    _check(run, check_parts(agent, environment), progress)
    size = None if chunk is None else min(checks.size("chunk", chunk), realizations)
    store = _store(checkpoint, run)
    size = (store and store.chunk) or size
    size = size or chunk_size(agent, environment, periods, realizations)
    if store is not None:
        store.begin(size)
    chunks = _Chunks.of(run, size, store)
    with reported(progress, label) as report:
        parts = _all(chunks, report)
    moments = [Moments(int(part["count"]), part["mean"], part["m2"]) for part in parts]
    whole = Moments.merged(moments)
    return Result(
        label=label,
        mean=whole.mean,
        stderr=whole.stderr,
        realizations=realizations,
        diverged=sum(int(part["diverged"]) for part in parts),
        seconds=time.perf_counter() - began,
        regret=np.concatenate([p["regret"] for p in parts]) if run["keep"] is not False else None,
    )


def _kept(keep: Any, periods: int) -> bool | list[int]:
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


def _measure(measure: Any) -> Any:
    if measure is not None and not callable(measure):
        raise TypeError(
            f"measure must be a function of (agent, key, state, event), got {measure!r}"
        )
    return measure


def _check(run: dict[str, Any], arms: int, progress: Any) -> None:
    if run["coupled"] and arms * run["periods"] >= 2**32:
        raise ValueError(
            f"coupled outcomes need arms x periods < 2^32, got {arms} x {run['periods']}"
        )
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress must be true, false or a function of (done, total), got {progress!r}"
        )


def _store(checkpoint: Any, run: dict[str, Any]) -> Checkpoint | None:
    if checkpoint is None:
        return None
    precision = str(jnp.result_type(float))
    return Checkpoint(checkpoint, {**describe(run), "precision": precision})


@dataclass(frozen=True)
class _Chunks:
    """Realizations in pieces of `size`: run, checked, reduced and saved one by one."""

    environment: str
    realizations: int
    seed: int
    kept: Any
    size: int
    run: Callable[[int], Any]
    store: Checkpoint | None

    @classmethod
    def of(cls, run: dict[str, Any], size: int, store: Checkpoint | None) -> "_Chunks":
        environment, kept = run["environment"], run["keep"]
        agent, environment = jax.tree.map(as_array, (run["agent"], environment))
        runner = eager if fact(agent, "host") else compiled
        mode = (run["periods"], run["coupled"], run["expected"], run["measure"])
        return cls(
            type(environment).__name__,
            run["realizations"],
            run["seed"],
            slice(None) if kept is True else None if kept is False else kept,
            size,
            runner(agent, environment, run["seed"], size, mode),
            store,
        )

    def __len__(self) -> int:
        return -(-self.realizations // self.size)

    def __call__(self, number: int) -> dict[str, Any]:
        """Run a chunk: count, mean and sum of squared deviations, and what is to be kept."""
        first, count = number * self.size, min(self.size, self.realizations - number * self.size)
        with device_turn():
            regret, tally = jax.tree.map(np.asarray, self.run(first))
        regret, tally = regret[:count], {k: v[:count] for k, v in tally.items()}
        bad = ~np.isfinite(regret.reshape(count, -1)).all(axis=1) | (tally["nonfinite"] > 0)
        if bad.any():
            raise ValueError(
                f"{self.environment} gave an outcome or mean reward that is not finite "
                f"in realization {first + int(np.argmax(bad))} of seed {self.seed}"
            )
        moments = Moments.of(regret)
        part = {"count": count, "mean": moments.mean, "m2": moments.m2}
        part["diverged"] = int(tally["diverged"].sum())
        if self.kept is not None:
            part["regret"] = regret[:, self.kept]
        if self.store is not None:
            self.store.save(number, part)
        return part

    def saved(self) -> dict[int, dict[str, Any]]:
        """The chunks that an earlier run finished."""
        if self.store is None:
            return {}
        found = {number: self.store.load(number) for number in range(len(self))}
        return {number: part for number, part in found.items() if part is not None}


def _all(chunks: _Chunks, report: Progress) -> list[dict[str, Any]]:
    """Every chunk in order, telling how many realizations are done."""
    parts = chunks.saved()
    done = sum(int(part["count"]) for part in parts.values())
    report(done, chunks.realizations)
    missing = [number for number in range(len(chunks)) if number not in parts]
    with closing(completed(chunks, missing, threads_at_a_time())) as finished:
        for number, part in finished:
            parts[number] = part
            done += int(part["count"])
            report(done, chunks.realizations)
    return [parts[number] for number in range(len(chunks))]
