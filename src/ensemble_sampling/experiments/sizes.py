"""Panels of the smallest ensembles that come near enough to Thompson sampling."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..config import describe
from ..core import ConjugateLearner, Environment
from ..simulation import Progress
from ..simulation.engines import Engine
from ..simulation.styles import style
from ..study.sizing import EXPLORE, padded_arms, smallest_ensemble
from .declare import Data, Job
from .tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Sizes:
    """For each number of arms, the smallest ensemble whose regret in the last period is at most
    `tolerance` more than Thompson sampling's."""

    name: str
    title: str
    arms: tuple[int, ...]
    environment: Callable[[int], Environment]
    learner: Callable[[int], ConjugateLearner]
    tolerance: float
    periods: int
    realizations: int
    laptop: int
    effort: float
    published: dict[int, int] | None = None

    entries: ClassVar[str] = "points"
    scale: ClassVar[str | None] = None

    def header(self) -> dict[str, Any]:
        return {
            "environment": [describe(self.environment(arms)) for arms in self.arms],
            "learner": [describe(self.learner(arms)) for arms in self.arms],
            "tolerance": self.tolerance,
        }

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        def job(arms: int) -> Job:
            return Job(
                self.name,
                f"{arms} arms",
                {"arms": arms},
                ("sizes", self.name, padded_arms(arms)),
                self.effort * realizations * arms / sum(self.arms),
                partial(self._run, arms, realizations, seed),
            )

        return [job(arms) for arms in self.arms]

    def _run(
        self,
        arms: int,
        realizations: int,
        seed: int,
        checkpoint: Path,
        progress: Progress,
        engine: Engine,
    ) -> dict[str, Any]:
        found = smallest_ensemble(
            self.learner(arms),
            self.environment(arms),
            self.periods,
            tolerance=self.tolerance,
            realizations=realizations,
            seed=seed,
            checkpoint=checkpoint,
            progress=_in_all(progress, 4 * realizations + 8 * min(EXPLORE, realizations)),
            engine=engine,
        )
        names = ("members", "low", "high", "thompson", "thompson_stderr", "threshold")
        return {
            **{name: getattr(found, name) for name in names},
            "evaluated": [describe(evaluation) for evaluation in found.evaluated],
        }

    def draw(self, ax: "Axes", data: Data) -> None:
        names = ("arms", "members", "low", "high")
        points = [[point[name] for name in names] for point in data["points"]]
        arms, members, low, high = np.array(points).T
        colour, mark, _ = style(1)
        ax.fill_between(arms, low, high, color=colour, alpha=0.18, lw=0)
        marks: Any = {"marker": mark, "ms": 4.5, "capsize": 3, "label": "measured, 95% range"}
        ends = (members - low, high - members)
        ax.errorbar(arms, members, yerr=ends, color=colour, lw=1.0, **marks)
        if self.published:
            hollow: Any = {"mfc": "none", "mec": "black", "ms": 9, "mew": 1.1}
            at = zip(*self.published.items(), strict=True)
            ax.plot(*at, "o", label="published", **hollow)
        ax.set(xlabel="arms", ylabel="models", xlim=(0, None), ylim=(0, None))
        ax.legend(frameon=False, loc="upper left")

    def tables(self, data: Data) -> list[str]:
        rows = [
            [
                str(point["arms"]),
                str((self.published or {}).get(point["arms"], "")),
                str(point["members"]),
                f"{point['low']} to {point['high']}",
                f"{point['thompson']:.4f}",
                f"{point['threshold']:.4f}",
            ]
            for point in data["points"]
        ]
        head = (
            f"{self.name}: arms",
            "models, published",
            "models, measured",
            "95% range",
            "Thompson sampling's regret",
            "threshold",
        )
        return [table(head, rows)]


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
