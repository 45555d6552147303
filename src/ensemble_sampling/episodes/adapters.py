"""Environments of Gymnax and Gymnasium as worlds."""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from itertools import count
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import io_callback

from .. import checks
from ..config import short
from ..core import Key
from .world import Episode, Step


def _package(adapter: str) -> Any:
    """What an adapter is for, which is installed by an extra."""
    name = adapter.lower()
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is there, and lacks something itself
            raise
        words = f"es.episodes.{adapter} needs {name}: pip install 'ensemble-sampling[episodes]'"
        raise ModuleNotFoundError(words, name=name) from error


class Gymnax(eqx.Module):
    """An environment of Gymnax by its name, compiled with the agent.

    best: the return that regret is taken from; with 0, regret is what an episode did not earn
    """

    name: str = eqx.field(static=True)
    best: float = 0.0
    __repr__ = short

    def __post_init__(self) -> None:
        self.best = checks.bounded("best", self.best)
        if not hasattr(self._space, "n"):
            raise ValueError(f"{self.name} has actions that cannot be numbered")

    @property
    def environment(self) -> Any:
        return _gymnax(self.name)[0]

    @property
    def parameters(self) -> Any:
        return _gymnax(self.name)[1]

    @property
    def _space(self) -> Any:
        return self.environment.action_space(self.parameters)

    @property
    def label(self) -> str:
        return self.name

    @property
    def limit(self) -> int:
        return int(self.parameters.max_steps_in_episode)

    @property
    def actions(self) -> int:
        return int(self._space.n)

    def init(self, key: Key) -> tuple[()]:
        return ()

    def reset(self, key: Key, world: tuple[()]) -> tuple[Any, Array]:
        observation, state = self.environment.reset_env(key, self.parameters)
        return _arrays(state), jnp.asarray(observation)

    def step(self, key: Key, world: tuple[()], state: Any, action: Array) -> Step:
        now = self.environment.step_env(key, state, action, self.parameters)
        observation, state, reward, ended, _ = now
        late = self.environment.is_truncated(state, self.parameters)
        late = jnp.asarray(late) & ~ended
        reward = jnp.asarray(reward, float)
        return Step(_arrays(state), jnp.asarray(observation), reward, ended | late, late)

    def regret(self, world: tuple[()], episode: Episode) -> Array:
        return self.best - episode.rewards.sum()


@lru_cache
def _gymnax(name: str) -> tuple[Any, Any]:
    """The environment of a name and its parameters."""
    return _package("Gymnax").make(checks.text("name", name))


def _arrays(state: Any) -> Any:
    """Strongly typed, as a loop must have it: 0 and what it becomes would be two types."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)


class Gymnasium(eqx.Module):
    """An environment of Gymnasium, which runs in Python beside the compiled agent.

    make: its name, or a function that makes the environment
    limit: steps after which an episode is cut; by default that of its specification
    best: the return that regret is taken from; with 0, regret is what an episode did not earn
    """

    make: Any = eqx.field(static=True)
    limit: int = eqx.field(static=True)
    best: float
    host: "_Host" = eqx.field(static=True, repr=False)
    __repr__ = short

    def __init__(self, make: str | Callable[[], Any], limit: int | None = None, best: float = 0.0):
        self.make, self.best = make, checks.bounded("best", best)
        self.host = _Host(make)
        given = getattr(getattr(self.host.environment, "spec", None), "max_episode_steps", None)
        if limit is None and given is None:
            raise ValueError(f"{make} says no limit of steps: give `limit`")
        self.limit = checks.size("limit", given if limit is None else limit)

    @property
    def label(self) -> str:
        return self.make if isinstance(self.make, str) else "Gymnasium"

    @property
    def actions(self) -> int:
        return int(self.host.environment.action_space.n)

    def init(self, key: Key) -> Array:
        """The number of an environment of its own."""
        return io_callback(self.host.open, self.host.number, jax.random.bits(key))

    def reset(self, key: Key, world: Array) -> tuple[Any, Array]:
        seed = jax.random.randint(key, (), 0, 2**31 - 1)
        t, observation = io_callback(self.host.reset, self.host.start, world, seed)
        return (t, jnp.zeros((), bool)), observation

    def step(self, key: Key, world: Array, state: Any, action: Array) -> Step:
        # The time passes through every call, which keeps them in their order.
        t, over = state
        (t, observation), reward, ended, late = io_callback(
            self.host.step, self.host.result, world, action, over, t
        )
        late = (late | (t >= self.limit)) & ~ended
        return Step((t, over | ended | late), observation, reward, ended | late, late)

    def regret(self, world: Array, episode: Episode) -> Array:
        return self.best - episode.rewards.sum()


class _Host:
    """The environments that are open, by number, and the calls of compiled programs to them."""

    EPISODES = 1024
    """Of those that are open: a realization does not say that it has ended."""

    def __init__(self, make: Any):
        if isinstance(make, str):
            gymnasium = _package("Gymnasium")
            self.make = lambda: gymnasium.make(make)
        elif callable(make):
            self.make = make
        else:
            raise TypeError(f"make must be a name or a function, got {make!r}")
        self.environment: Any = self.make()
        if not hasattr(self.environment.action_space, "n"):
            raise ValueError(f"{make} has actions that cannot be numbered")
        self.opened, self.numbers = {}, count()
        space = self.environment.observation_space
        kind = jnp.int32 if np.issubdtype(space.dtype, np.integer) else jnp.result_type(float)
        self.number = jax.ShapeDtypeStruct((), jnp.int32)
        truth = jax.ShapeDtypeStruct((), bool)
        reward = jax.ShapeDtypeStruct((), jnp.result_type(float))
        self.start = self.number, jax.ShapeDtypeStruct(space.shape, kind)
        self.result = self.start, reward, truth, truth

    def open(self, luck: Any) -> Any:
        number = next(self.numbers)
        self.opened[number] = self.make()
        if (oldest := number - self.EPISODES) in self.opened:
            del self.opened[oldest]
        return np.int32(number)

    def reset(self, number: Any, seed: Any) -> Any:
        observation, _ = self.opened[int(number)].reset(seed=int(seed))
        return self._typed((0, observation), self.start)

    def step(self, number: Any, action: Any, over: Any, t: Any) -> Any:
        if over:  # compiled loops go on to the limit; the environment does not
            return jax.tree.map(lambda like: np.zeros(like.shape, like.dtype), self.result)
        observation, reward, ended, late, _ = self.opened[int(number)].step(int(action))
        return self._typed(((int(t) + 1, observation), reward, ended, late), self.result)

    def _typed(self, values: Any, like: Any) -> Any:
        return jax.tree.map(lambda one, value: np.asarray(value, one.dtype), like, values)
