"""Mistakes raise errors that say what was given and what is accepted, before anything changes.

A parameter that is a size, a share, a flag, ... is one more word in `PARAMETERS`; any other mistake
is a row (call, error, pattern its message must contain).
"""

# Wrong on purpose:
# pyright: reportArgumentType=false, reportCallIssue=false

import traceback
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier

import ensemble_sampling as es
from ensemble_sampling import agents as A
from ensemble_sampling import learners as L
from ensemble_sampling import posteriors as P
from ensemble_sampling.agents.thompson import as_agent
from ensemble_sampling.config import describe
from ensemble_sampling.core import Action, Noise, fact
from ensemble_sampling.networks import MLP, GaussianMLP

NAN, INF, KEY = float("nan"), float("inf"), jax.random.key(0)
V, T = ValueError, TypeError
MASKED = np.ma.masked_array([1.0, 2.0], mask=[False, True])
LOOP = [1.0]
LOOP.append(LOOP)
ARM, LINE, ENV = es.IndependentArms(4), es.Linear(3), es.GaussianArms(4)
PER, VECTOR = es.PerAction(LINE, 4), es.Linear(3, outcomes=2, reward=jnp.sum)
BLEND, WAVES = L.Blend((LINE,)), es.RandomFeatures(es.Linear, 3)
MAKE, HEADS = GaussianMLP(3, (5,)), GaussianMLP(3, (5,), 4)
TS, BETA = es.ThompsonSampling(es.Exact(ARM)), L.BetaArms(2)


def net(make=MAKE, dim=3, capacity=6, *told, **settings):
    return es.Network(make, dim, capacity, *told, **settings)


NET, HEADED, CLICKS = net(), net(HEADS, arms=4), net(MAKE, 3, 6, 0.5, loss=L.CrossEntropy())

FIT = es.EstimatorEnsemble(Ridge, 2, arms=3)
FITTED = FIT.update(KEY, FIT.init(KEY), Action(0, np.ones(2)), 1.0)


class NoMean(eqx.Module):
    def __call__(self, output, target, noise_std):
        return (output - target) ** 2


class NoExpected(NoMean):
    def mean(self, output):
        return output


class Counts(eqx.Module):
    """Nothing in it can be learned."""

    counts: jax.Array

    def __call__(self, x):
        return x @ self.counts


class Together(eqx.Module):
    """Two layers side by side in one module: all of it would be taken for the last."""

    hidden: jax.Array
    last: jax.Array

    def __call__(self, x):
        return self.last @ jnp.tanh(self.hidden @ x)


def together(key):
    return Together(jax.random.normal(key, (5, 3)), jax.random.normal(key, (5,)))


def perceptron(final=lambda x: x):
    return lambda key: eqx.nn.MLP(3, "scalar", 5, 1, final_activation=final, key=key)


def eps(schedule):
    return es.EpsilonGreedy(ARM, schedule)


WRONG = {
    "size": [
        (0, V, "must be at least 1, got 0"),
        (-3, V, "must be at least 1, got -3"),
        (2.5, T, "must be a whole number, got 2.5"),
        ("3", T, "must be a whole number, got '3'"),
        (True, T, "must be a whole number, got True"),
        ([3], T, r"must be a whole number, got \[3\]"),
        (2**31, V, "must be less than 2147483648"),
    ],
    "positive": [
        (0, V, "must be greater than 0"),
        (-1, V, "must be greater than 0, got -1"),
        (NAN, V, "must be finite, got nan"),
        (INF, V, "must be finite, got inf"),
        (1e20, V, r"must be between .* got 1e\+20"),
        (1e-25, V, "must be between .* got 1e-25"),
        ("1", T, "must be a single real number, got '1'"),
        (True, T, "must be a single real number, got True"),
        ([1, 1], T, "must be a single real number"),
        ([[1.0], [1.0, 2.0]], T, "must be a single real number"),
        (1j, T, "must be a single real number"),
        (np.ma.masked, T, "must be a single real number"),
        (10**5000, V, "must be a single real number, and finite"),
    ],
    "number": [(NAN, V, "must be finite, got nan"), ("1", T, "must be a single real number")],
    "not negative": [
        (-1, V, "must be between 0 and .*, got -1"),
        ("1", T, "must be a single real"),
    ],
    "share": [
        (-0.1, V, "must be between 0 and 1, got -0.1"),
        (1.5, V, "must be between 0 and 1, got 1.5"),
        ("0.5", T, "must be a single real number, got '0.5'"),
    ],
    "factor": [
        (0, V, "must be greater than 0, got 0"),
        (1.1, V, "must be between .* got 1.1"),
        ("0.9", T, "must be a single real number, got '0.9'"),
    ],
    "flag": [
        (1, T, "must be True or False, got 1"),
        ("yes", T, "must be True or False, got 'yes'"),
    ],
}
"""Values that no parameter of a kind accepts, and what is said of them after its name."""

# fmt: off
PARAMETERS = [
    (partial(es.GaussianArms, arms=3),
     {"size": "arms", "positive": "noise_std prior_std", "number": "prior_mean"}),
    (partial(es.worlds.BernoulliArms, arms=3), {"size": "arms", "positive": "ones zeros"}),
    (partial(es.worlds.RandomWalkArms, arms=3), {"size": "arms", "not negative": "step_std",
     "positive": "noise_std prior_std", "number": "prior_mean"}),
    (partial(es.LinearBandit, dim=3, arms=4),
     {"size": "dim arms", "positive": "noise_std prior_std", "flag": "fresh"}),
    (es.NetworkBandit,
     {"size": "dim arms hidden", "positive": "noise_std prior_std", "flag": "fresh"}),
    (es.worlds.NeuronBandit,
     {"size": "dim arms", "positive": "noise_std prior_std", "flag": "fresh"}),
    (partial(es.worlds.LogisticBandit, dim=3, arms=4),
     {"size": "dim arms", "positive": "prior_std", "number": "bias", "flag": "fresh"}),
    (partial(es.ContextualBandit, np.eye(3), arms=2), {"size": "arms", "flag": "ordered",
     "positive": "noise_std prior_std", "number": "prior_mean"}),
    (partial(es.Classification, np.eye(2), [0, 1]), {"share": "flips"}),
    (partial(es.IndependentArms, arms=2), {"size": "arms", "positive": "noise_std prior_std",
                                           "number": "prior_mean", "factor": "forgetting"}),
    (L.BetaArms, {"size": "arms"}),
    (partial(es.Linear, dim=2),
     {"size": "dim", "positive": "noise_std prior_std", "factor": "forgetting"}),
    (partial(es.PerAction, LINE), {"size": "arms"}),
    (partial(L.Blend, (LINE,)), {"positive": "trust", "not negative": "faith"}),
    (partial(es.RandomFeatures, es.Linear), {"size": "dim"}),
    (net, {"size": "dim capacity steps batch arms indices", "share": "dropout",
           "positive": "noise_std prior_std learning_rate"}),
    (partial(GaussianMLP, dim=2, hidden=()),
     {"size": "dim outputs", "positive": "prior_std", "share": "slope", "flag": "squash"}),
    (partial(L.RandomisedPrior, MAKE), {"positive": "scale"}),
    (partial(es.Reward, jnp.sum, outcomes=2), {"size": "outcomes draws"}),
    (partial(es.Ensemble, LINE, members=3),
     {"size": "members", "positive": "inflation", "flag": "members_last"}),
    (partial(P.Anytime, LINE),
     {"size": "most first", "positive": "inflation", "not negative": "rate"}),
    (partial(P.Dropout, NET, rate=0.5), {"share": "rate", "flag": "coherent"}),
    (partial(P.Laplace, CLICKS), {"positive": "inflation"}),
    (partial(P.NeuralLinear, NET), {"positive": "inflation"}),
    (partial(P.Langevin, NET),
     {"size": "chains", "positive": "temperature", "flag": "precondition"}),
    (partial(P.Hypermodel, NET),
     {"size": "width indices", "positive": "inflation", "flag": "perturbed"}),
    (partial(P.BayesByBackprop, NET), {"size": "indices", "positive": "start"}),
    (partial(P.Epinet, NET),
     {"size": "width indices", "positive": "scale inflation", "flag": "perturbed"}),
    (partial(P.EnsemblePlus, LINE),
     {"size": "members", "positive": "inflation", "flag": "continuous perturbed"}),
    (partial(es.EstimatorEnsemble, Ridge, members=3),
     {"size": "members start arms", "positive": "noise_std prior_std"}),
    (partial(es.ThompsonSampling, es.Exact(ARM)), {"size": "draws"}),
    (partial(es.EnsembleSampling, ARM, members=3), {"size": "members", "positive": "inflation"}),
    (partial(es.EpsilonGreedy, ARM), {"share": "epsilon"}),
    (A.Constant, {"share": "epsilon"}),
    (A.Annealed, {"positive": "k"}),
    (partial(A.UCB, LINE), {"size": "draws", "not negative": "width"}),
    (partial(A.SquareCB, LINE), {"not negative": "gamma"}),
    (A.SquareRoot, {"positive": "scale"}),
    (partial(A.Persistent, es.Exact(ARM)),
     {"size": "draws", "not negative": "tries", "share": "chance share"}),
    (partial(A.Widening, es.Exact(LINE), most=2.0), {"size": "draws", "positive": "ratio"}),
]
# fmt: on

# fmt: off
SETTINGS = [
    # sizes beyond all bounds
    (lambda: es.EnsembleSampling(ARM, 10**400), V, "members must be less than 2147483648"),
    (lambda: es.EnsembleSampling(ARM, 2**62), V, "members must be less than 2147483648"),
    (lambda: es.EnsembleSampling(ARM, -(10**5000)), V, "members must be at least 1, got a"),
    (lambda: es.simulate(TS, ENV, 10**400, 2), V, "periods must be less than 2147483648"),
    (lambda: es.simulate(TS, ENV, 2, 10**400), V, "realizations must be less than 2147483648"),
    (lambda: es.simulate(TS, ENV, 2, 2, chunk=10**400), V, "chunk must be less than 9223372036854"),
    (lambda: es.sweep(TS, ENV, np.array(1.0), 2, 2), T, "settings must be a dictionary of lists"),
    (lambda: es.sweep(TS, ENV, {"x": np.array(1.0)}, 2, 2), T, "settings must list the values"),
    # worlds
    (lambda: es.LinearBandit(3), V, "give dim and arms, or the actions"),
    (lambda: es.LinearBandit(2, 3, prior_cov=-np.eye(2)), V, "positive definite"),
    (lambda: es.LinearBandit(2, 3, prior_mean=np.ones(3)), V, "prior_mean must have shape"),
    (lambda: es.LinearBandit(actions=np.ones(3)), V, r"actions must have shape \(any, any\), got"),
    (lambda: es.LinearBandit(actions=[["1.5"]]), T, "actions must be an array of real numbers"),
    (lambda: es.LinearBandit(actions=[[1, 2], [3]]), T, "actions must be an array of real numbers"),
    (lambda: es.LinearBandit(actions=np.ones((0, 3))), V, "actions must have shape"),
    (lambda: es.LinearBandit(actions=[[1e30]]), V, r"actions must be finite and below 1e\+15"),
    (lambda: es.LinearBandit(dim=4, actions=np.ones((2, 3))), V, r"dim is 4, but .* \(2, 3\)"),
    (lambda: es.LinearBandit(arms=4, actions=np.ones((2, 3))), V, r"arms is 4, but .* \(2, 3\)"),
    (lambda: es.LinearBandit(actions=np.eye(2), fresh=True), V, "fresh actions are drawn"),
    (lambda: es.LinearBandit(4, 6, actions=lambda key, arms, dim: jnp.ones((dim, arms))).init(KEY),
     V, r"returned shape \(4, 6\), expected \(6, 4\)"),
    (lambda: es.NetworkBandit(3, 4, (5,)), T, "hidden must be a whole number"),
    (lambda: es.NetworkBandit(3, 4, outcomes=0, reward=jnp.sum), V, "outcomes must be at least 1"),
    (lambda: es.NetworkBandit(3, 4, outcomes=2), V, "give the reward function"),
    (lambda: es.NetworkBandit(3, 4, reward=jnp.sum), V, "a reward function needs `outcomes`"),
    (lambda: es.NetworkBandit(3, 4, outcomes=2, reward=3), T, "a reward must be a function"),
    (lambda: es.ContextualBandit(np.zeros(3), 2), V, "context must have shape"),
    (lambda: es.ContextualBandit("rows", 2), T, "context must be an array"),
    (lambda: es.ContextualBandit(lambda key, t: jnp.zeros((2, 2)), 2), V,
     r"returned shape \(2, 2\), expected \(features,\)"),
    (lambda: es.ContextualBandit(lambda key, t: jnp.zeros(2 if t else 3), 2), T, "not known then"),
    (lambda: es.ContextualBandit(lambda key, t: jnp.zeros(2), 2, ordered=True), V, "is told the"),
    (lambda: ENV.init(0), T, "a key made by jax.random.key"),
    (lambda: es.LinearBandit(2, 3).init(0), T, "a key made by jax.random.key"),
    (lambda: es.NetworkBandit(2, 3).init("seed"), T, "a key made by jax.random.key"),
    (lambda: es.worlds.LogisticBandit(2, 3).init(None), T, "a key made by jax.random.key"),
    # arms and lines
    (lambda: es.IndependentArms(2, 1e-9, 0, 1e9), V, "noise_std / prior_std must be"),
    (lambda: es.IndependentArms(2, prior_mean=3e38), V, "prior_mean must be between"),
    (lambda: es.IndependentArms(2, prior_mean=[0, 1]), T, "prior_mean must be a single"),
    (lambda: L.BetaArms(2, 0.05), V, "ones must be between 0.1 and .*, got 0.05"),
    (lambda: L.BetaArms(2, zeros=INF), V, "zeros must be finite, got inf"),
    (lambda: L.BetaArms(2, "1"), T, "ones must be a single real number, got '1'"),
    (lambda: es.EnsembleSampling(L.BetaArms(2), 3).init(KEY), V, r"nothing can be added.*Expon"),
    (lambda: es.Linear(2, prior_mean="a"), T, "prior_mean must be"),
    (lambda: es.Linear(2, prior_mean=10**400), V, "prior_mean must be a single real number, and"),
    (lambda: es.Linear(2, prior_mean=[10**400, 0]), V, "prior_mean must be an array of real"),
    (lambda: es.Linear(2, prior_mean=[[1, 2]]), V, r"shape \(2,\), got \(1, 2\)"),
    (lambda: es.Linear(3, prior_mean=[1, 2]), V, r"prior_mean must have shape \(3,\), got \(2,\)"),
    (lambda: es.Linear(2, prior_mean=[0, 1e14]), V, "prior_mean must be between"),
    (lambda: es.Linear(2, prior_mean=[1, NAN]), V, r"prior_mean must be finite, got nan at \[1\]"),
    (lambda: es.Linear(2, prior_mean=["1", "2"]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=[1, 1j]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=MASKED), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_mean=[1, None]), T, "prior_mean must be an array of real numbers"),
    (lambda: es.Linear(2, prior_cov=1.0), V, r"prior_cov must have shape \(2, 2\)"),
    (lambda: es.Linear(2, prior_cov=np.eye(3)), V, r"prior_cov must have shape \(2, 2\), got"),
    (lambda: es.Linear(2, prior_cov=np.diag([1, NAN])), V, "prior_cov must be finite"),
    (lambda: es.Linear(2, prior_cov=[[1, 2], [2, 1]]), V, "positive definite, .* is -1"),
    (lambda: es.Linear(2, prior_cov=np.zeros((2, 2))), V, "positive definite, .* is 0"),
    (lambda: es.Linear(2, prior_cov=[[1, 0.5], [0, 1]]), V, "symmetric, but .* by up to 0.5"),
    (lambda: es.Linear(2, prior_cov=[[1, 2], [3]]), T, "prior_cov must be an array of real"),
    (lambda: es.Linear(2, prior_cov=1e40 * np.eye(2)), V, "prior_cov must be finite and below"),
    (lambda: es.Linear(2, prior_cov=1e-30 * np.eye(2)), V, "standard deviation in prior"),
    (lambda: es.Linear(2, prior_std=1.0, prior_cov=np.eye(2)), V, "or prior_cov, not both"),
    (lambda: es.Linear(2, outcomes=0, reward=jnp.sum), V, "outcomes must be at least 1"),
    (lambda: es.Linear(2, outcomes=2), V, "give the reward function"),
    (lambda: es.Linear(2, reward=jnp.sum), V, "a reward function needs `outcomes`"),
    (lambda: es.Linear(2, outcomes=2, reward=3), T, "a reward must be a function .* got 3"),
    (lambda: es.Linear(2, outcomes=2, reward=es.Reward(jnp.sum, 3)), V, "takes 3"),
    (lambda: es.PerAction(ARM, 2), T, "PerAction takes a Linear learner"),
    (lambda: es.PerAction(es.Linear, 2), T, "PerAction takes a Linear learner"),
    (lambda: L.Blend(LINE), T, r"as in \(Linear\(5\), Linear\(2\)\), got Linear"),
    (lambda: L.Blend(()), T, r"as in \(Linear\(5\), Linear\(2\)\), got \(\)"),
    (lambda: L.Blend((ARM,)), T, "Blend takes Linear learners, got IndependentArms"),
    (lambda: L.Blend((es.Linear(2, 0.5),)), V, "without noise_std, got 0.5"),
    (lambda: L.Blend((VECTOR,)), V, "without outcomes, got 2"),
    (lambda: L.Blend((es.Linear(2, forgetting=0.9),)), V, "forgetting, got 0.9"),
    (lambda: L.Blend((es.Linear(2), LINE)), V, "takes all features, got one of 2 and one of 3"),
    (lambda: es.RandomFeatures(LINE, 3), V, "make 163, but the learner takes 3"),
    (lambda: es.RandomFeatures(ARM, 3), V, "make 163, but the learner takes None"),
    (lambda: es.RandomFeatures(es.Linear, 0), V, "dim must be at least 1, got 0"),
    (lambda: es.RandomFeatures(3, 3), T, "learner must have the methods .*; int has no"),
    (lambda: es.RandomFeatures(es.Linear, 2, seed=-1), V, "seed must be at least 0"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(1, 1, 1)]), V, "number must be at least 2"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(4, 0, 1)]), V, "frequency must be greater"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(4, 1, 0)]), V, "amplitude must be greater"),
    # networks
    (lambda: net(None), T, "make must be a function key -> module, got None"),
    (lambda: net(lambda: None), T, r"make must be .*for make\(jax.random.key\(0\)\) it raised"),
    (lambda: net(eqx.nn.MLP(3, "scalar", 4, 1, key=KEY)), T, "make must be a function key"),
    (lambda: net(lambda key: 3.0), T, "make must return a module that can be called, got 3.0"),
    (lambda: net(lambda key: jnp.sum), V, "no array of floats to learn"),
    (lambda: net(lambda key: Counts(jnp.arange(3))), V, "no array of floats to learn"),
    (lambda: net(dim=2), V, r"must take features of shape \(2,\), but it raised"),
    (lambda: net(learning_rate=optax.constant_schedule(1)), T, "learning_rate must be a single"),
    (lambda: net(optimizer=optax.adam(0.1)), T, r"give optax\.adam and learning_rate"),
    (lambda: net(optimizer="adam"), T, "optimizer must make a transformation"),
    (lambda: net(optimizer=lambda rate: None), T, "optimizer must make a transformation"),
    (lambda: net(loss="squared"), T, "loss must have .*; str has no"),
    (lambda: net(loss=L.CrossEntropy), T, r"loss must be an object: write CrossEntropy\(...\)"),
    (lambda: net(loss=NoMean()), T, "loss must have .*; NoMean has no mean"),
    (lambda: net(HEADS, outcomes=4, reward=jnp.sum, loss=NoExpected()), T, "has no expected"),
    (lambda: net(history=L.Window), T, r"history must be an object: write Window\(...\)"),
    (lambda: net(history=10), T, "history must have .*; int has no slot"),
    (lambda: net(outcomes=2, reward=jnp.sum), V, r"output of shape \(2,\), but it gives \(\)"),
    (lambda: net(HEADS), V, r"output of shape \(\), but it gives \(4,\)"),
    (lambda: net(HEADS, arms=3), V, r"output of shape \(3,\), but it gives \(4,\)"),
    (lambda: net(HEADS, arms=4, outcomes=4, reward=jnp.sum), V, "give outcomes .* or arms"),
    (lambda: net(reward=jnp.sum), V, "a reward function needs `outcomes`"),
    (lambda: net(HEADS, outcomes=4), V, "give the reward function"),
    (lambda: net(readout=None), T, "readout must be a function .* got None"),
    (lambda: GaussianMLP(2, [5]), T, r"hidden must be a tuple .* got \[5\]"),
    (lambda: GaussianMLP(2, (5, 0)), V, "hidden must be at least 1, got 0"),
    (lambda: GaussianMLP(2, (), "scalar"), T, "outputs must be a whole number"),
    (lambda: MLP([]), T, "weights must be a list of one array per layer"),
    (lambda: MLP(jnp.ones(3)), T, "weights must be a list of one array per layer"),
    (lambda: L.RandomisedPrior(3), T, "key -> module, got 3"),
    (lambda: L.RandomisedPrior(MAKE, start=3), T, "key -> module, got 3"),
    # rewards
    (lambda: es.Reward(None, 2), T, "a reward must be a function .* got None"),
    (lambda: es.Reward(jnp.sum, 0), V, "outcomes must be at least 1, got 0"),
    (lambda: es.Reward(jnp.sum, 2, 0), V, "draws must be at least 1, got 0"),
    (lambda: es.Reward(lambda y: y, 2), V, "one finite number .* it returned"),
    (lambda: es.Reward(lambda y: "a", 2), V, "one finite number .* it returned a"),
    (lambda: es.Reward(lambda y: None, 2), V, "one finite number .* it returned None"),
    (lambda: es.Reward(lambda y: 1 / y[0], 2), V, "one finite number .* it returned inf"),
    (lambda: es.Reward(lambda y: y @ jnp.ones(3), 2), V, "one finite .* it raised Type"),
    (lambda: es.Reward(lambda: 1.0, 2), V, "one finite number .* it raised TypeError"),
    (lambda: es.Reward(lambda y: 1j, 2), V, "one finite number"),
    # posteriors
    (lambda: es.Ensemble(ENV, 3), T, "learner must have .*; GaussianArms has no predict"),
    (lambda: es.Ensemble(es.Linear, 3), T, r"learner must be an object: write Linear\(...\)"),
    (lambda: es.Ensemble(LINE, 3, P.Poisson(), 2.0), V, "inflation must be 1 with the Poisson"),
    (lambda: P.Symmetric(P.Poisson()), V, "weights have no opposite: got Poisson"),
    (lambda: P.Symmetric(3), T, "perturbation must have"),
    (lambda: P.Anytime(LINE, 3, 4), V, "first must be at most 3, `most`, got 4"),
    (lambda: P.Anytime(es.Exact(LINE)), T, "learner must have the methods"),
    (lambda: A.UCB(P.Anytime(LINE), draws=63).upper(P.Anytime(LINE).init(KEY), jnp.eye(3)), V,
     "64 models cannot all be among 63 draws"),
    (lambda: P.Point(3), T, "learner must have .*; int has no center"),
    (lambda: es.Exact(TS), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.Exact(NET), T, "Network has no exact posterior; use Ensemble"),
    (lambda: P.Dropout(LINE, 0.5), T, "Dropout takes a Network, got Linear"),
    (lambda: P.Dropout(NET, 0.5, readout=3), T, "readout must be a function"),
    (lambda: P.Dropout(net(perceptron()), 0.5), V, "has no dropout"),
    (lambda: GaussianMLP(3, ())(KEY).masked(jnp.ones(3), KEY, 0.5, None), V, "hidden units"),
    (lambda: P.Laplace(LINE), T, "Laplace takes a Network, got Linear.*Exact"),
    (lambda: P.Laplace(CLICKS, "block"), V, "'full', 'last' or 'diagonal', got 'block'"),
    (lambda: P.Laplace(NET), V, "give the Network noise_std"),
    (lambda: P.NeuralLinear(LINE), T, "takes a Network, got Linear"),
    (lambda: P.NeuralLinear(CLICKS), V, "SquaredError"),
    (lambda: P.NeuralLinear(HEADED), V, "single output, got arms=4"),
    *((lambda posterior=posterior, make=make: posterior(net(make)), V, "linear in its last layer")
      for posterior in (P.NeuralLinear, lambda net: P.Laplace(net, "last"))
      for make in (together, perceptron(jnp.tanh), GaussianMLP(3, (5,), squash=True))),
    (lambda: P.Langevin(LINE), T, "takes a Network"),
    (lambda: P.Hypermodel(LINE), T, "takes a Network"),
    (lambda: P.Hypermodel(P.Hypermodel(NET).learner), V, "plain Network"),
    (lambda: P.Hypermodel(P.Dropout(NET, 0.5).learner), V, "plain Network"),
    (lambda: P.Hypermodel(net(L.RandomisedPrior(MAKE))), V,
     "Hypermodel draws all weights of a network, and this one has some that are never learned"),
    (lambda: P.BayesByBackprop(net(L.RandomisedPrior(MAKE))), V, "without RandomisedPrior"),
    (lambda: P.Epinet(net(perceptron())), T, "Network of an MLP"),
    (lambda: P.EnsemblePlus(3), T, "Linear or a Network, got 3"),
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
    (lambda: FIT.update(KEY, FIT.init(KEY), Action(3, jnp.ones(2)), 1.0), V, "between 0 and 2"),
    (lambda: FIT.values(KEY, FITTED, jnp.ones((3, 3)), 0), V, r"\(K >= 1, 2\), got"),
    (lambda: FIT.update(KEY, FITTED, Action(0, jnp.ones(3)), 1.0), V, r"must have shape \(2,\)"),
    # agents
    (lambda: A.Widening(es.Exact(LINE), 0.5), V, "most must be .* got 0.5"),
    (lambda: es.ThompsonSampling(ARM), T, "IndependentArms is a learner: write Thomp"),
    (lambda: es.ThompsonSampling(TS), T, "posterior must .*; ThompsonSampling has no sample"),
    (lambda: es.ThompsonSampling(es.Exact), T, r"posterior must be an object: write Exact\(...\)"),
    (lambda: es.ThompsonSampling(None), T, "posterior must have .*; NoneType has no"),
    (lambda: es.ThompsonSampling(es.Exact(ARM), 1e3), T, "draws must be a whole number"),
    (lambda: es.EnsembleSampling(ARM, 3, P.Poisson), T, r"write Poisson\(...\)"),
    (lambda: es.EnsembleSampling(ARM, 3, "poisson"), T, "perturbation must have .*; str has"),
    (lambda: es.EnsembleSampling(ARM, 3, False), T, "perturbation must have .*; bool has"),
    (lambda: es.Greedy(TS), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.EpsilonGreedy(TS, 0.1), T, "learner must have .*; ThompsonSampling has no center"),
    (lambda: eps(None), T, "epsilon must be a single real number, got None"),
    (lambda: eps(A.Annealed), T, r"number or a schedule: write Annealed\(...\)"),
    (lambda: eps(lambda t: 2.0), V, "after 0 observations must be between 0 and 1, got 2"),
    (lambda: eps(lambda t: jnp.where(t < 999, 0.1, -1.0)), V, "after 1000 observations"),
    (lambda: eps(lambda t: jnp.where(t == 1, 1.1, 0.1)), V, "after 1 observations .* got 1.1"),
    (lambda: eps(lambda t: jnp.ones(2)), T, "must be a single real number"),
    (lambda: eps(lambda t: "often"), T, "must be a single real number, got 'often'"),
    (lambda: eps(lambda t: jnp.nan), V, "epsilon after 0 observations must be finite"),
    (lambda: eps(lambda t: 0.5 if t < 9 else 0.1), T, r"jnp.where\(t < 100, 0.5, 0.1\), not `if`"),
    (lambda: eps(lambda t: float(t) * 0.0), T, "jax.numpy in place of numpy and math"),
    (lambda: A.UCB(es.Linear), T, "must be an object: write Linear"),
    (lambda: A.SquareCB(LINE, A.SquareRoot), T, r"write SquareRoot\(...\)"),
    (lambda: A.Persistent(LINE), T, "posterior must have the methods .*; Linear has no"),
    (lambda: A.Persistent(es.Exact(LINE)), V, r"fixed set .* Got Exact\(Linear\(dim=3"),
    (lambda: as_agent(LINE), T, r"wrap a learner as in EnsembleSampling\(.*\); got Linear"),
    (lambda: as_agent(es.Uniform), T, r"write Uniform\(...\), not the class"),
    (lambda: as_agent(None), T, "expected an agent .* or a posterior"),
    (lambda: fact(LINE, "amrs"), V, "there is no fact 'amrs'; there are arms"),
    # descriptions
    (lambda: describe(object()), T, "cannot describe <object"),
    (lambda: describe({"a": {1, 2}}), T, r"cannot describe \{1, 2\}"),
    (lambda: describe(b"bytes"), T, "cannot describe b'bytes'"),
    (lambda: describe(LOOP), V, "a list that contains itself"),
]
# fmt: on


def observe(learner, index=0, x=(1.0,) * 3, y=1.0, noise=None):
    """Learn one outcome, of which one part is wrong."""
    action, noise = Action(index, np.asarray(x)), Noise() if noise is None else noise
    return lambda: learner.observe(KEY, *learner.init(KEY), action, y, noise)


def predict(learner, *shape):
    return lambda: learner.predict(*learner.init(KEY), jnp.ones(shape))


# fmt: off
OBSERVATIONS = [
    (predict(ARM, 3, 1), V, "has 4 arms, but 3 are on offer"),
    (predict(LINE, 2, 2), V, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (predict(LINE, 3), V, r"shape \(K >= 1, 3\), got \(3,\)"),
    (predict(PER, 3, 3), V, r"shape \(4, 3\), got \(3, 3\)"),
    (predict(PER, 4, 2), V, r"shape \(4, 3\), got \(4, 2\)"),
    (predict(BLEND, 2, 2), V, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (predict(WAVES, 2, 2), V, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (predict(NET, 0, 3), V, r"shape \(K >= 1, 3\), got \(0, 3\)"),
    (predict(HEADED, 1, 3), V, r"shape \(4, 3\), got \(1, 3\)"),
    (observe(ARM, y=np.ones(2)), V, r"learns a single number, got \(2,\)"),
    (observe(ARM, index=4), V, "index must be between 0 and 3, got 4"),
    (observe(ARM, index=-1), V, "index must be between 0 and 3, got -1"),
    (observe(ARM, index=1.5), T, "index must be a whole number, got 1.5"),
    (predict(BETA, 3, 1), V, "BetaArms has 2 arms, but 3 are on offer"),
    (observe(BETA, index=2), V, "index must be between 0 and 1, got 2"),
    (observe(BETA, y=np.ones(2)), V, r"BetaArms learns a single number, got shape \(2,\)"),
    (observe(BETA, y=1.5), V, "BetaArms learns outcomes between 0 and 1, got 1.5"),
    (observe(BETA, y=NAN), V, "BetaArms learns outcomes between 0 and 1, got nan"),
    (observe(LINE, y=np.ones(2)), V, r"outcome must have shape \(\), got \(2,\)"),
    (observe(LINE, x=np.ones(2)), V, r"features must have shape \(3,\), got \(2,\)"),
    (observe(LINE, x=np.ones((1, 3))), V, r"shape \(3,\), got \(1, 3\)"),
    (observe(LINE, x=[1, NAN, 1]), V, r"features must be finite, got nan at \[1\]"),
    (observe(LINE, x=[1, 1, 1e30]), V, r"features must be .* got 1e\+30 at \[2\]"),
    (observe(LINE, x=["a", "b", "c"]), T, "features must be an array of real numbers"),
    (observe(VECTOR, y=1.0), V, r"outcome must have shape \(2,\), got \(\)"),
    (observe(VECTOR, y=np.ones(3)), V, r"outcome must have shape \(2,\), got \(3,\)"),
    (observe(PER, index=4), V, "index must be between 0 and 3, got 4"),
    (observe(PER, y=np.ones(2)), V, r"outcome must have shape \(\), got \(2,\)"),
    (observe(BLEND, y=np.ones(2)), V, r"outcome must have shape \(\), got \(2,\)"),
    (observe(BLEND, x=np.ones(2)), V, r"features must have shape \(3,\), got \(2,\)"),
    (observe(WAVES, x=np.ones(2)), V, r"features must have shape \(3,\), got \(2,\)"),
    (observe(NET, y=np.ones(1)), V, r"outcome must have shape \(\), got \(1,\)"),
    (observe(NET, x=np.ones(1)), V, r"features must have shape \(3,\), got \(1,\)"),
    (observe(NET, noise=Noise(jnp.ones(()))), V, "noise has shift, .* for none"),
    (observe(NET, noise=Noise(None, jnp.ones(()))), V, "noise has weight, .* for none"),
    (observe(HEADED, index=4), V, "index must be between 0 and 3, got 4"),
    (observe(CLICKS, y=2.0), V, "CrossEntropy learns outcomes between 0 and 1, got 2.0"),
    (observe(CLICKS, y=-0.5), V, "CrossEntropy learns outcomes between 0 and 1"),
    (observe(CLICKS, y=NAN), V, "CrossEntropy learns outcomes between 0 and 1, got nan"),
]
# fmt: on


TREES = es.ThompsonSampling(es.EstimatorEnsemble(Ridge, 2))
LABELS = es.ThompsonSampling(es.EstimatorEnsemble(DecisionTreeClassifier, 2))
AGENTS = {
    "exact": TS,
    "arms": es.EnsembleSampling(ARM, 3),
    "linear": es.EnsembleSampling(es.Linear(4), 3),
    "epsilon": es.EpsilonGreedy(es.Linear(4), 0.1),
    "uniform": es.Uniform(),
    "estimators": TREES,
}
ALL, LEARN = [*AGENTS], ["exact", "arms", "linear", "epsilon", "estimators"]
ARMED, LINEAR, TREE = ["exact", "arms"], ["linear", "epsilon"], ["estimators"]
GOOD = Action(jnp.int32(1), jnp.ones(4))


def start(name):
    return AGENTS[name].init(KEY)


def act(features, available=None, key=KEY):
    return lambda name: AGENTS[name].act(key, start(name), features, available)


def chances(features, available=None, **given):
    return lambda name: AGENTS[name].probabilities(start(name), features, available, **given)


def update(action=GOOD, outcome=1.0, key=KEY):
    return lambda name: AGENTS[name].update(key, start(name), action, outcome)


def did(index, features=(1.0,) * 4):
    return update(Action(index, features))


# (which agents, call, error, pattern)
# fmt: off
CALLS = [
    # keys
    (ALL, lambda name: AGENTS[name].init(0), T, r"a key made by jax.random.key\(seed\), got 0"),
    (ALL, lambda name: AGENTS[name].init(np.zeros(2, np.uint32)), T, "a key made by jax.random"),
    (ALL, act(jnp.eye(4), key=0), T, "a key made by jax.random.key"),
    (ALL, update(key=7), T, "a key made by jax.random.key"),
    (LEARN, chances(jnp.eye(4), key=3), T, "a key made by"),
    # what is on offer
    (ALL, act(jnp.ones(4)), V, r"shape \(K, d\), got \(4,\)"),
    (ALL, act(jnp.ones((0, 4))), V, "action features must have"),
    (ALL, act([[1.0, 2.0], [3.0]]), T, "array of real numbers"),
    (ALL, act([["a"] * 4] * 4), T, "array of real numbers"),
    (ALL, act(None), T, "action features must be an array"),
    (ALL, act(jnp.eye(4) * NAN), V, "features must be finite"),
    (ALL, act(np.eye(4) * 1e30), V, r"finite and below 1e\+15"),
    (ALL, act(np.eye(4) * 1j), T, "array of real numbers"),
    (ALL, chances(jnp.ones(4)), V, r"shape \(K, d\), got"),
    (ALL, chances([[INF] * 4]), V, "features must be finite"),
    (ARMED, act(jnp.eye(5)), V, "has 4 arms, but 5"),
    (LINEAR, act(jnp.eye(5)), V, r"K >= 1, 4\)"),
    (TREE, act(np.ones((4, 0))), V, "need features"),
    # which of it can be had
    (ALL, act(jnp.eye(4), np.zeros(4, bool)), V, "available must leave at least one action"),
    (ALL, act(jnp.eye(4), np.ones(3, bool)), V, r"available must have shape \(4,\), got"),
    (ALL, act(jnp.eye(4), [1, 0, 1, 1]), T, "available must be true or false for every action"),
    (ALL, act(jnp.eye(4), True), V, r"available must have shape \(4,\), got \(\)"),
    (ALL, chances(jnp.eye(4), np.zeros(4, bool)), V, "available must leave at least one action"),
    (ALL, chances(jnp.eye(4), np.ones(5, bool)), V, r"available must have shape \(4,\), got"),
    (ALL, chances(jnp.eye(4), ["yes"] * 4), T, "available must be true or false for every action"),
    # what was done
    (ALL, update((1, jnp.ones(4))), T, "must be Action"),
    (ALL, update(1), T, r"Action\(index, features\), got"),
    (ARMED, did(-1), V, "index must be between 0 and 3, got -1"),
    (ARMED, did(4), V, "index must be between 0 and 3, got 4"),
    (ARMED, did(1.5), T, "index must be a whole number, got 1.5"),
    (ARMED, did(None), T, "index must be a whole number, got None"),
    (LINEAR, did(0, jnp.ones(5)), V, r"shape \(4,\), got \(5,\)"),
    (LINEAR, did(0, [1, 2, NAN, 4]), V, r"finite, got nan at \[2\]"),
    (LINEAR, did(0, ["1"] * 4), T, "must be an array of real numbers"),
    (TREE, did(0, np.ones((2, 2))), V, "features must have shape"),
    (TREE, did(0, [NAN, 1]), V, "features must be finite"),
    # what came of it
    (ALL, update(outcome=NAN), V, "an outcome must be finite, got nan"),
    (ALL, update(outcome=np.float32(INF)), V, "an outcome must be finite, got inf"),
    (ALL, update(outcome=jnp.float32(-INF)), V, "an outcome must be finite, got -inf"),
    (ALL, update(outcome=3e38), V, r"an outcome must be below 1e\+15, got 3e\+38"),
    (ALL, update(outcome=-1e15), V, "an outcome must be below .* larger unit"),
    (ALL, update(outcome="1.0"), T, "an outcome must be a number or numbers, got '1.0'"),
    (ALL, update(outcome=None), T, "an outcome must be a number or numbers, got None"),
    (ALL, update(outcome=1j), T, "an outcome must be a number or numbers"),
    (ALL, update(outcome=[[1], [2, 3]]), T, "an outcome must be a number or numbers"),
    (ALL, update(outcome=MASKED), T, "an outcome must be a number or numbers"),
    (ALL, update(outcome=np.ma.masked), T, "an outcome must be a number or numbers"),
    (LEARN, update(outcome=np.ones(2)), V, r"(outcome|number).* got .*\(2,\)"),
    (LEARN, update(outcome=np.matrix([[1.0]])), V, r"(outcome|number).* got .*\(1, 1\)"),
    (LEARN, update(outcome=[]), V, r"(outcome|number).* got .*\(0,\)"),
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


@pytest.mark.parametrize(
    ("make", "name", "kind"),
    [(m, name, kind) for m, all_ in PARAMETERS for kind in all_ for name in all_[kind].split()],
    ids=spelled,
)
def test_a_parameter_refuses_what_no_parameter_of_its_kind_accepts(make, name, kind):
    for value, error, pattern in WRONG[kind]:
        refused(lambda value=value: make(**{name: value}), error, f"{name}.* {pattern}")


@pytest.mark.parametrize(("call", "error", "pattern"), SETTINGS + OBSERVATIONS, ids=spelled)
def test_a_mistake_is_refused_by_what_was_given_and_what_is_accepted(call, error, pattern):
    refused(call, error, pattern)


@pytest.mark.parametrize(
    ("name", "call", "error", "pattern"),
    [(name, *row) for names, *row in CALLS for name in names],
    ids=spelled,
)
def test_an_agent_refuses_what_it_cannot_use(name, call, error, pattern):
    refused(lambda: call(name), error, pattern)


def test_labels_and_clicks_that_cannot_be_are_refused_before_a_bandit_records_them():
    for agent, wrong, pattern in (
        (LABELS, 0.5, "learn outcomes 0 and 1, got 0.5"),
        (TREES, [1.0, 2.0], "estimators learn a single number"),
        (es.EnsembleSampling(CLICKS, 2), 7.0, "outcomes between 0 and 1, got 7"),
    ):
        bandit = es.Bandit(agent, seed=0)
        decision = bandit.choose(np.eye(3))
        with pytest.raises(ValueError, match=pattern):
            bandit.learn(decision.id, wrong)
        assert bandit.summary().outcomes == 0
        bandit.learn(decision.id, True)
        assert len(bandit.log()["outcome"]) == 1


@pytest.mark.parametrize("name", LEARN)
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
    state = agent.update(KEY, state, Action(index, np.asarray(features)[index]), outcome)
    assert np.isfinite(agent.probabilities(state, features)).all()


def test_what_looks_like_a_mistake_and_is_none_is_accepted():
    P.NeuralLinear(net(perceptron()))  # a module whose last layer is linear
    P.Laplace(net(L.RandomisedPrior(MAKE)), "last")


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
