"""Any object with fit and predict as a member: trees, boosting, neighbours, or a mixture."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..agents import greedy, shares
from ..core import Action, Key

WAVES = 64  # random cosines in a prior function: enough to be close to a Gaussian process


@dataclass(eq=False)
class Table:
    """The data of one model so far, and members' estimators fitted to its first `fitted` rows.

    Which rows a fit sees depends on how many outcomes there are and never on when somebody chose,
    so replaying the outcomes gives the same fits.
    """

    seeds: list[list[int]]  # every member's
    estimators: list[Any]
    fitted: list[int]
    features: list[np.ndarray] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)
    shifts: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)


@jax.tree_util.register_static
@dataclass(eq=False)
class Members:
    """One table for all actions, or one for each. Kept on the host and updated in place."""

    tables: list[Table]


@jax.tree_util.register_static
@dataclass(frozen=True)
class EstimatorEnsemble:
    """Ensemble sampling over estimators in the manner of scikit-learn, made by `make()`.

    A list of makers gives a mixed ensemble: members are made by each in turn. What makes members
    differ, also where an estimator itself (a tree, say) has no prior to speak of:

    - Member m has a prior function f_m, drawn from a Gaussian process with standard deviation
      `prior_std` (a sum of random cosines of the features). A regressor is fitted to what it
      leaves of the outcomes, y + noise_std z - w f_m(x), and the member values x at
      w f_m(x) + its prediction. With no data that is f_m(x) alone, so members disagree.
    - z ~ N(0, 1) is drawn once for every outcome and member.
    - w = noise_std / sqrt(noise_std^2 + prior_std^2 n / d) after n outcomes with d features, as
      the posterior of a linear model shrinks: estimators that cannot imitate f_m would otherwise
      never come to agree.
    - A classifier (it has `predict_proba`; outcomes are 0 or 1) cannot learn a remainder. It is
      fitted to the outcomes repeated Poisson(1) times each, and its member values x at
      (1 - w) times its probability of 1 plus w sigmoid(2 f_m(x) / prior_std).

    Estimators with `partial_fit` learn every outcome as it comes. Others are fitted from scratch
    at `start` outcomes and whenever these have grown by the factor `growth` since: all fits
    together see O(n) rows, and cost O(n log n) for estimators that sort them. What `partial_fit`
    has learned cannot be taken back, so there an outcome keeps the w of its time.

    arms: for a fixed set of actions over a common context, `bandit.choose(context=x)`: every member
        has an estimator for each action, fitted to that action's outcomes alone.
    """

    make: Callable[[], Any] | Sequence[Callable[[], Any]]
    members: int
    noise_std: float = 1.0
    prior_std: float = 1.0
    start: int = 8
    growth: float = 1.25
    arms: int | None = None
    host = True  # not traceable: `Bandit` and `simulate` run it as it is

    def __post_init__(self) -> None:
        checks.size("members", self.members)
        checks.positive("noise_std", self.noise_std)
        checks.positive("prior_std", self.prior_std)
        checks.size("start", self.start)
        checks.scalar("growth", self.growth, above=1.0)
        if self.arms is not None:
            checks.size("arms", self.arms)
        several = isinstance(self.make, list | tuple)
        if not (several or callable(self.make)) or not all(map(callable, self.makers)):
            raise TypeError(
                "make must be a function that returns a new estimator, or a list of such, "
                f"got {self.make!r}"
            )
        for maker in self.makers:
            checks.part("an estimator", maker(), "fit", "predict")

    @cached_property
    def makers(self) -> tuple[Callable[[], Any], ...]:
        return tuple(self.make) if isinstance(self.make, list | tuple) else (self.make,)  # pyright: ignore[reportReturnType]

    @cached_property
    def _classifies(self) -> bool:
        return any(hasattr(maker(), "predict_proba") for maker in self.makers)

    @property
    def label(self) -> str:
        names = dict.fromkeys(type(maker()).__name__ for maker in self.makers)
        return f"{self.members} x {' / '.join(names)}"

    def __hash__(self) -> int:
        return hash((self.makers, self.members, self.noise_std, self.prior_std))

    def init(self, key: Key) -> Members:
        seed = int.from_bytes(np.asarray(jax.random.key_data(checks.key(key))).tobytes(), "little")
        numbers = [[]] if self.arms is None else [[arm] for arm in range(self.arms)]
        return Members([self._table(seed, number) for number in numbers])

    def _table(self, seed: int, number: list[int]) -> Table:
        seeds = [[seed, member, *number] for member in range(self.members)]
        return Table(seeds, [None] * self.members, [0] * self.members)

    def check_outcome(self, outcome: Any) -> None:
        """Refuse what the estimators cannot learn."""
        if np.shape(checks.outcome(outcome)) != ():
            raise ValueError(f"estimators learn a single number, got shape {np.shape(outcome)}")
        if self._classifies and float(outcome) not in (0.0, 1.0):
            raise ValueError(f"classifiers learn outcomes 0 and 1, got {float(outcome):g}")

    def update(self, key: Key, state: Members, action: Action, outcome: Array) -> Members:
        self.check_outcome(outcome)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        if self.arms is not None:
            checks.index(action.index, self.arms)
        table = state.tables[0 if self.arms is None else int(action.index)]
        table.features.append(np.asarray(action.features, np.float64))
        table.outcomes.append(float(outcome))
        table.shifts.append(rng.standard_normal(self.members))
        table.counts.append(rng.poisson(1.0, self.members))
        return state

    def act(
        self, key: Key, state: Members, features: Array, available: Array | None = None
    ) -> Array:
        model_key, tie_key = jax.random.split(key)
        member = int(jax.random.randint(model_key, (), 0, self.members))
        return greedy(tie_key, jnp.asarray(self._values(state, member, features)), available)

    def probabilities(
        self,
        state: Members,
        features: Array,
        available: Array | None = None,
        key: Key | None = None,
    ) -> Array:
        return shares(self.values(key, state, features), available).mean(axis=0)

    def values(self, key: Key | None, state: Members, features: Array, draws: int = 0) -> Array:
        """What every member thinks the actions are worth (members, K), as a posterior says it."""
        values = [self._values(state, member, features) for member in range(self.members)]
        return jnp.asarray(np.stack(values), float)

    def _values(self, state: Members, member: int, features: Any) -> np.ndarray:
        """What a member thinks the actions are worth (K,)."""
        x = np.asarray(features, np.float64)
        if x.shape[-1] == 0:
            raise ValueError("estimators need features: give choose(context=...)")
        if self.arms is None:
            return self._value(state.tables[0], member, x)
        checks.features(x, x.shape[-1], self.arms)
        each = zip(state.tables, x, strict=True)
        return np.array([self._value(table, member, row[None])[0] for table, row in each])

    def _value(self, table: Table, member: int, x: np.ndarray) -> np.ndarray:
        """What a member's model thinks rows (K, d) are worth."""
        estimator = self._fit(table, member)
        weight = self._weight(table.fitted[member], x.shape[1])
        prior = self._prior(table, member, x)
        if estimator is None:
            return prior
        if not hasattr(estimator, "predict_proba"):
            return weight * prior + np.asarray(estimator.predict(x), np.float64)
        chance = estimator.predict_proba(x)[:, list(estimator.classes_).index(1)]
        return (1 - weight) * chance + weight / (1 + np.exp(-2 * prior / self.prior_std))

    def _weight(self, n: int, width: int) -> float:
        """How much of the prior function is left after n outcomes."""
        return self.noise_std / math.sqrt(self.noise_std**2 + self.prior_std**2 * n / width)

    def _prior(self, table: Table, member: int, x: np.ndarray) -> np.ndarray:
        """The member's prior function of rows (K, d), smooth on the scale of a row's length."""
        rng = np.random.default_rng(table.seeds[member])
        frequencies = 1.5 * rng.standard_normal((x.shape[1], WAVES))
        phases = rng.uniform(0, 2 * np.pi, WAVES)
        amplitudes = rng.standard_normal(WAVES) * math.sqrt(2 / WAVES)
        seen = table.features[:1] or x  # the first outcome's row fixes the unit of length
        length = math.sqrt(float(np.mean(np.sum(np.square(seen), axis=-1)))) or 1.0
        return self.prior_std * np.cos(x / length @ frequencies + phases) @ amplitudes

    def _fit(self, table: Table, member: int) -> Any:
        """The member's estimator, fitted to the outcomes it should know by now."""
        n, done = len(table.outcomes), table.fitted[member]
        make = self.makers[member % len(self.makers)]
        estimator = table.estimators[member] if done else make()
        stepwise = hasattr(estimator, "partial_fit")
        due = n if stepwise else _due(n, self.start, self.growth)
        if due == done:
            return table.estimators[member]
        if stepwise:
            if done == 0:
                _settle(estimator, table.seeds[member])
            for row in range(done, due):
                self._step(table, member, estimator, row)
        else:
            estimator = make()
            _settle(estimator, [*table.seeds[member], due])
            estimator.fit(*self._lesson(table, member, np.arange(due)))
        table.estimators[member], table.fitted[member] = estimator, due
        return estimator

    def _step(self, table: Table, member: int, estimator: Any, row: int) -> None:
        if not hasattr(estimator, "predict_proba"):
            estimator.partial_fit(*self._remainder(table, member, np.array([row])))
            return
        # The first row is never left out: an estimator that saw nothing cannot predict.
        for _ in range(max(int(table.counts[row][member]), row == 0)):
            x, y = table.features[row], table.outcomes[row]
            estimator.partial_fit(x[None], np.array([int(y)]), classes=np.array([0, 1]))

    def _lesson(self, table: Table, member: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(features, targets) as the member sees them."""
        if not hasattr(self.makers[member % len(self.makers)](), "predict_proba"):
            return self._remainder(table, member, rows)
        counts = np.array([table.counts[row][member] for row in rows])
        # One outcome of each kind besides, at rows seen, for those who saw only one kind so far.
        extra = np.random.default_rng([*table.seeds[member], len(rows)]).choice(rows, 2)
        rows = np.concatenate([np.repeat(rows, counts), extra])
        labels = np.array([int(table.outcomes[row]) for row in rows])
        labels[-2:] = 0, 1
        return np.stack([table.features[row] for row in rows]), labels

    def _remainder(
        self, table: Table, member: int, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(features, what the perturbed outcomes leave of the prior function)."""
        x = np.stack([table.features[row] for row in rows])
        y = np.array([table.outcomes[row] for row in rows])
        z = np.array([table.shifts[row][member] for row in rows])
        weight = self._weight(int(rows[-1]) + 1, x.shape[1])
        return x, y + self.noise_std * z - weight * self._prior(table, member, x)


def _due(n: int, start: int, growth: float) -> int:
    """How many of n outcomes the latest fit of the schedule start, start growth, ... has seen."""
    due = 0
    ahead = start
    while ahead <= n:
        due, ahead = ahead, max(ahead + 1, math.ceil(ahead * growth))
    return due


def _settle(estimator: Any, seed: list[int]) -> None:
    """Give every source of randomness in the estimator a seed of its own."""
    if not hasattr(estimator, "get_params"):
        return
    rng = np.random.default_rng(seed)
    names = sorted(
        name for name in estimator.get_params() if name.split("__")[-1] == "random_state"
    )
    estimator.set_params(**{name: int(rng.integers(2**31)) for name in names})
