"""What was found of policies: as values, tables, frames, files and a figure."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_json
from ..intervals import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGED = "logged"
FEW = 30  # effective decisions below which an estimate is a guess


@dataclass(frozen=True)
class Evaluation:
    """What one policy would have earned.

    estimates: by method, see `estimates`; empty where the policy was refused
    differences: of each from what was earned, or from another policy's estimate, decision by
        decision
    unsupported: the share of the policy's probability on actions that the log could never have
        shown; estimated from the weights, which then fall short of 1, where `exact` is false
    effective: how many decisions of equal weight would say as much
    largest: the largest weight
    refused: why there is no estimate, or None
    taught: whether the policy, a bandit or an informed agent, learned from this very log
    """

    policy: str
    decisions: int
    earned: Estimate
    estimates: dict[str, Estimate]
    differences: dict[str, Estimate]
    baseline: str
    unsupported: float
    exact: bool
    effective: float
    largest: float
    excluded: dict[str, int] = field(default_factory=dict)
    refused: str | None = None
    taught: bool = False

    def __getitem__(self, method: str) -> Estimate:
        if method not in self.estimates:
            given = ", ".join(self.estimates) or f"none: {self.refused}"
            raise KeyError(f"there is no estimate {method!r}; there are {given}")
        return self.estimates[method]

    @property
    def best(self) -> Estimate:
        """The doubly robust one: right if either the propensities or the model are."""
        return self["doubly robust"]

    @property
    def warnings(self) -> list[str]:
        """What to know before believing any of it."""
        if self.refused is not None:
            return [self.refused]
        found = []
        if self.unsupported > 0:
            how = "" if self.exact else " (estimated from the weights)"
            found.append(
                f"{self.unsupported:.2%} of the policy's probability is on actions that the log "
                f"could never have shown{how}: what they would have earned is not known, and the "
                "intervals allow for it"
            )
        if self.taught:
            found.append(
                "the policy learned from this very log, on which it therefore looks better than it "
                "is: evaluate its agent, which then learns one half and is judged on the other"
            )
        if self.effective < FEW:
            found.append(
                f"only {self.effective:.0f} decisions' worth of evidence: the intervals of "
                "weighted estimates are rough"
            )
        return found

    def columns(self) -> dict[str, list[Any]]:
        """One row per method, ready for any data frame."""
        methods = list(self.estimates) or [None]
        nothing = Estimate(math.nan, None, None, None)
        rows = [self.estimates.get(method or "", nothing) for method in methods]
        gaps = [self.differences.get(method or "", nothing) for method in methods]
        weighted = [method not in (None, "direct") for method in methods]
        return {
            "policy": [self.policy] * len(rows),
            "method": methods,
            "value": [row.value for row in rows],
            "low": [_number(row.low) for row in rows],
            "high": [_number(row.high) for row in rows],
            "stderr": [_number(row.stderr) for row in rows],
            "effective": [self.effective if w else math.nan for w in weighted],
            "largest_weight": [self.largest if w else math.nan for w in weighted],
            "unsupported": [self.unsupported] * len(rows),
            "baseline": [self.baseline] * len(rows),
            "difference": [gap.value for gap in gaps],
            "difference_low": [_number(gap.low) for gap in gaps],
            "difference_high": [_number(gap.high) for gap in gaps],
            "refused": [self.refused] * len(rows),
        }

    def frame(self) -> Any:
        """The same as a data frame, of pandas or of polars, whichever there is."""
        return _frame(self.columns())

    def __str__(self) -> str:
        out = "".join(f"; {count} left out: {why}" for why, count in self.excluded.items())
        lines = [
            *(f"! {warning}" for warning in self.warnings),
            f"{self.policy} on {self.decisions:,} decisions{out}",
            f"earned by the log itself  {_with(self.earned)}",
        ]
        if self.estimates:
            lines += [f"{'':<20}{'value':>10}  95% interval            minus {self.baseline}"]
            lines += [
                f"{method:<20}{estimate.value:>10.4g}  {_range(estimate):<22}  "
                f"{_with(self.differences[method])}"
                for method, estimate in self.estimates.items()
            ]
            lines += [
                f"effective decisions {self.effective:,.0f}, largest weight {self.largest:.4g}"
            ]
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Comparison:
    """Several policies on the same log: `comparison["name"]` is the evaluation of one."""

    evaluations: dict[str, Evaluation]
    method: str = "doubly robust"

    def __getitem__(self, name: str) -> Evaluation:
        return self.evaluations[name]

    def columns(self) -> dict[str, list[Any]]:
        """One row per policy and method, ready for any data frame."""
        parts = [evaluation.columns() for evaluation in self.evaluations.values()]
        return {name: [value for part in parts for value in part[name]] for name in parts[0]}

    def frame(self) -> Any:
        """All estimates of all policies as a data frame, of pandas or of polars."""
        return _frame(self.columns())

    def plot(self) -> "Figure":
        """The value of every policy with its interval, and its difference from the baseline."""
        from .figure import draw  # slow to import, and seldom needed

        return draw(self)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `evaluation.txt`, `.json`, `.png` and `.svg`; returns the folder."""
        folder = Path(folder)
        columns = self.columns()
        known = {k: [None if v != v else v for v in column] for k, column in columns.items()}
        write_json(folder / "evaluation.json", known)
        (folder / "evaluation.txt").write_text(f"{self}\n", encoding="utf-8")
        figure = self.plot()
        figure.savefig(folder / "evaluation.png", dpi=160)
        figure.savefig(folder / "evaluation.svg", metadata={"Date": None})
        return folder

    def __str__(self) -> str:
        first = next(iter(self.evaluations.values()))
        name = max(map(len, [*self.evaluations, LOGGED]))
        out = "".join(f"; {count} left out: {why}" for why, count in first.excluded.items())
        lines = [
            *(
                f"! {policy}: {warning}"
                for policy, evaluation in self.evaluations.items()
                for warning in evaluation.warnings
            ),
            f"{first.decisions:,} decisions{out}; {self.method} estimates",
            f"{'':<{name}}  {'value':>9}  {'95% interval':<22}  "
            f"{'minus ' + first.baseline:<32}  effective  largest weight",
            f"{LOGGED:<{name}}  {first.earned.value:>9.4g}  {_range(first.earned):<22}",
        ]
        for policy, evaluation in self.evaluations.items():
            if evaluation.refused is not None:
                lines.append(f"{policy:<{name}}    refused")
                continue
            estimate, gap = evaluation[self.method], evaluation.differences[self.method]
            lines.append(
                f"{policy:<{name}}  {estimate.value:>9.4g}  {_range(estimate):<22}  "
                f"{_with(gap):<32}  {evaluation.effective:>9,.0f}  {evaluation.largest:>14.4g}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _number(given: float | None) -> float:
    return math.nan if given is None else given


def _range(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"{estimate.low:.4g} to {estimate.high:.4g}"


def _with(estimate: Estimate) -> str:
    return f"{estimate.value:.4g} ({_range(estimate)})"


def _frame(columns: dict[str, list[Any]]) -> Any:
    try:
        import pandas as pd

        return pd.DataFrame(columns)
    except ImportError:
        pass
    try:
        import polars as pl
    except ImportError as error:
        raise ImportError("frames need pandas or polars: pip install pandas") from error
    return pl.DataFrame(columns)
