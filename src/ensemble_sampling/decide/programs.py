"""The functions a bandit runs, compiled once for all agents of one structure."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..config import as_array
from ..core import Action, Agent, Key, fact
from .scale import Scale


class State(NamedTuple):
    """Everything learned; a function of the ledger's outcomes in their order."""

    scale: Scale | None
    belief: Any


class Programs(NamedTuple):
    """What an agent does, as functions whose first argument is `bound`, the agent's numbers."""

    bound: Any
    init: Any
    choose: Any
    learn: Any


def programs(agent: Agent) -> Programs:
    """`init`, `choose` and `learn` for an agent; where it runs in plain Python, as they are."""
    if fact(agent, "host"):
        return Programs(agent, init, choose, learn)
    bound, structure = jax.tree.flatten(jax.tree.map(as_array, agent))
    return Programs(bound, *_compiled(structure))


@lru_cache(maxsize=64)
def _compiled(structure: Any) -> tuple[Any, Any, Any]:
    """For agents of one structure; settings stay free."""

    def of(function: Any, **options: Any) -> Any:
        def run(leaves: list[Array], *rest: Any) -> Any:
            return function(jax.tree.unflatten(structure, leaves), *rest)

        return jax.jit(run, **options)

    return of(init), of(choose), of(learn, donate_argnums=2)


def init(agent: Agent, key: Key) -> Any:
    return agent.init(key)


def choose(agent: Agent, words: Array, state: State, features: Array, available: Array) -> Array:
    """The probabilities of a decision and, as one more entry, the index drawn from them.

    That is how `agent.act` is distributed; drawing from what is recorded makes the propensity
    exact for every agent, also where probabilities are themselves estimated from samples.
    """
    key = _key(words)
    features = features if state.scale is None else state.scale.apply(features)
    features = jnp.broadcast_to(features, (*jnp.shape(available), jnp.shape(features)[1]))
    shares = agent.probabilities(state.belief, features, available, jax.random.fold_in(key, 1))
    total = jnp.where(shares > 0, jnp.cumsum(shares), -1.0)  # rounding picks none that has no share
    index = jnp.argmax(total > total.max() * jax.random.uniform(key, dtype=shares.dtype))
    return jnp.append(shares, index.astype(shares.dtype))


def learn(agent: Agent, words: Array, state: State, features: Array, outcome: Array) -> State:
    """The state after the outcome of a decision; its index is the third of the words."""
    key, index = _key(words[:2]), words[2].astype(jnp.int32)
    scale = None if state.scale is None else state.scale.see(features)
    features = features if scale is None else scale.apply(features)
    return State(scale, agent.update(key, state.belief, Action(index, features), outcome))


def _key(words: Array) -> Key:
    """A key for (stream, number), those of every decision: the cipher takes any two words."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")
