"""Upper confidence bounds and inverse gap weighting, against plain NumPy."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensemble_sampling as es
from ensemble_sampling.agents.point import inverse_gap
from ensemble_sampling.core import fact

KEY = jax.random.key(0)
weigh = jax.jit(inverse_gap)


def oracle(values, gamma, available):
    """Foster and Rakhlin's formula, an action at a time."""
    on = [k for k in range(len(values)) if available[k]]
    best = max(values[k] for k in on)
    top = [k for k in on if values[k] == best]
    p = np.zeros(len(values))
    for k in on:
        if k not in top:
            p[k] = 1 / (len(on) + gamma * (best - values[k]))
    for k in top:
        p[k] = (1 - p.sum()) / len(top) if k == top[0] else p[top[0]]
    return p


@st.composite
def offers(draw):
    numbers = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1.0])
    values = draw(st.lists(numbers, min_size=8, max_size=8))
    mask = draw(st.lists(st.booleans(), min_size=8, max_size=8).filter(any))
    return np.asarray(values, np.float32), draw(st.floats(0, 1e12)), np.asarray(mask)


@given(offers())
@settings(max_examples=200, deadline=None)
def test_chances_follow_the_formula_and_sum_to_one(offer):
    values, gamma, available = offer
    have = np.asarray(weigh(jnp.asarray(values), gamma, jnp.asarray(available)), np.float64)
    assert (have >= 0).all()
    np.testing.assert_allclose(have.sum(), 1, rtol=1e-5)
    want = oracle(values.astype(np.float64), gamma, available)
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 3.0, float("inf")])
@pytest.mark.parametrize(
    "values", [(np.nan, 1.0, 0.0), (np.nan,) * 3, (-np.inf, np.inf, 0.0), (-np.inf,) * 3]
)
def test_chances_sum_to_one_whatever_a_broken_model_says(values, gamma):
    have = np.asarray(weigh(jnp.asarray(values, float), gamma, None))
    assert (have >= 0).all()
    np.testing.assert_allclose(have.sum(), 1, rtol=1e-6)
    if np.isfinite(values).any():
        assert have[np.isnan(values) | np.isneginf(values)].sum() == 0


def test_gamma_grows_with_the_root_of_actions_and_time():
    """With arms that start at 0 and one outcome of 2 for the first: mean 1, the others 0."""
    agent = es.agents.SquareCB(es.IndependentArms(3, noise_std=1.0), es.agents.SquareRoot(2.0))
    state = agent.update(KEY, agent.init(KEY), es.core.Action(jnp.int32(0), jnp.eye(3)[0]), 2.0)
    have = agent.probabilities(state, jnp.eye(3))
    other = 1 / (3 + 2 * np.sqrt(3 * 1))
    np.testing.assert_allclose(have, [1 - 2 * other, other, other], rtol=1e-6)
    have = agent.probabilities(state, jnp.eye(3), jnp.asarray([True, True, False]))
    other = 1 / (2 + 2 * np.sqrt(2 * 1))
    np.testing.assert_allclose(have, [1 - other, other, 0], rtol=1e-6)
    fixed = es.agents.SquareCB(es.IndependentArms(3, noise_std=1.0), 7)
    np.testing.assert_allclose(fixed.probabilities(state, jnp.eye(3))[1], 1 / 10, rtol=1e-6)
    start = agent.probabilities(agent.init(KEY), jnp.eye(3))
    np.testing.assert_allclose(start, np.ones(3) / 3, rtol=1e-6)


def test_bounds_give_nothing_to_what_is_not_available():
    agent = es.agents.UCB(es.IndependentArms(3, noise_std=1.0), 1.0)
    state = agent.update(KEY, agent.init(KEY), es.core.Action(jnp.int32(0), jnp.eye(3)[0]), 9.0)
    assert agent.probabilities(state, jnp.eye(3)).tolist() == [1, 0, 0]
    for available in ([False, True, True], np.array([False, True, True])):
        np.testing.assert_allclose(
            agent.probabilities(state, jnp.eye(3), available), [0, 0.5, 0.5], rtol=1e-6
        )


def test_what_is_available_may_be_a_plain_list():
    learner, rows = es.PerAction(es.Linear(2), 3), jnp.ones((3, 2))
    for agent in (es.agents.Persistent(es.Ensemble(learner, 4)), es.agents.SquareCB(learner)):
        state = agent.init(KEY)
        have = agent.probabilities(state, rows, [True, False, True])
        assert have[1] == 0
        assert np.array_equal(
            have, agent.probabilities(state, rows, jnp.array([True, False, True]))
        )
        assert int(agent.act(KEY, state, rows, [False, False, True])) == 2


def test_one_row_of_features_stands_for_all_actions_of_greedy_rules():
    for agent in (
        es.Greedy(es.PerAction(es.Linear(2), 3)),
        es.EpsilonGreedy(es.PerAction(es.Linear(2), 3), 0.1),
        es.agents.SquareCB(es.PerAction(es.Linear(2), 3)),
    ):
        assert fact(agent, "context")
        state, row = agent.init(KEY), jnp.array([[1.0, 2.0]])
        one, all_ = (agent.probabilities(state, jnp.repeat(row, n, 0)) for n in (1, 3))
        np.testing.assert_allclose(one, all_, rtol=1e-6)


def test_a_lost_model_has_no_chances_but_still_acts():
    agent = es.agents.SquareCB(es.IndependentArms(2, noise_std=1.0))
    (shared, member), t = agent.init(KEY)
    lost = ((shared, member._replace(away=member.away.at[0].set(jnp.nan))), t)
    assert np.isnan(agent.probabilities(lost, jnp.eye(2))).all()
    assert int(agent.act(KEY, lost, jnp.eye(2))) == 1


def lin_ucb(features, theta, noise, width, prior_std, noise_std):
    """Li et al.'s (2010) loop with one model for all actions: chosen actions, period by period."""
    d = features.shape[-1]
    a, b, chosen = np.eye(d) * (noise_std / prior_std) ** 2, np.zeros(d), []
    for rows, eps in zip(features, noise, strict=True):
        inverse = np.linalg.inv(a)
        mean = inverse @ b
        bound = [x @ mean + width * noise_std * np.sqrt(x @ inverse @ x) for x in rows]
        k = int(np.argmax(bound))
        chosen.append(k)
        a += np.outer(rows[k], rows[k])
        b += rows[k] * (rows[k] @ theta + noise_std * eps)
    return np.asarray(chosen)


def test_ucb_on_a_linear_model_is_lin_ucb():
    rng = np.random.default_rng(0)
    features, theta = rng.normal(size=(60, 7, 3)), rng.normal(size=3)
    noise = rng.normal(size=60)
    want = lin_ucb(features, theta, noise, 1.7, 2.0, 0.5)
    agent = es.agents.UCB(es.Linear(3, noise_std=0.5, prior_std=2.0), 1.7)

    def period(state, now):
        rows, eps = now
        k = agent.act(KEY, state, rows)
        outcome = rows[k] @ jnp.asarray(theta, float) + 0.5 * eps
        return agent.update(KEY, state, es.core.Action(k, rows[k]), outcome), k

    rounds = jnp.asarray(features, float), jnp.asarray(noise, float)
    have = np.asarray(jax.lax.scan(period, agent.init(KEY), rounds)[1])
    assert len(set(want)) > 3
    assert np.array_equal(have, want)
    other = lin_ucb(features, theta, noise, 0.3, 2.0, 0.5)
    assert not np.array_equal(have, other)


LINE = es.Linear(3, noise_std=0.7)
EXACT = {
    "linear": LINE,
    "linear of unknown scale": es.Linear(3),
    "arms": es.IndependentArms(4, noise_std=0.7),
    "arms of unknown scale": es.IndependentArms(4),
    "per action": es.PerAction(LINE, 4),
    "random features": es.RandomFeatures(es.Linear, 3, (es.learners.Waves(6, 1.0, 2.0),)),
}


@pytest.mark.parametrize("name", EXACT)
def test_closed_forms_are_the_moments_of_draws(name):
    """20,000 draws: a mean is off by std / 141, a standard deviation by sqrt((kurtosis - 1) / 4) /
    141 of itself, which is 1 / 200 where draws are normal; five times that at most."""
    posterior = es.Exact(EXACT[name])
    features = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)), float)

    @jax.jit
    def both():
        belief = posterior.init(KEY)
        for t, y in enumerate([0.3, 1.9, -0.4]):
            belief = posterior.update(KEY, belief, es.core.Action(jnp.int32(t), features[t]), y)
        values = posterior.values(jax.random.key(3), belief, features, 20_000)
        return fact(posterior, "mean_and_std")(belief, features), values

    (mean, std), values = both()
    values = np.asarray(values, np.float64)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(20_000)).all()
    away = values - values.mean(axis=0)
    kurtosis = (away**4).mean(axis=0) / (away**2).mean(axis=0) ** 2
    off = 5 * np.sqrt((kurtosis - 1) / 4 / 20_000)
    assert (off < 0.1).all()
    assert (np.abs(std / values.std(axis=0) - 1) < off).all()


def test_of_an_ensemble_the_bound_is_mean_plus_width_standard_deviations_of_members():
    posterior = es.Ensemble(LINE, 6)
    agent, features = es.agents.UCB(posterior, 1.5), jnp.eye(3)
    state = agent.update(KEY, agent.init(KEY), es.core.Action(jnp.int32(0), features[0]), 1.0)
    values = np.asarray(posterior.values(KEY, state, features, 1))
    want = values.mean(axis=0) + 1.5 * values.std(axis=0)
    np.testing.assert_allclose(agent.upper(state, features), want, rtol=1e-5)


def test_a_vectors_reward_has_no_closed_form_and_is_drawn():
    agent = es.agents.UCB(es.Linear(3, noise_std=0.7, outcomes=2, reward=jnp.max), 1.0, draws=50)
    state = agent.init(KEY)
    assert fact(agent.posterior, "mean_and_std")(state, jnp.eye(3)) is None
    one, two = (agent.act(jax.random.key(k), state, jnp.eye(3)) for k in (1, 2))
    assert one == two
    assert agent.upper(state, jnp.eye(3)).shape == (3,)


def test_labels_say_the_settings():
    assert fact(es.agents.UCB(LINE, 2), "label") == "UCB 2"
    assert fact(es.agents.UCB(es.Ensemble(LINE, 5), 2), "label") == "UCB 2, 5 models"
    assert fact(es.agents.SquareCB(LINE), "label") == "SquareCB γ = √(K t)"
    assert (
        fact(es.agents.SquareCB(LINE, es.agents.SquareRoot(3)), "label") == "SquareCB γ = 3 √(K t)"
    )
    assert fact(es.agents.SquareCB(LINE, 4), "label") == "SquareCB γ = 4"
    assert repr(es.agents.UCB(LINE, 2)) == "UCB(Exact(Linear(dim=3, noise_std=0.7)), width=2)"
