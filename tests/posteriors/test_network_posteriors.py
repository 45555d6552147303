"""Posteriors of networks, held to what is known exactly for linear ones and before any data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import learn

import ensemble_sampling as es
from ensemble_sampling.core import Action
from ensemble_sampling.learners import RandomisedPrior
from ensemble_sampling.networks import GaussianMLP
from ensemble_sampling.posteriors import (
    BayesByBackprop,
    EnsemblePlus,
    Epinet,
    Hypermodel,
    Langevin,
)
from ensemble_sampling.posteriors.heads import silent

DIM, COUNT, NOISE_STD, PRIOR_STD = 3, 12, 0.5, 0.8
RNG = np.random.default_rng(3)
X = RNG.normal(size=(COUNT, DIM)) @ np.array([[1, 0.6, 0], [0, 1, 0], [0, 0, 0.5]])
Y = X @ [0.5, -0.7, 0.3] + NOISE_STD * RNG.normal(size=COUNT)
PRECISION = np.eye(DIM) / PRIOR_STD**2 + X.T @ X / NOISE_STD**2
EXACT = np.linalg.inv(PRECISION)
SD, MEAN = np.sqrt(np.diag(EXACT)), EXACT @ X.T @ Y / NOISE_STD**2
EYE, KEY = jnp.eye(DIM), jax.random.key(0)
LINEAR, TWO_LAYER = GaussianMLP(DIM, (), prior_std=PRIOR_STD), GaussianMLP(DIM, (6,))


def linear(make: Any = LINEAR, **changes) -> es.Network:
    """A linear network that sees all of its data in every step."""
    settings: dict[str, Any] = {"learning_rate": 0.02, "optimizer": optax.sgd, "batch": None}
    settings |= {"steps": 20} | changes
    return es.Network(make, DIM, COUNT, NOISE_STD, PRIOR_STD, **settings)


def taught(posterior: Any, key: Any, rounds: int) -> Any:
    """The belief after all observations, `rounds` times over: a window holds each of them once."""
    at = np.arange(rounds * COUNT) % COUNT
    return learn(posterior, key, at, X[at], Y[at])[1]


start = jax.jit(lambda posterior, key: posterior.init(key))
update = jax.jit(lambda posterior, *given: posterior.update(*given))
values = jax.jit(
    lambda posterior, belief, draws=1: posterior.values(KEY, belief, EYE, draws),
    static_argnames="draws",
)


def mean(posterior: Any, belief: Any) -> np.ndarray:
    """What the model of the index zero says."""
    shared, member = belief
    return np.asarray(posterior.learner.predict(shared, member, EYE))


def anchored(anchors: Any, shifts: Any) -> np.ndarray:
    """Minimisers (M, d) of |y + noise - X theta|^2 / noise_std^2 + |theta - anchor|^2 / prior_std^2
    for every member's anchor (M, d) and perturbations (M, n), in units of noise_std."""
    found = []
    for anchor, shift in zip(np.asarray(anchors), np.asarray(shifts), strict=True):
        right = X.T @ (Y + NOISE_STD * shift) / NOISE_STD**2 + anchor / PRIOR_STD**2
        found.append(np.linalg.solve(PRECISION, right))
    return np.array(found)


# Langevin


@pytest.mark.parametrize("precondition", [False, True])
def test_langevin_samples_have_the_exact_posteriors_mean_and_covariance(precondition):
    """Of n = 1,000 chains: a mean has the standard error sd / sqrt(n), a covariance in units of
    the two sds at most sqrt(2 / n) = 0.045, and four of either are allowed. The step makes
    variances too large, by the factor 1 / (1 - rate h / 2) at most, which is below 1.06 here."""
    rate, chains = 0.005, 1000
    assert rate * np.linalg.eigvalsh(PRECISION).max() / COUNT < 0.06  # h is 2 / n the precision
    posterior = Langevin(linear(learning_rate=rate, steps=40), chains, precondition)
    drawn = np.asarray(values(posterior, taught(posterior, KEY, 8)))
    assert (np.abs(drawn.mean(axis=0) - MEAN) < 4 * SD / np.sqrt(chains)).all()
    error = (np.cov(drawn.T) - EXACT) / np.outer(SD, SD)
    assert (np.abs(error) < 4 * np.sqrt(2 / chains) + 0.06).all(), error


def test_langevins_temperature_scales_the_covariance():
    cold = Langevin(linear(), 1000, False, temperature=0.25)
    drawn = np.asarray(values(cold, taught(cold, KEY, 4)))
    ratio = np.diag(np.cov(drawn.T)) / np.diag(EXACT)
    assert (np.abs(ratio / 0.25 - 1) < 0.3).all()  # 4 sqrt(2 / 1000) and the step's 10%


def many(n, noise_std):
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(n, DIM))
    return np.zeros(n, int), xs, xs @ [0.1, -0.1, 0.05] + noise_std * rng.normal(size=n)


def test_langevin_chains_do_not_share_their_minibatches():
    """The mean of 100 independent chains is 0.1 of their own deviation off the posterior's, in
    four runs of three values; with batches in common it was half of it."""
    n, noise = 300, 0.1
    data = _, xs, ys = many(n, noise)
    make = GaussianMLP(DIM, (), prior_std=0.3)
    learner = es.Network(make, DIM, n, noise, 0.3, learning_rate=0.002, batch=16, steps=5)
    posterior = Langevin(learner, 100, precondition=False)
    exact = np.linalg.inv(np.eye(DIM) / 0.09 + xs.T @ xs / noise**2)
    mean, off = exact @ xs.T @ ys / noise**2, []
    for seed in range(4):
        drawn = np.asarray(values(posterior, learn(posterior, jax.random.key(seed), *data)[1]))
        off.append((drawn.mean(axis=0) - mean) / drawn.std(axis=0))
    assert np.sqrt(np.mean(np.square(off))) < 0.2


@pytest.mark.parametrize("make", [lambda net: Langevin(net, 200), BayesByBackprop])
def test_learned_noise_leaves_the_posterior_its_width(make):
    """Langevin chains and mean fields that are told nothing: the variance is that of the posterior
    for the noise they learned, within a factor of 2; with a fifth of the noise it was 0.04."""
    n, told = 100, {"batch": None, "steps": 4, "learning_rate": 0.02}
    posterior = make(es.Network(GaussianMLP(DIM, ()), DIM, n, **told))
    for noise_std in (0.1, 1.0):
        data = _, xs, ys = many(n, noise_std)
        shared, member = belief = learn(posterior, KEY, *data)[1]
        learned = np.mean(shared.scales.noise_std(member.error, shared.held))
        rows, offer = (
            np.append((part - xs.mean(0)) / xs.std(0), np.ones((len(part), 1)), axis=1)
            for part in (xs, np.eye(DIM))
        )
        spread, prior = ys.std(), 0.0625 / (DIM + 1)
        precision = np.eye(DIM + 1) / prior + rows.T @ rows * spread**2 / learned**2
        want = spread**2 * np.diag(offer @ np.linalg.inv(precision) @ offer.T)
        ratio = np.asarray(values(posterior, belief, 1000)).var(axis=0) / want
        assert (ratio > 0.5).all(), ratio
        assert (ratio < 2.0).all(), ratio


# Randomised priors


def test_randomised_priors_are_the_anchored_form_where_models_are_linear():
    posterior = es.Ensemble(linear(RandomisedPrior(LINEAR), learning_rate=0.05, steps=200), 3)
    _, members = belief = taught(posterior, jax.random.key(1), 1)
    prior = members.fixed.prior.module.weights[0]
    assert np.std(prior) > 0.2
    want = anchored(prior, members.noise.shift)
    np.testing.assert_allclose(values(posterior, belief), want, atol=2e-4)


def test_a_randomised_prior_is_all_there_is_before_data_and_inflation_scales_it():
    make = RandomisedPrior(GaussianMLP(DIM, (4,), prior_std=1.0), scale=3.0)
    learner = es.Network(make, DIM, 4, 1.0, 1.0)
    _, member = learner.init(KEY, 2.0)
    hidden, last = (np.asarray(w) for w in member.fixed.prior.module.weights)
    before = hidden @ np.eye(DIM)
    want = 2.0 * 3.0 * last @ np.where(before > 0, before, 0.01 * before)
    np.testing.assert_allclose(learner.predict(_, member, EYE), want, atol=1e-2)


# Units: a part learns in that of its prior, wherever it starts, and what 32 draws say of it is
# right to 30%.


@pytest.mark.parametrize(
    ("posterior", "part", "want"),
    [
        (Hypermodel(es.Network(LINEAR, DIM), 4), lambda w: w.factors.weights[0], PRIOR_STD),
        (EnsemblePlus(es.Network(TWO_LAYER, DIM), 4), lambda w: w.factors, TWO_LAYER.stds[-1]),
        (BayesByBackprop(es.Network(LINEAR, DIM)), lambda w: w.mean.weights[0], PRIOR_STD),
        (BayesByBackprop(es.Network(LINEAR, DIM)), lambda w: w.log_std.weights[0], 1.0),
        (
            es.Ensemble(
                es.Network(
                    RandomisedPrior(LINEAR, start=GaussianMLP(DIM, (), prior_std=0.01)), DIM
                ),
                1,
            ),
            lambda w: w.learned.weights[0],
            PRIOR_STD,
        ),
    ],
    ids=["hypermodel", "ensemble++", "mean field", "its logarithms", "randomised prior"],
)
def test_a_part_learns_in_the_unit_of_its_prior(posterior, part, want):
    """Factors not in that of their draws, which are sqrt(4) times smaller, and f of a randomised
    prior not in that of its start."""
    np.testing.assert_allclose(part(start(posterior, KEY)[1].widths), want, rtol=0.3)


# Indexed networks


@pytest.mark.parametrize(
    ("make", "prior"),
    [(Epinet, (6,)), (EnsemblePlus, (6,)), (Hypermodel, ())],
    ids=["epinet", "ensemble++", "hypermodel"],
)
def test_inflation_scales_the_prior_and_the_perturbations(make, prior):
    net, found = es.Network(GaussianMLP(DIM, prior, prior_std=1.0), DIM, 4, 1.0, 1.0), []
    for inflation in (1.0, 3.0):
        posterior = make(net, 5, inflation=inflation)
        belief = start(posterior, KEY)
        after = update(posterior, KEY, belief, Action(jnp.int32(0), EYE[0]), 1.0)
        found.append((np.asarray(values(posterior, belief, 20)), after[1].noise.shift[0]))
    np.testing.assert_allclose(found[1][0], 3 * found[0][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1][1], 3 * found[0][1], rtol=1e-5)
    assert np.abs(found[0][0]).max() > 0.1


def test_perturbations_go_in_all_directions_alike():
    """Of 2,000 directions of length 1 in a plane: their mean has the standard error 1 / sqrt(4000)
    in either entry, and five are allowed."""
    posterior = Hypermodel(es.Network(LINEAR, DIM, 1, steps=1, batch=1), 2)
    belief, action = start(posterior, KEY), Action(jnp.int32(0), EYE[0])
    direct = lambda key: posterior.update(key, belief, action, jnp.zeros(()))[1].noise.shift[0]  # noqa: E731
    drawn = np.asarray(jax.jit(jax.vmap(direct))(jax.random.split(KEY, 2000)))
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-5)
    assert (np.abs(drawn.mean(axis=0)) < 5 / np.sqrt(4000)).all()


def test_a_hypermodel_shows_its_prior_before_data():
    """4,000 draws: a variance is known to 5 sqrt(2 / 4000), 11%."""
    posterior = Hypermodel(linear(), 4, inflation=1.5)
    draw = lambda key: posterior.sample(key, posterior.init(jax.random.fold_in(key, 1)))(EYE)  # noqa: E731
    drawn = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(KEY, 4000)))
    np.testing.assert_allclose(np.cov(drawn.T), 1.44 * np.eye(DIM), atol=0.11 * 1.44)
    assert not mean(posterior, start(posterior, KEY)).any()


def test_a_linear_hypermodel_learns_the_exact_mean_and_an_ensembles_members():
    """At the indices sqrt(width) e_m, within the noise of averaging over random ones."""
    width = 3
    posterior = Hypermodel(linear(learning_rate=0.01, steps=300), width, indices=50)
    _, member = belief = taught(posterior, jax.random.key(2), 1)
    anchors = np.sqrt(width) * np.asarray(member.start.factors.weights[0])
    want = anchored(anchors, np.sqrt(width) * np.asarray(member.noise.shift).T)
    indices = np.sqrt(width) * jnp.eye(width)
    have = jax.vmap(lambda z: posterior.model(belief, z)(EYE))(indices)
    distance = np.abs(want - MEAN).max()
    np.testing.assert_allclose(mean(posterior, belief), MEAN, atol=0.1 * distance)
    np.testing.assert_allclose(have, want, atol=0.1 * distance)


def test_bayes_by_backprop_finds_the_exact_mean_and_the_mean_field_variances():
    posterior = BayesByBackprop(linear(learning_rate=0.02, steps=100), indices=32)
    begin = start(posterior, KEY)[1].model
    np.testing.assert_allclose(np.exp(begin.log_std.weights[0]), PRIOR_STD, rtol=1e-5)
    model = taught(posterior, KEY, 1)[1].model
    assert (np.abs(np.asarray(model.mean.weights[0]) - MEAN) < 0.2 * SD).all()
    variance = np.exp(2 * np.asarray(model.log_std.weights[0]))
    np.testing.assert_allclose(variance, 1 / np.diag(PRECISION), rtol=0.1)
    assert variance[0] < 0.9 * SD[0] ** 2  # weights go together here, which mean fields miss


# Epinets and Ensemble++


def test_an_epinet_shows_its_prior_before_data():
    posterior = Epinet(es.Network(TWO_LAYER, DIM, 4, 1.0), 5, scale=2.0)
    belief = start(posterior, KEY)
    z = jax.random.normal(jax.random.key(1), (5,))
    fixed, want = belief[1].fixed.prior.module.networks.weights, np.zeros(DIM)
    for m in range(5):
        units = np.concatenate([np.eye(DIM), np.ones((DIM, 1))], axis=1)
        for w in fixed[:-1]:
            units = units @ np.asarray(w[m]).T
            units = np.where(units > 0, units, 0.01 * units)
        want += float(z[m]) * 2.0 / np.sqrt(5) * (units @ np.asarray(fixed[-1][m]))
    np.testing.assert_allclose(posterior.model(belief, z)(EYE), want, rtol=1e-4, atol=1e-6)
    assert want.std() > 0.01
    assert not mean(posterior, belief).any()


@pytest.mark.parametrize("posterior", [Epinet, EnsemblePlus])
def test_the_spread_does_not_teach_the_trunk(posterior):
    """While the base is silent, only the spread could change its hidden layer, and must not."""
    module = posterior(linear(TWO_LAYER)).learner.make(KEY)
    z = module.index(jax.random.key(1))
    gradient = eqx.filter_grad(lambda m: m.at(z)(jnp.ones(DIM)))(module)
    assert not np.asarray(gradient.base.weights[0]).any()
    assert np.asarray(gradient.base.weights[1]).any()


def test_an_epinets_head_sees_the_index_and_the_hidden_units_but_does_not_teach_these():
    """A head that speaks is no multiple of z: twice the index is not twice the output."""
    made: Any = Epinet(es.Network(TWO_LAYER, DIM), 5).learner.make
    drawn, z, x = made.wide(KEY), jax.random.normal(KEY, (5,)), jnp.ones(DIM)
    once, twice, none = (drawn.at(c * z)(x) for c in (1.0, 2.0, 0.0))
    assert abs(float(twice - 2 * once + none)) > 1e-3
    drawn = eqx.tree_at(lambda m: m.base, drawn, silent(drawn.base))
    output = lambda base: eqx.tree_at(lambda m: m.base, drawn, base).at(z)(x)  # noqa: E731
    hidden = drawn.base.weights[0]
    moved = eqx.tree_at(lambda b: b.weights[0], drawn.base, hidden + 1.0)
    assert output(drawn.base) != output(moved)
    np.testing.assert_array_equal(eqx.filter_grad(output)(drawn.base).weights[0], 0 * hidden)


LINE = es.Linear(DIM, NOISE_STD, prior_std=PRIOR_STD)


def test_ensemble_plus_with_a_coordinate_index_is_the_ensemble():
    ensemble, plus = es.Ensemble(LINE, 4), EnsemblePlus(LINE, 4, continuous=False)
    want, belief = values(ensemble, taught(ensemble, KEY, 1)), taught(plus, KEY, 1)
    np.testing.assert_allclose(values(plus, belief), want, rtol=1e-6, atol=1e-7)
    one = plus.sample(jax.random.key(5), belief)(EYE)
    assert np.isclose(want, one, atol=1e-6).all(axis=1).sum() == 1


def test_ensemble_plus_with_a_continuous_index_has_the_members_covariance():
    draws, plus = 20000, EnsemblePlus(LINE, 4)
    belief = taught(plus, KEY, 1)
    away = np.asarray(values(es.Ensemble(LINE, 4), belief), np.float64) - MEAN
    drawn = np.asarray(values(plus, belief, draws))
    width = np.sqrt((away**2).mean(axis=0))
    error = (np.cov(drawn.T) - away.T @ away / 4) / np.outer(width, width)
    assert (np.abs(error) < 5 * np.sqrt(2 / draws)).all()
    assert (np.abs(drawn.mean(axis=0) - MEAN) < 5 * width / np.sqrt(draws)).all()


def test_ensemble_plus_of_networks_shows_its_prior_before_data():
    """At sqrt(M) e_m the output layer is the prior draw of factor m, on the units of the trunk."""
    posterior = EnsemblePlus(linear(GaussianMLP(DIM, (6,), prior_std=1.0)), 4, False)
    _, member = belief = start(posterior, KEY)
    before = np.asarray(member.model.base.weights[0])
    units = np.where(before > 0, before, 0.01 * before)
    want = np.asarray(2.0 * member.model.factors) @ units
    np.testing.assert_allclose(values(posterior, belief), want, rtol=1e-5, atol=1e-6)
    assert 0.5 < np.std(2.0 * member.model.factors) < 1.5
