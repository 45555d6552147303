"""Thompson sampling that gives up on no action for good."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import LATER
from ..core import Action, Key, Posterior, fact
from .thompson import PosteriorAgent

MEMORY = 0.02  # share of the newest outcome in what is usual
FIRST = 100  # tries that all actions together are owed besides a share of all outcomes


class Tries(NamedTuple):
    """How often each action was tried, and how much models usually differ about it.

    times: outcomes that came back: a choice counts once its own is there, however late
    low, high: of all outcomes. While no two differ their unit is not known, and how much models
        differ is in another one; what is usual is then learned anew.
    """

    times: Array
    usual: Array
    square: Array
    low: Array
    high: Array


class Persistent(PosteriorAgent):
    """Thompson sampling over fixed actions in a context, each of which is tried now and again.

    The scale of outcomes is learned, so a prize that was never seen is beyond what any model
    expects, and an action that looks worse everywhere would never be tried where it is best. Every
    action is therefore owed `tries` * log2(t + 2) tries after t outcomes: half of them where
    models differ about it at least as much as usual, the rest where they differ by 1.5 standard
    deviations more. An action that is owed a try gets it with the probability `chance`, unless the
    model drawn chose one that is owed some as well. That is a few tries in all for each action.

    share: of all outcomes, and 100 more, is the most that actions are owed together; None is no
        bound. Many actions are otherwise owed tries in half of all decisions for very long.
    """

    posterior: Posterior
    tries: float = 2.0
    chance: float = 0.5
    draws: int = eqx.field(static=True, default=1000)
    share: float | None = eqx.field(default=None, metadata=LATER)

    def __check_init__(self) -> None:
        checks.part("posterior", self.posterior, "init", "sample", "update", "values")
        if fact(self.posterior, "arms") is None:
            raise ValueError(
                "Persistent counts how often each of a fixed set of actions was tried; PerAction("
                f"learner, arms) has one. Got {self.posterior!r}"
            )
        checks.scalar("tries", self.tries, low=0.0)
        checks.scalar("chance", self.chance, low=0.0, high=1.0)
        if self.share is not None:
            checks.scalar("share", self.share, low=0.0, high=1.0)

    def belief(self, state: Any) -> Any:
        return state[0]

    def init(self, key: Key) -> Any:
        zero, none = jnp.zeros(self.arms), jnp.full((), jnp.inf, float)
        return super().init(key), Tries(zero, zero, zero, none, -none)

    def chances(
        self, state: Any, values: Array, available: Array | None, settled: bool = True
    ) -> Array:
        """How likely each action is to be chosen, by what the models think of them."""
        tried, available = state[1], checks.available(available, values.shape[-1])
        chances = super().chances(state, values, available, settled)
        owed = self._owed(tried, values.std(axis=0), available)
        some = owed.any()
        least = jnp.where(owed, tried.times, jnp.inf)
        turn = owed & (least == least.min())
        spare = jnp.where(some, self.chance, 0.0) * (tried.times >= self._due(tried))
        given = chances * spare
        return chances - given + given.sum() * turn / jnp.maximum(turn.sum(), 1)

    def _due(self, tried: Tries) -> Array:
        """How many tries every action is owed by now."""
        outcomes = tried.times.sum()
        due = self.tries * jnp.log2(outcomes + 2)
        if self.share is None:
            return due
        return jnp.minimum(due, (FIRST + self.share * outcomes) / len(tried.times))

    def _owed(self, tried: Tries, differ: Array, available: Array | None) -> Array:
        """Which actions are owed a try here and now."""
        due = self._due(tried)
        deviation = jnp.sqrt(jnp.maximum(tried.square - tried.usual**2, 0.0))
        soon = (tried.times < due / 2) & (differ >= 0.99 * tried.usual)
        rest = (tried.times < due) & (differ >= tried.usual + 1.5 * deviation)
        owed = soon | rest
        return owed if available is None else owed & available

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        checks.key(key)
        belief, tried = state
        action, arms = checks.action(action), tried.times.shape[0]
        # All actions share the chosen one's context.
        rows = 1 if self.context else arms
        offer = jnp.broadcast_to(action.features, (rows, action.features.shape[-1]))
        values = self.posterior.values(jax.random.fold_in(key, 1), belief, offer, self.draws)
        differ = values.std(axis=0)
        # Never below 0, which the compiler does not know: so the belief is read before it changes
        # and need not be copied for that.
        after_reading = action.index + (differ < 0).any()
        outcome = checks.outcome(outcome)
        total = jnp.sum(outcome)
        low, high = jnp.minimum(tried.low, total), jnp.maximum(tried.high, total)
        anew = (low < high) & ~(tried.low < tried.high)  # the first outcome unlike the others

        def follow(usual: Array, now: Array) -> Array:
            nothing = (usual == 0).all()
            after = jnp.where(nothing, now, usual + MEMORY * (now - usual))
            return jnp.where(anew, 0.0, after)

        after = Tries(
            tried.times.at[action.index].add(1),
            follow(tried.usual, differ),
            follow(tried.square, differ**2),
            low,
            high,
        )
        action = Action(after_reading, action.features)
        return self.posterior.update(key, belief, action, outcome), after
