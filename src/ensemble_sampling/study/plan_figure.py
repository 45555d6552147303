"""A plan as a picture: regret over time, and the loss against the number of members."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..simulation.plot import FONT, draw_curve, style
from .sizing import CONFIDENT


def save(plan: Mapping[str, Any], folder: Path) -> None:
    """`plan.png` and `plan.svg` from what `plan.json` says, the same bytes for the same plan."""
    with mpl.rc_context(FONT):
        figure = draw(plan)
        figure.savefig(folder / "plan.png", dpi=160)
        figure.savefig(folder / "plan.svg", metadata={"Date": None})


def draw(plan: Mapping[str, Any]) -> Figure:
    """Regret over time beside Thompson sampling's, and the loss against the number of members."""
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_curves(left, plan)
    _draw_sizes(right, plan)
    return figure


def _draw_curves(ax: Axes, plan: Mapping[str, Any]) -> None:
    for i, curve in enumerate(plan["curves"]):
        draw_curve(ax, curve["label"], curve["mean"], curve["stderr"], i, len(plan["curves"]))
    ax.axhline(plan["threshold"], color="0.5", lw=0.8, ls="--", label="tolerated at the end")
    ax.set(xlabel="period", ylabel="regret per period", xlim=(0, plan["periods"]), yscale="log")
    ax.set_title("Regret over time, with 95% bands", loc="left")
    ax.legend(frameon=False)


def _draw_sizes(ax: Axes, plan: Mapping[str, Any]) -> None:
    colour, mark, _ = style(1)
    tried = plan["evaluated"]
    members, loss, error = np.array([(e["members"], e["difference"], e["stderr"]) for e in tried]).T
    ax.errorbar(members, loss, CONFIDENT * error, fmt=mark, color=colour, ms=4, capsize=2, lw=1.0)
    tolerance = plan["tolerance"]
    ax.axhline(tolerance, color="0.5", lw=0.8, ls="--", label=f"tolerated: {tolerance:g}")
    ax.axvspan(plan["low"], plan["high"], color=colour, alpha=0.2, lw=0)
    found = f"{plan['members']} members ({plan['low']} to {plan['high']})"
    ax.axvline(plan["members"], color=colour, lw=1.0, label=found)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="members", ylabel="regret minus Thompson sampling's")
    ax.set_title(f"Loss in period {plan['periods']:,}", loc="left")
    ax.legend(frameon=False)
