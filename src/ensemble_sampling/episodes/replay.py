"""Whole episodes to learn values from again, and what they say that actions are worth."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..core import Key, Noise
from ..learners.histories import Reservoir, Window, put
from .world import Episode


class Replay(NamedTuple):
    """Episodes, and how each member's view of their rewards is perturbed (capacity, members, ...).

    newest: where the last episode is
    steps: how many were taken in all that was seen
    """

    episodes: Episode
    noise: Noise
    seen: Array
    newest: Array
    steps: Array

    @classmethod
    def empty(cls, episode: Episode, noise: Noise, capacity: int) -> "Replay":
        """noise: the kinds of perturbation that will come, of shape (members, ...)"""
        episodes, noise = jax.tree.map(
            lambda x: jnp.zeros((capacity, *x.shape), x.dtype), (episode, noise)
        )
        zero = jnp.zeros((), jnp.int32)
        return cls(episodes, noise, zero, zero, jnp.zeros((), float))

    def add(
        self, key: Key, history: Window | Reservoir, episode: Episode, noise: Noise
    ) -> "Replay":
        capacity = self.episodes.length.shape[0]
        slot, kept = history.slot(key, self.seen, capacity)
        before, now = (self.episodes, self.noise), (episode, noise)
        episodes, noise = jax.tree.map(lambda old, new: put(old, slot, kept, new), before, now)
        newest = jnp.where(kept, slot, self.newest)
        return Replay(episodes, noise, self.seen + 1, newest, self.steps + episode.length)

    def batch(self, key: Key, size: int) -> tuple[Episode, Noise]:
        """The newest episode and others drawn with replacement, with their perturbations."""
        held = jnp.minimum(self.seen, self.episodes.length.shape[0])
        rows = jax.random.randint(key, (size,), 0, held).at[0].set(self.newest)
        return jax.tree.map(lambda x: x[rows], (self.episodes, self.noise))


def returns(
    rewards: Array, goes_on: Array, after: Array, greedy: Array, discount: Any, trace: Any
) -> Array:
    """What each step of an episode was worth (T,), by the values of what came after it.

    G_t = r_t + discount (v_t + trace (G_t+1 - v_t)) where the next action was greedy, and
    r_t + discount v_t where it was not: Watkins's Q(lambda), in which what comes at the end of an
    episode is seen at once by all of its steps that led there on purpose.

    after: the values v_t of the states that steps lead to
    greedy: whether the action taken there was the best one; False where there was none
    """

    def back(later: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, on, value, best = step
        ahead = value + jnp.where(best, trace * (later - value), 0.0)
        now = reward + jnp.where(on, discount * ahead, 0.0)
        return now, now

    steps = rewards, goes_on, after, greedy
    return jax.lax.scan(back, jnp.zeros_like(rewards[0]), steps, reverse=True, unroll=8)[1]
