"""Diagnostics against closed forms, the concentration lemma, and ensembles known to be wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import regression
from sklearn.linear_model import LinearRegression

import ensemble_sampling as es
from ensemble_sampling.study import diagnostics, theory

VALUES = jnp.array([[3.0, 1.0, 0.0], [2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [2.0, 2.0, 0.0]])


def test_votes_moments_and_counts_of_a_small_ensemble():
    seen = diagnostics.view(VALUES)
    np.testing.assert_allclose(seen.probabilities, [2.5 / 4, 1.5 / 4, 0])  # the last one ties
    np.testing.assert_allclose(seen.mean, [2, 1.5, 0])
    np.testing.assert_allclose(seen.spread, np.std(VALUES, axis=0, ddof=1), rtol=1e-6)
    both = np.corrcoef(np.asarray(VALUES[:, :2]).T)
    np.testing.assert_allclose(seen.correlation[:2, :2], both, atol=1e-6)
    np.testing.assert_allclose(seen.correlation[2], [0, 0, 1])  # a constant correlates with nothing
    assert int(seen.distinct) == 2
    entropy = -(0.625 * np.log(0.625) + 0.375 * np.log(0.375))
    assert float(seen.effective) == pytest.approx(np.exp(entropy), rel=1e-6)
    limited = diagnostics.view(VALUES, jnp.array([False, True, True]))
    np.testing.assert_allclose(limited.probabilities, [0, 1, 0])  # no votes for what is not there
    assert int(limited.distinct) == 1


def test_an_ensemble_is_seen_through_its_members():
    ensemble = es.Ensemble(es.IndependentArms(3, 1.0), 4)
    belief = ensemble.init(jax.random.key(0))
    seen = diagnostics.look(ensemble, belief, jnp.eye(3))
    values = jnp.stack([ensemble.model(belief, jnp.array(m))(jnp.eye(3)) for m in range(4)])
    for a, b in zip(seen, diagnostics.view(values), strict=True):
        np.testing.assert_array_equal(a, b)
    exact = es.Exact(es.IndependentArms(3, 1.0))  # which has none: draws stand in for them
    seen = diagnostics.look(exact, exact.init(jax.random.key(0)), jnp.eye(3), draws=7)
    assert seen.models == 7


def test_an_ensemble_of_estimators_is_seen_through_its_members_too():
    ensemble = es.EstimatorEnsemble(LinearRegression, members=5)
    state, features = ensemble.init(jax.random.key(0)), jnp.eye(3)
    for i in range(3):
        action = es.core.Action(jnp.array(i), features[i])
        state = ensemble.update(jax.random.key(i), state, action, jnp.array(float(i)))
    seen = diagnostics.look(ensemble, state, features)
    agent = es.ThompsonSampling(ensemble)
    np.testing.assert_allclose(seen.probabilities, agent.probabilities(state, features))
    assert seen.models == 5
    assert seen.spread.shape == (3,)
    assert 1 <= int(seen.distinct) <= 3


def test_distances_and_their_errors_are_those_of_repeated_sampling():
    """Half a count in 3,000 moves KL by under 1e-3; 2,000 repeats give an error to 1.6%."""
    votes, truth, draws = np.array([0.6, 0.4, 0.0]), np.array([0.3, 0.5, 0.2]), 3000
    kl = 0.6 * np.log(0.6 / 0.3) + 0.4 * np.log(0.4 / 0.5)
    counts = np.random.default_rng(0).multinomial(draws, truth, size=2000)
    found = jax.vmap(lambda c: diagnostics.distances(jnp.array(votes), c, draws))(counts)
    assert found.kl.mean() == pytest.approx(kl, abs=2e-3)
    assert found.tv.mean() == pytest.approx(0.3, abs=2e-3)
    np.testing.assert_allclose(found.kl.std(), found.kl_stderr.mean(), rtol=0.08)
    np.testing.assert_allclose(found.tv.std(), found.tv_stderr.mean(), rtol=0.08)
    np.testing.assert_allclose(found.exact.std(axis=0), found.exact_stderr.mean(axis=0), rtol=0.08)


def best_arm_probabilities(mean, std):
    """P(arm a is best) for independent normals, by integration on a grid."""
    cdf = jax.scipy.stats.norm.cdf
    x = jnp.linspace(-8.0, 8.0, 801)

    def one(a):
        at = mean[a] + std[a] * x
        others = jnp.prod(cdf((at[:, None] - jnp.delete(mean, a)) / jnp.delete(std, a)), axis=1)
        return jnp.sum(jnp.exp(-(x**2) / 2) * others)

    weights = jnp.stack([one(a) for a in range(len(mean))])
    return weights / weights.sum()


ARMS, MEMBERS, RUNS, PULLS = 3, 100, 2000, 10


def divergences(perturbation):
    """KL(votes || exact) after a fixed sequence of actions, in independent worlds."""
    ensemble = es.Ensemble(es.IndependentArms(ARMS, 1.0), MEMBERS, perturbation)
    sequence = jnp.arange(ARMS * PULLS) % ARMS

    @jax.jit
    @jax.vmap
    def run(key):
        keys = jax.random.split(key, 4)
        theta = jax.random.normal(keys[0], (ARMS,))
        outcomes = theta[sequence] + jax.random.normal(keys[1], sequence.shape)

        def step(belief, seen):
            key, i, y = seen
            return ensemble.update(key, belief, es.core.Action(i, jnp.eye(ARMS)[i]), y), None

        steps = (jax.random.split(keys[3], len(sequence)), sequence, outcomes)
        belief, _ = jax.lax.scan(step, ensemble.init(keys[2]), steps)
        votes = diagnostics.look(ensemble, belief, jnp.eye(ARMS)).probabilities
        # Prior and noise have variance 1: each mean is the sum over one more than its pulls.
        mean = outcomes.reshape(PULLS, ARMS).sum(axis=0) / (1 + PULLS)
        truth = best_arm_probabilities(mean, jnp.full(ARMS, (1 + PULLS) ** -0.5))
        return jnp.where(votes > 0, votes * jnp.log(votes / truth), 0.0).sum()

    return np.asarray(run(jax.random.split(jax.random.key(0), RUNS)))


def exceeds(kl, epsilon):
    """Whether KL >= epsilon is seen more often than the lemma allows, beyond chance of 1e-6."""
    bound = theory.divergence_tail(ARMS, MEMBERS, epsilon)
    slack = 4.75 * np.sqrt(bound * (1 - bound) / RUNS) + 1 / RUNS  # 4.75: P(N(0, 1) > it) = 1e-6
    return np.mean(kl >= epsilon) > bound + slack


def test_under_fixed_actions_the_divergence_keeps_to_the_lemma_unless_nothing_is_perturbed():
    kl = divergences(es.posteriors.Gaussian())
    for epsilon in np.arange(0.14, 0.5, 0.01):  # below 0.14 the bound is 1
        assert not exceeds(kl, epsilon)
    # and it is what independent samples have: 2 M KL is about chi-square with K_eff - 1 <= 2
    assert kl.mean() < 2 / (2 * MEMBERS) * 1.2
    assert exceeds(divergences(es.posteriors.Unperturbed()), 0.2)


def test_a_shadow_does_not_change_what_the_ensemble_does():
    learner, world = es.IndependentArms(4, 1.0), es.GaussianArms(4)
    plain = es.EnsembleSampling(learner, 5)
    shadowed = diagnostics.Shadowed(es.Ensemble(learner, 5), es.Exact(learner))
    a, b = (es.simulate(agent, world, 30, 20, keep=True) for agent in (plain, shadowed))
    np.testing.assert_array_equal(a.regret, b.regret)
    assert a.label == b.label


def test_the_trajectory_starts_at_a_known_divergence_and_grows_under_adaptive_actions():
    """Two members, two arms a priori alike: KL is log 2 if they agree, 0 if not."""
    ensemble = es.Ensemble(es.IndependentArms(2, 1.0), 2)
    path = diagnostics.trajectory(ensemble, es.GaussianArms(2), 60, 500, points=8, draws=400)
    assert path.periods[0] == 0
    assert path.periods[-1] == 59
    assert (path.label, path.realizations) == ("2 models", 500)
    bias = 2 / (2 * 400)
    assert path.kl[0] == pytest.approx(np.log(2) / 2, abs=4 * path.kl_stderr[0] + bias)
    assert path.tv[0] == pytest.approx(1 / 4, abs=4 * path.tv_stderr[0] + 1 / np.sqrt(400))
    assert path.distinct[0] == pytest.approx(1.5, abs=4 * 0.5 / np.sqrt(500))
    assert path.distinct[-1] < path.distinct[0]


def calibrated(posterior, world, realizations, models, periods=20):
    told = diagnostics.foresight(posterior, world, periods, realizations)
    assert told.models == models
    return diagnostics.calibration(told, noise_std=0.5)


def covers(found, miss):
    levels = zip(diagnostics.LEVELS, found.coverage, found.coverage_stderr, strict=True)
    for level, share, error in levels:
        assert share == pytest.approx(level, abs=miss + 4 * error)


def test_the_exact_posterior_is_calibrated_and_wrong_ensembles_are_told_apart():
    learner, world = es.IndependentArms(3, noise_std=0.5), es.GaussianArms(3, noise_std=0.5)
    right = calibrated(es.Exact(learner), world, 200, models=1000)
    assert right.outcomes == 4_000
    # The spread of 1,000 draws is off by 2%, its square by 4%, and it is half of the variance.
    assert right.ratio == pytest.approx(1, abs=4 * right.ratio_stderr + 0.002)
    covers(right, 0.002)
    sure = calibrated(es.Ensemble(learner, 10, es.posteriors.Unperturbed()), world, 1000, 10)
    unsure = calibrated(es.Ensemble(learner, 10, inflation=3.0), world, 1000, 10)
    assert sure.ratio > 1 + 4 * sure.ratio_stderr
    assert unsure.ratio < 1 - 4 * unsure.ratio_stderr


# (members, percentage points by which coverage may miss its level)
SMALL = [(2, 0.08), (3, 0.03), (5, 0.01), (30, 0.01)]


@pytest.mark.parametrize(("members", "miss"), SMALL)
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0, 30.0])
def test_models_from_the_posterior_are_calibrated_however_few(members, miss, spread):
    """M models and the truth, all from N(0, spread^2), and noise of 1 on the outcome.

    20,000 outcomes: 4 standard errors of a share are at most 1.4 points. The mean of the squared
    surprise over its own predicted variance would have no expectation for M <= 3; the ratio of
    averages has, and is 1.
    """
    rng = np.random.default_rng(members)
    models = spread * rng.normal(size=(members, 20_000))
    outcome = spread * rng.normal(size=20_000) + rng.normal(size=20_000)
    told = diagnostics.Foresight(models.mean(0), models.std(0, ddof=1), outcome, members)
    found = diagnostics.calibration(told, noise_std=1.0)
    assert found.ratio == pytest.approx(1, abs=4 * found.ratio_stderr)
    assert found.ratio_stderr < 0.03
    covers(found, miss)
    if spread >= 3 and members <= 5:  # as if the models were infinitely many: overconfident
        naive = diagnostics.calibration(told._replace(models=np.inf), noise_std=1.0)
        assert naive.ratio > 1.1
        assert naive.coverage[-1] < 0.9


@pytest.mark.parametrize(("members", "miss"), SMALL)
def test_correct_ensembles_are_not_called_overconfident_however_small(members, miss):
    """A single arm, where choosing among members changes nothing: members are posterior draws."""
    learner, world = es.IndependentArms(1, noise_std=0.5), es.GaussianArms(1, noise_std=0.5)
    found = calibrated(es.Ensemble(learner, members), world, 3000, members, periods=6)
    assert found.ratio == pytest.approx(1, abs=4 * found.ratio_stderr)
    covers(found, miss)


def test_a_single_model_is_held_to_its_noise_alone():
    """Standard normal surprise against a noise of 2: a ratio of 1/4, and 95% within 1.96 noises."""
    rng = np.random.default_rng(0)
    zeros = np.zeros(10_000)
    told = diagnostics.Foresight(zeros, zeros, rng.normal(size=10_000), 1)
    found = diagnostics.calibration(told, noise_std=2.0)
    assert found.ratio == pytest.approx(0.25, abs=4 * found.ratio_stderr)
    right = diagnostics.calibration(told, noise_std=1.0)
    np.testing.assert_allclose(right.coverage, diagnostics.LEVELS, atol=4 * 0.005)


def test_replaying_a_history_predicts_each_outcome_from_those_before():
    rng = np.random.default_rng(0)
    features, chosen = rng.normal(size=(12, 4, 3)), rng.integers(4, size=12)
    x, y = features[np.arange(12), chosen], rng.normal(size=12)
    told = diagnostics.replay(es.posteriors.Point(es.Linear(3, 1.0)), features, chosen, y)
    for t in range(12):
        theta, _ = regression(x[:t], y[:t], 1.0, np.zeros(3), np.eye(3))
        assert told.mean[t] == pytest.approx(x[t] @ theta, abs=1e-5)
    np.testing.assert_array_equal(told.spread, np.zeros(12))
    assert told.models == 1
    many = diagnostics.replay(es.Ensemble(es.Linear(3, 1.0), 4000), features, chosen, y)
    _, cov = regression(x[:11], y[:11], 1.0, np.zeros(3), np.eye(3))
    want = np.sqrt(x[11] @ cov @ x[11])
    assert many.spread[11] == pytest.approx(want, rel=4 / np.sqrt(2 * 4000))
    assert many.models == 4000
    with pytest.raises(ValueError, match="same length"):
        diagnostics.replay(es.posteriors.Point(es.Linear(3, 1.0)), features, chosen, y[:5])


def test_networks_show_how_far_they_have_moved_from_their_prior_draws():
    make = es.networks.GaussianMLP(2, (3,), prior_std=1.0)
    ensemble = es.Ensemble(es.Network(make, 2, 10, prior_std=2.0), 4)
    belief = ensemble.init(jax.random.key(0))
    np.testing.assert_array_equal(diagnostics.prior_distance(ensemble, belief), np.zeros(4))
    action = es.core.Action(jnp.array(0), jnp.ones(2))
    shared, members = jax.jit(ensemble.update)(jax.random.key(1), belief, action, jnp.array(1.0))
    moved = diagnostics.prior_distance(ensemble, (shared, members))
    now = [np.asarray(w, np.float64) for w in members.model.weights]
    then = [np.asarray(w, np.float64) for w in belief[1].model.weights]
    square = sum(((a - b) ** 2).reshape(4, -1).sum(axis=1) for a, b in zip(now, then, strict=True))
    np.testing.assert_allclose(moved, np.sqrt(square / (2 * 3 + 3)) / 2.0, rtol=1e-5)
    linear = es.Ensemble(es.Linear(2, 1.0), 4)
    with pytest.raises(TypeError, match="Linear does not keep its members' prior draws"):
        diagnostics.prior_distance(linear, linear.init(jax.random.key(0)))
