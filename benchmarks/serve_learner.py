"""How many outcomes a second one learner manages, and what a follower's look costs.

python benchmarks/serve_learner.py --out results/benchmarks/serve_learner.json
"""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportGeneralTypeIssues=false

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from serve_load import bodies

from ensemble_sampling.serve.decider import Decider
from ensemble_sampling.serve.replicas import Replicas
from ensemble_sampling.serve.types import Choose, Learn
from ensemble_sampling.serve.updater import Updater


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    asked = [json.loads(body) for body in bodies(random.Random(0))]
    with tempfile.TemporaryDirectory() as folder:
        replicas = Replicas(Path(folder) / "one")
        front, updater = Decider(replicas), Updater(replicas, Path(folder) / "one")
        rng, took = np.random.default_rng(0), []
        for start in range(0, args.outcomes, 250):
            asks = [Choose(**asked[(start + n) % len(asked)]) for n in range(250)]
            began = time.perf_counter()
            (made,), _ = front.work([asks], [])
            took.append((time.perf_counter() - began) / 250)
            front.work([], [[Learn(one.id, float(rng.random() < 0.3)) for one in made]])
            if start < 2000:  # the last time units change is at 1,024 outcomes
                while replicas.main.version.outcomes < start + 250:
                    updater.step()
        first, began = replicas.main.version.outcomes, time.perf_counter()
        while replicas.main.version.outcomes < args.outcomes:
            updater.step()
        jax.block_until_ready(replicas.main.version.state)
        seconds = time.perf_counter() - began
        packed = updater._replica.packed(updater._ledger)
        found = {
            "outcomes_per_second": (args.outcomes - first) / seconds,
            "ms_per_outcome": 1e3 * seconds / (args.outcomes - first),
            "ms_per_decision_in_batches": 1e3 * float(np.median(took[4:])),
            "bytes_of_a_state": len(packed),
        }
        updater.close()
        replicas.close()
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
