"""How many members does my problem need? Simulate it, and say so in words, numbers and a figure."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .. import checks
from ..agents.thompson import EnsembleSampling
from ..config import describe
from ..core import Action, Agent, ConjugateLearner, Environment
from ..files import write_json
from ..simulation import Progress, Result, numbers
from ..simulation.plot import CONFIDENT, FONT, draw_curve, style
from . import theory
from .sizing import EnsembleSize, Runs, confirmed, smallest_ensemble

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Plan:
    """The smallest ensemble for a problem, and what speaks for it.

    curves: of Thompson sampling, and of the ensemble
    theory_members: what the erratum's bound asks for the same loss, its unknown constant being 1
    warning: where so few members can fail outright, or None
    decision_seconds, decision_bytes: of choosing and learning once, measured here, and of memory
    """

    learner: ConjugateLearner
    environment: Environment
    periods: int
    tolerance: float
    seed: int
    size: EnsembleSize
    curves: tuple[Result, Result]
    theory_members: int
    warning: str | None
    decision_seconds: float
    decision_bytes: int
    seconds: float

    @property
    def members(self) -> int:
        return self.size.members

    def __str__(self) -> str:
        size = self.size
        plural = "s" if size.members > 1 else ""
        lines = [
            f"{size.members} member{plural} (95% range {size.low} to {size.high})",
            f"  keep the regret in period {self.periods:,} within {self.tolerance:g} of Thompson "
            f"sampling's {size.thompson:.4f} ± {size.thompson_stderr:.4f}.",
            f"Theory: the proven bound asks for {self.theory_members:,} members for that loss "
            "(its unknown constant taken as 1).",
            f"Cost: {1e6 * self.decision_seconds:.0f} µs to choose and learn once, "
            f"{self.decision_bytes / 1024:.1f} KiB of memory.",
            *([f"Warning: {self.warning}"] if self.warning else []),
            "Sizes tried (regret in the last period minus Thompson sampling's):",
            *(
                f"  {e.members:>6} members {e.difference:8.4f} ± {e.stderr:.4f}"
                f"   {e.realizations:>6,} realizations"
                for e in size.evaluated
            ),
            f"± is one standard error. Found in {self.seconds:.0f} s.",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        size = self.size
        return f"Plan({size.members} members, 95% range {size.low} to {size.high})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def data(self) -> dict[str, Any]:
        """Everything as plain numbers, ready for JSON."""
        return {
            "learner": describe(self.learner),
            "environment": describe(self.environment),
            "periods": self.periods,
            "tolerance": self.tolerance,
            "seed": self.seed,
            **asdict(self.size),
            "theory_members": self.theory_members,
            "warning": self.warning,
            "decision_seconds": self.decision_seconds,
            "decision_bytes": self.decision_bytes,
            "curves": [
                {"label": c.label, "mean": numbers(c.mean), "stderr": numbers(c.stderr)}
                for c in self.curves
            ],
            "seconds": self.seconds,
        }

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `plan.txt`, `plan.json`, `plan.png` and `plan.svg`; returns the folder."""
        import matplotlib as mpl  # slow to import, and seldom needed
        from matplotlib.figure import Figure

        folder, data = Path(folder), self.data()
        write_json(folder / "plan.json", data)
        (folder / "plan.txt").write_text(f"{self}\n", encoding="utf-8")
        with mpl.rc_context(FONT):
            figure = Figure(figsize=(9.0, 3.5), layout="constrained")
            left, right = figure.subplots(1, 2)
            _draw_curves(left, data)
            _draw_sizes(right, data)
            figure.savefig(folder / "plan.png", dpi=160)
            figure.savefig(folder / "plan.svg", metadata={"Date": None})
        return folder


def _draw_curves(ax: "Axes", plan: Mapping[str, Any]) -> None:
    """Regret over time beside Thompson sampling's."""
    for i, curve in enumerate(plan["curves"]):
        draw_curve(ax, curve["label"], curve["mean"], curve["stderr"], i, len(plan["curves"]))
    ax.axhline(plan["threshold"], color="0.5", lw=0.8, ls="--", label="tolerated at the end")
    ax.set(xlabel="period", ylabel="regret per period", xlim=(0, plan["periods"]), yscale="log")
    ax.set_title("Regret over time, with 95% bands", loc="left")
    ax.legend(frameon=False)


def _draw_sizes(ax: "Axes", plan: Mapping[str, Any]) -> None:
    """The loss against the number of members."""
    colour, mark, _ = style(1)
    tried = plan["evaluated"]
    members, loss, error = np.array([(e["members"], e["difference"], e["stderr"]) for e in tried]).T
    ax.errorbar(members, loss, CONFIDENT * error, fmt=mark, color=colour, ms=4, capsize=2, lw=1.0)
    tolerance = plan["tolerance"]
    ax.axhline(tolerance, color="0.5", lw=0.8, ls="--", label=f"tolerated: {tolerance:g}")
    ax.axvspan(plan["low"], plan["high"], color=colour, alpha=0.2, lw=0)
    found = f"{plan['members']} members ({plan['low']} to {plan['high']})"
    ax.axvline(plan["members"], color=colour, lw=1.0, label=found)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="members", ylabel="regret minus Thompson sampling's")
    ax.set_title(f"Loss in period {plan['periods']:,}", loc="left")
    ax.legend(frameon=False)


def plan(
    learner: ConjugateLearner,
    environment: Environment,
    periods: int,
    *,
    tolerance: float,
    realizations: int = 4000,
    seed: int = 0,
    most: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
) -> Plan:
    """The smallest ensemble whose regret in the last period is within `tolerance` of Thompson
    sampling's, measured by simulating the problem (see `sizing.smallest_ensemble`). Its own
    measured gap is within the tolerance too, not only the line through its neighbours.

    learner: what the members are; it needs an exact posterior to compare with.
    tolerance: loss per period that is acceptable, in units of reward.
    realizations: more of them narrow the range, as one over their square root.
    most: the largest ensemble to consider, by default 1024 or what memory holds; it is an error
        if that does not suffice.
    checkpoint: a folder; a search that was interrupted goes on where it stopped.
    progress: as for `simulate`, of each simulation in turn.
    """
    began = time.perf_counter()
    tolerance = checks.positive("tolerance", tolerance)
    asked: Any = {"most": most, "checkpoint": checkpoint, "progress": progress, "curves": True}
    runs = Runs(learner, environment, periods, realizations, seed, **asked)
    arms, dim = _shape(environment)
    theory_members = theory.members_for_loss(dim, arms, periods, tolerance)
    size = confirmed(runs, smallest_ensemble(runs, tolerance), tolerance)
    seconds, held = _cost(EnsembleSampling(learner, size.members), environment)
    return Plan(
        learner=learner,
        environment=environment,
        periods=periods,
        tolerance=tolerance,
        seed=seed,
        size=size,
        curves=(runs.results["thompson"], runs.results[size.members]),
        theory_members=theory_members,
        warning=theory.too_few_members(dim, size.members),
        decision_seconds=seconds,
        decision_bytes=held,
        seconds=time.perf_counter() - began,
    )


def _shape(environment: Environment) -> tuple[int, int]:
    """(actions, features of each) on offer."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: environment.offer(key, environment.init(key))).features.shape


def _cost(agent: Agent, environment: Environment, repeats: int = 100) -> tuple[float, int]:
    """Seconds to choose and learn once, compiled and one at a time, and bytes held meanwhile."""
    key = jax.random.key(0)
    world = environment.init(key)
    offer = environment.offer(key, world)
    features, world = offer.features, world if offer.world is None else offer.world
    choose = jax.jit(lambda *now: agent.act(*now))
    learn = jax.jit(lambda *now: agent.update(*now))
    state, times = agent.init(key), []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        index = choose(key, state, features).block_until_ready()
        seconds = time.perf_counter() - began
        action = Action(index, features[index])
        outcome = environment.outcome(key, world, action).block_until_ready()
        began = time.perf_counter()
        state = jax.block_until_ready(learn(key, state, action, outcome))
        times.append(seconds + time.perf_counter() - began)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return float(np.median(times[1:])), held  # the first one compiled
