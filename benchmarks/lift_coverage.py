"""How often the intervals of `bandit.lift()` hold the truth at every look of a month.

    python benchmarks/lift_coverage.py                  # 1,000 months of each kind, half an hour
    python benchmarks/lift_coverage.py --months 100

A month has 30 days, and is looked at after each. A tenth is left to the baseline, which always
takes the first of four actions; the bandit begins with all alike and comes to prefer another one.
Kinds:

    reward    clicks of 1%; purchases in 3% whose amounts are lognormal (sigma 1.5) or have the tail
              of a Pareto law (exponent 2.5: their third moment is infinite)
    effect    none; or the action that is preferred brings half as much again
    subjects  none, every decision is drawn by itself; 250 who come three times a day each, drawn
              once for all, who differ in what they bring (a gamma law of shape 2); or the same with
              one decision a day each, which sticks

"missed" is the share of months in which any look's interval did not hold the truth of that look,
the ratio's by whether the contrast of the two at the true ratio excludes 0. "SRM" is how often the
test of shares said in any look that they are wrong.
"""

# pyright: reportOptionalOperand=false, reportOperatorIssue=false

import argparse
import json
import math
import platform
from itertools import product
from pathlib import Path

import numpy as np

from ensemble_sampling.decide.health import SURE
from ensemble_sampling.decide.lift import weights
from ensemble_sampling.sequences import Pair, evidence

DAYS, HELD, ACTIONS = 30, 0.1, 4
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "lift_coverage.json"
REWARDS = ("clicks", "lognormal", "pareto")
SUBJECTS = {"none": (0, 0), "repeated": (250, 3), "sticky": (250, 1)}


def drawn(rng, kind, chance):
    """Rewards whose means are in proportion to these chances."""
    came = rng.random(len(chance)) < chance
    if kind == "clicks":
        return came.astype(float)
    if kind == "lognormal":
        return came * np.exp(1.5 * rng.normal(size=len(chance)))
    return came * (1 + rng.pareto(2.5, size=len(chance)))


SIZE = {"clicks": 1.0, "lognormal": math.exp(1.5**2 / 2), "pareto": 2.5 / 1.5}
RATE = {"clicks": 0.01, "lognormal": 0.03, "pareto": 0.03}


def month(seed, kind, effect, subjects, per_day):
    """(columns of all decisions by day, true means of bandit and baseline after every day)."""
    rng = np.random.default_rng([seed, 7])
    people, times = SUBJECTS[subjects]
    count = per_day if not people else people * times
    day = np.repeat(np.arange(DAYS), count)
    who = np.arange(len(day))
    luck = np.ones(len(day))
    if people:
        who = np.tile(np.repeat(np.arange(people), times), DAYS)
        luck = (rng.gamma(2, 0.5, people))[who]
    rates = RATE[kind] * np.array([1.0, 1.0, 1.0, 1.0 + effect])
    speed = rng.uniform(1, 6)
    scores = speed * np.arange(DAYS)[:, None] / DAYS * (np.arange(ACTIONS) == ACTIONS - 1)
    policy = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    control = (rng.random(people or len(day)) < HELD)[who]
    mine = (rng.random(len(day))[:, None] > policy.cumsum(axis=1)[day]).sum(axis=1)
    chosen = np.where(control, 0, np.minimum(mine, ACTIONS - 1))
    baseline = (chosen == 0).astype(float)
    chance = HELD * baseline + (1 - HELD) * policy[day, chosen]
    reward = drawn(rng, kind, np.minimum(1.0, rates[chosen] * luck))
    # People differ, so what is true is true of those who came.
    weight = np.bincount(day, luck, DAYS).cumsum() / (count * np.arange(1, DAYS + 1))
    bandit = (policy @ rates).cumsum() / np.arange(1, DAYS + 1)
    worth = SIZE[kind] * weight[:, None] * np.stack([bandit, np.full(DAYS, rates[0])], axis=1)
    return (day, who, control, baseline, chance, reward), worth


def looks(seed, *about):
    """Whether any look of a month missed the difference or the ratio, said that there is an effect,
    or that shares are wrong; what the last look said, and how wide it was."""
    (day, who, control, baseline, chance, reward), worth = month(seed, *about)
    missed = np.zeros(4, bool)
    share, width, told = np.full(len(day), HELD), math.nan, False
    for look in range(DAYS):
        end = np.searchsorted(day, look, "right")
        _, units = np.unique(who[:end], return_inverse=True)
        both = weights(share[:end], baseline[:end], chance[:end], units)
        pair = Pair.of(both, reward[:end], units)
        firsts = np.unique(who[:end], return_index=True)[1]
        held = control[firsts].sum()
        missed[3] |= (
            evidence(np.array([held]), np.array([len(firsts) - held]), np.array([HELD])) > SURE
        )
        if pair is None:
            continue
        bandit, control_mean = worth[look]
        found = pair.difference()
        missed[0] |= not found.low <= bandit - control_mean <= found.high
        level = pair.estimate(1.0, -bandit / control_mean)
        missed[1] |= not level.low <= 0 <= level.high
        told = not found.low <= 0 <= found.high
        missed[2] |= told
        width = found.high - found.low
    return missed, told, width / worth[-1].mean()


def kind_of(months, *about):
    found = [looks(seed, *about) for seed in range(months)]
    missed = np.mean([one[0] for one in found], axis=0)
    return {
        "reward": about[0],
        "effect": about[1],
        "subjects": about[2],
        "per_day": about[3],
        "missed_difference": float(missed[0]),
        "missed_ratio": float(missed[1]),
        "ever_told": float(missed[2]),
        "told_at_the_end": float(np.mean([one[1] for one in found])),
        "srm": float(missed[3]),
        "width": float(np.median([one[2] for one in found])),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--months", type=int, default=1000)
    parser.add_argument("--per-day", type=int, nargs="*", default=[100, 500])
    parser.add_argument("--only", choices=[*SUBJECTS], nargs="*", default=[*SUBJECTS])
    parser.add_argument("--out", type=Path, default=OUT)
    options, rows = parser.parse_args(), []
    for reward, effect, subjects in product(REWARDS, (0.0, 0.5), options.only):
        for per_day in options.per_day if subjects == "none" else [0]:
            rows.append(kind_of(options.months, reward, effect, subjects, per_day))
            print(
                *(f"{v:.3f}" if isinstance(v, float) else v for v in rows[-1].values()), flush=True
            )
    about = {
        "months": options.months,
        "environment": f"Python {platform.python_version()}, numpy {np.__version__}",
    }
    options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
