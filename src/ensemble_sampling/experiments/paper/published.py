"""The published curves of Figures 2 and 3, carried as facts in `published.json`."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from ..published import Published

REALIZATIONS = 1_000
"""Of Figures 2 and 3: "around 1,000", Section 5.2."""


@cache
def _panels() -> dict[str, Any]:
    text = (files(__name__.rpartition(".")[0]) / "published.json").read_text(encoding="utf-8")
    return json.loads(text)["panels"]


def published(panel: str) -> Published:
    """Label -> window -> average regret; the windows are equal and cover all periods."""
    found = _panels()[panel]

    def windows(values: list[float]) -> dict[tuple[int, int], float]:
        width = found["periods"] // len(values)
        return {(i * width, (i + 1) * width): value for i, value in enumerate(values)}

    return {label: windows(values) for label, values in found["series"].items()}
