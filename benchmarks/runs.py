"""Runs of agents in worlds, kept in a JSON file as they end: what was interrupted goes on there."""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers import AGENTS
from worlds import CLASSES, LATES, WHEELS, LateClicks, Table, load, make

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0",  # as docs/how-to/latency.md advises
    "PYTHONWARNINGS": "ignore",
}


class Run(NamedTuple):
    """One agent in one world: what a row of the results is known by."""

    agent: str
    setting: str
    column: str
    shuffle: int
    rounds: int


def play(job: tuple[Run, str | None]) -> tuple[Run, dict[str, Any] | str]:
    """What came of a run, or what went wrong."""
    run, data = job
    agents, seed = AGENTS[run.agent], run.shuffle
    try:
        world = make(run.column, seed, run.rounds, data)
        if isinstance(world, Table):
            new = agents.table[run.setting]
            agent = new(actions=world.actions, seed=seed, largest=world.largest)
        else:
            agent = agents.late[run.setting](seed=seed)
        began = time.perf_counter()
        score = _table(world, agent) if isinstance(world, Table) else _late(world, agent)
        took = (time.perf_counter() - began) / world.rounds
    except Exception as error:
        return run, f"{type(error).__name__}: {error}"
    got = {"score": score, "played": world.rounds, "seconds_per_round": round(took, 6)}
    return run, got | {"version": version(agents.package)}


def _table(world: Table, agent: Any) -> float:
    chosen = np.empty(world.rounds, dtype=int)
    for t, context in enumerate(world.contexts):
        chosen[t] = agent.choose(context)
        agent.learn(float(world.rewards[t, chosen[t]]))
    return world.score(chosen)


def _late(world: LateClicks, agent: Any) -> float:
    waiting, clicks = [], 0.0
    for t in range(world.rounds):
        if len(waiting) == 2 * world.BATCH:
            agent.learn_many(waiting[: world.BATCH])
            del waiting[: world.BATCH]
        ticket, name = agent.choose(world.offer(t), world.users[t])
        click = world.click(t, name)
        waiting.append((ticket, click))
        clicks += click
    return clicks


def version(package: str) -> str:
    """That of an installed package; of one that was only copied, what it says itself."""
    if not package:
        return ""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        module = __import__(package.replace("-", "_"))
        return str(getattr(module, "__version__", "unknown"))


def _setting(run: Run) -> dict[str, Any] | None:
    agent = AGENTS.get(run.agent)
    return agent.settings().get(run.setting) if agent else None


class Results:
    """The runs in JSON files, one row each, so that partial runs add up.

    Rows of a setting that has since come to mean something else are left out.
    """

    def __init__(self, *paths: Path):
        self.rows: dict[Run, dict[str, Any]] = {}
        self.environments: set[str] = set()
        for path in paths:
            if path.exists():
                kept = json.loads(path.read_text())
                self.environments.update(kept["environments"])
                for row in kept["runs"]:
                    run = Run(*(row.pop(name) for name in Run._fields))
                    if kept["settings"][run.agent].get(run.setting) == _setting(run):
                        self.rows[run] = row

    def save(self, path: Path) -> None:
        """By renaming, so that a kill leaves the file as it was or as it will be."""
        path.parent.mkdir(parents=True, exist_ok=True)
        names = {run.agent for run in self.rows}
        settings = {name: agent.settings() for name, agent in AGENTS.items() if name in names}
        head = {"settings": settings, "environments": sorted(self.environments)}
        rows = (json.dumps(run._asdict() | row) for run, row in sorted(self.rows.items()))
        new = path.with_suffix(".new")
        new.write_text(
            f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"
        )
        os.replace(new, path)

    def scores(self, agent: str, setting: str, column: str, rounds: int, shuffles: range) -> dict:
        runs = (Run(agent, setting, column, shuffle, rounds) for shuffle in shuffles)
        return {run.shuffle: self.rows[run]["score"] for run in runs if run in self.rows}


class Options(argparse.ArgumentParser):
    """What all comparisons can be told."""

    def __init__(self, about: str | None, out: Path, columns: Any, agents: Any, rounds: int):
        super().__init__(description=about, formatter_class=argparse.RawTextHelpFormatter)
        add, columns, agents = self.add_argument, list(columns), list(agents)
        add("--shuffles", type=int, default=10)
        add("--first", type=int, default=0, help="of the shuffles, to try things on others")
        add("--rounds", type=int, default=rounds)
        add("--only", nargs="+", choices=columns, default=columns, metavar="COLUMN")
        add("--agents", nargs="+", choices=agents, default=agents)
        add("--jobs", type=int, default=1, help="processes, of one thread each")
        add("--data", help="a folder of data sets, filled on first use")
        add("--out", type=Path, default=out, help="where runs are kept")
        add("--add", type=Path, nargs="+", default=[], help="more such files to join")
        add("--again", action="store_true", help="play also what is already there")
        add("--report", action="store_true", help="play nothing, print the table")


def complete(options: argparse.Namespace, shuffles: range) -> tuple[Results, int]:
    """All runs that were asked for, and how many of those that were missing failed."""
    results = Results(options.out, *options.add)
    if options.add:
        results.save(options.out)
    if options.report:
        return results, 0
    for column in options.only:
        if column not in WHEELS and column not in LATES:
            load(CLASSES.get(column, column), options.data)
    here = {}
    for name in options.agents:
        if missing := AGENTS[name].missing():
            print(f"{name} is left out: {missing}", file=sys.stderr)
        else:
            here[name] = AGENTS[name]
    runs = [
        Run(name, setting, column, shuffle, options.rounds)
        for shuffle in shuffles
        for column in options.only
        for name, agent in here.items()
        for setting in agent.played(column)
    ]
    runs = [run for run in runs if options.again or run not in results.rows]
    failed = work(runs, results, options.out, options.jobs, options.data) if runs else 0
    return results, failed


def environment() -> str:
    packages = (f"{name} {metadata.version(name)}" for name in ("numpy", "scipy"))
    return ", ".join([f"Python {platform.python_version()}", *packages, f"{os.cpu_count()} cores"])


def _pin(started: Any, cpus: list[int]) -> None:
    """One core for each worker, so that nobody's threads take another's time."""
    with started.get_lock():
        number, started.value = started.value, started.value + 1
    if cpus:
        os.sched_setaffinity(0, {cpus[number % len(cpus)]})


def work(runs: list[Run], results: Results, out: Path, jobs: int, data: str | None) -> int:
    """Plays what is missing and keeps each run as it ends; how many failed."""
    os.environ.update(ONE_THREAD)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves the pool, which ends it
    context = multiprocessing.get_context("spawn")
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    began, failed = time.perf_counter(), 0
    results.environments.add(environment())
    with context.Pool(jobs, _pin, (context.Value("i", 0), cpus)) as pool:
        done = pool.imap_unordered(play, [(run, data) for run in runs])
        for count, (run, got) in enumerate(done, 1):
            left = (time.perf_counter() - began) / count * (len(runs) - count) / 60
            label = f"[{count}/{len(runs)}] {run.column} {run.shuffle}: {run.agent} {run.setting}"
            if isinstance(got, str):
                failed += 1
                print(f"{label} failed: {got}", file=sys.stderr, flush=True)
                continue
            results.rows[run] = got
            results.save(out)
            speed = f"{1000 * got['seconds_per_round']:.2f} ms a round, {left:.0f} min left"
            print(f"{label} {got['score']:.3f}, {speed}", file=sys.stderr, flush=True)
    return failed
