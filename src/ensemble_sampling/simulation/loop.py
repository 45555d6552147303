"""The only loop over periods: one realization of an agent in an environment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..core import Action, Agent, Environment, Key, Round, fact


class Event(NamedTuple):
    """What happened in a period, before the agent has learned from it."""

    t: Array
    offer: Round
    action: Action
    outcome: Array


Measure = Callable[[Any, Key, Any, Event], Array]
"""(agent, key, state, event) -> the number or numbers to record in place of the regret.

It is compiled in: a function, or a frozen dataclass with `__call__`, equal ones share a program.
"""


def realization(
    agent: Agent,
    environment: Environment,
    key: Key,
    periods: int,
    coupled: bool,
    expected: bool = False,
    measure: Measure | None = None,
    last: bool = False,
) -> tuple[Array, dict[str, Array]]:
    """One run: regret per period to its best action, and what went wrong on the way.

    World, outcomes and agent have streams of their own. A period's keys come from its number or,
    when coupled, from (arm, how often it was pulled): the n-th pull of an arm then brings the
    same noise to every agent, and to every member (the coupling of the paper's appendix).

    last: only the last period's is given, of shape (1,).
    """
    world_key, outcome_key, agent_key = jax.random.split(key, 3)
    measure_key = jax.random.fold_in(key, 3)
    init_key, offer_key = jax.random.split(world_key)
    start_key, act_key, update_key = jax.random.split(agent_key, 3)
    world = environment.init(init_key)
    arms = jax.eval_shape(environment.offer, offer_key, world).features.shape[0]
    advance, advance_key = fact(environment, "advance"), jax.random.fold_in(key, 4)
    scan, branch = (_scan, _branch) if fact(agent, "host") else (jax.lax.scan, jax.lax.cond)

    def chances(state: Any, offer: Round) -> Array:
        key = jax.random.fold_in(act_key, periods)  # the one period has not used
        return agent.probabilities(state, offer.features, offer.available, key)

    def period(carry: Any, t: Array) -> tuple[Any, Any]:
        state, pulls, nonfinite, moved, _ = carry
        now = world if advance is None else moved
        offer = environment.offer(jax.random.fold_in(offer_key, t), now)
        index = agent.act(jax.random.fold_in(act_key, t), state, offer.features, offer.available)
        action = Action(index, offer.features[index])
        moment = index * periods + pulls[index] if coupled else t
        means = offer.means
        if offer.available is not None:
            means = jnp.where(offer.available, means, -jnp.inf)
        regret = means.max() - means[index]
        if expected:
            regret = branch(
                t == periods - 1,
                lambda: _average(means.max() - means, chances(state, offer)),
                lambda: jnp.asarray(regret, float),  # mean rewards may be whole numbers
            )
        around = now if offer.world is None else offer.world
        outcome = environment.outcome(jax.random.fold_in(outcome_key, moment), around, action)
        if measure is not None:
            event = Event(t, offer, action, outcome)
            regret = measure(agent, jax.random.fold_in(measure_key, t), state, event)
        state = agent.update(jax.random.fold_in(update_key, moment), state, action, outcome)
        pulls = pulls.at[index].add(1) if coupled else pulls
        finite = jnp.all(jnp.isfinite(outcome))
        if last:  # the regret of the other periods is seen by nobody
            finite &= jnp.isfinite(regret)
        nonfinite = nonfinite + ~finite
        if advance is not None:
            moved = advance(jax.random.fold_in(advance_key, t + 1), now, t + 1)
        latest = jnp.asarray(regret, float) if last else None
        return (state, pulls, nonfinite, moved, latest), None if last else regret

    pulls = jnp.zeros(arms if coupled else 0, jnp.int32)
    moved = None if advance is None else world  # a world that stays is no part of what is carried
    nothing = jnp.zeros((), float) if last else None
    start = (agent.init(start_key), pulls, jnp.zeros((), jnp.int32), moved, nothing)
    (state, _, nonfinite, _, latest), regret = scan(period, start, jnp.arange(periods))
    regret = regret if latest is None else latest[None]
    diverged = jnp.asarray(fact(agent, "diverged")(state), jnp.int32)
    return regret, {"nonfinite": nonfinite, "diverged": diverged}


def _scan(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, times: Array) -> tuple[Any, Any]:
    """`jax.lax.scan` run by Python, for agents that cannot be traced."""
    emitted = []
    for t in times:
        carry, value = step(carry, t)
        emitted += [] if value is None else [value]
    return carry, jnp.stack(emitted) if emitted else None


def _branch(condition: Array, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    return then() if condition else otherwise()


def _average(values: Array, chances: Array) -> Array:
    return jnp.where(chances > 0, values * chances, 0.0).sum()  # an unavailable one is infinite
