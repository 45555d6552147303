"""Run the paper's panels and save their results; an interrupted run goes on where it stopped."""

import os
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax
import numpy as np

from .. import __version__, checks
from ..config import describe, differences, fingerprint
from ..core import Agent
from ..files import Damaged, read_json, write_json
from ..posteriors.ensemble import Ensemble
from ..simulate import Progress, numbers, simulate
from ..study.diagnostics import trajectory
from ..study.sizing import EXPLORE, smallest_ensemble
from . import FIGURES, PANELS, Curves, Panel, Paths, Sizes

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One curve or one point of a panel: the piece of work that is saved by itself.

    `item` is what the entry in the results says about itself, to which `run` adds the numbers.
    Jobs with the same `programs` share compilations. `effort` is a guess of the seconds it takes,
    which only the order and the time left are made from.
    """

    panel: str
    label: str
    item: dict[str, Any]
    programs: Hashable
    effort: float
    run: Callable[[Path, Progress], dict[str, Any]]


def select(names: Sequence[str] = ()) -> list[Panel]:
    """Panels by name, by figure number, or all of them; the cheapest first."""
    chosen: set[str] = set()
    by_figure = {str(f.number): [p.name for p in f.panels] for f in FIGURES}
    for name in names or ["all"]:
        if name not in {*PANELS, *by_figure, "all"}:
            accepted = ", ".join([*PANELS, *by_figure, "all"])
            raise ValueError(f"there is no panel {name!r}; accepted are {accepted}")
        chosen.update(PANELS if name == "all" else by_figure.get(name, [name]))
    wanted = [panel for name, panel in PANELS.items() if name in chosen]
    return sorted(wanted, key=lambda panel: panel.effort * panel.laptop)


def reproduce(
    names: Sequence[str] = (),
    scale: str = "laptop",
    realizations: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] = "reproduction",
    *,
    force: bool = False,
    progress: bool | None = None,
    say: Say = print,
    finished: Callable[[Panel], None] = lambda panel: None,
) -> None:
    """Run panels and save each as `out/<panel>.json`, the cheap ones first.

    names: panels ("1a"), figures ("1") or "all".
    scale: "paper" is the published number of realizations, "laptop" what two cores manage;
        `realizations` overrides both.
    force: run panels again whose results are there, from the beginning.
    progress: bars on the terminal, by default where there is one.
    say: told of damaged files. finished: called after each panel is saved.
    """
    seed = checks.size("seed", seed, least=0, below=2**32)
    plans = [_Plan(p, _count(p, scale, realizations), seed, Path(out), say) for p in select(names)]
    todo = {plan.panel.name: plan for plan in plans if force or not plan.complete()}
    for plan in todo.values():
        plan.begin(afresh=force)
    turn, stop = Lock(), Event()
    with _bars(progress, [job for plan in todo.values() for job in plan.jobs]) as track:

        def work(job: Job) -> None:
            plan = todo[job.panel]
            with track(job) as report:
                last = plan.run(job, partial(_unless, stop, report))
            if last:
                with turn:
                    finished(plan.panel)

        _run_all([job for plan in todo.values() for job in plan.jobs], work, stop)


def _unless(stop: Event, progress: Progress, done: int, total: int) -> None:
    """Report progress, or leave the simulation where it is once another job was interrupted."""
    if stop.is_set():
        raise InterruptedError("another job was interrupted or failed")
    progress(done, total)


def _count(panel: Panel, scale: str, realizations: int | None) -> int:
    if scale not in ("laptop", "paper"):
        raise ValueError(f"scale must be 'laptop' or 'paper', got {scale!r}")
    if realizations is not None:
        return checks.size("realizations", realizations, least=2)
    return panel.laptop if scale == "laptop" else panel.realizations


def _run_all(jobs: list[Job], work: Callable[[Job], None], stop: Event) -> None:
    """Side by side, so that some compile while others run; jobs that share programs in turn."""
    groups: dict[Hashable, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.programs].append(job)
    ordered, workers = list(groups.values()), 2
    if jax.default_backend() != "cpu":
        # The longest first: the others compile and run in its shadow.
        ordered.sort(key=lambda group: -sum(job.effort for job in group))
        workers = max(4, os.cpu_count() or 4)
    pool = ThreadPoolExecutor(workers)
    try:
        for future in [pool.submit(lambda g: [work(job) for job in g], group) for group in ordered]:
            future.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


class _Plan:
    """One panel on its way: its jobs, what of them is done, and the file they end up in."""

    def __init__(self, panel: Panel, realizations: int, seed: int, folder: Path, say: Say):
        self.panel, self.say = panel, say
        self.path = folder / f"{panel.name}.json"
        self.unfinished = folder / "unfinished" / panel.name
        if isinstance(panel, Curves):
            self.entries, self.header, self.jobs = "series", *_curves(panel, realizations, seed)
        elif isinstance(panel, Paths):
            self.entries, self.header, self.jobs = "paths", *_paths(panel, realizations, seed)
        else:
            self.entries, self.header, self.jobs = "points", *_sizes(panel, realizations, seed)
        self.done: dict[str, dict[str, Any]] = {}
        self.began: float | None = None
        self.lock = Lock()

    def complete(self) -> bool:
        """Whether the results are there, whole, and of these very settings."""
        saved = self._read(self.path)
        if saved is None:
            return False
        items = [{k: entry.get(k) for k in self.jobs[0].item} for entry in saved[self.entries]]
        have = {**{name: saved.get(name) for name in self.header}, self.entries: items}
        want = {**self.header, self.entries: [job.item for job in self.jobs]}
        if changed := differences(have, want):
            raise ValueError(
                f"{self.path} holds other results; what is asked for differs in\n  "
                + "\n  ".join(changed)
                + "\nreplace them with --force, or choose another folder with --out"
            )
        return True

    def _read(self, path: Path) -> dict[str, Any] | None:
        if not path.exists():
            return None
        try:
            return read_json(path)
        except Damaged as error:
            self.say(f"{error}; it is computed again")
            return None

    def begin(self, afresh: bool) -> None:
        if afresh:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self.unfinished, ignore_errors=True)
        self.unfinished.mkdir(parents=True, exist_ok=True)

    def run(self, job: Job, progress: Progress) -> bool:
        """Do a job unless an earlier run did; True once it was the panel's last."""
        name = fingerprint({**self.header, "item": job.item})[:16]
        path, checkpoint = self.unfinished / f"{name}.json", self.unfinished / name
        saved = self._read(path)
        if saved is None:
            began = time.perf_counter()
            self.began = self.began or began
            entry = {**job.item, **job.run(checkpoint, progress)}
            saved = {"entry": entry, "earlier": False, "seconds": time.perf_counter() - began}
            write_json(path, {**saved, "earlier": True})
            shutil.rmtree(checkpoint, ignore_errors=True)
        with self.lock:
            self.done[job.label] = saved
            if len(self.done) < len(self.jobs):
                return False
        self._finish()
        return True

    def _finish(self) -> None:
        seconds = sum(saved["seconds"] for saved in self.done.values() if saved["earlier"])
        if self.began is not None:
            seconds += time.perf_counter() - self.began
        about = {
            "versions": versions(),
            "device": device(),
            "seconds": round(seconds, 2),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        entries = [self.done[job.label]["entry"] for job in self.jobs]
        write_json(self.path, {**self.header, **about, self.entries: entries})
        shutil.rmtree(self.unfinished, ignore_errors=True)
        with suppress(OSError):  # other panels may still be on their way
            self.unfinished.parent.rmdir()


def _curves(panel: Curves, realizations: int, seed: int) -> tuple[dict[str, Any], list[Job]]:
    """What the panel's results say of their settings, and a job for each agent."""
    header = {
        "panel": panel.name,
        "environment": describe(panel.environment),
        "periods": panel.periods,
        "realizations": realizations,
        "seed": seed,
        "windows": [list(window) for window in panel.windows],
    }

    def run(agent: Agent, checkpoint: Path, progress: Progress) -> dict[str, Any]:
        result = simulate(
            agent,
            panel.environment,
            panel.periods,
            realizations,
            seed,
            keep=True,
            chunk=_chunk(realizations),
            checkpoint=checkpoint,
            progress=progress,
        )
        assert result.regret is not None
        averages = [result.regret[:, a:b].mean(axis=1, dtype=np.float64) for a, b in panel.windows]
        return {
            "mean": numbers(result.mean),
            "stderr": numbers(result.stderr),
            "diverged": result.diverged,
            "averages": numbers(np.stack(averages)),
        }

    sizes = [_state_size(agent) for agent in panel.agents]
    effort = panel.effort * realizations / sum(sizes)
    jobs = [
        Job(
            panel.name,
            agent.label,
            {"label": agent.label, "agent": describe(agent)},
            (jax.tree.structure((agent, panel.environment)), panel.periods, realizations),
            effort * size,
            lambda checkpoint, progress, agent=agent: run(agent, checkpoint, progress),
        )
        for agent, size in zip(panel.agents, sizes, strict=True)
    ]
    return header, jobs


def _chunk(realizations: int) -> int | None:
    """On CPUs small chunks are as fast as large ones, show progress and lose less to a kill."""
    if jax.default_backend() != "cpu":
        return None
    return -(-realizations // max(16, 4 * (os.cpu_count() or 1)))


def _state_size(agent: Agent) -> int:
    leaves = jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)))
    return sum(int(np.prod(leaf.shape)) for leaf in leaves)


def _sizes(panel: Sizes, realizations: int, seed: int) -> tuple[dict[str, Any], list[Job]]:
    """The same for a panel of smallest ensembles, with a job for each number of arms."""
    header = {
        "panel": panel.name,
        "environment": [describe(panel.environment(arms)) for arms in panel.arms],
        "learner": [describe(panel.learner(arms)) for arms in panel.arms],
        "tolerance": panel.tolerance,
        "periods": panel.periods,
        "realizations": realizations,
        "seed": seed,
    }

    def run(arms: int, checkpoint: Path, progress: Progress) -> dict[str, Any]:
        found = smallest_ensemble(
            panel.learner(arms),
            panel.environment(arms),
            panel.periods,
            realizations,
            panel.tolerance,
            seed,
            checkpoint=checkpoint,
            progress=_in_all(progress, 4 * realizations + 8 * min(EXPLORE, realizations)),
        )
        names = ("members", "low", "high", "thompson", "thompson_stderr", "threshold")
        return {
            **{name: getattr(found, name) for name in names},
            "evaluated": [describe(evaluation) for evaluation in found.evaluated],
        }

    jobs = [
        Job(
            panel.name,
            f"{arms} arms",
            {"arms": arms},
            ("sizes", panel.name, arms),
            panel.effort * realizations * arms / sum(panel.arms),
            lambda checkpoint, progress, arms=arms: run(arms, checkpoint, progress),
        )
        for arms in panel.arms
    ]
    return header, jobs


def _paths(panel: Paths, realizations: int, seed: int) -> tuple[dict[str, Any], list[Job]]:
    """The same for a panel of distances to the posterior, with a job for each size."""
    header = {
        "panel": panel.name,
        "environment": describe(panel.environment),
        "learner": describe(panel.learner),
        "periods": panel.periods,
        "realizations": realizations,
        "seed": seed,
    }

    def run(members: int, checkpoint: Path, progress: Progress) -> dict[str, Any]:
        path = trajectory(
            Ensemble(panel.learner, members),
            panel.environment,
            panel.periods,
            realizations,
            seed,
            checkpoint=checkpoint,
            progress=progress,
        )
        names = ("kl", "kl_stderr", "tv", "tv_stderr", "distinct")
        found = {name: numbers(getattr(path, name)) for name in names}
        return {"label": path.label, "after": path.periods.tolist(), **found}

    jobs = [
        Job(
            panel.name,
            f"{members} models",
            {"members": members},
            ("paths", panel.name, members),
            panel.effort * realizations / len(panel.members),
            lambda checkpoint, progress, members=members: run(members, checkpoint, progress),
        )
        for members in panel.members
    ]
    return header, jobs


def _in_all(progress: Progress, expected: int) -> Progress:
    """Progress over a search of several simulations, out of roughly how many realizations."""
    before = last = total_before = 0

    def report(done: int, total: int) -> None:
        nonlocal before, last, total_before
        if done < last or total != total_before:  # the next simulation has begun
            before += last
        last, total_before = done, total
        progress(min(before + done, expected), expected)

    return report


def versions() -> dict[str, str]:
    """Of everything that decides the numbers."""
    found = {"python": platform.python_version(), "ensemble-sampling": __version__}
    return found | {name: version(name) for name in ("jax", "jaxlib", "equinox", "optax", "numpy")}


def device() -> str:
    """What the results were computed on, in words."""
    first, count = jax.local_devices()[0], jax.local_device_count()
    if first.platform == "cpu":
        return f"CPU ({platform.machine()}, {os.cpu_count()} cores)"
    return first.device_kind if count == 1 else f"{count} x {first.device_kind}"


Track = Callable[[Job], AbstractContextManager[Progress]]


@contextmanager
def _bars(progress: bool | None, jobs: list[Job]) -> Iterator[Track]:
    """A bar for each running job and one for all of them, with the time left; or silence."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    if progress is False or (progress is None and not console.is_terminal):
        yield lambda job: nullcontext(lambda done, total: None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bars(*columns, console=console, speed_estimate_period=300) as bars:
        whole = bars.add_task("[bold]all panels", total=sum(job.effort for job in jobs))

        @contextmanager
        def track(job: Job) -> Iterator[Progress]:
            task, share = bars.add_task(f"{job.panel}  {job.label}", total=1.0), 0.0

            def report(done: int, total: int) -> None:
                nonlocal share
                bars.update(task, completed=done / total)
                bars.advance(whole, (done / total - share) * job.effort)
                share = done / total

            yield report
            report(1, 1)
            bars.remove_task(task)

        yield track
