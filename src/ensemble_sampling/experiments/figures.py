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


def save(figure: Figure, results: Results, folder: Path) -> list[tuple[str, bytes]]:
    """Write `figure<n>.png` and `.svg`, the same bytes for the same results; -> the title and the
    SVG of each panel by itself, on the scale it shares with the others."""
    with mpl.rc_context(FONT):
        canvas = draw(figure, results)
        canvas.savefig(folder / f"figure{figure.number}.png", dpi=DPI)
        canvas.savefig(folder / f"figure{figure.number}.svg", metadata={"Date": None})
        size = (WIDTH, HEIGHT)
        canvases = [Canvas(figsize=size, layout="constrained") for _ in figure.panels]
        _fill([canvas.subplots() for canvas in canvases], figure, results)
        return [(_title(figure, i), _svg(canvas)) for i, canvas in enumerate(canvases)]


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


def _svg(canvas: Canvas) -> bytes:
    canvas.savefig(held := BytesIO(), format="svg", metadata={"Date": None})
    return held.getvalue()


def _title(figure: Figure, i: int) -> str:
    """A panel's title, with its letter where there are others."""
    title = figure.panels[i].title
    return title if len(figure.panels) == 1 else f"({ascii_lowercase[i % 26]}) {title}"


def _fill(axes: Sequence[Axes], figure: Figure, results: Results) -> None:
    """Draw every panel; those to be compared have one scale, cut where curves begin."""
    alike: dict[str, list[Axes]] = defaultdict(list)
    for i, (ax, panel) in enumerate(zip(axes, figure.panels, strict=True)):
        ax.set_title(shown(_title(figure, i)), loc="left")
        if panel.name not in results:
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")
            ax.set(xticks=[], yticks=[])
            continue
        panel.draw(ax, results[panel.name])
        if panel.scale is not None:
            alike[panel.scale].append(ax)
    for group in alike.values():
        top = max(ax.get_ylim()[1] for ax in group)
        for ax in group:
            ax.set_ylim(0, top)
