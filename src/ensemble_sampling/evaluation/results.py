"""What was found of policies: as values, tables, frames, files and a figure."""

import math
import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_json
from ..intervals import Estimate
from ..tables import Table, as_frame

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

    def _repr_html_(self) -> str:
        return _html(self.warnings, self.columns())

    @property
    def scope(self) -> str:
        """How many decisions it is about, and which are not among them."""
        out = [f"; {count} left out: {why}" for why, count in self.excluded.items()]
        return f"{self.decisions:,} decisions{''.join(out)}"

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
        nothing = Estimate(math.nan, None, None, None)
        rows = []
        for method, estimate in (self.estimates or {None: nothing}).items():
            gap = self.differences.get(method or "", nothing)
            weighted = method not in (None, "direct")
            row = {
                "policy": self.policy,
                "method": method,
                "value": estimate.value,
                "low": _number(estimate.low),
                "high": _number(estimate.high),
                "stderr": _number(estimate.stderr),
                "effective": self.effective if weighted else math.nan,
                "largest_weight": self.largest if weighted else math.nan,
                "unsupported": self.unsupported,
                "baseline": self.baseline,
                "difference": gap.value,
                "difference_low": _number(gap.low),
                "difference_high": _number(gap.high),
                "refused": self.refused,
            }
            rows.append(row)
        return {name: [row[name] for row in rows] for name in rows[0]}

    def frame(self) -> Any:
        """The same as a data frame of pandas or polars, or a `Table` where there is neither."""
        return as_frame(self.columns())

    def __str__(self) -> str:
        lines = [
            *(f"! {warning}" for warning in self.warnings),
            f"{self.policy} on {self.scope}",
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

    @property
    def best(self) -> Evaluation:
        """The policy that would have earned most by `method`, of those that were not refused;
        whether by more than chance is said by its `differences` from another."""
        judged = [one for one in self.evaluations.values() if one.refused is None]
        if not judged:
            raise ValueError("every policy was refused: see `warnings` of each")
        return max(judged, key=lambda one: one[self.method].value)

    def _repr_html_(self) -> str:
        columns = self.columns()
        kept = [i for i, method in enumerate(columns["method"]) if method in (None, self.method)]
        warnings = [f"{n}: {w}" for n, one in self.evaluations.items() for w in one.warnings]
        return _html(warnings, {name: [c[i] for i in kept] for name, c in columns.items()})

    def frame(self) -> Any:
        """All estimates of all policies as a data frame of pandas or polars, or a `Table`."""
        return as_frame(self.columns())

    def plot(self) -> "Figure":
        """The value of every policy with its 95% interval, and its difference from the baseline."""
        import matplotlib as mpl  # slow to import, and seldom needed

        from ..simulation.picture import Picture
        from ..simulation.plot import FONT, plain, style

        every = list(self.evaluations.values())
        first, judged = every[0], [one for one in every if one.refused is None]
        names = [plain(one.policy) for one in judged]
        refused = [plain(one.policy) for one in every if one.refused is not None]
        (colour, mark, _), dashed = style(1), {"color": "0.5", "lw": 0.8, "ls": "--"}
        with mpl.rc_context(FONT):
            figure = Picture(figsize=(9.0, 1.6 + 0.35 * len(judged)))
            left, right = figure.subplots(1, 2, sharey=True)
            if first.earned.low is not None and first.earned.high is not None:
                left.axvspan(first.earned.low, first.earned.high, color="0.85", lw=0)
            left.axvline(first.earned.value, **dashed, label="earned by the log")
            right.axvline(0.0, **dashed)
            for at, one in enumerate(judged):
                for axis, found in ((left, one.estimates), (right, one.differences)):
                    value, _, low, high = found[self.method]
                    reach = None if low is None or high is None else [[value - low], [high - value]]
                    look = {"fmt": mark, "color": colour, "ms": 4, "capsize": 2, "lw": 1.0}
                    axis.errorbar(value, at, xerr=reach, **look)
            left.set(xlabel=f"value, {self.method}", yticks=range(len(names)), yticklabels=names)
            right.set(xlabel=f"minus {plain(first.baseline)}, paired")
            figure.legend(loc="outside lower left", frameon=False)  # off the data
            left.invert_yaxis()
            words = f"; refused: {', '.join(refused)}" if refused else ""
            figure.suptitle(f"{first.decisions:,} decisions, 95% intervals{words}", fontsize=9.5)
        return figure

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
        lines = [
            *(
                f"! {policy}: {warning}"
                for policy, evaluation in self.evaluations.items()
                for warning in evaluation.warnings
            ),
            f"{first.scope}; {self.method} estimates",
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


IN_SHORT = ("policy", "method", "value", "low", "high", "difference", "effective")


def _html(warnings: list[str], columns: dict[str, list[Any]]) -> str:
    """For notebooks: what to know first, then the numbers."""
    table = Table({name: columns[name] for name in IN_SHORT})
    return "".join(f"<p>! {escape(each)}</p>" for each in warnings) + table._repr_html_()


def _number(given: float | None) -> float:
    return math.nan if given is None else given


def _range(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"{estimate.low:.4g} to {estimate.high:.4g}"


def _with(estimate: Estimate) -> str:
    return f"{estimate.value:.4g} ({_range(estimate)})"
