"""From what is observed to what is wanted: expected rewards of random outcome vectors."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import checks
from .config import LATER

CORNERS = 10  # entries of 0/1 outcomes up to which all their combinations are averaged over


def _unsaid(outcome: Array) -> Array:
    raise TypeError("a reward that is made of weights is for a Bandit, not for a model")


class Reward(eqx.Module):
    """A known reward R(y) of an outcome vector (Section 2), and its mean over the noise.

    Averages are over fixed points, the same for all actions, so that the actions' order is hardly
    affected by the error.

    weights: of metrics by name, {"click": 1.0, "margin": 0.2}, in the place of a function: that is
        what a `Bandit` may be given as its reward.
    """

    function: Callable[[Array], Array] = eqx.field(static=True, default=_unsaid)
    outcomes: int = eqx.field(static=True, default=0)
    draws: int = eqx.field(static=True, default=128)
    weights: Mapping[str, float] | None = eqx.field(static=True, default=None, metadata=LATER)

    def __check_init__(self) -> None:
        if self.weights is not None:
            if self.function is not _unsaid or self.outcomes:
                raise ValueError("a reward is made of weights, or by a function of outcomes")
            return
        checks.size("outcomes", self.outcomes)
        checks.size("draws", self.draws)
        if not callable(self.function):
            raise TypeError(f"a reward must be a function R(y), got {self.function!r}")
        for outcome in (np.zeros(self.outcomes), np.ones(self.outcomes)):
            self._check_value(outcome)

    def _check_value(self, outcome: np.ndarray) -> None:
        wanted = f"one finite number for an outcome of shape ({self.outcomes},)"
        try:
            value = np.asarray(self.function(jnp.asarray(outcome, float)))
        except Exception as error:
            raise ValueError(
                f"a reward function must return {wanted}; for {outcome.tolist()} it raised "
                f"{type(error).__name__}: {error}"
            ) from error
        if value.shape != () or value.dtype.kind not in "fiub" or not np.isfinite(value):
            raise ValueError(
                f"a reward function must return {wanted}; for {outcome.tolist()} it returned "
                f"{value}"
            )

    def expected(self, mean: Array, noise_std: Array | float) -> Array:
        """Expected rewards (K,) of outcomes distributed N(mean, noise_std^2 I), mean (K, p).

        The points are quasi-random normals in antithetic pairs with unit covariance, so
        polynomials up to the third degree are exact.
        """
        noise = noise_std * jnp.asarray(self._normals, float)
        score = jax.vmap(self.function)
        return jax.vmap(lambda m: score(m + noise).mean())(mean)

    @property
    def _normals(self) -> np.ndarray:
        from scipy.stats import qmc  # slow to import, and seldom needed

        half = self._balanced(max(-(-self.draws // 2), 2 * self.outcomes))
        points = qmc.MultivariateNormalQMC(np.zeros(self.outcomes), rng=np.random.default_rng(0))
        z = points.random(half)
        z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / half)).T
        return np.concatenate([z, -z])

    def expected_binary(self, chance: Array) -> Array:
        """Expected rewards (K,) of outcomes whose entries are 1 with chances (K, p), else 0.

        Entries are independent, so E R = sum over y in {0, 1}^p of R(y) times the product of the
        entries' chances: exact, up to ten entries. Beyond, an average over quasi-random points.
        """
        score = jax.vmap(self.function)
        if self.outcomes > CORNERS:
            from scipy.stats import qmc

            sobol = qmc.Sobol(self.outcomes, rng=np.random.default_rng(0))
            uniforms = sobol.random(self._balanced(max(self.draws, 2**CORNERS)))
            points = jnp.asarray(uniforms, float)
            return jax.vmap(lambda p: score((points < p).astype(float)).mean())(chance)
        corners = np.indices((2,) * self.outcomes).reshape(self.outcomes, -1).T
        rewards = score(jnp.asarray(corners, float)).astype(float)
        each = jnp.where(corners, chance[:, None, :], 1 - chance[:, None, :])
        return each.prod(axis=-1) @ rewards

    def _balanced(self, points: int) -> int:
        return 2 ** int(np.ceil(np.log2(points)))  # Sobol points are balanced in powers of two


def as_reward(reward: Any, outcomes: int | None) -> Reward | None:
    """A `Reward` for the outcome's width; a plain number needs none and allows none."""
    if outcomes is None:
        if reward is not None:
            raise ValueError("a reward function needs `outcomes`, the width of the outcome vector")
        return None
    checks.size("outcomes", outcomes)
    if reward is None:
        raise ValueError(f"outcomes are vectors of {outcomes}: give the reward function R(y)")
    reward = reward if isinstance(reward, Reward) else Reward(reward, outcomes)
    if reward.weights is not None:
        raise ValueError("weights of metrics are for a Bandit: give the model a function R(y)")
    if reward.outcomes != outcomes:
        raise ValueError(f"the reward takes {reward.outcomes} outcomes, the model has {outcomes}")
    return reward
