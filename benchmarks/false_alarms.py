"""How often the default agent takes a world that stays for one that has changed.

    python benchmarks/false_alarms.py --worlds 4

Every world is played for 50,000 outcomes by the pure agent, with a context of five numbers and
without any. It should raise at most one false alarm in 50,000 outcomes; alarms of all models
and of single ones are counted alike.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from worlds import wheel

from ensemble_sampling.core import Action
from ensemble_sampling.decide.default import Default

OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "false_alarms.json"
OUTCOMES, ACTIONS, WIDTH = 50_000, 4, 5
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def _clicks(level: float, rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    return (rng.random(means.shape) < 1 / (1 + np.exp(-level - means))) * 1.0


def _unequal(rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    return means + rng.normal(size=means.shape) * np.exp(rng.normal(size=means.shape[1]))


def _revenue(rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    return (rng.random(means.shape) < 0.05) * np.exp(means + rng.normal(size=means.shape))


def _classes(rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    return np.eye(means.shape[1])[means.argmax(axis=1)]


DRAWS: dict[str, Draw] = {
    "Gaussian": lambda rng, means: means + rng.normal(size=means.shape),
    "t(3)": lambda rng, means: means + rng.standard_t(3, size=means.shape),
    "unequal noise": _unequal,
    "clicks of 1%": partial(_clicks, -4.6),
    "clicks of 50%": partial(_clicks, 0.0),
    "revenue": _revenue,
    "classes": _classes,
}


def world(name: str, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts, and what every action pays in each."""
    if name == "wheel":
        table = wheel(0.95, seed, OUTCOMES)
        return table.contexts, table.rewards
    rng = np.random.default_rng([11, seed])
    contexts = rng.normal(size=(OUTCOMES, width))
    slopes = rng.normal(size=(width, ACTIONS)) / np.sqrt(max(1, width))
    offsets = 0.0 if width else rng.normal(size=ACTIONS)
    return contexts, DRAWS[name](rng, contexts @ slopes + offsets)


def player(agent: Any) -> Callable[..., Any]:
    @jax.jit
    def play(key: Any, contexts: Any, rewards: Any) -> Any:
        def step(carry: Any, seen: Any) -> Any:
            (state, key), (context, each) = carry, seen
            key, draw, learn = jax.random.split(key, 3)
            rows = jnp.broadcast_to(context, (1 if len(context) else each.size, context.size))
            index = agent.act(draw, state, rows)
            return (agent.update(learn, state, Action(index, context), each[index]), key), None

        (state, _), _ = jax.lax.scan(step, (agent.init(key), key), (contexts, rewards))
        return agent.changes(state)

    return play


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--worlds", type=int, default=4, help="of a kind")
    options.add_argument("--out", type=Path, default=OUT)
    given, rows = options.parse_args(), []
    for width in (WIDTH, 0):
        for name in [*DRAWS, *(["wheel"] if width else [])]:
            alarms, play = 0, None
            for seed in range(given.worlds):
                contexts, rewards = (jnp.asarray(p, float) for p in world(name, width, seed))
                if play is None:
                    play = player(Default().agent(rewards.shape[1], contexts.shape[1], False))
                found = play(jax.random.key(seed), contexts, rewards)
                alarms += int(found.all) + int(found.one)
            rows.append({"world": name, "width": width, "alarms": alarms})
            print(f"{name}, context of {width}: {alarms} alarms", file=sys.stderr, flush=True)
    each = given.worlds * OUTCOMES
    total = sum(row["alarms"] for row in rows)
    print(f"{total} false alarms in {len(rows) * each:,} outcomes")
    text = json.dumps({"outcomes": each, "runs": rows}, indent=1)
    given.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
