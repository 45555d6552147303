"""A ledger in memory whose rows are written many at once, when something is read.

Without it, by `Sqlite(None)`, `choose` and `learn` together take about a third longer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..ledger.sqlite import Sqlite, Statements


class Memory(Sqlite):
    """SQLite in memory that writes only before it reads."""

    def __init__(self, place: None) -> None:
        super().__init__(place)
        self._unwritten: list[Statements] = []

    def write(self, statements: Statements) -> None:
        self._unwritten.append(statements)

    def _write_all(self) -> None:
        if self._unwritten:
            # Rows that are there are ignored: an interrupt may come before they are forgotten here.
            each = (one for statements in self._unwritten for one in statements)
            super().write([(f"{insert} ON CONFLICT DO NOTHING", rows) for insert, rows in each])
            self._unwritten = []

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        self._write_all()
        return super().execute(query, values)

    def standing(self, write: bool | None) -> Sequence[Any]:
        self._write_all()
        return super().standing(write)

    def backup(self, path: Path) -> None:
        self._write_all()
        super().backup(path)
