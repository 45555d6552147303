"""Panels of episodes: how long agents take to learn worlds of growing size, and where one went."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import episodes
from ...config import describe
from ...episodes import DeepSea, Event, World
from ...episodes.run import check_parts
from ...simulation.plot import style
from ...simulation.results import Result
from ..page import plain, table
from ..panels import Data, Job, Where

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Series:
    """One agent at several points of a panel: sizes of its world, or members, say.

    agent: (point, world) -> agent
    world: (point, most) -> world, with the shapes of `most`
    shapes: the smallest of these that is not below a point is its `most`: points with the same
        shapes share a program
    """

    label: str
    points: Sequence[int]
    agent: Callable[[int, World], Any]
    world: Callable[[int, int], World]
    shapes: Sequence[int]

    def about(self) -> dict[str, Any]:
        """What an entry says beside its label and points."""
        return {}

    def groups(self) -> dict[int, list[int]]:
        """Shapes -> the points that have them."""
        found = defaultdict(list)
        for point in self.points:
            found[min(most for most in self.shapes if most >= point)].append(point)
        return found

    def parts(self, point: int) -> tuple[Any, World]:
        most = next(most for most, points in self.groups().items() if point in points)
        world = self.world(point, most)
        return self.agent(point, world), world


@dataclass(frozen=True)
class LearningTimes:
    """Episodes until the average regret was below `threshold`, at the earliest in episode `first`.

    along: what the points are
    """

    name: str
    title: str
    series: Sequence[Series]
    periods: int
    realizations: int
    laptop: int
    effort: float
    along: str = "size"
    threshold: float = 0.9
    first: int = 1

    entries: ClassVar[str] = "series"
    scale: ClassVar[str | None] = None

    def header(self) -> dict[str, Any]:
        return {"along": self.along, "threshold": self.threshold, "first": self.first}

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        return [
            Job(
                series.label,
                {
                    "label": series.label,
                    **series.about(),
                    "points": list(series.points),
                    "largest": describe(list(series.parts(series.points[-1]))),
                },
                (self.name, series.label),
                self.effort * realizations / len(self.series),
                partial(self._run, series, realizations, seed),
                partial(check_parts, *series.parts(series.points[-1])),
            )
            for series in self.series
        ]

    def _run(
        self, series: Series, realizations: int, seed: int, **where: Unpack[Where]
    ) -> dict[str, Any]:
        times: dict[int, list[float | None]] = {}
        diverged, groups = 0, series.groups()
        for number, (most, points) in enumerate(groups.items()):
            place: Any = {**where, "checkpoint": where["checkpoint"] / str(most)}
            place["progress"] = _part(where["progress"], number, len(groups))
            found = episodes.sweep(
                lambda point, most=most: series.agent(point, series.world(point, most)),
                lambda point, most=most: series.world(point, most),
                {"point": points},
                self.periods,
                realizations,
                seed=seed,
                **place,
            )
            for point, result in zip(points, found.results, strict=True):
                times[point] = [None if np.isnan(t) else int(t) for t in self.times(result)]
                diverged += result.diverged
        return {"times": [times[point] for point in series.points], "diverged": diverged}

    def times(self, result: Result) -> np.ndarray:
        """Of every realization, NaN where there is none."""
        return episodes.learning_times(result, self.threshold, self.first)

    def draw(self, ax: "Axes", data: Data) -> None:
        for i, series in enumerate(data["series"]):
            points, times = times_of(series)
            solved = np.isfinite(times).all(axis=1)
            colour, mark, _ = style(i)
            some = np.isfinite(np.median(filled(times), axis=1))
            middle, low, high = (
                f(filled(times[some]), axis=1) for f in (np.median, np.min, np.max)
            )
            spread = middle - low, np.minimum(high, data["periods"]) - middle
            bars: Any = {"color": colour, "marker": mark, "ms": 4.5, "capsize": 2, "lw": 1.0}
            ax.errorbar(points[some], middle, spread, **bars)
            ax.plot([], [], color=colour, marker=mark, label=series["label"])
            missing = points[~solved]
            height = data["periods"] * 0.88**i  # side by side, where several miss the same
            ax.plot(missing, np.full(len(missing), height), "x", color=colour)
        points = sorted({point for s in data["series"] for point in s["points"]})
        if self.along == "size" and 2.0 ** points[0] < data["periods"]:
            sizes = np.arange(points[0], points[-1] + 1)
            shown = sizes[2.0**sizes <= 2 * data["periods"]]
            ax.plot(shown, 2.0**shown, ls="--", color="0.5", lw=1.0, label="2^N, dithering")
        ax.set(xlabel=self.along, ylabel="episodes until learned")
        if len(points) == 1:
            ax.set(xticks=points, xlim=(0, 2 * points[0]), ylim=(0, data["periods"]))
        else:
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xticks(points[:: -(-len(points) // 5)])
            ax.xaxis.set_major_formatter("{x:g}")
            ax.minorticks_off()
            ax.set_yticks(10.0 ** np.arange(np.ceil(np.log10(data["periods"]))))
        ax.legend(frameon=False)

    def tables(self, data: Data) -> list[str]:
        rows = []
        for series in data["series"]:
            for point, each in zip(*times_of(series), strict=True):
                solved, middle = int(np.isfinite(each).sum()), np.median(filled(each))
                shown = f"{middle:,.0f}" if np.isfinite(middle) else f"over {data['periods']:,}"
                rows.append([plain(series["label"]), str(point), f"{solved} of {len(each)}", shown])
        return [table((f"{self.name}: agent", data["along"], "learned", "median episodes"), rows)]


def _part(progress: Any, number: int, parts: int) -> Callable[[int, int], None]:
    """Progress in one of several sweeps, as progress in all."""
    return lambda done, total: progress(number * total + done, parts * total)


def times_of(series: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(points, learning times (points, realizations), NaN where an agent had not learned)."""
    return np.array(series["points"]), np.array(series["times"], dtype=float)


def filled(times: np.ndarray) -> np.ndarray:
    """With infinity for what was not learned, so that a median is still one."""
    return np.where(np.isnan(times), np.inf, times)


@dataclass(frozen=True)
class Cells:
    """Measures the cells of a deep sea that an episode went through."""

    def __call__(self, agent: Any, key: Any, state: Any, event: Event) -> Array:
        episode = event.episode
        return jnp.where(episode.taken, episode.observations[:-1], -1)


@dataclass(frozen=True)
class Visits:
    """When each cell of a deep sea was first visited, for one agent after another."""

    name: str
    title: str
    agent: Any
    world: DeepSea
    periods: int
    effort: float
    realizations: int = 2
    laptop: int = 2

    entries: ClassVar[str] = "agents"
    scale: ClassVar[str | None] = None

    def header(self) -> dict[str, Any]:
        return {"world": describe(self.world)}

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        return [
            Job(
                self.agent.label,
                {"label": self.agent.label, "agent": describe(self.agent)},
                self.name,
                self.effort * realizations,
                partial(self._run, realizations, seed),
                partial(check_parts, self.agent, self.world),
            )
        ]

    def _run(self, realizations: int, seed: int, **where: Unpack[Where]) -> dict[str, Any]:
        found = episodes.simulate(
            self.agent,
            self.world,
            self.periods,
            realizations,
            seed=seed,
            keep=True,
            measure=Cells(),
            **where,
        )
        assert found.regret is not None
        cells, size = found.regret[0].astype(int), self.world.most
        first = np.full(size**2, -1)
        for number in range(len(cells) - 1, -1, -1):
            seen = cells[number]
            first[seen[seen >= 0]] = number
        return {"first": first.reshape(size, size).tolist(), "diverged": found.diverged}

    def draw(self, ax: "Axes", data: Data) -> None:
        (series,) = data["agents"]
        first = np.array(series["first"], dtype=float)
        first[first < 0] = np.nan
        image = ax.imshow(first + 1, cmap="viridis", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label="episode of the first visit")
        ax.set(xlabel="column", ylabel="row")

    def tables(self, data: Data) -> list[str]:
        (series,) = data["agents"]
        first = np.array(series["first"])
        there, could = int((first >= 0).sum()), len(first) * (len(first) + 1) // 2
        found = first[-1, -1]
        reached = f"in episode {found + 1}" if found >= 0 else "never"
        head = (f"{self.name}: agent", "cells visited", "the last cell of the diagonal")
        return [table(head, [[plain(series["label"]), f"{there} of {could}", reached]])]
