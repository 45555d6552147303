"""Models that are linear in their features: independent arms, and a dense Gaussian prior."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..core import Action, Key, Noise
from ..rewards import Reward, checked


class Sum(NamedTuple):
    """A running sum with the part its last rounding lost (Kahan).

    After n updates a plain float32 sum is off by about sqrt(n) roundings, more than the
    posterior's own width on long runs; with the lost part kept it is as good as float64's input.
    """

    value: Array
    lost: Array

    @classmethod
    def of(cls, value: Array) -> "Sum":
        return cls(value, jnp.zeros_like(value))

    def add(self, increment: Array) -> "Sum":
        increment = increment + self.lost
        value = self.value + increment
        return Sum(value, increment - (value - self.value))

    def add_at(self, i: Array, increment: Array | float) -> "Sum":
        """`increment` added to entry i; the others are not touched."""
        one = Sum(self.value[i], self.lost[i]).add(jnp.asarray(increment))
        return Sum(self.value.at[i].set(one.value), self.lost.at[i].set(one.lost))


def _wander(theta: Array, mean: Any, forgetting: Any, xi: Array | float = 0.0) -> Array:
    """How far a truth at `theta` moves until the next observation, if it forgets.

    theta' = mu_0 + sqrt(g) (theta - mu_0) + sqrt(1 - g) xi with xi ~ N(0, Sigma_0): it wanders,
    and its stationary distribution is the prior. The posterior's covariance goes from Sigma to
    g Sigma + (1 - g) Sigma_0, towards the prior's and never beyond, and members with a xi of
    their own stay draws from the posterior: shrunken spread is regained in full. A posterior mean
    has no xi. At g = 1 nothing moves, not even by rounding.
    """
    return (jnp.sqrt(forgetting) - 1) * (theta - mean) + jnp.sqrt(1 - forgetting) * xi


def _check_forgetting(value: Any) -> Any:
    return value if value is None else checks.scalar("forgetting", value, above=0.0, high=1.0)


class Evidence(NamedTuple):
    """What all members of independent arms share: how often each was pulled, and its mean."""

    pulls: Sum
    mean: Sum


class IndependentArms(eqx.Module):
    """One unknown mean per arm, N(prior_mean, prior_std^2), updated by index.

    An arm pulled n times has posterior precision (c + n) / noise_std^2 with
    c = (noise_std / prior_std)^2, so pull n + 1 moves its mean by 1 / (c + n + 1) of the surprise.
    The posterior mean is shared, and a member is kept as its distance to it, which moves by the
    same share of noise - distance: members then round in units of the posterior's width, however
    large the outcomes are.

    forgetting: a factor below 1 says that the truth drifts: with every observation, of whichever
        arm, all arms keep that share of what was known (see `_wander`).
    """

    arms: int = eqx.field(static=True)
    noise_std: float = 1.0
    prior_mean: float = 0.0
    prior_std: float = 1.0
    forgetting: float | None = None
    weights_shared = True

    def __check_init__(self) -> None:
        checks.size("arms", self.arms)
        noise_std = checks.positive("noise_std", self.noise_std)
        checks.bounded("prior_mean", self.prior_mean)
        prior_std = checks.positive("prior_std", self.prior_std)
        checks.positive("noise_std / prior_std", noise_std / prior_std)
        _check_forgetting(self.forgetting)

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        return None if self.forgetting is None else (self.arms,)

    @property
    def _prior_pulls(self) -> Any:
        """How many pulls the prior is worth."""
        return (self.noise_std / self.prior_std) ** 2

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Evidence, Array]:
        # Strongly typed: a weak type would compile a caller's jitted update a second time.
        pulls = jnp.full(self.arms, self._prior_pulls, float)
        mean = jnp.full(self.arms, self.prior_mean, float)
        distance = spread * self.prior_std * jax.random.normal(key, (self.arms,))
        return Evidence(Sum.of(pulls), Sum.of(mean)), jnp.asarray(distance, float)

    def center(self, key: Key) -> tuple[Evidence, Array]:
        return self.init(key, 0.0)

    def predict(self, shared: Evidence, member: Array, features: Array) -> Array:
        if features.shape[0] != self.arms:
            raise ValueError(
                f"IndependentArms has {self.arms} arms, but {features.shape[0]} are on offer"
            )
        return shared.mean.value + member

    def observe(
        self,
        key: Key,
        shared: Evidence,
        member: Array,
        action: Action,
        outcome: Array,
        noise: Noise,
    ) -> tuple[Evidence, Array]:
        if jnp.shape(outcome) != ():
            raise ValueError(f"IndependentArms learns a single number, got {jnp.shape(outcome)}")
        i = action.index
        checks.index(i, self.arms)
        weight = 1.0 if noise.weight is None else noise.weight
        pulls = shared.pulls.add_at(i, weight)
        share = weight / pulls.value[i]
        surprise = outcome - shared.mean.value[i] - shared.mean.lost[i]
        shared = Evidence(pulls, shared.mean.add_at(i, share * surprise))
        shift = 0.0 if noise.shift is None else self.noise_std * noise.shift
        member = member.at[i].add(share * (shift - member[i]))
        return (shared, member) if self.forgetting is None else self._forget(shared, member, noise)

    def _forget(self, shared: Evidence, member: Array, noise: Noise) -> tuple[Evidence, Array]:
        g: Any = self.forgetting
        # Variances mix, and pulls are their inverses.
        fade = 1 / (g + (1 - g) * shared.pulls.value / self._prior_pulls)
        pulls = Sum(*(fade * part for part in shared.pulls))
        mean = shared.mean.add(_wander(shared.mean.value, self.prior_mean, g))
        xi = 0.0 if noise.drift is None else self.prior_std * noise.drift
        return Evidence(pulls, mean), member + _wander(member, 0.0, g, xi)

    def draw(self, key: Key, shared: Evidence, member: Array) -> Array:
        width = self.noise_std * jax.lax.rsqrt(shared.pulls.value)
        return member + width * jax.random.normal(key, (self.arms,))


class Linear(eqx.Module):
    """Rewards linear in the features, theta ~ N(prior_mean, prior_cov) (Example 1, Section 3).

    The covariance is kept as a square root, Sigma = A A', and shrunk by Potter's rank-one step:
    symmetric and positive definite by construction, O(d^2), and draws need no factorisation.
    With v = A'x, s = noise_std^2 + v'v and gain k = A v / s, every member moves by
    k (y + noise - x'theta) and A loses k v' / (1 + noise_std / sqrt(s)).

    With `outcomes` the model predicts a vector, one theta for each entry with the same prior, and
    the known `reward` scores it.

    forgetting: a factor below 1 says that theta drifts (see `_wander`), back to its prior in
        about 1 / (1 - forgetting) observations. The mixed covariance's root comes from a QR
        decomposition of both roots, at O(d^3), which works however close to singular they are.
    """

    dim: int = eqx.field(static=True)
    noise_std: float
    prior_mean: Any
    prior_root: Any
    outcomes: int | None = eqx.field(static=True)
    reward: Reward | None
    forgetting: float | None
    weights_shared = True

    def __init__(
        self,
        dim: int,
        noise_std: float = 1.0,
        prior_mean: Any = 0.0,
        prior_std: float | None = None,
        prior_cov: Any = None,
        outcomes: int | None = None,
        reward: Any = None,
        forgetting: float | None = None,
    ):
        self.dim = checks.size("dim", dim)
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_mean, self.prior_root = checks.gaussian_prior(
            dim, prior_mean, prior_std, prior_cov
        )
        self.outcomes = outcomes
        self.reward = checked(reward, outcomes)
        self.forgetting = _check_forgetting(forgetting)

    @property
    def drift_shape(self) -> tuple[int, ...] | None:
        return None if self.forgetting is None else (self.dim, *self._outcome_shape)

    @property
    def _outcome_shape(self) -> tuple[int, ...]:
        return () if self.outcomes is None else (self.outcomes,)

    def _spread(self, key: Key, root: Array) -> Array:
        """A draw from N(0, root root') for every entry of the outcome."""
        return root @ jax.random.normal(key, (self.dim, *self._outcome_shape))

    def init(
        self, key: Key, spread: Array | float = 1.0, noise: Noise | None = None
    ) -> tuple[Sum, Sum]:
        root = jnp.asarray(self.prior_root, float)
        return Sum.of(root), Sum.of(self._mean + spread * self._spread(key, root))

    @property
    def _mean(self) -> Array:
        """The prior's mean, the same for every entry of the outcome."""
        mean = jnp.asarray(self.prior_mean, float)
        return mean.reshape(self.dim, *(1 for _ in self._outcome_shape))

    def center(self, key: Key) -> tuple[Sum, Sum]:
        return self.init(key, 0.0)

    def predict(self, shared: Sum, member: Sum, features: Array) -> Array:
        checks.features(features, self.dim)
        mean = features @ member.value
        return mean if self.reward is None else self.reward.expected(mean, self.noise_std)

    def observe(
        self, key: Key, shared: Sum, member: Sum, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Sum, Sum]:
        shared, member = self.learn(shared, member, action, outcome, noise)
        return (shared, member) if self.forgetting is None else self.forget(shared, member, noise)

    def learn(
        self, shared: Sum, member: Sum, action: Action, outcome: Array, noise: Noise
    ) -> tuple[Sum, Sum]:
        """Condition on the outcome."""
        if jnp.shape(outcome) != self._outcome_shape:
            raise ValueError(
                f"the outcome must have shape {self._outcome_shape}, got {jnp.shape(outcome)}"
            )
        checks.array("the action's features", action.features, (self.dim,))
        x = action.features
        target = outcome if noise.shift is None else outcome + self.noise_std * noise.shift
        if noise.weight is not None:  # an observation that counts w times: sqrt(w) (x, y)
            x, target = jnp.sqrt(noise.weight) * x, jnp.sqrt(noise.weight) * target
        v = x @ shared.value + x @ shared.lost
        s = self.noise_std**2 + v @ v
        gain = shared.value @ v / s
        shrink = gain / (1 + self.noise_std * jax.lax.rsqrt(s))
        surprise = target - x @ member.value
        return shared.add(-jnp.outer(shrink, v)), member.add(jnp.multiply.outer(gain, surprise))

    def forget(self, shared: Sum, member: Sum, noise: Noise) -> tuple[Sum, Sum]:
        """Let the truth drift by one observation."""
        g: Any = self.forgetting
        prior = jnp.asarray(self.prior_root, float)
        root = shared.value + shared.lost
        both = jnp.concatenate([jnp.sqrt(g) * root.T, jnp.sqrt(1 - g) * prior.T])
        mixed = Sum.of(jnp.linalg.qr(both, mode="r").T)
        shared = jax.tree.map(lambda new, old: jnp.where(g < 1, new, old), mixed, shared)
        xi = 0.0 if noise.drift is None else prior @ noise.drift
        return shared, member.add(_wander(member.value + member.lost, self._mean, g, xi))

    def draw(self, key: Key, shared: Sum, member: Sum) -> Sum:
        return Sum.of(member.value + self._spread(key, shared.value))
