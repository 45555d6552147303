"""Exact Bayesian regression on the features a network has learned (Riquelme et al., 2018)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks, linalg
from ..core import Action, Key, Model, Noise, broken
from ..learners import layers
from ..learners.histories import History
from ..learners.losses import SquaredError
from ..learners.network import Member, Network
from .base import LearnerPosterior


class Regression(NamedTuple):
    """A network, and its last layer's posterior N(mean, (root root')^-1)."""

    shared: History
    member: Member
    mean: Array
    root: Array


class NeuralLinear(LearnerPosterior):
    """One network learned as usual; the weights of its last layer have their exact posterior.

    The output is linear in these, with the gradient phi(x) by them as features. As the features
    move with every update, the regression is made anew from the history the network keeps:
    Lambda = P + sum of phi phi' / noise_std^2, at O(capacity h^2 + h^3) for h features.

    inflation: scales how far samples are from the regression's mean.
    """

    learner: Network
    inflation: float = 1.0
    label = "neural-linear"

    def __check_init__(self) -> None:
        if not isinstance(self.learner, Network):
            raise TypeError(f"NeuralLinear takes a Network, got {self.learner!r}")
        if not isinstance(self.learner.loss, SquaredError):
            raise ValueError(
                "NeuralLinear is a regression with Gaussian noise: the Network's loss must be "
                f"SquaredError(), got {self.learner.loss!r}; Laplace(learner, 'last') takes any"
            )
        for name in ("arms", "outcomes"):
            if (given := getattr(self.learner, name)) is not None:
                raise ValueError(
                    f"NeuralLinear takes a Network with a single output, got {name}={given}; "
                    "Laplace(learner, 'last') takes any"
                )
        layers.check_linear("NeuralLinear", self.learner)
        checks.positive("inflation", self.inflation)

    def init(self, key: Key) -> Regression:
        shared, member = self.learner.center(key)
        width = layers.widths(self.learner, member, last=True)
        return Regression(shared, member, jnp.zeros_like(width), jnp.diag(1 / width))

    def _features(self, shared: History, member: Member, rows: Array) -> tuple[Array, Array]:
        """(phi (n, h), what outputs (n,) are with a last layer of zeros)."""
        weights, whole = layers.vector(member.living, last=True)

        def output(weights: Array, row: Array) -> Array:
            action = Action(jnp.int32(0), row)
            return layers.outputs(self.learner, shared, member, whole(weights), action)[0]

        zero = jnp.zeros_like(weights)
        rest, phi = jax.vmap(jax.value_and_grad(output), in_axes=(None, 0))(zero, rows)
        return phi, rest

    def update(self, key: Key, belief: Regression, action: Action, outcome: Array) -> Regression:
        shared, member, *_ = belief
        shared, member = self.learner.observe(key, shared, member, action, outcome, Noise())
        phi, rest = self._features(shared, member, shared.features)
        noise_std = self.learner.noise(shared, member)
        held = jnp.arange(len(phi)) < shared.held
        phi = jnp.where(held[:, None], phi, 0.0) / noise_std
        target = jnp.where(held, shared.outcomes - rest, 0.0) / noise_std
        prior = jnp.diag(1 / layers.widths(self.learner, member, last=True))
        # A sum of squares would lose the prior beside many precise outcomes: its root does not.
        rows = jnp.column_stack([jnp.concatenate([prior, phi]), jnp.append(0 * prior[0], target)])
        known = linalg.triangle(rows)[:-1]
        root, right = known[:, :-1], known[:, -1]
        mean = linalg.solve_upper(root, right)
        return Regression(shared, member, mean, root.T)

    def sample(self, key: Key, belief: Regression) -> Model:
        z = self.inflation * jax.random.normal(key, belief.mean.shape)
        return self._model(belief, belief.mean + linalg.solve_upper(belief.root.T, z))

    def values(self, key: Key, belief: Regression, features: Array, draws: int) -> Array:
        """As by `sample`, but all draws are solved for at once."""
        normal = jax.vmap(lambda k: jax.random.normal(k, belief.mean.shape))
        z = self.inflation * normal(jax.random.split(key, draws))
        weights = belief.mean + linalg.solve_upper(belief.root.T, z.T).T
        return jax.vmap(lambda drawn: self._model(belief, drawn)(features))(weights)

    def _model(self, belief: Regression, weights: Array) -> Model:
        """The network with these weights in its last layer."""
        whole = layers.vector(belief.member.living, last=True)[1]
        drawn = belief.member._replace(model=whole(weights), healthy=jnp.array(True))
        return eqx.Partial(self.learner.predict, belief.shared, drawn)

    def mean_and_std(self, belief: Regression, features: Array) -> Any:
        shared, member, mean, root = belief
        checks.features(features, self.learner.dim)
        phi, rest = self._features(shared, member, jnp.asarray(features))
        far = linalg.solve_lower(root, phi.T)
        return rest + phi @ mean, self.inflation * jnp.linalg.norm(far, axis=0)

    def diverged(self, belief: Regression) -> Array:
        """How often the network had to be put back to its start, or the regression was lost."""
        lost = broken((belief.mean, belief.root))
        return jnp.maximum(self.learner.diverged(belief.member), lost)
