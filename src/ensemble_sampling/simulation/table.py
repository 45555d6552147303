"""What a sweep found: a table with the settings as columns, and questions it can be asked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .. import checks
from ..config import as_text
from ..tables import as_frame, html_table
from .results import (
    Estimate,
    Result,
    Window,
    averages,
    checked_window,
    last_tenth,
    pm,
)
from .selection import least

Span = Window | Literal["final", "cumulative"]
"""Which regret: per period over a window or over the last tenth, or summed over all periods."""


def word(value: Any) -> str:
    """One setting in a few letters."""
    return value if isinstance(value, str) else as_text(value)


@dataclass(frozen=True, repr=False)
class Best:
    """The point with the least regret, and what that is worth after looking at all of them.

    low, high: an interval for its regret that allows for its having been chosen, see `Sweep.best`
    contenders: the points of which the truly best is one, by their numbers
    """

    point: int
    settings: Mapping[str, Any]
    regret: float
    low: float
    high: float
    confidence: float
    contenders: tuple[int, ...]

    def __repr__(self) -> str:
        others = len(self.contenders) - 1
        beside = f", {others} other{'s' * (others != 1)} may be best" if others else ", alone"
        return (
            f"Best({words(self.settings)}: regret {self.regret:.4g}, {self.confidence:.0%} "
            f"interval {self.low:.4g} to {self.high:.4g}{beside})"
        )


@dataclass(frozen=True, repr=False)
class Sweep:
    """Regret at every point, in the same worlds.

    settings, results: of each point, in the order in which they were given
    programs: how many were compiled
    windows, averages: the windows whose averages were kept, and these (points, realizations,
        windows); None where the results have the regret of every period
    """

    settings: tuple[Mapping[str, Any], ...]
    results: tuple[Result, ...]
    seconds: float
    programs: int
    windows: tuple[Window, ...] | None = None
    averages: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, point: int) -> Result:
        return self.results[point]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @property
    def names(self) -> tuple[str, ...]:
        """What is varied."""
        return tuple(self.settings[0])

    @property
    def periods(self) -> int:
        return self.results[0].periods

    @property
    def realizations(self) -> int:
        return self.results[0].realizations

    def column(self, name: str) -> list[Any]:
        """The values of one setting, one for each point."""
        if name not in self.names:
            raise ValueError(f"there is no setting {name!r}; there are {', '.join(self.names)}")
        return [setting[name] for setting in self.settings]

    def regret(self, window: Span = "final") -> np.ndarray:
        """The regret of every point and realization: (points, realizations).

        window: "final" for the average over the last tenth of the periods, "cumulative" for the sum
            over all of them, or (first, last) for the average over these, counted from 0, the last
            not included.
        """
        first, last = span = self.span(window)
        scale = last - first if window == "cumulative" else 1
        if self.averages is None or self.windows is None:
            every = [result.regret for result in self.results]
            return scale * np.stack([averages(r, [span])[:, 0] for r in every if r is not None])
        if span not in self.windows:
            kept = ", ".join(map(str, self.windows))
            raise ValueError(f"the window {span} was not kept; there are {kept}")
        return scale * self.averages[:, :, self.windows.index(span)]

    def span(self, window: Span) -> Window:
        """The periods that a window stands for."""
        if isinstance(window, str):
            if window not in ("final", "cumulative"):
                raise ValueError(
                    f"window must be 'final', 'cumulative' or (first, last), got {window!r}"
                )
            return last_tenth(self.periods) if window == "final" else (0, self.periods)
        return checked_window(window, self.periods)

    def estimate(self, window: Span = "final") -> Estimate:
        """The mean regret of every point and its standard error: (points,) each."""
        return _estimate(self.regret(window))

    def differences(
        self, baseline: int | Mapping[str, Any] = 0, window: Span = "final"
    ) -> Estimate:
        """The regret of every point minus the baseline's, in the same worlds: (points,) each.

        baseline: the number of a point, or settings that only one point has
        """
        regret = self.regret(window)
        return _estimate(regret - regret[self.find(baseline)])

    def find(self, point: int | Mapping[str, Any]) -> int:
        """The number of the one point with these settings."""
        if not isinstance(point, Mapping):
            return checks.size("a point", point, least=0, below=len(self))
        for name in point:
            self.column(name)
        wanted = words(point)
        each = [words({name: setting[name] for name in point}) for setting in self.settings]
        found = [at for at, text in enumerate(each) if text == wanted]
        if len(found) != 1:
            raise ValueError(f"{words(point)} must be one point, and is {len(found)} of them")
        return found[0]

    @property
    def best(self) -> Best:
        """The point with the least final regret, see `best_in`."""
        return self.best_in()

    def best_in(self, window: Span = "final", confidence: float = 0.95) -> Best:
        """The point with the least regret, with an interval that is honest about the choice.

        The interval is one that holds for all points at once (their largest |t|, given how they go
        up and down together over the same worlds), and so for the chosen one. `contenders` are the
        points that paired comparisons cannot tell from the best, of which the truly best is one
        with the same confidence.
        """
        checks.scalar("confidence", confidence, low=0.5, high=0.9999)
        at, regret, low, high, contenders = least(self.regret(window), confidence)
        return Best(at, self.settings[at], regret, low, high, confidence, contenders)

    def frame(
        self, baseline: int | Mapping[str, Any] | None = None, windows: Iterable[Window] = ()
    ) -> Any:
        """A table, one row per point: a data frame, or else a `Table`.

        Columns are the settings, final and cumulative regret and that of the windows given, each
        with its standard error, and with a `baseline` the final regret's differences to it.
        """
        columns: dict[str, Any] = {name: _values(self.column(name)) for name in self.names}
        spans: dict[str, Any] = {"final": "final", "cumulative": "cumulative"}
        spans |= {f"regret {first}-{last}": (first, last) for first, last in windows}
        for name, span in spans.items():
            columns[name], columns[f"{name}_stderr"] = self.estimate(span)
        if baseline is not None:
            columns["difference"], columns["difference_stderr"] = self.differences(baseline)
        columns["diverged"] = np.array([result.diverged for result in self.results])
        return as_frame(columns)

    def plot(
        self, x: str | None = None, color: str | None = None, window: Span = "final", **options: Any
    ) -> Any:
        """A figure of the regret against the setting `x`, a curve for every value of `color`.

        Where other settings vary as well, every combination of them is a curve. Without `x`, regret
        over time is drawn, a curve for every point; further options are those of `es.plot`.
        """
        from .plot import plot, plot_against

        if x is None:
            if color is not None:
                raise ValueError("color needs x, the setting on the axis")
            return plot(self.results, **options)
        return plot_against(self, x, color, window, **options)

    def __repr__(self) -> str:
        counts = {name: len({*map(word, self.column(name))}) for name in self.names}
        varied = ", ".join(f"{count} {name}" for name, count in counts.items())
        return (
            f"Sweep({len(self)} points: {varied}; {self.periods:,} periods, "
            f"{self.realizations:,} realizations each, {self.programs} "
            f"program{'s' * (self.programs != 1)}, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        final, whole = (map(pm, *self.estimate(window)) for window in ("final", "cumulative"))
        rows = [
            [*map(word, setting.values()), *regret]
            for setting, *regret in zip(self.settings, final, whole, strict=True)
        ]
        return html_table([*self.names, "final regret", "cumulative"], rows)


def _estimate(values: np.ndarray) -> Estimate:
    """Over realizations (points, realizations)."""
    error = values.std(axis=1, ddof=1) / values.shape[1] ** 0.5
    return Estimate(values.mean(axis=1), error)


def _values(column: Sequence[Any]) -> np.ndarray:
    """Numbers, flags and words as they are, anything else by what is written for it."""
    plain = all(isinstance(value, bool | int | float | str | np.generic) for value in column)
    return np.array(column if plain else [word(value) for value in column])


def words(settings: Mapping[str, Any]) -> str:
    """`name=value, ...` of a point."""
    return ", ".join(f"{name}={word(value)}" for name, value in settings.items())
