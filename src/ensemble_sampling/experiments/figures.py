"""Results -> figures: all panels side by side in a file, or each by itself for a page."""

from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from string import ascii_lowercase

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from ..simulation.plot import FONT
from ..simulation.plot import plain as shown
from .panels import Figure, Results

WIDTH, HEIGHT, DPI = 4.5, 3.5, 160


def draw(figure: Figure, results: Results) -> Canvas:
    """The figure's panels, two in a row; one without results stays empty."""
    columns = min(2, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    with mpl.rc_context(FONT):
        canvas = Canvas(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        axes = canvas.subplots(rows, columns, squeeze=False).flatten()
        for ax in axes[len(figure.panels) :]:
            ax.remove()
        _fill(list(axes[: len(figure.panels)]), figure, results)
    return canvas


def apart(figure: Figure, results: Results) -> list[bytes]:
    """Each panel as a PNG of its own, on the scale it shares with the others."""
    with mpl.rc_context(FONT):
        size = (WIDTH, HEIGHT)
        canvases = [Canvas(figsize=size, layout="constrained") for _ in figure.panels]
        _fill([canvas.subplots() for canvas in canvases], figure, results)
        return [_png(canvas) for canvas in canvases]


def _png(canvas: Canvas) -> bytes:
    canvas.savefig(held := BytesIO(), dpi=DPI, format="png")
    return held.getvalue()


def _fill(axes: Sequence[Axes], figure: Figure, results: Results) -> None:
    alike: dict[str, list[Axes]] = defaultdict(list)
    for i, (ax, panel) in enumerate(zip(axes, figure.panels, strict=True)):
        ax.set_title(shown(titled(figure, i)), loc="left")
        if panel.name not in results:
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")
            ax.set(xticks=[], yticks=[])
            continue
        panel.draw(ax, results[panel.name])
        if panel.scale is not None:
            alike[panel.scale].append(ax)
    for group in alike.values():
        _same_scale(group)


def titled(figure: Figure, i: int) -> str:
    """A panel's title, with its letter where there are others."""
    title = figure.panels[i].title
    return title if len(figure.panels) == 1 else f"({ascii_lowercase[i % 26]}) {title}"


def _same_scale(axes: Sequence[Axes]) -> None:
    """Panels of one figure are there to be compared: one scale, cut where curves begin."""
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(0, top)


def save(figure: Figure, results: Results, folder: Path) -> None:
    """`figure<n>.png` and `.svg`, the same bytes for the same results."""
    canvas = draw(figure, results)
    with mpl.rc_context(FONT):
        canvas.savefig(folder / f"figure{figure.number}.png", dpi=DPI)
        canvas.savefig(folder / f"figure{figure.number}.svg", metadata={"Date": None})
