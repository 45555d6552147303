"""The paper's formulas in plain float64 NumPy, and ways to look into a belief."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ensemble_sampling as es
from ensemble_sampling.learners.arms import Evidence
from ensemble_sampling.learners.sums import Sum


def regression(x, y, noise_std, mean, cov, weights=None) -> tuple[np.ndarray, np.ndarray]:
    """(mu_t, Sigma_t): batch Bayesian linear regression, also the minimiser of Section 3.

    With mean = theta_{0,m} and y = R + W_m the first is member m's theta_{t,m}.
    """
    x, y, cov = (np.asarray(a, np.float64) for a in (x, y, cov))
    weights = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    prior = np.linalg.inv(cov)
    precision = prior + (x.T * weights) @ x / noise_std**2
    target = prior @ np.asarray(mean, np.float64) + x.T @ (weights * y) / noise_std**2
    return np.linalg.solve(precision, target), np.linalg.inv(precision)


def thetas(learner: Any, belief: Any) -> np.ndarray:
    """The model or models of a linear belief whose noise was told, in float64.

    Members are kept as distances to the mean they share, in units of the noise.
    """
    shared, members = belief
    away = np.asarray(members, np.float64) if isinstance(shared, Evidence) else exact(members)
    return exact(shared.mean) + told_noise(learner) * away


def told_noise(learner: Any) -> float:
    """The `noise_std` of a linear learner, or of that of every action."""
    return learner.learner.noise_std if isinstance(learner, es.PerAction) else learner.noise_std


def exact(total: Sum) -> np.ndarray:
    """A compensated sum with the part its last rounding lost."""
    return np.asarray(total.value, np.float64) + np.asarray(total.lost, np.float64)


def covariance(learner: Any, belief: Any) -> np.ndarray:
    """Sigma_t of a linear belief (one per member where members weigh the data differently)."""
    shared = belief[0]
    if isinstance(shared, Evidence):
        variance = told_noise(learner) ** 2 / exact(shared.pulls)
        return variance[..., None] * np.eye(variance.shape[-1])
    root = told_noise(learner) * exact(shared.root)
    return root @ np.swapaxes(root, -1, -2)


def updates(posterior: Any, belief: Any, keys: Any, indices: Any, x: Any, y: Any) -> Any:
    """The belief after the observations (indices[t], x[t], y[t]), each with its own key."""

    def step(belief: Any, seen: Any) -> tuple[Any, None]:
        key, index, features, outcome = seen
        return posterior.update(key, belief, es.Action(index, features), outcome), None

    return jax.lax.scan(step, belief, (keys, indices, x, y))[0]


@jax.jit  # posteriors are pytrees: one compilation serves every prior and noise of a shape
def learn(posterior: Any, key: Any, indices: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(belief before, belief after) the observations, the t-th with key fold_in(key, t)."""
    start = posterior.init(key)
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(len(y)))
    x, y = jnp.asarray(x, float), jnp.asarray(y, float)
    return start, updates(posterior, start, keys, indices, x, y)


def noises(ensemble: es.Ensemble, key: Any, periods: int) -> tuple[Array, Array]:
    """(W / noise_std, weights), both (t, members): the perturbations that `learn` meets."""

    def draw(t: Array) -> es.Noise:
        noise_key, _ = jax.random.split(jax.random.fold_in(key, t))
        return ensemble.perturbation.draw(noise_key, (ensemble.members,), ensemble.inflation)

    noise, zero = jax.vmap(draw)(jnp.arange(periods)), jnp.zeros((periods, ensemble.members))
    shift = zero if noise.shift is None else noise.shift
    return shift, zero + 1 if noise.weight is None else noise.weight


def random_covariance(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Positive definite, with a condition number of about 100."""
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    return (basis * np.geomspace(0.1, 10, dim)) @ basis.T
