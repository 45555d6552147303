"""The agents that are compared: ours with its one configuration, each peer with two settings.

In a table an agent has choose(context) -> index and learn(reward); among late clicks it has
choose(items, user) -> (ticket, name) and learn_many([(ticket, reward), ...]). Packages are imported
when an agent is made, so that whoever lacks one can run the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from worlds import LATES, changes


class Uniform:
    def __init__(self, actions: int, seed: int, largest: float):
        self.rng, self.actions = np.random.default_rng(seed), actions

    def choose(self, context: np.ndarray) -> int:
        return int(self.rng.integers(self.actions))

    def learn(self, reward: float) -> None:
        pass


class LateUniform:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def choose(self, items: dict[str, dict], user: dict) -> tuple[Any, str]:
        return None, list(items)[self.rng.integers(len(items))]

    def learn_many(self, outcomes: Iterable[tuple[Any, float]]) -> None:
        pass


class Ours:
    def __init__(self, actions: int, seed: int, largest: float):
        import ensemble_sampling as es

        self.bandit = es.Bandit(actions=list(range(actions)), seed=seed)  # pyright: ignore[reportCallIssue]

    def choose(self, context: np.ndarray) -> int:
        self.decision = self.bandit.choose(context=context)
        return self.decision.action

    def learn(self, reward: float) -> None:
        self.bandit.learn(self.decision.id, reward)


class LateOurs:
    def __init__(self, seed: int):
        import ensemble_sampling as es

        self.bandit = es.Bandit(seed=seed)  # pyright: ignore[reportCallIssue]

    def choose(self, items: dict[str, dict], user: dict) -> tuple[Any, str]:
        decision = self.bandit.choose(items, context=user)
        return decision.id, decision.action

    def learn_many(self, outcomes: Iterable[tuple[Any, float]]) -> None:
        self.bandit.learn_many(outcomes)


class MabWiser:
    """One ridge regression per action, on the context and a constant, which it does not add."""

    def __init__(self, actions: int, seed: int, largest: float, policy: str, **options: Any):
        from mabwiser.mab import MAB, LearningPolicy  # pyright: ignore[reportMissingImports]

        learning = getattr(LearningPolicy, policy)(**options)
        self.mab = MAB(arms=list(range(actions)), learning_policy=learning, seed=seed)
        self.first: int | None = int(np.random.default_rng(seed).integers(actions))

    def choose(self, context: np.ndarray) -> int:
        self.context = np.append(context, 1.0)[None]
        self.index = self.mab.predict(self.context) if self.first is None else self.first
        return self.index

    def learn(self, reward: float) -> None:
        # It refuses to choose before it has seen an outcome: the first action is drawn here.
        learn = self.mab.partial_fit if self.first is None else self.mab.fit
        learn([self.index], [reward], self.context)
        self.first = None


class LinearThompson:
    """Thompson sampling with one ridge regression per action, on the context and a constant, whose
    noise is given."""

    def __init__(self, actions: int, seed: int, largest: float, noise: float = 1.0):
        self.rng, self.actions, self.noise = np.random.default_rng(seed), actions, noise
        self.inverse: np.ndarray | None = None

    def choose(self, context: np.ndarray) -> int:
        self.x = np.append(context, 1.0)
        if self.inverse is None:
            self.inverse = np.tile(np.eye(len(self.x)), (self.actions, 1, 1))
            self.total = np.zeros((self.actions, len(self.x)))
        each = self.inverse @ self.x
        mean = np.einsum("kd,kd->k", each, self.total)
        values = mean + self.noise * np.sqrt(each @ self.x) * self.rng.normal(size=self.actions)
        self.index, self.gain = int(values.argmax()), each
        return self.index

    def learn(self, reward: float) -> None:
        gain = self.gain[self.index]
        self.inverse[self.index] -= np.outer(gain, gain) / (1 + gain @ self.x)  # pyright: ignore[reportOptionalSubscript]
        self.total[self.index] += reward * self.x


class BayesianBandits:
    """Thompson sampling with one regression per action, on the context and a constant."""

    def __init__(self, actions: int, seed: int, largest: float, regressor: str, **options: Any):
        import bayesianbandits as bb  # pyright: ignore[reportMissingImports]

        make = getattr(bb, regressor)
        arms = [bb.Arm(k, learner=make(**options)) for k in range(actions)]
        self.agent = bb.ContextualAgent(arms, bb.ThompsonSampling(), random_seed=seed)

    def choose(self, context: np.ndarray) -> int:
        self.context = np.append(context, 1.0)[None]
        [index] = self.agent.pull(self.context)
        return index

    def learn(self, reward: float) -> None:
        self.agent.update(self.context, np.array([reward]))


class VowpalWabbit:
    """The action is drawn from the probabilities it answers.

    It supposes costs between 0 and 1, so it is told the largest reward that there can be.
    """

    def __init__(self, seed: int, options: str, largest: float = 1.0):
        from vowpalwabbit import Workspace  # pyright: ignore[reportMissingImports]

        self.largest = largest
        self.vw = Workspace(f"--cb_explore_adf --quiet --random_seed {seed} {options}")
        self.rng = np.random.default_rng(seed)

    def draw(self, lines: list[str]) -> tuple[int, float]:
        shares = np.asarray(self.vw.predict(lines))
        index = int(self.rng.choice(len(shares), p=shares / shares.sum()))
        return index, shares[index]

    def train(self, lines: list[str], index: int, share: float, reward: float) -> None:
        labelled, cost = list(lines), 1 - reward / self.largest
        labelled[index + 1] = f"0:{cost}:{share} {lines[index + 1]}"
        self.vw.learn(labelled)


class TableVowpalWabbit(VowpalWabbit):
    def __init__(self, actions: int, seed: int, largest: float, options: str):
        super().__init__(seed, f"-q CA {options}", largest)
        self.actions = [f"|A a{k}" for k in range(actions)]

    def choose(self, context: np.ndarray) -> int:
        shared = "shared |C " + " ".join(f"{i}:{v:.6g}" for i, v in enumerate(context))
        self.lines = [shared, *self.actions]
        self.index, self.share = self.draw(self.lines)
        return self.index

    def learn(self, reward: float) -> None:
        self.train(self.lines, self.index, self.share, reward)


def _words(described: dict[str, Any]) -> str:
    return " ".join(
        f"{key}:{value:.6g}" if type(value) in (int, float) else f"{key}={value}"
        for key, value in described.items()
    )


class LateVowpalWabbit(VowpalWabbit):
    """Every item also has its name as a feature, in a namespace that is not crossed with users."""

    def __init__(self, seed: int, options: str):
        super().__init__(seed, f"-q UI {options}")

    def choose(self, items: dict[str, dict], user: dict) -> tuple[Any, str]:
        names = list(items)
        lines = [f"shared |U {_words(user)}"]
        lines += [f"|I {_words(items[n])} |N {n.replace(' ', '_')}" for n in names]
        index, share = self.draw(lines)
        return (lines, index, share), names[index]

    def learn_many(self, outcomes: Iterable[tuple[Any, float]]) -> None:
        for (lines, index, share), reward in outcomes:
            self.train(lines, index, share, reward)


@dataclass
class Agent:
    """How to make an agent with each of its settings, in tables and among late clicks.

    steady: settings that are played only where worlds change.
    """

    package: str
    table: dict[str, Callable[..., Any]]
    late: dict[str, Callable[..., Any]] = field(default_factory=dict)
    steady: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """What to do where the package, or one that it needs, is not there."""
        module = {"mabwiser": "mabwiser.mab"}.get(self.package, self.package.replace("-", "_"))
        try:
            if module:
                import_module(module)
        except ImportError as error:
            return f"{error} (pip install {self.package})"
        return None

    def settings(self) -> dict[str, dict[str, Any]]:
        """What each setting stands for, in tables and among late clicks alike."""
        return {name: getattr(make, "keywords", {}) for name, make in self.table.items()}

    def played(self, column: str) -> list[str]:
        """The settings that are played in a column."""
        makers = self.late if column in LATES else self.table
        return [name for name in makers if changes(column) or name not in self.steady]


def _peer(package: str, make: Callable[..., Any], what: dict[str, Any], **tuned: Any) -> Agent:
    settings = {"default": partial(make, **what), "tuned": partial(make, **what, **tuned)}
    return Agent(package, settings)


def _vw(default: str, tuned: str) -> Agent:
    """Where worlds change, both also with a learning rate that does not cool down."""
    settings = {"default": default, "tuned": tuned}
    steady = {f"{name} steady": f"{words} --power_t 0" for name, words in settings.items()}
    settings |= steady
    return Agent(
        "vowpalwabbit",
        {name: partial(TableVowpalWabbit, options=words) for name, words in settings.items()},
        {name: partial(LateVowpalWabbit, options=words) for name, words in settings.items()},
        tuple(steady),
    )


NIG = {"regressor": "NormalInverseGammaRegressor"}
EB = {"regressor": "EmpiricalBayesNormalRegressor"}
OURS = "ours"
AGENTS = {
    OURS: Agent("ensemble-sampling", {"default": Ours}, {"default": LateOurs}),
    "mabwiser-lints": _peer("mabwiser", MabWiser, {"policy": "LinTS"}, alpha=0.1),
    "mabwiser-linucb": _peer("mabwiser", MabWiser, {"policy": "LinUCB"}, alpha=0.25),
    "vw-squarecb": _vw("--squarecb", "--squarecb --gamma_scale 1000"),
    "vw-bag": _vw("--bag 5", "--bag 10"),
    "vw-cover": _vw("--cover 3", "--cover 5 --nounif -l 1"),
    "vw-regcbopt": _vw("--regcbopt", "--regcbopt --mellowness 0.001"),
    "vw-epsilon": _vw("--epsilon 0.05", "--epsilon 0.02"),
    "bb-nig": _peer("bayesianbandits", BayesianBandits, NIG, a=10.0, b=0.1),
    "bb-eb": _peer("bayesianbandits", BayesianBandits, EB, alpha=100.0, beta=10.0),
    "linear-ts": _peer("", LinearThompson, {}, noise=0.25),
    "uniform": Agent("", {"default": Uniform}, {"default": LateUniform}),
}
