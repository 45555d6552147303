"""Drift: what is known fades towards the prior, and members stay draws from the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import covariance, random_covariance, thetas
from reference import learn as learn_all

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
        action = es.core.Action(index, jnp.asarray(x, float))
        belief = update(jax.random.key(n), belief, action, jnp.asarray(y, float))
    return belief


def test_the_exact_posterior_is_the_filter_of_a_drifting_truth():
    belief = learn(es.Exact(LINEAR), XS, YS)
    expected_mean, expected_cov = kalman(XS, YS)
    assert np.allclose(thetas(LINEAR, belief), expected_mean, atol=1e-5)
    assert np.allclose(covariance(LINEAR, belief), expected_cov, atol=1e-5)


@pytest.mark.parametrize("inflation", [1.0, 2.0])
def test_members_are_draws_from_the_posterior(inflation):
    members = 4000
    belief = learn(es.Ensemble(LINEAR, members, inflation=inflation), XS, YS)
    draws = thetas(LINEAR, belief)
    mean, cov = kalman(XS, YS)
    scale = inflation * np.sqrt(np.diag(cov))
    # Five standard errors of a mean and of a covariance of 4000 draws.
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * scale / np.sqrt(members))
    error = np.abs(np.cov(draws.T) - inflation**2 * cov)
    assert np.all(error < 5 * np.sqrt(2 / members) * np.outer(scale, scale))


def test_without_news_uncertainty_returns_to_the_prior_and_not_beyond():
    informed = learn(es.Exact(LINEAR), XS, YS)
    uninformed = learn(es.Exact(LINEAR), np.zeros((200, 2)), np.zeros(200))
    assert np.allclose(covariance(LINEAR, uninformed), COV, atol=1e-5)
    assert np.trace(covariance(LINEAR, informed)) < np.trace(COV)
    xs = np.concatenate([XS, np.zeros((200, 2))])
    belief = learn(es.Exact(LINEAR), xs, np.concatenate([YS, np.zeros(200)]))
    assert np.allclose(covariance(LINEAR, belief), COV, atol=1e-5)
    assert np.allclose(thetas(LINEAR, belief), MEAN, atol=1e-4)
    members = learn(es.Ensemble(LINEAR, 4000), xs, np.zeros(240))
    # Members regained their spread too: five standard errors as above.
    scale = np.sqrt(np.diag(COV))
    assert np.all(
        np.abs(np.cov(thetas(LINEAR, members).T) - COV)
        < 5 * np.sqrt(2 / 4000) * np.outer(scale, scale)
    )


def test_arms_are_one_dimensional_filters_that_all_drift():
    learner = es.IndependentArms(arms=3, noise_std=0.5, prior_mean=1.0, prior_std=2.0, forgetting=G)
    arms = RNG.integers(0, 3, 30)
    ys = RNG.normal(size=30)
    belief = learn(es.Exact(learner), np.zeros((30, 1)), ys, arms)
    variances = np.diag(covariance(learner, belief))
    for k in range(3):
        m, v = 1.0, 4.0
        for arm, y in zip(arms, ys, strict=True):
            if arm == k:
                gain = v / (v + 0.25)
                m, v = m + gain * (y - m), (1 - gain) * v
            m, v = 1.0 + np.sqrt(G) * (m - 1.0), G * v + (1 - G) * 4.0
        assert thetas(learner, belief)[k] == pytest.approx(m, abs=1e-5)
        assert variances[k] == pytest.approx(v, rel=1e-5)
    ensemble = learn(es.Ensemble(learner, 4000), np.zeros((30, 1)), ys, arms)
    assert thetas(learner, ensemble).var(axis=0) == pytest.approx(
        variances, rel=5 * np.sqrt(2 / 4000)
    )


def test_every_action_of_per_action_drifts():
    learner = es.PerAction(LINEAR, arms=2)
    belief = learn(es.Exact(learner), XS, YS, np.zeros(40, int))
    expected_mean, expected_cov = kalman(XS, YS)
    assert np.allclose(thetas(learner, belief)[0], expected_mean, atol=1e-5)
    assert np.allclose(covariance(learner, belief), [expected_cov, COV], atol=1e-5)
    members = learn(es.Ensemble(learner, 2000), XS, YS, np.zeros(40, int))
    unchosen = thetas(learner, members)[:, 1]
    scale = np.sqrt(np.diag(COV))
    error = np.abs(np.cov(unchosen.T) - COV)
    assert np.all(error < 5 * np.sqrt(2 / 2000) * np.outer(scale, scale))


def test_actions_drift_independently_of_each_other():
    """Two actions never chosen: where they went has the prior's covariance, and none in common."""
    members = 4000
    learner = es.PerAction(LINEAR, arms=3)
    belief = learn(es.Ensemble(learner, members), XS, YS, np.zeros(40, int))
    unchosen = thetas(learner, belief)[:, 1:].reshape(members, 4)
    expected = np.kron(np.eye(2), COV)
    scale = np.sqrt(np.diag(expected))
    error = np.abs(np.cov(unchosen.T) - expected)
    assert np.all(error < 5 * np.sqrt(2 / members) * np.outer(scale, scale))


def test_drift_and_perturbation_are_independent():
    """With one arm both are one number per member; drawn alike, members would spread too much."""
    learner, members = es.IndependentArms(1, noise_std=1.0, forgetting=0.5), 20_000
    ensemble = learn_all(
        es.Ensemble(learner, members),
        jax.random.key(4),
        np.zeros(20, int),
        np.ones((20, 1)),
        YS[:20],
    )[1]
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
            learn_all(es.Ensemble(learner, 5), jax.random.key(0), index, x, noise_std * y)[1]
            for learner in learners
        )
        cov = covariance(learners[0], none)
        np.testing.assert_allclose(covariance(learners[1], one), cov, rtol=0, atol=1e-3 * cov.max())
        width = np.sqrt(cov.max())
        have, want = map(thetas, learners[::-1], (one, none))
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-3 * width)


@pytest.mark.parametrize("forgetting", [1 - 2.0**-24, 1 - 2.0**-22, 0.9999, 0.99])
def test_a_covariance_close_to_singular_is_mixed_as_in_float64(forgetting):
    """Noise of 1e-4 beside a correlated prior: at first the covariance has no Cholesky factor in
    float32. In every direction variances are right to one in a thousand."""
    rng, noise_std, dim, n = np.random.default_rng(0), 1e-4, 20, 30
    prior = random_covariance(rng, dim)
    x = rng.normal(size=(n, dim)).astype(np.float32).astype(np.float64)
    learner = es.Linear(dim, noise_std, 0.0, prior_cov=prior, forgetting=forgetting)
    _, belief = learn_all(es.Exact(learner), jax.random.key(0), np.zeros(n, int), x, x.sum(axis=1))
    cov = prior
    for row in x:
        gain = cov @ row / (noise_std**2 + row @ cov @ row)
        cov = forgetting * (cov - np.outer(gain, cov @ row)) + (1 - forgetting) * prior
    root = np.linalg.cholesky(cov)
    white = np.linalg.solve(root, np.linalg.solve(root, covariance(learner, belief)).T)
    np.testing.assert_allclose(np.linalg.eigvalsh(white), 1, atol=1e-3)


def switching(forgetting, key, change=300, periods=600):
    """Rewards of independent arms whose best one changes halfway; outcomes have no noise."""
    agent = es.EnsembleSampling(es.IndependentArms(3, 0.3, forgetting=forgetting), members=20)
    offer = jnp.zeros((3, 1))

    def period(state, t):
        act_key, update_key = jax.random.split(jax.random.fold_in(key, t))
        index = agent.act(act_key, state, offer)
        reward = jnp.where(t < change, jnp.eye(3)[0], jnp.eye(3)[2])[index]
        return agent.update(update_key, state, es.core.Action(index, offer[index]), reward), reward

    return jax.lax.scan(period, agent.init(key), jnp.arange(periods))[1]


def test_agents_that_forget_find_the_new_best_action_far_more_often_on_average():
    """Over 200 runs, from 150 periods after the change. A single run may miss it or be lucky."""
    keys = jax.random.split(jax.random.key(1), 200)
    remembers, forgets = (
        np.asarray(jax.jit(jax.vmap(lambda k, g=g: switching(g, k)))(keys))[:, 450:].mean(axis=1)
        for g in (None, 0.97)
    )
    assert forgets.mean() > 0.8
    assert forgets.mean() > remembers.mean() + 0.3


@pytest.mark.parametrize("forgetting", [0.0, 1.5, -1.0, np.nan])
def test_bad_factors_are_refused(forgetting):
    for make in (
        lambda f: es.Linear(dim=2, forgetting=f),
        lambda f: es.IndependentArms(2, forgetting=f),
    ):
        with pytest.raises(ValueError, match="forgetting must be"):
            make(forgetting)
