"""What the models of a posterior think of the actions on offer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..agents.greedy import shares
from ..core import Key, Posterior


class View(NamedTuple):
    """What the models of a posterior think of the actions on offer.

    probabilities: how likely each action is to be chosen (K,), the members' votes
    mean, spread: of the models' predictions (K,); correlation: between actions (K, K)
    distinct: how many different actions the models' votes name
    effective: the same, weighed: exp(entropy), as many as if that many were equally likely
    models: how many they are, members or draws
    """

    probabilities: Array
    mean: Array
    spread: Array
    correlation: Array
    distinct: Array
    effective: Array
    models: int


def look(
    posterior: Posterior,
    belief: Any,
    features: Array,
    available: Array | None = None,
    *,
    key: Key | None = None,
    draws: int = 1000,
) -> View:
    """What the members think now; for a posterior without members, `draws` samples stand in."""
    key = jax.random.key(0) if key is None else key
    return view(posterior.values(key, belief, features, checks.size("draws", draws)), available)


def view(values: Array, available: Array | None = None) -> View:
    """The same from the values (S, K) that S equally likely models give the actions."""
    if jnp.ndim(values) != 2 or not len(values):
        raise ValueError(f"values must have shape (models, actions), got {jnp.shape(values)}")
    votes = shares(values, available).mean(axis=0)
    mean = values.mean(axis=0)
    off = values - mean
    covariance = off.T @ off / max(1, len(values) - 1)
    spread = jnp.sqrt(jnp.diagonal(covariance))
    scale = jnp.outer(spread, spread)
    correlation = jnp.where(scale > 0, covariance / scale, jnp.eye(len(mean)))
    entropy = -jnp.where(votes > 0, votes * jnp.log(votes), 0.0).sum()
    distinct, effective = (votes > 0).sum(), jnp.exp(entropy)
    return View(votes, mean, spread, correlation, distinct, effective, len(values))
