"""Agents and environments over many settings, every point on the same worlds."""

import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import distinct_labels
from ..core import fact
from .checkpoint import as_folder
from .programs import Outline, Point, Run
from .progress import Progress, reported
from .results import Result, Window, checked_window, last_tenth
from .run import Engine, Task, as_engine, run_all
from .table import Sweep, word, words

LARGEST = 2**31
"""Bytes of regret that are kept without being asked; beyond it, windows must be named."""


def sweep(
    agent: Any,
    environment: Any,
    settings: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    periods: int,
    realizations: int,
    *,
    seed: int = 0,
    coupled: bool = False,
    expected: bool = False,
    windows: Iterable[Window] | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    engine: Engine | None = None,
) -> Sweep:
    """Regret of an agent in an environment at every point of a grid or list of settings.

    Points with the same sizes are one compiled program, in which settings vary as realizations do;
    others (other `members`, say) are one program for each size. Realization r of every point has
    the keys that `simulate` gives it: the same worlds, and the same numbers but for rounding.

    agent, environment: one for all points, or a function that makes it from the settings its
        arguments name
    settings: values for each name, all combinations of which are run, or a list of the points
    windows: stretches (first, last) of periods, counted from 0, last not included. By default the
        regret of every realization and period is kept, and windows can be chosen afterwards; given
        here, only their averages are kept, which takes little memory.
    checkpoint: a folder; a sweep that was interrupted goes on where it stopped.
    coupled, expected, chunk, progress, engine: as for `simulate`
    """
    where: Any = {"chunk": chunk, "checkpoint": checkpoint, "progress": progress, "engine": engine}
    run = Run(periods, realizations, seed, coupled, expected)
    return run_sweep(agent, environment, settings, run, windows, as_agent, ("offer",), **where)


def run_sweep(
    agent: Any,
    environment: Any,
    settings: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    run: Run,
    windows: Iterable[Window] | None,
    as_agent: Callable[[Any], Any],
    of_environments: Sequence[str],
    *,
    chunk: int | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool | Progress | None,
    engine: Engine | None,
) -> Sweep:
    """`sweep` for any kind of run.

    of_environments: methods that tell an environment from a function that makes one
    """
    began, engine = time.perf_counter(), as_engine(engine)
    each = points_of(settings)
    make_agent, for_agent = _maker("agent", agent, ("act", "sample", "policy"), each[0])
    make_environment, for_environment = _maker("environment", environment, of_environments, each[0])
    if unused := [name for name in each[0] if name not in for_agent | for_environment]:
        raise ValueError(
            f"no function takes the setting {', '.join(unused)}: give agent or environment as a "
            f"function of it, as in lambda {unused[0]}: ..."
        )
    checks.size("realizations", run.realizations, least=2)
    kept = None if windows is None else _windows(windows, run.periods)
    run = replace(run, keep=True, windows=kept)
    points = []
    for setting in each:
        with _at(setting):
            points.append((as_agent(make_agent(setting)), make_environment(setting)))
            run.check(*points[-1])
    if kept is None and 4 * len(points) * run.realizations * run.periods > LARGEST:
        raise ValueError(
            f"the regret of {len(points)} points x {run.realizations} realizations x "
            f"{run.periods} periods would fill memory: name the windows to keep, as in "
            "windows=[(0, 100)]; the last tenth and the whole are always kept"
        )
    groups: dict[Outline, list[int]] = {}  # the points that share a program
    for at, point in enumerate(points):
        groups.setdefault(Outline.of(*point), []).append(at)
    folder = None if checkpoint is None else as_folder("checkpoint", checkpoint)
    with reported(progress, f"{len(points)} points") as report:
        tasks = [
            Task.of([points[at] for at in group], run, chunk, folder and folder / f"group-{number}")
            for number, group in enumerate(groups.values())
        ]
        by_group = run_all(tasks, report, engine)
    found: dict[int, Result] = {}
    for group, results in zip(groups.values(), by_group, strict=True):
        found |= dict(zip(group, results, strict=True))
    seconds = time.perf_counter() - began
    regret: Any = [found[at].regret for at in range(len(points))]
    about = {"seconds": seconds / len(points), **({} if kept is None else {"regret": None})}
    labels = enumerate(_labels(each, points))
    return Sweep(
        settings=tuple(each),
        results=tuple(replace(found[at], label=label, **about) for at, label in labels),
        seconds=seconds,
        programs=len(groups),
        windows=kept,
        averages=None if kept is None else np.stack(regret),
    )


def points_of(settings: Any) -> list[dict[str, Any]]:
    """The points of a grid (values by name), or of a list of points.

    Whole numbers among fractions become fractions, or 0 and 0.1 would be two programs.
    """
    if isinstance(settings, Mapping):
        for name, values in settings.items():
            if isinstance(values, Mapping) or not checks.is_several(values):
                raise TypeError(
                    f"settings must list the values of {name}, as in {{{name!r}: [{values!r}]}}; "
                    f"got {values!r}"
                )
        columns = {str(name): list(values) for name, values in settings.items()}
        empty = [name for name, values in columns.items() if not values]
        if not columns or empty:
            raise ValueError(f"settings must have values, got none for {empty or 'any name'}")
        points = [dict(zip(columns, row, strict=True)) for row in product(*columns.values())]
    elif checks.is_several(settings):
        points = list(settings)
    else:
        raise TypeError(f"settings must be a dictionary of lists or a list, got {settings!r}")
    if not points:
        raise ValueError("settings must have at least one point, got none")
    for point in points:
        if not isinstance(point, Mapping):
            raise TypeError(f"a point must be a dictionary of settings, got {point!r}")
        if point.keys() != points[0].keys():
            raise ValueError(
                f"all points must have the same settings, got {sorted(points[0])} and "
                f"{sorted(point)}"
            )
    mixed = {name for name in points[0] if {type(point[name]) for point in points} == {int, float}}
    return [{n: float(v) if n in mixed else v for n, v in point.items()} for point in points]


def _maker(
    name: str, thing: Any, methods: Sequence[str], setting: Mapping[str, Any]
) -> tuple[Callable[[Mapping[str, Any]], Any], set[str]]:
    """A function that makes the agent or environment of a point, and the settings it uses."""
    if not isinstance(thing, type) and any(hasattr(thing, method) for method in methods):
        return lambda setting: thing, set()
    if not callable(thing):
        raise TypeError(f"{name} must be an {name} or a function that makes it, got {thing!r}")
    arguments = inspect.signature(thing).parameters
    anything = any(a.kind is a.VAR_KEYWORD for a in arguments.values())
    used = {name for name in setting if anything or name in arguments}
    needed = [
        a.name
        for a in arguments.values()
        if a.default is a.empty and a.kind not in (a.VAR_KEYWORD, a.VAR_POSITIONAL)
    ]
    if missing := [argument for argument in needed if argument not in setting]:
        raise TypeError(f"{name} needs {', '.join(missing)}, and settings has {', '.join(setting)}")
    return lambda setting: thing(**{name: setting[name] for name in used}), used


@contextmanager
def _at(setting: Mapping[str, Any]) -> Iterator[None]:
    """What fails at a point says at which."""
    try:
        yield
    except Exception as error:
        error.add_note(f"at the settings {words(setting)}")
        raise


def _windows(windows: Iterable[Window], periods: int) -> tuple[Window, ...]:
    """Those asked for, the whole and the last tenth."""
    given = [checked_window(window, periods) for window in windows]
    return tuple(dict.fromkeys([(0, periods), last_tenth(periods), *given]))


def _labels(each: Sequence[Mapping[str, Any]], points: Sequence[Point]) -> list[str]:
    """The settings that vary, in words; no two are the same."""
    texts = [{name: word(value) for name, value in setting.items()} for setting in each]
    varied = [name for name in texts[0] if len({text[name] for text in texts}) > 1]
    labels = [", ".join(f"{name} {text[name]}" for name in varied) for text in texts]
    if not varied:
        labels = [fact(agent, "label") for agent, _ in points]
    return distinct_labels(labels, [{} for _ in labels])
