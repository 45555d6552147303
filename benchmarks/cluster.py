"""What a cluster costs: chunks on a Ray cluster of two nodes beside the same on this machine.

Both nodes are on this one machine, with a core each: this measures what a chunk costs beyond its
computation, and not how fast a network is. Empty chunks cost nothing but that; full ones are of
Figure 1's kind, and show what is left of two cores' speed.

python benchmarks/cluster.py     two cores: a minute
"""

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import ray
from ray.cluster_utils import Cluster

import ensemble_sampling as es
from ensemble_sampling.files import write_json

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "cluster.json"
NODE: Any = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
ROUNDS = 3
NAMES = ("arms", "periods", "realizations", "chunks")


def seconds(
    engine: es.simulation.Engine, arms: int, periods: int, chunk: int, chunks: int
) -> float:
    """Of a chunk of a run that was compiled before, the median of a few runs."""
    learner = es.IndependentArms(arms=arms, noise_std=1.0)
    agent, world = es.EnsembleSampling(learner, members=10), es.GaussianArms(arms=arms)
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        es.simulate(
            agent, world, periods, chunks * chunk, chunk=chunk, progress=False, engine=engine
        )
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:]) / chunks


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False)
    sizes = {"empty": (2, 1, 1, 128), "full": (50, 500, 512, 16)}
    found = {
        name: {
            "local": seconds(es.simulation.Local(), *size),
            "ray": seconds(es.simulation.Ray(), *size),
        }
        for name, size in sizes.items()
    }
    ray.shutdown()
    cluster.shutdown()
    about = {
        "jax": jax.__version__,
        "ray": ray.__version__,
        "machine": f"CPU ({platform.machine()}, {os.cpu_count()} cores), nodes: 2 of one core",
        "load": os.getloadavg()[0],
        "sizes": {k: dict(zip(NAMES, v, strict=True)) for k, v in sizes.items()},
    }
    write_json(OUT, {**about, "seconds per chunk": found})
    print(found)


if __name__ == "__main__":
    main()
