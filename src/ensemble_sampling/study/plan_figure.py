"""A plan as a picture: regret over time, and the loss against the number of members."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..paper.figures import FONT, STYLES
from .planning import Plan
from .sizing import CONFIDENT


def save(plan: Plan, folder: Path) -> None:
    """`plan.png` and `plan.svg`, the same bytes for the same plan."""
    with mpl.rc_context(FONT):
        figure = draw(plan)
        figure.savefig(folder / "plan.png", dpi=160)
        figure.savefig(folder / "plan.svg", metadata={"Date": None})


def draw(plan: Plan) -> Figure:
    """Regret over time beside Thompson sampling's, and the loss against the number of members."""
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_curves(left, plan)
    _draw_sizes(right, plan)
    return figure


def _draw_curves(ax: Axes, plan: Plan) -> None:
    periods = np.arange(1, plan.periods + 1)
    some = slice(None, None, max(1, plan.periods // 500))
    for curve, (colour, mark) in zip(plan.curves, STYLES, strict=False):
        low, high = ((curve.mean + e * CONFIDENT * curve.stderr)[some] for e in (-1, 1))
        ax.fill_between(periods[some], low, high, color=colour, alpha=0.2, lw=0)
        style: Any = {"marker": mark, "ms": 4.5, "markevery": max(1, plan.periods // 8)}
        ax.plot(periods, curve.mean, color=colour, lw=1.0, label=curve.label, **style)
    ax.axhline(plan.size.threshold, color="0.5", lw=0.8, ls="--", label="tolerated at the end")
    ax.set(xlabel="period", ylabel="regret per period", xlim=(0, plan.periods), yscale="log")
    ax.set_title("Regret over time", loc="left")
    ax.legend(frameon=False)


def _draw_sizes(ax: Axes, plan: Plan) -> None:
    colour, mark = STYLES[1]
    tried = plan.size.evaluated
    members, loss, error = np.array([(e.members, e.difference, e.stderr) for e in tried]).T
    ax.errorbar(members, loss, CONFIDENT * error, fmt=mark, color=colour, ms=4, capsize=2, lw=1.0)
    ax.axhline(plan.tolerance, color="0.5", lw=0.8, ls="--", label=f"tolerated: {plan.tolerance:g}")
    ax.axvspan(plan.size.low, plan.size.high, color=colour, alpha=0.2, lw=0)
    range_ = f"{plan.size.members} members ({plan.size.low} to {plan.size.high})"
    ax.axvline(plan.size.members, color=colour, lw=1.0, label=range_)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="members", ylabel="regret minus Thompson sampling's")
    ax.set_title(f"Loss in period {plan.periods:,}", loc="left")
    ax.legend(frameon=False)
