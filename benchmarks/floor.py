"""What a floor and a holdback cost over a learning run, and how usable they make its log.

    python benchmarks/floor.py                       # a few minutes

Ten actions with chances of a click drawn from a beta law, Thompson sampling, `--decisions` each,
outcomes learned every 50. For every floor:

    price        of what the bandit earns beyond chance without one, how much less it earned; its
                 standard error is over worlds, in which all are compared
    uncovered    of the choices of a uniform policy, those that the log could not have made
    effective    of the decisions, how many evaluating that policy counts as (Kish), where covered

and for a holdback of 10%, the price over the bandit's own decisions alone.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import ensemble_sampling as es

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "floor.json"
ARMS, BATCH, NEVER = 10, 50, 1e-6
KINDS = {
    **{f"floor {floor}": {"floor": floor} for floor in (0.0, 0.01, 0.02, 0.05, 0.1)},
    "holdback 0.1": {"holdback": 0.1},
}


def run(world, decisions, **given):
    """(mean chance of what was chosen, likelihoods of all actions and of those chosen)."""
    rng = np.random.default_rng([world, 1])
    rates = np.random.default_rng(world).beta(2, 8, ARMS)
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(ARMS)))
    bandit, worth, shares, chosen = es.Bandit(agent, seed=world, **given), [], [], []
    for _ in range(decisions // BATCH):
        made = bandit.choose_many(contexts=[None] * BATCH)
        clicks = rng.random(BATCH) < rates[[one.index for one in made]]
        bandit.learn_many([(one.id, float(y)) for one, y in zip(made, clicks, strict=True)])
        worth += [rates[one.index] for one in made if not one.control]
        shares += [one.probabilities for one in made]
        chosen += [one.probability for one in made]
    return np.mean(worth), rates.mean(), np.array(shares), np.array(chosen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    found = {
        kind: [run(world, options.decisions, **given) for world in range(options.worlds)]
        for kind, given in KINDS.items()
    }
    first, rows = found["floor 0.0"], {}
    for kind, runs in found.items():
        pairs = zip(first, runs, strict=True)
        price = np.array([(a[0] - b[0]) / (a[0] - a[1]) for a, b in pairs])
        shares = np.concatenate([one[2] for one in runs])
        weight = 1 / ARMS / np.concatenate([one[3] for one in runs])
        rows[kind] = {
            "price": float(price.mean()),
            "stderr": float(price.std(ddof=1) / np.sqrt(len(price))),
            "uncovered": float((shares < NEVER).mean()),
            "effective": float(weight.sum() ** 2 / np.square(weight).sum() / len(weight)),
        }
        print(kind, *(f"{name} {value:.3f}" for name, value in rows[kind].items()), flush=True)
    about = {"worlds": options.worlds, "decisions": options.decisions}
    options.out.write_text(json.dumps({**about, **rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
