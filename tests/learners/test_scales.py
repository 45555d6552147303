"""Learned scales: noise level and offset from the outcomes, against loops that start anew."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import away, exact, filtered, learn, learned_scale, noises
from scipy import stats

import ensemble_sampling as es
from ensemble_sampling.learners.conjugate import OutcomeScale
from ensemble_sampling.posteriors import Gaussian, Poisson

DIM, ARMS, PERIODS = 3, 4, 25
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(ARMS, DIM))
INDEX = RNG.integers(0, ARMS, PERIODS)
X = RNG.normal(size=(PERIODS, DIM))
Y = 7 + 0.3 * X @ RNG.normal(size=DIM) + 0.2 * RNG.normal(size=PERIODS)
Y[:3] = Y[0]  # nothing is known of the scale while outcomes are equal


def with_constant(x):
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)


def case(kind, forgetting=None, prior_std=1.0):
    """(learner, inputs, models' indices, prior covariances, rows to predict and their models)."""
    settings = {"prior_std": prior_std, "forgetting": forgetting}
    linear, prior = es.Linear(DIM, **settings), np.diag([1.0] + DIM * [prior_std**2])
    each, none, lines = np.arange(ARMS), np.zeros(PERIODS, int), with_constant(ROWS)
    if kind == "linear":
        return linear, with_constant(X), none, prior[None], lines, 0 * each
    if kind == "per action":
        priors = np.stack([prior] * ARMS)
        return es.PerAction(linear, ARMS), with_constant(X), INDEX, priors, lines, each
    priors = np.full((ARMS, 1, 1), prior_std**2)
    arms = es.IndependentArms(ARMS, **settings)
    return arms, np.ones((PERIODS, 1)), INDEX, priors, np.ones((ARMS, 1)), each


def covariances(shared, kind):
    """Those of all models in units of the noise."""
    if kind == "arms":
        return 1 / exact(shared.pulls)[:, None, None]
    root = exact(shared.root)
    return np.reshape(root @ np.swapaxes(root, -1, -2), (-1, DIM + 1, DIM + 1))


KINDS = ["linear", "per action", "arms"]


@pytest.mark.parametrize("forgetting", [None, 0.9], ids=["", "forgetting"])
@pytest.mark.parametrize("kind", KINDS)
def test_scale_mean_and_covariance_are_those_of_a_loop_that_starts_anew(kind, forgetting, float64):
    g = 1.0 if forgetting is None else forgetting
    for prior_std in (1.0, 0.4):
        learner, x, models, prior, rows, whose = case(kind, forgetting, prior_std)
        start, beliefs = learn(es.Exact(learner), jax.random.key(0), INDEX, X, Y, every=True)
        for n in (0, 1, 3, 4, PERIODS):
            pick = lambda *leaves, n=n: leaves[0] if n == 0 else leaves[1][n - 1]  # noqa: E731
            shared, member = jax.tree.map(pick, start, beliefs)
            want = learned_scale(x[:n], Y[:n], models[:n], prior, forgetting=g)
            np.testing.assert_allclose(shared.seen.noise_std, want.noise_std, rtol=1e-9)
            np.testing.assert_allclose(shared.seen.center, want.center, rtol=1e-12)
            np.testing.assert_allclose(shared.seen.evidence, want.evidence, rtol=1e-9)
            seen = x[:n], Y[:n] - want.center, models[:n], np.ones(n)
            mean, cov = filtered(*seen, prior, g)
            values = want.center + (rows * mean[whose]).sum(axis=1)
            have = learner.predict(shared, member, jnp.asarray(ROWS))
            np.testing.assert_allclose(have, values, rtol=0, atol=1e-9)
            np.testing.assert_allclose(covariances(shared, kind), cov, rtol=0, atol=1e-10)


def drawn_noise(luck, outcomes):
    """In units of the best known one: by chi-square's own quantiles those of Wilson and Hilferty
    are right to 1 % from 10 degrees of freedom on."""
    freedom = outcomes - 1
    part = 2 / (9 * freedom)
    near = (1 - part + np.asarray(luck) * np.sqrt(part)) ** -1.5
    exactly = np.sqrt(freedom / stats.chi2.ppf(stats.norm.cdf(luck), freedom))
    np.testing.assert_allclose(near, exactly, rtol=0.01)
    return near


@pytest.mark.parametrize("perturbation", [Gaussian(), Poisson()], ids=["shift", "weight"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_are_the_mean_plus_their_own_noise_times_their_distance(
    kind, perturbation, float64
):
    """Where weights differ, so does the noise already, and none is drawn besides."""
    learner, x, models, prior, rows, whose = case(kind)
    ensemble, key = es.Ensemble(learner, 3, perturbation), jax.random.key(1)
    start, end = learn(ensemble, key, INDEX, X, Y)
    have = ensemble.values(key, end, jnp.asarray(ROWS), 1)
    shifts, weights = (np.asarray(part) for part in noises(ensemble, key, PERIODS))
    begin, luck = away(*start), end[1].luck
    assert (luck is None) == perturbation.reweights
    for m in range(3):
        weight = weights[:, m]
        scale = learned_scale(x, Y, models, prior, weight)
        mean, _ = filtered(x, Y - scale.center, models, weight, prior)
        first = begin[m].reshape(mean.shape)
        distance, _ = filtered(x, shifts[:, m], models, weight, prior, start=first)
        drawn = 1.0 if luck is None else drawn_noise(luck[m].reshape(-1, 1), PERIODS)
        theta = mean + scale.noise_std * drawn * distance
        want = scale.center + (rows * theta[whose]).sum(axis=1)
        np.testing.assert_allclose(have[m], want, rtol=0, atol=1e-8)


def test_entries_of_a_vector_outcome_have_an_offset_and_a_noise_of_their_own(float64):
    y = np.stack([Y, -300 + 50 * RNG.normal(size=PERIODS)], axis=1)
    vectors, key = es.Linear(DIM, outcomes=2, reward=lambda y: y[0]), jax.random.key(0)
    _, (shared, _) = learn(es.Exact(vectors), key, INDEX, X, y)
    for entry in range(2):
        _, (one, _) = learn(es.Exact(es.Linear(DIM)), key, INDEX, X, y[:, entry])
        np.testing.assert_allclose(shared.seen.noise_std[entry], one.seen.noise_std, rtol=1e-12)
        have = vectors.mean(shared, jnp.asarray(ROWS))[:, entry]
        np.testing.assert_allclose(have, es.Linear(DIM).mean(one, jnp.asarray(ROWS)), rtol=1e-12)
    have = vectors.predict(shared, vectors.center(key)[1], jnp.asarray(ROWS))
    np.testing.assert_allclose(have, vectors.mean(shared, jnp.asarray(ROWS))[:, 0], rtol=1e-10)


def test_draws_of_the_exact_posterior_are_students_t_of_the_learned_width():
    """Five standard errors of 20,000 draws' mean and of the shares below their quantiles."""
    learner, x, models, prior, rows, _ = case("linear")
    posterior, draws = es.Exact(learner), 20_000
    _, belief = learn(posterior, jax.random.key(0), INDEX, X, Y)
    scale = learned_scale(x, Y, models, prior)
    mean, cov = filtered(x, Y - scale.center, models, np.ones(PERIODS), prior)
    values = posterior.values(jax.random.key(1), belief, jnp.asarray(ROWS, float), draws)
    width = scale.noise_std * np.sqrt(np.einsum("ki,ij,kj->k", rows, cov[0], rows))
    white = (np.asarray(values, np.float64) - scale.center - rows @ mean[0]) / width
    assert np.abs(white.mean(axis=0)).max() < 5 * 1.1 / np.sqrt(draws)
    for chance in (0.025, 0.1, 0.3, 0.7, 0.9, 0.975):
        share = (white < stats.t.ppf(chance, PERIODS - 1)).mean(axis=0)
        error = np.sqrt(chance * (1 - chance) / draws)
        assert np.abs(share - chance).max() < 5 * error


COVERED = {  # three arms, or a line, each of unknown offset and noise
    "exact arms": es.Exact(es.IndependentArms(3)),
    "exact line": es.Exact(es.Linear(1)),
    "ensemble of arms": es.Ensemble(es.IndependentArms(3), 200),
    "ensemble of lines": es.Ensemble(es.Linear(1), 200),
}


@jax.jit
def covered(posterior, key):
    """Whether the middle 95 % of values hold the truth after 1, 2, ..., 6 outcomes, in a world
    drawn from the prior."""
    keys = jax.random.split(key, 7)
    arms, dim = posterior.arms or 1, posterior.dim or 0
    offset, const = 5 * jax.random.normal(keys[0]), jax.random.normal(keys[1], (arms,))
    theta, x = jax.random.normal(keys[2], (arms, dim)), jax.random.normal(keys[3], (6, dim))
    index, noise = jax.random.randint(keys[4], (6,), 0, arms), jax.random.normal(keys[5], (6,))
    y = offset + const[index] + (x * theta[index]).sum(axis=1) + noise
    offer = jax.random.normal(keys[6], (arms, dim))
    truth = offset + const + (offer * theta).sum(axis=1)

    def step(belief, seen):
        t, index, x, y = seen
        now = jax.random.fold_in(key, t)
        belief = posterior.update(now, belief, es.core.Action(index, x), y)
        values = posterior.values(now, belief, offer, 200)
        return belief, (jnp.abs((values < truth).mean(axis=0) - 0.5) < 0.475).mean()

    return jax.lax.scan(step, posterior.init(key), (jnp.arange(6), index, x, y))[1]


@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_the_truth_from_two_outcomes_on(name):
    """In 500 worlds, whose standard error is at most 0.014. With the noise plugged in, 0.6 of the
    truths were covered after two outcomes and 0.75 after three."""
    keys = jax.random.split(jax.random.key(0), 500)
    inside = jax.vmap(covered, in_axes=(None, 0))(COVERED[name], keys).mean(axis=0)
    assert np.all((inside[1:] > 0.89) & (inside[1:] < 0.98)), inside


@pytest.mark.parametrize("weight", [1.0, 3.0, 7.0])
@pytest.mark.parametrize("outcome", [0.1, -12345.678, 0.0])
def test_equal_outcomes_leave_the_unit_open_whatever_they_weigh(outcome, weight):
    seen, y = OutcomeScale.unknown(()), jnp.asarray(outcome, float)
    for _ in range(4):
        seen = seen.add(y, y - seen.center, jnp.asarray(1.5), weight)
        assert (seen.noise_std, seen.center, seen.evidence) == (1.0, y, 0.0)


def test_independent_arms_of_known_mean_are_a_linear_model_also_in_scale(float64):
    learners = es.IndependentArms(ARMS, prior_mean=0.5), es.Linear(ARMS, prior_mean=0.5)
    x, values = np.eye(ARMS)[INDEX], []
    for learner in learners:
        ensemble = es.Ensemble(learner, 3, Poisson())
        _, end = learn(ensemble, jax.random.key(0), INDEX, x, Y)
        values.append(ensemble.values(jax.random.key(0), end, jnp.eye(ARMS), 1))
    np.testing.assert_allclose(*values, atol=1e-10)


@jax.jit
@partial(jax.vmap, in_axes=(0, None, None))
def surprises(key, noise_std, offset):
    """(the noise found in a world, squared surprises over what was expected from the 200th on)."""
    keys, learner = jax.random.split(key, 3), es.Linear(4)
    x = jax.random.normal(keys[0], (1000, 4)).at[:, 0].set(1.0)
    theta = noise_std * jax.random.normal(keys[1], (4,))
    y = offset + x @ theta + noise_std * jax.random.normal(keys[2], (1000,))

    def step(shared, seen):
        features, outcome = seen
        v = shared.root.value.T @ jnp.append(1.0, features)
        expected = learner.noise(shared) * jnp.sqrt(1 + v @ v)
        surprise = outcome - learner.mean(shared, features)
        action = es.core.Action(jnp.int32(0), features)
        after, _ = learner.learn(shared, member, action, outcome, es.core.Noise())
        return after, (surprise / expected) ** 2

    start, member = learner.center(key)
    shared, squares = jax.lax.scan(step, start, (x, y))
    return learner.noise(shared), squares[200:].mean()


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("noise_std", [0.1, 1.0, 30.0])
def test_surprises_are_as_large_as_expected_and_the_noise_is_found(noise_std, offset):
    """200 worlds of 4 features, one of them constant, and truths of the noise's size, in float32.
    From the 200th outcome on squared surprises over what was expected average 1 within 10 %; after
    1,000 the noise is within 8 % of the truth (3.5 standard errors of one world), on average 1 %.
    """
    found, squares = surprises(jax.random.split(jax.random.key(0), 200), noise_std, offset)
    assert abs(float(squares.mean()) - 1) < 0.1
    assert abs(float(found.mean()) / noise_std - 1) < 0.01
    assert np.abs(np.asarray(found) / noise_std - 1).max() < 0.08


# Decisions do not depend on the unit of outcomes, or on where their zero is


BLEND = es.learners.Blend((es.Linear(DIM), es.Linear(1)))
AGENTS = {
    "linear": es.EnsembleSampling(es.Linear(DIM), 5),
    "exact linear": es.ThompsonSampling(es.Exact(es.Linear(DIM))),
    "arms": es.EnsembleSampling(es.IndependentArms(ARMS), 5),
    "poisson": es.EnsembleSampling(es.Linear(DIM), 5, Poisson()),
    "blend per action": es.EnsembleSampling(es.PerAction(BLEND, ARMS), 5),
    "random features": es.EnsembleSampling(
        es.RandomFeatures(es.Linear, DIM, [es.learners.Waves(10, 1.0, 2.0)]), 5
    ),
    "persistent": es.agents.Persistent(es.Ensemble(es.PerAction(BLEND, ARMS), 5)),
}


@jax.jit
def decisions(agent, a, b):
    """80 in a row, in contexts that change, from outcomes a + b y; some of the first are equal."""

    def period(state, t):
        key = jax.random.fold_in(jax.random.key(3), t)
        context_key, act_key, noise_key, update_key = jax.random.split(key, 4)
        context = jax.random.normal(context_key, (DIM,))
        offer = jnp.broadcast_to(context, (ARMS, DIM)) * (1 + jnp.arange(ARMS)[:, None])
        index = agent.act(act_key, state, offer)
        y = jnp.sin(offer[index]).sum() + 0.5 * index + jax.random.normal(noise_key)
        y = a + b * jnp.where(t < 3, 0.7, y)
        return agent.update(update_key, state, es.core.Action(index, offer[index]), y), index

    return jax.lax.scan(period, agent.init(jax.random.key(2)), jnp.arange(80))[1]


@pytest.mark.parametrize("name", AGENTS)
@settings(max_examples=8)
@given(a=st.sampled_from([0.0, 5.0, -1000.0]), b=st.sampled_from([0.01, 1.0, 100.0]))
def test_decisions_are_the_same_in_any_unit_and_with_any_offset(name, a, b):
    with jax.enable_x64(True):
        base = np.asarray(decisions(AGENTS[name], 0.0, 1.0))
        assert len(np.unique(base)) > 1
        np.testing.assert_array_equal(decisions(AGENTS[name], a, b), base)


def test_a_told_noise_means_what_it_says():
    learner = es.Linear(DIM, 2.0)
    shared, _ = learner.center(jax.random.key(0))
    assert (shared.seen, shared.ones, shared.root.value.shape) == (None, None, (DIM, DIM))
    assert not learner.centred
    known_offset = es.Linear(DIM, prior_mean=0.0)
    assert not known_offset.centred
    assert known_offset.center(jax.random.key(0))[0].seen is not None
