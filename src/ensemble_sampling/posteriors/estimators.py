"""Any object with fit and predict as a member: trees, boosting, neighbours, or a mixture."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Model
from ..extras import need

WAVES = 64  # random cosines in a prior function: enough to be close to a Gaussian process


class Row(NamedTuple):
    """One outcome, and what every member makes of it: its noise, and how often it counts."""

    features: np.ndarray
    outcome: float
    shifts: np.ndarray
    counts: np.ndarray


class Fit(NamedTuple):
    """An estimator, and the rows it has seen: how many, and the last of them."""

    seen: int = 0
    last: Row | None = None
    estimator: Any = None


@dataclass(frozen=True, eq=False)
class Table:
    """The data of one model.

    fits: a cache of every member's latest. Which rows a fit sees depends on how many there are and
        not on when it was asked for, so it can always be made again. A state shares the cache with
        those that come from it, and recognises its own fits by the last row seen.
    """

    seeds: tuple[tuple[int, ...], ...]  # every member's
    rows: tuple[Row, ...] = ()
    fits: dict[int, Fit] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int | None:
        """How many features rows have; None before the first."""
        return self.rows[0].features.size if self.rows else None

    def fit(self, member: int) -> Fit:
        """The member's latest that saw no other rows than these."""
        fit = self.fits.get(member, Fit())
        ours = fit.seen <= len(self.rows) and fit.seen and self.rows[fit.seen - 1] is fit.last
        return fit if ours else Fit()


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class Members:
    """One table for all actions, or one for each. Kept on the host."""

    tables: tuple[Table, ...]


@jax.tree_util.register_static
@dataclass(frozen=True, repr=False)
class EstimatorEnsemble:
    """An ensemble of estimators in the manner of scikit-learn, made by `make()`, as a posterior.

    Agents take it as they take any other: `ThompsonSampling(EstimatorEnsemble(...))`.

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
    columns: the names of the features: estimators then see data frames of pandas with these, as
        pipelines need that treat columns by name. Offers must have the same columns.
    """

    make: Callable[[], Any] | Sequence[Callable[[], Any]]
    members: int
    noise_std: float = 1.0
    prior_std: float = 1.0
    start: int = 8
    growth: float = 1.25
    arms: int | None = None
    columns: Sequence[str] | None = None
    host = True  # not traceable: `Bandit` and `simulate` run it as it is
    __repr__ = short

    def __post_init__(self) -> None:
        checks.size("members", self.members)
        checks.positive("noise_std", self.noise_std)
        checks.positive("prior_std", self.prior_std)
        checks.size("start", self.start)
        checks.scalar("growth", self.growth, above=1.0)
        if self.arms is not None:
            checks.size("arms", self.arms)
        if self.columns is not None:
            _check_columns(self.columns)
        if not self.makers or not all(map(callable, self.makers)):
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
        numbers = [()] if self.arms is None else [(arm,) for arm in range(self.arms)]
        seeds = [tuple((seed, m, *number) for m in range(self.members)) for number in numbers]
        return Members(tuple(map(Table, seeds)))

    def check_outcome(self, outcome: Any) -> None:
        """Refuse what the estimators cannot learn."""
        if np.shape(checks.outcome(outcome)) != ():
            raise ValueError(f"estimators learn a single number, got shape {np.shape(outcome)}")
        if self._classifies and float(outcome) not in (0.0, 1.0):
            raise ValueError(f"classifiers learn outcomes 0 and 1, got {float(outcome):g}")

    def update(self, key: Key, belief: Members, action: Action, outcome: Array) -> Members:
        self.check_outcome(outcome)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        shifts, counts = rng.standard_normal(self.members), rng.poisson(1.0, self.members)
        if self.arms is not None:
            checks.index(action.index, self.arms)
        which = 0 if self.arms is None else int(action.index)
        tables = list(belief.tables)
        table = tables[which]
        x = checks.array("the action's features", action.features, (table.width,))
        row = Row(np.array(x), float(outcome), shifts, counts)
        tables[which] = replace(table, rows=(*table.rows, row))
        return Members(tuple(tables))

    def sample(self, key: Key, belief: Members) -> Model:
        member = int(jax.random.randint(key, (), 0, self.members))
        return partial(self._values, belief, member)

    def values(self, key: Key, belief: Members, features: Array, draws: int) -> Array:
        return jnp.stack([self._values(belief, m, features) for m in range(self.members)])

    def _values(self, belief: Members, member: int, features: Any) -> Array:
        """What a member thinks the actions are worth (K,)."""
        x = np.asarray(features, np.float64)
        if x.shape[-1] == 0:
            raise ValueError("estimators need features: give choose(context=...)")
        if self.arms is None:
            return jnp.asarray(self._value(belief.tables[0], member, x), float)
        checks.features(x, x.shape[-1], self.arms)
        each = zip(belief.tables, x, strict=True)
        worth = [self._value(table, member, row[None])[0] for table, row in each]
        return jnp.asarray(worth, float)

    def _value(self, table: Table, member: int, x: np.ndarray) -> np.ndarray:
        """What a member's model thinks rows (K, d) are worth."""
        checks.features(x, table.width or x.shape[1])
        seen, _, estimator = self._fit(table, member)
        weight = self._weight(seen, x.shape[1])
        prior = self._prior(table, member, x)
        if estimator is None:
            return prior
        if not hasattr(estimator, "predict_proba"):
            return weight * prior + np.asarray(estimator.predict(self._seen(x)), np.float64)
        chance = estimator.predict_proba(self._seen(x))[:, list(estimator.classes_).index(1)]
        return (1 - weight) * chance + weight / (1 + np.exp(-2 * prior / self.prior_std))

    def _seen(self, x: np.ndarray) -> Any:
        """Rows as estimators see them."""
        if self.columns is None:
            return x
        if x.shape[1] != len(self.columns):
            raise ValueError(f"rows have {x.shape[1]} features, columns names {len(self.columns)}")
        return _pandas().DataFrame(x, columns=list(self.columns))

    def _weight(self, n: int, width: int) -> float:
        """How much of the prior function is left after n outcomes."""
        return self.noise_std / math.sqrt(self.noise_std**2 + self.prior_std**2 * n / width)

    def _prior(self, table: Table, member: int, x: np.ndarray) -> np.ndarray:
        """The member's prior function of rows (K, d), smooth on the scale of a row's length."""
        rng = np.random.default_rng(table.seeds[member])
        frequencies = 1.5 * rng.standard_normal((x.shape[1], WAVES))
        phases = rng.uniform(0, 2 * np.pi, WAVES)
        amplitudes = rng.standard_normal(WAVES) * math.sqrt(2 / WAVES)
        # The first outcome's row fixes the unit of length.
        seen = table.rows[0].features[None] if table.rows else x
        length = math.sqrt(float(np.mean(np.sum(np.square(seen), axis=-1)))) or 1.0
        return self.prior_std * np.cos(x / length @ frequencies + phases) @ amplitudes

    def _fit(self, table: Table, member: int) -> Fit:
        """The member's, made from the outcomes it should know by now."""
        make = self.makers[member % len(self.makers)]
        fit, count = table.fit(member), len(table.rows)
        estimator: Any = make() if fit.estimator is None else fit.estimator
        stepwise = hasattr(estimator, "partial_fit")
        due = count if stepwise else _due(count, self.start, self.growth)
        if due == fit.seen:
            return fit
        if stepwise and fit.seen:  # a copy: an interrupted step must not leave one that half knows
            estimator = copy.deepcopy(estimator)
        else:
            estimator = make()
            _seed(estimator, [*table.seeds[member], *(() if stepwise else (due,))])
        if stepwise:
            for number in range(fit.seen, due):
                self._step(table, member, estimator, number)
        else:
            x, y = self._lesson(table, member, estimator, due)
            estimator.fit(self._seen(x), y)
        table.fits[member] = Fit(due, table.rows[due - 1], estimator)
        return table.fits[member]

    def _step(self, table: Table, member: int, estimator: Any, number: int) -> None:
        row = table.rows[number]
        if not hasattr(estimator, "predict_proba"):
            x, y = self._remainder(table, member, (row,), number + 1)
            estimator.partial_fit(self._seen(x), y)
            return
        # The first row is never left out: an estimator that saw nothing cannot predict.
        for _ in range(max(int(row.counts[member]), number == 0)):
            labels, classes = np.array([int(row.outcome)]), np.array([0, 1])
            estimator.partial_fit(self._seen(row.features[None]), labels, classes=classes)

    def _lesson(self, table: Table, member: int, estimator: Any, count: int) -> tuple[Any, Any]:
        """(features, targets) of the first rows, as the member sees them."""
        rows = table.rows[:count]
        if not hasattr(estimator, "predict_proba"):
            return self._remainder(table, member, rows, count)
        # One more outcome of each kind, since a classifier needs both.
        extra = np.random.default_rng([*table.seeds[member], count]).choice(count, 2)
        repeated = np.repeat(np.arange(count), [row.counts[member] for row in rows])
        chosen = [rows[i] for i in (*repeated, *extra)]
        labels = np.array([int(row.outcome) for row in chosen])
        labels[-2:] = 0, 1
        return np.stack([row.features for row in chosen]), labels

    def _remainder(
        self, table: Table, member: int, rows: Sequence[Row], count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """(features, what the perturbed outcomes leave of the prior function after `count`)."""
        x = np.stack([row.features for row in rows])
        y = np.array([row.outcome for row in rows])
        z = np.array([row.shifts[member] for row in rows])
        weight = self._weight(count, x.shape[1])
        return x, y + self.noise_std * z - weight * self._prior(table, member, x)


def _check_columns(columns: Any) -> None:
    if not isinstance(columns, list | tuple) or not all(isinstance(c, str) for c in columns):
        raise TypeError(f"columns must be a list of names, got {columns!r}")
    if len(set(columns)) < len(columns) or not columns:
        raise ValueError(f"columns must be different names, one at least, got {columns!r}")
    _pandas()


def _pandas() -> Any:
    return need("pandas", "an estimator that sees columns")


def _due(n: int, start: int, growth: float) -> int:
    """How many of n outcomes the latest fit of the schedule start, start growth, ... has seen."""
    due, ahead = 0, start
    while ahead <= n:
        due, ahead = ahead, max(ahead + 1, math.ceil(ahead * growth))
    return due


def _seed(estimator: Any, seed: list[int]) -> None:
    """Give every source of randomness in the estimator a seed of its own."""
    if not hasattr(estimator, "get_params"):
        return
    rng = np.random.default_rng(seed)
    names = sorted(n for n in estimator.get_params() if n.split("__")[-1] == "random_state")
    estimator.set_params(**{name: int(rng.integers(2**31)) for name in names})
