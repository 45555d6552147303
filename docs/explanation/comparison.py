"""The tables of comparison.md, from the committed results: prints them as Markdown."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[2] / "results" / "benchmarks"
NAMES = {
    "ours": "ours",
    "mabwiser-lints": "MABWiser LinTS",
    "mabwiser-linucb": "MABWiser LinUCB",
    "vw-squarecb": "VW squarecb",
    "vw-bag": "VW bag",
    "vw-cover": "VW cover",
    "bb-nig": "bayesianbandits NIG",
    "bb-eb": "bayesianbandits EB",
}


def quality() -> str:
    """Scores over ten shuffles, every library with the better of two settings."""
    runs = json.loads((RESULTS / "bandit_quality.json").read_text())["runs"]
    scores: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for run in runs:
        scores[run["column"]][run["agent"]][run["setting"]].append(run["score"])
    agents = sorted({run["agent"] for run in runs}, key=lambda a: (a != "ours", a))
    lines = ["| | " + " | ".join(NAMES.get(a, a) for a in agents) + " |"]
    lines.append("|---" * (len(agents) + 1) + "|")
    for column in sorted(scores):
        less = column.startswith("wheel")
        cells = []
        means = {}
        for agent in agents:
            settings = [np.mean(values) for values in scores[column][agent].values() if values]
            if settings:
                means[agent] = min(settings) if less else max(settings)
        best = (min if less else max)(means.values())
        for agent in agents:
            if agent not in means:
                cells.append("")
                continue
            value = means[agent]
            text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
            cells.append(f"**{text}**" if value == best else text)
        lines.append(f"| {column} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(quality())
