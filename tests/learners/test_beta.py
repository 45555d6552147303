"""Clicks: counts, draws and ensembles are the Beta posterior, by its closed form."""

# pyright: reportOptionalMemberAccess=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import exact, learn
from scipy import stats

import ensemble_sampling as es
from ensemble_sampling.learners import BetaArms
from ensemble_sampling.posteriors import Exponential, Point

ARMS, PERIODS, DRAWS = 3, 40, 20_000
RNG, KEY = np.random.default_rng(0), jax.random.key(0)
INDEX = RNG.choice([0, 1], PERIODS)  # the last arm is never chosen
CLICKS = (RNG.random(PERIODS) < 0.2 + 0.4 * INDEX).astype(float)
ROWS, LEARNER = np.eye(ARMS)[INDEX], BetaArms(ARMS, 0.5, 2.0)


def posterior():
    """Of every arm: the prior's outcomes and those that were seen."""
    seen = [CLICKS[k == INDEX] for k in range(ARMS)]
    return [stats.beta(0.5 + y.sum(), 2.0 + (1 - y).sum()) for y in seen]


def check_distribution(values):
    """Kolmogorov's distance to the posterior: above 2.5 / sqrt(n) once in 130,000 times."""
    for k, beta in enumerate(posterior()):
        distance = stats.kstest(values[:, k], beta.cdf).statistic
        assert distance < 2.5 / np.sqrt(len(values)), k


def learned(posterior):
    return learn(posterior, jax.random.key(0), INDEX, ROWS, CLICKS)[1]


def test_mean_and_standard_deviation_are_those_of_the_closed_form():
    belief = learned(es.Exact(LEARNER))
    mean, std = LEARNER.mean_and_std(belief, jnp.eye(ARMS))
    np.testing.assert_allclose(mean, [beta.mean() for beta in posterior()], rtol=1e-6)
    np.testing.assert_allclose(std, [beta.std() for beta in posterior()], rtol=1e-6)
    greedy = Point(LEARNER).values(jax.random.key(0), belief, jnp.eye(ARMS), 1)
    np.testing.assert_array_equal(greedy[0], mean)


def test_draws_are_draws_from_the_posterior():
    exactly = es.Exact(LEARNER)
    draw = jax.jit(exactly.values, static_argnums=3)
    values = draw(jax.random.key(1), learned(exactly), jnp.eye(ARMS), DRAWS)
    check_distribution(np.asarray(values, np.float64))


def test_every_member_of_an_exponential_bootstrap_is_a_draw_from_the_posterior():
    ensemble = es.Ensemble(LEARNER, DRAWS, Exponential())
    belief = learned(ensemble)
    values = ensemble.values(jax.random.key(1), belief, jnp.eye(ARMS), 1)
    check_distribution(np.asarray(values, np.float64))
    assert belief[0] == ()  # members have nothing in common


def test_it_goes_on_counting_where_a_plain_sum_would_stop():
    member = BetaArms(1, 2.0**24, 1.0).center(jax.random.key(0))[1]
    action, noise = es.core.Action(jnp.int32(0), jnp.ones(1)), es.core.Noise()
    observe = jax.jit(lambda m: LEARNER.observe(KEY, (), m, action, jnp.ones(()), noise)[1])
    for _ in range(5):
        member = observe(member)
    assert exact(member.ones)[0] == 2**24 + 5


def test_exponential_weights_are_exponential():
    noise = Exponential().draw(jax.random.key(0), (DRAWS,), 1.0)
    assert noise.shift is None
    distance = stats.kstest(np.asarray(noise.weight), stats.expon.cdf).statistic
    assert distance < 2.5 / np.sqrt(DRAWS)


def test_a_bandit_of_clicks_refuses_what_is_none_and_goes_on():
    bandit = es.Bandit(es.Exact(LEARNER), actions=["a", "b", "c"])
    decision = bandit.choose()
    for wrong in (2.0, -0.1):
        with pytest.raises(ValueError, match=f"between 0 and 1, got {wrong}"):
            bandit.learn(decision.id, wrong)
    bandit.learn(decision.id, True)
    value = bandit.predict().values
    assert value.mean[decision.index] == pytest.approx(1.5 / 3.5, abs=0.04)  # of 1,000 draws
