"""How curves are told apart; see `simulate.styles`, where plots of results use the same."""

from ..simulate.styles import COLOURS, FONT, LINES, MARKS, Style, plain, style

__all__ = ["COLOURS", "FONT", "LINES", "MARKS", "Style", "plain", "style"]
