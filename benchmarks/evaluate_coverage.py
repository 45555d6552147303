"""How often the 95% intervals of `es.evaluate` hold the truth, on logs whose truth is known.

    python benchmarks/evaluate_coverage.py                    # 1,000 logs of each kind, minutes
    python benchmarks/evaluate_coverage.py --repetitions 100

A log has 2,000 decisions among five actions in a context of four numbers. Its kinds:

    reward    linear in the context, or not (a sine of it and a checkerboard)
    model     of the reward, linear: of the context, or of numbers that have nothing to do with it
    weights   small (at most 10) or large (at most 50, an effective size of 6%), by the share of
              decisions that the logging policy left to chance
"""

import argparse
import json
import platform
from itertools import product
from pathlib import Path

import numpy as np

import ensemble_sampling as es

ACTIONS, DIM, DECISIONS = 5, 4, 2000
RNG = np.random.default_rng(1)
REWARD = RNG.normal(size=(DIM, ACTIONS)) / np.sqrt(DIM)
LOGGING, TARGET = RNG.normal(size=(2, DIM, ACTIONS))
FLOORS = {"small": 0.5, "large": 0.1}
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "evaluate_coverage.json"


def softmax(scores):
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def means(x, reward):
    """What every action earns on average."""
    linear = x @ REWARD
    return linear if reward == "linear" else np.sin(2 * linear) + (x[:, :1] * x[:, 1:2] > 0)


def target(x):
    """The policy to be evaluated."""
    return softmax(2 * x @ TARGET)


def truth(reward, rows=4_000_000):
    """Its value, to three digits more than an interval is wide."""
    rng, parts = np.random.default_rng(2), []
    for _ in range(rows // 500_000):
        x = rng.normal(size=(500_000, DIM))
        parts.append((target(x) * means(x, reward)).sum(axis=1).mean())
    return float(np.mean(parts))


def logged(seed, reward, model, weights, decisions=DECISIONS):
    """(a log, the target's probabilities)."""
    rng = np.random.default_rng([seed, 3])
    x = rng.normal(size=(decisions, DIM))
    floor = FLOORS[weights]
    shares = floor / ACTIONS + (1 - floor) * softmax(2 * x @ LOGGING)
    luck = rng.random((decisions, 1))
    chosen = np.minimum((luck > shares.cumsum(axis=1)).sum(axis=1), ACTIONS - 1)
    outcome = means(x, reward)[np.arange(decisions), chosen] + rng.normal(size=decisions)
    context = x if model == "good" else rng.normal(size=x.shape)
    return es.Log(chosen, outcome, propensities=shares, context=context), target(x)


def coverage(reward, model, weights, repetitions, value=None):
    """The share of logs whose interval holds the truth, for every estimate."""
    value = truth(reward) if value is None else value
    held, effective, largest, widths = {}, [], [], {}
    for seed in range(repetitions):
        found = es.evaluate(*logged(seed, reward, model, weights))
        effective.append(found.effective)
        largest.append(found.largest)
        for method, estimate in found.estimates.items():
            if estimate.low is None or estimate.high is None:  # it has none, for its bias
                continue
            held.setdefault(method, []).append(estimate.low <= value <= estimate.high)
            widths.setdefault(method, []).append(estimate.high - estimate.low)
    return {
        "reward": reward,
        "model": model,
        "weights": weights,
        "truth": value,
        "effective": float(np.median(effective)),
        "largest_weight": float(np.median(largest)),
        "coverage": {method: float(np.mean(inside)) for method, inside in held.items()},
        "width": {method: float(np.median(width)) for method, width in widths.items()},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    truths = {reward: truth(reward) for reward in ("linear", "nonlinear")}
    rows = []
    for kind in product(truths, ("good", "bad"), FLOORS):
        rows.append(coverage(*kind, options.repetitions, truths[kind[0]]))
        shown = {k: f"{v:.3f}" for k, v in rows[-1]["coverage"].items()}
        print(*kind, f"effective {rows[-1]['effective']:.0f}", shown, flush=True)
    about = {
        "repetitions": options.repetitions,
        "decisions": DECISIONS,
        "actions": ACTIONS,
        "environment": f"Python {platform.python_version()}, numpy {np.__version__}",
    }
    options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    for method in ("self-normalised", "doubly robust"):
        shares = [row["coverage"][method] for row in rows]
        print(f"{method}: {min(shares):.3f} to {max(shares):.3f}")


if __name__ == "__main__":
    main()
