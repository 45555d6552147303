"""Results -> the paper's figures. Readable in greyscale: every curve has its own mark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from ..simulate import mean_and_error
from . import Curves, Figure, Gaps, Paths, Sizes

# Okabe and Ito's colours, told apart by colour-blind readers, with a mark for greyscale.
STYLES = (
    ("#000000", "o"),
    ("#0072B2", "s"),
    ("#D55E00", "^"),
    ("#009E73", "D"),
    ("#CC79A7", "v"),
    ("#E69F00", "P"),
)
FONT: Any = {"font.size": 9, "axes.titlesize": 9.5, "legend.fontsize": 8, "svg.hashsalt": "figure"}


def draw(figure: Figure, results: Mapping[str, Mapping[str, Any]]) -> Canvas:
    """The figure's panels, laid out as in the paper; a panel without results stays empty."""
    rows = -(-len(figure.panels) // 2)
    with mpl.rc_context(FONT):
        canvas = Canvas(figsize=(9.0, 3.5 * rows), layout="constrained")
        axes = canvas.subplots(rows, 2, squeeze=False).flatten()
        for ax, panel in zip(axes, figure.panels, strict=True):
            ax.set_title(f"({panel.name[-1]}) {panel.title}", loc="left")
            if panel.name not in results:
                ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")
                ax.set(xticks=[], yticks=[])
            elif isinstance(panel, Gaps):
                _gaps(ax, panel, results[panel.name])
            elif isinstance(panel, Curves):
                _curves(ax, panel, results[panel.name])
            elif isinstance(panel, Paths):
                _paths(ax, results[panel.name])
            else:
                _sizes(ax, panel, results[panel.name])
        _same_scale(
            [
                ax
                for ax, p in zip(axes, figure.panels, strict=True)
                if p.name in results and isinstance(p, Curves) and not figure.ours
            ]
        )
    return canvas


def _curves(ax: Axes, panel: Curves, data: Mapping[str, Any]) -> None:
    width = block(data["periods"])
    middle = 1 + _blocks(np.arange(data["periods"]), width)
    apart = max(1, len(middle) // 8)
    for i, (series, (colour, mark)) in enumerate(zip(data["series"], STYLES, strict=False)):
        # The average of standard errors is at least the standard error of the average.
        mean, error = (_blocks(np.array(series[name]), width) for name in ("mean", "stderr"))
        low, high = mean - 1.96 * error, mean + 1.96 * error
        ax.fill_between(middle, low, high, color=colour, alpha=0.18, lw=0)
        start = (2 * i + 1) * apart // (2 * len(data["series"]))
        style: Any = {"marker": mark, "ms": 4.5, "markevery": (start, apart)}
        ax.plot(middle, mean, color=colour, lw=1.2, label=series["label"], **style)
        for (first, last), value in (panel.published or {}).get(series["label"], {}).items():
            ax.plot((first + last) / 2, value, mark, mfc="none", mec=colour, ms=9, mew=1.1)
    if panel.published:
        ax.plot([], [], "o", mfc="none", mec="0.3", ms=9, mew=1.1, ls="", label="published (large)")
    ax.set(xlabel="period", ylabel="regret per period", xlim=(0, data["periods"]))
    ax.legend(frameon=False, ncols=2 if len(data["series"]) > 4 else 1)


def _paths(ax: Axes, data: Mapping[str, Any]) -> None:
    for path, (colour, mark) in zip(data["paths"], STYLES, strict=False):
        period, kl, error = (np.array(path[name]) for name in ("after", "kl", "kl_stderr"))
        low, high = kl - 1.96 * error, kl + 1.96 * error
        ax.fill_between(period + 1, low, high, color=colour, alpha=0.18, lw=0)
        style: Any = {"marker": mark, "ms": 4.5, "markevery": 3}
        ax.plot(period + 1, kl, color=colour, lw=1.0, label=path["label"], **style)
    ax.set(xlabel="period", ylabel="KL(votes ‖ posterior)", xscale="log", yscale="log")
    ax.legend(frameon=False)


def gaps(panel: Gaps, data: Mapping[str, Any], window: tuple[int, int]) -> np.ndarray:
    """(members, loss to the first agent, its standard error) in a window, a row for each size."""
    at = [tuple(w) for w in data["windows"]].index(window)
    first, *others = (np.array(series["averages"][at]) for series in data["series"])
    found = (mean_and_error(values - first) for values in others)
    return np.array([(m, *f) for m, f in zip(panel.members, found, strict=True)])


def _gaps(ax: Axes, panel: Gaps, data: Mapping[str, Any]) -> None:
    names, least = {panel.whole: "all periods", panel.late: "the last tenth"}, 1.0
    for (window, name), (colour, mark) in zip(names.items(), STYLES[1:], strict=False):
        rows = gaps(panel, data, window)
        members, loss, error = rows[rows[:, 1] > 0].T
        least = min(least, *loss / 3)
        ax.errorbar(
            members,
            loss,
            1.96 * error,
            color=colour,
            marker=mark,
            ms=4.5,
            lw=1.0,
            capsize=3,
            label=f"measured, {name}",
        )
    sizes = np.array(panel.members)
    bound = [panel.bound(int(m)) for m in sizes]
    ax.plot(sizes, bound, color=STYLES[0][0], lw=1.0, ls="--", label="bound (constant 1)")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yscale("log", nonpositive="clip")
    ax.set(xlabel="models", ylabel="loss per period", ylim=(least, None))
    ax.legend(frameon=False)


def block(periods: int) -> int:
    """How many periods a drawn point averages over; single periods are all noise."""
    return max(1, periods // 100)


def _blocks(values: np.ndarray, width: int) -> np.ndarray:
    """Averages of `width` values in a row; what is left over joins the last."""
    starts = np.arange(0, len(values) - width + 1, width)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))


def _same_scale(axes: list[Axes]) -> None:
    """Panels of one figure are there to be compared: one scale, cut where curves begin."""
    top = max((ax.get_ylim()[1] for ax in axes), default=1.0)
    for ax in axes:
        ax.set_ylim(0, top)


def _sizes(ax: Axes, panel: Sizes, data: Mapping[str, Any]) -> None:
    arms, members, low, high = (
        np.array([point[name] for point in data["points"]])
        for name in ("arms", "members", "low", "high")
    )
    ax.fill_between(arms, low, high, color=STYLES[1][0], alpha=0.18, lw=0)
    ax.errorbar(
        arms,
        members,
        yerr=(members - low, high - members),
        color=STYLES[1][0],
        marker=STYLES[1][1],
        ms=4.5,
        lw=1.0,
        capsize=3,
        label="measured, 95% range",
    )
    if panel.published:
        ax.plot(
            *zip(*panel.published.items(), strict=True),
            "o",
            mfc="none",
            mec="black",
            ms=9,
            mew=1.1,
            label="published",
        )
    ax.set(xlabel="arms", ylabel="models", xlim=(0, None), ylim=(0, None))
    ax.legend(frameon=False, loc="upper left")


def save(figure: Figure, results: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """`figure<n>.png` and `.svg`, the same bytes for the same results."""
    canvas = draw(figure, results)
    with mpl.rc_context(FONT):
        canvas.savefig(folder / f"figure{figure.number}.png", dpi=160)
        canvas.savefig(folder / f"figure{figure.number}.svg", metadata={"Date": None})
