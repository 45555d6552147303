"""The paper's figures as data: one declarative module per figure, listed here."""

from . import figure1, figure2, figure3
from .declare import Curves, Figure, Panel, Sizes, Window

FIGURES: tuple[Figure, ...] = (figure1.FIGURE, figure2.FIGURE, figure3.FIGURE)

PANELS: dict[str, Panel] = {panel.name: panel for figure in FIGURES for panel in figure.panels}

__all__ = ["FIGURES", "PANELS", "Curves", "Figure", "Panel", "Sizes", "Window"]
