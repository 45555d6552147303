"""What subjects cost: room on disk and in memory, and time to give one the same action again.

    python benchmarks/subjects.py                    # 100,000 subjects, a few minutes

Two ledgers have as many decisions, one with a subject each, which is given the same action for a
year. "again_ms" is the median time of `choose` for a subject that was seen, "new_ms" that of one
that was not, "plain_ms" that of a decision about nobody. "megabytes" is by how much the folder of
the first is larger, "memory" by how much more the process has after it opened it and asked for
2,000 subjects.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ensemble_sampling as es

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "subjects.json"
YEAR, BATCH, ASKED = 365 * 86400.0, 1000, 2000


def opened(folder, **given):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    return es.Bandit.open(folder, agent, actions=["a", "b", "c"], **given)


def filled(folder, count, subjects):
    with opened(folder, sticky=YEAR if subjects else 0.0) as bandit:
        for start in range(0, count, BATCH):
            names = [f"customer-{n}" for n in range(start, start + BATCH)]
            about = {"subjects": names} if subjects else {}
            bandit.choose_many(contexts=[None] * BATCH, **about)
    return sum(each.stat().st_size for each in Path(folder).iterdir()) / 1e6


def asked(folder, count):
    """Median milliseconds, and megabytes of the process, of `kind` of decisions; of an own process,
    since memory is that of its peak."""
    rng, took = np.random.default_rng(0), {}
    with opened(folder) as bandit:
        bandit.choose()
        known = [f"customer-{n}" for n in rng.integers(count, size=ASKED)]
        for kind, names in (
            ("plain", [None] * ASKED),
            ("again", known),
            ("new", [f"other-{n}" for n in range(ASKED)]),
        ):
            times = []
            for name in names:
                began = time.perf_counter()
                bandit.choose(subject=name)
                times.append(1000 * (time.perf_counter() - began))
            took[f"{kind}_ms"] = float(np.median(times))
    return {**took, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--ask", nargs=2)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(asked(options.ask[0], int(options.ask[1]))))
        return
    count, found = options.subjects, {}
    with tempfile.TemporaryDirectory() as place:
        for kind in ("without", "with"):
            folder = f"{place}/{kind}"
            size = filled(folder, count, kind == "with")
            ask = [sys.executable, __file__, "--ask", folder, str(count)]
            said = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
            found[kind] = {"megabytes": size, **json.loads(said)}
    rows = {
        "subjects": count,
        "megabytes": found["with"]["megabytes"] - found["without"]["megabytes"],
        "memory": found["with"]["peak"] - found["without"]["peak"],
        **{name: found["with"][name] for name in ("plain_ms", "again_ms", "new_ms")},
        "environment": f"Python {platform.python_version()}, a machine that did other work too",
    }
    print(json.dumps(rows, indent=1))
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
