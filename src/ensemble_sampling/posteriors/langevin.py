"""Langevin Thompson sampling: noisy gradient steps that wander through a network's posterior."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .. import checks
from ..core import Action, Key, Model, Noise
from ..learners.histories import History
from ..learners.network import Batch, Member, Network
from .exact import LearnerPosterior

FLOOR = 0.1
"""Added to a gradient's root mean square, so that steps in flat directions stay bounded."""


def _plain(rate: Any) -> optax.GradientTransformation:
    return optax.identity()


def _sized(rate: Any) -> optax.GradientTransformation:
    return optax.scale_by_rms(0.99, initial_scale=1.0)


class Langevin(LearnerPosterior):
    """Chains whose stationary distribution is the posterior; a sample is where one of them is now.

    With F the learner's loss over n observations, n F / 2 is minus the log posterior, of a prior
    around zero. A step goes from where the last one ended (Welling and Teh, 2011) by

        - rate G grad F + sqrt(4 temperature rate G / n) xi,   xi ~ N(0, I),

    for the learner's `steps` and `learning_rate`. For a Gaussian posterior with full batches and
    G = 1 the chain's mean is exact and its covariance too large by the factor 1 / (1 - rate h / 2)
    along directions in which F has curvature h. Minibatches add their own noise on top.

    learner: a `Network`; its optimizer is not used. With `noise_std` and `prior_std` learned, the
        chain moves in units of the prior.
    chains: how many independent ones there are to sample from.
    precondition: whether G is the inverse of a gradient's running root mean square (Li et al.,
        2016), so that the rate needs no units, and not 1.
    temperature: of the noise: below 1 the chains stay closer to the best model.
    """

    learner: Network
    chains: int = eqx.field(static=True, default=1)
    precondition: bool = eqx.field(static=True, default=True)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.learner, Network):
            raise TypeError(f"Langevin takes a Network, got {self.learner!r}")
        self.chains = checks.size("chains", self.chains)
        self.precondition = checks.flag("precondition", self.precondition)
        self.temperature = checks.positive("temperature", self.temperature)
        optimizer = _sized if self.precondition else _plain
        self.learner = dataclasses.replace(self.learner, optimizer=optimizer)

    @property
    def label(self) -> str:
        return f"Langevin, {self.chains} chain{'s' if self.chains > 1 else ''}"

    def init(self, key: Key) -> Any:
        init = jax.vmap(self.learner.init, out_axes=(None, 0))
        shared, members = init(jax.random.split(key, self.chains))
        return shared, members._replace(pull=jnp.zeros_like(members.pull))

    def sample(self, key: Key, belief: Any) -> Model:
        shared, members = belief
        chosen = jax.random.randint(key, (), 0, self.chains)
        return eqx.Partial(
            self.learner.predict, shared, jax.tree.map(lambda leaf: leaf[chosen], members)
        )

    def update(self, key: Key, belief: Any, action: Action, outcome: Array) -> Any:
        learn_key, noise_key = jax.random.split(key)

        def learn(shared: History, member: Member, chain: Key) -> tuple[History, Member]:
            def step(i: Array, history: History, member: Member, batch: Batch) -> Member:
                return self._step(jax.random.fold_in(chain, i), history, member, batch)

            # Chains that follow the same minibatches go astray together. Steps use the keys below.
            batches = jax.random.fold_in(chain, self.learner.steps)
            return self.learner.observe(
                learn_key, shared, member, action, outcome, Noise(), step, batches
            )

        shared, members = belief
        learn = jax.vmap(learn, in_axes=(None, 0, 0), out_axes=(None, 0))
        return learn(shared, members, jax.random.split(noise_key, self.chains))

    def _step(self, key: Key, history: History, member: Member, batch: Batch) -> Member:
        learner, rate = self.learner, self.learner.learning_rate
        gradient = learner.gradient(history, member, batch)
        state: Any = learner.optimizer(rate).update(gradient, member.optimizer)[1]
        leaves, structure = jax.tree.flatten(gradient)
        sizes = [jnp.ones_like(g) for g in leaves]
        if self.precondition:
            sizes = [1 / (FLOOR + jnp.sqrt(v)) for v in jax.tree.leaves(state.nu)]
        heat = 4 * self.temperature * rate / history.held
        updates = [
            -rate * size * g + jnp.sqrt(heat * size) * jax.random.normal(k, g.shape, g.dtype)
            for g, size, k in zip(leaves, sizes, jax.random.split(key, len(leaves)), strict=True)
        ]
        return learner.apply_updates(member, jax.tree.unflatten(structure, updates), state)

    def values(self, key: Key, belief: Any, features: Array, draws: int) -> Array:
        shared, members = belief
        return jax.vmap(lambda member: self.learner.predict(shared, member, features))(members)

    def diverged(self, belief: Any) -> Array:
        """How often chains were lost and put back to their start."""
        return self.learner.diverged(belief[1]).sum()
