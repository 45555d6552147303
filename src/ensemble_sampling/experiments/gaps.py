"""Panels of losses: regret minus the first agent's, against the number of members."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..simulation import mean_and_error
from ..simulation.styles import style
from ..study.sizing import CONFIDENT
from .curves import Experiment
from .declare import Data, Window
from .tables import table, with_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
