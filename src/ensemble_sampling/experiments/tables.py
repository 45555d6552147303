"""Tables in Markdown, whose cells say what they are given to say."""

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown; put `plain` around what came from outside."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """A label as it is, in Markdown and in the page made from it: no markup, no end of a cell."""
    return re.sub(r"([\\`*_\[\]<>|&~#])", r"\\\1", " ".join(text.split()))


def with_error(mean: float, error: float, digits: int = 3) -> str:
    """A mean and its standard error."""
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
