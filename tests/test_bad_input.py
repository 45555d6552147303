"""Mistakes raise errors that say what was given and what is accepted, before anything changes."""

# Wrong on purpose:
# pyright: reportArgumentType=false

from importlib import import_module

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es

LEARNER, ENV = es.IndependentArms(4), es.GaussianArms(4)
TS = es.ThompsonSampling(es.Exact(LEARNER))
NAN, INF = float("nan"), float("inf")


def run(agent=TS, env=ENV, periods=5, realizations=2, **options):
    return lambda: es.simulate(agent, env, periods, realizations, **options)


CONFIGURATIONS = [
    # sizes
    (lambda: es.GaussianArms(0), ValueError, "arms must be at least 1, got 0"),
    (lambda: es.GaussianArms(-3), ValueError, "arms must be at least 1, got -3"),
    (lambda: es.GaussianArms(2.5), TypeError, "arms must be a whole number, got 2.5"),
    (lambda: es.GaussianArms(True), TypeError, "arms must be a whole number, got True"),
    (lambda: es.IndependentArms(0), ValueError, "arms must be at least 1, got 0"),
    (lambda: es.Linear(0), ValueError, "dim must be at least 1, got 0"),
    (lambda: es.Linear("3"), TypeError, "dim must be a whole number, got '3'"),
    (lambda: es.LinearBandit(0, 3), ValueError, "dim must be at least 1, got 0"),
    (lambda: es.LinearBandit(3, 0), ValueError, "arms must be at least 1, got 0"),
    (lambda: es.LinearBandit(3), ValueError, "give dim and arms, or the actions"),
    (lambda: es.Ensemble(LEARNER, 0), ValueError, "members must be at least 1, got 0"),
    (lambda: es.EnsembleSampling(LEARNER, -1), ValueError, "members must be at least 1, got -1"),
    (lambda: es.EnsembleSampling(LEARNER, 1.0), TypeError, "members must be a whole number"),
    (lambda: es.ThompsonSampling(es.Exact(LEARNER), 0), ValueError, "draws must be at least 1"),
    # variances and other numbers
    (lambda: es.GaussianArms(3, noise_std=0), ValueError, "noise_std must be greater than 0"),
    (
        lambda: es.GaussianArms(3, prior_std=-1),
        ValueError,
        "prior_std must be greater than 0, got -1",
    ),
    (lambda: es.GaussianArms(3, prior_mean=NAN), ValueError, "prior_mean must be finite, got nan"),
    (lambda: es.IndependentArms(3, noise_std=INF), ValueError, "noise_std must be finite, got inf"),
    (lambda: es.IndependentArms(3, prior_std=0.0), ValueError, "prior_std must be greater than 0"),
    (
        lambda: es.Linear(3, noise_std=-0.1),
        ValueError,
        "noise_std must be greater than 0, got -0.1",
    ),
    (lambda: es.Linear(3, prior_std=0), ValueError, "prior_std must be greater than 0, got 0"),
    (
        lambda: es.Linear(3, noise_std="1"),
        TypeError,
        "noise_std must be a single real number, got '1'",
    ),
    (lambda: es.Linear(3, noise_std=[1, 2]), TypeError, "noise_std must be a single real number"),
    (
        lambda: es.LinearBandit(3, 4, noise_std=0),
        ValueError,
        "noise_std must be greater than 0, got 0",
    ),
    (lambda: es.Constant(1.5), ValueError, "epsilon must be between 0 and 1, got 1.5"),
    (
        lambda: es.EpsilonGreedy(LEARNER, -0.1),
        ValueError,
        "epsilon must be between 0 and 1, got -0.1",
    ),
    (lambda: es.Annealed(0), ValueError, "k must be greater than 0, got 0"),
    (
        lambda: es.EnsembleSampling(LEARNER, 3, inflation=0.0),
        ValueError,
        "inflation must be greater",
    ),
    (
        lambda: es.EnsembleSampling(LEARNER, 3, es.Poisson(), 2.0),
        ValueError,
        "inflation must be 1 with the Poisson bootstrap, .*, got 2",
    ),
    # shapes and covariances
    (
        lambda: es.Linear(3, prior_mean=[1, 2]),
        ValueError,
        r"prior_mean must have shape \(3,\), got \(2,\)",
    ),
    (
        lambda: es.Linear(2, prior_mean=[1, NAN]),
        ValueError,
        r"prior_mean must be finite, got nan at \[1\]",
    ),
    (
        lambda: es.Linear(2, prior_cov=np.eye(3)),
        ValueError,
        r"prior_cov must have shape \(2, 2\), got \(3, 3\)",
    ),
    (
        lambda: es.Linear(2, prior_cov=[[1, 2], [2, 1]]),
        ValueError,
        "positive definite, .* eigenvalue is -1",
    ),
    (
        lambda: es.Linear(2, prior_cov=np.zeros((2, 2))),
        ValueError,
        "positive definite, .* eigenvalue is 0",
    ),
    (
        lambda: es.Linear(2, prior_cov=[[1, 0.5], [0, 1]]),
        ValueError,
        "symmetric, but .* differ by up to 0.5",
    ),
    (
        lambda: es.Linear(2, prior_std=1.0, prior_cov=np.eye(2)),
        ValueError,
        "prior_std or prior_cov, not both",
    ),
    (lambda: es.LinearBandit(2, 3, prior_cov=-np.eye(2)), ValueError, "positive definite"),
    (
        lambda: es.LinearBandit(2, 3, prior_mean=np.ones(3)),
        ValueError,
        "prior_mean must have shape",
    ),
    (
        lambda: es.LinearBandit(actions=np.ones(3)),
        ValueError,
        r"actions must have shape \(any, any\), got \(3,\)",
    ),
    (
        lambda: es.LinearBandit(actions=[["a"]]),
        TypeError,
        "actions must be an array of real numbers",
    ),
    (
        lambda: es.LinearBandit(dim=4, actions=np.ones((2, 3))),
        ValueError,
        r"dim is 4, but .* \(2, 3\)",
    ),
    (
        lambda: es.LinearBandit(arms=4, actions=np.ones((2, 3))),
        ValueError,
        r"arms is 4, but .* \(2, 3\)",
    ),
    (lambda: es.LinearBandit(actions=np.eye(2), fresh=True), ValueError, "fresh actions are drawn"),
    # parts in the wrong place
    (
        lambda: es.ThompsonSampling(LEARNER),
        TypeError,
        "posterior must have .*; IndependentArms has no sample",
    ),
    (lambda: es.Ensemble(ENV, 3), TypeError, "learner must have .*; GaussianArms has no predict"),
    (lambda: es.Greedy(TS), TypeError, "learner must have .*; ThompsonSampling has no center"),
    (lambda: es.Exact(TS), TypeError, "ThompsonSampling has no exact posterior; use Ensemble"),
]


@pytest.mark.parametrize(("make", "error", "message"), CONFIGURATIONS)
def test_a_configuration_is_refused_by_what_was_given_and_what_is_accepted(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("seed", range(20))
def test_a_singular_covariance_is_refused_though_rounding_may_make_it_look_definite(seed):
    v = np.random.default_rng(seed).normal(size=(4, 3))
    with pytest.raises(ValueError, match="prior_cov must be positive definite"):
        es.Linear(4, prior_cov=v @ v.T)


class Broken(es.GaussianArms):
    """Gives an outcome or a mean reward that is not a number."""

    where: str = eqx.field(static=True, default="outcome")

    def offer(self, key, world):
        return es.Round(jnp.eye(self.arms), world * (NAN if self.where == "means" else 1))

    def outcome(self, key, world, action):
        return world[action.index] + (NAN if self.where == "outcome" else 0)


class Growing(es.Uniform):
    def init(self, key):
        return jnp.zeros(3)

    def update(self, key, state, action, outcome):
        return jnp.zeros(4)


class Named(es.Uniform):
    name: str = "a name"  # must be static


RUNS = [
    (run(Named()), TypeError, r"not a number must be .*eqx.field\(static=True\), got 'a name'"),
    (run(periods=0), ValueError, "periods must be at least 1, got 0"),
    (run(periods=5.0), TypeError, "periods must be a whole number, got 5.0"),
    (run(realizations=-2), ValueError, "realizations must be at least 1, got -2"),
    (run(seed=-1), ValueError, "seed must be at least 0, got -1"),
    (run(seed=2**32), ValueError, "seed must be less than 4294967296, got 4294967296"),
    (run(chunk=0), ValueError, "chunk must be at least 1, got 0"),
    (run(keep=[5]), ValueError, "cannot keep period 5 of 5"),
    (run(periods=2**31, coupled=True), ValueError, r"arms x periods < 2\^32, got 4 x 2147483648"),
    (run(env=es.GaussianArms(5)), ValueError, "has 4 arms, but 5 .*are on offer"),
    (
        run(es.ThompsonSampling(es.Exact(es.Linear(3))), es.LinearBandit(2, 4)),
        ValueError,
        r"action features must have shape \(K >= 1, 3\), got \(4, 2\)",
    ),
    (run(ENV, TS), TypeError, "agent must have .*; GaussianArms has no act"),
    (run(es.Exact(LEARNER)), TypeError, "agent must have .*; Exact has no act"),
    (run(Growing()), ValueError, r"update must keep the shapes .*before \(\(3,\)"),
]


@pytest.mark.parametrize(("start", "error", "message"), RUNS)
def test_a_run_is_refused_before_anything_is_compiled(start, error, message, monkeypatch):
    monkeypatch.setattr(import_module("ensemble_sampling.simulate"), "_program", None)
    with pytest.raises(error, match=message):
        start()


def test_a_checkpoint_that_is_a_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match="checkpoint must be a folder"):
        run(checkpoint=path)()
    assert path.read_text() == "mine"


@pytest.mark.parametrize("where", ["outcome", "means"])
def test_an_environment_that_gives_nonsense_is_named(where):
    with pytest.raises(ValueError, match=r"Broken gave .* not finite in realization \d+ of seed 7"):
        run(es.Uniform(), Broken(4, where=where), seed=7)()


AGENTS = [
    TS,
    es.EnsembleSampling(LEARNER, 3),
    es.EnsembleSampling(es.Linear(4), 3),
    es.EpsilonGreedy(es.Linear(4), 0.1),
    es.Uniform(),
]
KEY = jax.random.key(0)
GOOD = es.Action(1, jnp.ones(4))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda a: a.label)
@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (NAN, ValueError, "an outcome must be finite, got nan"),
        (np.float32(INF), ValueError, "an outcome must be finite, got inf"),
        (jnp.float32(-INF), ValueError, "an outcome must be finite, got -inf"),
        ("won", TypeError, "an outcome must be a number or numbers, got 'won'"),
    ],
)
def test_an_outcome_that_is_not_finite_is_refused(agent, outcome, error, message):
    with pytest.raises(error, match=message):
        agent.update(KEY, agent.init(KEY), GOOD, outcome)


@pytest.mark.parametrize("agent", AGENTS[:4], ids=lambda a: a.label)
def test_an_outcome_of_the_wrong_shape_is_refused(agent):
    with pytest.raises(ValueError, match=r"(outcome|number).* got .*\(2,\)"):
        agent.update(KEY, agent.init(KEY), GOOD, np.ones(2))


@pytest.mark.parametrize("index", [-1, 4])
@pytest.mark.parametrize("agent", AGENTS[:2], ids=lambda a: a.label)
def test_an_arm_that_does_not_exist_is_refused(agent, index):
    with pytest.raises(ValueError, match=f"index must be between 0 and 3, got {index}"):
        agent.update(KEY, agent.init(KEY), es.Action(jnp.int32(index), jnp.ones(4)), 1.0)


@pytest.mark.parametrize("agent", AGENTS[2:4], ids=lambda a: a.label)
def test_an_actions_features_are_checked(agent):
    state = agent.init(KEY)
    with pytest.raises(ValueError, match=r"features must have shape \(4,\), got \(5,\)"):
        agent.update(KEY, state, es.Action(0, jnp.ones(5)), 1.0)
    with pytest.raises(ValueError, match=r"features must be finite, got nan at \[2\]"):
        agent.update(KEY, state, es.Action(0, jnp.ones(4).at[2].set(NAN)), 1.0)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda a: a.label)
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.zeros(4, bool), ValueError, "available must leave at least one action"),
        (np.ones(3, bool), ValueError, r"available must have shape \(4,\), got \(3,\)"),
        (np.ones(4), TypeError, "available must be true or false for every action"),
    ],
)
def test_an_availability_mask_is_checked(agent, mask, error, message):
    state = agent.init(KEY)
    with pytest.raises(error, match=message):
        agent.act(KEY, state, jnp.eye(4), mask)
    with pytest.raises(error, match=message):
        agent.probabilities(state, jnp.eye(4), mask)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda a: a.label)
@pytest.mark.parametrize("key", [0, np.zeros(2, np.uint32)])
def test_a_seed_is_not_a_key(agent, key):
    with pytest.raises(TypeError, match=r"expected a key made by jax.random.key\(seed\), got"):
        agent.init(key)
