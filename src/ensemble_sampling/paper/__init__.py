"""The figures as data: one declarative module for each of the paper's, and `beyond` of ours."""

from . import beyond, figure1, figure2, figure3
from .curves import Curves
from .declare import Figure, Panel, Window
from .gaps import Gaps
from .paths import Paths
from .sizes import Sizes

FIGURES: tuple[Figure, ...] = (figure1.FIGURE, figure2.FIGURE, figure3.FIGURE, beyond.FIGURE)

PANELS: dict[str, Panel] = {panel.name: panel for figure in FIGURES for panel in figure.panels}

__all__ = ["FIGURES", "PANELS", "Curves", "Figure", "Gaps", "Panel", "Paths", "Sizes", "Window"]
