"""A Gaussian around one network: the Laplace approximation, and regression on its last layer."""

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from .. import checks, linalg
from ..core import Action, Key, Model, Noise, broken
from ..learners.histories import History
from ..learners.losses import SquaredError
from ..learners.modules import check_linear, vector
from ..learners.network import Member, Network
from .exact import LearnerPosterior

NEWTON, HALVINGS = 8, 8  # steps to the mode, and how often one may be halved


class Mode(NamedTuple):
    """A network at its mode, and how far from it weights may be.

    spread: a root of the covariance (p, p), or the precision of every weight (p,)
    """

    shared: History
    member: Member
    spread: Array


def _model(learner: Network, shared: History, member: Member, parameters: Any) -> Model:
    """The network with other parameters."""
    drawn = member._replace(model=parameters, healthy=jnp.array(True))
    return eqx.Partial(learner.predict, shared, drawn)


class Laplace(LearnerPosterior):
    """N(mode, Lambda^-1), learned one observation at a time (Chapelle and Li, 2011): a Gaussian
    around the best network, as wide as the loss is flat.

    With J the outputs' gradient and H the curvature of the negative log-likelihood in them, every
    observation adds J' H J to the precision Lambda (Gauss-Newton), which starts at the prior's.

    covariance: of which weights.
        "full": of all, for models with few: a `Network` without hidden units is a linear or, with
        `CrossEntropy`, a logistic one. The mode moves by Newton steps on
        (theta - mode)' Lambda (theta - mode) / 2 plus the newest outcome's negative
        log-likelihood; no history is kept. For linear models with Gaussian noise that is the
        exact posterior. The prior's mean is where the learner starts its single best model.
        "last": of the last layer's; the others count as certain. The network learns as usual, and
        J is taken once, when the outcome is learned; `NeuralLinear` takes it anew every time.
        "diagonal": of all, as if they were independent.
    inflation: scales how far samples are from the mode.
    """

    learner: Network
    covariance: Literal["full", "last", "diagonal"] = eqx.field(static=True, default="full")
    inflation: float = 1.0

    def __post_init__(self) -> None:
        learner = self.learner
        if not isinstance(learner, Network):
            raise TypeError(
                f"Laplace takes a Network, got {learner!r}; a Linear learner has Exact(learner)"
            )
        if self.covariance not in ("full", "last", "diagonal"):
            raise ValueError(
                f"covariance must be 'full', 'last' or 'diagonal', got {self.covariance!r}"
            )
        if self.covariance == "last":
            check_linear("Laplace(..., 'last')", learner.make, learner.dim)
        if self.covariance == "full":
            if learner.noise_std is None:
                raise ValueError(
                    "a full covariance is learned in one pass, in units that cannot change on the "
                    "way: give the Network noise_std (any, with CrossEntropy), or use 'last'"
                )
            # It keeps no history, and needs no optimizer.
            self.learner = dataclasses.replace(learner, capacity=1, optimizer=optax.sgd)
        self.inflation = checks.positive("inflation", self.inflation)

    @property
    def label(self) -> str:
        return f"Laplace, {self.covariance}"

    @property
    def _last(self) -> bool:
        return self.covariance == "last"

    def init(self, key: Key) -> Mode:
        shared, member = self.learner.center(key)
        width, _ = vector(self.learner.prior_widths(member), self._last)
        spread = width**-2.0 if self.covariance == "diagonal" else jnp.diag(width)
        return Mode(shared, member, spread)

    def update(self, key: Key, belief: Mode, action: Action, outcome: Array) -> Mode:
        shared, member, spread = belief
        if self.covariance == "full":
            self.learner.check_outcome(outcome)
            checks.array("the action's features", action.features, (self.learner.dim,))
            member = self._newton(belief, action, outcome)
            jacobian, curvature = self._derivatives(belief, belief.member, action, outcome, member)
            return Mode(shared, member, _condition(spread, jacobian, curvature))
        shared, member = self.learner.observe(key, shared, member, action, outcome, Noise())
        after = Mode(shared, member, spread)
        jacobian, curvature = self._derivatives(after, member, action, outcome, member)
        if self._last:
            return after._replace(spread=_condition(spread, jacobian, curvature))
        gained = jnp.einsum("qp,qr,rp->p", jacobian, curvature, jacobian)
        return after._replace(spread=spread + gained)

    def _outputs(self, belief: Mode, member: Member, parameters: Any, action: Action) -> Array:
        """The outputs (q,) that an outcome of the action is compared with."""
        return jnp.atleast_1d(self.learner.output(belief.shared, member, parameters, action))

    def _derivatives(
        self,
        belief: Mode,
        slope_at: Member,
        action: Action,
        outcome: Array,
        bend_at: Member,
    ) -> tuple[Array, Array]:
        """J (q, p) of the outputs at one network, and H (q, q) of the outcome's at another."""
        weights, back = vector(slope_at.living, self._last)

        def outputs(weights: Array) -> Array:
            return self._outputs(belief, slope_at, back(weights), action)

        at = self._outputs(belief, bend_at, bend_at.living, action)
        likelihood = self._likelihood(belief, bend_at, outcome)
        return jax.jacrev(outputs)(weights), jax.hessian(likelihood)(at)

    def _likelihood(self, belief: Mode, member: Member, outcome: Array) -> Any:
        """The negative log-likelihood of the outcome as a function of outputs (q,)."""
        learner, noise_std = self.learner, self.learner.noise(belief.shared, member)
        shape = jnp.shape(outcome)
        return lambda output: learner.loss(output.reshape(shape), outcome, noise_std) / 2

    def _newton(self, belief: Mode, action: Action, outcome: Array) -> Member:
        """The mode after the outcome, for outputs as linear as they are at the mode before.

        It is mode + Lambda^-1 J' a, with a minimising a'S a / 2 + loss(output + S a), where
        S = J Lambda^-1 J'; the best of several lengths of each step keeps Newton from overshooting
        where a surprising outcome leaves a flat likelihood.
        """
        _, member, root = belief
        weights, back = vector(member.living)

        def outputs(weights: Array) -> Array:
            return self._outputs(belief, member, back(weights), action)

        output, jacobian = outputs(weights), jax.jacrev(outputs)(weights)
        rooted = jacobian @ root
        s = rooted @ rooted.T
        loss = self._likelihood(belief, member, outcome)
        lengths = 0.5 ** jnp.arange(HALVINGS)

        def cost(a: Array) -> Array:
            return a @ s @ a / 2 + loss(output + s @ a)

        def step(_: int, a: Array) -> Array:
            now = output + s @ a
            bent, downhill = jax.hessian(loss)(now) @ s, -(a + jax.grad(loss)(now))
            tried = a + lengths[:, None] * _solve(jnp.eye(len(a)) + bent, downhill)
            costs = jax.vmap(cost)(tried)
            return tried[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))]

        a = jax.lax.fori_loop(0, NEWTON, step, jnp.zeros_like(output))
        return self.learner.examine(member._replace(model=back(weights + root @ (rooted.T @ a))))

    def sample(self, key: Key, belief: Mode) -> Model:
        shared, member, spread = belief
        weights, back = vector(member.living, self._last)
        z = self.inflation * jax.random.normal(key, weights.shape)
        far = z * jax.lax.rsqrt(spread) if self.covariance == "diagonal" else spread @ z
        return _model(self.learner, shared, member, back(weights + far))

    def diverged(self, belief: Mode) -> Array:
        """How often the network had to be put back to its start, or its width was lost."""
        return jnp.maximum(self.learner.diverged(belief.member), broken(belief.spread))


def _solve(matrix: Array, right: Array) -> Array:
    """matrix^-1 right; of a single number, which is the usual case, without a factorisation."""
    return right / matrix[0] if len(right) == 1 else linalg.solve(matrix, right)


def _condition(root: Array, jacobian: Array, curvature: Array) -> Array:
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


class Regression(NamedTuple):
    """A network, and its last layer's posterior N(mean, (root root')^-1)."""

    shared: History
    member: Member
    mean: Array
    root: Array


class NeuralLinear(LearnerPosterior):
    """One network learned as usual; the weights of its last layer have their exact posterior
    (Riquelme et al., 2018).

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
        check_linear("NeuralLinear", self.learner.make, self.learner.dim)
        checks.positive("inflation", self.inflation)

    def _prior_root(self, member: Member) -> Array:
        """Of the last layer's precision before data."""
        return jnp.diag(1 / vector(self.learner.prior_widths(member), last=True)[0])

    def init(self, key: Key) -> Regression:
        shared, member = self.learner.center(key)
        root = self._prior_root(member)
        return Regression(shared, member, jnp.zeros_like(root[0]), root)

    def _features(self, shared: History, member: Member, rows: Array) -> tuple[Array, Array]:
        """(phi (n, h), what outputs (n,) are with a last layer of zeros)."""
        weights, back = vector(member.living, last=True)

        def output(weights: Array, row: Array) -> Array:
            return self.learner.outputs(shared, member, back(weights), row[None])[0]

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
        prior = self._prior_root(member)
        # A sum of squares would lose the prior beside many precise outcomes: its root does not.
        rows = jnp.column_stack([jnp.concatenate([prior, phi]), jnp.append(0 * prior[0], target)])
        known = linalg.triangle(rows)[:-1]
        root, right = known[:, :-1], known[:, -1]
        return Regression(shared, member, linalg.solve_upper(root, right), root.T)

    def sample(self, key: Key, belief: Regression) -> Model:
        z = self.inflation * jax.random.normal(key, belief.mean.shape)
        return self._drawn(belief, belief.mean + linalg.solve_upper(belief.root.T, z))

    def values(self, key: Key, belief: Regression, features: Array, draws: int) -> Array:
        """As by `sample`, but all draws are solved for at once."""
        normal = jax.vmap(lambda k: jax.random.normal(k, belief.mean.shape))
        z = self.inflation * normal(jax.random.split(key, draws))
        weights = belief.mean + linalg.solve_upper(belief.root.T, z.T).T
        return jax.vmap(lambda one: self._drawn(belief, one)(features))(weights)

    def _drawn(self, belief: Regression, weights: Array) -> Model:
        """The network with these weights in its last layer."""
        back = vector(belief.member.living, last=True)[1]
        return _model(self.learner, belief.shared, belief.member, back(weights))

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
