"""Estimators with fit and predict as members of an ensemble."""

# Plain numbers and arrays of NumPy's are taken as well:
# pyright: reportArgumentType=false

import copy
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
    agent = es.EstimatorEnsemble(MAKERS[kind], members=3, noise_std=0.2)
    bandit = es.Bandit(agent, normalise=False)
    tables = offers(60)
    best = np.mean([(table[:, 0] > 0.2).any() for table in tables[30:]])
    by_chance = np.mean([(table[:, 0] > 0.2).mean() for table in tables[30:]])
    got = np.mean(play(bandit, tables)[30:])
    assert got > by_chance + 0.6 * (best - by_chance)


def test_members_disagree_with_no_data_and_come_to_agree():
    agent = es.EstimatorEnsemble(TREE, members=10, noise_std=0.2)
    bandit = es.Bandit(agent, normalise=False)
    table = np.array([[-0.9, 0.5], [0.9, -0.5], [-0.5, -0.9], [-0.2, 0.9]])
    before = bandit.choose(table).probabilities
    assert (before > 0).sum() >= 3
    play(bandit, offers(80))
    after = bandit.choose(table).probabilities
    assert after[1] > 0.8  # the one action worth choosing


def test_with_no_data_values_are_draws_from_the_prior():
    posterior = es.EstimatorEnsemble(TREE, members=400, prior_std=2.0)
    state = posterior.init(jax.random.key(0))
    values = np.asarray(posterior.values(jax.random.key(1), state, jnp.eye(2), 0))
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
    ours, theirs = (b.choose(tables[1]).probabilities for b in (curious, lazy))
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
        with pytest.raises(ValueError, match=r"posterior\.members: 3 -> 4"):
            es.Bandit.open(tmp_path / kind, es.EstimatorEnsemble(MAKERS[kind], 4, noise_std=0.2))


def test_it_is_thompson_sampling_over_a_posterior_in_a_simulation_and_in_a_bandit():
    world = es.LinearBandit(dim=2, arms=4, noise_std=0.2)
    posterior = es.EstimatorEnsemble(Ridge, members=3, noise_std=0.2)
    agents = (es.ThompsonSampling(posterior), posterior, es.Uniform())
    long, brief, chance = (es.simulate(a, world, 25, 2, seed=3, keep=True) for a in agents)
    assert np.array_equal(long.regret, brief.regret)
    assert long.label == brief.label == "3 x Ridge"
    assert brief.mean[12:].mean() < 0.5 * chance.mean[12:].mean()
    decisions = [es.Bandit(a, seed=5).choose(X).probabilities for a in agents[:2]]
    assert np.array_equal(*decisions)


def test_an_estimator_for_each_action_learns_from_that_action_alone(tmp_path):
    agent = es.EstimatorEnsemble(TREE, members=4, noise_std=0.2, arms=3)
    contexts = np.random.default_rng(3).uniform(-1, 1, size=(90, 2))
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
    assert [len(table.rows) for table in tables] == np.bincount(chosen).tolist()
    assert np.mean(got[45:]) > 0.7  # by chance it would be 1/3
    with es.Bandit.open(tmp_path / "b", agent, normalise=False) as again:
        assert np.array_equal(again.choose(context=contexts[0]).probabilities, probabilities)
        with pytest.raises(ValueError, match="the agent has 3 actions, got 2"):
            again.choose(np.zeros((2, 2)))
    assert es.simulate(agent, es.LinearBandit(dim=2, arms=3), 12, 1).mean.shape == (12,)


KEY, X = jax.random.key(0), np.array([[1.0, 0.5], [-0.5, 1.0]])


def taught(posterior, state, outcomes, first=0):
    """The state after outcomes of the first action, numbered from `first`."""
    for i, y in enumerate(outcomes, start=first):
        key, action = jax.random.fold_in(KEY, i), es.core.Action(jnp.int32(0), X[0] + 0.1 * i)
        state = posterior.update(key, state, action, y)
    return state


def values(posterior, state):
    return np.asarray(posterior.values(KEY, state, X, 0))


@pytest.mark.parametrize("kind", ["tree", "steps"])
def test_a_state_is_a_value_that_nothing_changes(kind):
    """Updated twice, asked before and after: each state says what its own outcomes imply."""
    posterior = es.EstimatorEnsemble(MAKERS[kind], 3, noise_std=0.2, start=2)
    common = taught(posterior, posterior.init(KEY), [0.0, 1.0, 0.5])
    before = values(posterior, common)
    one = taught(posterior, common, [5.0, 6.0], first=3)
    one_says = values(posterior, one)
    two = taught(posterior, common, [-5.0, -6.0], first=3)
    two_says = values(posterior, two)
    assert np.array_equal(values(posterior, common), before)
    assert np.array_equal(values(posterior, one), one_says)
    assert np.array_equal(values(posterior, copy.deepcopy(two)), two_says)
    for outcomes, said in (([5.0, 6.0], one_says), ([-5.0, -6.0], two_says)):
        alone = taught(posterior, posterior.init(KEY), [0.0, 1.0, 0.5, *outcomes])
        assert np.array_equal(values(posterior, alone), said)


def test_the_features_of_an_outcome_are_copied():
    posterior = es.EstimatorEnsemble(MAKERS["steps"], 2)
    row = X[0].copy()
    state = posterior.update(KEY, posterior.init(KEY), es.core.Action(jnp.int32(0), row), 1.0)
    row[:] = 99.0
    assert np.array_equal(state.tables[0].rows[0].features, X[0])


class Counting:
    """Learns the sum of what it was told, one step at a time; a step may be interrupted."""

    stop_at: int | None = None
    steps = 0

    def __init__(self):
        self.total = 0.0

    def fit(self, x, y):
        raise AssertionError("an estimator with partial_fit is not fitted from scratch")

    def partial_fit(self, x, y):
        self.total += float(y.sum())
        Counting.steps += 1
        if Counting.steps == Counting.stop_at:
            raise KeyboardInterrupt

    def predict(self, x):
        return np.full(len(x), self.total)


def test_an_interrupted_choice_teaches_nobody_twice(monkeypatch):
    posterior = es.EstimatorEnsemble(Counting, members=3, noise_std=0.1)
    agent = es.ThompsonSampling(posterior)
    state = taught(posterior, posterior.init(KEY), [1.0, 2.0])
    agent.probabilities(state, X)
    state = taught(posterior, state, [3.0, 4.0], first=2)
    undisturbed = values(posterior, taught(posterior, posterior.init(KEY), [1.0, 2.0, 3.0, 4.0]))
    monkeypatch.setattr(Counting, "steps", 0)
    monkeypatch.setattr(Counting, "stop_at", 4)  # the second member has learned half
    with pytest.raises(KeyboardInterrupt):
        agent.probabilities(state, X)
    monkeypatch.setattr(Counting, "stop_at", None)
    np.testing.assert_allclose(values(posterior, state), undisturbed, rtol=1e-6)
    np.testing.assert_allclose(values(posterior, state), undisturbed, rtol=1e-6)


class Memory:
    """Keeps what it was fitted to."""

    def fit(self, x, y):
        self.x, self.y = x, y
        return self

    def predict(self, x):
        return np.zeros(len(x))


class Classes(Memory):
    classes_ = (0, 1)

    def predict_proba(self, x):
        return np.full((len(x), 2), 0.5)


def lessons(maker, outcomes, **settings):
    """What each of 5 members was fitted to after all outcomes."""
    posterior = es.EstimatorEnsemble(maker, 5, start=len(outcomes), **settings)
    state = taught(posterior, posterior.init(KEY), outcomes)
    values(posterior, state)
    return [fit.estimator for fit in state.tables[0].fits.values()]


def test_every_outcome_reaches_every_member_with_noise_of_its_own():
    """With hardly any prior, targets are y + noise_std z. 5 x 300 standard normals: five standard
    deviations of their mean (1/sqrt(n)), second moment (sqrt(2/n)) and correlations (1/sqrt(300)).
    """
    outcomes = np.sin(np.arange(300))
    z = np.stack([m.y - outcomes for m in lessons(Memory, outcomes, noise_std=0.3, prior_std=1e-9)])
    z /= 0.3
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / z.size)
    assert np.abs(np.corrcoef(z)[~np.eye(5, dtype=bool)]).max() < 5 / np.sqrt(300)


def test_a_regressor_learns_what_its_prior_function_leaves():
    """Targets are y + noise_std z - w f_m(x), and the member's value is w f_m(x) + prediction."""
    posterior = es.EstimatorEnsemble(Memory, 5, noise_std=0.5, prior_std=2.0, start=4)
    state = taught(posterior, posterior.init(KEY), [0.0, 1.0, 2.0, 3.0])
    said = values(posterior, state)
    weight = 0.5 / np.sqrt(0.5**2 + 2.0**2 * 4 / 2)
    table = state.tables[0]
    for member in range(5):
        prior = posterior._prior(table, member, X)
        np.testing.assert_allclose(said[member], weight * prior, rtol=1e-5)
        seen = table.fits[member].estimator
        z = np.array([table.rows[i].shifts[member] for i in range(4)])
        f = posterior._prior(table, member, seen.x)
        np.testing.assert_allclose(seen.y, np.arange(4) + 0.5 * z - weight * f, rtol=1e-12)


def test_a_classifier_sees_every_outcome_poisson_times():
    """Counts over 5 x 400: mean and variance 1; five standard deviations (sqrt(1/n), sqrt(3/n)),
    and no two members are given the same."""
    seen = lessons(Classes, np.arange(400) % 2)
    counts = []
    for member in seen:
        rows = np.round((member.x[:-2, 0] - 1.0) / 0.1).astype(int)  # the last two are one of each
        assert np.array_equal(member.y[:-2], rows % 2)
        assert member.y[-2:].tolist() == [0, 1]
        counts.append(np.bincount(rows, minlength=400))
    counts = np.stack(counts)
    assert abs(counts.mean() - 1) < 5 / np.sqrt(counts.size)
    assert abs(counts.var() - 1) < 5 * np.sqrt(3 / counts.size)
    assert np.abs(np.corrcoef(counts)[~np.eye(5, dtype=bool)]).max() < 5 / np.sqrt(400)
