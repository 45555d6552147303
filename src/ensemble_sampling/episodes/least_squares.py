"""Randomised least-squares value iteration on features: values linear in what describes actions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..agents.greedy import greedy
from ..config import short
from ..core import Action, Key, Noise, fact
from ..learners.histories import Window
from ..learners.linear import Linear
from .replay import Replay
from .world import Episode


class Regression(NamedTuple):
    """What the learner knows of the features that were seen, and the episodes to fit values to."""

    shared: Any
    member: Any
    replay: Replay


class LinearPolicy(eqx.Module):
    """The best action by values that are linear in its features, weights (limit, d) for every
    time."""

    features: Callable[[Array], Array] = eqx.field(static=True)
    weights: Array

    def __call__(self, key: Key, observation: Array, t: Array) -> Array:
        return greedy(key, self.features(observation) @ self.weights[t])


class LinearRLSVI(eqx.Module):
    """`RLSVI` where actions are described by features (Osband et al., 2019): the values at a time
    are a draw from the posterior of a linear regression on targets r + V(s').

    The covariance does not depend on targets, and is the learner's own; the mean at every time is
    fitted to all episodes, from the last time on. With an indicator for every state and action
    it is `RLSVI`.

    learner: `es.Linear(d, noise_std, prior_mean=0.0)`
    features: a function from an observation to features (A, d) of the actions
    capacity: how many episodes there can be; with more, the oldest are fitted no longer
    """

    learner: Linear
    features: Callable[[Array], Array] = eqx.field(static=True)
    capacity: int = eqx.field(static=True, default=1000)
    label = "linear RLSVI"
    __repr__ = short

    def __check_init__(self) -> None:
        if not isinstance(self.learner, Linear) or self.learner.centred:
            raise TypeError(
                "learner must be es.Linear(dim, noise_std, prior_mean=0.0) with the noise_std of "
                f"rewards, got {self.learner!r}"
            )
        if self.learner.noise_std is None or self.learner.outcomes or self.learner.forgetting:
            raise ValueError(
                "learner must have a noise_std, one outcome and no forgetting, got "
                f"{self.learner!r}"
            )
        if not callable(self.features):
            raise TypeError(f"features must be a function, got {self.features!r}")
        checks.size("capacity", self.capacity)

    def init(self, key: Key, episode: Episode) -> Regression:
        shape = jax.eval_shape(self.features, episode.observations[0]).shape
        if len(shape) != 2 or shape[1] != self.learner.dim:
            raise ValueError(f"features must be (A, {self.learner.dim}), got {shape}")
        shared, member = self.learner.center(key)
        return Regression(shared, member, Replay.empty(episode, Noise(), self.capacity))

    def update(self, key: Key, state: Regression, episode: Episode) -> Regression:
        chosen = self._chosen(episode)

        def one(belief: Any, step: tuple[Array, ...]) -> tuple[Any, None]:
            (shared, member), (index, row, taken) = belief, step
            action, noise = Action(index, row), Noise(weight=taken.astype(float))
            return self.learner.observe(key, shared, member, action, jnp.zeros(()), noise), None

        belief, steps = (state.shared, state.member), (episode.actions, chosen, episode.taken)
        shared, member = jax.lax.scan(one, belief, steps)[0]
        return Regression(shared, member, state.replay.add(key, Window(), episode, Noise()))

    def policy(self, key: Key, state: Regression) -> LinearPolicy:
        episodes, learner = state.replay.episodes, self.learner
        root = state.shared.root.value + state.shared.root.lost
        away = learner.draw(key, state.shared, state.member).away.value
        noise_std: Any = learner.noise_std
        rows = jax.vmap(self._chosen)(episodes)
        after = jax.vmap(jax.vmap(self.features))(episodes.observations[:, 1:])
        # Learned with outcomes of 0, the mean is the prior's part of it.
        prior = state.shared.mean.value + state.shared.mean.lost

        def back(weights: Array, _: None) -> tuple[Array, Array]:
            value = jnp.where(episodes.goes_on, (after @ weights).max(axis=-1), 0.0)
            targets = jnp.where(episodes.taken, episodes.rewards + value, 0.0)
            seen = jnp.tensordot(targets, rows, ((0, 1), (0, 1)))
            weights = prior + root @ (root.T @ seen) + noise_std * away
            return weights, weights

        nothing = jnp.zeros(learner.dim)  # worth nothing, as what comes after the last step
        found = jax.lax.scan(back, nothing, None, episodes.limit)[1]
        return LinearPolicy(self.features, found[::-1])

    def _chosen(self, episode: Episode) -> Array:
        """Features of the actions taken (limit, d)."""
        each = jax.vmap(self.features)(episode.observations[:-1])
        return each[jnp.arange(episode.limit), episode.actions]

    def diverged(self, state: Regression) -> Array:
        """1 where the regression is no longer finite."""
        return fact(self.learner, "diverged")((state.shared, state.member))
