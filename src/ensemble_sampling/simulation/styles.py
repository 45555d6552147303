"""How curves are told apart, also in greyscale and by colour-blind readers, however many."""

import colorsys
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


KNOWN = 264
"""How many curves the colours, marks and lines above tell apart."""


def style(i: int) -> Style:
    """The i-th curve's: a colour, a mark and a line that no other curve has together."""
    line, mark = LINES[i // len(COLOURS) % len(LINES)], MARKS[i % len(MARKS)]
    if i < KNOWN:
        return Style(COLOURS[i % len(COLOURS)], mark, line)
    # Beyond that each has a colour of its own: steps of the golden ratio never meet again.
    red, green, blue = colorsys.hls_to_rgb(i * 0.618033988749895 % 1.0, 0.3 + 0.06 * (i % 5), 0.7)
    return Style(
        f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}", mark, line
    )


def plain(label: str) -> str:
    """A label that Matplotlib shows as it is: no mathematics, and not hidden for its first `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label
