"""The contract of learners, posteriors, agents and worlds: `check(part)` for one of your own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .agents.thompson import ThompsonSampling
from .core import Action, fact
from .posteriors.ensemble import Ensemble

CHOICES = 4000  # by which frequencies are compared with probabilities
UPDATES = 6

init = jax.jit(lambda part, key: part.init(key))
update = jax.jit(lambda agent, *args: agent.update(*args))
chances = jax.jit(lambda agent, *args: agent.probabilities(*args))
offer = jax.jit(lambda world, key, state: world.offer(key, state))


@jax.jit
def act(agent: Any, keys: Array, state: Any, features: Array, available: Array) -> Array:
    """A choice by every key."""
    return jax.vmap(lambda key: agent.act(key, state, features, available))(keys)


@jax.jit
def outcomes(world: Any, keys: Array, state: Any, action: Action) -> Array:
    """An outcome by every key."""
    return jax.vmap(lambda key: world.outcome(key, state, action))(keys)


def check(part: Any, *, arms: int = 4, dim: int = 3) -> None:
    """Raise an AssertionError, in a sentence, where a part of one's own breaks its contract.

    part: a learner (checked as an ensemble of three), a posterior (as Thompson sampling over it),
        an agent, or a world; which of them is seen from its methods.
    arms, dim: the numbers of actions and of features to check it with, where the part does not say
        its own by `arms` and `dim`.
    """
    if hasattr(part, "offer"):
        return check_world(part)
    if hasattr(part, "predict"):
        check_learner(part, arms, dim)
        part = Ensemble(part, 3)
    agent = part if hasattr(part, "act") else ThompsonSampling(part)
    arms, dim = fact(agent, "arms") or arms, fact(agent, "dim") or dim
    features = jnp.asarray(np.random.default_rng(0).normal(size=(arms, dim)), float)
    states = learned(agent, features)
    check_states(agent, states)
    check_repeatable(agent, states[-1], features)
    for free in (jnp.ones(arms, bool), jnp.arange(arms) != 1):
        check_probabilities(agent, states[-1], features, free)


def called(program: Any, agent: Any, *args: Any) -> Any:
    """Compiled, or as it is where it cannot be."""
    return program.__wrapped__(agent, *args) if fact(agent, "host") else program(agent, *args)


def outcome(agent: Any, t: float) -> Array:
    """Between 0 and 1, which every learner can learn; a vector for those that learn vectors."""
    reward = fact(agent, "reward")
    seen = jnp.sin(t + jnp.arange(1 if reward is None else reward.outcomes, dtype=float)) ** 2
    return seen[0] if reward is None else seen


def learned(agent: Any, features: Array) -> list[Any]:
    """An agent's states at the start and after every one of a few updates."""
    key = jax.random.key(1)
    states = [called(init, agent, key)]
    for t in range(UPDATES):
        key, index = jax.random.fold_in(key, t), t % len(features)
        action = Action(jnp.int32(index), features[index])
        states.append(called(update, agent, key, states[-1], action, outcome(agent, t)))
    return states


def chosen(agent: Any, keys: Array, state: Any, features: Array, available: Array) -> np.ndarray:
    """What it chooses by each of the keys."""
    if not fact(agent, "host"):
        return np.asarray(act(agent, keys, state, features, available))
    return np.array([int(agent.act(key, state, features, available)) for key in keys[:200]])


def check_learner(learner: Any, arms: int, dim: int) -> None:
    """Values of all actions, finite; and `shared` depends on neither the member nor its noise."""
    arms, dim = fact(learner, "arms") or arms, fact(learner, "dim") or dim
    one, two = (learner.init(jax.random.key(seed)) for seed in (0, 1))
    features = jnp.asarray(np.random.default_rng(0).normal(size=(arms, dim)), float)
    values = np.asarray(learner.predict(*one, features))
    _say(values.shape == (arms,), f"predict must give ({arms},) values, got {values.shape}")
    _say(np.isfinite(values).all(), f"predict must give finite values, got {values}")
    same = _equal(one[0], two[0])
    _say(same, "what members share (the first of what init gives) must not depend on the key")


def check_states(agent: Any, states: list[Any]) -> None:
    """An update keeps the structure, shapes and types of a state, and loses no model."""
    lost = int(fact(agent, "diverged")(states[-1]))
    _say(lost == 0, f"{lost} models were lost, or a number is not finite, after {UPDATES} updates")
    kinds = {type(state) for state in states}
    _say(kinds == {type(states[0])}, f"a state must stay of one type, got {kinds}")
    if fact(agent, "host"):
        return
    parts = [jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state) for state in states]
    what = f"an update must keep shapes and types: {parts[0]} became {parts[-1]}"
    _say(all(part == parts[0] for part in parts), what)
    whole = all(np.isfinite(x).all() for x in jax.tree.leaves(states[-1]))
    _say(whole, "every number of a state must be finite")


def check_repeatable(agent: Any, state: Any, features: Array) -> None:
    """The same key gives the same result, and what was there before is left alone."""
    key, y = jax.random.key(5), outcome(agent, 0.3)
    action = Action(jnp.int32(len(features) - 1), features[-1])
    before = called(chances, agent, state, features, None)
    for name, made in (
        ("init", [called(init, agent, key) for _ in range(2)]),
        ("update", [called(update, agent, key, state, action, y) for _ in range(2)]),
    ):
        _say(_equal(*made), f"{name} must give the same for the same key")
    after = called(chances, agent, state, features, None)
    _say(np.array_equal(before, after), "an update must give a new state, and leave the old alone")


def check_probabilities(agent: Any, state: Any, features: Array, available: Array) -> None:
    """They sum to one, are 0 for what cannot be chosen, and are how often actions are chosen.

    A share of n choices has variance p (1 - p) / n, and where the probabilities are themselves
    shares of `draws`, p (1 - p) / draws more. Five standard deviations, and 5 / n for the skew of
    rare choices: below 1e-5 by chance for an action.
    """
    arms, free = len(features), np.asarray(available)
    p = np.asarray(called(chances, agent, state, features, available), np.float64)
    _say(p.shape == (arms,), f"probabilities must have shape ({arms},), got {p.shape}")
    sums = (p >= 0).all() and np.isclose(p.sum(), 1, rtol=1e-5)
    _say(sums, f"probabilities must be positive and sum to 1, got {p}")
    keys = jax.random.split(jax.random.key(8), CHOICES)
    choices = chosen(agent, keys, state, features, available)
    shares = np.bincount(choices, minlength=arms) / len(choices)
    none = (p[~free] == 0).all() and (shares[~free] == 0).all()
    _say(none, f"what is not available must not be chosen: {p}, chosen {shares}, free {free}")
    draws = [agent.draws] if isinstance(agent, ThompsonSampling) else []
    counts, middle = [len(choices), *draws], (p + shares) / 2
    width = np.sqrt(middle * (1 - middle) * sum(1 / n for n in counts))
    alike = np.abs(shares - p) <= 5 * width + 5 / min(counts)
    _say(alike.all(), f"act chose with shares {shares}, where probabilities are {p}")


def check_world(world: Any) -> None:
    """It is a function of its key, offers finite features and means, and pays these on average,
    within five standard errors."""
    key = jax.random.key(0)
    state, other = init(world, key), init(world, jax.random.key(1))
    _say(_equal(state, init(world, key)), "init must give the same for the same key")
    _say(not _equal(state, other), "init must draw another truth by another key")
    alike = jax.tree.structure(state) == jax.tree.structure(other)
    _say(alike, "init must give the same structure by every key")
    row = offer(world, key, state)
    arms, index = len(row.means), jnp.asarray(len(row.means) - 1, jnp.int32)
    _say(row.features.ndim == 2 and len(row.features) == arms, "offer must give features (K, d)")
    _say(row.means.shape == (arms,), f"offer must give means (K,), got {row.means.shape}")
    finite = np.isfinite(row.features).all() and np.isfinite(row.means).all()
    _say(finite, "features and means must be finite")
    free = row.available
    masks = free is None or (free.shape == (arms,) and free.dtype == bool)
    _say(masks, "available must be None, or true or false for every action")
    keys, action = jax.random.split(key, CHOICES), Action(index, row.features[index])
    seen = outcomes(world, keys, state if row.world is None else row.world, action)
    reward = getattr(world, "reward", None)
    paid = np.asarray(seen if reward is None else jax.vmap(reward.function)(seen), np.float64)
    _say(paid.shape == (CHOICES,), f"an outcome's reward must be a number, got {paid.shape[1:]}")
    _say(paid.std() > 0 or paid[0] == row.means[index], "outcomes must be drawn by their key")
    error, mean = paid.std() / np.sqrt(CHOICES), float(row.means[index])
    fair = abs(paid.mean() - mean) <= 5 * error + 1e-6
    _say(fair, f"action {int(index)} pays {paid.mean():.4g} ± {error:.2g}, its mean is {mean:.4g}")


def _equal(one: Any, two: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(_plain(a), _plain(b)) for a, b in pairs)


def _plain(leaf: Any) -> Any:
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _say(holds: Any, message: str) -> None:
    if not holds:
        raise AssertionError(message)
