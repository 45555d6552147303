"""Agents and environments over many settings, every point on the same worlds."""

import inspect
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import distinct_labels
from ..core import fact
from .checkpoint import as_folder
from .chunks import Task, Totals
from .engines import Engine, as_engine
from .programs import Outline, Point, Stack, check_parts, chunk_size, outline
from .progress import Progress, reported
from .results import Window, checked_window, last_tenth
from .run import check_run, result_of, run_all
from .table import Sweep, word, words

LARGEST = 2**31
"""Bytes of regret that are kept without being asked; beyond it, windows must be named."""


def sweep(
    agent: Any,
    environment: Any,
    settings: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
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
    began, engine = time.perf_counter(), as_engine(engine)
    each = _alike(points_of(settings))
    _check_names(agent, environment, each[0])
    points = [_point(agent, environment, setting) for setting in each]
    run = {
        "periods": checks.size("periods", periods),
        "realizations": checks.size("realizations", realizations, least=2),
        "seed": checks.size("seed", seed, least=0, below=2**32),
        "coupled": checks.flag("coupled", coupled),
        "keep": True,
        "expected": checks.flag("expected", expected),
        "measure": None,
        "windows": None if windows is None else _windows(windows, periods),
    }
    for point, setting in zip(points, each, strict=True):
        with _at(setting):
            check_run(run, check_parts(*point), progress)
    if windows is None and 4 * len(points) * realizations * periods > LARGEST:
        raise ValueError(
            f"the regret of {len(points)} points x {realizations} realizations x {periods} periods "
            "would fill memory: name the windows to keep, as in windows=[(0, 100)]; the last tenth "
            "and the whole are always kept"
        )
    groups = _grouped(points)
    folder = None if checkpoint is None else as_folder("checkpoint", checkpoint)
    size = None if chunk is None else checks.count("chunk", chunk)
    tasks = [
        _task([points[at] for at in group], run, size, folder and folder / f"group-{number}")
        for number, group in enumerate(groups)
    ]
    with reported(progress, f"{len(points)} points") as report:
        by_group = run_all(tasks, report, engine)
    found: dict[int, Totals] = {}
    for group, found_of in zip(groups, by_group, strict=True):
        found |= dict(zip(group, found_of, strict=True))
    seconds = time.perf_counter() - began
    results = [
        result_of(found[at], label, *point, run, seconds / len(points))
        for at, (label, point) in enumerate(zip(_labels(each, points), points, strict=True))
    ]
    kept: Any = [found[at].regret for at in range(len(points))]
    return Sweep(
        settings=tuple(each),
        results=tuple(results),
        seconds=seconds,
        programs=len(groups),
        windows=run["windows"],
        averages=None if windows is None else np.stack(kept),
    )


def points_of(settings: Any) -> list[dict[str, Any]]:
    """The points of a grid (values by name), or of a list of points."""
    if isinstance(settings, Mapping):
        for name, values in settings.items():
            if isinstance(values, Mapping) or not checks.is_several(values):
                raise TypeError(f"settings must list the values of {name}, got {values!r}")
        columns = {str(name): list(values) for name, values in settings.items()}
        points = [dict(zip(columns, row, strict=True)) for row in product(*columns.values())]
        empty = [name for name, values in columns.items() if not values]
        if not columns or empty:
            raise ValueError(f"settings must have values, got none for {empty or 'any name'}")
        return points
    if not checks.is_several(settings):
        raise TypeError(f"settings must be a dictionary of lists or a list, got {settings!r}")
    points = list(settings)
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
    return [dict(point) for point in points]


def _alike(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Whole numbers among fractions become such, or 0 and 0.1 would be two programs."""
    mixed = {name for name in points[0] if {type(point[name]) for point in points} == {int, float}}
    return [{n: float(v) if n in mixed else v for n, v in point.items()} for point in points]


def _is_made(thing: Any, *methods: str) -> bool:
    return not isinstance(thing, type) and any(hasattr(thing, method) for method in methods)


def _takes(thing: Any, names: Iterable[str]) -> list[str]:
    """Which of the names the arguments of a function are."""
    arguments = inspect.signature(thing).parameters
    anything = any(a.kind is a.VAR_KEYWORD for a in arguments.values())
    return [name for name in names if anything or name in arguments]


def _check_names(agent: Any, environment: Any, setting: Mapping[str, Any]) -> None:
    """Every setting is used, and nothing a function needs is missing."""
    used = set()
    for name, thing, methods in (
        ("agent", agent, ("act", "sample")),
        ("environment", environment, ("offer",)),
    ):
        if _is_made(thing, *methods):
            continue
        if not callable(thing):
            raise TypeError(f"{name} must be an {name} or a function that makes it, got {thing!r}")
        used |= {*_takes(thing, setting)}
        needed = [
            a.name
            for a in inspect.signature(thing).parameters.values()
            if a.default is a.empty and a.kind not in (a.VAR_KEYWORD, a.VAR_POSITIONAL)
        ]
        if missing := [argument for argument in needed if argument not in setting]:
            raise TypeError(
                f"{name} needs {', '.join(missing)}, and settings has {', '.join(setting)}"
            )
    if unused := [name for name in setting if name not in used]:
        raise ValueError(
            f"no function takes the setting {', '.join(unused)}: give agent or environment as a "
            f"function of it, as in lambda {unused[0]}: ..."
        )


@contextmanager
def _at(setting: Mapping[str, Any]) -> Iterator[None]:
    """What fails at a point says at which."""
    try:
        yield
    except Exception as error:
        error.add_note(f"at the settings {words(setting)}")
        raise


def _point(agent: Any, environment: Any, setting: Mapping[str, Any]) -> Point:
    def made(thing: Any, *methods: str) -> Any:
        if _is_made(thing, *methods):
            return thing
        return thing(**{name: setting[name] for name in _takes(thing, setting)})

    with _at(setting):
        return as_agent(made(agent, "act", "sample")), made(environment, "offer")


def _windows(windows: Iterable[Window], periods: int) -> tuple[Window, ...]:
    """Those asked for, the whole and the last tenth."""
    found = [(0, periods), last_tenth(periods)]
    for window in windows:
        first, last = checked_window(window, periods)
        if (first, last) not in found:
            found.append((first, last))
    return tuple(found)


def _grouped(points: Sequence[Point]) -> list[list[int]]:
    """The points that share a program."""
    groups: dict[Outline, list[int]] = {}
    for at, point in enumerate(points):
        groups.setdefault(outline(*point), []).append(at)
    return list(groups.values())


def chunk_of(points: Sequence[Point], periods: int, realizations: int) -> int:
    """Realizations per call of points that share a program."""
    own, lanes = Stack.of(points).bytes, len(points) * realizations
    return chunk_size(*points[0], periods, lanes, own)


def _task(
    points: Sequence[Point], run: dict[str, Any], size: int | None, folder: Path | None
) -> Task:
    if size is None:
        size = chunk_of(points, run["periods"], run["realizations"])
    size = min(size, len(points) * run["realizations"])
    return Task.of(points, {**run, "points": [list(point) for point in points]}, size, folder)


def _labels(each: Sequence[Mapping[str, Any]], points: Sequence[Point]) -> list[str]:
    """The settings that vary, in words; no two are the same."""
    texts = [{name: word(value) for name, value in setting.items()} for setting in each]
    varied = [name for name in texts[0] if len({text[name] for text in texts}) > 1]
    if not varied:
        return distinct_labels([fact(agent, "label") for agent, _ in points], [{} for _ in points])
    labels = [", ".join(f"{name} {text[name]}" for name in varied) for text in texts]
    return distinct_labels(labels, [{} for _ in labels])
