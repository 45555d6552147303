"""Learners, networks, losses and rewards refuse what they cannot use, by name and value.

A row is (call, error, words of its message); a new mistake is a new line.
"""

# Wrong on purpose:
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es

DIM, ARMS = 3, 4
NAN, INF = float("nan"), float("inf")
KEY, NONE = jax.random.key(0), es.core.Noise()
Row = tuple[Callable[[], Any], type[Exception], str]

ARM, LINE = es.IndependentArms(ARMS), es.Linear(DIM)
PER, VECTOR = es.PerAction(LINE, ARMS), es.Linear(DIM, outcomes=2, reward=jnp.sum)
WAVES = es.RandomFeatures(es.Linear, DIM)
MAKE = es.networks.GaussianMLP(DIM, (5,))
HEADS = es.networks.GaussianMLP(DIM, (5,), ARMS)
NET, HEADED = es.Network(MAKE, DIM, 6), es.Network(HEADS, DIM, 6, arms=ARMS)
CLICKS = es.Network(MAKE, DIM, 6, 0.5, loss=es.learners.CrossEntropy())


def net(make: Any = MAKE, dim: Any = DIM, capacity: Any = 6, **settings: Any) -> Any:
    return lambda: es.Network(make, dim, capacity, **settings)


def observe(learner: Any, index: Any = 0, x: Any = (1.0,) * DIM, y: Any = 1.0, noise=NONE) -> Any:
    """Learn one outcome, of which one part is wrong."""
    x = x if x is None else np.asarray(x)
    return lambda: learner.observe(KEY, *learner.init(KEY), es.core.Action(index, x), y, noise)


def predict(learner: Any, *shape: int) -> Any:
    return lambda: learner.predict(*learner.init(KEY), jnp.ones(shape))


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


ARMS_AND_LINES: list[Row] = [
    (lambda: es.IndependentArms(0), ValueError, "arms must be at least 1, got 0"),
    (lambda: es.IndependentArms(2.0), TypeError, "arms must be a whole number, got 2.0"),
    (lambda: es.IndependentArms("2"), TypeError, "arms must be a whole number, got '2'"),
    (lambda: es.IndependentArms(None), TypeError, "arms must be a whole number, got None"),
    (lambda: es.IndependentArms(2, noise_std=0), ValueError, "noise_std must be greater than 0"),
    (lambda: es.IndependentArms(2, noise_std=-1), ValueError, "noise_std .* 0, got -1"),
    (lambda: es.IndependentArms(2, noise_std=NAN), ValueError, "noise_std must be finite, got nan"),
    (lambda: es.IndependentArms(2, noise_std=1e-25), ValueError, "noise_std .* 1e-12 and 1e.12"),
    (lambda: es.IndependentArms(2, noise_std=1e20), ValueError, "noise_std .* 1e-12 and 1e.12"),
    (lambda: es.IndependentArms(2, noise_std="1"), TypeError, "noise_std must be a single real"),
    (lambda: es.IndependentArms(2, noise_std=True), TypeError, "noise_std .* number, got True"),
    (lambda: es.IndependentArms(2, noise_std=[1, 1]), TypeError, "noise_std must be a single real"),
    (lambda: es.IndependentArms(2, prior_std=1e20), ValueError, "prior_std .* between 1e-12"),
    (lambda: es.IndependentArms(2, prior_std=1e-20), ValueError, "prior_std .* between 1e-12"),
    (lambda: es.IndependentArms(2, prior_std=INF), ValueError, "prior_std must be finite, got inf"),
    (lambda: es.IndependentArms(2, 1e-9, 0, 1e9), ValueError, "noise_std / prior_std must be"),
    (lambda: es.IndependentArms(2, prior_mean=3e38), ValueError, "prior_mean must be between"),
    (lambda: es.IndependentArms(2, prior_mean=NAN), ValueError, "prior_mean must be finite"),
    (lambda: es.IndependentArms(2, prior_mean=[0, 1]), TypeError, "prior_mean must be a single"),
    (lambda: es.IndependentArms(2, forgetting=0), ValueError, "forgetting must be greater than 0"),
    (lambda: es.IndependentArms(2, forgetting=1.1), ValueError, "forgetting must be .* got 1.1"),
    (lambda: es.IndependentArms(2, forgetting="0.9"), TypeError, "forgetting must be a single"),
    (lambda: es.IndependentArms(2, forgetting=True), TypeError, "forgetting must be a single"),
    (lambda: es.Linear(0), ValueError, "dim must be at least 1, got 0"),
    (lambda: es.Linear(-2), ValueError, "dim must be at least 1, got -2"),
    (lambda: es.Linear(2.5), TypeError, "dim must be a whole number, got 2.5"),
    (lambda: es.Linear(np.ones(3)), TypeError, "dim must be a whole number"),
    (lambda: es.Linear(2, noise_std=1e-25), ValueError, "noise_std must be between 1e-12"),
    (lambda: es.Linear(2, noise_std=1j), TypeError, "noise_std must be a single real number"),
    (lambda: es.Linear(2, prior_std=1e20), ValueError, "prior_std must be between 1e-12 and 1e.12"),
    (lambda: es.Linear(2, prior_std=[1, 2]), TypeError, "prior_std must be a single real number"),
    (lambda: es.Linear(2, prior_mean="a"), TypeError, "prior_mean must be"),
    (lambda: es.Linear(2, prior_mean=[[1, 2]]), ValueError, r"shape \(2,\), got \(1, 2\)"),
    (lambda: es.Linear(2, prior_mean=[0, 1e14]), ValueError, "prior_mean must be between"),
    (lambda: es.Linear(2, prior_mean=1e40), ValueError, "prior_mean must be"),
    (lambda: es.Linear(2, prior_cov=1.0), ValueError, r"prior_cov must have shape \(2, 2\)"),
    (lambda: es.Linear(2, prior_cov=[1, 1]), ValueError, r"prior_cov must have shape \(2, 2\)"),
    (lambda: es.Linear(2, prior_cov=1e-30 * np.eye(2)), ValueError, "standard deviation in prior"),
    (lambda: es.Linear(2, prior_cov=np.diag([1, NAN])), ValueError, "prior_cov must be finite"),
    (lambda: es.Linear(2, prior_std=1.0, prior_cov=np.eye(2)), ValueError, "not both"),
    (lambda: es.Linear(2, outcomes=0, reward=jnp.sum), ValueError, "outcomes must be at least 1"),
    (lambda: es.Linear(2, outcomes=2.0, reward=jnp.sum), TypeError, "outcomes must be a whole"),
    (lambda: es.Linear(2, outcomes=2), ValueError, "give the reward function"),
    (lambda: es.Linear(2, reward=jnp.sum), ValueError, "a reward function needs `outcomes`"),
    (lambda: es.Linear(2, outcomes=2, reward=3), TypeError, "a reward must be a function .* got 3"),
    (lambda: es.Linear(2, outcomes=2, reward=es.Reward(jnp.sum, 3)), ValueError, "takes 3"),
    (lambda: es.Linear(2, forgetting=0.0), ValueError, "forgetting must be greater than 0, got 0"),
    (lambda: es.Linear(2, forgetting=NAN), ValueError, "forgetting must be finite, got nan"),
    (lambda: es.Linear(2, forgetting=[0.9, 0.9]), TypeError, "forgetting must be a single real"),
    (lambda: es.PerAction(ARM, 2), TypeError, "PerAction takes a Linear learner"),
    (lambda: es.PerAction(es.Linear, 2), TypeError, "PerAction takes a Linear learner"),
    (lambda: es.PerAction(LINE, 0), ValueError, "arms must be at least 1, got 0"),
    (lambda: es.PerAction(LINE, None), TypeError, "arms must be a whole number, got None"),
    (lambda: es.learners.Blend(LINE), TypeError, r"as in \(Linear\(5\), Linear\(2\)\), got Linear"),
    (lambda: es.learners.Blend(()), TypeError, r"as in \(Linear\(5\), Linear\(2\)\), got \(\)"),
    (
        lambda: es.learners.Blend((ARM,)),
        TypeError,
        "Blend takes Linear learners, got IndependentArms",
    ),
    (lambda: es.learners.Blend((es.Linear,)), TypeError, "Blend takes Linear learners, got"),
    (lambda: es.learners.Blend((es.Linear(2, 0.5),)), ValueError, "without noise_std, got 0.5"),
    (lambda: es.learners.Blend((VECTOR,)), ValueError, "without outcomes, got 2"),
    (lambda: es.learners.Blend((es.Linear(2, forgetting=0.9),)), ValueError, "forgetting, got 0.9"),
    (
        lambda: es.learners.Blend((es.Linear(2), es.Linear(3))),
        ValueError,
        "takes all features, got one of 2 and one of 3",
    ),
    (
        lambda: es.learners.Blend((LINE,), trust=0),
        ValueError,
        "trust must be greater than 0, got 0",
    ),
    (lambda: es.learners.Blend((LINE,), faith=-1), ValueError, "faith must be .* got -1"),
    (lambda: es.RandomFeatures(LINE, DIM), ValueError, "make 163, but the learner takes 3"),
    (lambda: es.RandomFeatures(ARM, DIM), ValueError, "make 163, but the learner takes None"),
    (lambda: es.RandomFeatures(es.Linear, 0), ValueError, "dim must be at least 1, got 0"),
    (lambda: es.RandomFeatures(3, DIM), TypeError, "learner must have the methods .*; int has no"),
    (lambda: es.RandomFeatures(es.Linear, 2, seed=-1), ValueError, "seed must be at least 0"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(1, 1, 1)]), ValueError, "number must be at least 2"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(4, 0, 1)]), ValueError, "frequency must be greater"),
    (lambda: es.RandomFeatures(es.Linear, 2, [(4, 1, 0)]), ValueError, "amplitude must be greater"),
    (
        lambda: es.agents.Persistent(LINE),
        TypeError,
        "posterior must have the methods .*; Linear has no",
    ),
    (
        lambda: es.agents.Persistent(es.Exact(LINE)),
        ValueError,
        r"fixed set .* Got Exact\(Linear\(dim=3",
    ),
    (lambda: es.agents.Persistent(es.Exact(ARM), tries=-1), ValueError, "tries must be .* got -1"),
    (
        lambda: es.agents.Persistent(es.Exact(ARM), chance=1.5),
        ValueError,
        "chance must be .* got 1.5",
    ),
    (
        lambda: es.agents.Persistent(es.Exact(ARM), draws=0),
        ValueError,
        "draws must be at least 1, got 0",
    ),
]

NETWORKS: list[Row] = [
    (net(None), TypeError, "make must be a function key -> module, got None"),
    (net(lambda: None), TypeError, r"make must be .*for make\(jax.random.key\(0\)\) it raised"),
    (net(eqx.nn.MLP(DIM, "scalar", 4, 1, key=KEY)), TypeError, "make must be a function key"),
    (net(lambda key: 3.0), TypeError, "make must return a module that can be called, got 3.0"),
    (net(lambda key: None), TypeError, "make must return a module that can be called, got None"),
    (net(lambda key: jnp.sum), ValueError, "no array of floats to learn"),
    (net(lambda key: Counts(jnp.arange(DIM))), ValueError, "no array of floats to learn"),
    (net(dim=0), ValueError, "dim must be at least 1, got 0"),
    (net(dim=2), ValueError, r"must take features of shape \(2,\), but it raised"),
    (net(capacity=0), ValueError, "capacity must be at least 1, got 0"),
    (net(capacity=1e3), TypeError, "capacity must be a whole number, got 1000.0"),
    (net(noise_std=0.0), ValueError, "noise_std must be greater than 0, got 0"),
    (net(noise_std=1e-25), ValueError, "noise_std must be between 1e-12 and 1e.12"),
    (net(prior_std=-1), ValueError, "prior_std must be greater than 0, got -1"),
    (net(prior_std=1e20), ValueError, "prior_std must be between 1e-12 and 1e.12"),
    (net(learning_rate=0), ValueError, "learning_rate must be greater than 0, got 0"),
    (net(learning_rate=optax.constant_schedule(1)), TypeError, "learning_rate must be a single"),
    (net(steps=0), ValueError, "steps must be at least 1, got 0"),
    (net(steps=2.0), TypeError, "steps must be a whole number, got 2.0"),
    (net(batch=0), ValueError, "batch must be at least 1, got 0"),
    (net(batch=True), TypeError, "batch must be a whole number, got True"),
    (net(optimizer=optax.adam(0.1)), TypeError, r"give optax\.adam and learning_rate"),
    (net(optimizer="adam"), TypeError, "optimizer must make a transformation"),
    (net(optimizer=lambda rate: None), TypeError, "optimizer must make a transformation"),
    (net(loss="squared"), TypeError, "loss must have .*; str has no"),
    (
        net(loss=es.learners.CrossEntropy),
        TypeError,
        r"loss must be an object: write CrossEntropy\(...\)",
    ),
    (net(loss=NoMean()), TypeError, "loss must have .*; NoMean has no mean"),
    (net(HEADS, outcomes=4, reward=jnp.sum, loss=NoExpected()), TypeError, "has no expected"),
    (net(history=es.learners.Window), TypeError, r"history must be an object: write Window\(...\)"),
    (net(history=10), TypeError, "history must have .*; int has no slot"),
    (net(outcomes=2, reward=jnp.sum), ValueError, r"output of shape \(2,\), but it gives \(\)"),
    (net(HEADS), ValueError, r"output of shape \(\), but it gives \(4,\)"),
    (net(HEADS, arms=3), ValueError, r"output of shape \(3,\), but it gives \(4,\)"),
    (net(HEADS, arms=0), ValueError, "arms must be at least 1, got 0"),
    (net(HEADS, arms=4, outcomes=4, reward=jnp.sum), ValueError, "give outcomes .* or arms"),
    (net(reward=jnp.sum), ValueError, "a reward function needs `outcomes`"),
    (net(HEADS, outcomes=4), ValueError, "give the reward function"),
    (net(dropout=-0.1), ValueError, "dropout must be between 0 and 1, got -0.1"),
    (net(dropout="half"), TypeError, "dropout must be a single real number"),
    (net(readout=None), TypeError, "readout must be a function .* got None"),
    (lambda: es.networks.GaussianMLP(0, ()), ValueError, "dim must be at least 1, got 0"),
    (lambda: es.networks.GaussianMLP(2, 5), TypeError, r"hidden must be a tuple .* got 5"),
    (lambda: es.networks.GaussianMLP(2, [5]), TypeError, r"hidden must be a tuple .* got \[5\]"),
    (lambda: es.networks.GaussianMLP(2, (5, 0)), ValueError, "hidden must be at least 1, got 0"),
    (
        lambda: es.networks.GaussianMLP(2, (5.0,)),
        TypeError,
        "hidden must be a whole number, got 5.0",
    ),
    (lambda: es.networks.GaussianMLP(2, (), 0), ValueError, "outputs must be at least 1, got 0"),
    (lambda: es.networks.GaussianMLP(2, (), "scalar"), TypeError, "outputs must be a whole number"),
    (
        lambda: es.networks.GaussianMLP(2, (), prior_std=0),
        ValueError,
        "prior_std must be greater than 0",
    ),
    (
        lambda: es.networks.GaussianMLP(2, (), prior_std=1e20),
        ValueError,
        "prior_std must be between",
    ),
    (
        lambda: es.networks.GaussianMLP(2, (), slope=-0.1),
        ValueError,
        "slope must be between 0 and 1",
    ),
    (
        lambda: es.networks.GaussianMLP(2, (), slope=None),
        TypeError,
        "slope must be a single real number",
    ),
    (
        lambda: es.networks.GaussianMLP(2, (), squash="yes"),
        TypeError,
        "squash must be True or False",
    ),
    (lambda: es.networks.MLP([]), TypeError, "weights must be a list of one array per layer"),
    (
        lambda: es.networks.MLP(jnp.ones(3)),
        TypeError,
        "weights must be a list of one array per layer",
    ),
]

REWARDS: list[Row] = [
    (lambda: es.Reward(None, 2), TypeError, "a reward must be a function .* got None"),
    (lambda: es.Reward(jnp.sum, 0), ValueError, "outcomes must be at least 1, got 0"),
    (lambda: es.Reward(jnp.sum, 1.0), TypeError, "outcomes must be a whole number, got 1.0"),
    (lambda: es.Reward(jnp.sum, 2, 0), ValueError, "draws must be at least 1, got 0"),
    (lambda: es.Reward(jnp.sum, 2, None), TypeError, "draws must be a whole number, got None"),
    (lambda: es.Reward(lambda y: y, 2), ValueError, "one finite number .* it returned"),
    (lambda: es.Reward(lambda y: "a", 2), ValueError, "one finite number .* it returned a"),
    (lambda: es.Reward(lambda y: None, 2), ValueError, "one finite number .* it returned None"),
    (lambda: es.Reward(lambda y: 1 / y[0], 2), ValueError, "one finite number .* it returned inf"),
    (lambda: es.Reward(lambda y: y @ jnp.ones(3), 2), ValueError, "one finite .* it raised Type"),
    (lambda: es.Reward(lambda: 1.0, 2), ValueError, "one finite number .* it raised TypeError"),
    (lambda: es.Reward(lambda y: 1j, 2), ValueError, "one finite number"),
]

METHODS: list[Row] = [
    (predict(ARM, 3, 1), ValueError, "has 4 arms, but 3 are on offer"),
    (predict(LINE, 2, 2), ValueError, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (predict(LINE, 3), ValueError, r"shape \(K >= 1, 3\), got \(3,\)"),
    (predict(PER, 3, DIM), ValueError, r"shape \(4, 3\), got \(3, 3\)"),
    (predict(PER, 4, 2), ValueError, r"shape \(4, 3\), got \(4, 2\)"),
    (predict(es.learners.Blend((LINE,)), 2, 2), ValueError, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (predict(WAVES, 2, 2), ValueError, r"shape \(K >= 1, 3\), got \(2, 2\)"),
    (observe(WAVES, x=np.ones(2)), ValueError, r"features must have shape \(3,\), got \(2,\)"),
    (
        observe(es.learners.Blend((LINE,)), y=np.ones(2)),
        ValueError,
        r"outcome must have shape \(\), got \(2,\)",
    ),
    (predict(NET, 0, DIM), ValueError, r"shape \(K >= 1, 3\), got \(0, 3\)"),
    (predict(NET, 2, 4), ValueError, r"shape \(K >= 1, 3\), got \(2, 4\)"),
    (predict(HEADED, 1, DIM), ValueError, r"shape \(4, 3\), got \(1, 3\)"),
    (observe(ARM, y=np.ones(2)), ValueError, r"learns a single number, got \(2,\)"),
    (observe(ARM, index=4), ValueError, "index must be between 0 and 3, got 4"),
    (observe(ARM, index=-1), ValueError, "index must be between 0 and 3, got -1"),
    (observe(ARM, index=1.5), TypeError, "index must be a whole number, got 1.5"),
    (observe(LINE, y=np.ones(2)), ValueError, r"outcome must have shape \(\), got \(2,\)"),
    (observe(LINE, x=np.ones(2)), ValueError, r"features must have shape \(3,\), got \(2,\)"),
    (observe(LINE, x=np.ones((1, 3))), ValueError, r"shape \(3,\), got \(1, 3\)"),
    (observe(LINE, x=[1, NAN, 1]), ValueError, r"features must be finite, got nan at \[1\]"),
    (observe(LINE, x=[1, 1, 1e30]), ValueError, r"features must be .* got 1e\+30 at \[2\]"),
    (observe(LINE, x=["a", "b", "c"]), TypeError, "features must be an array of real numbers"),
    (observe(VECTOR, y=1.0), ValueError, r"outcome must have shape \(2,\), got \(\)"),
    (observe(VECTOR, y=np.ones(3)), ValueError, r"outcome must have shape \(2,\), got \(3,\)"),
    (observe(PER, index=4), ValueError, "index must be between 0 and 3, got 4"),
    (observe(PER, y=np.ones(2)), ValueError, r"outcome must have shape \(\), got \(2,\)"),
    (observe(PER, x=np.ones(4)), ValueError, r"features must have shape \(3,\), got \(4,\)"),
    (observe(NET, y=np.ones(1)), ValueError, r"outcome must have shape \(\), got \(1,\)"),
    (observe(NET, x=np.ones(1)), ValueError, r"features must have shape \(3,\), got \(1,\)"),
    (observe(NET, x=[INF, 1, 1]), ValueError, r"features must be finite, got inf at \[0\]"),
    (
        observe(NET, noise=es.core.Noise(jnp.ones(()))),
        ValueError,
        "noise has shift, .* for none",
    ),
    (
        observe(NET, noise=es.core.Noise(None, jnp.ones(()))),
        ValueError,
        "noise has weight, .* for none",
    ),
    (observe(HEADED, index=4), ValueError, "index must be between 0 and 3, got 4"),
    (observe(CLICKS, y=2.0), ValueError, "CrossEntropy learns outcomes between 0 and 1, got 2.0"),
    (observe(CLICKS, y=-0.5), ValueError, "CrossEntropy learns outcomes between 0 and 1"),
    (observe(CLICKS, y=NAN), ValueError, "CrossEntropy learns outcomes between 0 and 1, got nan"),
    (lambda: CLICKS.check_outcome(3), ValueError, "outcomes between 0 and 1, got 3"),
    (lambda: NET.check_outcome([1.0, 2.0]), ValueError, r"shape \(\), got \(2,\)"),
]


@pytest.mark.parametrize(("call", "error", "message"), ARMS_AND_LINES + NETWORKS + REWARDS)
def test_settings_are_refused_by_what_was_given_and_what_is_accepted(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("call", "error", "message"), METHODS)
def test_what_a_learner_cannot_learn_or_value_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_click_beyond_one_is_refused_before_a_bandit_records_it():
    bandit = es.Bandit(es.EnsembleSampling(CLICKS, 2), seed=0)
    decision = bandit.choose(np.ones((2, DIM)))
    with pytest.raises(ValueError, match="outcomes between 0 and 1, got 7"):
        bandit.learn(decision.id, 7.0)
    bandit.learn(decision.id, True)
    assert len(bandit.log()["outcome"]) == 1
