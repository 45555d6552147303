"""Worlds that are tables of transitions and rewards, and their values."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Key
from .world import Episode, Step


def backward(rewards: Array, transitions: Array, steps: int, discount: float = 1.0) -> Array:
    """Values (steps, S, A) of every action with so many steps left: those of one step first."""

    def back(value: Array, _: None) -> tuple[Array, Array]:
        q = rewards + discount * transitions @ value
        return q.max(axis=-1), q

    return jax.lax.scan(back, jnp.zeros(rewards.shape[0]), None, steps)[1]


class Truth(NamedTuple):
    """What happens in every state (S, A, S), and what it brings on average (S, A)."""

    transitions: Array
    rewards: Array


class Table(eqx.Module):
    """Numbered states with known chances: episodes of `limit` steps from the state `start`, which
    are cut rather than at an end, for any state may be the last.

    transitions: chances (S, A, S) of the next state; rewards: means (S, A)
    noise_std: of normal noise in rewards

    Regret is what the actions taken lose in expectation, V(s) - Q(s, a) summed over the episode.
    """

    transitions: np.ndarray
    rewards: np.ndarray
    limit: int = eqx.field(static=True)
    start: int = eqx.field(static=True, default=0)
    noise_std: float = 0.0
    name: str = eqx.field(static=True, default="table")
    __repr__ = short

    def __post_init__(self) -> None:
        self.transitions = checks.array("transitions", self.transitions, (None, None, None))
        states, actions, after = np.shape(self.transitions)
        if states != after:
            raise ValueError(f"transitions must be (S, A, S), got {np.shape(self.transitions)}")
        self.rewards = checks.array("rewards", self.rewards, (states, actions))
        self.limit = checks.size("limit", self.limit)
        self.start = checks.size("start", self.start, least=0, below=states)
        self.noise_std = checks.scalar("noise_std", self.noise_std, low=0.0, high=checks.LARGEST)
        if checks.known(chances := self.transitions):
            off = np.abs(np.sum(chances, axis=-1) - 1) > 1e-6
            if off.any() or np.min(chances) < 0:
                at = np.argwhere(off | (np.min(chances, axis=-1) < 0))[0].tolist()
                raise ValueError(
                    "transitions must be chances that sum to 1, got "
                    f"{np.asarray(chances)[tuple(at)].tolist()} at {at}"
                )

    @property
    def label(self) -> str:
        return self.name

    @property
    def states(self) -> int:
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        return self.rewards.shape[1]

    def init(self, key: Key) -> Truth:
        return Truth(jnp.asarray(self.transitions, float), jnp.asarray(self.rewards, float))

    def reset(self, key: Key, world: Truth) -> tuple["Place", Array]:
        start = jnp.asarray(self.start, jnp.int32)
        return Place(start, jnp.zeros((), jnp.int32)), start

    def step(self, key: Key, world: Truth, state: "Place", action: Array) -> Step:
        move_key, noise_key = jax.random.split(key)
        here, t = state
        sure = jnp.cumsum(world.transitions[here, action])
        # Beyond what rounding leaves of 1 there is no state.
        after = (jax.random.uniform(move_key) * sure[-1] >= sure[:-1]).sum().astype(jnp.int32)
        reward = world.rewards[here, action] + self.noise_std * jax.random.normal(noise_key)
        late = t + 1 == self.limit
        return Step(Place(after, t + 1), after, reward, late, late)

    def values(self, world: Truth) -> Array:
        """Of every action at every time (limit, S, A)."""
        return backward(world.rewards, world.transitions, self.limit)[::-1]

    def regret(self, world: Truth, episode: Episode) -> Array:
        q, t = self.values(world), jnp.arange(self.limit)
        here = q[t, episode.observations[:-1]]
        return (here.max(axis=-1) - here[t, episode.actions]).sum()


class Place(NamedTuple):
    """Where one is, and after how many steps."""

    state: Array
    t: Array


def chain(length: int) -> Table:
    """The chain of Osband et al. (2016): left is near and worth 1/1000, right is far and worth 1.

    Of `length` states in a row an episode starts at the second and takes length + 8 steps: the
    best one brings 1 in each of the last 10.
    """
    length = checks.size("length", length, least=3)
    states = np.arange(length)
    transitions, rewards = np.zeros((length, 2, length)), np.zeros((length, 2))
    transitions[states, 0, np.maximum(states - 1, 0)] = 1
    transitions[states, 1, np.minimum(states + 1, length - 1)] = 1
    rewards[0], rewards[-1] = 0.001, 1.0
    return Table(transitions, rewards, length + 8, start=1, name=f"chain of {length}")


def river_swim(length: int = 6, limit: int = 20) -> Table:
    """RiverSwim (Strehl and Littman, 2008), with the chances of Osband et al. (2013).

    Left goes with the current, and brings 5/1000 at its end; right swims against it, mostly in
    vain, and brings 1 at the other.
    """
    length = checks.size("length", length, least=3)
    states = np.arange(length)
    transitions, rewards = np.zeros((length, 2, length)), np.zeros((length, 2))
    transitions[states, 0, np.maximum(states - 1, 0)] = 1
    inner = states[1:-1]
    for step, chance in ((-1, 0.05), (0, 0.6), (1, 0.35)):
        transitions[inner, 1, inner + step] = chance
    transitions[0, 1, :2] = 0.4, 0.6
    transitions[-1, 1, -2:] = 0.4, 0.6
    rewards[0, 0], rewards[-1, 1] = 0.005, 1.0
    return Table(transitions, rewards, limit, name=f"river of {length}")
