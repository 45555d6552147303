"""Run a study's panels and save their results; an interrupted run goes on where it stopped."""

import os
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax

from .. import checks
from ..compilation import versions
from ..config import differences, fingerprint
from ..files import Damaged, read_json, write_json
from ..simulation import Progress
from ..simulation.checkpoint import as_folder
from ..simulation.programs import tracing
from ..simulation.progress import bars
from ..simulation.run import Engine, as_engine, completed
from . import report
from .panels import Figure, Job, Panel
from .study import Study

Say = Callable[[str], None]

PATIENCE = 60
"""Seconds after which a figure is drawn for each of its panels, and not only with the last."""


def select(study: Study, names: Sequence[str] = ()) -> list[Panel]:
    """Panels by name, by figure number, or all of them; the cheapest first."""
    chosen: set[str] = set()
    panels = study.panels
    by_figure = {str(f.number): [p.name for p in f.panels] for f in study.figures}
    if isinstance(names, str):
        raise TypeError(f"names must be a list of panels or figures, got {names!r}")
    for name in names or ["all"]:
        if name not in {*panels, *by_figure, "all"}:
            accepted = ", ".join([*panels, *by_figure, "all"])
            raise ValueError(f"there is no panel {name!r}; accepted are {accepted}")
        chosen.update(panels if name == "all" else by_figure.get(name, [name]))
    wanted = [panel for name, panel in panels.items() if name in chosen]
    return sorted(wanted, key=lambda panel: panel.effort * panel.laptop)


def run(
    study: Study,
    names: Sequence[str] = (),
    realizations: int | str = "full",
    seed: int = 0,
    out: str | os.PathLike[str] = "results",
    *,
    force: bool = False,
    progress: bool | None = None,
    say: Say = print,
    engine: Engine | None = None,
) -> Path:
    """Run a study's panels as `compute` does, draw its figures and write its report; -> the page.

    Interrupted, the same call goes on where it stopped; what is there is not run again.

    engine: where simulations run, as for `simulate`
    """
    if not isinstance(study, Study):
        raise TypeError(f"study must be an es.experiments.Study, got {study!r}")

    began, chosen, folder = time.monotonic(), select(study, names), as_folder("out", out)
    whole: dict[int, Future[report.Pictures]] = {}
    asked: Any = {"force": force, "progress": progress, "say": say, "engine": engine}

    with ThreadPoolExecutor(1) as drawing:  # one at a time, beside what still runs

        def finished(panel: Panel) -> None:
            inside = {f.number: [p.name for p in f.panels] for f in study.figures}
            figure = next(f for f in study.figures if panel.name in inside[f.number])
            parts = [p for p in chosen if p.name in inside[figure.number]]
            if all(_path(folder, p).exists() for p in parts):
                whole[figure.number] = drawing.submit(_drawn, study, folder, figure)
            elif time.monotonic() > began + PATIENCE:
                drawing.submit(_drawn, study, folder, figure)

        try:
            compute(study, names, realizations, seed, folder, **asked, finished=finished)
        finally:
            drawing.shutdown(wait=True, cancel_futures=True)
        ready = {number: task.result() for number, task in whole.items() if not task.cancelled()}
    return report.build(study, folder, say, ready)


def _drawn(study: Study, folder: Path, figure: Figure) -> report.Pictures:
    """A figure from what there is, once nothing waits for being traced: that would be held up."""
    while tracing():
        time.sleep(0.05)
    return report.draw(study, folder, figure)


def _path(folder: Path, panel: Panel) -> Path:
    return folder / f"{panel.name}.json"


def compute(
    study: Study,
    names: Sequence[str] = (),
    realizations: int | str = "full",
    seed: int = 0,
    out: str | os.PathLike[str] = "results",
    *,
    force: bool = False,
    progress: bool | None = None,
    say: Say = print,
    finished: Callable[[Panel], None] = lambda panel: None,
    engine: Engine | None = None,
) -> None:
    """Run panels and save each as `out/<panel>.json`, the cheap ones first.

    names: panels ("1a"), figures ("1") or "all".
    realizations: for every panel, or "full" or "laptop" for what each declares.
    force: run panels again whose results are there, from the beginning.
    progress: bars on the terminal, by default where there is one.
    say: told what will be run, of each panel that is done, and of damaged files.
    finished: called after each panel is saved.
    engine: where simulations run, as for `simulate`.
    """
    engine = as_engine(engine)
    seed = checks.size("seed", seed, least=0, below=2**32)
    force, out = checks.flag("force", force), as_folder("out", out)
    panels = select(study, names)
    plans = [_Plan(p, _count(p, realizations), seed, out, say) for p in panels]
    todo = {plan.panel.name: plan for plan in plans if force or not plan.complete()}
    say(_intent(list(todo.values()), plans, out))
    jobs = [job for plan in todo.values() for job in plan.jobs]
    for job in jobs:
        try:
            job.check()
        except (TypeError, ValueError) as error:
            raise ValueError(f"panel {job.panel}, {job.label}: {error}") from error
    for plan in todo.values():
        plan.begin(afresh=force)
    turn, stop, done = Lock(), Event(), []
    with bars(progress, whole=sum(job.effort for job in jobs)) as track:

        def work(job: Job) -> None:
            plan = todo[job.panel]
            with track(f"{job.panel}  {job.label}", job.effort) as report:
                seconds = plan.run(job, partial(_unless, stop, report), engine)
            if seconds is not None:
                with turn:
                    done.append(job.panel)
                    say(f"{job.panel}: done in {seconds:.0f} s, {len(done)} of {len(todo)} panels")
                    finished(plan.panel)

        _run_all(jobs, work, stop, engine.jobs)


def _intent(todo: "Sequence[_Plan]", plans: "Sequence[_Plan]", out: Path) -> str:
    """What is about to be run, in a line."""
    if not todo:
        return f"nothing to run: the results are in {out}"
    listed = ", ".join(f"{plan.panel.name} ({plan.realizations:,} realizations)" for plan in todo)
    there = f"; {len(plans) - len(todo)} are there already" if len(todo) < len(plans) else ""
    return f"running {listed}{there}; results go to {out}"


def _unless(stop: Event, progress: Progress, done: int, total: int) -> None:
    """Report progress, or leave the simulation where it is once another job was interrupted."""
    if stop.is_set():
        raise InterruptedError("another job was interrupted or failed")
    progress(done, total)


def _count(panel: Panel, realizations: int | str) -> int:
    if realizations == "full":
        return panel.realizations
    if realizations == "laptop":
        return panel.laptop
    if isinstance(realizations, str):
        raise ValueError(f"realizations must be a number, 'full' or 'laptop', got {realizations!r}")
    return checks.size("realizations", realizations, least=2)


def _run_all(jobs: list[Job], work: Callable[[Job], None], stop: Event, at_a_time: int) -> None:
    """Side by side, so that some compile while others run; jobs that share programs in turn."""
    groups: dict[Hashable, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.programs].append(job)
    ordered = list(groups.values())
    if at_a_time > 2:
        # The longest first: the others compile and run in its shadow.
        ordered.sort(key=lambda group: -sum(job.effort for job in group))

    def in_turn(group: list[Job]) -> None:
        for job in group:
            work(job)

    with closing(completed(in_turn, ordered, at_a_time, stop)) as all_done:
        for _ in all_done:
            pass


class _Plan:
    """One panel on its way: its jobs, what of them is done, and the file they end up in."""

    def __init__(self, panel: Panel, realizations: int, seed: int, folder: Path, say: Say):
        self.panel, self.realizations, self.say = panel, realizations, say
        self.path = _path(folder, panel)
        self.unfinished = folder / "unfinished" / panel.name
        run = {"periods": panel.periods, "realizations": realizations, "seed": seed}
        self.header = {"panel": panel.name, **panel.header(), **run}
        self.jobs = panel.jobs(realizations, seed)
        self.done: dict[str, dict[str, Any]] = {}
        self.began: float | None = None
        self.lock = Lock()

    def complete(self) -> bool:
        """Whether the results are there, whole, and of these very settings."""
        saved = self._read(self.path)
        if saved is None:
            return False
        entries, known = self.panel.entries, self.jobs[0].item
        items = [{name: entry.get(name) for name in known} for entry in saved.get(entries, ())]
        have = {**{name: saved.get(name) for name in self.header}, entries: items}
        want = {**self.header, entries: [job.item for job in self.jobs]}
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

    def run(self, job: Job, progress: Progress, engine: Engine) -> float | None:
        """Do a job unless an earlier run did; the panel's seconds once it was the last."""
        name = fingerprint({**self.header, "item": job.item})[:16]
        path, checkpoint = self.unfinished / f"{name}.json", self.unfinished / name
        saved = self._read(path)
        if saved is None:
            began = time.perf_counter()
            self.began = self.began or began
            entry = {**job.item, **job.run(checkpoint=checkpoint, progress=progress, engine=engine)}
            saved = {"entry": entry, "earlier": False, "seconds": time.perf_counter() - began}
            write_json(path, {**saved, "earlier": True})
            shutil.rmtree(checkpoint, ignore_errors=True)
        with self.lock:
            self.done[job.label] = saved
            if len(self.done) < len(self.jobs):
                return None
        return self._finish()

    def _finish(self) -> float:
        seconds = sum(saved["seconds"] for saved in self.done.values() if saved["earlier"])
        if self.began is not None:
            seconds += time.perf_counter() - self.began
        about = {
            "versions": {"python": platform.python_version(), **versions()},
            "device": device(),
            "seconds": round(seconds, 2),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        entries = [self.done[job.label]["entry"] for job in self.jobs]
        write_json(self.path, {**self.header, **about, self.panel.entries: entries})
        shutil.rmtree(self.unfinished, ignore_errors=True)
        with suppress(OSError):  # other panels may still be on their way
            self.unfinished.parent.rmdir()
        return seconds


def device() -> str:
    """What the results were computed on, in words."""
    first, count = jax.local_devices()[0], jax.local_device_count()
    if first.platform == "cpu":
        return f"CPU ({platform.machine()}, {os.cpu_count()} cores)"
    return first.device_kind if count == 1 else f"{count} x {first.device_kind}"
