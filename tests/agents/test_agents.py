"""How agents choose: schedules, ties, availability, and the probabilities they report."""

from functools import partial
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

import ensemble_sampling as es
from ensemble_sampling.agents import point, thompson
from ensemble_sampling.agents.greedy import greedy, shares
from ensemble_sampling.agents.thompson import as_agent
from ensemble_sampling.config import describe, labels
from ensemble_sampling.core import fact
from ensemble_sampling.experiments import paper

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


def belief(pulls, means, noise_std=None):
    """What independent arms know: how often each was pulled, and its mean."""
    start, member = es.IndependentArms(len(means), noise_std=noise_std).center(jax.random.key(0))
    shared = start._replace(
        pulls=start.pulls._replace(value=jnp.asarray(pulls, float)),
        mean=start.mean._replace(value=jnp.asarray(means, float)),
    )
    return shared, member


def test_nan_is_never_best_and_an_unavailable_infinity_neither():
    assert counts([np.nan, 1.0, np.inf], [True, True, False], 100).tolist() == [0, 100, 0]
    assert counts([np.nan, -np.inf, -np.inf], [True, False, True], 100)[1] == 0


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 2.0, -np.inf]), min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6).filter(any),
)
def test_shares_are_a_distribution_over_the_available(values, available):
    have = np.asarray(shares(jnp.asarray(values), jnp.asarray(available)))
    assert (have[~np.asarray(available)] == 0).all()
    np.testing.assert_allclose(have.sum(), 1, rtol=1e-6)
    assert len(set(have[have > 0])) == 1


def test_a_model_that_is_lost_gives_no_shares_and_an_unavailable_action_none_to_worry_about():
    """Uniform shares in place of NaN would look like an agent that has yet to learn."""
    lost = jnp.asarray([[np.nan, np.nan], [1.0, np.nan], [2.0, 1.0]])
    have = np.asarray(shares(lost))
    assert np.isnan(have[:2]).all()
    assert have[2].tolist() == [1.0, 0.0]
    assert np.asarray(shares(lost[1], jnp.asarray([True, False]))).tolist() == [1.0, 0.0]
    assert np.isnan(shares(lost[1], jnp.asarray([True, True]))).all()


@pytest.mark.parametrize(
    "agent",
    [
        es.EnsembleSampling(es.Linear(2), 3),
        es.EnsembleSampling(es.IndependentArms(2), 3),
        es.ThompsonSampling(es.Exact(es.Linear(2))),
        es.EpsilonGreedy(es.Linear(2), 0.5),
    ],
    ids=repr,
)
def test_beliefs_that_are_lost_are_counted_and_give_no_probabilities(agent):
    state = agent.init(jax.random.key(0))
    assert int(agent.diverged(state)) == 0
    for nothing in (jnp.nan, jnp.inf):
        spoil = lambda leaf, n=nothing: leaf + n if leaf.dtype.kind == "f" else leaf  # noqa: E731
        assert int(agent.diverged(jax.tree.map(spoil, state))) >= 1
    lost = jax.tree.map(lambda leaf: leaf * jnp.nan if leaf.dtype.kind == "f" else leaf, state)
    assert np.isnan(agent.probabilities(lost, jnp.eye(2))).all()
    assert int(agent.act(jax.random.key(1), lost, jnp.eye(2))) in (0, 1)


def test_the_annealed_schedule_is_k_over_k_plus_t():
    schedule = es.agents.Annealed(50)
    assert [float(schedule(jnp.asarray(t))) for t in (0, 50, 150)] == [1.0, 0.5, 0.25]
    assert float(es.agents.Constant(0.1)(jnp.asarray(7))) == pytest.approx(0.1)


def test_annealing_counts_observations():
    agent = es.EpsilonGreedy(es.IndependentArms(2, prior_mean=0.0), es.agents.Annealed(1))
    key = jax.random.key(0)
    state = agent.init(key)
    for t in range(4):
        p = np.asarray(agent.probabilities(state, jnp.eye(2)))
        epsilon = 1 / (1 + t)
        best = [0.5, 0.5] if t == 0 else [1.0, 0.0]
        np.testing.assert_allclose(p, epsilon / 2 + (1 - epsilon) * np.array(best), rtol=1e-6)
        state = agent.update(key, state, es.core.Action(jnp.int32(0), jnp.eye(2)[0]), jnp.ones(()))


def test_an_ensembles_probabilities_are_its_members_votes():
    agent = es.EnsembleSampling(es.IndependentArms(3, noise_std=1.0), 4)
    votes = jnp.asarray([[3.0, 1, 1], [0, 2, 2], [5, 5, 5], [0, 0, 1]])
    shared, members = agent.init(jax.random.key(0))
    state = (shared, members._replace(away=votes))
    p = agent.probabilities(state, jnp.eye(3))
    np.testing.assert_allclose(p, np.array([1 + 1 / 3, 1 / 2 + 1 / 3, 1 / 2 + 1 / 3 + 1]) / 4)
    masked = agent.probabilities(state, jnp.eye(3), jnp.asarray([False, True, True]))
    np.testing.assert_allclose(masked, np.array([0, 1 / 2 * 3, 1 / 2 * 3 + 1]) / 4)


def test_exact_probabilities_of_two_normal_arms():
    """P(arm 1 wins) is the normal distribution function of the difference over its width; a
    share of n draws has a standard deviation of at most 0.5 / sqrt(n)."""
    arms = es.IndependentArms(2, noise_std=1.0)
    agent = es.ThompsonSampling(es.Exact(arms), draws=20_000)
    state = belief([4.0, 1.0], [0.5, 0.0], 1.0)  # variances 1/4 and 1
    p = float(agent.probabilities(state, jnp.eye(2))[0])
    want = float(jax.scipy.stats.norm.cdf(0.5 / np.sqrt(1.25)))
    assert abs(p - want) < 5 * 0.5 / np.sqrt(20_000)


def test_greedy_never_explores_and_labels_say_what_runs():
    learner = es.IndependentArms(2)
    agent = es.Greedy(learner)
    state = belief(jnp.ones(2), [0.0, 0.1])
    keys = jax.random.split(jax.random.key(0), 50)
    assert (jax.vmap(agent.act, in_axes=(0, None, None))(keys, state, jnp.eye(2)) == 1).all()
    labels = [
        a.label
        for a in (
            agent,
            es.EpsilonGreedy(learner, 0.05),
            es.EpsilonGreedy(learner, es.agents.Annealed(150)),
            es.Uniform(),
            es.ThompsonSampling(es.Exact(learner)),
        )
    ]
    assert labels == ["greedy", "ε = 0.05", "ε = 150/(150+t)", "uniform", "Thompson sampling"]


def root(t):
    return 1 / jnp.sqrt(1.0 + t)


class Step(eqx.Module):
    """Epsilon goes from high to low at some point; its settings may be traced."""

    at: float
    label = "a step"

    def __call__(self, t):
        return jnp.where(t < self.at, 0.5, 0.1)


@pytest.mark.parametrize(
    ("schedule", "label", "shares"),
    [
        (root, "ε = root(t)", [1.0, 0.5, 0.25]),
        (lambda t: 1 / (1.0 + t), "ε = lambda(t)", [1.0, 0.25, 0.0625]),
        (partial(jnp.power, 0.5), "ε = partial(t)", [1.0, 0.125, 0.5**15]),
        (Step(5.0), "a step", [0.5, 0.5, 0.1]),
    ],
    ids=["function", "lambda", "partial", "module"],
)
def test_epsilon_follows_anybodys_schedule(schedule, label, shares):
    agent = es.EpsilonGreedy(es.IndependentArms(2, noise_std=1.0), schedule)
    assert agent.label == label
    posterior, _ = agent.init(jax.random.key(0))
    probabilities = jax.jit(lambda agent, state: agent.probabilities(state, jnp.eye(2)))
    better = posterior[1]._replace(away=jnp.asarray([1.0, 0.0]))  # the first arm
    posterior = (posterior[0], better)
    for t, epsilon in zip((0, 3, 15), shares, strict=True):
        p = probabilities(agent, (posterior, jnp.int32(t)))
        np.testing.assert_allclose(p, [1 - epsilon / 2, epsilon / 2], rtol=1e-5, atol=1e-7)
    result = es.simulate(agent, es.GaussianArms(2), periods=3, realizations=2)
    assert result.label == label


class Witness:
    """A posterior that only notes the keys it is given; written without any of our classes."""

    def __init__(self):
        self.keys = []

    def note(self, key):
        self.keys.append(jax.random.key_data(key).tolist())

    def init(self, key):
        return ()

    def sample(self, key, belief):
        self.note(key)
        return lambda features: features.sum(axis=1)

    def update(self, key, belief, action, outcome):
        self.note(key)
        return belief

    def values(self, key, belief, features, draws):
        return features.sum(axis=1)[None]


def test_model_tie_and_coin_are_drawn_with_keys_of_their_own(monkeypatch):
    """Ties broken with the bits that drew the model would favour some actions under some models."""
    witness = Witness()
    tied = lambda key, values, available: witness.note(key) or jnp.int32(0)  # noqa: E731
    monkeypatch.setattr(thompson, "greedy", tied)
    monkeypatch.setattr(point, "greedy", tied)
    uniform = jax.random.uniform
    monkeypatch.setattr(jax.random, "uniform", lambda key: witness.note(key) or uniform(key))
    rule = es.EpsilonGreedy(es.IndependentArms(2), 0.5)
    key = jax.random.key(3)
    es.ThompsonSampling(witness).act(key, (), jnp.eye(2))
    rule = eqx.tree_at(lambda r: r.posterior, rule, witness, is_leaf=lambda x: x is rule.posterior)
    rule.act(key, ((), jnp.int32(0)), jnp.eye(2))
    assert len({*map(tuple, witness.keys[:2])}) == 2
    assert len({*map(tuple, witness.keys[2:])}) == 3
    assert jax.random.key_data(key).tolist() not in witness.keys


def test_a_posterior_is_taken_as_thompson_sampling_over_it():
    agent, posterior = es.Uniform(), es.Exact(es.Linear(3))
    assert as_agent(agent) is agent
    made = as_agent(posterior)
    assert isinstance(made, es.ThompsonSampling)
    assert made.posterior is posterior
    with pytest.raises(TypeError, match=r"agent must have the methods .* has no init"):
        as_agent(SimpleNamespace(act=None))


class Picky(es.Linear):
    def check_outcome(self, outcome):
        raise ValueError(f"not {outcome}")


@pytest.mark.parametrize(
    "make",
    [
        lambda learner: es.EnsembleSampling(learner, 2),
        es.Greedy,
        lambda learner: es.ThompsonSampling(es.Exact(learner)),
        lambda learner: es.EpsilonGreedy(learner, 0.1),
    ],
)
def test_agents_say_what_their_learners_know_of_actions_rewards_and_outcomes(make):
    arms, line = es.IndependentArms(4), es.Linear(3, outcomes=2, reward=jnp.sum)
    assert (make(arms).arms, make(arms).dim, make(arms).reward) == (4, None, None)
    assert (make(line).arms, make(line).dim, make(line).reward) == (None, 3, line.reward)
    assert fact(make(line), "host") is False
    assert fact(make(line), "check_outcome")(3) is None
    with pytest.raises(ValueError, match="not 3"):
        fact(make(Picky(dim=2)), "check_outcome")(3)  # pyright: ignore[reportCallIssue]


def test_estimators_run_on_the_host_and_uniform_knows_nothing():
    assert es.ThompsonSampling(es.EstimatorEnsemble(Ridge, 2, arms=5)).arms == 5
    assert es.ThompsonSampling(es.EstimatorEnsemble(Ridge, 2)).host is True
    assert [fact(es.Uniform(), name) for name in ("arms", "dim", "reward")] == [None] * 3


@pytest.mark.parametrize(
    "text",
    [
        "EnsembleSampling(Linear(dim=10), members=30)",
        "EnsembleSampling(IndependentArms(arms=2), members=3, perturbation=Poisson())",
        "EnsembleSampling(Linear(dim=2, prior_mean=[1.0, 2.0], prior_std=0.5), members=3, "
        "inflation=2)",
        "Greedy(Linear(dim=3, noise_std=0.1))",
        "EpsilonGreedy(Linear(dim=3), epsilon=Annealed(k=50))",
        "ThompsonSampling(Exact(IndependentArms(arms=3)), draws=10)",
        "ThompsonSampling(Ensemble(Linear(dim=2), members=2), draws=10)",
        "Uniform()",
        "NeuronBandit(dim=3, arms=4)",
        "NetworkBandit(dim=3, arms=4, hidden=5)",
        "LinearBandit(dim=3, arms=4, fresh=True)",
        "LinearBandit(dim=2, arms=2, noise_std=0.1, actions=[[1.0, 0.0], [0.0, 1.0]])",
        "GaussianArms(arms=3, prior_std=2)",
        "LogisticBandit(dim=3, arms=4, bias=-1)",
        "EnsembleSampling(Network(GaussianMLP(dim=3, hidden=(5,)), dim=3, capacity=8), members=3)",
        "EnsembleSampling(Network(GaussianMLP(dim=2, hidden=(3,), prior_std=1), dim=2, "
        "noise_std=1, prior_std=1), members=5)",
        "Linear(dim=3, noise_std=0.5, prior_mean=0, prior_std=2, forgetting=0.9)",
        "IndependentArms(arms=3, noise_std=1)",
        "PerAction(Linear(dim=3), arms=4)",
        "Blend(learners=(Linear(dim=3), Linear(dim=2)))",
        "Blend(learners=(Linear(dim=3, prior_std=2),), trust=0.1, faith=0)",
        "RandomFeatures(Linear(dim=163), dim=3)",
        "RandomFeatures(Linear(dim=13), dim=3, waves=((10, 1, 2),), seed=4)",
        "PerAction(Blend(learners=(Linear(dim=2), Linear(dim=1))), arms=2)",
        "Persistent(Ensemble(PerAction(Linear(dim=2), arms=2), members=3), tries=1)",
        "UCB(Exact(Linear(dim=3, noise_std=0.7)), width=2)",
        "RandomisedPrior(GaussianMLP(dim=2, hidden=(3,)), scale=2)",
    ],
)
def test_what_is_printed_is_what_one_would_write(text):
    rooms = (es, es.agents, es.learners, es.posteriors, es.networks, es.worlds)
    names = {name: getattr(room, name) for room in rooms for name in dir(room)}
    made = eval(text, names)
    assert repr(made) == text
    assert describe(eval(repr(made), names)) == describe(made)


def test_labels_add_what_sets_namesakes_apart():
    wide, narrow = (es.EnsembleSampling(es.Linear(3, prior_std=s), 20) for s in (1.0, 0.5))
    arms = es.EnsembleSampling(es.IndependentArms(3), 20)
    small, poisson = (
        es.EnsembleSampling(es.Linear(3), 3, p) for p in (None, es.posteriors.Poisson())
    )
    assert labels([wide, small, es.Uniform()]) == ["20 models", "3 models", "uniform"]
    assert labels([wide, narrow]) == ["20 models, prior_std 1", "20 models, prior_std 0.5"]
    assert labels([wide, arms]) == ["20 models, Linear", "20 models, IndependentArms"]
    assert labels([small, poisson]) == ["3 models, Gaussian", "3 models, Poisson"]
    assert labels([wide, wide, small]) == ["20 models (1)", "20 models (2)", "3 models"]
    assert labels([Witness(), es.Uniform()]) == ["Witness", "uniform"]
    assert labels([]) == []


def test_the_papers_agents_have_labels_of_their_own_already():
    for panel in paper.PANELS.values():
        declared = getattr(panel, "agents", ())
        assert labels(declared) == [fact(agent, "label") for agent in declared]
