"""A log as a world to simulate in: its offers, and rewards as a model of its outcomes has them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..core import Action, Key, Round
from ..learners.linear import Linear
from .log import Log, slices
from .model import RewardModel


class Plausible(NamedTuple):
    """A reward model that the log does not contradict, and a resample of its decisions."""

    theta: Array
    rows: Array


class Logged(eqx.Module):
    """Rounds drawn from a log, with rewards by a linear model of its outcomes.

    What the log leaves open stays open: every realization draws its own model from the posterior
    given the log, and its own resample of the decisions, so that the intervals of `simulate`
    include both. Noise is resampled from the model's residuals; where all outcomes are 0 or 1,
    outcomes are drawn to be 0 or 1. It is a model: an agent that would find what the model has
    not, a curve say, gains nothing by it here.

    log: a `Log`, or what `Log.of` makes one of
    model: the `Linear` learner of rewards; None is one that is told nothing
    """

    features: Any
    available: Any
    center: Any
    size: Any
    far: float
    theta: Any
    root: Any
    residuals: Any
    arms: int = eqx.field(static=True)
    constant: bool = eqx.field(static=True)
    binary: bool = eqx.field(static=True)

    def __init__(self, log: Any, model: Linear | None = None):
        log = Log.of(log)
        if log.missing:
            raise ValueError(
                f"features are missing (NaN) in {log.missing} of {len(log)} decisions: a world to "
                "simulate in has them all; fill them in before"
            )
        fitted = RewardModel(log, model, folds=2)
        self.features = np.concatenate([log.features(rows) for rows in slices(len(log))])
        self.available = None if log.available.all() else log.available
        self.center, self.size, self.far = fitted.mean, fitted.size, float(fitted.far)
        self.theta, root, residuals = fitted.whole()
        spread = np.sqrt(np.square(residuals).mean())
        self.root, self.residuals = spread * root, residuals - residuals.mean()
        self.arms, self.constant = log.arms, fitted.centred
        self.binary = bool(np.isin(log.outcome, (0.0, 1.0)).all())

    def __repr__(self) -> str:
        rows, _, dim = self.features.shape
        return f"Logged({rows} decisions, {self.arms} actions, {dim} features)"

    def init(self, key: Key) -> Plausible:
        theta_key, row_key = jax.random.split(checks.key(key))
        theta, root = jnp.asarray(self.theta, float), jnp.asarray(self.root, float)
        away = jnp.einsum("gij,gj->gi", root, jax.random.normal(theta_key, theta.shape))
        rows = self.features.shape[0]
        return Plausible(theta + away, jax.random.randint(row_key, (rows,), 0, rows))

    def offer(self, key: Key, world: Plausible) -> Round:
        row = world.rows[jax.random.randint(key, (), 0, world.rows.shape[0])]
        features = jnp.asarray(self.features, float)[row]
        x = (features - jnp.asarray(self.center, float)) / jnp.asarray(self.size, float)
        x = jnp.clip(x, -self.far, self.far)
        if self.constant:
            x = jnp.concatenate([jnp.ones((x.shape[0], 1)), x], axis=1)
        shape = (self.arms, x.shape[1])
        means = (jnp.broadcast_to(x, shape) * jnp.broadcast_to(world.theta, shape)).sum(axis=1)
        means = jnp.clip(means, 0.0, 1.0) if self.binary else means
        features = jnp.broadcast_to(features, (self.arms, features.shape[1]))
        available = None if self.available is None else jnp.asarray(self.available)[row]
        return Round(features, means, available, means)

    def outcome(self, key: Key, world: Array, action: Action) -> Array:
        """`world`: the mean rewards of the decision at hand."""
        mean = world[action.index]
        if self.binary:
            return jax.random.bernoulli(key, mean).astype(mean.dtype)
        residuals = jnp.asarray(self.residuals, float)
        return mean + residuals[jax.random.randint(key, (), 0, residuals.shape[0])]
