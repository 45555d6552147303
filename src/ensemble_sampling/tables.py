"""Tables for people: printed, in notebooks, and as data frames where a library has them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib import import_module
from typing import Any

import numpy as np

ROWS = 20  # rows that are shown


def shown(value: Any) -> str:
    """One cell in a few letters: a third is 0.3333."""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def series(values: Iterable[Any], most: int = 8) -> str:
    """Several numbers in a line; of many the first."""
    values = list(values)
    more = f", ... {len(values)} in all" if len(values) > most else ""
    return f"[{', '.join(map(shown, values[:most]))}{more}]"


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int = ROWS) -> str:
    """A small table for notebooks; of more than `most` rows the first, and how many are left."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows[:most])
    if len(rows) > most:
        body += f'<tr><td colspan="{len(head)}">and {len(rows) - most} more</td></tr>'
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def html_facts(title: str, facts: Mapping[str, Any]) -> str:
    """What is to be said of one thing, a line each, for notebooks."""
    rows = [[name, shown(value)] for name, value in facts.items() if value is not None]
    return html_table([title, ""], rows, len(rows))


class Told:
    """Something that says in words what was found: the same in a terminal and in a notebook."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Table(dict[str, Any]):
    """Columns by name, as a dictionary that prints as a table: needs no library for data frames."""

    def _rows(self) -> list[list[str]]:
        return [[shown(cell) for cell in row] for row in zip(*self.values(), strict=True)]

    def __repr__(self) -> str:
        rows, head = self._rows(), list(self)
        lines = [head, *rows[:ROWS]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        pairs = [[cell.rjust(n) for cell, n in zip(line, widths, strict=True)] for line in lines]
        left = [f"... {len(rows)} rows in all"] if len(rows) > ROWS else []
        return "\n".join(["  ".join(line).rstrip() for line in pairs] + left)

    def _repr_html_(self) -> str:
        return html_table(list(self), self._rows())


def as_frame(columns: dict[str, Any]) -> Any:
    """The columns as a data frame of pandas or polars, whichever there is, or else a `Table`."""
    for library in ("pandas", "polars"):
        with suppress(ImportError):
            return import_module(library).DataFrame(columns)
    return Table(columns)
