"""What a sweep costs: beside one run with as many realizations, and beside a call for each point.

Sixty settings of Figure 2b's neuron (30 members, 500 periods, 200 realizations each). All three run
the same number of realizations of agents made before; compilation is timed apart, and counted.

python benchmarks/sweep_speed.py                      on a GPU: seconds; on two cores: an hour
python benchmarks/sweep_speed.py --realizations 20    two cores: minutes
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jax
import optax

import ensemble_sampling as es
from ensemble_sampling.files import read_json, write_json
from ensemble_sampling.simulation.programs import Run, _program, chunk_size
from ensemble_sampling.simulation.run import Task

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "sweep_speed.json"
NOISE_STD, PRIOR_STD = 10.0, 10**0.5
environment = es.worlds.NeuronBandit(dim=100, arms=100, noise_std=NOISE_STD, prior_std=PRIOR_STD)
SETTINGS = {
    "learning_rate": [0.01 * 1.3**i for i in range(12)],
    "prior_std": [1.0, 2.0, PRIOR_STD, 4.0, 5.0],
}


def agent(learning_rate: float, prior_std: float, periods: int, members: int) -> Any:
    learner = es.Network(
        es.networks.GaussianMLP(dim=100, hidden=(), prior_std=prior_std, squash=True),
        dim=100,
        capacity=periods,
        noise_std=NOISE_STD,
        prior_std=prior_std,
        learning_rate=learning_rate,
        steps=3,
        batch=64,
        optimizer=optax.sgd,
    )
    return es.EnsembleSampling(learner, members)


def device() -> str:
    if jax.default_backend() == "cpu":
        return f"CPU ({platform.machine()}, {os.cpu_count()} cores)"
    return jax.local_devices()[0].device_kind


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def both(call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, which others at work do not lengthen."""
    began = time.process_time()
    seconds = timed(call)
    return seconds, time.process_time() - began


def measure(periods: int, realizations: int, members: int, repeats: int) -> dict[str, Any]:
    def make(learning_rate: float, prior_std: float) -> Any:
        return agent(learning_rate, prior_std, periods, members)

    grid = product(SETTINGS["learning_rate"], SETTINGS["prior_std"])
    began = time.perf_counter()
    points = [{"agent": make(*point)} for point in grid]
    found: dict[str, Any] = {"build_agents": time.perf_counter() - began}
    one, lanes = make(0.1, PRIOR_STD), len(points) * realizations
    chunk = chunk_size(one, environment, periods, lanes)
    swept = [(point["agent"], environment) for point in points]
    ours = Task.of(swept, Run(periods, realizations, seed=0), None, None).work.size
    few = -(-ours // len(points))

    def sweep(each: int) -> Any:
        return es.sweep(lambda agent: agent, environment, points, periods, each, chunk=ours)

    def single(count: int) -> Any:
        return es.simulate(one, environment, periods, count, chunk=chunk)

    def calls(some: list[dict[str, Any]]) -> None:
        for point in some:
            es.simulate(point["agent"], environment, periods, realizations)

    before = _program.cache_info().misses
    found["compile_sweep"] = timed(lambda: sweep(max(2, few)))
    found["programs"] = _program.cache_info().misses - before
    found["compile_single"] = timed(lambda: single(chunk))
    found["compile_calls"] = timed(lambda: calls(points[:1]))
    work = {
        "single": lambda: single(lanes),
        "sweep": lambda: sweep(realizations),
        "calls": lambda: calls(points),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(repeats):  # in turns, so that what else the machine does falls on all
        for name, call in work.items():
            times[name].append(both(call))
    for name, taken in times.items():
        found[name] = statistics.median(seconds for seconds, _ in taken)
        found[f"{name}_processor"] = statistics.median(seconds for _, seconds in taken)
    found["share_of_single_rate"] = found["single"] / found["sweep"]
    found["share_by_processor"] = found["single_processor"] / found["sweep_processor"]
    return found | {
        "points": len(points),
        "lanes": lanes,
        "chunk": chunk,
        "chunk_sweep": ours,
        "times": times,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--periods", type=int, default=500)
    parser.add_argument("--realizations", type=int, default=200)
    parser.add_argument("--members", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    found = measure(given.periods, given.realizations, given.members, given.repeats)
    sizes = {name: getattr(given, name) for name in ("periods", "realizations", "members")}
    run = {"device": device(), **sizes, **found, "jax": jax.__version__}
    kept = read_json(given.out)["runs"] if given.out.exists() else []
    kept = [other for other in kept if other["device"] != run["device"]]
    write_json(given.out, {"runs": [*kept, run]})
    print(f"{run['device']}: {run['points']} points x {given.realizations} realizations")
    for name in ("sweep", "single", "calls"):
        rate = run["lanes"] / run[name]
        processor = f"{run[f'{name}_processor']:8.2f} s of processor time"
        print(f"  {name:7} {run[name]:8.2f} s {rate:10.1f} realizations/s {processor}")
    share = f"{run['share_of_single_rate']:.0%} of the single run's rate"
    by_processor = f"{run['share_by_processor']:.0%} by processor time"
    print(f"  {run['programs']} program(s) compiled for the sweep; {share}, {by_processor}")


if __name__ == "__main__":
    main()
