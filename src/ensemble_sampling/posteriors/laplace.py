"""The Laplace approximation: a Gaussian around the best network, as wide as the loss is flat."""

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .. import checks, linalg
from ..core import Action, Key, Model, Noise, broken
from ..learners import layers
from ..learners.histories import History
from ..learners.network import Member, Network
from .base import LearnerPosterior

NEWTON, HALVINGS = 8, 8  # steps to the mode, and how often one may be halved


class Bell(NamedTuple):
    """A network at its mode, and how far from it weights may be.

    spread: a root of the covariance (p, p), or the precision of every weight (p,)
    """

    shared: History
    member: Member
    spread: Array


class Laplace(LearnerPosterior):
    """N(mode, Lambda^-1), learned one observation at a time (Chapelle and Li, 2011).

    With J the outputs' gradient and H the curvature of the negative log-likelihood in them, every
    observation adds J' H J to the precision Lambda (Gauss-Newton), which starts at the prior's.

    covariance: of which weights.
        "full": of all, for models with few: a `Network` without hidden units is a linear or, with
        `CrossEntropy`, a logistic one. The mode moves by Newton steps on
        (theta - mode)' Lambda (theta - mode) / 2 plus the newest outcome's negative
        log-likelihood; no history is kept. For linear models with Gaussian noise that is the
        exact posterior. The prior's mean is where the learner starts its single best model.
        "last": of the last layer's, the others being certain. The network learns as it always
        does, and J is taken once, at the network of its day; `NeuralLinear` takes it anew.
        "diagonal": of all, as if they were independent.
    inflation: scales how far samples are from the mode.
    """

    learner: Network
    covariance: Literal["full", "last", "diagonal"] = eqx.field(static=True)
    inflation: float

    def __init__(
        self,
        learner: Network,
        covariance: Literal["full", "last", "diagonal"] = "full",
        inflation: float = 1.0,
    ):
        if not isinstance(learner, Network):
            raise TypeError(
                f"Laplace takes a Network, got {learner!r}; a Linear learner has Exact(learner)"
            )
        if covariance not in ("full", "last", "diagonal"):
            raise ValueError(f"covariance must be 'full', 'last' or 'diagonal', got {covariance!r}")
        if covariance == "last":
            layers.check_linear("Laplace(..., 'last')", learner)
        if covariance == "full":
            if learner.noise_std is None:
                raise ValueError(
                    "a full covariance is learned in one pass, in units that cannot change on the "
                    "way: give the Network noise_std (any, with CrossEntropy), or use 'last'"
                )
            # It keeps no history, and needs no optimizer.
            learner = dataclasses.replace(learner, capacity=1, optimizer=optax.sgd)
        self.learner = learner
        self.covariance = covariance
        self.inflation = checks.positive("inflation", inflation)

    @property
    def label(self) -> str:
        return f"Laplace, {self.covariance}"

    @property
    def _last(self) -> bool:
        return self.covariance == "last"

    def init(self, key: Key) -> Bell:
        shared, member = self.learner.center(key)
        width = layers.widths(self.learner, member, self._last)
        spread = width**-2.0 if self.covariance == "diagonal" else jnp.diag(width)
        return Bell(shared, member, spread)

    def update(self, key: Key, belief: Bell, action: Action, outcome: Array) -> Bell:
        shared, member, spread = belief
        if self.covariance == "full":
            self.learner.check_outcome(outcome)
            checks.array("the action's features", action.features, (self.learner.dim,))
            member = self._newton(belief, action, outcome)
            jacobian, curvature = self._bend(belief, belief.member, action, outcome, member)
            return Bell(shared, member, _shrunk(spread, jacobian, curvature))
        shared, member = self.learner.observe(key, shared, member, action, outcome, Noise())
        after = Bell(shared, member, spread)
        jacobian, curvature = self._bend(after, member, action, outcome, member)
        if self._last:
            return after._replace(spread=_shrunk(spread, jacobian, curvature))
        gained = jnp.einsum("qp,qr,rp->p", jacobian, curvature, jacobian)
        return after._replace(spread=spread + gained)

    def _bend(
        self, belief: Bell, slope_at: Member, action: Action, outcome: Array, bend_at: Member
    ) -> tuple[Array, Array]:
        """J (q, p) of the outputs at one network, and H (q, q) of the outcome's at another."""
        weights, whole = layers.vector(slope_at.living, self._last)

        def outputs(weights: Array) -> Array:
            return layers.outputs(self.learner, belief.shared, slope_at, whole(weights), action)

        at = layers.outputs(self.learner, belief.shared, bend_at, bend_at.living, action)
        likelihood = self._likelihood(belief, bend_at, outcome)
        return jax.jacrev(outputs)(weights), jax.hessian(likelihood)(at)

    def _likelihood(self, belief: Bell, member: Member, outcome: Array) -> Any:
        """The negative log-likelihood of the outcome as a function of outputs (q,)."""
        learner, noise_std = self.learner, self.learner.noise(belief.shared, member)
        shape = jnp.shape(outcome)
        return lambda output: learner.loss(output.reshape(shape), outcome, noise_std) / 2

    def _newton(self, belief: Bell, action: Action, outcome: Array) -> Member:
        """The mode after the outcome, for outputs as linear as they are at the mode before.

        It is mode + Lambda^-1 J' a, with a minimising a'S a / 2 + loss(output + S a), where
        S = J Lambda^-1 J'; the best of several lengths of each step keeps Newton from overshooting
        where a surprising outcome leaves a flat likelihood.
        """
        shared, member, root = belief
        weights, whole = layers.vector(member.living)

        def outputs(weights: Array) -> Array:
            return layers.outputs(self.learner, shared, member, whole(weights), action)

        output, jacobian = outputs(weights), jax.jacrev(outputs)(weights)
        rooted = jacobian @ root
        s = rooted @ rooted.T
        loss = self._likelihood(belief, member, outcome)
        lengths = 0.5 ** jnp.arange(HALVINGS)

        def cost(a: Array) -> Array:
            return a @ s @ a / 2 + loss(output + s @ a)

        def step(_: int, a: Array) -> Array:
            now = output + s @ a
            towards = _solved(
                jnp.eye(len(a)) + jax.hessian(loss)(now) @ s, -(a + jax.grad(loss)(now))
            )
            tried = a + lengths[:, None] * towards
            costs = jax.vmap(cost)(tried)
            return tried[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))]

        a = jax.lax.fori_loop(0, NEWTON, step, jnp.zeros_like(output))
        return self.learner.examine(member._replace(model=whole(weights + root @ (rooted.T @ a))))

    def sample(self, key: Key, belief: Bell) -> Model:
        shared, member, spread = belief
        weights, whole = layers.vector(member.living, self._last)
        z = self.inflation * jax.random.normal(key, weights.shape)
        far = z * jax.lax.rsqrt(spread) if self.covariance == "diagonal" else spread @ z
        drawn = member._replace(model=whole(weights + far), healthy=jnp.array(True))
        return eqx.Partial(self.learner.predict, shared, drawn)

    def diverged(self, belief: Bell) -> Array:
        """How often the network had to be put back to its start, or its width was lost."""
        return jnp.maximum(self.learner.diverged(belief.member), broken(belief.spread))


def _solved(matrix: Array, right: Array) -> Array:
    """matrix^-1 right; of a single number, which is the usual case, without a factorisation."""
    return right / matrix[0] if len(right) == 1 else linalg.solve(matrix, right)


def _shrunk(root: Array, jacobian: Array, curvature: Array) -> Array:
    """A root of (Lambda + J' H J)^-1 from one of Lambda^-1.

    With H = L L' that is a rank-one step for every column of J'L: v = root' J'L_i, s^2 = 1 + v'v,
    and the root loses (root v) v' / (s (s + 1)), which is Potter's step.
    """
    if len(curvature) == 1:
        loaded = jnp.sqrt(jnp.maximum(curvature, 0.0)) @ jacobian
    else:
        tiny = 1e-12 + 1e-7 * jnp.trace(curvature)
        loaded = linalg.cholesky(curvature + tiny * jnp.eye(len(curvature))).T @ jacobian
    for row in loaded:
        v = row @ root
        s = jnp.sqrt(1 + v @ v)
        root = root - jnp.outer(root @ v / (s * (s + 1)), v)
    return root
