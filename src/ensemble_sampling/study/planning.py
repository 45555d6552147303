"""How many members does my problem need? Simulate it, and say so in words, numbers and a figure."""

import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import checks
from ..agents.thompson import EnsembleSampling
from ..config import describe
from ..core import Action, Agent, ConjugateLearner, Environment
from ..files import write_json
from ..simulation import Progress, Result, numbers
from . import theory
from .sizing import EnsembleSize, Runs, affordable, search, too_few


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

    def data(self) -> dict[str, Any]:
        """Everything as plain numbers, ready for JSON."""
        return {
            "learner": describe(self.learner),
            "environment": describe(self.environment),
            "periods": self.periods,
            "tolerance": self.tolerance,
            "seed": self.seed,
            **{name: value for name, value in asdict(self.size).items() if name != "seconds"},
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
        from . import plan_figure  # drawing takes its time to import

        folder, data = Path(folder), self.data()
        write_json(folder / "plan.json", data)
        (folder / "plan.txt").write_text(f"{self}\n", encoding="utf-8")
        plan_figure.save(data, folder)
        return folder


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
    sampling's, measured by simulating the problem (see `smallest_ensemble`). Its own measured gap
    is within the tolerance too, not only the line through its neighbours.

    learner: what the members are; it needs an exact posterior to compare with.
    tolerance: loss per period that is acceptable, in units of reward.
    realizations: more of them narrow the range, as one over their square root.
    """
    began = time.perf_counter()
    tolerance = checks.positive("tolerance", tolerance)
    most = affordable(learner, environment, periods, most)
    arms, dim = _shape(environment)
    theory_members = theory.members_for_loss(dim, arms, periods, tolerance)
    which = learner, environment, periods, realizations, seed, checkpoint, progress
    runs = Runs(*which, curves=True)
    size = _confirmed(runs, search(runs, tolerance, most), tolerance, most)
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


def _confirmed(runs: Runs, size: EnsembleSize, tolerance: float, most: int) -> EnsembleSize:
    """The first size from the one found on whose own measured gap is within the tolerance."""
    members = size.members
    while (gap := runs.evaluate(members, runs.realizations).difference) > tolerance:
        if members >= most:
            raise too_few(most, gap, tolerance)
        members = min(most, members + max(1, members // 20))
    high = max(size.high, members)
    return replace(size, members=members, high=high, evaluated=runs.evaluated())


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
