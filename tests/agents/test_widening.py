"""A narrow spread that widens about actions which nothing else explores."""

import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es
from ensemble_sampling.agents import Widening
from ensemble_sampling.decide.default import Default
from ensemble_sampling.worlds.features import on_sphere

ENSEMBLE = es.Ensemble(es.Linear(2), 8, inflation=0.25)
AGENT, PLAIN = Widening(ENSEMBLE, most=4.0, ratio=2.0), es.ThompsonSampling(ENSEMBLE)
BELIEF = ENSEMBLE.init(jax.random.key(0))
MEANS = np.array([1.0, 0.0, -0.5])


def values(*differ):
    """What eight models think of three actions, about which they differ by so much."""
    shifted = np.stack([np.roll(np.repeat([1.0, -1.0], 4), 2 * k) for k in range(3)], axis=1)
    return jnp.asarray(MEANS + shifted * np.array(differ))


def chances(values, available=None, agent: es.ThompsonSampling | Widening = AGENT):
    return np.asarray(agent.chances(BELIEF, values, available))


def test_where_models_differ_alike_it_is_thompson_sampling():
    alike = values(0.4, 0.7, 0.8)  # none by more than twice as much as about the first
    assert chances(alike).tolist() == chances(alike, agent=PLAIN).tolist()


def test_an_action_known_far_less_than_the_best_one_is_tried():
    narrow = values(0.05, 0.4, 0.05)
    assert chances(narrow, agent=PLAIN).tolist() == [1, 0, 0]
    assert chances(narrow).tolist() == [0.5, 0.5, 0]  # 0.4 four times
    assert chances(values(0.05, 0.2, 0.05)).tolist() == [1, 0, 0]  # 0.2 twice
    assert chances(values(0.0, 0.4, 0.0)).tolist() == [0.5, 0.5, 0]  # and of the first all
    assert chances(values(0.0, 0.05, 0.1)).tolist() == [1, 0, 0]  # four times at most


def test_the_best_one_is_the_best_of_those_that_are_available():
    """Else a row that only fills an offer up would decide what is usual."""
    rows, free = values(0.4, 0.05, 0.3), jnp.array([False, True, True])
    assert chances(rows).tolist() == [1, 0, 0]
    assert chances(rows, free).tolist() == [0, 0.5, 0.5]  # 0.3 three times


def test_actions_that_never_change_are_not_settled_too_soon():
    """The narrow spread alone is sure of a wrong one in some worlds: its late regret is 0.06."""

    def rows(key, arms, dim):
        return dim**0.5 * on_sphere(key, arms, dim)

    world = es.LinearBandit(10, 20, noise_std=0.3, prior_std=10**-0.5, actions=rows)
    few = Default(members=32, smooth=(4, 1.0, 2.0), fine=(4, 3.0, 1.0))
    agent = few.agent(None, 10, hashed=False)
    result = es.simulate(agent, world, periods=400, realizations=100, seed=0)
    assert np.asarray(result.mean)[-50:].mean() < 0.02
