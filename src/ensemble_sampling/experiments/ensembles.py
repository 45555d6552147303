"""Panels of ensembles beside the exact posterior: how many members it takes, how far they are."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from ..config import describe
from ..core import ConjugateLearner, Environment
from ..posteriors.ensemble import Ensemble
from ..simulation import Progress, numbers
from ..simulation.plot import CONFIDENT, style
from ..simulation.plot import plain as as_shown
from ..study.diagnostics import trajectory
from ..study.nested import padded_arms
from ..study.sizing import EXPLORE, Runs, smallest_ensemble
from .page import plain, table, with_error
from .panels import Data, Job, Where

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
        return [
            Job(
                f"{arms} arms",
                {"arms": arms},
                ("sizes", self.name, padded_arms(arms)),
                self.effort * realizations * arms / sum(self.arms),
                partial(self._run, arms, realizations, seed),
            )
            for arms in self.arms
        ]

    def _run(
        self, arms: int, realizations: int, seed: int, **where: Unpack[Where]
    ) -> dict[str, Any]:
        expected = 4 * realizations + 8 * min(EXPLORE, realizations)
        where["progress"] = _in_all(where["progress"], expected)
        problem = self.learner(arms), self.environment(arms), self.periods
        found = smallest_ensemble(Runs(*problem, realizations, seed, **where), self.tolerance)
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


@dataclass(frozen=True)
class Paths:
    """The distance between an ensemble's votes and the posterior, for several sizes."""

    name: str
    title: str
    environment: Environment
    learner: ConjugateLearner
    members: tuple[int, ...]
    periods: int
    realizations: int
    laptop: int
    effort: float

    entries: ClassVar[str] = "paths"
    scale: ClassVar[str | None] = None

    def header(self) -> dict[str, Any]:
        return {"environment": describe(self.environment), "learner": describe(self.learner)}

    def jobs(self, realizations: int, seed: int) -> list[Job]:
        return [
            Job(
                f"{members} models",
                {"members": members},
                ("paths", self.name, members),
                self.effort * realizations / len(self.members),
                partial(self._run, members, realizations, seed),
            )
            for members in self.members
        ]

    def _run(
        self, members: int, realizations: int, seed: int, **where: Unpack[Where]
    ) -> dict[str, Any]:
        ensemble = Ensemble(self.learner, members)
        path = trajectory(ensemble, self.environment, self.periods, realizations, seed, **where)
        names = ("kl", "kl_stderr", "tv", "tv_stderr", "distinct")
        found = {name: numbers(getattr(path, name)) for name in names}
        return {"label": path.label, "after": path.periods.tolist(), **found}

    def draw(self, ax: "Axes", data: Data) -> None:
        for i, path in enumerate(data["paths"]):
            colour, mark, line = style(i)
            period, kl, error = (np.array(path[name]) for name in ("after", "kl", "kl_stderr"))
            low, high = kl - CONFIDENT * error, kl + CONFIDENT * error
            ax.fill_between(period + 1, low, high, color=colour, alpha=0.18, lw=0)
            marks: Any = {"marker": mark, "ms": 4.5, "markevery": 3}
            label = as_shown(path["label"])
            ax.plot(period + 1, kl, color=colour, ls=line, lw=1.0, label=label, **marks)
        ax.set(xlabel="period", ylabel="KL(votes ‖ posterior)", xscale="log", yscale="log")
        ax.legend(frameon=False)

    def tables(self, data: Data) -> list[str]:
        after = data["paths"][0]["after"]
        shown = [0, len(after) // 2, -1]
        rows = [
            [
                plain(path["label"]),
                *(with_error(path["kl"][i], path["kl_stderr"][i]) for i in shown),
            ]
            for path in data["paths"]
        ]
        heads = (f"after {after[i]} outcomes" for i in shown)
        return [table((f"{self.name}: KL(votes ‖ posterior)", *heads), rows)]


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
