"""How curves are told apart, also in greyscale and by colour-blind readers, however many."""

from typing import Any, NamedTuple

# Okabe and Ito's colours.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">", "p")
LINES = ("-", "--", "-.", ":")

FONT: Any = {"font.size": 9, "axes.titlesize": 9.5, "legend.fontsize": 8, "svg.hashsalt": "figure"}


class Style(NamedTuple):
    colour: str
    mark: str
    line: str


def style(i: int) -> Style:
    """The i-th curve's: a colour, a mark and a line that no other of the first 264 has together."""
    line = LINES[i // len(COLOURS) % len(LINES)]
    return Style(COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)], line)


def plain(label: str) -> str:
    """A label that Matplotlib shows as it is: no mathematics, and not hidden for its first `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label
