"""What every posterior, agent and environment must do. Adding one is one line in a table."""

# ruff: noqa: F722 (jaxtyping's shapes are not forward references)

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jax import Array
from jaxtyping import Float, jaxtyped
from sklearn.tree import DecisionTreeRegressor

import ensemble_sampling as es
from ensemble_sampling import linalg, testing
from ensemble_sampling import posteriors as P
from ensemble_sampling.core import fact
from ensemble_sampling.simulation import realization
from ensemble_sampling.testing import act, called, learned, outcome, update

ARMS, DIM = 4, 3
ARM = es.IndependentArms(ARMS, noise_std=0.7)
LINE = es.Linear(DIM, noise_std=0.7)
EACH = es.PerAction(LINE, ARMS)
PAIR = es.Linear(DIM, noise_std=0.7, outcomes=2, reward=jnp.max)
BLEND = es.learners.Blend((es.Linear(DIM), es.Linear(1)))
WAVES = (es.learners.Waves(6, 1.0, 2.0),)
MAKE, CLICKS = es.networks.GaussianMLP(DIM, (5,)), es.learners.CrossEntropy()


def network(outputs=None, make=None, **settings):
    make = es.networks.GaussianMLP(DIM, (5,), outputs) if make is None else make
    return es.Network(make, DIM, capacity=4, batch=4, learning_rate=0.01, **settings)


POSTERIORS: dict[str, es.core.Posterior] = {
    "exact arms": es.Exact(ARM),
    "exact clicks": es.Exact(es.learners.BetaArms(ARMS, 0.5, 2.0)),
    "exact linear": es.Exact(LINE),
    "exact linear per action": es.Exact(EACH),
    "exact linear of unknown scale": es.Exact(es.Linear(DIM)),
    "exact blend": es.Exact(BLEND),
    "exact random features": es.Exact(es.RandomFeatures(es.Linear, DIM, WAVES)),
    "point linear": P.Point(LINE),
    "ensemble of arms": es.Ensemble(ARM, 5),
    "ensemble of arms that forget": es.Ensemble(es.IndependentArms(ARMS, forgetting=0.9), 5),
    "exponential ensemble of clicks": es.Ensemble(es.learners.BetaArms(ARMS), 5, P.Exponential()),
    "ensemble of linear": es.Ensemble(LINE, 5, inflation=1.5),
    "ensemble of linear that forget": es.Ensemble(es.Linear(DIM, forgetting=0.9), 5),
    "ensemble of linear, vector outcomes": es.Ensemble(PAIR, 5),
    "ensemble of vectors of unknown scale": es.Ensemble(
        es.Linear(DIM, outcomes=2, reward=jnp.max), 5
    ),
    "ensemble of forgetting per action": es.Ensemble(
        es.PerAction(es.Linear(DIM, forgetting=0.9), ARMS), 5
    ),
    "ensemble of blends per action": es.Ensemble(es.PerAction(BLEND, ARMS), 5),
    "symmetric ensemble of linear": es.Ensemble(LINE, 5, P.Symmetric()),
    "poisson ensemble of linear": es.Ensemble(LINE, 5, P.Poisson()),
    "poisson ensemble of unknown scale": es.Ensemble(
        es.PerAction(es.Linear(DIM), ARMS), 5, P.Poisson()
    ),
    "ensemble of networks": es.Ensemble(network(), 3),
    "ensemble of networks with a reservoir": es.Ensemble(
        network(history=es.learners.Reservoir()), 3
    ),
    "ensemble of networks, vector outcomes": es.Ensemble(network(2, outcomes=2, reward=jnp.max), 3),
    "ensemble of networks for clicks": es.Ensemble(network(loss=CLICKS), 3),
    "ensemble of networks, an output per action": es.Ensemble(network(ARMS, arms=ARMS), 3),
    "bernoulli ensemble of networks": es.Ensemble(network(), 3, P.Bernoulli()),
    "randomised priors": es.Ensemble(network(make=es.learners.RandomisedPrior(MAKE)), 3),
    "growing ensemble of linear": P.Anytime(LINE, 7, 2, 1.5),
    "growing ensemble of networks": P.Anytime(network(), 4, 1, 1.0, P.Symmetric()),
    "dropout": P.Dropout(network(), 0.5),
    "coherent dropout": P.Dropout(network(), 0.5, coherent=True),
    "laplace, full": P.Laplace(network(noise_std=0.7), "full"),
    "laplace, last layer": P.Laplace(network(2, outcomes=2, reward=jnp.max), "last"),
    "laplace, diagonal": P.Laplace(network(ARMS, arms=ARMS), "diagonal"),
    "neural-linear": P.NeuralLinear(network()),
    "langevin": P.Langevin(network(), chains=3),
    "hypermodel": P.Hypermodel(network(), 3, 2),
    "hypermodel, vector outcomes": P.Hypermodel(network(2, outcomes=2, reward=jnp.max), 3, 2),
    "epinet": P.Epinet(network(loss=CLICKS), 2, (3,)),
    "epinet, an output per action": P.Epinet(network(ARMS, arms=ARMS), 2, (3,), perturbed=False),
    "ensemble++": P.EnsemblePlus(network(), 4),
    "ensemble++ of linear": P.EnsemblePlus(LINE, 5),
    "ensemble++ of linear, coordinates": P.EnsemblePlus(LINE, 5, continuous=False),
    "bayes by backprop": P.BayesByBackprop(network(), indices=2),
    "trees": es.EstimatorEnsemble(partial(DecisionTreeRegressor, max_depth=2), 4, start=3),
}
AGENTS: dict[str, es.core.Agent] = {
    **{name: es.ThompsonSampling(posterior) for name, posterior in POSTERIORS.items()},
    "epsilon-greedy": es.EpsilonGreedy(LINE, 0.2),
    "annealed": es.EpsilonGreedy(ARM, es.agents.Annealed(3)),
    "a schedule of one's own": es.EpsilonGreedy(EACH, lambda t: 1 / (2.0 + t)),
    "persistent": es.agents.Persistent(es.Ensemble(es.PerAction(BLEND, ARMS), 5)),
    "restarting per action": es.ThompsonSampling(
        P.Restarting(es.Ensemble(es.PerAction(BLEND, ARMS), 5))
    ),
    "widening": es.agents.Widening(es.Ensemble(LINE, 5, inflation=0.5), 2.0),
    "upper confidence bounds": es.agents.UCB(LINE, 2.0),
    "upper confidence bounds of an ensemble": es.agents.UCB(es.Ensemble(LINE, 5), 1.5),
    "inverse gap weighting": es.agents.SquareCB(LINE),
    "uniform": es.Uniform(),
}


class Shop(eqx.Module):
    """Actions come and go: in every period some can be had, and never all."""

    few: bool = eqx.field(static=True, default=False)

    def init(self, key):
        return jax.random.normal(key, (ARMS,))

    def offer(self, key, world):
        order = jax.random.permutation(key, ARMS)
        return es.core.Round(jnp.eye(ARMS), world, order < (1 if self.few else 2))

    def outcome(self, key, world, action):
        return world[action.index] + jax.random.normal(key)


ENVIRONMENTS: dict[str, es.core.Environment] = {
    "gaussian arms": es.GaussianArms(ARMS, 0.5, 1.0, 2.0),
    "linear": es.LinearBandit(DIM, ARMS),
    "linear, given actions": es.LinearBandit(actions=np.eye(DIM)),
    "linear, fresh actions": es.LinearBandit(DIM, ARMS, fresh=True),
    "clicks of arms": es.worlds.BernoulliArms(ARMS, 0.5, 2.0),
    "wandering arms": es.worlds.RandomWalkArms(ARMS),
    "contexts in order": es.ContextualBandit(np.eye(DIM), ARMS, ordered=True),
    "neuron": es.worlds.NeuronBandit(DIM, ARMS, noise_std=1.0),
    "network": es.NetworkBandit(DIM, ARMS, hidden=5, noise_std=1.0),
    "network, vector outcomes": es.NetworkBandit(DIM, ARMS, 5, outcomes=2, reward=jnp.sum),
    "network, fresh actions": es.NetworkBandit(DIM, ARMS, hidden=5, noise_std=1.0, fresh=True),
    "logistic": es.worlds.LogisticBandit(DIM, ARMS),
    "logistic, fresh actions": es.worlds.LogisticBandit(DIM, ARMS, fresh=True),
    "actions that come and go": Shop(),
    "labelled data": es.Classification(np.eye(ARMS)[:, :DIM], np.arange(ARMS), flips=0.2),
    "a log": es.evaluation.Logged(
        es.Log(
            np.arange(40) % ARMS,
            np.sin(np.arange(40.0)),
            np.full(40, 0.25),
            context=np.cos(np.arange(120.0)).reshape(40, DIM),
        )
    ),
}

FEATURES = jnp.asarray(np.random.default_rng(0).normal(size=(ARMS, DIM)), float)

values = jax.jit(lambda posterior, key, belief: posterior.values(key, belief, FEATURES, 7))
ALL = jnp.ones(ARMS, bool)
KEYS = jax.random.split(jax.random.key(8), testing.CHOICES)


def on_host(agent) -> bool:
    return fact(agent, "host")


def chosen(agent, keys, state) -> np.ndarray:
    return testing.chosen(agent, keys, state, FEATURES, ALL)


def action(index):
    return es.core.Action(jnp.int32(index), FEATURES[index])


@pytest.fixture(params=AGENTS, scope="module")
def case(request):
    """(agent, its states at the start and after every one of a few updates)."""
    agent = AGENTS[request.param]
    return agent, learned(agent, FEATURES)


def compilations(*jitted) -> list[int]:
    return [f._cache_size() for f in jitted]


def beliefs(agent, state) -> np.ndarray:
    """What a state says: the models' values of all actions."""
    if isinstance(agent, es.Uniform):
        return np.zeros(ARMS)
    key, state = jax.random.key(0), agent.belief(state)
    return np.asarray(called(values, agent.posterior, key, state))


def test_updating_keeps_the_states_structure_shapes_and_types_and_loses_nothing(case):
    testing.check_states(*case)


def test_jit_traces_act_and_update_once_whatever_the_settings(case):
    agent, states = case
    if on_host(agent):
        return  # never traced
    other, key = jax.tree.map(lambda x: x * 0.9 if isinstance(x, float) else x, agent), KEYS[0]
    act(agent, KEYS, states[0], FEATURES, ALL)
    before = compilations(act, update)  # compiled once each by now
    for who in (agent, other):
        for t, state in enumerate(states):
            act(who, KEYS, state, FEATURES, ALL)
            update(who, jax.random.fold_in(key, t), state, action(1), outcome(agent, t))
    assert compilations(act, update) == before


def test_the_same_key_gives_the_same_result(case):
    agent, states = case
    testing.check_repeatable(agent, states[-1], FEATURES)
    assert np.array_equal(chosen(agent, KEYS, states[-1]), chosen(agent, KEYS, states[-1]))


def test_an_update_changes_the_new_state_and_not_the_old(case):
    agent, states = case
    before = [beliefs(agent, state) for state in states]
    for state in states:
        called(update, agent, jax.random.key(9), state, action(2), outcome(agent, 0.3))
    assert all(map(np.array_equal, before, (beliefs(agent, state) for state in states)))
    if not isinstance(agent, es.Uniform):
        assert not np.array_equal(before[0], before[-1])


def kind(agent):
    """Rows of one kind differ by settings alone."""
    posterior = getattr(agent, "posterior", None)
    return type(agent), type(posterior), type(getattr(posterior, "learner", None))


FIRST = {kind(agent): agent for agent in reversed(AGENTS.values())}


def test_one_decision_at_a_time_is_what_runs_compiled(case):
    agent, states = case
    if on_host(agent) or FIRST[kind(agent)] is not agent:
        return  # runs in no other way; or one of its kind has shown it
    state = states[-1]
    index = agent.act(KEYS[6], state, FEATURES, ALL)
    assert index.shape == ()
    assert index == chosen(agent, KEYS, state)[6]
    given = (KEYS[6], state, action(index), outcome(agent, 0.5))
    eager, compiled = agent.update(*given), update(agent, *given)
    for one, two in zip(jax.tree.leaves(eager), jax.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


LAPACK = {
    (): "ensemble of networks",
    ("geqrf", "orgqr"): "ensemble of forgetting per action",
    ("geqrf", "orgqr", "trsm"): "neural-linear",
    ("potrf",): "laplace, last layer",
}
"""A row for every set of LAPACK's functions that rows call: `every_kind` runs these side by side.
For a new set add one, and run `tests/test_side_by_side.py`."""


def test_mapped_over_realizations_it_calls_lapack_for_one_matrix_at_a_time(case):
    """Side by side, programs with batches of matrices wait for each other for ever."""
    agent, states = case
    if on_host(agent):
        return  # never mapped

    def period(key, state):
        index = agent.act(key, state, FEATURES)
        chances = agent.probabilities(state, FEATURES)
        known = fact(getattr(agent, "posterior", agent), "mean_and_std")
        bounds = known(state, FEATURES) if isinstance(agent, es.ThompsonSampling) else None
        return agent.update(key, state, action(index), outcome(agent, 0.3)), chances, bounds

    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[-2:])
    lowered = jax.jit(jax.vmap(period)).lower(KEYS[:2], both)
    assert not linalg.in_batches(lowered), "factorise by `linalg`, not by `jnp.linalg`"
    uses = tuple(sorted({*re.findall(r"@lapack_s(\w+)_ffi", lowered.as_text())}))
    assert uses in LAPACK, "a new set of functions: add this row to LAPACK, which says why"


@pytest.mark.parametrize("mask", [(1, 1, 1, 1), (1, 0, 1, 1)], ids=["all", "masked"])
def test_probabilities_sum_to_one_and_are_how_often_actions_are_chosen(case, mask):
    agent, states = case
    testing.check_probabilities(agent, states[-1], FEATURES, jnp.asarray(mask, bool))


@jaxtyped(typechecker=beartype)
def check_values(
    values: Float[np.ndarray, "models arms"],
    sample: Float[Array, " arms"] | Float[jax.ShapeDtypeStruct, " arms"],
) -> None:
    assert np.isfinite(values).all()


def test_a_sample_is_a_model_that_values_every_action(case):
    agent, states = case
    if not isinstance(agent, es.ThompsonSampling):
        return  # the others do not act on a sample
    model = lambda: agent.posterior.sample(KEYS[0], states[-1])(FEATURES)  # noqa: E731
    check_values(beliefs(agent, states[-1]), model() if on_host(agent) else jax.eval_shape(model))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_offers_actions_and_pays_their_mean_rewards(name):
    before = compilations(testing.init, testing.offer)
    testing.check(ENVIRONMENTS[name])
    after = compilations(testing.init, testing.offer)
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1]


@pytest.mark.parametrize("coupled", [False, True], ids=["", "coupled"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_can_be_simulated(name, coupled):
    """Traced but not compiled: `simulate` maps and loops over exactly this."""
    run = partial(realization, es.Uniform(), ENVIRONMENTS[name])
    keys = jax.random.split(jax.random.key(0), 2)
    regret, tally = jax.eval_shape(jax.vmap(lambda key: run(key, 5, coupled, False)), keys)
    assert regret.shape == (2, 5)
    assert tally["nonfinite"].shape == (2,)


def test_regret_is_to_the_best_of_the_actions_that_can_be_had():
    """With a single action to be had there is nothing to regret; with two, something."""
    for few in (True, False):
        run = jax.jit(lambda key, few=few: realization(es.Uniform(), Shop(few), key, 20, False)[0])
        regret = np.asarray(run(jax.random.key(0)))
        assert (regret >= 0).all()
        assert regret.any() == (not few)
