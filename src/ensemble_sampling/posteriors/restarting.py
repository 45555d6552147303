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
from ..primitives import plain, rarely

ROUNDING = 3e-4  # of the range of rewards: where outcomes never vary, rounding is no surprise


class Seen(NamedTuple):
    """How many outcomes, and the sum of their squared surprises, of which older ones count less."""

    outcomes: Array
    squares: Array


class Bets(NamedTuple):
    """Bets that outcomes surprise more than usual: one for each action that has a model of its own,
    the last one for all together.

    before, since: what was seen before the wealth was 1 last, and since then. What is usual is told
        by what was before: a change must not become usual before it is noticed.
    wealth: the logarithm of what was won, beginning with 1
    low, high: of all rewards. While no two differ their unit is not known, and nothing surprises.
    """

    before: Seen
    since: Seen
    wealth: Array
    low: Array
    high: Array

    def usual(self, known: Array | float, faith: Array | float) -> Array:
        """The usual squared surprise: by all outcomes where there were not `known` before, and of
        an action with so much faith in what is usual for all."""
        extra = jnp.where(self.before.outcomes < known, 1.0, 0.0)
        outcomes, squares = (b + extra * s for b, s in zip(self.before, self.since, strict=True))
        of_all = squares[-1] / jnp.maximum(outcomes[-1], jnp.finfo(squares.dtype).tiny)
        return ((squares + faith * of_all) / (outcomes + faith)).at[-1].set(of_all)


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
        surprises of a world that stays grow where an agent learns to choose what varies more. Of
        few heavy-tailed outcomes what is usual is often too little, which raises false alarms.
    most: how many times the usual a squared surprise can count, lest one rare prize be a change.
    fewest: outcomes of an action before it is bet on.
    known: outcomes by which what is usual is known, so that newer ones need not be asked.
    part: when an action starts again, so do those that have won this part of what it won (of the
        logarithms). Two that change places surprise together, and whoever starts again first takes
        the other's contexts, in which that is then never tried.
    """

    posterior: Posterior
    odds: float = 20_000.0
    stake: float = 0.9
    memory: float = 1000.0
    most: float = 10.0
    fewest: float = 10.0
    known: float = 30.0
    part: float = 1 / 3
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
        checks.scalar("known", self.known, low=1.0)
        checks.scalar("part", self.part, above=0.0, high=1.0)
        if fact(self.posterior, "host"):
            raise ValueError(f"Restarting compiles what it does, got {self.posterior!r}")

    @property
    def _bets(self) -> int:
        return 1 + (self.arms if fact(self.posterior, "separate") else 0)

    def init(self, key: Key) -> Any:
        none = jnp.zeros((), jnp.int32)
        return self.posterior.init(key), self._unknown(), Changes(none, none, none, none)

    def _unknown(self) -> Bets:
        zero, none = jnp.zeros(self._bets), jnp.full((), jnp.inf, float)
        seen = Seen(zero, zero)
        return Bets(seen, seen, zero, none, -none)

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
        got, surprise = self._surprise(key, models, action, outcome)
        bets, every, alone = self._settled(bets, action.index, got, surprise**2)
        count, one = changes.outcomes + 1, alone.any()
        last = jnp.where(every | one, count, changes.last)
        changes = Changes(
            count, changes.all + every, changes.one + alone.sum(dtype=jnp.int32), last
        )
        # Numbers are handed over, for a branch must not take them from where it stands.
        numbers, rest = eqx.partition(self.posterior, _is_number)

        def renewed(models: Any, key: Key, every: Array, alone: Array, numbers: Any) -> Any:
            posterior: Any = eqx.combine(numbers, rest)
            fresh = posterior.init(plain(key))
            some = posterior.renewed(models, fresh, alone) if self._bets > 1 else models
            return jax.tree.map(lambda new, old: jnp.where(every, new, old), fresh, some)

        fresh = jax.random.fold_in(key, 2)
        models = rarely(every | one, renewed, models, fresh, every, alone, numbers)
        return self.posterior.update(key, models, action, outcome), bets, changes

    def _surprise(
        self, key: Key, models: Any, action: Action, outcome: Array
    ) -> tuple[Array, Array]:
        """The reward, and how far it is from what the models expect on average."""
        arms, reward = self.arms, self.reward
        rows, index = (1, 0) if arms is None else (arms, action.index)
        rows = 1 if self.context else rows
        offer = jnp.broadcast_to(action.features, (rows, action.features.shape[-1]))
        values = self.posterior.values(jax.random.fold_in(key, 1), models, offer, self.draws)
        got = outcome if reward is None else reward.function(outcome)
        return got, got - values.mean(axis=0)[index]

    def _settled(
        self, bets: Bets, index: Array, got: Array, square: Array
    ) -> tuple[Bets, Array, Array]:
        """The bets after a reward, whether all models start again, and which do alone."""
        number, last = jnp.arange(self._bets), self._bets - 1
        own = index if last else last
        now = ((number == own) | (number == last)) & (bets.low < bets.high)
        before, since, wealth, low, high = bets
        usual = bets.usual(self.known, self.fewest)
        usual = jnp.maximum(usual[own], usual[last])
        usual = jnp.maximum(usual, (ROUNDING * (high - low)) ** 2)
        times = jnp.minimum(square / jnp.maximum(usual, jnp.finfo(square.dtype).tiny), self.most)
        known = before.outcomes[own] + since.outcomes[own] >= self.fewest
        won = jnp.where(known, jnp.log1p(self.stake * (times - 1)), 0.0)
        wealth = jnp.where(now, jnp.maximum(wealth + won, 0.0), wealth)
        keep = jnp.where(now, 1 - 1 / self.memory, 1.0)
        before, since = (
            Seen(keep * seen.outcomes, keep * seen.squares) for seen in (before, since)
        )
        since = Seen(since.outcomes + now, since.squares + jnp.where(now, square, 0.0))
        calm = wealth <= 0
        before = jax.tree.map(lambda b, s: b + jnp.where(calm, s, 0.0), before, since)
        since = jax.tree.map(lambda s: jnp.where(calm, 0.0, s), since)

        enough = jnp.log(self.odds)
        every = wealth[last] > enough
        noticed = (wealth[own] > enough) & ~every
        alone = noticed & (wealth > self.part * enough) & (number != last)
        wealth = jnp.where(noticed & (number == last), 0.0, wealth)
        low, high = jnp.minimum(low, got), jnp.maximum(high, got)
        bets, none = Bets(before, since, wealth, low, high), self._unknown()
        gone = Bets(Seen(alone, alone), Seen(alone, alone), alone, *(jnp.zeros((), bool),) * 2)
        gone = jax.tree.map(lambda one: one | every, gone)
        return jax.tree.map(jnp.where, gone, none, bets), every, alone[: max(last, 1)]
