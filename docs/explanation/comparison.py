"""The tables of comparison.md, from the committed results: prints them as Markdown."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "benchmarks"
NAMES = {
    "ours": "ours",
    "mabwiser-lints": "MABWiser LinTS",
    "mabwiser-linucb": "MABWiser LinUCB",
    "vw-squarecb": "VW squarecb",
    "vw-bag": "VW bag",
    "vw-cover": "VW cover",
    "vw-regcbopt": "VW regcbopt",
    "vw-epsilon": "VW epsilon-greedy",
    "linear-ts": "linear Thompson sampling",
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


def bakeoff() -> str:
    """Significant wins and losses of ours against every peer, by its settings."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import bakeoff as code
    from runs import Results

    results = Results(code.OUT)
    shuffles = range(1 + max(run.shuffle for run in results.rows))
    lines = ["| against | its default | tuned | the better of both |", "|---|---|---|---|"]
    for peer, each in code.tallies(results, code.ROUNDS, shuffles).items():
        cells = " | ".join(str(each[word]) for word in ("default", "tuned", "better"))
        lines.append(f"| {NAMES[peer]} | {cells} |")
    return "\n".join(lines)


def no_context() -> str:
    """Regret of the default agent in that of agents that are told how outcomes come."""
    cases = json.loads((RESULTS / "no_context.json").read_text())["cases"]
    lines = ["| ten actions | decisions | of who knows the kind | and the prior as well |"]
    lines.append("|---|---|---|---|")
    for name, case in cases.items():
        regrets = {who: row[0] for who, row in case["agents"].items()}
        ours = regrets["default"]
        cells = [f"{ours / regrets[who]:.2f}" for who in ("told", "told, and the prior")]
        lines.append(f"| {name} | {case['periods']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(quality(), bakeoff(), no_context(), sep="\n\n")
