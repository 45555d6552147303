"""What every posterior, agent and environment must do. Adding one is one line in a table."""

# ruff: noqa: F722 (jaxtyping's shapes are not forward references)

from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jax import Array
from jaxtyping import Bool, Float, Int, jaxtyped
from sklearn.tree import DecisionTreeRegressor

import ensemble_sampling as es
from ensemble_sampling import linalg
from ensemble_sampling.agents.widening import Widening
from ensemble_sampling.core import fact
from ensemble_sampling.simulation import realization

ARMS, DIM, UPDATES, CHOICES = 4, 3, 6, 4000
ARM = es.IndependentArms(ARMS, noise_std=0.7)
LINE = es.Linear(DIM, noise_std=0.7)
EACH = es.PerAction(LINE, ARMS)
PAIR = es.Linear(DIM, noise_std=0.7, outcomes=2, reward=jnp.max)
BLEND = es.learners.Blend((es.Linear(DIM), es.Linear(1)))
WAVES = (es.learners.Waves(6, 1.0, 2.0),)


MAKE = es.networks.GaussianMLP(DIM, (5,))


def network(outputs=None, make=None, **settings):
    make = es.networks.GaussianMLP(DIM, (5,), outputs) if make is None else make
    return es.Network(make, DIM, capacity=4, batch=4, learning_rate=0.01, **settings)


POSTERIORS: dict[str, es.core.Posterior] = {
    "exact arms": es.Exact(ARM),
    "exact linear": es.Exact(LINE),
    "exact linear per action": es.Exact(EACH),
    "exact linear, vector outcomes": es.Exact(PAIR),
    "exact arms that forget": es.Exact(es.IndependentArms(ARMS, forgetting=0.9)),
    "point linear": es.posteriors.Point(LINE),
    "ensemble of arms": es.Ensemble(ARM, 5),
    "ensemble of arms that forget": es.Ensemble(es.IndependentArms(ARMS, forgetting=0.9), 5),
    "ensemble of linear": es.Ensemble(LINE, 5, inflation=1.5),
    "ensemble of linear that forget": es.Ensemble(es.Linear(DIM, forgetting=0.9), 5),
    "ensemble of linear, vector outcomes": es.Ensemble(PAIR, 5),
    "rademacher ensemble of linear": es.Ensemble(LINE, 5, es.posteriors.Rademacher()),
    "unperturbed ensemble of linear": es.Ensemble(LINE, 5, es.posteriors.Unperturbed()),
    "poisson ensemble of linear": es.Ensemble(LINE, 5, es.posteriors.Poisson()),
    "bernoulli ensemble of arms": es.Ensemble(ARM, 5, es.posteriors.Bernoulli()),
    "ensemble of linear per action": es.Ensemble(EACH, 5),
    "ensemble of forgetting per action": es.Ensemble(
        es.PerAction(es.Linear(DIM, forgetting=0.9), ARMS), 5
    ),
    "poisson ensemble per action": es.Ensemble(EACH, 5, es.posteriors.Poisson()),
    "exact arms of unknown scale": es.Exact(es.IndependentArms(ARMS)),
    "exact linear of unknown scale": es.Exact(es.Linear(DIM)),
    "ensemble of vectors of unknown scale": es.Ensemble(
        es.Linear(DIM, outcomes=2, reward=jnp.max), 5
    ),
    "poisson ensemble of unknown scale": es.Ensemble(
        es.PerAction(es.Linear(DIM), ARMS), 5, es.posteriors.Poisson()
    ),
    "exact blend": es.Exact(BLEND),
    "ensemble of blends per action": es.Ensemble(es.PerAction(BLEND, ARMS), 5),
    "exact random features": es.Exact(es.RandomFeatures(es.Linear, DIM, WAVES)),
    "ensemble of networks": es.Ensemble(network(), 3),
    "ensemble of networks with a reservoir": es.Ensemble(
        network(history=es.learners.Reservoir()), 3
    ),
    "ensemble of networks, vector outcomes": es.Ensemble(network(2, outcomes=2, reward=jnp.max), 3),
    "ensemble of networks for clicks": es.Ensemble(network(loss=es.learners.CrossEntropy()), 3),
    "ensemble of networks, an output per action": es.Ensemble(network(ARMS, arms=ARMS), 3),
    "bernoulli ensemble of networks": es.Ensemble(network(), 3, es.posteriors.Bernoulli()),
    "dropout": es.posteriors.Dropout(network(), 0.5),
    "coherent dropout": es.posteriors.Dropout(network(), 0.5, coherent=True),
    "symmetric ensemble of linear": es.Ensemble(LINE, 5, es.posteriors.Symmetric()),
    "growing ensemble of linear": es.posteriors.Anytime(LINE, 7, 2, 1.5),
    "growing ensemble of networks": es.posteriors.Anytime(
        network(), 4, 1, 1.0, es.posteriors.Symmetric()
    ),
    "growing ensemble for clicks": es.posteriors.Anytime(
        network(loss=es.learners.CrossEntropy()), 4, 2, 0.5
    ),
    "laplace, full": es.posteriors.Laplace(network(noise_std=0.7), "full"),
    "laplace, full, clicks": es.posteriors.Laplace(
        network(loss=es.learners.CrossEntropy(), noise_std=0.5)
    ),
    "laplace, last layer": es.posteriors.Laplace(network(2, outcomes=2, reward=jnp.max), "last"),
    "laplace, diagonal": es.posteriors.Laplace(network(ARMS, arms=ARMS), "diagonal"),
    "neural-linear": es.posteriors.NeuralLinear(network()),
    "langevin": es.posteriors.Langevin(network(), chains=3),
    "randomised priors": es.Ensemble(network(make=es.learners.RandomisedPrior(MAKE)), 3),
    "hypermodel": es.posteriors.Hypermodel(network(), 3, 2),
    "hypermodel, vector outcomes": es.posteriors.Hypermodel(
        network(2, outcomes=2, reward=jnp.max), 3, 2
    ),
    "epinet": es.posteriors.Epinet(network(loss=es.learners.CrossEntropy()), 2, (3,)),
    "epinet, an output per action": es.posteriors.Epinet(
        network(ARMS, arms=ARMS), 2, (3,), perturbed=False
    ),
    "ensemble++": es.posteriors.EnsemblePlus(network(), 4),
    "ensemble++ of linear": es.posteriors.EnsemblePlus(LINE, 5),
    "ensemble++ of linear, coordinates": es.posteriors.EnsemblePlus(LINE, 5, continuous=False),
    "bayes by backprop": es.posteriors.BayesByBackprop(network(), indices=2),
    "trees": es.EstimatorEnsemble(partial(DecisionTreeRegressor, max_depth=2), 4, start=3),
}
AGENTS: dict[str, es.core.Agent] = {
    **{name: es.ThompsonSampling(posterior) for name, posterior in POSTERIORS.items()},
    "epsilon-greedy": es.EpsilonGreedy(LINE, 0.2),
    "annealed": es.EpsilonGreedy(ARM, es.agents.Annealed(3)),
    "a schedule of one's own": es.EpsilonGreedy(EACH, lambda t: 1 / (2.0 + t)),
    "persistent": es.agents.Persistent(es.Ensemble(es.PerAction(BLEND, ARMS), 5)),
    "widening": Widening(es.Ensemble(LINE, 5, inflation=0.5), 2.0),
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
    "wandering arms": es.worlds.RandomWalkArms(ARMS),
    "contexts in order": es.ContextualBandit(np.eye(DIM), ARMS, ordered=True),
    "neuron": es.NeuronBandit(DIM, ARMS, noise_std=1.0),
    "network": es.NetworkBandit(DIM, ARMS, hidden=5, noise_std=1.0),
    "network, vector outcomes": es.NetworkBandit(DIM, ARMS, 5, outcomes=2, reward=jnp.sum),
    "network, fresh actions": es.NetworkBandit(DIM, ARMS, hidden=5, noise_std=1.0, fresh=True),
    "logistic": es.LogisticBandit(DIM, ARMS),
    "logistic, fresh actions": es.LogisticBandit(DIM, ARMS, fresh=True),
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

init = jax.jit(lambda agent, key: agent.init(key))
act = jax.jit(lambda agent, *args: agent.act(*args))
update = jax.jit(lambda agent, *args: agent.update(*args))
chances = jax.jit(lambda agent, *args: agent.probabilities(*args))
values = jax.jit(lambda posterior, key, belief: posterior.values(key, belief, FEATURES, 7))
sample = jax.jit(lambda posterior, key, belief: posterior.sample(key, belief)(FEATURES))


@jax.jit
def act_often(agent, keys, state, available):
    return jax.vmap(lambda key: agent.act(key, state, FEATURES, available))(keys)


def on_host(agent) -> bool:
    return fact(agent, "host")


def called(program, agent, *args):
    """Compiled, or as it is where it cannot be."""
    return program.__wrapped__(agent, *args) if on_host(agent) else program(agent, *args)


def outcome(agent, t):
    """Between 0 and 1, which every learner can learn; a vector for those that learn vectors."""
    reward = fact(agent, "reward")
    return jnp.sin(t + jnp.arange(1 if reward is None else reward.outcomes, dtype=float)) ** 2


def single(agent, t):
    seen = outcome(agent, t)
    return seen if fact(agent, "reward") is not None else seen[0]


@pytest.fixture(params=AGENTS)
def case(request):
    """(agent, its states at the start and after every one of a few updates)."""
    return made(request.param)


@lru_cache(maxsize=4)
def made(name):
    agent, key = AGENTS[name], jax.random.key(1)
    states = [called(init, agent, key)]
    for t in range(UPDATES):
        action = es.core.Action(jnp.int32(t % ARMS), FEATURES[t % ARMS])
        key = jax.random.fold_in(key, t)
        states.append(called(update, agent, key, states[-1], action, single(agent, t)))
    return agent, states


def compilations(*jitted) -> list[int]:
    return [f._cache_size() for f in jitted]


def beliefs(agent, state) -> np.ndarray:
    """What a state says: the models' values of all actions."""
    state = (
        state[0]
        if isinstance(agent, es.EpsilonGreedy | es.agents.Persistent | es.agents.SquareCB)
        else state
    )
    if isinstance(agent, es.Uniform):
        return np.zeros(ARMS)
    return np.asarray(called(values, agent.posterior, jax.random.key(0), state))


def equal(one, two) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_updating_keeps_the_states_structure_shapes_and_types(case):
    if on_host(case[0]):
        assert {type(state) for state in case[1]} == {type(case[1][0])}
        return
    kinds = [jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), s) for s in case[1]]
    assert all(kind == kinds[0] for kind in kinds)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(case[1][-1]))


def test_jit_traces_act_and_update_once_whatever_the_settings(case):
    agent, states = case
    if on_host(agent):
        return  # never traced
    other = jax.tree.map(lambda x: x * 0.9 if isinstance(x, float) else x, agent)
    action, key = es.core.Action(jnp.int32(1), FEATURES[1]), jax.random.key(0)
    act(agent, key, states[0], FEATURES)
    before = compilations(act, update)  # compiled once each by now
    for who in (agent, other):
        for t, state in enumerate(states):
            act(who, jax.random.fold_in(key, t), state, FEATURES)
            update(who, jax.random.fold_in(key, t), state, action, single(agent, t))
    assert compilations(act, update) == before


def test_the_same_key_gives_the_same_result(case):
    agent, states = case
    key, action, y = (
        jax.random.key(5),
        es.core.Action(jnp.int32(2), FEATURES[2]),
        single(agent, 0.3),
    )
    starts = [called(init, agent, key) for _ in range(2)]
    assert equal(*starts)
    assert np.array_equal(beliefs(agent, starts[0]), beliefs(agent, starts[1]))
    after = [called(update, agent, key, states[-1], action, y) for _ in range(2)]
    assert equal(*after)
    assert np.array_equal(beliefs(agent, after[0]), beliefs(agent, after[1]))
    chosen = [called(act, agent, key, states[-1], FEATURES) for _ in range(2)]
    assert chosen[0] == chosen[1]


def test_an_update_changes_the_new_state_and_not_the_old(case):
    agent, states = case
    before = [beliefs(agent, state) for state in states]
    action = es.core.Action(jnp.int32(2), FEATURES[2])
    for state in states:
        called(update, agent, jax.random.key(9), state, action, single(agent, 0.3))
    assert all(map(np.array_equal, before, (beliefs(agent, state) for state in states)))
    if not isinstance(agent, es.Uniform):
        assert not np.array_equal(before[0], before[-1])


def test_one_decision_at_a_time_is_what_runs_compiled(case):
    agent, states = case
    if on_host(agent):
        return  # runs in no other way
    key, state = jax.random.key(6), states[-1]
    index = agent.act(key, state, FEATURES)
    assert index.shape == ()
    assert index == act(agent, key, state, FEATURES)
    action, y = es.core.Action(index, FEATURES[index]), single(agent, 0.5)
    eager = agent.update(key, state, action, y)
    compiled = update(agent, key, state, action, y)
    for one, two in zip(jax.tree.leaves(eager), jax.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_mapped_over_realizations_it_calls_lapack_for_one_matrix_at_a_time(case):
    """Side by side, programs with batches of matrices wait for each other for ever."""
    agent, states = case
    if on_host(agent):
        return  # never mapped

    def period(key, state):
        index = agent.act(key, state, FEATURES)
        action = es.core.Action(index, FEATURES[index])
        chances = agent.probabilities(state, FEATURES)
        known = fact(getattr(agent, "posterior", agent), "mean_and_std")
        bounds = known(state, FEATURES) if isinstance(agent, es.ThompsonSampling) else None
        return agent.update(key, state, action, single(agent, 0.3)), chances, bounds

    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states[-2:])
    keys = jax.random.split(jax.random.key(0))
    assert not linalg.in_batches(jax.jit(jax.vmap(period)).lower(keys, both))


def test_a_healthy_belief_has_not_diverged(case):
    agent, states = case
    assert int(fact(agent, "diverged")(states[-1])) == 0


@pytest.mark.parametrize("mask", [(1, 1, 1, 1), (1, 0, 1, 1)], ids=["all", "masked"])
def test_probabilities_sum_to_one_and_are_how_often_actions_are_chosen(case, mask):
    """A share of n choices has variance p (1 - p) / n, and where the probabilities are
    themselves shares of `draws`, p (1 - p) / draws more. Five standard deviations, and 5 / n for
    the skew of rare choices: below 1e-5 by chance for an action."""
    agent, states = case
    available = jnp.asarray(mask, bool)
    p = checked_probabilities(called(chances, agent, states[-1], FEATURES, available))
    choices = CHOICES // 20 if on_host(agent) else CHOICES
    keys = jax.random.split(jax.random.key(8), choices)
    if on_host(agent):
        chosen = [int(agent.act(key, states[-1], FEATURES, available)) for key in keys]
    else:
        chosen = np.asarray(act_often(agent, keys, states[-1], available))
    shares = np.bincount(chosen, minlength=ARMS) / choices
    assert (p[~np.asarray(available)] == 0).all()
    assert (shares[~np.asarray(available)] == 0).all()
    counts = [choices, *([agent.draws] if isinstance(agent, es.ThompsonSampling) else [])]
    middle = (p + shares) / 2
    width = np.sqrt(middle * (1 - middle) * sum(1 / n for n in counts))
    assert (np.abs(shares - p) <= 5 * width + 5 / min(counts)).all(), (shares, p)


@jaxtyped(typechecker=beartype)
def checked_probabilities(p: Float[Array, " arms"]) -> np.ndarray:
    have = np.asarray(p, np.float64)
    assert (have >= 0).all()
    np.testing.assert_allclose(have.sum(), 1, rtol=1e-5)
    return have


@jaxtyped(typechecker=beartype)
def check_values(values: Float[Array, "models arms"], sample: Float[Array, " arms"]) -> None:
    assert np.isfinite(values).all()
    assert np.isfinite(sample).all()


def test_a_sample_is_a_model_that_values_every_action(case):
    agent, states = case
    if not isinstance(agent, es.ThompsonSampling):
        return  # the others do not act on a sample
    posterior, belief, key = agent.posterior, states[-1], jax.random.key(0)
    check_values(called(values, posterior, key, belief), called(sample, posterior, key, belief))


@jaxtyped(typechecker=beartype)
def check_offer(
    features: Float[Array, "arms dim"],
    means: Float[Array, " arms"],
    index: Int[Array, ""],
    available: Bool[Array, " arms"] | None,
) -> None:
    assert np.isfinite(features).all()
    assert np.isfinite(means).all()
    assert index < features.shape[0]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_offers_actions_and_their_mean_rewards(name):
    env, key = ENVIRONMENTS[name], jax.random.key(0)
    init = jax.jit(lambda env, key: env.init(key))
    offer = jax.jit(lambda env, key, world: env.offer(key, world))
    outcomes = jax.jit(
        lambda env, keys, world, action: jax.vmap(lambda k: env.outcome(k, world, action))(keys)
    )
    world, other = init(env, key), init(env, jax.random.key(1))
    assert equal(world, init(env, key))
    assert not equal(world, other)
    assert jax.tree.structure(world) == jax.tree.structure(other)
    offer(env, jax.random.key(1), other)
    row = offer(env, key, world)
    index = jnp.asarray(len(row.means) - 1, jnp.int32)
    check_offer(row.features, row.means, index, row.available)
    assert compilations(init, offer) == [1, 1]
    # The average reward is the mean reward, within five standard errors.
    keys, action = jax.random.split(key, CHOICES), es.core.Action(index, row.features[index])
    world = world if row.world is None else row.world
    seen, reward = outcomes(env, keys, world, action), getattr(env, "reward", None)
    seen = np.asarray(seen if reward is None else jax.vmap(reward.function)(seen), np.float64)
    assert seen.shape == (CHOICES,)
    stderr = seen.std() / np.sqrt(CHOICES)
    assert stderr > 0
    assert abs(seen.mean() - float(row.means[index])) < 5 * stderr


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
