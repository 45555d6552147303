"""Numbers in README and docs are those of committed results, rounded as they are written.

A quote is a piece of a page with gaps, and what goes into the gaps, from a file in `results/`; in
words (a fifth) it is a phrase, and the number it stands for. To state another number, add it there.
What looks measured on the checked pages and is in neither fails, unless `UNQUOTED` says why.
"""

import json
import re
import runpy
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import stdtrit

ROOT = Path(__file__).parents[1]
README = "README.md"
WHICH = "docs/explanation/which-posterior.md"
DEFAULT = "docs/explanation/default-agent.md"
LATENCY = "docs/how-to/latency.md"
TIME = "docs/explanation/where-the-time-goes.md"
WORKS = "docs/explanation/how-it-works.md"
EVALUATE = "docs/how-to/evaluate.md"
PAYS = "docs/how-to/does-it-pay.md"
REPRODUCE = "docs/how-to/reproduce.md"
CLUSTER = "docs/how-to/cluster.md"
CAPACITY = "docs/how-to/capacity.md"
COMPARISON = "docs/explanation/comparison.md"
DEEP = "docs/tutorial/deep-exploration.md"
GENERATED = {
    CAPACITY: ("load", "learner", "faults", "staleness"),
    COMPARISON: ("quality", "bakeoff", "no_context"),
    TIME: ("pair", "simulations", "arms", "terms", "cipher", "growth", "startup"),
}
CHECKED = [README, *(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md")))]

MEASURED = re.compile(
    r"\d[\d,.]* ± \d[\d,.]*"  # with an error
    r"|(?<![A-Za-z\d])\d[\d,.]* (?:ms|µs|seconds?|minutes?|hours?|[KMG]i?B|times)\b"
    r"|\b(?:an?|two|three|ten) (?:minute|half|third|quarter|fifth|eighth|tenth|fortieth)s?\b"
    r"|\b(?:two|three|ten) seconds\b"
    r"|(?<![\d.])\.\d\d+|\d\d\.\d+%"
)
UNQUOTED = {
    **{
        ("docs/install.md", size): "what `du` says of the installed packages"
        for size in ("760 MB", "380 MB", "140 MB", "70 MB", "80 MB")
    },
    (PAYS, "a tenth"): "a setting in the example",
    (PAYS, "0.1 times"): "the same",
    (PAYS, "0.9 times"): "the same",
    (PAYS, "a minute"): "what counts as behind",
    (DEEP, "a tenth"): "a setting of the agent",
    (DEEP, "13 seconds"): "the page's blocks, by the clock of the process",
    ("docs/notebooks/figure-3.md", "a minute"): "roughly what its simulations take anywhere",
    (README, "ten minutes"): "what `make reproduce` is kept under on two cores; no result is kept",
    (REPRODUCE, "ten minutes"): "the same",
    (LATENCY, "a tenth"): "no benchmark measures it yet",
    (DEFAULT, "1.3 times"): "a setting of the agent, not a measurement",
    (COMPARISON, "1.64 times"): "the normal distribution's 95% quantile",
    (CLUSTER, "a minute"): "how long Ray lets its own processes live",
    (CLUSTER, "a tenth"): "advice",
    (CLUSTER, "2 GB"): "a million realizations of 500 periods at four bytes",
    ("docs/how-to/deploy.md", "65 seconds"): "a setting of the server",
    ("docs/how-to/deploy.md", "a minute"): "advice",
    ("docs/how-to/from-personalizer.md", "1 MB"): "a limit that can be set",
    ("docs/how-to/gpu.md", "three quarters"): "JAX's setting",
    ("docs/how-to/security.md", "10 seconds"): "a setting of the server",
    ("docs/how-to/security.md", "512 KiB"): "a setting of the server",
    ("docs/how-to/security.md", "4 MB"): "a setting of the server",
    ("docs/how-to/serve.md", "4 MB"): "a setting of the server",
    (DEFAULT, "26 MiB"): "the sizes of its arrays, which tests/decide/test_default.py adds up",
    (DEFAULT, "256 MiB"): "a setting",
    ("docs/how-to/trees.md", "a quarter"): "a setting of the posterior",
    (CAPACITY, "a tenth"): "a setting of the learner, and the table's last row but one",
    (CAPACITY, "a quarter"): "a setting of the workers",
    (CAPACITY, "5 KB"): "on paper, rounded from the table",
    (CAPACITY, "250 MB"): "on paper",
}


class Quote(NamedTuple):
    page: str
    text: str
    values: Callable[[], tuple[Any, ...]]

    @property
    def written(self) -> str:
        return self.text.format(*self.values())


@cache
def saved(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@cache
def page(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def posterior(world: str, agent: str) -> Callable[[], tuple[float, ...]]:
    """Cumulative regret and its standard error."""
    return lambda: tuple(saved("benchmarks/posteriors.json")[world][agent]["cumulative"])


def share(part: str, agent: str, of: str = "ensemble, 30") -> Callable[[], float]:
    """Of one network's cost to another's."""
    rows = partial(saved, "benchmarks/posteriors.json")
    return lambda: rows()["network"][agent][part] / rows()["network"][of][part]


def regrets(*agents: str) -> Callable[[], tuple[float, ...]]:
    """Cumulative regret of several networks."""
    return lambda: tuple(posterior("network", agent)()[0] for agent in agents)


def bed(agent: str, published: bool = True) -> Callable[[], tuple[Any, ...]]:
    """Of the neural testbed: seeds, regret, half its interval, median, operations, seconds."""

    def values() -> tuple[Any, ...]:
        agents = saved("benchmarks/neural_testbed.json")["agents"]
        row, plain = agents[agent], agents["plain"]
        operations = row["operations_of_an_update"] / plain["operations_of_an_update"]
        return (
            len(row["seeds"]),
            row["total_regret"],
            1.96 * row["standard_error"],
            float(np.median(row["total_regret_by_seed"])),
            operations,
            row["seconds"] * 10 / row.get("seeds_timed", len(row["seeds"])),
            *([row["published"]["total_regret"]] if published else []),
        )

    return values


ROW = " | {} | {:,.0f} ± {:,.0f} | {:,.0f} | {:.0f} | {:.1f} |"
FINE = ROW.replace("{:.0f} | {:.1f} |", "{:.1f} | {:.1f} |")


def quality() -> dict[str, dict[tuple[str, str], list[float]]]:
    """Column -> (agent, setting) -> scores in the order of the shuffles."""
    found: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(saved("benchmarks/bandit_quality.json")["runs"], key=lambda r: r["shuffle"]):
        found[run["column"]][run["agent"], run["setting"]].append(run["score"])
    return found


def texture() -> tuple[str, str]:
    column = quality()["texture"]
    scores = (column["ours", "default"], column["mabwiser-linucb", "tuned"])
    ours, linucb = (f"{np.mean(values):.3f}".removeprefix("0") for values in scores)
    return ours, linucb


def coverage() -> tuple[float, float, int]:
    data = saved("benchmarks/evaluate_coverage.json")
    names = ("self-normalised", "doubly robust")
    held = [100 * row["coverage"][name] for row in data["rows"] for name in names]
    return min(held), max(held), data["repetitions"]


def months() -> tuple[float, int]:
    data = saved("benchmarks/lift_coverage.json")
    missed = [row[name] for row in data["rows"] for name in ("missed_difference", "missed_ratio")]
    return 100 * max(missed), data["months"]


def subjects() -> tuple[float, float, float]:
    data = saved("benchmarks/subjects.json")
    return data["megabytes"], data["memory"], data["again_ms"]


def pair(agent: str, size: str) -> tuple[float]:
    """Milliseconds of a decision and its outcome, on two cores."""
    rows = saved("benchmarks/bench-x86-64-cpu-2-cores.json")["latency"]["rows"]
    found = (row for row in rows if row["work"] == f"choose + learn, {agent}, {size}")
    return (1e3 * next(found)["seconds"],)


def unanimous() -> dict[str, list[float]]:
    return saved("benchmarks/small_ensembles.json")["wrong_and_unanimous_at_the_end"]


def chunks() -> tuple[float, ...]:
    """Of nothing on a cluster, in ms; of something here and there, in s."""
    found = saved("benchmarks/cluster.json")["seconds per chunk"]
    return 1000 * found["empty"]["ray"], found["full"]["local"], found["full"]["ray"]


QUOTES = [
    Quote(
        CLUSTER,
        "took {:.1f} ms, and one that takes {:.2f} s on this machine took {:.2f} s there",
        chunks,
    ),
    Quote(WHICH, "{:.0f} ± {:.0f} with 30 members", posterior("linear", "ensemble, 30")),
    Quote(WHICH, "{:.0f} ± {:.0f} with 100, exact", posterior("linear", "ensemble, 100")),
    Quote(WHICH, "exact sampling {:.0f} ± {:.0f} |", posterior("linear", "Thompson sampling")),
    Quote(WHICH, "| {:.0f} ± {:.0f}: the least", posterior("linear", "LinUCB")),
    Quote(WHICH, "| {:,.0f} ± {:.0f}, with `Symm", posterior("network", "ensemble, 30")),
    Quote(
        WHICH, "perturbations {:,.0f} ± {:.0f} |", posterior("network", "symmetric ensemble, 30")
    ),
    Quote(WHICH, "{:,.0f} ± {:.0f} for a fifth of the time", posterior("network", "Ensemble++")),
    Quote(WHICH, "{:,.0f} ± {:.0f} at an eighth of the time", posterior("network", "Langevin")),
    Quote(WHICH, "which has {:,.0f} ± {:.0f} |", posterior("network", "greedy")),
    Quote(WHICH, "backprop ({:,.0f} ± {:.0f})", posterior("network", "Bayes by backprop")),
    Quote(
        WHICH,
        "do badly there ({:,.0f} to {:,.0f})",
        regrets("Laplace, last layer", "UCB, neural-linear"),
    ),
    Quote(WHICH, "explore blindly: {:,.0f} and {:,.0f}.", regrets("SquareCB", "epsilon-greedy")),
    Quote(WHICH, f"with prior functions{ROW} {{}} |", bed("ensemble+")),
    Quote(WHICH, f"anchored, 100 members{ROW}", bed("anchored 100", published=False)),
    Quote(WHICH, f"anchored, 30 members{ROW}", bed("anchored 30", published=False)),
    Quote(WHICH, f"| hypermodel{ROW} {{}} |", bed("hypermodel")),
    Quote(WHICH, f"anchored, 10 members{ROW}", bed("anchored 10", published=False)),
    Quote(WHICH, f"| epinet{FINE} about {{}} |", bed("epinet")),
    Quote(
        WHICH,
        f"| Ensemble++{FINE}".replace("{:.1f} | {:.1f}", "{:.2f} | {:.1f}"),
        bed("ensemble++ unperturbed", published=False),
    ),
    Quote(WHICH, f"ensemble of 100 without{ROW} {{:,}} |", bed("ensemble")),
    Quote(WHICH, f"| dropout{FINE} {{}} |", bed("dropout")),
    Quote(WHICH, f"| plain network{ROW} {{:,}} |", bed("plain")),
    Quote(WHICH, f"(perturbed too), 30 members{ROW}", bed("ours 30", published=False)),
    Quote(DEFAULT, "({} against LinUCB's {})", texture),
    Quote(
        WORKS,
        "in {:.0f}% of the worlds with 3 models, in {:.0f}% with 10 and in {:.0f}% with 30.",
        lambda: tuple(100 * share for share, _ in unanimous().values()),
    ),
    Quote(LATENCY, "{:.2f} ms in memory on one core", lambda: pair("linear", "100 x 100")),
    Quote(LATENCY, "{:.2f} ms on disk", lambda: pair("linear on disk", "100 x 100")),
    Quote(PAYS, "missed the truth in at most {:.1f}% of {:,} simulated months", months),
    Quote(PAYS, "took {:.1f} MB of disk and {:.1f} MB of memory", lambda: subjects()[:2]),
    Quote(PAYS, "and {:.2f} ms to find one", lambda: subjects()[2:]),
    Quote(EVALUATE, "{:.1f}% to {:.1f}% of {:,} repetitions", coverage),
]


def minutes(folder: str = "") -> float:
    """On the clock, for all committed panels: those that ran side by side count once."""
    results = ROOT / "results"
    found = sorted((results / folder).glob("[0-9][a-z].json"))
    panels = [saved(str(path.relative_to(results))) for path in found]
    ends = [datetime.fromisoformat(panel["finished"]).timestamp() for panel in panels]
    spans = sorted((end - panel["seconds"], end) for panel, end in zip(panels, ends, strict=True))
    total, until = 0.0, 0.0
    for first, last in spans:
        total += max(0.0, last - max(first, until))
        until = max(until, last)
    return total / 60


def operations(agent: str) -> Callable[[], float]:
    """Of an update, beside those of an ensemble with prior functions."""
    return lambda: bed(agent, published=False)()[4] / bed("ensemble+", published=False)()[4]


def inflation() -> float:
    chosen = saved("benchmarks/posteriors.json")["linear"]["ensemble, 100"]["chosen"]
    return chosen["inflation"]


def megabytes() -> float:
    return (ROOT / "results/sharper/3b.json").stat().st_size / 1e6


SECONDS, BYTES = "seconds_per_period", "state_bytes"


PHRASES = [
    (README, "in about a minute on an NVIDIA H200", minutes, 1.0),
    (README, "realizations: about a minute on an H200", minutes, 1.0),
    (REPRODUCE, "realizations: about a minute on an H200", minutes, 1.0),
    (CLUSTER, "took one H200 81 seconds in all", lambda: 60 * minutes("sharper"), 81),
    (CLUSTER, "8,100 seconds on one H200", lambda: 6000 * minutes("sharper"), 8100),
    (CLUSTER, "two and a quarter hours; 17 minutes on 8", lambda: 12.5 * minutes("sharper"), 17),
    (CLUSTER, "of a panel, 0.8 MB at 10,000 realizations, grows to 80 MB", megabytes, 0.8),
    (WHICH, "for a fifth of the time and of the memory", share(SECONDS, "Ensemble++"), 1 / 5),
    (WHICH, "a fifth of the time and of the memory", share(BYTES, "Ensemble++"), 1 / 5),
    (WHICH, "at an eighth of the time", share(SECONDS, "Langevin"), 1 / 8),
    (WHICH, "as much as a greedy network", share(SECONDS, "Langevin", of="greedy"), 1.0),
    (WHICH, "at a fortieth of the operations", operations("epinet"), 1 / 40),
    (WHICH, "prior functions at a fifth of the operations", operations("anchored 30"), 1 / 5),
    (WHICH, "(three quarters of the posterior's)", inflation, 3 / 4),
]


@pytest.mark.parametrize(
    ("name", "phrase", "value", "meant"), PHRASES, ids=[p[1][:40] for p in PHRASES]
)
def test_a_number_in_words_is_that_of_the_results_to_a_fifth(name, phrase, value, meant):
    assert phrase in page(name), f"{name} should say: {phrase}"
    assert value() == pytest.approx(meant, rel=0.2)


CHANGING = ("-switch", "-slow", "-changing")


def test_where_worlds_stay_the_default_agent_is_behind_nowhere():
    """Against every peer's better setting, shuffle by shuffle, at 95% (Student's t)."""
    behind: set[str] = set()
    staying = {name: found for name, found in quality().items() if not name.endswith(CHANGING)}
    for column, agents in staying.items():
        sign = -1 if column.startswith("wheel") else 1
        ours = np.array(agents["ours", "default"])
        for peer in {agent for agent, _ in agents} - {"ours"}:
            settings = [sign * (ours - scores) for (a, _), scores in agents.items() if a == peer]
            least = min(settings, key=np.mean)
            half = stdtrit(len(least) - 1, 0.975) * least.std(ddof=1) / len(least) ** 0.5
            if least.mean() + half < 0:
                behind.add(column)
    assert not behind
    assert "each peer, first or tied on all columns" in page(DEFAULT)


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: quote.text[:40])
def test_a_number_is_that_of_the_results(quote):
    text = " ".join(quote.written.split())
    assert text in page(quote.page), f"{quote.page} should say: {text}"


def generated(name: str) -> list[str]:
    """The parts of a page that the file beside it makes from results (see test_site.py)."""
    if name not in GENERATED:
        return []
    made = runpy.run_path(str((ROOT / name).with_suffix(".py")))
    return [made[part]() for part in GENERATED[name]]


@pytest.mark.parametrize("name", CHECKED)
def test_a_number_that_looks_measured_is_quoted_from_results(name):
    text = page(name)
    spans = []
    quotes = [quote.written for quote in QUOTES if quote.page == name]
    phrases = [phrase for where, phrase, *_ in PHRASES if where == name]
    for quoted in (" ".join(part.split()) for part in quotes + phrases + generated(name)):
        at = text.find(quoted)
        if at >= 0:
            spans.append((at, at + len(quoted)))
    text = re.sub(r"```.*?```", lambda block: " " * len(block[0]), text)
    unquoted = [
        found[0]
        for found in MEASURED.finditer(text)
        if not any(a <= found.start() and found.end() <= b for a, b in spans)
        and (name, found[0]) not in UNQUOTED
    ]
    assert not unquoted, f"{name} says {unquoted}, of which no result is quoted"
