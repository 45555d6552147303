"""A folder that knows its agent opens without being given it again, as it was."""

import json

import jax
import numpy as np
import pytest
from test_contract import AGENTS

import ensemble_sampling as es
from ensemble_sampling.config import describe
from ensemble_sampling.decide.rebuild import rebuild

REWARD = es.Linear(2, outcomes=2, reward=lambda y: y[0])
BY_FUNCTIONS = ("network", "vector", "trees", "one's own", "random features", "randomised priors")
TRAINED = ("dropout", "laplace", "langevin", "model", "neural", "epinet", "backprop", "++")


def remade(agent):
    return rebuild(json.loads(json.dumps(describe(agent))))


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_is_made_again_is_the_same_in_every_number(name):
    agent, other = AGENTS[name], remade(AGENTS[name])
    if other is None:
        assert any(word in name for word in BY_FUNCTIONS + TRAINED)
        return
    assert jax.tree.structure(agent) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(agent), jax.tree.leaves(other), strict=True):
        assert type(one) is type(two)
        assert np.array_equal(one, two)
        assert getattr(one, "weak_type", None) == getattr(two, "weak_type", None)


def test_a_folder_goes_on_with_its_own_agent_and_settings(tmp_path):
    learner = es.PerAction(es.Linear(2, prior_std=0.5), 2)
    agent = es.EnsembleSampling(learner, 5)
    begun = {"seed": 5, "actions": ["x", "y"], "floor": 0.1, "normalise": False}
    with es.Bandit.open(tmp_path / "a", agent, **begun) as bandit:
        bandit.learn(bandit.choose(context=[1.0, 2.0]), 1.0)
        expected = bandit.predict(context=[0.5, 1.0]).probabilities
    for given in (None, agent):
        with es.Bandit.open(tmp_path / "a", given) as bandit:
            assert np.array_equal(bandit.predict(context=[0.5, 1.0]).probabilities, expected)
    with pytest.raises(ValueError, match="members: 5 -> 6"):
        es.Bandit.open(tmp_path / "a", es.EnsembleSampling(learner, 6))


def test_a_folder_opens_without_the_agent_after_promote_too(tmp_path):
    with es.Bandit.open(tmp_path / "a", es.Uniform()) as bandit:
        bandit.choose(np.eye(2))
        bandit.shadow("rival", es.EnsembleSampling(es.Linear(2), 3))
        bandit.learn(bandit.choose(np.eye(2)), 1.0)
        bandit.promote("rival")
    with es.Bandit.open(tmp_path / "a") as bandit:
        assert repr(bandit).endswith("EnsembleSampling(Linear(dim=2), members=3), 2 decisions)")


def test_an_agent_that_no_record_can_make_is_asked_for_by_what_it_is(tmp_path):
    agent = es.EnsembleSampling(REWARD, 3)
    es.Bandit.open(tmp_path / "a", agent).close()
    words = r"ThompsonSampling of Ensemble of Linear of Reward.*Bandit\.open\(folder, agent\)"
    with pytest.raises(ValueError, match=words):
        es.Bandit.open(tmp_path / "a")
    es.Bandit.open(tmp_path / "a", agent).close()
