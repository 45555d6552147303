"""Panels of regret per period, one curve for each agent."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from matplotlib.axes import Axes

from ..config import describe, labels
from ..core import Agent, Environment
from ..simulate import Progress, mean_and_error, numbers, simulate
from ..study import styles
from ..study.sizing import CONFIDENT
from .declare import Data, Job, Window
from .tables import plain, table, with_error


@dataclass(frozen=True)
class Curves:
    """One curve for each agent, beside the published ones where there are any.

    `windows` are stretches of periods whose average is kept for every realization, so that agents
    can be compared pairwise in the same worlds.
    """

    name: str
    title: str
    environment: Environment
    agents: tuple[Agent, ...]
    periods: int
    realizations: int
    laptop: int
    effort: float
    published: dict[str, dict[Window, float]] | None = None

    entries: ClassVar[str] = "series"
    scale: ClassVar[str | None] = "regret"

    @property
    def whole(self) -> Window:
        return 0, self.periods

    @property
    def late(self) -> Window:
        """The last tenth."""
        return self.periods - self.periods // 10, self.periods

    @property
    def windows(self) -> tuple[Window, ...]:
        published = {w for values in (self.published or {}).values() for w in values}
        return self.whole, self.late, *sorted(published - {self.whole, self.late})

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
        effort = self.effort * realizations / sum(sizes)

        def job(agent: Agent, label: str, size: int) -> Job:
            return Job(
                self.name,
                label,
                {"label": label, "agent": describe(agent)},
                (jax.tree.structure((agent, self.environment)), self.periods, realizations),
                effort * size,
                lambda checkpoint, progress: self._run(
                    agent, realizations, seed, checkpoint, progress
                ),
            )

        return list(map(job, self.agents, self.labels, sizes))

    def _run(
        self, agent: Agent, realizations: int, seed: int, checkpoint: Path, progress: Progress
    ) -> dict[str, Any]:
        result = simulate(
            agent,
            self.environment,
            self.periods,
            realizations,
            seed,
            keep=True,
            chunk=_chunk(realizations),
            checkpoint=checkpoint,
            progress=progress,
        )
        assert result.regret is not None
        averages = [result.regret[:, a:b].mean(axis=1, dtype=np.float64) for a, b in self.windows]
        return {
            "mean": numbers(result.mean),
            "stderr": numbers(result.stderr),
            "diverged": result.diverged,
            "averages": numbers(np.stack(averages)),
        }

    def draw(self, ax: Axes, data: Data) -> None:
        width = block(data["periods"])
        middle = 1 + _blocks(np.arange(data["periods"]), width)
        apart = max(1, len(middle) // 8)
        for i, series in enumerate(data["series"]):
            colour, mark, line = styles.style(i)
            # The average of standard errors is at least the standard error of the average.
            mean, error = (_blocks(np.array(series[name]), width) for name in ("mean", "stderr"))
            low, high = mean - CONFIDENT * error, mean + CONFIDENT * error
            ax.fill_between(middle, low, high, color=colour, alpha=0.18, lw=0)
            start = (2 * i + 1) * apart // (2 * len(data["series"]))
            marks: Any = {"marker": mark, "ms": 4.5, "markevery": (start, apart)}
            label = styles.plain(series["label"])
            ax.plot(middle, mean, color=colour, ls=line, lw=1.2, label=label, **marks)
            for (first, last), value in (self.published or {}).get(series["label"], {}).items():
                ax.plot((first + last) / 2, value, mark, mfc="none", mec=colour, ms=9, mew=1.1)
        if self.published:
            hollow: Any = {"mfc": "none", "mec": "0.3", "ms": 9, "mew": 1.1}
            ax.plot([], [], "o", ls="", label="published (large)", **hollow)
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
        return [table(head, rows), *([self._beside(data)] if self.published else [])]

    def _beside(self, data: Data) -> str:
        """Published values and ours, for every series and window."""
        published = self.published or {}
        shown = sorted({window for values in published.values() for window in values})
        measured = [self.averages(data, window) for window in shown]
        rows = []
        for i, series in enumerate(data["series"]):
            theirs = published.get(series["label"], {})
            cells = [f"{theirs[window]:.3f}" if window in theirs else "" for window in shown]
            rows.append([plain(series["label"]), "published", *cells])
            ours = [with_error(*mean_and_error(values[i])) for values in measured]
            rows.append(["", "measured", *ours])
        return table((self.name, "", *(f"periods {a}-{b}" for a, b in shown)), rows)


def _chunk(realizations: int) -> int | None:
    """On CPUs small chunks are as fast as large ones, show progress and lose less to a kill."""
    if jax.default_backend() != "cpu":
        return None
    return -(-realizations // max(16, 4 * (os.cpu_count() or 1)))


def _state_size(agent: Agent) -> int:
    leaves = jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)))
    return 1 + sum(int(np.prod(leaf.shape)) for leaf in leaves)


def block(periods: int) -> int:
    """How many periods a drawn point averages over; single periods are all noise."""
    return max(1, periods // 100)


def _blocks(values: np.ndarray, width: int) -> np.ndarray:
    """Averages of `width` values in a row; what is left over joins the last."""
    starts = np.arange(0, len(values) - width + 1, width)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))
