"""Mistakes raise errors that say what was given and what is accepted, before anything changes.

A row is (call, error, pattern its message must contain); a mistake not yet here is one more line.
"""

# Wrong on purpose:
# pyright: reportArgumentType=false, reportCallIssue=false

import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier

import ensemble_sampling as es
from ensemble_sampling import checks, core
from ensemble_sampling.agents.thompson import as_agent
from ensemble_sampling.config import describe

LEARNER, ENV, NET = es.IndependentArms(4), es.GaussianArms(4), es.networks.GaussianMLP(3, (5,))
LINE = es.Linear(4)
TS = es.ThompsonSampling(es.Exact(LEARNER))
NAN, INF, KEY = float("nan"), float("inf"), jax.random.key(0)
MASKED = np.ma.masked_array([1.0, 2.0], mask=[False, True])
V, T = ValueError, TypeError
LOOP = [1.0]
LOOP.append(LOOP)


def network(**settings):
    return es.Network(**{"make": NET, "dim": 3, "capacity": 8, **settings})


# fmt: off
CONFIGURATIONS = [
    # sizes
    (lambda: es.GaussianArms(0), V, "arms must be at least 1, got 0"),
    (lambda: es.GaussianArms(-3), V, "arms must be at least 1, got -3"),
    (lambda: es.GaussianArms(2.5), T, "arms must be a whole number, got 2.5"),
    (lambda: es.GaussianArms(True), T, "arms must be a whole number, got True"),
    (lambda: es.GaussianArms(None), T, "arms must be a whole number, got None"),
    (lambda: es.GaussianArms(np.array(3)), T, "arms must be a whole number"),
    (lambda: es.IndependentArms(0), V, "arms must be at least 1, got 0"),
    (lambda: es.Linear(0), V, "dim must be at least 1, got 0"),
    (lambda: es.Linear("3"), T, "dim must be a whole number, got '3'"),
    (lambda: es.LinearBandit(0, 3), V, "dim must be at least 1, got 0"),
    (lambda: es.LinearBandit(3, 0), V, "arms must be at least 1, got 0"),
    (lambda: es.LinearBandit(3), V, "give dim and arms, or the actions"),
    (lambda: es.NetworkBandit(0), V, "dim must be at least 1, got 0"),
    (lambda: es.NetworkBandit(3, 4, 0), V, "hidden must be at least 1, got 0"),
    (lambda: es.NetworkBandit(3, 4, (5,)), T, "hidden must be a whole number"),
    (lambda: es.NetworkBandit(3, 4, outcomes=0, reward=jnp.sum), V, "outcomes must be at least 1"),
    (lambda: es.NeuronBandit(3, 0), V, "arms must be at least 1, got 0"),
    (lambda: es.LogisticBandit(3, 1.5), T, "arms must be a whole number, got 1.5"),
    (lambda: es.Ensemble(LEARNER, 0), V, "members must be at least 1, got 0"),
    (lambda: es.EnsembleSampling(LEARNER, -1), V, "members must be at least 1, got -1"),
    (lambda: es.EnsembleSampling(LEARNER, 10**400), V, "members must be less than 2147483648"),
    (lambda: es.EnsembleSampling(LEARNER, 2**62), V, "members must be less than 2147483648"),
    (lambda: es.EnsembleSampling(LEARNER, -(10**5000)), V, "members must be at least 1, got a"),
    (lambda: es.Linear(10**5000), V, "dim must be less than 2147483648"),
    (lambda: es.IndependentArms(10**400), V, "arms must be less than 2147483648"),
    (lambda: es.Linear(2, 10**5000), V, "noise_std must be a single real number, and finite"),
    (lambda: es.Linear(2, 10**20), V, "noise_std must be between 1e-12 and 1e"),
    (lambda: es.Linear(2, prior_mean=10**400), V, "prior_mean must be a single real number, and"),
    (lambda: es.Linear(2, prior_mean=[10**400, 0]), V, "prior_mean must be an array of real"),
    (lambda: es.Linear(2, [[1.0], [1.0, 2.0]]), T, "noise_std must be a single real number"),
    (lambda: es.simulate(TS, ENV, 10**400, 2), V, "periods must be less than 2147483648"),
    (lambda: es.simulate(TS, ENV, 2, 10**400), V, "realizations must be less than 2147483648"),
    (lambda: es.simulate(TS, ENV, 2, 2, chunk=10**400), V, "chunk must be less than 9223372036854"),
    (lambda: es.sweep(TS, ENV, np.array(1.0), 2, 2), T, "settings must be a dictionary of lists"),
    (lambda: es.sweep(TS, ENV, {"x": np.array(1.0)}, 2, 2), T, "settings must list the values"),
    (lambda: describe(LOOP), V, "a list that contains itself"),
    (lambda: es.EnsembleSampling(LEARNER, 1.0), T, "members must be a whole number"),
    (lambda: es.EnsembleSampling(LEARNER, "30"), T, "members must be a whole number, got '30'"),
    (lambda: es.ThompsonSampling(es.Exact(LEARNER), 0), V, "draws must be at least 1"),
    (lambda: es.ThompsonSampling(es.Exact(LEARNER), 1e3), T, "draws must be a whole number"),
    (lambda: es.PerAction(LINE, 0), V, "arms must be at least 1"),
    # variances and other numbers
    (lambda: es.GaussianArms(3, noise_std=0), V, "noise_std must be greater than 0"),
    (lambda: es.GaussianArms(3, prior_std=-1), V, "prior_std must be greater than 0, got -1"),
    (lambda: es.GaussianArms(3, prior_mean=NAN), V, "prior_mean must be finite, got nan"),
    (lambda: es.GaussianArms(3, prior_std=1e20), V, r"prior_std must be between .* got 1e\+20"),
    (lambda: es.GaussianArms(3, noise_std=1e-25), V, "noise_std must be between .* got 1e-25"),
    (lambda: es.GaussianArms(3, noise_std=None), T, "noise_std must be a single real number"),
    (lambda: es.GaussianArms(3, noise_std=True), T, "noise_std must be a single real number"),
    (lambda: es.GaussianArms(3, noise_std=1j), T, "noise_std must be a single real number"),
    (lambda: es.GaussianArms(3, noise_std=np.ma.masked), T, "must be a single real number"),
    (lambda: es.IndependentArms(3, noise_std=INF), V, "noise_std must be finite, got inf"),
    (lambda: es.IndependentArms(3, prior_std=0.0), V, "prior_std must be greater than 0"),
    (lambda: es.IndependentArms(3, prior_std=1e20), V, r"prior_std must be between .* got 1e\+20"),
    (lambda: es.IndependentArms(3, forgetting=0), V, "forgetting must be greater than 0, got 0"),
    (lambda: es.IndependentArms(3, forgetting=1.1), V, "forgetting must be between .* got 1.1"),
    (lambda: es.Linear(3, noise_std=-0.1), V, "noise_std must be greater than 0, got -0.1"),
    (lambda: es.Linear(3, prior_std=0), V, "prior_std must be greater than 0, got 0"),
    (lambda: es.Linear(3, noise_std="1"), T, "noise_std must be a single real number, got '1'"),
    (lambda: es.Linear(3, noise_std=[1, 2]), T, "noise_std must be a single real number"),
    (lambda: es.Linear(3, noise_std=1e-25), V, "noise_std must be between .* got 1e-25"),
    (lambda: es.LinearBandit(3, 4, noise_std=0), V, "noise_std must be greater than 0, got 0"),
    (lambda: es.LogisticBandit(3, 4, prior_std=0), V, "prior_std must be greater than 0"),
    (lambda: es.LogisticBandit(3, 4, bias=NAN), V, "bias must be finite, got nan"),
    (lambda: es.NetworkBandit(3, 4, noise_std=0), V, "noise_std must be greater than 0"),
    (lambda: es.NetworkBandit(3, 4, prior_std=-1), V, "prior_std must be greater than 0"),
    (lambda: es.agents.Constant(1.5), V, "epsilon must be between 0 and 1, got 1.5"),
    (lambda: es.agents.Constant("0.1"), T, "epsilon must be a single real number, got '0.1'"),
    (lambda: es.EpsilonGreedy(LEARNER, -0.1), V, "epsilon must be between 0 and 1, got -0.1"),
    (lambda: es.EpsilonGreedy(LEARNER, NAN), V, "epsilon must be finite, got nan"),
    (lambda: es.EpsilonGreedy(LEARNER, [0.1]), T, "epsilon must be a single real number"),
    (lambda: es.agents.Annealed(0), V, "k must be greater than 0, got 0"),
    (lambda: es.agents.Annealed(None), T, "k must be a single real number, got None"),
    (lambda: es.EnsembleSampling(LEARNER, 3, inflation=0.0), V, "inflation must be greater"),
    (lambda: es.EnsembleSampling(LEARNER, 3, inflation=NAN), V, "inflation must be finite"),
    (lambda: es.EnsembleSampling(LEARNER, 3, es.posteriors.Poisson(), 2.0), V, "must be 1 with"),
    (lambda: es.posteriors.Dropout(network(), 1.5), V, "rate must be between 0 and 1, got 1.5"),
    (lambda: es.posteriors.Dropout(network(), "0.5"), T, "rate must be a single real number"),
    # shapes and covariances
    (lambda: es.Linear(3, prior_mean=[1, 2]), V, r"prior_mean must have shape \(3,\), got \(2,\)"),
    (lambda: es.Linear(2, prior_mean=[1, NAN]), V, r"prior_mean must be finite, got nan at \[1\]"),
    (lambda: es.Linear(2, prior_mean=["1", "2"]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=[1, 1j]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=MASKED), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=[1, None]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_cov=np.eye(3)), V, r"prior_cov must have shape \(2, 2\), got"),
    (lambda: es.Linear(2, prior_cov=[[1, 2], [2, 1]]), V, "positive definite, .* is -1"),
    (lambda: es.Linear(2, prior_cov=np.zeros((2, 2))), V, "positive definite, .* is 0"),
    (lambda: es.Linear(2, prior_cov=[[1, 0.5], [0, 1]]), V, "symmetric, but .* by up to 0.5"),
    (lambda: es.Linear(2, prior_cov=[[1, 2], [3]]), T, "prior_cov must be an array of real"),
    (lambda: es.Linear(2, prior_cov=1e40 * np.eye(2)), V, "prior_cov must be finite and below"),
    (lambda: es.Linear(2, prior_std=1.0, prior_cov=np.eye(2)), V, "or prior_cov, not both"),
    (lambda: es.LinearBandit(2, 3, prior_cov=-np.eye(2)), V, "positive definite"),
    (lambda: es.LinearBandit(2, 3, prior_mean=np.ones(3)), V, "prior_mean must have shape"),
    (lambda: es.LinearBandit(actions=np.ones(3)), V, r"actions must have shape \(any, any\), got"),
    (lambda: es.LinearBandit(actions=[["a"]]), T, "actions must be an array of real numbers"),
    (lambda: es.LinearBandit(actions=[["1.5"]]), T, "actions must be an array of real numbers"),
    (lambda: es.LinearBandit(actions=[[1, 2], [3]]), T, "actions must be an array of real numbers"),
    (lambda: es.LinearBandit(actions=np.ones((0, 3))), V, "actions must have shape"),
    (lambda: es.LinearBandit(actions=[[1e30]]), V, r"actions must be finite and below 1e\+15"),
    (lambda: es.LinearBandit(dim=4, actions=np.ones((2, 3))), V, r"dim is 4, but .* \(2, 3\)"),
    (lambda: es.LinearBandit(arms=4, actions=np.ones((2, 3))), V, r"arms is 4, but .* \(2, 3\)"),
    (lambda: es.LinearBandit(actions=np.eye(2), fresh=True), V, "fresh actions are drawn"),
    (lambda: es.LinearBandit(2, 3, fresh="yes"), T, "fresh must be True or False, got 'yes'"),
    (lambda: es.LinearBandit(2, 3, fresh=1), T, "fresh must be True or False, got 1"),
    (lambda: es.NetworkBandit(3, 4, outcomes=2), V, "give the reward function"),
    (lambda: es.NetworkBandit(3, 4, reward=jnp.sum), V, "a reward function needs `outcomes`"),
    (lambda: es.NetworkBandit(3, 4, outcomes=2, reward=3), T, "a reward must be a function"),
    # parts in the wrong place
    (lambda: es.ThompsonSampling(LEARNER), T, "posterior must .*; IndependentArms has no sample"),
    (lambda: es.ThompsonSampling(TS), T, "posterior must .*; ThompsonSampling has no sample"),
    (lambda: es.ThompsonSampling(es.Exact), T, r"posterior must be an object: write Exact\(...\)"),
    (lambda: es.ThompsonSampling(None), T, "posterior must have .*; NoneType has no"),
    (lambda: es.Ensemble(ENV, 3), T, "learner must have .*; GaussianArms has no predict"),
    (lambda: es.Ensemble(es.Linear, 3), T, r"learner must be an object: write Linear\(...\)"),
    (lambda: es.EnsembleSampling(LEARNER, 3, es.posteriors.Poisson), T, r"write Poisson\(...\)"),
    (lambda: es.EnsembleSampling(LEARNER, 3, "poisson"), T, "perturbation must have .*; str has"),
    (lambda: es.EnsembleSampling(LEARNER, 3, False), T, "perturbation must have .*; bool has"),
    (lambda: es.Greedy(TS), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.posteriors.Point(3), T, "learner must have .*; int has no center"),
    (lambda: es.Exact(TS), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.Exact(network()), T, "Network has no exact posterior; use Ensemble"),
    (lambda: es.EpsilonGreedy(TS, 0.1), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.EpsilonGreedy(LEARNER, es.agents.Annealed), T, r"write Annealed\(...\)"),
    (lambda: es.EpsilonGreedy(LEARNER, lambda t: 2.0), V, "must be between 0 and 1, got 2"),
    (lambda: es.posteriors.Dropout(LINE, 0.5), T, "Dropout takes a Network, got Linear"),
    (lambda: es.posteriors.Dropout(network(), 0.5, "yes"), T, "coherent must be True or False"),
    (lambda: es.posteriors.Dropout(network(), 0.5, readout=3), T, "readout must be a function"),
    (lambda: es.PerAction(LEARNER, 3), T, "PerAction takes a Linear learner"),
    (lambda: es.EstimatorEnsemble(Ridge(), 3), T, "make must be a function that returns a new"),
    (lambda: es.EstimatorEnsemble("Ridge", 3), T, "make must be a function that returns a new"),
    (lambda: es.EstimatorEnsemble([], 3), T, "make must be a function that returns a new"),
    (lambda: es.EstimatorEnsemble([Ridge, 3], 3), T, "make must be a function that returns a new"),
    (lambda: es.EstimatorEnsemble(dict, 3), T, "an estimator must have the methods fit, predict"),
    (lambda: es.EstimatorEnsemble(Ridge, 0), V, "members must be at least 1"),
    (lambda: es.EstimatorEnsemble(Ridge, 3, noise_std=0), V, "noise_std must be greater than 0"),
    (lambda: es.EstimatorEnsemble(Ridge, 3, prior_std=INF), V, "prior_std must be finite"),
    (lambda: es.EstimatorEnsemble(Ridge, 3, start=0), V, "start must be at least 1"),
    (lambda: es.EstimatorEnsemble(Ridge, 3, growth=1.0), V, "growth must be greater than 1"),
    (lambda: es.EstimatorEnsemble(Ridge, 3, arms=0), V, "arms must be at least 1"),
    (lambda: as_agent(LINE), T, "expected an agent .* or a posterior"),
    (lambda: as_agent(es.Uniform), T, r"write Uniform\(...\), not the class"),
    (lambda: as_agent(None), T, "expected an agent"),
    (lambda: core.fact(LINE, "amrs"), V, "there is no fact 'amrs'; there are arms"),
    (lambda: describe(object()), T, "cannot describe <object"),
    (lambda: describe({"a": {1, 2}}), T, r"cannot describe \{1, 2\}"),
    (lambda: describe(b"bytes"), T, "cannot describe b'bytes'"),
    (lambda: checks.flag("on", 0), T, "on must be True or False, got 0"),
    (lambda: checks.size("n", 5, below=5), V, "n must be less than 5, got 5"),
]
# fmt: on

TREES = es.ThompsonSampling(es.EstimatorEnsemble(Ridge, 2))
CLICKS = es.ThompsonSampling(es.EstimatorEnsemble(DecisionTreeClassifier, 2))
AGENTS = {
    "exact": TS,
    "arms": es.EnsembleSampling(LEARNER, 3),
    "linear": es.EnsembleSampling(LINE, 3),
    "epsilon": es.EpsilonGreedy(LINE, 0.1),
    "uniform": es.Uniform(),
    "estimators": TREES,
}
ALL, LEARNERS = [*AGENTS], ["exact", "arms", "linear", "epsilon", "estimators"]
GOOD = es.core.Action(jnp.int32(1), jnp.ones(4))


def start(name):
    return AGENTS[name].init(KEY)


# (which agents, call, error, pattern)
# fmt: off
CALLS = [
    # keys
    (ALL, lambda a: AGENTS[a].init(0), T, r"a key made by jax.random.key\(seed\), got 0"),
    (ALL, lambda a: AGENTS[a].init(np.zeros(2, np.uint32)), T, "a key made by jax.random.key"),
    (ALL, lambda a: AGENTS[a].init(None), T, "a key made by jax.random.key"),
    (ALL, lambda a: AGENTS[a].act(0, start(a), jnp.eye(4)), T, "a key made by jax.random.key"),
    (ALL, lambda a: AGENTS[a].update(7, start(a), GOOD, 1.0), T, "a key made by jax.random.key"),
    (LEARNERS, lambda a: AGENTS[a].probabilities(start(a), jnp.eye(4), key=3), T, "a key made by"),
    # what is on offer
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), jnp.ones(4)), V, r"shape \(K, d\), got \(4,\)"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), jnp.ones((0, 4))), V, "action features must have"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), [[1.0, 2.0], [3.0]]), T, "array of real numbers"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), [["a"] * 4] * 4), T, "array of real numbers"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), None), T, "action features must be an array"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), jnp.eye(4) * NAN), V, "features must be finite"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), np.eye(4) * 1e30), V, r"finite and below 1e\+15"),
    (ALL, lambda a: AGENTS[a].act(KEY, start(a), np.eye(4) * 1j), T, "array of real numbers"),
    (ALL, lambda a: AGENTS[a].probabilities(start(a), jnp.ones(4)), V, r"shape \(K, d\), got"),
    (ALL, lambda a: AGENTS[a].probabilities(start(a), [[INF] * 4]), V, "features must be finite"),
    (["exact", "arms"], lambda a: AGENTS[a].act(KEY, start(a), jnp.eye(5)), V, "has 4 arms, but 5"),
    (["linear", "epsilon"], lambda a: AGENTS[a].act(KEY, start(a), jnp.eye(5)), V, r"K >= 1, 4\)"),
    (["estimators"], lambda a: AGENTS[a].act(KEY, start(a), np.ones((4, 0))), V, "need features"),
    # which of it can be had
    (ALL, lambda a: masked(a, np.zeros(4, bool)), V, "available must leave at least one action"),
    (ALL, lambda a: masked(a, np.ones(3, bool)), V, r"available must have shape \(4,\), got"),
    (ALL, lambda a: masked(a, np.ones(4)), T, "available must be true or false for every action"),
    (ALL, lambda a: masked(a, [1, 0, 1, 1]), T, "available must be true or false for every action"),
    (ALL, lambda a: masked(a, True), V, r"available must have shape \(4,\), got \(\)"),
    (ALL, lambda a: shares(a, np.zeros(4, bool)), V, "available must leave at least one action"),
    (ALL, lambda a: shares(a, np.ones(5, bool)), V, r"available must have shape \(4,\), got"),
    (ALL, lambda a: shares(a, ["yes"] * 4), T, "available must be true or false for every action"),
    # what was done
    (ALL, lambda a: AGENTS[a].update(KEY, start(a), (1, jnp.ones(4)), 1.0), T, "must be Action"),
    (ALL, lambda a: AGENTS[a].update(KEY, start(a), 1, 1.0), T, r"Action\(index, features\), got"),
    (["exact", "arms"], lambda a: did(a, -1), V, "index must be between 0 and 3, got -1"),
    (["exact", "arms"], lambda a: did(a, 4), V, "index must be between 0 and 3, got 4"),
    (["exact", "arms"], lambda a: did(a, 1.5), T, "index must be a whole number, got 1.5"),
    (["exact", "arms"], lambda a: did(a, None), T, "index must be a whole number, got None"),
    (["linear", "epsilon"], lambda a: did(a, 0, jnp.ones(5)), V, r"shape \(4,\), got \(5,\)"),
    (["linear", "epsilon"], lambda a: did(a, 0, [1, 2, NAN, 4]), V, r"finite, got nan at \[2\]"),
    (["linear", "epsilon"], lambda a: did(a, 0, ["1"] * 4), T, "must be an array of real numbers"),
    (["estimators"], lambda a: did(a, 0, np.ones((2, 2))), V, "features must have shape"),
    (["estimators"], lambda a: did(a, 0, [NAN, 1]), V, "features must be finite"),
    # what came of it
    (ALL, lambda a: learned(a, NAN), V, "an outcome must be finite, got nan"),
    (ALL, lambda a: learned(a, np.float32(INF)), V, "an outcome must be finite, got inf"),
    (ALL, lambda a: learned(a, jnp.float32(-INF)), V, "an outcome must be finite, got -inf"),
    (ALL, lambda a: learned(a, 3e38), V, r"an outcome must be below 1e\+15, got 3e\+38"),
    (ALL, lambda a: learned(a, -1e15), V, "an outcome must be below .* larger unit"),
    (ALL, lambda a: learned(a, "won"), T, "an outcome must be a number or numbers, got 'won'"),
    (ALL, lambda a: learned(a, "1.0"), T, "an outcome must be a number or numbers, got '1.0'"),
    (ALL, lambda a: learned(a, None), T, "an outcome must be a number or numbers, got None"),
    (ALL, lambda a: learned(a, 1j), T, "an outcome must be a number or numbers"),
    (ALL, lambda a: learned(a, [[1], [2, 3]]), T, "an outcome must be a number or numbers"),
    (ALL, lambda a: learned(a, MASKED), T, "an outcome must be a number or numbers"),
    (ALL, lambda a: learned(a, np.ma.masked), T, "an outcome must be a number or numbers"),
    (LEARNERS, lambda a: learned(a, np.ones(2)), V, r"(outcome|number).* got .*\(2,\)"),
    (LEARNERS, lambda a: learned(a, [1.0]), V, r"(outcome|number).* got .*\(1,\)"),
    (LEARNERS, lambda a: learned(a, np.matrix([[1.0]])), V, r"(outcome|number).* got .*\(1, 1\)"),
    (LEARNERS, lambda a: learned(a, []), V, r"(outcome|number).* got .*\(0,\)"),
]
# fmt: on


def masked(name, mask):
    return AGENTS[name].act(KEY, start(name), jnp.eye(4), mask)


def shares(name, mask):
    return AGENTS[name].probabilities(start(name), jnp.eye(4), mask)


def did(name, index, features=None):
    action = es.core.Action(index, jnp.ones(4) if features is None else features)
    return AGENTS[name].update(KEY, start(name), action, 1.0)


def learned(name, outcome):
    return AGENTS[name].update(KEY, start(name), GOOD, outcome)


# fmt: off
OTHERS = [
    (lambda: CLICKS.update(KEY, CLICKS.init(KEY), GOOD, 0.5), V, "learn outcomes 0 and 1, got 0.5"),
    (lambda: ENV.init(0), T, "a key made by jax.random.key"),
    (lambda: es.LinearBandit(2, 3).init(0), T, "a key made by jax.random.key"),
    (lambda: es.NetworkBandit(2, 3).init("seed"), T, "a key made by jax.random.key"),
    (lambda: es.LogisticBandit(2, 3).init(None), T, "a key made by jax.random.key"),
    (lambda: es.LinearBandit(4, 6, actions=lambda key, arms, dim: jnp.ones((dim, arms))).init(KEY),
     V, r"returned shape \(4, 6\), expected \(6, 4\)"),
]
# fmt: on


def refused(call, error, pattern):
    """The call raises that error, by our own hand and not deep within another library."""
    with pytest.raises(error, match=pattern) as caught:
        call()
    last = traceback.extract_tb(caught.tb)[-1].filename
    assert Path(es.__file__).parent in Path(last).parents, f"raised in {last}"


def spelled(row) -> str:
    return row if isinstance(row, str) else ""


@pytest.mark.parametrize(("call", "error", "pattern"), CONFIGURATIONS + OTHERS, ids=spelled)
def test_a_mistake_is_refused_by_what_was_given_and_what_is_accepted(call, error, pattern):
    refused(call, error, pattern)


@pytest.mark.parametrize(
    ("name", "call", "error", "pattern"),
    [(name, *row) for names, *row in CALLS for name in names],
    ids=spelled,
)
def test_an_agent_refuses_what_it_cannot_use(name, call, error, pattern):
    refused(lambda: call(name), error, pattern)


def test_the_tables_are_long_and_say_what_they_expect():
    assert len(CONFIGURATIONS) + len(OTHERS) + len(CALLS) >= 150
    assert all(len(row[-1]) >= 8 for row in [*CONFIGURATIONS, *OTHERS, *CALLS])


@pytest.mark.parametrize("name", LEARNERS)
def test_a_refused_outcome_leaves_the_state_as_it_was(name):
    agent, state = AGENTS[name], start(name)
    before = np.asarray(agent.probabilities(state, jnp.eye(4)))
    with pytest.raises(ValueError, match="finite"):
        agent.update(KEY, state, GOOD, NAN)
    assert np.array_equal(agent.probabilities(state, jnp.eye(4)), before)


@pytest.mark.parametrize(
    ("features", "outcome"),
    [
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], 1),
        (np.eye(4, dtype=np.float32), np.float32(0.5)),
        (np.eye(4, dtype=bool), True),
        (jnp.eye(4, dtype=jnp.bfloat16), jnp.bfloat16(0.5)),
        (np.ma.masked_array(np.eye(4)), np.array(1.0)),
    ],
    ids=["lists", "float32", "truth values", "bfloat16", "a mask that hides nothing"],
)
@pytest.mark.parametrize("name", ALL)
def test_whatever_can_be_read_without_doubt_is_accepted(name, features, outcome):
    agent, state = AGENTS[name], start(name)
    index = agent.act(KEY, state, features, [True, True, False, True])
    assert int(index) in (0, 1, 3)
    state = agent.update(KEY, state, es.core.Action(index, np.asarray(features)[index]), outcome)
    assert np.isfinite(agent.probabilities(state, features)).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_singular_covariance_is_refused_though_rounding_may_make_it_look_definite(seed):
    v = np.random.default_rng(seed).normal(size=(4, 3))
    with pytest.raises(ValueError, match="prior_cov must be positive definite"):
        es.Linear(4, prior_cov=v @ v.T)


def test_a_checkpoint_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match="checkpoint must be a folder"):
        es.simulate(TS, ENV, 5, 2, checkpoint=path)
    assert path.read_text() == "mine"
