"""Drift: what is known fades towards the prior, and members stay draws from the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es

G = 0.9
COV = np.array([[2.0, 0.5], [0.5, 1.0]])
MEAN = np.array([0.3, -0.2])
LINEAR = es.Linear(dim=2, noise_std=0.5, prior_mean=MEAN, prior_cov=COV, forgetting=G)
RNG = np.random.default_rng(0)
XS, YS = RNG.normal(size=(40, 2)), RNG.normal(size=40)


def kalman(xs, ys):
    """Mean and covariance of theta' = mu + sqrt(g) (theta - mu) + sqrt(1 - g) N(0, COV)."""
    mean, cov = MEAN.copy(), COV.copy()
    for x, y in zip(xs, ys, strict=True):
        gain = cov @ x / (0.25 + x @ cov @ x)
        mean, cov = mean + gain * (y - x @ mean), cov - np.outer(gain, cov @ x)
        mean, cov = MEAN + np.sqrt(G) * (mean - MEAN), G * cov + (1 - G) * COV
    return mean, cov


def learn(posterior, xs, ys, arms=None):
    belief = posterior.init(jax.random.key(1))
    update = jax.jit(lambda *given: posterior.update(*given))
    for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
        index = jnp.asarray(0 if arms is None else arms[n])
        action = es.Action(index, jnp.asarray(x, float))
        belief = update(jax.random.key(n), belief, action, jnp.asarray(y, float))
    return belief


def test_the_exact_posterior_is_the_filter_of_a_drifting_truth():
    root, mean = learn(es.Exact(LINEAR), XS, YS)
    expected_mean, expected_cov = kalman(XS, YS)
    assert np.allclose(mean.value, expected_mean, atol=1e-5)
    assert np.allclose(root.value @ root.value.T, expected_cov, atol=1e-5)


@pytest.mark.parametrize("inflation", [1.0, 2.0])
def test_members_are_draws_from_the_posterior(inflation):
    members = 4000
    _, thetas = learn(es.Ensemble(LINEAR, members, inflation=inflation), XS, YS)
    draws = np.asarray(thetas.value, np.float64)
    mean, cov = kalman(XS, YS)
    scale = inflation * np.sqrt(np.diag(cov))
    # Five standard errors of a mean and of a covariance of 4000 draws.
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * scale / np.sqrt(members))
    error = np.abs(np.cov(draws.T) - inflation**2 * cov)
    assert np.all(error < 5 * np.sqrt(2 / members) * np.outer(scale, scale))


def test_without_news_uncertainty_returns_to_the_prior_and_not_beyond():
    informed = learn(es.Exact(LINEAR), XS, YS)
    uninformed = learn(es.Exact(LINEAR), np.zeros((200, 2)), np.zeros(200))
    assert np.allclose(uninformed[0].value @ uninformed[0].value.T, COV, atol=1e-5)
    assert np.trace(informed[0].value @ informed[0].value.T) < np.trace(COV)
    xs = np.concatenate([XS, np.zeros((200, 2))])
    root, mean = learn(es.Exact(LINEAR), xs, np.concatenate([YS, np.zeros(200)]))
    assert np.allclose(root.value @ root.value.T, COV, atol=1e-5)
    assert np.allclose(mean.value, MEAN, atol=1e-4)
    _, thetas = learn(es.Ensemble(LINEAR, 4000), xs, np.zeros(240))
    # Members regained their spread too: five standard errors as above.
    scale = np.sqrt(np.diag(COV))
    assert np.all(
        np.abs(np.cov(np.asarray(thetas.value).T) - COV)
        < 5 * np.sqrt(2 / 4000) * np.outer(scale, scale)
    )


def test_arms_are_one_dimensional_filters_that_all_drift():
    learner = es.IndependentArms(arms=3, noise_std=0.5, prior_mean=1.0, prior_std=2.0, forgetting=G)
    arms = RNG.integers(0, 3, 30)
    ys = RNG.normal(size=30)
    pulls, mean = learn(es.Exact(learner), np.zeros((30, 1)), ys, arms)
    for k in range(3):
        m, v = 1.0, 4.0
        for arm, y in zip(arms, ys, strict=True):
            if arm == k:
                gain = v / (v + 0.25)
                m, v = m + gain * (y - m), (1 - gain) * v
            m, v = 1.0 + np.sqrt(G) * (m - 1.0), G * v + (1 - G) * 4.0
        assert float(mean[k]) == pytest.approx(m, abs=1e-5)
        assert 0.25 / float(pulls[k]) == pytest.approx(v, rel=1e-5)
    _, members = learn(es.Ensemble(learner, 4000), np.zeros((30, 1)), ys, arms)
    spread = np.asarray(members).var(axis=0)
    assert spread == pytest.approx(0.25 / np.asarray(pulls), rel=5 * np.sqrt(2 / 4000))


def test_every_action_of_per_action_drifts():
    learner = es.PerAction(LINEAR, arms=2)
    root, mean = learn(es.Exact(learner), XS, YS, np.zeros(40, int))
    expected_mean, expected_cov = kalman(XS, YS)
    assert np.allclose(mean.value[0], expected_mean, atol=1e-5)
    assert np.allclose(root.value[0] @ root.value[0].T, expected_cov, atol=1e-5)
    assert np.allclose(root.value[1] @ root.value[1].T, COV, atol=1e-5)
    _, members = learn(es.Ensemble(learner, 2000), XS, YS, np.zeros(40, int))
    unchosen = np.asarray(members.value)[:, 1]
    scale = np.sqrt(np.diag(COV))
    error = np.abs(np.cov(unchosen.T) - COV)
    assert np.all(error < 5 * np.sqrt(2 / 2000) * np.outer(scale, scale))


def test_an_agent_that_forgets_finds_the_new_best_action():
    late = {}
    for forgetting in (None, 0.97):
        learner = es.IndependentArms(arms=3, noise_std=0.3, forgetting=forgetting)
        bandit = es.Bandit(es.EnsembleSampling(learner, members=20), seed=1)
        worth, got = [1.0, 0.0, 0.0], []
        for t in range(600):
            if t == 300:
                worth = [0.0, 0.0, 1.0]
            decision = bandit.choose()
            got.append(worth[decision.index])
            bandit.learn(decision.id, worth[decision.index])
        late[forgetting] = np.mean(got[450:])
    assert late[0.97] > 0.75
    assert late[0.97] > late[None] + 0.25


@pytest.mark.parametrize("forgetting", [0.0, 1.5, -1.0, np.nan])
def test_bad_factors_are_refused(forgetting):
    for make in (
        lambda f: es.Linear(dim=2, forgetting=f),
        lambda f: es.IndependentArms(2, forgetting=f),
    ):
        with pytest.raises(ValueError, match="forgetting must be"):
            make(forgetting)
