"""Arms of any outcomes: weighted means as in a plain loop, and for clicks the Beta posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import learn, noises

import ensemble_sampling as es
from ensemble_sampling.learners import BetaArms, BootstrapArms
from ensemble_sampling.posteriors import Exponential, Unperturbed

ARMS, PERIODS, MEMBERS = 3, 40, 5
RNG = np.random.default_rng(0)
INDEX = RNG.choice([0, 1], PERIODS)  # the last arm is never chosen
ROWS, KEY = np.eye(ARMS)[INDEX], jax.random.key(0)
OUTCOMES = {
    "normal": 1000 + RNG.normal(size=PERIODS),
    "clicks": (RNG.random(PERIODS) < 0.1 + 0.4 * INDEX).astype(float),
    "misses": -(RNG.random(PERIODS) < 0.1).astype(float),
    "revenue": (RNG.random(PERIODS) < 0.3) * RNG.lognormal(3, 1, PERIODS),
    "equal": np.full(PERIODS, 0.1),
    "huge": 1e14 * RNG.normal(size=PERIODS),
}


def weighted(y, weights, high, low):
    """What members (M) think of arms: from outcomes (t) and their weights (t, M), (M, arms)."""
    off = np.array([y[t] - y[:t].mean() if t else 0.0 for t in range(len(y))])
    shares = [np.maximum(off, 0), np.maximum(-off, 0)]
    ends = [np.average(y, weights=w) if w.any() else y[0] for w in shares]
    values = np.empty_like(high)
    for k in range(ARMS):
        w, own = weights[INDEX == k], y[INDEX == k]  # noqa: SIM300
        total = w.T @ own + high[:, k] * ends[0] + low[:, k] * ends[1]
        values[:, k] = total / (w.sum(axis=0) + high[:, k] + low[:, k])
    return values


@pytest.mark.parametrize("perturbation", [Exponential(), Unperturbed()])
def test_values_are_those_of_a_plain_loop(perturbation, float64):
    ensemble = es.Ensemble(BootstrapArms(ARMS), MEMBERS, perturbation)
    weights = np.asarray(noises(ensemble, KEY, PERIODS)[1])
    for kind, y in OUTCOMES.items():
        belief = learn(ensemble, KEY, INDEX, ROWS, y)[1]
        have = ensemble.values(KEY, belief, jnp.eye(ARMS), 1)
        want = weighted(y, weights, *map(np.asarray, belief[1][:2]))
        np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9 * np.ptp(y), err_msg=kind)
        pool = belief[0].pool
        np.testing.assert_allclose(pool.mean, y.mean(), rtol=1e-12)


def test_for_clicks_members_are_those_of_beta_arms():
    """The same gammas and weights, so the same draws: exact but for rounding."""
    boot = es.Ensemble(BootstrapArms(ARMS), MEMBERS, Exponential())
    beta = es.Ensemble(BetaArms(ARMS), MEMBERS, Exponential())
    belief, other = (learn(e, KEY, INDEX, ROWS, OUTCOMES["clicks"])[1] for e in (boot, beta))
    start = beta.init(KEY)[1]
    weights = belief[1]
    shift = [jnp.asarray(weights.high - start.ones.value), weights.low - start.zeros.value]
    counts = other[1]._replace(
        ones=counts_with(other[1].ones, shift[0]), zeros=counts_with(other[1].zeros, shift[1])
    )
    have = boot.values(KEY, belief, jnp.eye(ARMS), 1)
    np.testing.assert_allclose(have, counts.chances, rtol=1e-4)


def counts_with(total, more):
    return total._replace(value=total.value + more)


def test_no_choice_depends_on_unit_or_offset(float64):
    ensemble = es.Ensemble(BootstrapArms(ARMS), MEMBERS, Exponential())
    for y in OUTCOMES.values():
        scale = max(np.ptp(y), 1.0)
        values = []
        for a, b in ((0.0, 1.0), (7.0, 1e-6), (-3.0, 50.0)):
            belief = learn(ensemble, KEY, INDEX, ROWS, (a * scale + b * y))[1]
            values.append(
                (np.asarray(ensemble.values(KEY, belief, jnp.eye(ARMS), 1)) - a * scale) / b
            )
        np.testing.assert_allclose(values[1], values[0], rtol=0, atol=1e-6 * scale)
        np.testing.assert_allclose(values[2], values[0], rtol=0, atol=1e-6 * scale)


def test_while_all_outcomes_are_equal_all_actions_are():
    ensemble = es.Ensemble(BootstrapArms(ARMS), MEMBERS, Exponential())
    belief = learn(ensemble, KEY, INDEX, ROWS, OUTCOMES["equal"])[1]
    assert np.unique(ensemble.values(KEY, belief, jnp.eye(ARMS), 1)).size == 1
