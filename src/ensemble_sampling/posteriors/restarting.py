"""A posterior that starts again when outcomes surprise more than they used to."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Model, Posterior, Wrapper, fact
from ..fast.rarely import rarely


class Bets(NamedTuple):
    """Bets that outcomes surprise more than usual: one for each action that has a model of its own,
    the last one for all together.

    outcomes, squares: how many outcomes, and the sum of their squared surprises, of which older
        ones count less
    wealth: the logarithm of what was won, beginning with 1
    """

    outcomes: Array
    squares: Array
    wealth: Array


class Changes(NamedTuple):
    """What was noticed in so many outcomes: how often all models started again, how often that of
    one action did, and at which outcome last (0: never)."""

    outcomes: Array
    all: Array
    one: Array
    last: Array


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | Array | np.ndarray)


class Restarting(Wrapper):
    """A posterior that forgets what it has learned when the world has changed.

    Before every outcome a share `stake` of a wealth is bet that its squared surprise, r times the
    usual one, is more than usual: the wealth becomes 1 + stake (r - 1) times as large, and is never
    left below 1. In a world that stays no such bet wins on average, whatever the distribution of
    outcomes, so that a wealth of `odds` is reached less than once in as many outcomes (Shin, Ramdas
    and Rinaldo, 2022). When it is, all models start again from their prior.

    Where each action has a model of its own, it also has a wealth of its own, which its outcomes
    alone change, and starts again alone. What surprises with one action in ten does not make most
    outcomes surprise.

    odds: how many outcomes there are between two false alarms, at least.
    memory: how many outcomes decide what is usual: the action's own, or all, whichever is more. The
        surprises of a world that stays grow where an agent learns to choose what varies more.
    most: how many times the usual a squared surprise can count, lest one rare prize be a change.
    fewest: outcomes of an action before it is bet on.
    """

    posterior: Posterior
    odds: float = 20_000.0
    stake: float = 0.7
    memory: float = 200.0
    most: float = 10.0
    fewest: float = 10.0
    draws = 64
    wraps = "posterior"
    __repr__ = short

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        checks.scalar("odds", self.odds, above=1.0)
        checks.scalar("stake", self.stake, above=0.0, high=0.95)
        checks.scalar("memory", self.memory, above=1.0)
        checks.scalar("most", self.most, above=1.0)
        checks.scalar("fewest", self.fewest, low=1.0)
        if fact(self.posterior, "host"):
            raise ValueError(f"Restarting compiles what it does, got {self.posterior!r}")

    @property
    def _bets(self) -> int:
        return 1 + (self.arms if fact(self.posterior, "separate") else 0)

    def init(self, key: Key) -> Any:
        zero, none = jnp.zeros(self._bets), jnp.zeros((), jnp.int32)
        return self.posterior.init(key), Bets(zero, zero, zero), Changes(none, none, none, none)

    def sample(self, key: Key, belief: Any) -> Model:
        return self.posterior.sample(key, belief[0])

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        return self.posterior.values(key, belief[0], features, draws)

    def weights(self, belief: Any, draws: int) -> Array | None:
        return fact(self.posterior, "weights")(belief[0], draws)

    def mean_and_std(self, belief: Any, features: Array) -> Any:
        return fact(self.posterior, "mean_and_std")(belief[0], features)

    def diverged(self, belief: Any) -> Array | int:
        return fact(self.posterior, "diverged")(belief[0])

    def changes(self, belief: Any) -> Changes:
        return belief[2]

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        models, bets, changes = belief
        square = self._surprise(key, models, action, outcome) ** 2
        bets, every, one = self._settled(bets, action.index, square)
        count = changes.outcomes + 1
        last = jnp.where(every | one, count, changes.last)
        changes = Changes(count, changes.all + every, changes.one + one, last)
        which, fresh = jnp.where(every, 2, one), jax.random.fold_in(key, 2)
        # Numbers are handed over, for a branch must not take them from where it stands.
        numbers, rest = eqx.partition(self.posterior, _is_number)

        def renewed(models: Any, key: Key, index: Array, numbers: Any) -> Any:
            posterior: Any = eqx.combine(numbers, rest)
            return posterior.renewed(key, models, index) if self._bets > 1 else models

        def begun(models: Any, key: Key, index: Array, numbers: Any) -> Any:
            return eqx.combine(numbers, rest).init(key)

        models = rarely(which, [renewed, begun], models, fresh, action.index, numbers)
        return self.posterior.update(key, models, action, outcome), bets, changes

    def _surprise(self, key: Key, models: Any, action: Action, outcome: Array) -> Array:
        """How far the outcome is from what the models expect on average."""
        arms, reward = self.arms, self.reward
        rows, index = (1, 0) if arms is None else (arms, action.index)
        rows = 1 if self.context else rows
        offer = jnp.broadcast_to(action.features, (rows, action.features.shape[-1]))
        values = self.posterior.values(jax.random.fold_in(key, 1), models, offer, self.draws)
        got = outcome if reward is None else reward.function(outcome)
        return got - values.mean(axis=0)[index]

    def _settled(self, bets: Bets, index: Array, square: Array) -> tuple[Bets, Array, Array]:
        """The bets after an outcome, whether all models start again, and whether one does."""
        outcomes, squares, wealth = bets
        number, last = jnp.arange(self._bets), self._bets - 1
        own = index if last else last
        mine, all_of = number == own, number == last
        tiny = jnp.finfo(squares.dtype).tiny
        square = jnp.where(outcomes[last] > 0, square, 0.0)  # the first one only sets the offset
        usual = squares / jnp.maximum(outcomes, tiny)
        usual = jnp.maximum(usual[own], usual[last])
        times = jnp.minimum(square / jnp.maximum(usual, tiny), self.most)
        won = jnp.where(outcomes[own] >= self.fewest, jnp.log1p(self.stake * (times - 1)), 0.0)
        wealth = jnp.where(mine | all_of, jnp.maximum(wealth + won, 0.0), wealth)
        every = wealth[last] > jnp.log(self.odds)
        one = (wealth[own] > jnp.log(self.odds)) & ~every
        keep, gone = 1 - 1 / self.memory, every | (one & mine)
        outcomes = jnp.where(mine | all_of, keep * outcomes + 1, outcomes)
        squares = jnp.where(mine | all_of, keep * squares + square, squares)
        outcomes, squares = (jnp.where(gone, 0.0, part) for part in (outcomes, squares))
        return Bets(outcomes, squares, jnp.where(gone | (one & all_of), 0.0, wealth)), every, one
