"""The only loop over episodes: one realization of an agent in a world."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..core import Key, fact
from .world import Agent, Episode, Policy, World


class Event(NamedTuple):
    """An episode, before the agent has learned from it."""

    number: Array
    world: Any
    episode: Episode


Measure = Callable[[Any, Key, Any, Event], Array]
"""(agent, key, state, event) -> the number or numbers to record in place of the regret.

It is compiled in: a function, or a frozen dataclass with `__call__`, equal ones share a program.
"""


class Faults(NamedTuple):
    """What a world or agent did that it may not."""

    nonfinite: Array
    endless: Array
    stray: Array


def empty_episode(environment: World) -> Episode:
    """The shapes and types of an episode, and nothing in it."""
    key = jax.random.key(0)
    observation = jax.eval_shape(lambda: environment.reset(key, environment.init(key))[1])
    return Episode.empty(observation, environment.limit)


def play(key: Key, environment: World, world: Any, policy: Policy) -> tuple[Episode, Faults]:
    """One episode of a policy. Its steps are numbered: step t has the same luck for every agent."""
    reset_key, step_key, act_key = jax.random.split(key, 3)
    state, first = environment.reset(reset_key, world)

    def step(carry: Any, t: Array) -> tuple[Any, Any]:
        state, observation, over, cut, faults = carry
        action = policy(jax.random.fold_in(act_key, t), observation, t)
        stray = (action < 0) | (action >= environment.actions)
        after = environment.step(jax.random.fold_in(step_key, t), world, state, action)
        nonfinite = ~jnp.isfinite(after.reward)
        faults = jax.tree.map(lambda n, bad: n + (bad & ~over), faults, (nonfinite, stray))
        moved = jax.tree.map(
            lambda new, old: jnp.where(over, old, new),
            (after.state, after.observation, after.cut),
            (state, observation, cut),
        )
        reward = jnp.where(over, 0.0, after.reward)
        action = jnp.where(over, 0, action).astype(jnp.int32)
        row = after.observation, action, reward, ~over
        return (*moved[:2], over | after.end, moved[2], faults), row

    none = jnp.zeros((), jnp.int32)
    start = state, first, jnp.array(False), jnp.array(False), (none, none)
    times = jnp.arange(environment.limit)
    (_, _, over, cut, (nonfinite, stray)), rows = jax.lax.scan(step, start, times)
    seen, actions, rewards, taken = rows
    blank = taken.reshape(-1, *(1 for _ in first.shape))
    seen = jnp.concatenate([first[None], jnp.where(blank, seen, 0)])
    episode = Episode(seen, actions, rewards, taken.sum(dtype=jnp.int32), cut)
    return episode, Faults(nonfinite, (~over).astype(jnp.int32), stray)


def realization(
    agent: Agent, environment: World, key: Key, episodes: int, measure: Measure | None = None
) -> tuple[Array, dict[str, Array]]:
    """One run: regret per episode, and what went wrong on the way.

    World, its luck and the agent have streams of their own, and an episode's keys come from its
    number, so that every agent meets the same worlds with the same luck.
    """
    world_key, luck_key, agent_key = jax.random.split(key, 3)
    start_key, policy_key, update_key = jax.random.split(agent_key, 3)
    measure_key = jax.random.fold_in(key, 3)
    world = environment.init(world_key)

    def episode(state: Any, number: Array) -> tuple[Any, Any]:
        policy = agent.policy(jax.random.fold_in(policy_key, number), state)
        played, faults = play(jax.random.fold_in(luck_key, number), environment, world, policy)
        if measure is None:
            recorded = environment.regret(world, played)
        else:
            event = Event(number, world, played)
            recorded = measure(agent, jax.random.fold_in(measure_key, number), state, event)
        state = agent.update(jax.random.fold_in(update_key, number), state, played)
        return state, (jnp.asarray(recorded, float), faults)

    state = agent.init(start_key, empty_episode(environment))
    state, (recorded, faults) = jax.lax.scan(episode, state, jnp.arange(episodes))
    diverged = jnp.asarray(fact(agent, "diverged")(state), jnp.int32)
    tally = {name: count.sum() for name, count in faults._asdict().items()}
    return recorded, {**tally, "diverged": diverged}
