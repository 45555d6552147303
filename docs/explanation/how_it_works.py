"""Draw the pictures of `how-it-works.md`: python docs/explanation/how_it_works.py (10 minutes)."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ensemble_sampling as es
from ensemble_sampling.files import write_json
from ensemble_sampling.simulation.plot import FONT, style

HERE = Path(__file__).parent
SAVED = HERE.parents[1] / "results" / "benchmarks" / "small_ensembles.json"
ARMS, WORLD = 50, es.GaussianArms(50)
LEARNER = es.IndependentArms(ARMS, noise_std=1.0)
THOMPSON = es.ThompsonSampling(es.Exact(LEARNER))


def stuck(agent: Any, key: Any, state: Any, event: Any) -> Any:
    """1 where all members name the same arm, and it is not the best."""
    votes = agent.probabilities(state, event.offer.features)
    means = event.offer.means
    unanimous = jnp.isclose(votes.max(), 1.0)
    return (unanimous & (jnp.argmax(votes) != jnp.argmax(means))).astype(float)


def lines(ax: Axes, x: Any, curves: dict[str, Any], logy: bool = True, skip: int = 0) -> None:
    """`skip` the first styles, so that an agent looks the same in both halves of a picture."""
    for i, (label, y) in enumerate(curves.items(), skip):
        colour, mark, _ = style(i)
        at = np.unique(np.geomspace(1, len(y), 12).astype(int)) - 1
        ax.plot(x, y, color=colour, lw=1.1, marker=mark, ms=4.5, markevery=at.tolist(), label=label)
    ax.set(xscale="log", xlabel="period")
    if logy:
        ax.set_yscale("log")
    ax.legend(frameon=False)


def smooth(mean: np.ndarray) -> np.ndarray:
    """Averages over stretches that grow with the period, as equal steps on a log axis."""
    edges = np.unique(np.geomspace(1, len(mean) + 1, 60).astype(int)) - 1
    return np.array([mean[a:b].mean() for a, b in pairwise(edges)])


def middles(periods: int) -> np.ndarray:
    edges = np.unique(np.geomspace(1, periods + 1, 60).astype(int))
    return (edges[:-1] + edges[1:] - 1) / 2


def small_ensembles(periods: int = 2000, realizations: int = 2000) -> Figure:
    """Regret over time, and how often the members agree on a wrong arm."""
    figure, (left, right) = canvas()
    agents = [THOMPSON, *(es.EnsembleSampling(LEARNER, m) for m in (3, 10, 30))]
    regret = {a.label: es.simulate(a, WORLD, periods, realizations).mean for a in agents}
    lines(left, middles(periods), {label: smooth(mean) for label, mean in regret.items()})
    left.set(ylabel="regret per period", title="Greedy early, stuck later")
    share = shares(agents[1:], periods, realizations // 4)
    wrong = {label: smooth(mean) for label, mean in share.items()}
    lines(right, middles(periods), wrong, logy=False, skip=1)
    right.set(ylabel="share of realizations", title="All members agree on a wrong arm")
    return figure


def shares(agents: list[Any], periods: int, realizations: int) -> dict[str, np.ndarray]:
    """Agent -> how often its members agree on a wrong arm; what the page quotes is saved."""
    runs = [es.simulate(a, WORLD, periods, realizations, measure=stuck) for a in agents]
    stuck_last = {run.label: [float(run.mean[-1]), float(run.stderr[-1])] for run in runs}
    about = {"arms": ARMS, "periods": periods, "realizations": realizations, "seed": 0}
    write_json(SAVED, {**about, "wrong_and_unanimous_at_the_end": stuck_last})
    return {run.label: run.mean for run in runs}


def posterior_match(periods: int = 1000, realizations: int = 500) -> Figure:
    """KL between the members' votes and the exact posterior, watching or acting."""
    figure, axes = canvas()
    learner, world = es.Linear(5, noise_std=1.0), es.LinearBandit(5, arms=20)
    for ax, adaptive in zip(axes, (False, True), strict=True):
        curves, at = {}, None
        for members in (5, 20, 80):
            path = es.diagnostics.trajectory(
                es.Ensemble(learner, members),
                world,
                periods,
                realizations,
                adaptive=adaptive,
                points=20,
                draws=2000,
            )
            curves[path.label], at = path.kl, path.periods + 1
        lines(ax, at, curves)
        ax.set(ylabel="KL(votes ‖ posterior)", ylim=(0.008, 2.0))
        ax.set_title(
            "acting on the members" if adaptive else "actions fixed in advance", loc="left"
        )
    return figure


def inflation(periods: int = 5000, realizations: int = 1000) -> Figure:
    """Regret for several inflations of the perturbations, and its sum."""
    figure, (left, right) = canvas()
    agents = {
        f"inflation {c:g}": es.EnsembleSampling(LEARNER, 10, inflation=c) for c in (0.5, 1, 2)
    }
    regret = {
        name: es.simulate(agent, WORLD, periods, realizations).mean
        for name, agent in {"Thompson sampling": THOMPSON, **agents}.items()
    }
    lines(left, middles(periods), {name: smooth(mean) for name, mean in regret.items()})
    left.set(ylabel="regret per period", title="10 models: more exploration, fewer mistakes kept")
    total = {name: np.cumsum(mean) for name, mean in regret.items()}
    lines(right, np.arange(1, periods + 1), total)
    right.set(ylabel="regret so far", title="What it costs, and from when it pays")
    return figure


def canvas() -> tuple[Figure, Any]:
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    return figure, figure.subplots(1, 2)


if __name__ == "__main__":
    with mpl.rc_context({**FONT, "axes.titlelocation": "left"}):
        for make in (small_ensembles, posterior_match, inflation):
            name = make.__name__.replace("_", "-")
            make().savefig(HERE / f"{name}.png", dpi=130)
            print(name, flush=True)
