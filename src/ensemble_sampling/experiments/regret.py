"""Panels of regret: a curve for each agent beside published ones, or losses against members."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import jax
import numpy as np

from .. import checks
from ..config import describe, labels
from ..core import Agent, Environment, some_key
from ..simulation import mean_and_error, numbers, simulate
from ..simulation.plot import CONFIDENT, draw_curve, style
from ..simulation.programs import check_parts
from ..simulation.results import averages, last_tenth
from .page import plain, table, with_error
from .panels import Data, Job, Where, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Published = Mapping[str, Mapping[Window, float]]
"""Label -> window of periods -> the regret that somebody else found there."""

GREY: Any = {"color": "0.5", "lw": 0.8, "mfc": "none", "mec": "0.5", "mew": 0.9, "zorder": 1.5}
"""How published values look, under our own."""


@dataclass(frozen=True)
class Experiment:
    """Agents in the same worlds: one curve for each, beside the published ones if there are any.

    name: of its file
    realizations: the full number; `laptop` is for a quick look (default: the same), and `effort`
        a guess of the seconds that each takes, which only orders the work
    published: what others found, and in how many realizations (`published_realizations`)
    kept: windows of periods whose average is kept for every realization, so that agents can be
        compared pairwise in the same worlds, besides the `whole` run and its `late` tenth
    """

    name: str
    environment: Environment
    agents: Sequence[Agent]
    periods: int
    realizations: int
    title: str = ""
    laptop: int = 0
    effort: float = 0.01
    published: Published | None = None
    published_realizations: int | None = None
    kept: tuple[Window, ...] = ()

    entries: ClassVar[str] = "series"
    scale: ClassVar[str | None] = "regret"

    def __post_init__(self) -> None:
        if not isinstance(self.agents, list | tuple) or not self.agents:
            raise TypeError(f"{self.name!r} needs a list of agents, got {self.agents!r}")
        for agent in self.agents:
            checks.part("agent", agent, "init", "act", "update")
        checks.part("environment", self.environment, "init", "offer", "outcome")
        checks.size("periods", self.periods)
        checks.size("realizations", self.realizations, least=2)
        checks.size("laptop", self.laptop, least=0)
        for name, value in (
            ("agents", tuple(self.agents)),
            ("title", self.title or self.name),
            ("laptop", self.laptop or self.realizations),
        ):
            object.__setattr__(self, name, value)

    @property
    def whole(self) -> Window:
        return 0, self.periods

    @property
    def late(self) -> Window:
        """The last tenth."""
        return last_tenth(self.periods)

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.whole, self.late, *(w for w in self.kept if w not in (self.whole, self.late))

    @property
    def labels(self) -> list[str]:
        return labels(self.agents)

    def averages(self, data: Data, window: Window) -> list[np.ndarray]:
        """Each agent's regret in every realization, averaged over a window."""
        at = [tuple(w) for w in data["windows"]].index(window)
        return [np.asarray(series["averages"][at]) for series in data["series"]]

    def header(self) -> dict[str, Any]:
        return {
            "environment": describe(self.environment),
            "windows": [list(window) for window in self.windows],
        }

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        sizes = [_state_size(agent) for agent in self.agents]
        return [
            Job(
                label,
                {"label": label, "agent": describe(agent)},
                (jax.tree.structure((agent, self.environment)), self.periods, realizations),
                self.effort * realizations * size / sum(sizes),
                partial(self._run, agent, realizations, seed),
                partial(check_parts, agent, self.environment),
            )
            for agent, label, size in zip(self.agents, self.labels, sizes, strict=True)
        ]

    def _run(
        self, agent: Agent, realizations: int, seed: int, **where: Unpack[Where]
    ) -> dict[str, Any]:
        result = simulate(
            agent,
            self.environment,
            self.periods,
            realizations,
            seed=seed,
            keep=True,
            chunk=_chunk(realizations),
            **where,
        )
        assert result.regret is not None
        return {
            "mean": numbers(result.mean),
            "stderr": numbers(result.stderr),
            "diverged": result.diverged,
            "averages": numbers(averages(result.regret, self.windows).T),
        }

    def draw(self, ax: "Axes", data: Data) -> None:
        for i, series in enumerate(data["series"]):
            label, of = series["label"], len(data["series"])
            draw_curve(ax, label, series["mean"], series["stderr"], i, of)
            if theirs := (self.published or {}).get(label):
                _draw_published(ax, theirs, style(i).mark)
        if self.published:
            ax.plot([], [], marker="o", ms=5.5, ls="-", label="published", **GREY)
        ax.set(xlabel="period", ylabel="regret per period", xlim=(0, data["periods"]))
        ax.legend(frameon=False, ncols=2 if len(data["series"]) > 4 else 1)

    def tables(self, data: Data) -> list[str]:
        late, whole = (self.averages(data, window) for window in (self.late, self.whole))
        rows = [
            [plain(series["label"]), *(with_error(*mean_and_error(values)) for values in both)]
            for series, *both in zip(data["series"], late, whole, strict=True)
        ]
        first, last = self.late
        head = (f"{self.name}: regret per period", f"periods {first}-{last}", "all periods")
        beside = self._beside_published(data) if self.published else []
        return [table(head, rows), *beside]

    def _beside_published(self, data: Data) -> list[str]:
        """Ours minus theirs in the windows that are shown, and a word on all windows they give.

        Their values have errors as well: as large as ours would be with as many realizations.
        """
        published, theirs_are = self.published or {}, self.published_realizations
        widened = (1 + data["realizations"] / theirs_are) ** 0.5 if theirs_are else 1.0
        rows, everywhere = [], []
        for i, series in enumerate(data["series"]):
            label, theirs = plain(series["label"]), published.get(series["label"], {})
            for window in self.kept or (self.late, self.whole):
                if (value := _pooled(theirs, window)) is not None:
                    mean, error = self._average(data, i, window)
                    off = mean - value
                    rows.append(
                        [
                            label,
                            f"{window[0]}-{window[1]}",
                            f"{value:.3f}",
                            with_error(mean, error),
                            f"{off:+.3f}",
                            f"{100 * off / value:+.1f}%" if value else "",
                            f"{off / error / widened:+.1f}" if error else "",
                        ]
                    )
            for window, value in theirs.items():
                mean, error = self._average(data, i, window)
                if error:
                    where = f"{label}, periods {window[0]}-{window[1]}"
                    everywhere.append(((mean - value) / error / widened, where))
        heads = ("periods", "published", "measured", "difference", "in %", "in errors")
        shown = [table((f"{self.name} beside the published", *heads), rows)] if rows else []
        return [*shown, *_summary(everywhere, theirs_are)]

    def _average(self, data: Data, i: int, window: Window) -> tuple[float, float]:
        """Our mean in a window, and its standard error."""
        if window in self.windows:
            return mean_and_error(self.averages(data, window)[i])
        # The average of standard errors is at least the standard error of the average.
        mean, error = (data["series"][i][part][slice(*window)] for part in ("mean", "stderr"))
        return float(np.mean(mean)), float(np.mean(error))


def _draw_published(ax: "Axes", theirs: Mapping[Window, float], mark: str) -> None:
    """A thin grey line through their values, each in the middle of its window."""
    windows = sorted(theirs)
    joined = all(a[1] == b[0] for a, b in pairwise(windows))
    middles = [(first + last) / 2 for first, last in windows]
    values = [theirs[window] for window in windows]
    line = "-" if joined and len(windows) > 1 else ""
    ax.plot(middles, values, marker=mark, ms=5.5, ls=line, **GREY)


def _pooled(theirs: Mapping[Window, float], window: Window) -> float | None:
    """Their average over a window that theirs cover exactly."""
    parts = [w for w in theirs if window[0] <= w[0] and w[1] <= window[1]]
    if not parts or sum(b - a for a, b in parts) != window[1] - window[0]:
        return None
    return float(np.average([theirs[w] for w in parts], weights=[b - a for a, b in parts]))


def _summary(found: Sequence[tuple[float, str]], realizations: int | None) -> list[str]:
    """How many of (difference in standard errors, where that is) are small, and the largest."""
    if not found:
        return []
    within = sum(abs(off) <= 2 for off, _ in found)
    most, where = max(found, key=lambda one: abs(one[0]))
    whose = "of ours"
    if realizations is not None:
        whose = f"of the difference, published values taken for {realizations:,} realizations"
    return [
        f"Errors are standard errors {whose}. Of all {len(found)} windows that were published, "
        f"{within} differ by at most two; the most is {most:+.1f} ({where})."
    ]


@dataclass(frozen=True)
class Gaps(Experiment):
    """Run as curves are, shown as losses.

    `members` are those of all agents but the first; `bound` is what theory says they may lose per
    period.
    """

    members: tuple[int, ...] = ()
    bound: Callable[[int], float] = lambda members: float("nan")

    scale: ClassVar[str | None] = None

    def losses(self, data: Data, window: Window) -> np.ndarray:
        """(members, loss to the first agent, its standard error) in a window, a row each."""
        first, *others = self.averages(data, window)
        found = (mean_and_error(values - first) for values in others)
        return np.array([(m, *f) for m, f in zip(self.members, found, strict=True)])

    def draw(self, ax: "Axes", data: Data) -> None:
        names, least = {self.whole: "all periods", self.late: "the last tenth"}, 1.0
        for i, (window, name) in enumerate(names.items()):
            rows = self.losses(data, window)
            members, loss, error = rows[rows[:, 1] > 0].T
            least = min(least, *loss / 3)
            colour, mark, _ = style(i + 1)
            marks: Any = {"marker": mark, "ms": 4.5, "capsize": 3, "label": f"measured, {name}"}
            ax.errorbar(members, loss, CONFIDENT * error, color=colour, lw=1.0, **marks)
        sizes = np.array(self.members)
        bound = [self.bound(int(m)) for m in sizes]
        ax.plot(sizes, bound, color=style(0).colour, lw=1.0, ls="--", label="bound (constant 1)")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_yscale("log", nonpositive="clip")
        ax.set(xlabel="models", ylabel="loss per period", ylim=(least, None))
        ax.legend(frameon=False)

    def tables(self, data: Data) -> list[str]:
        whole, late = (self.losses(data, window) for window in (self.whole, self.late))
        rows = [
            [
                str(members),
                *(with_error(loss, error, digits=4) for _, loss, error in (w, end)),
                f"{self.bound(members):.2f}",
            ]
            for members, w, end in zip(self.members, whole, late, strict=True)
        ]
        first, last = self.late
        head = (
            f"{self.name}: models",
            "loss per period, all periods",
            f"periods {first}-{last}",
            "bound, all periods (constant 1)",
        )
        return [table(head, rows)]


def _chunk(realizations: int) -> int | None:
    """On CPUs small chunks are as fast as large ones, show progress and lose less to a kill."""
    if jax.default_backend() != "cpu":
        return None
    return -(-realizations // max(16, 4 * (os.cpu_count() or 1)))


def _state_size(agent: Agent) -> int:
    leaves = jax.tree.leaves(jax.eval_shape(agent.init, some_key()))
    return 1 + sum(int(np.prod(leaf.shape)) for leaf in leaves)
