"""Panels of whether an ensemble finds the reward at all, by how many members it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtri

from ...simulation.plot import style
from ...simulation.results import Result
from ..claims import CONFIDENCE, Interval, Unavailable
from ..page import plain, table
from ..panels import Data
from .panels import LearningTimes, Series, times_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Members(Series):
    """An agent of so many members at several sizes."""

    members: int = 1

    def about(self) -> dict[str, Any]:
        return {"members": self.members}


@dataclass(frozen=True)
class Discovery(LearningTimes):
    """The first episode that found the reward, by size and members."""

    def header(self) -> dict[str, Any]:
        return {"along": self.along, "event": "first episode with regret 0"}

    def times(self, result: Result) -> np.ndarray:
        assert result.regret is not None
        found = result.regret == 0
        return np.where(found.any(axis=1), found.argmax(axis=1) + 1.0, np.nan)

    def draw(self, ax: "Axes", data: Data) -> None:
        """Shares that found it, and the law that was fitted to all of them."""
        members, sizes, wins, count = cells(data["series"])
        low, high = min(members), max(members)
        for i, size in enumerate(np.unique(sizes)):
            colour, mark, _ = style(i)
            here = sizes == size
            shown: Any = {"color": colour, "marker": mark, "ls": "none", "ms": 5}
            ax.plot(members[here], wins[here] / count, **shown, label=f"N = {size}")
        try:
            psi = fit(members, sizes, wins, count).estimate
        except Unavailable:
            psi = None
        if psi is not None:
            along = np.geomspace(low, high, 200)
            for i, size in enumerate(np.unique(sizes)):
                ax.plot(along, chance(psi, along, size), color=style(i)[0], lw=1.0)
            ax.plot([], [], color="0.5", lw=1.0, label=f"law, ψ = {psi:.3f}")
        ax.set_xscale("log")
        ax.set_xticks(np.unique(members))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.set(xlabel="members", ylabel=f"share that found it in {data['periods']} episodes")
        ax.set_ylim(-0.03, 1.03)
        ax.legend(frameon=False)

    def tables(self, data: Data) -> list[str]:
        sizes = data["series"][0]["points"]
        rows = [
            [plain(s["label"]), *(f"{int(n)} of {each.shape[1]}" for n in found(each))]
            for s in data["series"]
            for each in [times_of(s)[1]]
        ]
        head = (f"{self.name}: found the reward", *(f"N = {size}" for size in sizes))
        return [table(head, rows)]


def found(times: np.ndarray) -> np.ndarray:
    return np.isfinite(times).sum(axis=1)


def cells(
    series: Sequence[Mapping[str, Any]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Members, size and runs that found the reward in every cell; and how many runs each has."""
    each = [(s["members"], *times_of(s)) for s in series]
    members = np.concatenate([np.full(len(sizes), m) for m, sizes, _ in each])
    sizes = np.concatenate([sizes for _, sizes, _ in each])
    wins = np.concatenate([found(times) for *_, times in each])
    return members, sizes, wins, each[0][2].shape[1]


def chance(psi: float, members: Any, size: Any) -> np.ndarray:
    """Of finding the reward, where each member does with chance psi^size by itself."""
    return -np.expm1(members * np.log1p(-(psi**size)))


def fit(members: np.ndarray, sizes: np.ndarray, wins: np.ndarray, count: int) -> Interval:
    """psi in `chance`, by maximum likelihood over all cells; the interval is where the likelihood
    is within the 95% quantile of chi-squared with one degree of freedom (Wilks)."""
    if not 0 < wins.sum() < len(wins) * count:
        raise Unavailable("all runs found it, or none did: every factor near 1, or 0, fits")

    def loss(psi: float) -> float:
        # log(1 - p) of the chance that all members fail, without cancellation.
        fails = members * np.log1p(-(psi**sizes))
        return float(-2 * (wins @ np.log(-np.expm1(fails)) + (count - wins) @ fails))

    low, high = 1e-2, 1 - 1e-9
    best: float = minimize_scalar(loss, bounds=(low, high), method="bounded").x  # type: ignore
    grid = np.linspace(low, high, 20_001)
    inside = grid[[loss(p) <= loss(best) + chdtri(1, 1 - CONFIDENCE) for p in grid]]
    return Interval(float(best), float(inside.min()), float(inside.max()))
