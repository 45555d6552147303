"""What a posterior predicts of actions, and whether outcomes fall where it predicts them to."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import stdtrit

from .. import checks
from ..agents.greedy import shares
from ..agents.thompson import ThompsonSampling
from ..core import Action, Environment, Key, Posterior
from ..simulation import Event, Progress, simulate


class View(NamedTuple):
    """What the models of a posterior think of the actions on offer.

    probabilities: how likely each action is to be chosen (K,), the members' votes
    mean, spread: of the models' predictions (K,); correlation: between actions (K, K)
    distinct: how many different actions the models' votes name
    effective: the same, weighed: exp(entropy), as many as if that many were equally likely
    models: how many they are, members or draws
    """

    probabilities: Array
    mean: Array
    spread: Array
    correlation: Array
    distinct: Array
    effective: Array
    models: int


def look(
    posterior: Posterior,
    belief: Any,
    features: Array,
    available: Array | None = None,
    *,
    key: Key | None = None,
    draws: int = 1000,
) -> View:
    """What the members think now; for a posterior without members, `draws` samples stand in."""
    key = jax.random.key(0) if key is None else key
    return view(posterior.values(key, belief, features, checks.size("draws", draws)), available)


def view(values: Array, available: Array | None = None) -> View:
    """The same from the values (S, K) that S equally likely models give the actions."""
    if jnp.ndim(values) != 2 or not len(values):
        raise ValueError(f"values must have shape (models, actions), got {jnp.shape(values)}")
    votes = shares(values, available).mean(axis=0)
    mean = values.mean(axis=0)
    off = values - mean
    covariance = off.T @ off / max(1, len(values) - 1)
    spread = jnp.sqrt(jnp.diagonal(covariance))
    scale = jnp.outer(spread, spread)
    correlation = jnp.where(scale > 0, covariance / scale, jnp.eye(len(mean)))
    entropy = -jnp.where(votes > 0, votes * jnp.log(votes), 0.0).sum()
    distinct, effective = (votes > 0).sum(), jnp.exp(entropy)
    return View(votes, mean, spread, correlation, distinct, effective, len(values))


class Foresight(NamedTuple):
    """What was predicted of the chosen action, how surely, and what came: arrays of one shape.

    models: how many the mean and the spread were taken over; infinity where they are known exactly.
    """

    mean: np.ndarray
    spread: np.ndarray
    outcome: np.ndarray
    models: float = math.inf


def foresight(
    posterior: Posterior,
    environment: Environment,
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
    progress: bool | Progress | None = None,
) -> Foresight:
    """Predictions of Thompson sampling before every outcome, arrays (realizations, periods)."""
    agent = ThompsonSampling(posterior)
    result = simulate(
        agent,
        environment,
        periods,
        realizations,
        seed=seed,
        keep=True,
        measure=_foresee,
        progress=progress,
    )
    assert result.regret is not None
    mean, spread, outcome, models = np.moveaxis(result.regret, -1, 0)
    return Foresight(mean, spread, outcome, int(models.flat[0]))


def _foresee(agent: ThompsonSampling, key: Key, state: Any, event: Event) -> Array:
    if event.outcome.shape != ():
        raise ValueError(f"foresight is of single numbers, not outcomes {event.outcome.shape}")
    seen = look(agent.posterior, state, event.offer.features, key=key)
    i = event.action.index
    return jnp.stack([seen.mean[i], seen.spread[i], event.outcome, jnp.asarray(seen.models, float)])


def replay(
    posterior: Posterior, features: Any, chosen: Any, outcomes: Any, key: Key | None = None
) -> Foresight:
    """Predictions before every outcome of a recorded history.

    features: of the actions on offer, (K, d), or (T, K, d) where they change.
    chosen: the index of the action taken (T,); outcomes: what came of it (T,).
    """
    features, chosen, outcomes = _history(features, chosen, outcomes)
    init_key, learn_key = jax.random.split(jax.random.key(0) if key is None else key)

    def step(belief: Any, seen: Any) -> tuple[Any, tuple[Array, Array]]:
        t, offer, index, outcome = seen
        now = jax.random.fold_in(learn_key, t)
        before = look(posterior, belief, offer, key=now)
        belief = posterior.update(now, belief, Action(index, offer[index]), outcome)
        return belief, (before.mean[index], before.spread[index])

    seen = (jnp.arange(len(chosen)), features, chosen, outcomes)
    _, (mean, spread) = jax.lax.scan(step, posterior.init(init_key), seen)
    models = look(posterior, posterior.init(init_key), features[0], key=init_key).models
    return Foresight(np.asarray(mean), np.asarray(spread), np.asarray(outcomes), models)


def _history(features: Any, chosen: Any, outcomes: Any) -> tuple[Array, Array, Array]:
    """The decisions as arrays (T, K, d), (T,), (T,); JAX would clamp a wrong index in silence."""
    outcomes = checks.array("outcomes", outcomes, (None,))
    indices = np.asarray(chosen)
    if indices.dtype.kind not in "iu" or indices.shape != outcomes.shape:
        raise ValueError(
            "chosen must be indices of actions and of the same length as outcomes, "
            f"{outcomes.shape}, got {indices.dtype} {indices.shape}"
        )
    every = np.ndim(features) == 3
    shape = (len(outcomes), None, None) if every else (None, None)
    features = checks.array("features", features, shape)
    arms = features.shape[-2]
    if wrong := [t for t, index in enumerate(indices) if not 0 <= index < arms]:
        raise ValueError(
            f"chosen must be between 0 and {arms - 1}, for there are {arms} actions, "
            f"got {indices[wrong[0]]} at [{wrong[0]}]"
        )
    features = jnp.broadcast_to(jnp.asarray(features, float), (len(outcomes), *features.shape[-2:]))
    return features, jnp.asarray(indices), jnp.asarray(outcomes, float)


@dataclass(frozen=True)
class Calibration:
    """Whether outcomes fall where they were predicted to.

    ratio: squared surprise over predicted variance, both averaged: 1 where calibrated, above it
        where the members agree too much, below where they spread too much
    coverage: for each central interval of LEVELS, the share of outcomes inside
    """

    ratio: float
    ratio_stderr: float
    coverage: tuple[float, ...]
    coverage_stderr: tuple[float, ...]
    outcomes: int


LEVELS = (0.5, 0.8, 0.95)


def calibration(foresight: Foresight, noise_std: float) -> Calibration:
    """Compare predictions with the outcomes that followed, for outcomes with Gaussian noise.

    Around the mean of M models with spread s an outcome has variance V = s^2 (1 + 1/M) + noise^2,
    for the mean errs as well. The spread of few models is itself uncertain:

    - `ratio` divides averages, whose expectations are equal for every M >= 2. (The average of
      surprise^2 / V would have none for M <= 3.)
    - Intervals have the quantiles of Student's t with (M - 1) (V / (V - noise^2))^2 degrees of
      freedom (Welch and Satterthwaite). Correct ensembles are covered within 1 percentage point of
      the level for M >= 5, 3 for M = 3, and 8 for M = 2.

    A single model, M = 1, has no spread and is held to its noise alone. Standard errors count each
    realization (the first axis, where there are two) as one, for the surprises of one run are not
    independent.
    """
    noise_std = checks.positive("noise_std", noise_std)
    surprise, spread, models = _predictions(foresight)
    between = spread**2 * (1 + 1 / models)
    variance = between + noise_std**2
    share = np.maximum(between / variance, 1e-9)  # none: the normal distribution
    freedom = max(models - 1, 1e-9) / share**2
    covered = [
        _average(abs(surprise) <= stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance))
        for level in LEVELS
    ]
    shares, errors = zip(*covered, strict=True)
    ratio = (surprise**2).mean() / variance.mean()
    _, error = _average((surprise**2 - ratio * variance) / variance.mean())  # the delta method
    return Calibration(float(ratio), error, shares, errors, surprise.size)


def _predictions(foresight: Foresight) -> tuple[np.ndarray, np.ndarray, float]:
    """(surprise, spread, models), once they are seen to fit together."""
    if not isinstance(foresight, Foresight):
        raise TypeError(f"foresight must be what `foresight` or `replay` gives, got {foresight!r}")
    mean, spread, outcome = (np.asarray(a, np.float64) for a in foresight[:3])
    if not mean.shape == spread.shape == outcome.shape or mean.ndim not in (1, 2) or not mean.size:
        raise ValueError(
            "mean, spread and outcome must have one shape, (outcomes,) or (realizations, periods), "
            f"got {mean.shape}, {spread.shape}, {outcome.shape}"
        )
    if not (np.isfinite([mean, spread, outcome]).all() and (spread >= 0).all()):
        raise ValueError("mean, spread and outcome must be finite, and spread at least 0")
    models = float(foresight.models)
    if not models >= 1:
        raise ValueError(f"models must be at least 1, got {foresight.models}")
    return outcome - mean, spread, models


def _average(values: np.ndarray) -> tuple[float, float]:
    values = values.mean(axis=-1) if values.ndim == 2 else values
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(error)
