"""Candidates as a picture: what each would have earned, and how far that is from the baseline."""

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..intervals import Estimate
from ..simulation.plot import FONT, plain, style

if TYPE_CHECKING:
    from .results import Comparison


def draw(comparison: "Comparison") -> Figure:
    """The value of every policy with its 95% interval, and its difference from the baseline."""
    every = list(comparison.evaluations.values())
    judged = [evaluation for evaluation in every if evaluation.refused is None]
    method, earned, baseline = comparison.method, every[0].earned, every[0].baseline
    with mpl.rc_context(FONT):
        figure = Figure(figsize=(9.0, 1.4 + 0.35 * len(judged)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        if earned.low is not None and earned.high is not None:
            left.axvspan(earned.low, earned.high, color="0.85", lw=0)
        left.axvline(earned.value, color="0.5", lw=0.8, ls="--", label="earned by the log")
        _points(left, [evaluation[method] for evaluation in judged])
        names = [plain(evaluation.policy) for evaluation in judged]
        left.set(xlabel=f"value, {method}", yticks=range(len(names)), yticklabels=names)
        left.legend(frameon=False)
        right.axvline(0.0, color="0.5", lw=0.8, ls="--")
        _points(right, [evaluation.differences[method] for evaluation in judged])
        right.set(xlabel=f"minus {plain(baseline)}, paired")
        left.invert_yaxis()
        refused = [plain(evaluation.policy) for evaluation in every if evaluation.refused]
        words = f"; refused: {', '.join(refused)}" if refused else ""
        figure.suptitle(f"{every[0].decisions:,} decisions, 95% intervals{words}", fontsize=9.5)
    return figure


def _points(axis: Axes, estimates: list[Estimate]) -> None:
    colour, mark, _ = style(1)
    for at, (value, _, low, high) in enumerate(estimates):
        reach = None if low is None or high is None else [[value - low], [high - value]]
        axis.errorbar(value, at, xerr=reach, fmt=mark, color=colour, ms=4, capsize=2, lw=1.0)
