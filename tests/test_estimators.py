"""Estimators with fit and predict as members of an ensemble."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge, SGDClassifier, SGDRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import ensemble_sampling as es
from ensemble_sampling.posteriors.estimators import _due

TREE = partial(DecisionTreeRegressor, min_samples_leaf=3)
MAKERS = {
    "tree": TREE,
    "forest": partial(RandomForestRegressor, n_estimators=5, min_samples_leaf=2),
    "neighbours": KNeighborsRegressor,
    "steps": partial(SGDRegressor, eta0=0.05),
    "mixed": [Ridge, TREE],
    "classifier": partial(DecisionTreeClassifier, min_samples_leaf=3),
    "classifier in steps": partial(SGDClassifier, loss="log_loss"),
}


def offers(n, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, 4, 2))


def play(bandit, tables):
    """Outcome 1 where the first feature of the chosen action is above 0.2, else 0."""
    rewards = []
    for table in tables:
        decision = bandit.choose(table)
        rewards.append(float(table[decision.index, 0] > 0.2))
        bandit.learn(decision.id, rewards[-1])
    return rewards


@pytest.mark.parametrize("kind", MAKERS)
def test_any_estimator_learns_behind_a_bandit(kind):
    agent = es.EstimatorEnsemble(MAKERS[kind], members=4, noise_std=0.2)
    bandit = es.Bandit(agent, normalise=False)
    tables = offers(80)
    best = np.mean([(table[:, 0] > 0.2).any() for table in tables[40:]])
    by_chance = np.mean([(table[:, 0] > 0.2).mean() for table in tables[40:]])
    got = np.mean(play(bandit, tables)[40:])
    assert got > by_chance + 0.6 * (best - by_chance)


def test_members_disagree_with_no_data_and_come_to_agree():
    agent = es.EstimatorEnsemble(TREE, members=20, noise_std=0.2)
    bandit = es.Bandit(agent, normalise=False)
    table = np.array([[-0.9, 0.5], [0.9, -0.5], [-0.5, -0.9], [-0.2, 0.9]])
    before = bandit.choose(table).probabilities
    assert (before > 0).sum() >= 3
    play(bandit, offers(120))
    after = bandit.choose(table).probabilities
    assert after[1] > 0.8  # the one action worth choosing


def test_with_no_data_values_are_draws_from_the_prior():
    agent = es.EstimatorEnsemble(TREE, members=400, prior_std=2.0)
    state = agent.init(jax.random.key(0))
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    values = np.stack([agent._values(state, m, x) for m in range(400)])
    # Standard error of a standard deviation of 400 draws is 2 / sqrt(800) = 0.07.
    assert values.std(axis=0) == pytest.approx([2.0, 2.0], abs=0.35)
    assert np.abs(values.mean(axis=0)).max() < 0.5


def test_the_schedule_of_fits_is_linear_in_total():
    fits = [n for n in range(1, 5000) if _due(n, 8, 1.25) == n]
    assert fits[:4] == [8, 10, 13, 17]
    # A geometric series: at most growth / (growth - 1) = 5 times the data, and rounding up helps.
    assert sum(fits) <= 5 * fits[-1]
    assert all(_due(n, 8, 1.25) == 0 for n in range(8))


def test_choosing_does_not_change_what_is_learned():
    agent = es.EstimatorEnsemble(TREE, members=3, noise_std=0.2)
    curious, lazy = es.Bandit(agent), es.Bandit(agent)
    tables = offers(30)
    decisions = curious.choose_many(tables), lazy.choose_many(tables)
    for a, b in zip(*decisions, strict=True):
        assert a.index == b.index
        curious.learn(a.id, float(a.index))
        lazy.learn(b.id, float(b.index))
        curious.choose(tables[0])  # fits now
    features = jnp.asarray(tables[1], float)
    ours, theirs = (agent.probabilities(b.state.belief, features) for b in (curious, lazy))
    assert np.array_equal(ours, theirs)


def test_reopening_gives_the_same_members(tmp_path):
    for kind in ("forest", "steps"):
        agent = es.EstimatorEnsemble(MAKERS[kind], members=3, noise_std=0.2)
        tables = offers(25)
        with es.Bandit.open(tmp_path / kind, agent) as bandit:
            play(bandit, tables[:20])
            before = bandit.choose(tables[20]).probabilities
        with es.Bandit.open(tmp_path / kind, agent) as bandit:
            assert np.array_equal(bandit.choose(tables[20]).probabilities, before)
        with pytest.raises(ValueError, match="members: 3 -> 4"):
            es.Bandit.open(tmp_path / kind, es.EstimatorEnsemble(MAKERS[kind], 4, noise_std=0.2))


def test_runs_in_the_simulator_and_on_the_same_worlds():
    world = es.LinearBandit(dim=2, arms=4, noise_std=0.2)
    agent = es.EstimatorEnsemble(Ridge, members=3, noise_std=0.2)
    ours = es.simulate(agent, world, periods=25, realizations=2, seed=3, keep=True)
    again = es.simulate(agent, world, periods=25, realizations=2, seed=3, keep=True)
    chance = es.simulate(es.Uniform(), world, periods=25, realizations=2, seed=3, keep=True)
    assert ours.regret is not None
    assert again.regret is not None
    assert np.array_equal(ours.regret, again.regret)
    assert ours.mean[12:].mean() < 0.5 * chance.mean[12:].mean()
    assert "Ridge" in ours.label


def test_bad_settings_and_outcomes_are_refused():
    with pytest.raises(TypeError, match="function that returns a new estimator"):
        es.EstimatorEnsemble(Ridge(), members=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="an estimator must have the methods fit, predict"):
        es.EstimatorEnsemble(dict, members=3)
    with pytest.raises(ValueError, match="growth must be greater than 1"):
        es.EstimatorEnsemble(Ridge, members=3, growth=1.0)
    for maker, outcome, message in (
        (Ridge, [1.0, 2.0], "single number"),
        (DecisionTreeClassifier, 0.5, "outcomes 0 and 1"),
    ):
        bandit = es.Bandit(es.EstimatorEnsemble(maker, members=2))
        decision = bandit.choose(np.eye(2))
        with pytest.raises(ValueError, match=message):
            bandit.learn(decision.id, outcome)
        assert bandit.summary().outcomes == 0


def test_an_estimator_for_each_action_learns_from_that_action_alone(tmp_path):
    agent = es.EstimatorEnsemble(TREE, members=4, noise_std=0.2, arms=3)
    contexts = np.random.default_rng(3).uniform(-1, 1, size=(120, 2))
    right = (contexts[:, 0] > 0).astype(int) + (contexts[:, 0] > 0.5)
    got = []
    with es.Bandit.open(tmp_path / "b", agent, normalise=False) as bandit:
        for x, best in zip(contexts, right, strict=True):
            decision = bandit.choose(context=x)
            got.append(float(decision.index == best))
            bandit.learn(decision.id, got[-1])
        tables = bandit.state.belief.tables
        probabilities = bandit.choose(context=contexts[0]).probabilities
        chosen = bandit.log()["index"][:-1]
    assert [len(table.outcomes) for table in tables] == np.bincount(chosen).tolist()
    assert np.mean(got[60:]) > 0.7  # by chance it would be 1/3
    with es.Bandit.open(tmp_path / "b", agent, normalise=False) as again:
        assert np.array_equal(again.choose(context=contexts[0]).probabilities, probabilities)
        with pytest.raises(ValueError, match="the agent has 3 actions, got 2"):
            again.choose(np.zeros((2, 2)))
    assert es.simulate(agent, es.LinearBandit(dim=2, arms=3), 12, 1).mean.shape == (12,)


def test_an_action_that_is_not_there_cannot_learn():
    agent = es.EstimatorEnsemble(Ridge, members=2, arms=3)
    state = agent.init(jax.random.key(0))
    for index in (-1, 3):
        action = es.Action(jnp.asarray(index), jnp.ones(2))
        with pytest.raises(ValueError, match="between 0 and 2"):
            agent.update(jax.random.key(1), state, action, jnp.asarray(1.0))
