"""How fast a network ensemble learns: against a plain NumPy loop, and over a long life.

python benchmarks/network_speed.py numpy     two CPU cores: ratio to a per-member loop
python benchmarks/network_speed.py gpu       1,000 realizations, 1,000 periods: the kernel against
                                             the same steps one by one, and against the device
python benchmarks/network_speed.py constant  time and memory per update, early and late
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ensemble_sampling as es
from ensemble_sampling.files import write_json

DIM, HIDDEN, ARMS, NOISE_STD, BATCH, STEPS, RATE = 100, 50, 100, 10.0, 64, 3, 0.1


OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "network_gpu.json"


def other_name_for_sgd(rate: Any) -> optax.GradientTransformation:
    """The same steps, which the kernel does not know."""
    return optax.sgd(rate)


def learner(capacity: int, optimizer: Callable[[Any], Any] = optax.sgd) -> es.Network:
    make = es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=1.0)
    how: Any = {"steps": STEPS, "batch": BATCH, "learning_rate": RATE, "optimizer": optimizer}
    return es.Network(make, DIM, capacity, NOISE_STD, 1.0, **how)


def numpy_loop(members: int, periods: int, rng: np.random.Generator) -> np.ndarray:
    """One realization of Section 5.2, model by model, as one would first write it."""
    actions = rng.uniform(-1, 1, (ARMS, DIM))
    actions[:, -1] = 1
    w1, w2 = rng.normal(size=(HIDDEN, DIM)), rng.normal(size=HIDDEN)
    means = np.maximum(0, actions @ w1.T) @ w2
    start1, start2 = rng.normal(size=(members, HIDDEN, DIM)), rng.normal(size=(members, HIDDEN))
    model1, model2 = start1.copy(), start2.copy()
    inputs, targets = np.zeros((periods, DIM)), np.zeros((members, periods))
    regret = np.zeros(periods)
    for t in range(periods):
        m = rng.integers(members)
        hidden = actions @ model1[m].T
        a = int(np.argmax(np.maximum(0.01 * hidden, hidden) @ model2[m]))
        regret[t] = means.max() - means[a]
        inputs[t] = actions[a]
        outcome = means[a] + NOISE_STD * rng.normal()
        for m in range(members):
            targets[m, t] = outcome + NOISE_STD * rng.normal()
            for _ in range(STEPS):
                rows = rng.integers(t + 1, size=BATCH)
                x, y = inputs[rows], targets[m, rows]
                before = x @ model1[m].T
                hidden = np.maximum(0.01 * before, before)
                error = 2 * (hidden @ model2[m] - y) / NOISE_STD**2 / BATCH
                back = error[:, None] * model2[m] * np.where(before >= 0, 1, 0.01)
                model2[m] -= RATE * (error @ hidden + 2 * (model2[m] - start2[m]) / (t + 1))
                model1[m] -= RATE * (back.T @ x + 2 * (model1[m] - start1[m]) / (t + 1))
    return regret


def against_numpy(members: int = 10, realizations: int = 8, periods: int = 200) -> None:
    """Ours runs once after every realization of the loop, so that both meet the same machine."""
    agent = es.EnsembleSampling(learner(periods), members)
    run = lambda seed: es.simulate(agent, es.NetworkBandit(), periods, realizations, seed=seed)  # noqa: E731
    run(0)
    loops, ours = [], []
    for repeat in range(5):
        for r in range(realizations):
            began = time.perf_counter()
            numpy_loop(members, periods, np.random.default_rng([repeat, r]))
            loops.append(time.perf_counter() - began)
            ours.append(run(realizations * repeat + r).seconds)
    loop, our = realizations * statistics.median(loops), statistics.median(ours)
    print(
        f"{members} members, {realizations} realizations, {periods} periods, medians of "
        f"{len(ours)}: NumPy loop {loop:.2f} s, ours {our:.2f} s, ratio {loop / our:.1f}"
    )


def seconds_of(work: Callable[[], Any], repeats: int = 5, calls: int = 20) -> float:
    """Median after one call to compile, of several calls at a time: to wait for each takes long."""
    jax.block_until_ready(work())
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready([work() for _ in range(calls)])
        took.append((time.perf_counter() - began) / calls)
    return statistics.median(took)


def device_limits() -> dict[str, float]:
    """What the device does at best: operations of half-precision products, bytes moved."""
    side, many = 8192, 2**29
    a = jax.random.normal(jax.random.key(0), (side, side), jnp.float16)
    x = jax.random.normal(jax.random.key(1), (many,))
    product, copy = jax.jit(lambda a: a @ a.T), jax.jit(lambda x: x + 1)
    return {
        "operations per second": 2 * side**3 / seconds_of(lambda: product(a)),
        "bytes per second": 2 * 4 * many / seconds_of(lambda: copy(x)),
    }


def on_gpu(realizations: int = 1000, periods: int = 1000) -> None:
    """Every time is of a whole simulation after compilation; regret is compared world by world."""
    limits, rows = device_limits(), []
    print(
        "members  kernel s (spread)    steps s  ratio  limit s  of limit  diverged  regret, pairs"
    )
    for members, repeats in ((10, 5), (30, 5), (100, 3)):
        work = members * realizations * periods
        weights = HIDDEN * DIM + HIDDEN
        needed = {
            "operations": work * STEPS * 4 * BATCH * weights,
            "bytes": work * 3 * 4 * weights,  # weights in and out, their start in
        }
        limit = max(
            needed["operations"] / limits["operations per second"],
            needed["bytes"] / limits["bytes per second"],
        )
        ours = _timed(learner(periods), members, realizations, periods, repeats)
        plain = _timed(
            learner(periods, other_name_for_sgd), members, realizations, periods, 1 + (repeats > 3)
        )
        kernel, steps = statistics.median(ours["seconds"]), statistics.median(plain["seconds"])
        change = (ours["result"].regret - plain["result"].regret).mean(axis=1)
        half = 1.96 * change.std(ddof=1) / len(change) ** 0.5
        row = {
            "members": members,
            "kernel": ours["seconds"],
            "steps one by one": plain["seconds"],
            "compilation": [ours["first"], plain["first"]],
            "ratio": steps / kernel,
            "needed": needed,
            "limit": limit,
            "fraction of limit": limit / kernel,
            "diverged": [ours["result"].diverged, plain["result"].diverged],
            "mean regret": [float(r["result"].mean.mean()) for r in (ours, plain)],
            "paired change of mean regret": [
                float(change.mean() - half),
                float(change.mean() + half),
            ],
        }
        rows.append(row)
        spread = f"({min(ours['seconds']):.2f} to {max(ours['seconds']):.2f})"
        low, high = row["paired change of mean regret"]
        print(
            f"{members:7} {kernel:9.2f} {spread:15} {steps:5.2f} {row['ratio']:6.1f} {limit:8.2f} "
            f"{row['fraction of limit']:9.0%} {row['diverged'][0]:4} {row['diverged'][1]:4}  "
            f"{low:+.3f} to {high:+.3f}",
            flush=True,
        )
    found = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "realizations": realizations,
        "periods": periods,
        "limits": limits,
        "rows": rows,
    }
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    write_json(path, found)


def _timed(
    learner: es.Network, members: int, realizations: int, periods: int, repeats: int
) -> dict[str, Any]:
    """Seconds of a first run, with compilation, and of others; the first one's result."""
    agent = es.EnsembleSampling(learner, members)

    def run() -> es.simulation.Result:
        return es.simulate(
            agent, es.NetworkBandit(), periods, realizations, keep=True, progress=False
        )

    first = run()
    return {
        "result": first,
        "first": first.seconds,
        "seconds": [run().seconds for _ in range(repeats)],
    }


def constant_cost(members: int = 10, capacity: int = 500) -> None:
    """States of age 1,000 and 100,000 are updated by turns: the machine cannot favour either."""
    agent = es.EnsembleSampling(learner(capacity), members)
    features = jax.random.normal(jax.random.key(0), (100, DIM))

    @jax.jit
    def hundred(state, key):
        def one(state, key):
            i = jax.random.randint(key, (), 0, 100)
            y = jax.random.normal(key)
            return agent.update(key, state, es.core.Action(i, features[i]), y), None

        return jax.lax.scan(one, state, jax.random.split(key, 100))[0]

    size = lambda state: sum(leaf.nbytes for leaf in jax.tree.leaves(state))  # noqa: E731
    keys = jax.random.split(jax.random.key(1), 2000)
    state, states, resident = agent.init(jax.random.key(2)), {}, {}
    for t in range(1000):
        if t == 10:
            states["1,000"], resident["1,000"] = state, _resident()
        state = jax.block_until_ready(hundred(state, keys[t]))
    states["100,000"], resident["100,000"] = state, _resident()
    seconds = {age: [] for age in states}
    for key in keys[1000:1200]:
        for age, state in states.items():
            began = time.perf_counter()
            jax.block_until_ready(hundred(state, key))
            seconds[age].append((time.perf_counter() - began) / 100)
    for age, took in seconds.items():
        print(
            f"after {age:>7} observations: {statistics.median(took) * 1e6:.0f} us per update "
            f"(median of {len(took)}), state {size(states[age]):,} bytes, "
            f"process {resident[age] / 2**20:.0f} MiB"
        )
    early, late = seconds.values()
    print(f"late / early {statistics.median(b / a for a, b in zip(early, late, strict=True)):.3f}")


def _resident() -> int:
    """Bytes of memory the process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    {"numpy": against_numpy, "gpu": on_gpu, "constant": constant_cost}[
        sys.argv[1] if len(sys.argv) > 1 else "numpy"
    ]()
