"""Panels of how far ensembles are from the exact posterior over a run."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..config import describe
from ..core import ConjugateLearner, Environment
from ..posteriors.ensemble import Ensemble
from ..simulation import Progress, numbers
from ..simulation.engines import Engine
from ..simulation.styles import plain as shown
from ..simulation.styles import style
from ..study.diagnostics import trajectory
from ..study.sizing import CONFIDENT
from .declare import Data, Job
from .tables import plain, table, with_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        def job(members: int) -> Job:
            return Job(
                self.name,
                f"{members} models",
                {"members": members},
                ("paths", self.name, members),
                self.effort * realizations / len(self.members),
                partial(self._run, members, realizations, seed),
            )

        return [job(members) for members in self.members]

    def _run(
        self,
        members: int,
        realizations: int,
        seed: int,
        checkpoint: Path,
        progress: Progress,
        engine: Engine,
    ) -> dict[str, Any]:
        path = trajectory(
            Ensemble(self.learner, members),
            self.environment,
            self.periods,
            realizations,
            seed,
            checkpoint=checkpoint,
            progress=progress,
            engine=engine,
        )
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
            label = shown(path["label"])
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
