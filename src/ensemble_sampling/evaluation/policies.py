"""Whatever can decide, as a function from many offers to the probabilities of all actions."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..config import as_array
from ..core import fact, some_key
from ..decide.bandit import Bandit, parts
from ..decide.programs import Rule, State, offered, probabilities
from ..inputs.hashing import precision
from ..inputs.offer import shown
from .log import Log, Offers
from .pupils import Pupil, fitting, learned, pupil, refuse_missing

Policy = Callable[[Offers], np.ndarray]
"""Offers of m decisions -> how likely each action would have been (m, K)."""

VALUES = 1 << 18  # that the models of an agent hold at a time: they fit into the cache


class Offer(NamedTuple):
    """One decision's offer, as a policy that is a function sees it.

    features: (K, d), the same row for all where they share a context
    available: (K,) which of the actions could be chosen
    actions: their names, or None
    """

    features: Any
    available: Any
    actions: Any = None


def as_policy(given: Any, log: Log, seed: int = 0, normalise: bool = True) -> Policy:
    """A bandit as it is now; an agent in a state, (agent, state); an agent, or None for the default
    one, as the other half of the log would have taught it; a function of an `Offer`; or the
    probabilities themselves."""
    if isinstance(given, type):
        raise TypeError(f"a policy must be an object: write {given.__name__}(...), not the class")
    if isinstance(given, Bandit):
        return _checked(_bandit(given, log), log)
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "act"):
        return _checked(_in_state(*given, log), log)
    if given is None or hasattr(given, "act") or hasattr(given, "sample"):
        return _checked(_taught(pupil(given, log, normalise), log, seed), log)
    if callable(given):
        return _checked(_function(given, log), log)
    return _checked(_table(given, log), log)


def _in_state(agent: Any, given: Any, log: Log) -> Policy:
    """An agent in a state of its own, or in that of a bandit."""
    state = given if isinstance(given, State) else State(None, given)
    agent = fitting(agent, log)
    if state.scale is None or state.scale.mean is None:
        refuse_missing(log, repr(agent))
    if not fact(agent, "host"):
        wanted = jax.eval_shape(agent.init, some_key())
        shapes = [jax.tree.map(np.shape, belief) for belief in (wanted, state.belief)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"the state is not one of {agent!r}: give what its own init and update made, or "
                "the `state` of a bandit that has this very agent"
            )
    return _frozen(Rule(agent), state, log)


def _checked(policy: Policy, log: Log) -> Policy:
    """Probabilities, of what was on offer."""

    def checked(offers: Offers) -> np.ndarray:
        count = len(offers.features)
        chances = np.asarray(policy(offers), np.float64)
        if chances.shape != (count, log.arms):
            raise ValueError(
                f"a policy must give {log.arms} probabilities for each decision, got shape "
                f"{chances.shape[1:]}"
            )
        off = ~((chances >= -1e-6).all(axis=1) & (np.abs(chances.sum(axis=1) - 1) < 1e-3))
        if off.any():
            raise ValueError(
                "a policy's probabilities must be at least 0 and sum to 1: "
                f"{int(off.sum())} of {count} decisions from {offers.rows.start} on have others, "
                f"the first {chances[off][0].tolist()}"
            )
        if offers.available is not None:
            outside = np.where(offers.available, 0.0, chances).sum(axis=1) > 1e-6
            if outside.any():
                raise ValueError(
                    f"the policy chooses what is not available in {int(outside.sum())} of {count} "
                    f"decisions from {offers.rows.start} on"
                )
        return np.maximum(chances, 0.0)

    return checked


def _table(given: Any, log: Log) -> Policy:
    """The probabilities themselves: (n, K), or (K,) for every decision alike."""
    try:
        table = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "a policy must be a bandit, an agent, (agent, state), a function from an offer to "
            f"probabilities, or an array of them; got {given!r}"
        ) from error
    if table.shape not in ((log.arms,), (len(log), log.arms)):
        raise ValueError(
            f"a policy's probabilities must have shape ({log.arms},) or {(len(log), log.arms)}, "
            f"one row for every decision with an outcome; got {table.shape}"
        )
    table = np.broadcast_to(table, (len(log), log.arms))
    return lambda offers: table[offers.rows]


def _function(function: Any, log: Log) -> Policy:
    """A function of one offer; one that was compiled by `jax.jit` is mapped over many at once."""
    if not hasattr(function, "lower"):
        return lambda offers: np.stack(
            [_vector(function(o), log) for o in _one_by_one(offers, log)]
        )

    @jax.jit
    def many(features: Array, available: Array) -> Array:
        def one(features: Array, available: Array) -> Array:
            rows = jnp.broadcast_to(features, (log.arms, log.dim))
            return function(Offer(rows, available, None))

        return jax.vmap(one)(features, available)

    return lambda offers: np.asarray(many(*padded(offers, log)))[: len(offers.features)]


def _vector(given: Any, log: Log) -> np.ndarray:
    chances = np.asarray(given, np.float64)
    if chances.shape != (log.arms,):
        raise ValueError(
            f"a policy must give {log.arms} probabilities for an offer, got shape {chances.shape}"
        )
    return chances


def _one_by_one(offers: Offers, log: Log) -> Any:
    count = len(offers.features)
    features = np.broadcast_to(offers.features, (count, log.arms, log.dim))
    available = np.broadcast_to(True, (count, log.arms))
    available = available if offers.available is None else offers.available
    names = [log.actions] * count if offers.names is None else offers.names
    return map(Offer, features, available, names)


def padded(offers: Offers, log: Log) -> tuple[np.ndarray, np.ndarray]:
    """Filled up to a power of two, so that few sizes are compiled."""
    count, room = len(offers.features), 1 << (len(offers.features) - 1).bit_length()
    features = np.zeros((room, *offers.features.shape[1:]), precision())
    features[:count] = offers.features
    available = np.ones((room, log.arms), bool)
    if offers.available is not None:
        available[:count] = offers.available
    return features, available


def _frozen(rule: Rule, state: State, log: Log) -> Policy:
    """An agent that does not learn any more."""
    key = jax.random.key(0, impl="threefry2x32")
    if fact(rule.agent, "host"):

        def each(offers: Offers) -> np.ndarray:
            rows = [_alone(rule, key, state, *o[:2]) for o in _one_by_one(offers, log)]
            return np.stack([np.asarray(row) for row in rows])

        return each
    shape = jax.ShapeDtypeStruct((log.arms, log.dim), precision())
    values = jax.eval_shape(lambda s, f: fact(rule.agent, "values")(key, s, f), state.belief, shape)
    models = 1 if values is None else len(values)
    batch = max(1, VALUES // (models * log.arms))
    leaves, structure = jax.tree.flatten(jax.tree.map(as_array, rule))
    many = _many(structure, 1 << (batch.bit_length() - 1))

    def of(offers: Offers) -> np.ndarray:
        chances = many(leaves, key, state, *padded(offers, log))
        return np.asarray(chances)[: len(offers.features)]

    return of


def _alone(rule: Rule, key: Any, state: State, features: Any, available: Any) -> Any:
    features, look = offered(rule, key, state, jnp.asarray(features), jnp.asarray(available))
    return probabilities(rule, look, state, features, available)


@lru_cache(maxsize=64)
def _many(structure: Any, batch: int) -> Any:
    """Compiled for rules of one structure, so many decisions at a time."""

    @jax.jit
    def run(leaves: Any, key: Any, state: State, features: Array, available: Array) -> Array:
        rule = jax.tree.unflatten(structure, leaves)
        one = jax.vmap(lambda f, a: _alone(rule, key, state, f, a))
        if len(features) <= batch:
            return one(features, available)
        parts = [part.reshape(-1, batch, *part.shape[1:]) for part in (features, available)]
        return jax.lax.map(lambda part: one(*part), tuple(parts)).reshape(available.shape)

    return run


def _bandit(bandit: Bandit, log: Log) -> Policy:
    """A bandit as it is now, whose actions may have names, in an order of their own."""
    with parts(bandit) as (replica, _):
        agent, names, floor = replica.agent, replica.inputs.names, replica.setup.floor
    if agent is None:
        raise ValueError("the bandit has decided nothing yet, and so has no probabilities")
    rule, state = Rule(agent, floor or None), bandit.state
    if state.scale is None or state.scale.mean is None:
        refuse_missing(log, repr(bandit))
    if fact(agent, "dim") not in (None, log.dim):
        raise ValueError(f"the bandit takes {fact(agent, 'dim')} features, the log has {log.dim}")
    if names is None or log.actions is None or names == log.actions:
        return _frozen(Rule(fitting(agent, log), rule.floor), state, log)
    known = {name: i for i, name in enumerate(names)}
    if unknown := [name for name in log.actions if name not in known]:
        counts = np.bincount(log.chosen, minlength=log.arms)
        said = [f"{name!r} (chosen {counts[log.actions.index(name)]} times)" for name in unknown]
        raise ValueError(
            f"the log has actions that the policy does not know, {', '.join(said)}; "
            f"it knows {shown(names)}"
        )
    places = np.array([known[name] for name in log.actions])
    inner = _frozen(rule, state, _Sized(len(names), log.dim, names))  # pyright: ignore[reportArgumentType]

    def of(offers: Offers) -> np.ndarray:
        count = len(offers.features)
        available = np.zeros((count, len(names)), bool)
        available[:, places] = True if offers.available is None else offers.available
        features = offers.features
        if features.shape[1] > 1:
            features = np.zeros((count, len(names), log.dim), features.dtype)
            features[:, places] = offers.features
        return inner(offers._replace(features=features, available=available))[:, places]

    return of


class _Sized(NamedTuple):
    """As much of a log as a policy needs to know, for one with other actions."""

    arms: int
    dim: int
    actions: Any


def _taught(one: Pupil, log: Log, seed: int) -> Policy:
    """An agent that learned one half of the log, in order, for each decision of the other half."""
    middle = len(log) // 2
    halves = [slice(middle, len(log)), slice(0, middle)]
    x = log.chosen_rows().astype(precision(), copy=False)
    states = [learned(one, seed, x[half], log.chosen[half], log.outcome[half]) for half in halves]
    acting = [_frozen(one.rule, state, log) for state in states]

    def of(offers: Offers) -> np.ndarray:
        cut = np.clip(middle - offers.rows.start, 0, len(offers.features))
        parts = [slice(0, cut), slice(cut, len(offers.features))]
        done = [
            act(_part(offers, part))
            for act, part in zip(acting, parts, strict=True)
            if part.stop > part.start
        ]
        return np.concatenate(done)

    return of


def _part(offers: Offers, part: slice) -> Offers:
    available = None if offers.available is None else offers.available[part]
    return Offers(offers.rows, offers.features[part], available, None)
