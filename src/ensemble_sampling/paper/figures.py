"""Results -> the paper's figures."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from ..study.styles import FONT
from .declare import Figure


def draw(figure: Figure, results: Mapping[str, Mapping[str, Any]]) -> Canvas:
    """The figure's panels, two in a row as in the paper; one without results stays empty."""
    columns = min(2, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    alike: dict[str, list[Axes]] = defaultdict(list)
    with mpl.rc_context(FONT):
        canvas = Canvas(figsize=(4.5 * columns, 3.5 * rows), layout="constrained")
        axes = canvas.subplots(rows, columns, squeeze=False).flatten()
        for ax in axes[len(figure.panels) :]:
            ax.remove()
        for ax, panel in zip(axes, figure.panels, strict=False):
            ax.set_title(f"({panel.name[-1]}) {panel.title}", loc="left")
            if panel.name not in results:
                ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")
                ax.set(xticks=[], yticks=[])
                continue
            panel.draw(ax, results[panel.name])
            if panel.scale is not None:
                alike[panel.scale].append(ax)
        for group in alike.values():
            _same_scale(group)
    return canvas


def _same_scale(axes: list[Axes]) -> None:
    """Panels of one figure are there to be compared: one scale, cut where curves begin."""
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(0, top)


def save(figure: Figure, results: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """`figure<n>.png` and `.svg`, the same bytes for the same results."""
    canvas = draw(figure, results)
    with mpl.rc_context(FONT):
        canvas.savefig(folder / f"figure{figure.number}.png", dpi=160)
        canvas.savefig(folder / f"figure{figure.number}.svg", metadata={"Date": None})
