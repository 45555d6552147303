"""Policies of every kind, as the probabilities that they would have given to a log's actions."""

from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..core import fact, some_key
from ..decide import programs
from ..decide.bandit import Bandit, parts
from ..decide.programs import Rule, State
from ..inputs.features import precision
from ..inputs.offer import shown
from ..primitives import PLAIN
from .informed import Pupil, arrays_of, check_sizes, padded, refuse_missing
from .log import Log, Offer, refuse, slices

BATCH = 256  # decisions that an agent's models look at together: what they compute is in the cache


def probabilities(policy: Any, log: Log, seed: int = 0, normalise: bool = True) -> np.ndarray:
    """How likely a policy would have chosen each action in every decision (n, K).

    A policy is a bandit as it is now; an agent in a state, (agent, state); an agent, or None for
    the default one, as the other half of the log would have taught it; a function of an `Offer`, to
    probabilities or to the action it chooses; or the probabilities themselves.
    """
    if isinstance(policy, type):
        raise TypeError(f"a policy must be an object: write {policy.__name__}(...), not the class")
    if isinstance(policy, Bandit):
        found = _of_bandit(policy, log)
    elif isinstance(policy, tuple) and len(policy) == 2 and hasattr(policy[0], "act"):
        found = _in_state(Rule(policy[0]), policy[1], log)
    elif policy is None or hasattr(policy, "act") or hasattr(policy, "sample"):
        found = _taught(Pupil.of(policy, log, normalise), log, seed)
    elif callable(policy):
        found = _of_function(policy, log)
    else:
        found = _given(policy, log)
    found = np.asarray(found, np.float64)
    refuse(
        (found < -1e-6).any(axis=1) | ~(np.abs(found.sum(axis=1) - 1) < 1e-3),
        "a policy's probabilities must be at least 0 and sum to 1: {} decisions have others, the "
        "first {}",
        found,
    )
    outside = np.where(log.available, 0.0, found).sum(axis=1) > 1e-6
    refuse(outside, "the policy chooses what is not available in {} decisions")
    return np.maximum(found, 0.0)


def _given(table: Any, log: Log) -> np.ndarray:
    """The probabilities themselves: (n, K), or (K,) for every decision alike."""
    try:
        found = np.asarray(table, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "a policy must be a bandit, an agent, (agent, state), a function from an offer to "
            f"probabilities, or an array of them; got {table!r}"
        ) from error
    if found.shape not in ((log.arms,), (len(log), log.arms)):
        raise ValueError(
            f"a policy's probabilities must have shape ({log.arms},) or {(len(log), log.arms)}, "
            f"one row for every decision with an outcome; got {found.shape}"
        )
    return np.broadcast_to(found, (len(log), log.arms))


def _of_function(function: Any, log: Log) -> Any:
    """A function of one offer; one that was compiled by `jax.jit` is mapped over many at once."""

    def one(features: Array, available: Array) -> Array:
        features = jnp.broadcast_to(features, (log.arms, log.dim))
        return _told(function(Offer(features, available)), log.arms, log.arms, jnp)

    if hasattr(function, "lower"):
        return _in_chunks(jax.jit(jax.vmap(one)), log, slice(0, len(log)))
    found = np.zeros((len(log), log.arms))
    for row, offer in zip(found, log.offers(), strict=True):
        row[:] = _told(function(offer), len(offer.actions), log.arms)
    return found


def _told(found: Any, size: int, arms: int, np: Any = np) -> Any:
    """The probabilities (arms,) that a function gave, or the one action that it would choose, for
    an offer of `size` actions; with `jax.numpy` for `np` where it is compiled."""
    given = np.asarray(found)
    if given.shape == () and given.dtype.kind in "iu":
        if np is not jnp and not 0 <= given < size:
            raise ValueError(
                f"a policy must choose one of the {size} actions on offer, got {found}"
            )
        return given == np.arange(arms)
    if given.shape not in ((size,), (arms,)):
        raise ValueError(
            f"a policy must give {size} probabilities for an offer, or the position of the action "
            f"that it chooses; got {given.dtype} of shape {given.shape}"
        )
    return np.pad(given, (0, arms - len(given)))


def _in_chunks(function: Any, log: Log, decisions: slice) -> np.ndarray:
    """What a compiled function of the features and masks of many decisions gives (m, K)."""
    found = np.empty((decisions.stop - decisions.start, log.arms))
    for rows in slices(decisions.stop, decisions.start):
        features = log.features(rows).astype(precision())
        many = function(padded(features), padded(log.available[rows]))
        found[rows.start - decisions.start :][: len(features)] = many[: len(features)]
    return found


Places = tuple[np.ndarray, np.ndarray]
"""Where actions are whose order in a bandit is not that of the log: of each that the bandit knows,
where it is in the log (-1: nowhere); of each in the log, where it is in the bandit."""


def _of_agent(
    rule: Rule, state: State, log: Log, decisions: slice, places: Places | None = None
) -> np.ndarray:
    """An agent that does not learn any more, in some of the decisions."""
    if not fact(rule.agent, "host"):
        return _in_chunks(partial(_many, arrays_of(rule), state, places), log, decisions)
    offers = islice(log.offers(), decisions.start, decisions.stop)
    rows = [_alone(rule, state, places, jnp.asarray(o.features), o.available) for o in offers]
    return np.array(rows).reshape(-1, log.arms)


def _alone(rule: Rule, state: State, places: Places | None, features: Any, available: Any) -> Any:
    """How likely each action of one decision is."""
    if places is not None:
        known, logged = places
        features = features if len(features) == 1 else features[known]
        available = jnp.where(known < 0, False, available[known])
        return _alone(rule, state, None, features, available)[logged]
    key = jax.random.key(0, impl=PLAIN)
    features, look = programs.offered(rule, key, state, features, available)
    return programs.probabilities(rule, look, state, features, available)


@jax.jit
def _many(
    rule: Rule, state: State, places: Places | None, features: Array, available: Array
) -> Array:
    def one(offer: tuple[Array, Array]) -> Array:
        return _alone(rule, state, places, *offer)

    return jax.lax.map(one, (features, available), batch_size=BATCH)


def _taught(pupil: Pupil, log: Log, seed: int) -> np.ndarray:
    """An agent that learned one half of the log, in order, in the decisions of the other half."""
    middle, x = len(log) // 2, log.chosen_features().astype(precision(), copy=False)
    halves = [slice(0, middle), slice(middle, len(log))]
    found = []
    for judged, learned in zip(halves, reversed(halves), strict=True):
        state = pupil.as_bandit(seed, x[learned], log.chosen[learned], log.outcome[learned])
        found.append(_of_agent(Rule(pupil.agent), state, log, judged))
    return np.concatenate(found)


def _in_state(rule: Rule, given: Any, log: Log, places: Places | None = None) -> np.ndarray:
    """An agent in a state of its own, or in that of a bandit."""
    state = given if isinstance(given, State) else State(None, given)
    check_sizes(rule.agent, log.arms if places is None else len(places[0]), log)
    if not fact(rule.agent, "host"):
        wanted = jax.eval_shape(rule.agent.init, some_key())
        shapes = [jax.tree.map(np.shape, belief) for belief in (wanted, state.belief)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"the state is not one of {rule.agent!r}: give what its own init and update made, "
                "or the `state` of a bandit that has this very agent"
            )
    if state.scale is None or state.scale.mean is None:  # which is what missing features count as
        refuse_missing(log, repr(rule.agent))
    return _of_agent(rule, state, log, slice(0, len(log)), places)


def _of_bandit(bandit: Bandit, log: Log) -> np.ndarray:
    """A bandit as it is now, whose actions may have names, in an order of their own."""
    state = bandit.state
    with parts(bandit) as (replica, _):
        agent, inputs, setup, now = replica.agent, replica.inputs, replica.setup, replica.version
    if agent is None:
        raise ValueError("the bandit has decided nothing yet, and so has no probabilities")
    fields = None if setup.recipe is None or now is None else now.fields
    log = log.as_seen(inputs, fields)
    rule, actions, names = Rule(agent, setup.floor or None), log.actions, inputs.names
    if names is None or actions is None or names == actions:
        return _in_state(rule, state, log)
    if unknown := [name for name in actions if name not in names]:
        counts = np.bincount(log.chosen, minlength=log.arms)
        said = [f"{name!r} (chosen {counts[actions.index(name)]} times)" for name in unknown]
        raise ValueError(
            f"the log has actions that the policy does not know, {', '.join(said)}; "
            f"it knows {shown(names)}"
        )
    where = {name: at for at, name in enumerate(actions)}
    known = np.array([where.get(name, -1) for name in names])
    places = known, np.array([names.index(name) for name in actions])
    return _in_state(rule, state, log, places)
