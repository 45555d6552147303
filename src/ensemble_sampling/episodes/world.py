"""Worlds in which actions have consequences, and what an episode in one leaves behind."""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

from ..core import Key


class Step(NamedTuple):
    """What an action led to.

    end: whether the episode is over
    cut: whether it is over only for lack of time, so that what would have come still has a value
    """

    state: Any
    observation: Array
    reward: Array
    end: Array
    cut: Array | bool = False


class Episode(NamedTuple):
    """What was seen before each of `limit` steps and after the last; 0 beyond `length` steps."""

    observations: Array  # (limit + 1, ...)
    actions: Array  # (limit,)
    rewards: Array  # (limit,)
    length: Array
    cut: Array

    @property
    def limit(self) -> int:
        return self.actions.shape[-1]

    @property
    def taken(self) -> Array:
        """Which steps belong to the episode, (..., limit)."""
        return jnp.arange(self.limit) < self.length[..., None]

    @property
    def goes_on(self) -> Array:
        """Which steps lead to a state that has a value, (..., limit)."""
        return jnp.arange(self.limit) < self.length[..., None] - 1 + self.cut[..., None]

    @classmethod
    def empty(cls, observation: Array, limit: int, *several: int) -> "Episode":
        """One, or several, that nothing has happened in yet."""
        seen = jnp.zeros((*several, limit + 1, *jnp.shape(observation)), observation.dtype)
        steps = (*several, limit)
        return cls(
            seen,
            jnp.zeros(steps, jnp.int32),
            jnp.zeros(steps, float),
            jnp.zeros(several, jnp.int32),
            jnp.zeros(several, bool),
        )


class World(Protocol):
    """A world to act in for one episode after another, drawn from a prior.

    limit: steps after which every episode has ended
    actions: how many there are in every state

    A world whose `states` are numbered says how many there are, and shows their numbers.
    """

    @property
    def limit(self) -> int: ...
    @property
    def actions(self) -> int: ...

    def init(self, key: Key) -> Any:
        """Draw the truth."""
        ...

    def reset(self, key: Key, world: Any) -> tuple[Any, Array]:
        """(state, observation) at which an episode begins."""
        ...

    def step(self, key: Key, world: Any, state: Any, action: Array) -> Step: ...

    def regret(self, world: Any, episode: Episode) -> Array:
        """What an episode has lost to the best one, for scoring alone."""
        ...


class Policy(Protocol):
    """What an agent does throughout an episode; a pytree."""

    def __call__(self, key: Key, observation: Array, t: Array, /) -> Array: ...


class Agent(Protocol):
    """A rule for acting in episodes: a value function is drawn for each, then learned from it."""

    def init(self, key: Key, episode: Episode) -> Any:
        """The state before the first episode; an empty one shows shapes and types."""
        ...

    def policy(self, key: Key, state: Any) -> Policy: ...

    def update(self, key: Key, state: Any, episode: Episode) -> Any: ...
