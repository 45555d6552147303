"""The paper's formulas in plain float64 NumPy, and ways to look into a belief."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import ensemble_sampling as es
from ensemble_sampling.learners.arms import Evidence
from ensemble_sampling.learners.conjugate import Sum


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
    return exact(shared.mean) + told_noise(learner) * away(shared, members)


def away(shared: Any, members: Any) -> np.ndarray:
    """How far members of a linear belief are from the mean they share, in units of the noise."""
    arms = isinstance(shared, Evidence)
    return np.asarray(members.away, np.float64) if arms else exact(members.away)


def told_noise(learner: Any) -> float:
    """The `noise_std` of a linear learner, or of that of every action."""
    told: Any = learner.learner if isinstance(learner, es.PerAction) else learner
    return told.noise_std


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


def updates(posterior: Any, belief: Any, keys: Any, indices: Any, x: Any, y: Any, every=False):
    """The belief after the observations (indices[t], x[t], y[t]), each with its own key; `every`:
    after each of them, stacked."""

    def step(belief: Any, seen: Any) -> tuple[Any, Any]:
        key, index, features, outcome = seen
        belief = posterior.update(key, belief, es.core.Action(index, features), outcome)
        return belief, belief if every else None

    return jax.lax.scan(step, belief, (keys, indices, x, y))[every]


# Posteriors are pytrees: one compilation serves every prior and noise of a shape.
@partial(jax.jit, static_argnames="every")
def learn(posterior: Any, key: Any, indices: Any, x: Any, y: Any, every=False) -> tuple[Any, Any]:
    """(belief before, belief after) the observations, the t-th with key fold_in(key, t)."""
    start = posterior.init(key)
    keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(jnp.arange(len(y)))
    x, y = jnp.asarray(x, float), jnp.asarray(y, float)
    return start, updates(posterior, start, keys, indices, x, y, every)


def noises(ensemble: es.Ensemble, key: Any, periods: int) -> tuple[Array, Array]:
    """(W / noise_std, weights), both (t, members): the perturbations that `learn` meets."""

    def draw(t: Array) -> es.core.Noise:
        noise_key, _ = jax.random.split(jax.random.fold_in(key, t))
        return ensemble.perturbation.draw(noise_key, (ensemble.members,), ensemble.inflation)

    noise, zero = jax.vmap(draw)(jnp.arange(periods)), jnp.zeros((periods, ensemble.members))
    shift = zero if noise.shift is None else noise.shift
    return shift, zero + 1 if noise.weight is None else noise.weight


def random_covariance(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Positive definite, with a condition number of about 100."""
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    return (basis * np.geomspace(0.1, 10, dim)) @ basis.T


def filtered(x, y, arms, weights, prior, forgetting=1.0, start=0.0):
    """(means, covariances) of one drifting model per row of `prior`, in units of the noise.

    Kalman filters of `arms[t]`, x[t]'theta = y[t]; an observation of weight w counts w times.
    """
    prior = np.asarray(prior, np.float64)
    mean, cov = np.zeros(prior.shape[:2]) + start, prior.copy()
    for x_t, y_t, k, w in zip(x, y, arms, weights, strict=True):
        gain = w * cov[k] @ x_t / (1 + w * x_t @ cov[k] @ x_t)
        mean[k] += gain * (y_t - x_t @ mean[k])
        cov[k] -= np.outer(gain, cov[k] @ x_t)
        mean = np.sqrt(forgetting) * mean
        cov = forgetting * cov + (1 - forgetting) * prior
    return mean, cov


class Scale(NamedTuple):
    """What is learned of outcomes' scale: offset, noise, and the log-likelihood of it all."""

    center: float
    noise_std: float
    evidence: float


def learned_scale(x, y, arms, prior, weights=None, forgetting=1.0) -> Scale:
    """By going through all outcomes anew for every prediction, centred by those before it."""
    weights = np.ones(len(y)) if weights is None else weights
    error = evidence = count = 0.0
    now = Scale(0.0, 1.0, 0.0)
    for t in range(len(y)):
        mean, cov = filtered(x[:t], y[:t] - now.center, arms[:t], weights[:t], prior, forgetting)
        k, w = arms[t], weights[t]
        surprise = y[t] - now.center - x[t] @ mean[k]
        s = 1 + w * x[t] @ cov[k] @ x[t]
        if weights[:t].sum() > 0:
            error += w * surprise**2 / s
        if _varies(y, weights, t):
            variance = now.noise_std**2 * s
            odd = (count + 3) * np.log1p(surprise**2 / ((count + 2) * variance))
            evidence -= w * (odd + np.log(variance)) / 2
        error, evidence = forgetting * error, forgetting * evidence
        share = weights[: t + 1] * forgetting ** (t - np.arange(t + 1.0))
        center, noise_std, count = 0.0, 1.0, forgetting * share.sum()
        if share.sum() > 0:
            center = np.average(y[: t + 1], weights=share)
            square = forgetting * (share * (y[: t + 1] - center) ** 2).sum()
            if _varies(y, weights, t + 1):
                noise_std = np.sqrt((error + 2 * square / max(count - 1, 1)) / (count + 1))
        now = Scale(center, noise_std, evidence)
    return now


def _varies(y, weights, t) -> bool:
    """Whether two of the first t outcomes that count differ."""
    return len(np.unique(y[:t][weights[:t] > 0])) > 1
