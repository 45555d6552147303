"""From what is observed to what is wanted: expected rewards of noisy vector outcomes."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import qmc

from . import checks


class Reward(eqx.Module):
    """A known reward R(y) of an outcome vector (Section 2), and its mean over the noise.

    E[R(g + W)], W ~ N(0, noise_std^2 I), is an average over `draws` fixed points: quasi-random
    normals in antithetic pairs with unit covariance, so polynomials up to the third degree are
    exact, and all actions face the same points, so their order is hardly affected by the error.
    """

    function: Callable[[Array], Array] = eqx.field(static=True)
    outcomes: int = eqx.field(static=True)
    draws: int = eqx.field(static=True, default=128)

    def __check_init__(self) -> None:
        checks.size("outcomes", self.outcomes)
        checks.size("draws", self.draws)
        for outcome in (np.zeros(self.outcomes), np.ones(self.outcomes)):
            value = np.asarray(self.function(jnp.asarray(outcome, float)))
            if value.shape != () or not np.isfinite(value):
                raise ValueError(
                    "a reward function must return one finite number for an outcome of shape "
                    f"({self.outcomes},); for {outcome.tolist()} it returned {value}"
                )

    @property
    def _points(self) -> np.ndarray:
        half = max(-(-self.draws // 2), 2 * self.outcomes)
        half = 2 ** int(np.ceil(np.log2(half)))  # Sobol points are balanced in powers of two
        points = qmc.MultivariateNormalQMC(np.zeros(self.outcomes), rng=np.random.default_rng(0))
        z = points.random(half)
        z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / half)).T
        return np.concatenate([z, -z])

    def expected(self, mean: Array, noise_std: Array | float) -> Array:
        """Expected rewards (K,) of outcomes distributed N(mean, noise_std^2 I), mean (K, p)."""
        noise = noise_std * jnp.asarray(self._points, float)
        score = jax.vmap(self.function)
        return jax.vmap(lambda m: score(m + noise).mean())(mean)


def checked(reward: Any, outcomes: int | None) -> Reward | None:
    """A `Reward` for the outcome's width; a plain number needs none and allows none."""
    if outcomes is None:
        if reward is not None:
            raise ValueError("a reward function needs `outcomes`, the width of the outcome vector")
        return None
    checks.size("outcomes", outcomes)
    if reward is None:
        raise ValueError(f"outcomes are vectors of {outcomes}: give the reward function R(y)")
    reward = reward if isinstance(reward, Reward) else Reward(reward, outcomes)
    if reward.outcomes != outcomes:
        raise ValueError(f"the reward takes {reward.outcomes} outcomes, the model has {outcomes}")
    return reward
