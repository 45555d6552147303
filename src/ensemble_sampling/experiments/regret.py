"""Panels of regret: a curve per period for each agent, or losses against the number of members."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from . import published as beside
from .page import plain, table, with_error
from .panels import Data, Job, Where, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    published: beside.Published | None = None
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
            seed,
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
            beside.draw(ax, (self.published or {}).get(label, {}), style(i).mark)
        if self.published:
            beside.legend(ax)
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
        return [table(head, rows), *self._beside_published(data)]

    def _beside_published(self, data: Data) -> list[str]:
        def ours(i: int, window: Window) -> tuple[float, float]:
            if window in self.windows:
                return mean_and_error(self.averages(data, window)[i])
            # The average of standard errors is at least the standard error of the average.
            mean, error = (data["series"][i][part][slice(*window)] for part in ("mean", "stderr"))
            return float(np.mean(mean)), float(np.mean(error))

        if not self.published:
            return []
        windows = self.kept or (self.late, self.whole)
        return beside.tables(
            self.name, data, self.published, ours, windows, self.published_realizations
        )


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
