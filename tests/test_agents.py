"""How agents choose: schedules, ties, availability, and the probabilities they report."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ensemble_sampling as es
from ensemble_sampling.agents import greedy, shares

choose = jax.jit(jax.vmap(greedy, in_axes=(0, None, None)))


def counts(values, available=None, n=200_000):
    keys = jax.random.split(jax.random.key(3), n)
    available = None if available is None else jnp.asarray(available)
    chosen = np.asarray(choose(keys, jnp.asarray(values, float), available))
    return np.bincount(chosen, minlength=len(values))


@pytest.mark.parametrize("arms", [1, 2, 3, 10, 257])
def test_ties_are_broken_uniformly(arms):
    """Pearson's chi-square with K - 1 degrees of freedom has mean K - 1 and variance 2 (K - 1);
    five standard deviations plus 10 for the skew of few degrees: below 1e-5 by chance."""
    have = counts(np.zeros(arms))
    expected = have.sum() / arms
    statistic = ((have - expected) ** 2 / expected).sum()
    assert statistic < arms - 1 + 5 * np.sqrt(2 * (arms - 1)) + 10


def test_ties_are_broken_among_the_best_that_are_available():
    have = counts([5.0, 1.0, 3.0, 3.0, 3.0], [False, True, True, False, True], 10_000)
    assert have[[0, 1, 3]].tolist() == [0, 0, 0]
    assert abs(have[2] - 5000) < 5 * np.sqrt(2500)


def test_nan_is_never_best_and_an_unavailable_infinity_neither():
    assert counts([np.nan, 1.0, np.inf], [True, True, False], 100).tolist() == [0, 100, 0]
    assert counts([np.nan, -np.inf, -np.inf], [True, False, True], 100)[1] == 0


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 2.0, np.nan, -np.inf]), min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
)
def test_shares_are_a_distribution_over_the_available(values, available):
    have = np.asarray(shares(jnp.asarray(values), jnp.asarray(available)))
    assert (have[~np.asarray(available)] == 0).all()
    np.testing.assert_allclose(have.sum(), 1, rtol=1e-6)
    assert len(set(have[have > 0])) == 1


def test_the_annealed_schedule_is_k_over_k_plus_t():
    schedule = es.Annealed(50)
    assert [float(schedule(jnp.asarray(t))) for t in (0, 50, 150)] == [1.0, 0.5, 0.25]
    assert float(es.Constant(0.1)(jnp.asarray(7))) == pytest.approx(0.1)


def test_annealing_counts_observations():
    agent, key = es.EpsilonGreedy(es.IndependentArms(2, prior_mean=0.0), es.Annealed(1)), None
    key = jax.random.key(0)
    state = agent.init(key)
    for t in range(4):
        p = np.asarray(agent.probabilities(state, jnp.eye(2)))
        epsilon = 1 / (1 + t)
        best = [0.5, 0.5] if t == 0 else [1.0, 0.0]
        np.testing.assert_allclose(p, epsilon / 2 + (1 - epsilon) * np.array(best), rtol=1e-6)
        state = agent.update(key, state, es.Action(jnp.int32(0), jnp.eye(2)[0]), jnp.ones(()))


def test_an_ensembles_probabilities_are_its_members_votes():
    agent = es.EnsembleSampling(es.IndependentArms(3), 4)
    votes = jnp.asarray([[3.0, 1, 1], [0, 2, 2], [5, 5, 5], [0, 0, 1]])
    state = (agent.init(jax.random.key(0))[0], votes)
    p = agent.probabilities(state, jnp.eye(3))
    np.testing.assert_allclose(p, np.array([1 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2 + 1 / 3 + 1]) / 4)
    masked = agent.probabilities(state, jnp.eye(3), jnp.asarray([False, True, True]))
    np.testing.assert_allclose(masked, np.array([0, 1 / 2 * 3, 1 / 2 * 3 + 1]) / 4)


def test_exact_probabilities_of_two_normal_arms():
    """P(arm 1 wins) is the normal distribution function of the difference over its width; a
    share of n draws has a standard deviation of at most 0.5 / sqrt(n)."""
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(2)), draws=20_000)
    state = (jnp.asarray([4.0, 1.0]), jnp.asarray([0.5, 0.0]))  # variances 1/4 and 1
    p = float(agent.probabilities(state, jnp.eye(2))[0])
    want = float(jax.scipy.stats.norm.cdf(0.5 / np.sqrt(1.25)))
    assert abs(p - want) < 5 * 0.5 / np.sqrt(20_000)


def test_greedy_never_explores_and_labels_say_what_runs():
    learner = es.IndependentArms(2)
    agent = es.Greedy(learner)
    state = (jnp.ones(2), jnp.asarray([0.0, 0.1]))
    keys = jax.random.split(jax.random.key(0), 50)
    assert (jax.vmap(agent.act, in_axes=(0, None, None))(keys, state, jnp.eye(2)) == 1).all()
    labels = [
        a.label
        for a in (
            agent,
            es.EpsilonGreedy(learner, 0.05),
            es.EpsilonGreedy(learner, es.Annealed(150)),
            es.Uniform(),
            es.ThompsonSampling(es.Exact(learner)),
        )
    ]
    assert labels == ["greedy", "ε = 0.05", "ε = 150/(150+t)", "uniform", "Thompson sampling"]
