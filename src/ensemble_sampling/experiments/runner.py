"""Run a study's panels and save their results; an interrupted run goes on where it stopped."""

import os
import platform
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
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
from .panels import Figure, Job, Panel
from .report import Pictures, build, draw_figure, load
from .study import Study

Say = Callable[[str], None]


def select(study: Study, names: Sequence[str] = ()) -> list[Panel]:
    """Panels by name, by figure number, or all of them; the cheapest first."""
    if isinstance(names, str):
        raise TypeError(f"names must be a list of panels or figures, got {names!r}")
    meant = {name: [name] for name in study.panels}
    meant |= {str(f.number): [panel.name for panel in f.panels] for f in study.figures}
    meant |= {"all": [*study.panels]}
    chosen: set[str] = set()
    for name in names or ["all"]:
        if name not in meant:
            raise ValueError(f"there is no panel {name!r}; accepted are {', '.join(meant)}")
        chosen.update(meant[name])
    wanted = [panel for name, panel in study.panels.items() if name in chosen]
    return sorted(wanted, key=lambda panel: panel.effort * panel.laptop)


def run(
    study: Study,
    names: Sequence[str] = (),
    *,
    realizations: int | str = "full",
    seed: int = 0,
    out: str | os.PathLike[str] = "results",
    force: bool = False,
    progress: bool | None = None,
    say: Say = print,
    engine: Engine | None = None,
    report: bool = True,
) -> Path:
    """Run a study's panels, the cheap ones first, and save each as `out/<panel>.json`; then draw
    its figures and write its report, whose path is returned.

    Interrupted, the same call goes on where it stopped; what is there is not run again.

    names: panels ("1a"), figures ("1") or "all"
    realizations: for every panel, or "full" or "laptop" for what each declares
    force: run panels again whose results are there, from the beginning
    progress: bars on the terminal, by default where there is one
    say: called with a line on what will be run, on each panel that is done, on damaged files
    engine: where simulations run, as for `simulate`
    report: False saves the results alone, and returns the folder
    """
    if not isinstance(study, Study):
        raise TypeError(f"study must be an es.experiments.Study, got {study!r}")
    seed = checks.size("seed", seed, least=0, below=2**32)
    force, report = checks.flag("force", force), checks.flag("report", report)
    engine, folder = as_engine(engine), as_folder("out", out)
    asked = [
        _PanelRun(panel, _count(panel, realizations), seed, folder, say)
        for panel in select(study, names)
    ]
    todo = [panel_run for panel_run in asked if force or not panel_run.complete()]
    say(_intent(todo, len(asked), folder))
    for panel_run in todo:
        panel_run.check()
    for panel_run in todo:
        panel_run.begin(afresh=force)
    if not report:
        _run_jobs(todo, progress, say, engine)
        return folder
    drawn: dict[int, Future[Pictures]] = {}
    with ThreadPoolExecutor(1) as drawing:  # beside what still runs

        def draw(panel: Panel) -> None:
            figure = next(f for f in study.figures if any(p is panel for p in f.panels))
            names = {p.name for p in figure.panels}
            if all(r.path.exists() for r in asked if r.panel.name in names):
                drawn[figure.number] = drawing.submit(_draw_when_idle, study, folder, figure)

        _run_jobs(todo, progress, say, engine, draw)
    return build(study, folder, say, {number: task.result() for number, task in drawn.items()})


def _draw_when_idle(study: Study, folder: Path, figure: Figure) -> Pictures:
    """Draw a figure once no program is being traced: what waits for it would be held up."""
    while tracing():
        time.sleep(0.05)
    found = load(replace(study, content=[figure]), folder, lambda message: None)
    return draw_figure(figure, found, folder)


def _intent(todo: "Sequence[_PanelRun]", asked: int, out: Path) -> str:
    """What is about to be run, in a line."""
    if not todo:
        return f"nothing to run: the results are in {out}"
    listed = ", ".join(f"{r.panel.name} ({r.realizations:,} realizations)" for r in todo)
    there = f"; {asked - len(todo)} are there already" if len(todo) < asked else ""
    return f"running {listed}{there}; results go to {out}"


def _count(panel: Panel, realizations: int | str) -> int:
    if realizations == "full":
        return panel.realizations
    if realizations == "laptop":
        return panel.laptop
    if isinstance(realizations, str):
        raise ValueError(f"realizations must be a number, 'full' or 'laptop', got {realizations!r}")
    return checks.size("realizations", realizations, least=2)


def _run_jobs(
    todo: "Sequence[_PanelRun]",
    progress: bool | None,
    say: Say,
    engine: Engine,
    finished: Callable[[Panel], None] = lambda panel: None,
) -> None:
    """Side by side, so that some compile while others run; jobs that share programs in turn."""
    groups: dict[Hashable, list[tuple[_PanelRun, Job]]] = defaultdict(list)
    for panel_run in todo:
        for job in panel_run.jobs:
            groups[job.programs].append((panel_run, job))

    def effort(group: list[tuple[_PanelRun, Job]]) -> float:
        return sum(job.effort for _, job in group)

    ordered = list(groups.values())
    if engine.jobs > 2:
        # The longest first: the others compile and run in its shadow.
        ordered.sort(key=effort, reverse=True)
    turn, stop, done = Lock(), Event(), []
    with bars(progress, whole=sum(map(effort, ordered))) as track:

        def in_turn(group: list[tuple[_PanelRun, Job]]) -> None:
            for panel_run, job in group:
                name = panel_run.panel.name
                with track(f"{name}  {job.label}", job.effort) as bar:
                    seconds = panel_run.run(job, partial(_unless, stop, bar), engine)
                if seconds is not None:
                    with turn:
                        done.append(name)
                        say(f"{name}: done in {seconds:.0f} s, {len(done)} of {len(todo)} panels")
                        finished(panel_run.panel)

        with closing(completed(in_turn, ordered, engine.jobs, stop)) as all_done:
            for _ in all_done:
                pass


def _unless(stop: Event, progress: Progress, done: int, total: int) -> None:
    """Report progress, or leave the simulation where it is once another job was interrupted."""
    if stop.is_set():
        raise InterruptedError("another job was interrupted or failed")
    progress(done, total)


class _PanelRun:
    """A panel that is being run: its jobs, the results of those that are done, and its files."""

    def __init__(self, panel: Panel, realizations: int, seed: int, folder: Path, say: Say):
        self.panel, self.realizations, self.say = panel, realizations, say
        self.path = folder / f"{panel.name}.json"
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
        try:
            return read_json(path) if path.exists() else None
        except Damaged as error:
            self.say(f"{error}; it is computed again")
            return None

    def check(self) -> None:
        """Let parts that do not fit fail before anything is run or written."""
        for job in self.jobs:
            try:
                job.check()
            except (TypeError, ValueError) as error:
                raise ValueError(f"panel {self.panel.name}, {job.label}: {error}") from error

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
