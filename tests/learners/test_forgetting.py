"""Drift: what is known fades towards the prior, and members stay draws from the posterior."""

import jax
import numpy as np
import pytest
from reference import covariance, filtered, learn, random_covariance, thetas

import ensemble_sampling as es

G, NOISE, MEMBERS, KEY = 0.9, 0.5, 4000, jax.random.key(1)
COV, MEAN = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.2])
LINEAR = es.Linear(dim=2, noise_std=NOISE, prior_mean=MEAN, prior_cov=COV, forgetting=G)
RNG = np.random.default_rng(0)
XS, YS, ONE = RNG.normal(size=(40, 2)), RNG.normal(size=40), np.zeros(40, int)


def kalman(xs, ys):
    """Mean and covariance of theta' = mu + sqrt(g) (theta - mu) + sqrt(1 - g) N(0, COV)."""
    none, prior = np.zeros(len(ys), int), COV[None] / NOISE**2
    mean, cov = filtered(xs, (ys - xs @ MEAN) / NOISE, none, none + 1, prior, G)
    return MEAN + NOISE * mean[0], NOISE**2 * cov[0]


def check_covariance(draws, cov):
    """Five standard errors of the covariance of so many draws."""
    scale = np.sqrt(np.diag(cov))
    error = np.abs(np.cov(draws.T) - cov)
    assert np.all(error < 5 * np.sqrt(2 / len(draws)) * np.outer(scale, scale))


def test_the_exact_posterior_is_the_filter_of_a_drifting_truth():
    _, belief = learn(es.Exact(LINEAR), KEY, ONE, XS, YS)
    mean, cov = kalman(XS, YS)
    np.testing.assert_allclose(thetas(LINEAR, belief), mean, atol=1e-5)
    np.testing.assert_allclose(covariance(LINEAR, belief), cov, atol=1e-5)
    assert np.trace(cov) < np.trace(COV)


@pytest.mark.parametrize("inflation", [1.0, 2.0])
def test_members_are_draws_from_the_posterior(inflation):
    ensemble = es.Ensemble(LINEAR, MEMBERS, inflation=inflation)
    draws = thetas(LINEAR, learn(ensemble, KEY, ONE, XS, YS)[1])
    mean, cov = kalman(XS, YS)
    scale = inflation * np.sqrt(np.diag(cov))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * scale / np.sqrt(MEMBERS))
    check_covariance(draws, inflation**2 * cov)


def test_without_news_uncertainty_returns_to_the_prior_and_not_beyond():
    """For those who knew something and for those who never did; members regain their spread."""
    none = np.zeros(200)
    for xs, ys in ((XS, YS), (0 * XS, 0 * YS)):
        data = np.zeros(240, int), np.concatenate([xs, np.zeros((200, 2))]), np.append(ys, none)
        _, belief = learn(es.Exact(LINEAR), KEY, *data)
        np.testing.assert_allclose(covariance(LINEAR, belief), COV, atol=1e-5)
        np.testing.assert_allclose(thetas(LINEAR, belief), MEAN, atol=1e-4)
    check_covariance(thetas(LINEAR, learn(es.Ensemble(LINEAR, MEMBERS), KEY, *data)[1]), COV)


def test_arms_are_one_dimensional_filters_that_all_drift():
    learner = es.IndependentArms(3, noise_std=NOISE, prior_mean=1.0, prior_std=2.0, forgetting=G)
    arms, ys = RNG.integers(0, 3, 30), RNG.normal(size=30)
    data = arms, np.ones((30, 1)), ys
    prior = np.full((3, 1, 1), (2.0 / NOISE) ** 2)
    mean, cov = filtered(data[1], (ys - 1.0) / NOISE, arms, np.ones(30), prior, G)
    belief, ensemble = (
        learn(posterior, KEY, *data)[1]
        for posterior in (es.Exact(learner), es.Ensemble(learner, MEMBERS))
    )
    variances = NOISE**2 * cov[:, 0, 0]
    np.testing.assert_allclose(thetas(learner, belief), 1 + NOISE * mean[:, 0], atol=1e-5)
    np.testing.assert_allclose(np.diag(covariance(learner, belief)), variances, rtol=1e-5)
    spread = thetas(learner, ensemble).var(axis=0)
    np.testing.assert_allclose(spread, variances, rtol=5 * np.sqrt(2 / MEMBERS))


def test_every_action_of_per_action_drifts_and_independently_of_the_others():
    """Two actions never chosen: where they went has the prior's covariance, and none in common."""
    learner = es.PerAction(LINEAR, arms=3)
    _, belief = learn(es.Exact(learner), KEY, ONE, XS, YS)
    mean, cov = kalman(XS, YS)
    np.testing.assert_allclose(thetas(learner, belief)[0], mean, atol=1e-5)
    np.testing.assert_allclose(covariance(learner, belief), [cov, COV, COV], atol=1e-5)
    _, members = learn(es.Ensemble(learner, MEMBERS), KEY, ONE, XS, YS)
    unchosen = thetas(learner, members)[:, 1:].reshape(MEMBERS, 4)
    check_covariance(unchosen, np.kron(np.eye(2), COV))


def test_drift_and_perturbation_are_independent():
    """With one arm both are one number per member; drawn alike, members would spread too much."""
    learner, members = es.IndependentArms(1, noise_std=1.0, forgetting=0.5), 20_000
    data = ONE[:20], np.ones((20, 1)), YS[:20]
    _, ensemble = learn(es.Ensemble(learner, members), jax.random.key(4), *data)
    v = 1.0
    for _ in range(20):
        v = 0.5 * v / (v + 1.0) + 0.5
    assert thetas(learner, ensemble).var() == pytest.approx(v, rel=5 * np.sqrt(2 / members))


LEARNERS = {
    "linear": lambda **given: es.Linear(2, prior_mean=MEAN, prior_cov=COV, **given),
    "arms": lambda **given: es.IndependentArms(3, prior_mean=0.3, prior_std=1.7, **given),
    "per action": lambda **given: es.PerAction(es.Linear(2, prior_mean=MEAN, **given), 3),
}


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_factor_of_one_forgets_nothing(kind):
    """Up to rounding, in units of the posterior's width; also where that is tiny."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(500, 2)), rng.normal(size=500)
    index = rng.integers(0, 3, 500)
    for noise_std in (1.0, 1e-4):
        learners = [LEARNERS[kind](noise_std=noise_std, forgetting=g) for g in (None, 1.0)]
        none, one = (
            learn(es.Ensemble(learner, 5), jax.random.key(0), index, x, noise_std * y)[1]
            for learner in learners
        )
        cov = covariance(learners[0], none)
        np.testing.assert_allclose(covariance(learners[1], one), cov, rtol=0, atol=1e-3 * cov.max())
        have, want = map(thetas, learners[::-1], (one, none))
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-3 * np.sqrt(cov.max()))


@pytest.mark.parametrize("forgetting", [1 - 2.0**-24, 1 - 2.0**-22, 0.9999, 0.99])
def test_a_covariance_close_to_singular_is_mixed_as_in_float64(forgetting):
    """Noise of 1e-4 beside a correlated prior: at first the covariance has no Cholesky factor in
    float32. In every direction variances are right to one in a thousand."""
    rng, noise_std, dim, n = np.random.default_rng(0), 1e-4, 20, 30
    prior, none = random_covariance(rng, dim), np.zeros(n, int)
    x = rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64)
    learner = es.Linear(dim, noise_std, 0.0, prior_cov=prior, forgetting=forgetting)
    _, belief = learn(es.Exact(learner), jax.random.key(0), none, x, x.sum(axis=1))
    _, cov = filtered(x, none, none, none + 1, prior[None] / noise_std**2, forgetting)
    root = np.linalg.cholesky(noise_std**2 * cov[0])
    white = np.linalg.solve(root, np.linalg.solve(root, covariance(learner, belief)).T)
    np.testing.assert_allclose(np.linalg.eigvalsh(white), 1, atol=1e-3)
