"""Every posterior and rule on the same two problems: regret, time and memory.

    python benchmarks/posteriors.py                        # on a GPU: 500 periods, 1,000 worlds
    python benchmarks/posteriors.py --periods 20 --realizations 8 --search 4 --worlds linear

Worlds: the paper's two-layer network bandit (Section 5.2, Figure 3) and a linear one. Everybody
knows the noise and the prior. Every agent has three to six settings, written below; each is played
in `--search` worlds of seed 1, the one with the least cumulative regret is played in
`--realizations` worlds of seed 0, and only these count. Agents face the same worlds.

Time is that of a period of one realization in the compiled run of many (decision, outcome and
update together, compilation left out), and of single decisions and updates on one CPU. Memory is
what an agent has to keep between periods. Results are kept in a JSON file as they come: what was
interrupted goes on where it stopped. The table and the figure are of all that is in the file.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ensemble_sampling as es
from ensemble_sampling.experiments.paper import figure3
from ensemble_sampling.files import read_json, write_json
from ensemble_sampling.simulation import mean_and_error
from ensemble_sampling.simulation.plot import FONT, plain, style

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "posteriors.json"
SEARCH_SEED, TEST_SEED, LANES = 1, 0, 250
OPTIMIZERS = {"sgd": optax.sgd, "adam": optax.adam}
LINEAR = es.LinearBandit(dim=20, arms=100, noise_std=1.0, prior_std=1.0)
Settings = list[dict[str, Any]]


class Family(NamedTuple):
    """An agent with what may be chosen about it."""

    name: str
    settings: Settings
    make: Callable[..., Any]


class World(NamedTuple):
    environment: Any
    title: str
    families: Callable[[int], list[Family]]


def by(**choices: Sequence[Any]) -> Settings:
    """All combinations of the choices."""
    found: list[dict[str, Any]] = [{}]
    for name, values in choices.items():
        found = [{**before, name: value} for before in found for value in values]
    return found


def stepping(learner: es.Network, step: tuple[str, float]) -> es.Network:
    """The learner with another optimizer and learning rate."""
    optimizer, rate = step
    return dataclasses.replace(learner, optimizer=OPTIMIZERS[optimizer], learning_rate=rate)


EPSILONS = by(epsilon=[es.agents.Annealed(k) for k in (10, 30, 50, 70)]) + by(epsilon=[0.05, 0.1])
SLOW, USUAL, ADAM = ("sgd", 0.03), ("sgd", 0.1), ("adam", 0.03)


def on_networks(learner: es.Network, steps: dict[str, Settings]) -> list[Family]:
    """The posteriors that take a network, whatever its layers."""
    prior: Any = learner.make

    def randomised(step: Any, inflation: float) -> Any:
        made = dataclasses.replace(learner, make=es.learners.RandomisedPrior(prior))
        return es.Ensemble(stepping(made, step), 10, inflation=inflation)

    def langevin(step: Any, temperature: float, precondition: bool) -> Any:
        chain = stepping(learner, ("sgd", step))
        return es.posteriors.Langevin(chain, 1, precondition, temperature)

    def of(kind: Callable[..., Any], *args: Any) -> Callable[..., Any]:
        return lambda step, **chosen: kind(stepping(learner, step), *args, **chosen)

    return [
        Family("randomised priors, 10", steps["members"], randomised),
        Family("Laplace, diagonal", steps["laplace"], of(es.posteriors.Laplace, "diagonal")),
        Family("Laplace, last layer", steps["laplace"], of(es.posteriors.Laplace, "last")),
        Family("neural-linear", steps["laplace"], of(es.posteriors.NeuralLinear)),
        Family("Langevin", steps["langevin"], langevin),
        Family("Bayes by backprop", steps["backprop"], of(es.posteriors.BayesByBackprop)),
        Family("hypermodel", steps["indexed"], of(es.posteriors.Hypermodel)),
        Family("epinet", steps["indexed"], of(es.posteriors.Epinet, 8, (15, 15), prior)),
        Family("Ensemble++", steps["indexed"], of(es.posteriors.EnsemblePlus)),
    ]


def in_network(periods: int) -> list[Family]:
    """Agents for the two-layer world, all with the paper's network."""
    learner = dataclasses.replace(figure3.learner, capacity=periods)
    members = by(step=[USUAL], inflation=[0.25, 0.5, 1.0]) + by(step=[SLOW, ADAM], inflation=[1.0])

    def ensemble(count: int, *perturbation: Any) -> Callable[..., Any]:
        return lambda step, inflation: es.Ensemble(
            stepping(learner, step), count, *perturbation, inflation=inflation
        )

    def dropout(rate: float, step: tuple[str, float]) -> Any:
        return es.posteriors.Dropout(stepping(learner, step), rate)

    masks = zip((0.25, 0.5, 0.75, 0.9), (0.01, 0.01, 0.02, 0.05), strict=True)
    steps: dict[str, Settings] = {
        "members": members,
        "laplace": by(step=[USUAL], inflation=[0.1, 0.3, 1.0]) + by(step=[ADAM], inflation=[0.3]),
        "langevin": by(step=[0.03, 0.1], temperature=[0.1, 1.0], precondition=[False])
        + by(step=[0.01], temperature=[0.1, 1.0], precondition=[True]),
        "backprop": by(step=[SLOW, USUAL, ADAM], start=[0.1, 1.0]),
        "indexed": by(step=[("sgd", 0.01), SLOW, ADAM], inflation=[0.5, 1.0]),
    }
    return [
        Family("uniform", [{}], es.Uniform),
        Family(
            "greedy", by(step=[SLOW, USUAL, ADAM]), lambda step: es.Greedy(stepping(learner, step))
        ),
        Family("epsilon-greedy", EPSILONS, lambda epsilon: es.EpsilonGreedy(learner, epsilon)),
        Family("dropout", [{"rate": p, "step": ("sgd", rate)} for p, rate in masks], dropout),
        Family("ensemble, 10", members, ensemble(10)),
        Family("ensemble, 30", members, ensemble(30)),
        Family("symmetric ensemble, 30", members, ensemble(30, es.posteriors.Symmetric())),
        Family(
            "growing ensemble, 4 to 32",
            members,
            lambda step, inflation: es.posteriors.Anytime(
                stepping(learner, step), 32, 4, 3.0, inflation=inflation
            ),
        ),
        *on_networks(learner, steps),
        Family(
            "UCB, ensemble of 10",
            by(width=[0.3, 1.0, 3.0]),
            lambda width: es.agents.UCB(es.Ensemble(learner, 10), width),
        ),
        Family(
            "UCB, neural-linear",
            by(width=[0.1, 0.3, 1.0, 3.0]),
            lambda width: es.agents.UCB(es.posteriors.NeuralLinear(learner), width),
        ),
        Family(
            "SquareCB",
            by(scale=[0.01, 0.03, 0.1, 0.3, 1.0]),
            lambda scale: es.agents.SquareCB(learner, es.agents.SquareRoot(scale)),
        ),
    ]


def in_linear(periods: int) -> list[Family]:
    """Agents for the linear world: with the exact covariance, or with a network of one layer."""
    dim, noise_std = LINEAR.dim, float(LINEAR.noise_std)
    line = es.Linear(dim, noise_std, prior_std=1.0)
    how: Any = {"steps": 3, "batch": 64}
    learner = es.Network(
        es.networks.GaussianMLP(dim, (), prior_std=1.0), dim, periods, noise_std, 1.0, **how
    )
    deep = es.Network(es.networks.GaussianMLP(dim, (50,)), dim, periods, noise_std, **how)
    inflations, quick = by(inflation=[0.5, 0.75, 1.0]), ("sgd", 0.3)
    steps: dict[str, Settings] = {
        "members": by(step=[USUAL, quick, ADAM], inflation=[0.5, 1.0]),
        "laplace": by(step=[quick, ADAM], inflation=[0.5, 0.75, 1.0]),
        "langevin": by(step=[0.1, 0.3], temperature=[0.3, 1.0], precondition=[False])
        + by(step=[0.03], temperature=[0.3, 1.0], precondition=[True]),
        "backprop": by(step=[USUAL, quick, ADAM], start=[0.3, 1.0]),
        "indexed": by(step=[SLOW, USUAL, ADAM], inflation=[0.5, 1.0]),
    }

    def ensemble(count: int, *perturbation: Any) -> Callable[..., Any]:
        return lambda inflation: es.Ensemble(line, count, *perturbation, inflation=inflation)

    return [
        Family("uniform", [{}], es.Uniform),
        Family("greedy", [{}], lambda: es.Greedy(line)),
        Family("epsilon-greedy", EPSILONS, lambda epsilon: es.EpsilonGreedy(line, epsilon)),
        Family("Thompson sampling", [{}], lambda: es.Exact(line)),
        Family("ensemble, 10", inflations, ensemble(10)),
        Family("ensemble, 30", inflations, ensemble(30)),
        Family("ensemble, 100", inflations, ensemble(100)),
        Family("symmetric ensemble, 30", inflations, ensemble(30, es.posteriors.Symmetric())),
        Family(
            "growing ensemble, 4 to 64",
            inflations,
            lambda inflation: es.posteriors.Anytime(line, 64, 4, 4.0, inflation=inflation),
        ),
        Family(
            "Ensemble++, exact",
            inflations,
            lambda inflation: es.posteriors.EnsemblePlus(line, 30, inflation=inflation),
        ),
        Family(
            "Laplace, full",
            inflations,
            lambda inflation: es.posteriors.Laplace(learner, "full", inflation),
        ),
        *on_networks(learner, steps),
        Family(
            "dropout", by(rate=[0.25, 0.5, 0.75]), lambda rate: es.posteriors.Dropout(deep, rate)
        ),
        Family("LinUCB", by(width=[0.25, 0.5, 1.0, 2.0]), lambda width: es.agents.UCB(line, width)),
        Family(
            "UCB, ensemble of 30",
            by(width=[0.25, 0.5, 1.0, 2.0]),
            lambda width: es.agents.UCB(es.Ensemble(line, 30), width),
        ),
        Family(
            "SquareCB",
            by(scale=[0.3, 1.0, 3.0, 10.0, 30.0]),
            lambda scale: es.agents.SquareCB(line, es.agents.SquareRoot(scale)),
        ),
    ]


WORLDS = {
    "network": World(figure3.environment, "two-layer network bandit", in_network),
    "linear": World(LINEAR, "linear bandit", in_linear),
}


def words(setting: dict[str, Any]) -> dict[str, Any]:
    """A setting as JSON has it."""
    return {k: list(v) if isinstance(v, tuple) else _word(v) for k, v in setting.items()}


def _word(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else repr(value)


def play(agent: Any, world: World, size: argparse.Namespace, count: int, seed: int) -> Any:
    """(result, seconds of a realization): of all chunks but the first, during which it compiles.

    A CPU works on several chunks at a time, and a single one has no others: None.
    """
    marks: list[tuple[int, float]] = []
    result = es.simulate(
        agent,
        world.environment,
        size.periods,
        count,
        seed=seed,
        keep=True,
        chunk=size.lanes,
        progress=lambda done, total: marks.append((done, time.perf_counter())),
    )
    marks = [mark for mark in marks if mark[0] > 0]
    if len(marks) > 1 and jax.default_backend() != "cpu":
        (first, began), (last, ended) = marks[0], marks[-1]
        return result, (ended - began) / (last - first)
    return result, None


def total(result: es.simulation.Result) -> tuple[float, float]:
    """Cumulative regret and its standard error."""
    assert result.regret is not None
    return mean_and_error(result.regret.sum(axis=1, dtype=np.float64))


def search(family: Family, world: World, size: argparse.Namespace) -> list[dict[str, Any]]:
    """What became of every setting."""
    found = []
    for setting in family.settings:
        row: dict[str, Any] = {"setting": words(setting)}
        try:
            result, _ = play(family.make(**setting), world, size, size.search, SEARCH_SEED)
            row |= dict(zip(("regret", "stderr"), total(result), strict=True))
            row["diverged"] = result.diverged
            if not np.isfinite(row["regret"]):
                raise ValueError(f"regret {row.pop('regret')}")
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            print(f"{family.name} {row['setting']}: {row['error']}", flush=True)
        found.append(row)
    return found


def test(agent: Any, world: World, size: argparse.Namespace) -> dict[str, Any]:
    """Regret, time and memory of one agent."""
    result, seconds = play(agent, world, size, size.realizations, TEST_SEED)
    assert result.regret is not None
    last = max(size.periods // 10, 1)
    cumulative, final = total(result), mean_and_error(result.regret[:, -last:].mean(axis=1))
    if seconds is None:  # once more, compiled by now
        began = time.perf_counter()
        play(agent, world, size, size.realizations, TEST_SEED)
        seconds = (time.perf_counter() - began) / size.realizations
    return {
        "cumulative": cumulative,
        "final": final,
        "seconds_per_period": seconds / size.periods,
        "diverged": result.diverged,
        "state_bytes": state_bytes(agent),
        **latency(agent, world),
    }


def state_bytes(agent: Any) -> int:
    state = jax.eval_shape(agent.init, jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def latency(agent: Any, world: World, repeats: int = 30) -> dict[str, float]:
    """Median seconds of single decisions and updates on a CPU, compiled and one after the other."""
    agent = agent if hasattr(agent, "act") else es.ThompsonSampling(agent)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        key = jax.random.key(0)
        drawn = world.environment.init(key)
        offer = world.environment.offer(key, drawn)
        act = jax.jit(lambda key, state: agent.act(key, state, offer.features))
        update = jax.jit(lambda key, state, action: agent.update(key, state, action, 1.0))
        state = jax.jit(lambda key: agent.init(key))(key)
        seconds: dict[str, list[float]] = {"decision": [], "update": []}
        for t in range(repeats + 2):
            key = jax.random.fold_in(key, t)
            began = time.perf_counter()
            index = jax.block_until_ready(act(key, state))
            between = time.perf_counter()
            state = jax.block_until_ready(
                update(key, state, es.core.Action(index, jnp.asarray(offer.features)[index]))
            )
            ended = time.perf_counter()
            if t >= 2:  # compiled by now
                seconds["decision"].append(between - began)
                seconds["update"].append(ended - between)
    return {f"{name}_seconds": statistics.median(took) for name, took in seconds.items()}


def machine() -> str:
    device = jax.devices()[0]
    return f"{device.device_kind}, JAX {jax.__version__}"


def run(name: str, size: argparse.Namespace, data: dict[str, Any]) -> None:
    """Search, several agents at a time, and test, one after the other, what is not in the file."""
    world, done = WORLDS[name], data.setdefault(name, {})
    families = {}
    for family in world.families(size.periods):
        if not size.agents or any(part in family.name for part in size.agents):
            families[family.name] = family
            plan = _plan(family, world, size)
            if done.get(family.name, {}).get("plan") != plan:
                done[family.name] = {"plan": plan}
    with ThreadPoolExecutor(size.jobs) as pool:
        missing = [family for key, family in families.items() if "searched" not in done[key]]
        found = {pool.submit(search, family, world, size): family.name for family in missing}
        for future in as_completed(found):
            done[found[future]]["searched"] = future.result()
            write_json(size.out, data)
            print(f"{name}: searched {found[future]}", flush=True)
    for key, family in families.items():
        rows = done[key]["searched"]
        good = [i for i, row in enumerate(rows) if "regret" in row]
        if "cumulative" in done[key]:
            continue
        if not good:
            print(f"{name}: {key} is left out, no setting could be played", flush=True)
            continue
        best = min(good, key=lambda i: rows[i]["regret"])
        began = time.perf_counter()
        found = test(family.make(**family.settings[best]), world, size)
        done[key] |= {"chosen": rows[best]["setting"], **found}
        write_json(size.out, data)
        print(f"{name}: tested {key} in {time.perf_counter() - began:.1f} s", flush=True)


def _plan(family: Family, world: World, size: argparse.Namespace) -> dict[str, Any]:
    """All that decides the numbers of an agent."""
    return {
        "world": repr(world.environment),
        "periods": size.periods,
        "realizations": size.realizations,
        "search": size.search,
        "seeds": [SEARCH_SEED, TEST_SEED],
        "settings": [words(setting) for setting in family.settings],
        "machine": machine(),
    }


def tested(rows: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The agents that were, the least regret first."""
    have = [item for item in rows.items() if "cumulative" in item[1]]
    return sorted(have, key=lambda item: item[1]["cumulative"][0])


def table(data: dict[str, Any]) -> str:
    """A row for every agent, the least regret first; ± is half of a 95% interval."""
    lines = []
    for name, rows in data.items():
        if name not in WORLDS:
            continue
        lines += [
            f"{WORLDS[name].title}",
            f"{'agent':28} {'regret':>16} {'per period, end':>16} {'us/period':>9} "
            f"{'decide us':>9} {'update us':>9} {'state KiB':>9}  chosen",
        ]
        for label, row in tested(rows):
            (mean, error), (end, end_error) = row["cumulative"], row["final"]
            chosen = ", ".join(f"{k} {v}" for k, v in row["chosen"].items())
            lines.append(
                f"{label:28} {mean:8.0f} ± {1.96 * error:5.0f} {end:8.2f} ± {1.96 * end_error:5.2f}"
                f" {row['seconds_per_period'] * 1e6:9.2f} {row['decision_seconds'] * 1e6:9.0f}"
                f" {row['update_seconds'] * 1e6:9.0f} {row['state_bytes'] / 1024:9.0f}  {chosen}"
            )
        lines.append("")
    return "\n".join(lines)


def figure(data: dict[str, Any], path: Path) -> None:
    """Regret against compute, a panel for every world; labels in the margin, in order of regret."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in WORLDS if tested(data.get(name, {}))]
    with plt.rc_context(FONT):
        drawn, panels = plt.subplots(1, len(names), figsize=(6.4 * len(names), 5), squeeze=False)
        for panel, name in zip(panels[0], names, strict=True):
            rows = tested(data[name])
            panel.set(xscale="log", yscale="log", title=WORLDS[name].title)
            for i, (label, row) in enumerate(rows):
                (mean, error), x = row["cumulative"], row["seconds_per_period"] * 1e6
                colour, mark, _ = style(i)
                panel.errorbar(x, mean, 1.96 * error, color=colour, marker=mark, capsize=2, ls="")
                panel.annotate(
                    plain(label),
                    (x, mean),
                    xytext=(1.04, (i + 0.5) / len(rows)),
                    textcoords="axes fraction",
                    va="center",
                    color=colour,
                    fontsize=7.5,
                    arrowprops={
                        "arrowstyle": "-",
                        "color": colour,
                        "lw": 0.4,
                        "alpha": 0.6,
                        "relpos": (0, 0.5),
                        "shrinkA": 1,
                    },
                )
            panel.set_xlabel("time of a period of one realization (µs)")
            panel.set_ylabel("cumulative regret")
            panel.grid(True, which="major", lw=0.3)
        drawn.tight_layout()
        for suffix in (".png", ".svg"):
            drawn.savefig(path.with_suffix(suffix), dpi=150, metadata=_undated(suffix))
        plt.close(drawn)


def _undated(suffix: str) -> dict[str, Any]:
    return {"Date": None} if suffix == ".svg" else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--periods", type=int, default=figure3.PERIODS)
    parser.add_argument("--realizations", type=int, default=1000, help="worlds of the test")
    parser.add_argument("--search", type=int, default=LANES, help="worlds of the search")
    parser.add_argument(
        "--agents", nargs="*", default=(), help="only those with one of these words"
    )
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument(
        "--jobs", type=int, help="agents searched at a time, to compile side by side"
    )
    size = parser.parse_args()
    size.jobs = size.jobs or (1 if jax.default_backend() == "cpu" else 8)
    if min(size.search, size.realizations) < 2:
        parser.error("an interval needs two worlds at least")
    size.lanes = max(1, min(LANES, size.search, size.realizations))
    size.out.parent.mkdir(parents=True, exist_ok=True)
    data = read_json(size.out) if size.out.exists() else {}
    for name in size.worlds:
        run(name, size, data)
    if any(tested(data.get(name, {})) for name in WORLDS):
        figure(data, size.out)
    print(table(data))


if __name__ == "__main__":
    main()
