"""A model that is linear in its features, with a dense Gaussian prior."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Key, Noise
from ..linalg import triangle
from ..rewards import Reward, as_reward
from .conjugate import Member, OutcomeScale, Sum, draw_luck, wander


class Evidence(NamedTuple):
    """What all members of a linear model share.

    root: of the covariance, in units of the noise (d, d)
    mean: the posterior mean (d, ...)
    ones: the same, had every outcome been 1 (d,), which centring outcomes takes away; None where
        they are not centred
    seen: the learned scale of outcomes; None where `noise_std` is given
    """

    root: Sum
    mean: Sum
    ones: Sum | None
    seen: OutcomeScale | None


def _times(rows: Array, theta: Array) -> Array:
    """rows @ theta, so that the thetas of many members are read as they lie, not transposed."""
    if rows.shape[:-1] == (1,):
        return jnp.tensordot(theta, rows[0], (0, 0))[None]
    return rows @ theta if theta.ndim > 1 else jnp.tensordot(theta, rows, (0, -1))


class Linear(eqx.Module):
    """Rewards linear in the features, theta ~ N(prior_mean, prior_cov) (Example 1, Section 3).

    In units of the noise the covariance does not depend on how large the noise is, so a member is
    the posterior mean, which all share, plus noise_std times a distance u of its own. The
    covariance is kept as a square root, Sigma = noise_std^2 A A', and shrunk by Potter's rank-one
    step: symmetric and positive definite by construction, O(d^2), and draws need no factorisation.
    With v = A'x, s = 1 + v'v and gain k = A v / s, the mean moves by k (y - x'mean), a member by
    k (noise - x'u), and A loses k v' / (1 + 1 / sqrt(s)).

    noise_std: None learns it (see `OutcomeScale`), and the prior's width is then in units of the
        noise.
    prior_mean: None is zero. Where the noise is learned, the offset of outcomes is not known
        either: the model is then of y - c, with c the mean outcome so far, and has a constant
        besides its features. As the posterior mean is linear in the outcomes, c can change
        without learning any of them anew.
    outcomes, reward: the model predicts a vector, one theta for each entry with the same prior,
        and the known reward scores it.
    forgetting: a factor below 1 says that theta drifts (see `wander`), back to its prior in
        about 1 / (1 - forgetting) observations. The mixed covariance's root comes from a QR
        decomposition of both roots, at O(d^3), which works however close to singular they are.
    """

    dim: int = eqx.field(static=True)
    noise_std: float | None
    prior_mean: Any
    prior_root: Any
    outcomes: int | None = eqx.field(static=True)
    reward: Reward | None
    forgetting: float | None
    weights_shared = True
    axes = Evidence(0, 0, 0, None)  # pyright: ignore[reportArgumentType]
    """What several models on the same outcomes have one each of; their scale they share."""
    __repr__ = short

    def __init__(
        self,
        dim: int,
        noise_std: float | None = None,
        prior_mean: Any = None,
        prior_std: float | None = None,
        prior_cov: Any = None,
        outcomes: int | None = None,
        reward: Any = None,
        forgetting: float | None = None,
    ):
        self.dim = checks.size("dim", dim)
        self.noise_std = None if noise_std is None else checks.positive("noise_std", noise_std)
        mean, self.prior_root = checks.gaussian_prior(
            dim, 0.0 if prior_mean is None else prior_mean, prior_std, prior_cov
        )
        self.prior_mean = None if prior_mean is None else mean
        self.outcomes = outcomes
        self.reward = as_reward(reward, outcomes)
        self.forgetting = checks.forgetting(forgetting)

    @property
    def centred(self) -> bool:
        """Whether outcomes are centred, for their offset is not known either."""
        return self.noise_std is None and self.prior_mean is None

    @property
    def _outcome_shape(self) -> tuple[int, ...]:
        return () if self.outcomes is None else (self.outcomes,)

    @property
    def _shape(self) -> tuple[int, ...]:
        """That of theta: the constant comes first."""
        return (self.dim + self.centred, *self._outcome_shape)

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        return None if self.forgetting is None else self._shape

    def _inputs(self, features: Array) -> Array:
        """Features (..., d), with a constant where the offset is learned."""
        features = jnp.asarray(features)
        if not self.centred:
            return features
        return jnp.concatenate([jnp.ones((*features.shape[:-1], 1)), features], axis=-1)

    @property
    def prior(self) -> tuple[Array, Array]:
        """Mean, and root of the covariance in units of the noise."""
        root = jnp.asarray(self.prior_root, float)
        if self.centred:
            return jnp.zeros(self._shape), jax.scipy.linalg.block_diag(jnp.ones((1, 1)), root)
        mean = jnp.zeros(self.dim) if self.prior_mean is None else jnp.asarray(self.prior_mean)
        mean = mean.astype(float).reshape(self.dim, *(1 for _ in self._outcome_shape))
        mean = jnp.broadcast_to(mean, self._shape)
        return mean, root if self.noise_std is None else root / self.noise_std

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Evidence, Member]:
        learned, (mean, root) = self.noise_std is None, self.prior
        shared = Evidence(
            Sum.of(root),
            Sum.of(mean),
            Sum.of(jnp.zeros(self._shape[:1])) if self.centred else None,
            OutcomeScale.unknown(self._outcome_shape) if learned else None,
        )
        luck = draw_luck(key, self._outcome_shape, noise) if learned else None
        return shared, Member(Sum.of(jnp.asarray(spread * self._spread(key, root), float)), luck)

    def _spread(self, key: Key, root: Array) -> Array:
        """A draw from N(0, root root') for every entry of the outcome."""
        return root @ jax.random.normal(key, self._shape)

    def center(self, key: Key) -> tuple[Evidence, Member]:
        shared, member = self.init(key, 0.0)
        return shared, member._replace(luck=None)

    def noise(self, shared: Evidence, luck: Array | None = None) -> Any:
        """The noise's standard deviation: as given, or as learned, for a member with that luck."""
        return self.noise_std if shared.seen is None else shared.seen.std_at(luck)

    def predict(self, shared: Evidence, member: Member, features: Array) -> Array:
        checks.features(features, self.dim)
        noise = self.noise(shared, member.luck)
        away = _times(self._inputs(features), member.away.value)
        value = self.mean(shared, features) + noise * away
        return value if self.reward is None else self.reward.expected(value, noise)

    def mean(self, shared: Evidence, features: Array) -> Array:
        """The mean outcomes of rows of features, as best known."""
        x = self._inputs(features)
        if shared.ones is None or shared.seen is None:
            return _times(x, shared.mean.value)
        # The model of y - c predicts x'(mean - c ones), to which c is added back.
        rest = 1 - _times(x, shared.ones.value)
        return _times(x, shared.mean.value) + jnp.multiply.outer(rest, shared.seen.center)

    def observe(
        self,
        key: Key,
        shared: Evidence,
        member: Member,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[Evidence, Member]:
        shared, member = self.learn(shared, member, action, outcome, noise)
        return (shared, member) if self.forgetting is None else self.forget(shared, member, noise)

    def learn(
        self, shared: Evidence, member: Member, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Evidence, Member]:
        """Condition on the outcome."""
        if jnp.shape(outcome) != self._outcome_shape:
            raise ValueError(
                f"the outcome must have shape {self._outcome_shape}, got {jnp.shape(outcome)}"
            )
        checks.array("the action's features", action.features, (self.dim,))
        x, (root, mean, ones, seen) = self._inputs(action.features), shared
        weight = 1.0 if noise.weight is None else noise.weight
        often = jnp.sqrt(weight)  # an observation that counts w times: sqrt(w) (x, y)
        x = x if noise.weight is None else often * x
        v = x @ root.value + x @ root.lost
        s = 1 + v @ v
        gain = root.value @ v / s

        def moved(now: Sum, target: Any) -> Sum:
            return now.add(jnp.multiply.outer(gain, often * target - x @ now.value))

        if seen is not None:
            surprise = outcome - self.mean(shared, action.features)
            seen = seen.add(jnp.asarray(outcome, float), surprise, s, weight)
        root = root.add(-jnp.outer(gain / (1 + jax.lax.rsqrt(s)), v))
        mean, ones = moved(mean, outcome), None if ones is None else moved(ones, 1.0)
        shift = 0.0 if noise.shift is None else noise.shift
        return Evidence(root, mean, ones, seen), member._replace(away=moved(member.away, shift))

    def forget(self, shared: Evidence, member: Member, noise: Noise) -> tuple[Evidence, Member]:
        """Let the truth drift by one observation."""
        g: Any = self.forgetting
        root, mean, ones, seen = shared
        prior_mean, prior_root = self.prior
        both = [jnp.sqrt(g) * (root.value + root.lost).T, jnp.sqrt(1 - g) * prior_root.T]
        mixed = Sum.of(triangle(jnp.concatenate(both)).T)
        shared = Evidence(
            jax.tree.map(lambda new, old: jnp.where(g < 1, new, old), mixed, root),
            mean.add(wander(mean.value + mean.lost, prior_mean, g)),
            None if ones is None else ones.add(wander(ones.value, 0.0, g)),
            None if seen is None else seen.fade(g),
        )
        xi, away = 0.0 if noise.drift is None else prior_root @ noise.drift, member.away
        away = away.add(wander(away.value + away.lost, 0.0, g, xi))
        return shared, member._replace(away=away)

    def mean_and_std(self, belief: tuple[Evidence, Member], features: Array) -> Any:
        """x'mu and sqrt(x'Sigma x) of every action; rewards of vectors have no closed form."""
        if self.reward is not None:
            return None
        shared, member = belief
        rooted = _times(self._inputs(features), shared.root.value)
        noise: Any = self.noise_std if shared.seen is None else shared.seen.rms_std
        return self.predict(shared, member, features), noise * jnp.linalg.norm(rooted, axis=-1)

    def draw(self, key: Key, shared: Evidence, member: Member) -> Member:
        luck = None if shared.seen is None else draw_luck(key, self._outcome_shape)
        return Member(Sum.of(member.away.value + self._spread(key, shared.root.value)), luck)
