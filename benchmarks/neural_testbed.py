"""The neural bandit of Osband et al. (UAI 2023): total regret, seconds and operations of agents.

python benchmarks/neural_testbed.py                          all agents, 50,000 periods, 10 seeds
python benchmarks/neural_testbed.py --agents plain epinet --periods 200 --seeds 2
python benchmarks/neural_testbed.py --list

1,000 actions with standard normal features in 100 dimensions, the same in all periods. A network
with two layers of 50 rectifiers, drawn anew for every seed, gives the log-odds of a reward of 1.
Agents see one outcome per period, keep the newest 10,000, and take one step of Adam at 1e-3 on 128
of them. Ours learn in units of their prior, in which a first layer's weights are about 0.1 wide,
so that a rate of 1e-2 is the same step there. What the text leaves open (how wide the true
weights are, how log-odds are scaled, how prior functions are) is as in its authors' public code.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ensemble_sampling as es

DIM, ARMS, HIDDEN, CAPACITY, BATCH, RATE = 100, 1000, (50, 50), 10_000, 128, 1e-3


def scale(temperature: float) -> float:
    """Log-odds are the difference of two outputs, over the temperature."""
    return math.sqrt(2) / temperature


def decay(temperature: float) -> float:
    """The prior_std whose pull is a weight decay of 2 temperature |theta|^2 / t on the log loss."""
    return 1 / math.sqrt(4 * temperature)


class Rectifiers(eqx.Module):
    """Draws networks with weights of variance 1 / inputs, cut off at two standard deviations.

    pull: 1 anchors a member to its draw, 0 pulls it to zero.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=HIDDEN)
    scale: float = eqx.field(static=True, default=1.0)
    pull: float = eqx.field(static=True, default=0.0)

    def __call__(self, key: Array) -> es.networks.MLP:
        widths = [DIM + 1, *self.hidden]
        shapes = [(n, m) for m, n in pairwise(widths)] + [(widths[-1],)]
        keys = jax.random.split(key, len(shapes))
        drawn = [
            jax.random.truncated_normal(k, -2.0, 2.0, shape) / math.sqrt(shape[-1])
            for k, shape in zip(keys, shapes, strict=True)
        ]
        return es.networks.MLP([*drawn[:-1], self.scale * drawn[-1]], 0.0, False, True)


class World(NamedTuple):
    actions: Array
    means: Array


class NeuralTestbed(eqx.Module):
    """Rewards of 1 with the chance a random network gives, else 0."""

    temperature: float

    def init(self, key: Array) -> World:
        actions_key, network_key = jax.random.split(key)
        actions = jax.random.normal(actions_key, (ARMS, DIM))
        odds = jax.vmap(Rectifiers()(network_key))(actions)
        return World(actions, jax.nn.sigmoid(scale(self.temperature) * odds))

    def offer(self, key: Array, world: World) -> es.core.Round:
        return es.core.Round(world.actions, world.means)

    def outcome(self, key: Array, world: World, action: es.core.Action) -> Array:
        return jax.random.bernoulli(key, world.means[action.index]).astype(float)


def network(t: float, make: Any, **changes: Any) -> es.Network:
    """As published: raw weights, and a pull that weakens with the data."""
    settings: dict[str, Any] = {"noise_std": 0.5, "prior_std": decay(t), "learning_rate": RATE}
    settings |= changes | {"steps": 1, "batch": BATCH, "loss": es.learners.CrossEntropy()}
    return es.Network(make, DIM, CAPACITY, **settings)


def ours(t: float, **changes: Any) -> es.Network:
    """Anchored to draws of the world's prior, in its units."""
    make = Rectifiers(scale=scale(t), pull=1.0)
    return network(t, make, **{"prior_std": None, "learning_rate": 10 * RATE} | changes)


def told_nothing(t: float) -> es.Network:
    """What one gets who gives nothing but sizes."""
    make = es.networks.GaussianMLP(DIM, HIDDEN)
    return network(t, make, noise_std=None, prior_std=None, learning_rate=0.03)


def prior_functions(t: float, members: int) -> es.ThompsonSampling:
    make = es.learners.RandomisedPrior(Rectifiers(), 3 * math.sqrt(2 / t), Rectifiers())
    return es.EnsembleSampling(network(t, make), members, es.posteriors.Unperturbed())


def epinet(t: float) -> es.core.Posterior:
    width = 8
    learner = network(t, Rectifiers(), prior_std=decay(t) / math.sqrt(0.2))
    prior, size = Rectifiers((5, 5)), 0.3 / t * math.sqrt(2 * width)
    return es.posteriors.Epinet(learner, width, (15, 15), prior, size, width, perturbed=False)


def hypermodel(t: float, indices: int) -> es.core.Posterior:
    return es.posteriors.Hypermodel(ours(t), 5, indices, perturbed=False)


def anchored(t: float, members: int) -> es.ThompsonSampling:
    return es.EnsembleSampling(ours(t), members, es.posteriors.Unperturbed())


AGENTS: dict[str, Callable[[float], Any]] = {
    "plain": lambda t: es.Greedy(network(t, Rectifiers())),
    "epsilon": lambda t: es.EpsilonGreedy(network(t, Rectifiers()), 0.05),
    "ensemble": lambda t: es.EnsembleSampling(
        network(t, Rectifiers()), 100, es.posteriors.Unperturbed()
    ),
    "ensemble+": lambda t: prior_functions(t, 100),
    "ensemble+ 10": lambda t: prior_functions(t, 10),
    "dropout": lambda t: es.posteriors.Dropout(network(t, Rectifiers((100, 100))), 0.1),
    "hypermodel": lambda t: hypermodel(t, 128),
    "hypermodel 10": lambda t: hypermodel(t, 10),
    "epinet": epinet,
    "ours 10": lambda t: es.EnsembleSampling(ours(t), 10),
    "ours 30": lambda t: es.EnsembleSampling(ours(t), 30),
    "ours 100": lambda t: es.EnsembleSampling(ours(t), 100),
    "anchored 10": lambda t: anchored(t, 10),
    "anchored 30": lambda t: anchored(t, 30),
    "anchored 100": lambda t: anchored(t, 100),
    "told nothing 10": lambda t: es.EnsembleSampling(told_nothing(t), 10),
    "told nothing 30": lambda t: es.EnsembleSampling(told_nothing(t), 30),
    "langevin": lambda t: es.posteriors.Langevin(ours(t)),
    "langevin 10": lambda t: es.posteriors.Langevin(ours(t), 10),
    "ensemble++": lambda t: es.posteriors.EnsemblePlus(ours(t), 10),
    "ensemble++ unperturbed": lambda t: es.posteriors.EnsemblePlus(ours(t), 10, perturbed=False),
    "backprop": lambda t: es.posteriors.BayesByBackprop(ours(t), 0.1, 1),
}
PUBLISHED = {
    "plain": (2205, 1),
    "ensemble": (1395, 100),
    "ensemble+": (468, 200),
    "dropout": (388, 2.7),
    "hypermodel": (179, 171),
    "epinet": (180, 3),
}
"""Total regret, and operations relative to the plain network's."""


def as_agent(thing: Any) -> Any:
    return thing if hasattr(thing, "act") else es.ThompsonSampling(thing)


class Run(NamedTuple):
    """Where a seed stands: its world, its agent's state and its keys."""

    world: World
    state: Any
    keys: Array


def start(place: NeuralTestbed, agent: Any, seed: Array) -> Run:
    """Every agent meets the same worlds and, action by action, its own outcomes."""
    world_key, agent_key, run_key = jax.random.split(jax.random.key(seed), 3)
    return Run(place.init(world_key), agent.init(agent_key), run_key)


def chunk(
    place: NeuralTestbed, agent: Any, run: Run, first: Array, periods: int
) -> tuple[Run, Array]:
    """The regret of the periods from `first` on, and where they lead."""
    world, keys = run.world, run.keys

    def period(state: Any, t: Array) -> tuple[Any, Array]:
        act_key, outcome_key, update_key = jax.random.split(jax.random.fold_in(keys, t), 3)
        index = agent.act(act_key, state, world.actions)
        action = es.core.Action(index, world.actions[index])
        outcome = place.outcome(outcome_key, world, action)
        regret = world.means.max() - world.means[index]
        return agent.update(update_key, state, action, outcome), regret

    state, regret = jax.lax.scan(period, run.state, first + jnp.arange(periods))
    return run._replace(state=state), regret


def operations(agent: Any) -> tuple[float, float]:
    """Of one update and of one decision, as counted before compilation on any machine."""
    with jax.default_device(jax.devices("cpu")[0]):  # a GPU's compiler does not count
        key = jax.random.key(0)
        state = jax.eval_shape(agent.init, key)
        action = es.core.Action(jnp.int32(0), jnp.zeros(DIM))
        learn = jax.jit(agent.update).lower(key, state, action, jnp.zeros(()))
        act = jax.jit(agent.act).lower(key, state, jnp.zeros((ARMS, DIM)))
        counted: list[Any] = [learn.cost_analysis(), act.cost_analysis()]
    return counted[0]["flops"], counted[1]["flops"]


def parameters(agent: Any) -> int:
    """How many numbers are learned."""
    state: Any = jax.eval_shape(agent.init, jax.random.key(0))
    state = state[0] if isinstance(agent, es.EpsilonGreedy) else state
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state[1].model))


def played(
    place: NeuralTestbed, name: str, agent: Any, periods: int, seeds: list[int], step: int
) -> dict[str, Any]:
    """All seeds at once, `step` periods at a time."""
    starts = jax.jit(jax.vmap(lambda seed: start(place, agent, seed)))(jnp.asarray(seeds))
    begun = time.perf_counter()
    many = jax.vmap(lambda run, t: chunk(place, agent, run, t, step), in_axes=(0, None))
    go = jax.jit(many, donate_argnums=0).lower(starts, jnp.int32(0)).compile()
    compiling = time.perf_counter() - begun
    regrets, seconds = [], 0.0
    for first in range(0, periods, step):
        begun = time.perf_counter()
        starts, regret = jax.block_until_ready(go(starts, jnp.int32(first)))
        seconds += time.perf_counter() - begun
        regrets.append(np.asarray(regret, np.float64))
        total = np.concatenate(regrets, axis=1).sum(axis=1)
        print(f"{name:15} {first + step:6d} {total.mean():8.1f} {seconds:8.1f} s", flush=True)
    regret = np.cumsum(np.concatenate(regrets, axis=1), axis=1)
    state = starts.state
    diverged = jax.vmap(lambda s: es.core.fact(agent, "diverged")(s))(state)
    totals = {"total_regret_by_seed": regret[:, -1].tolist()}
    return {
        "agent": repr(agent),
        **totals,
        **summed(totals),
        "regret_by_period": {
            str(t + 1): regret[:, t].mean() for t in range(step - 1, regret.shape[1], step)
        },
        "diverged": int(np.asarray(diverged).sum()),
        "seconds": seconds,
        "seconds_of_compilation": compiling,
    }


def summed(run: dict[str, Any]) -> dict[str, Any]:
    """The mean over seeds and its standard error."""
    totals = np.asarray(run["total_regret_by_seed"])
    stderr = totals.std(ddof=1) / math.sqrt(len(totals)) if len(totals) > 1 else None
    return {"total_regret": totals.mean(), "standard_error": stderr}


def joined(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Two runs of an agent on different seeds as one; its seconds stay those of the first."""
    if one["periods"] != two["periods"] or set(one["seeds"]) & set(two["seeds"]):
        raise ValueError("runs can be joined if their periods are the same and their seeds are not")
    both = {key: one[key] + two[key] for key in ("seeds", "total_regret_by_seed")}
    share = len(one["seeds"]) / len(both["seeds"])
    curves = [run["regret_by_period"] for run in (one, two)]
    both["regret_by_period"] = {
        t: share * curves[0][t] + (1 - share) * curves[1][t] for t in curves[0] if t in curves[1]
    }
    both |= {"diverged": one["diverged"] + two["diverged"], "seeds_timed": len(one["seeds"])}
    return one | both | summed(both)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parse.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS), metavar="NAME")
    parse.add_argument("--periods", type=int, default=50_000)
    parse.add_argument("--seeds", type=int, default=10, help="how many, all run at once")
    parse.add_argument("--first-seed", type=int, default=1000, help="settings saw 0 to 103")
    parse.add_argument("--temperature", type=float, default=0.1, help="of the log-odds")
    parse.add_argument("--chunk", type=int, default=1000, help="periods per compiled call")
    parse.add_argument("--out", type=Path, default=Path("results/benchmarks/neural_testbed.json"))
    parse.add_argument("--join", type=Path, help="a file of other seeds to add, and run nothing")
    parse.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    given = parse.parse_args()
    plain, looks = operations(AGENTS["plain"](given.temperature))
    found: dict[str, Any] = {"agents": {}}
    if given.out.exists():
        found = json.loads(given.out.read_text())
    if given.join is not None:
        for name, run in json.loads(given.join.read_text())["agents"].items():
            found["agents"][name] = joined(found["agents"][name], run)
        given.out.write_text(json.dumps(found, indent=1) + "\n")
        return
    found |= {"periods": given.periods, "device": str(jax.devices()[0]), "jax": jax.__version__}
    found |= {"python": platform.python_version(), "temperature": given.temperature}
    seeds = list(range(given.first_seed, given.first_seed + given.seeds))
    step = min(given.chunk, given.periods)
    if given.periods % step:
        parse.error(f"--chunk {step} must divide --periods {given.periods}")
    for name in given.agents:
        agent = as_agent(AGENTS[name](given.temperature))
        learn, act = operations(agent)
        cost = {
            "parameters": parameters(agent),
            "operations_of_an_update": learn / plain,
            "operations_of_a_decision": act / looks,
            "published": dict(zip(("total_regret", "operations"), PUBLISHED[name], strict=True))
            if name in PUBLISHED
            else None,
        }
        print(f"{name:15} {cost}", flush=True)
        if given.list:
            continue
        place = NeuralTestbed(given.temperature)
        run = {"periods": given.periods, "temperature": given.temperature, "seeds": seeds}
        run |= played(place, name, agent, given.periods, seeds, step)
        found["agents"][name] = run | cost
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
