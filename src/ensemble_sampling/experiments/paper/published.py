"""Panels of Figures 2 and 3, beside their published curves, which `published.json` holds."""

import json
from collections.abc import Iterable
from pathlib import Path

from ...core import Agent, Environment
from ..regret import Experiment

REALIZATIONS = 1_000
"""Of Figures 2 and 3: "around 1,000", Section 5.2."""

FILE = Path(__file__).with_name("published.json")
PANELS = json.loads(FILE.read_text(encoding="utf-8"))["panels"]


def beside_published(
    name: str,
    title: str,
    environment: Environment,
    agents: Iterable[Agent],
    laptop: int,
    effort: float,
) -> Experiment:
    """A panel with as many periods and realizations as the published one of this name."""
    panel = PANELS[name]

    def windows(values: list[float]) -> dict[tuple[int, int], float]:
        """The values are averages over equal windows, which cover all periods."""
        width = panel["periods"] // len(values)
        return {(i * width, (i + 1) * width): value for i, value in enumerate(values)}

    return Experiment(
        name,
        environment,
        tuple(agents),
        panel["periods"],
        REALIZATIONS,
        title,
        laptop,
        effort,
        published={label: windows(values) for label, values in panel["series"].items()},
        published_realizations=REALIZATIONS,
    )
