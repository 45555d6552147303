"""What it costs that a decision knows only the outcomes of some time ago.

Ten thousand decisions among ten actions with twenty features, new ones every time; an ensemble of
30 linear models. Two kinds of delay: every outcome is learned so many decisions late (a slow
learner, or people who click late), or the state is taken over only every so many decisions (a
worker that looks seldom). Regret against the best action, in the share of what knowing nothing
(chance) would lose.

    python benchmarks/serve_staleness.py --out results/benchmarks/serve_staleness.json
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es

ACTIONS, DIM, NOISE = 10, 20, 1.0


def play(key, agent, periods: int, late: int, every: int):
    """(regret, regret of chance) summed over all periods of one world."""
    world, start, run = jax.random.split(key, 3)
    theta = jax.random.normal(world, (DIM,)) / jnp.sqrt(DIM)
    state = agent.init(start)
    size = late + 1
    held = (jnp.zeros((size, DIM)), jnp.zeros(size))

    def period(carry, t):
        learned, used, (rows, outcomes) = carry
        offer, act, noise, update = jax.random.split(jax.random.fold_in(run, t), 4)
        features = jax.random.normal(offer, (ACTIONS, DIM))
        used = jax.tree.map(lambda new, old: jnp.where(t % every == 0, new, old), learned, used)
        index = agent.act(act, used, features)
        values = features @ theta
        y = values[index] + NOISE * jax.random.normal(noise)
        place = t % size
        rows, outcomes = rows.at[place].set(features[index]), outcomes.at[place].set(y)
        oldest = (t + 1) % size  # of t - late
        action = es.core.Action(jnp.int32(0), rows[oldest])
        after = agent.update(update, learned, action, outcomes[oldest])
        learned = jax.tree.map(lambda a, b: jnp.where(t >= late, a, b), after, learned)
        lost = jnp.array([values.max() - values[index], values.max() - values.mean()])
        return (learned, used, (rows, outcomes)), lost

    return jax.lax.scan(period, (state, state, held), jnp.arange(periods))[1].sum(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--periods", type=int, default=10_000)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    agent = es.EnsembleSampling(es.Linear(DIM, NOISE, prior_std=DIM**-0.5), members=30)
    keys, rows = jax.random.split(jax.random.key(0), args.worlds), []
    for kind in ("late", "every"):
        for delay in (0, 1, 10, 100, 1000, 3000):
            late, every = (delay, 1) if kind == "late" else (0, max(1, delay))
            if kind == "every" and delay < 10:
                continue
            run = jax.jit(jax.vmap(lambda k, s=late, e=every: play(k, agent, args.periods, s, e)))
            lost = np.asarray(run(keys))
            share = lost[:, 0] / lost[:, 1]
            error = share.std(ddof=1) / np.sqrt(len(share))
            rows.append({"kind": kind, "decisions": delay, "lost": float(share.mean()),
                         "stderr": float(error)})  # fmt: skip
            print(f"{kind:6} {delay:5} decisions: loses {share.mean():.4f} ± {error:.4f} of what "
                  "chance loses", flush=True)  # fmt: skip
    if args.out:
        about = {"periods": args.periods, "worlds": args.worlds, "actions": ACTIONS, "dim": DIM}
        args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
