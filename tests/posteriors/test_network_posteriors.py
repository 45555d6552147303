"""Posteriors of networks, held to what is known exactly for linear ones and before any data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.posteriors.indexed import silent

DIM, COUNT, NOISE_STD, PRIOR_STD = 3, 12, 0.5, 0.8
RNG = np.random.default_rng(3)
X = RNG.normal(size=(COUNT, DIM)) @ np.array([[1, 0.6, 0], [0, 1, 0], [0, 0, 0.5]])
Y = X @ [0.5, -0.7, 0.3] + NOISE_STD * RNG.normal(size=COUNT)
PRECISION = np.eye(DIM) / PRIOR_STD**2 + X.T @ X / NOISE_STD**2
MEAN = np.linalg.solve(PRECISION, X.T @ Y / NOISE_STD**2)
EYE, KEY = jnp.eye(DIM), jax.random.key(0)
LINEAR = es.networks.GaussianMLP(DIM, (), prior_std=PRIOR_STD)


def linear(make: Any = LINEAR, **changes) -> es.Network:
    """A linear network that sees all of its data in every step."""
    settings: dict[str, Any] = {"learning_rate": 0.02, "optimizer": optax.sgd, "batch": None}
    settings |= {"steps": 20} | changes
    return es.Network(make, DIM, COUNT, NOISE_STD, PRIOR_STD, **settings)


@eqx.filter_jit
def taught(posterior: Any, key: Any, rounds: int) -> Any:
    """The belief after all observations, `rounds` times over: a window holds each of them once."""

    def learn(belief: Any, t: Any) -> tuple[Any, None]:
        i = t % COUNT
        action = es.core.Action(i, jnp.asarray(X, float)[i])
        y = jnp.asarray(Y, float)[i]
        return posterior.update(jax.random.fold_in(key, t), belief, action, y), None

    belief = posterior.init(key)
    return jax.lax.scan(learn, belief, jnp.arange(rounds * COUNT))[0]


begun = eqx.filter_jit(lambda posterior, key: posterior.init(key))


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


@pytest.mark.parametrize("precondition", [False, True])
def test_langevin_samples_have_the_exact_posteriors_mean_and_covariance(precondition):
    """Of n = 2,000 chains: a mean has the standard error sd / sqrt(n), a covariance in units of
    the two sds at most sqrt(2 / n) = 0.032, and four of either are allowed. The step makes
    variances too large, by the factor 1 / (1 - rate h / 2) at most, which is below 1.06 here."""
    rate, chains = 0.005, 2000
    assert rate * np.linalg.eigvalsh(PRECISION).max() / COUNT < 0.06  # h is 2 / n the precision
    posterior = es.posteriors.Langevin(linear(learning_rate=rate, steps=40), chains, precondition)
    drawn = np.asarray(posterior.values(KEY, taught(posterior, KEY, 8), EYE, 1))
    exact = np.linalg.inv(PRECISION)
    sd = np.sqrt(np.diag(exact))
    assert (np.abs(drawn.mean(axis=0) - MEAN) < 4 * sd / np.sqrt(chains)).all()
    error = (np.cov(drawn.T) - exact) / np.outer(sd, sd)
    assert (np.abs(error) < 4 * np.sqrt(2 / chains) + 0.06).all(), error


def linear_run(posterior, seed, xs, ys):
    """What chains or draws think of the axes and the origin, having learned rows once."""
    rows = jnp.asarray(xs, float), jnp.asarray(ys, float)

    @eqx.filter_jit
    def run(posterior, key):
        def learn(belief, t):
            action = es.core.Action(jnp.int32(0), rows[0][t])
            return posterior.update(jax.random.fold_in(key, t), belief, action, rows[1][t]), None

        belief = jax.lax.scan(learn, posterior.init(key), jnp.arange(len(xs)))[0]
        offer = jnp.concatenate([EYE, jnp.zeros((1, DIM))])
        return posterior.values(jax.random.fold_in(key, 9), belief, offer, 1000), belief

    values, belief = run(posterior, jax.random.key(seed))
    return np.asarray(values, np.float64), belief


def many(n, noise_std):
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(n, DIM))
    return xs, xs @ [0.1, -0.1, 0.05] + noise_std * rng.normal(size=n)


def test_langevin_chains_do_not_share_their_minibatches():
    """The mean of 100 independent chains is 0.1 of their own deviation off the posterior's, in
    four runs of four values; with batches in common it was half of it."""
    n, noise = 300, 0.1
    xs, ys = many(n, noise)
    make = es.networks.GaussianMLP(DIM, (), prior_std=0.3)
    learner = es.Network(make, DIM, n, noise, 0.3, learning_rate=0.002, batch=16, steps=5)
    posterior = es.posteriors.Langevin(learner, 100, precondition=False)
    exact = np.linalg.inv(np.eye(DIM) / 0.09 + xs.T @ xs / noise**2)
    mean, off = exact @ xs.T @ ys / noise**2, []
    for seed in range(4):
        values = linear_run(posterior, seed, xs, ys)[0][:, :DIM]
        off.append((values.mean(axis=0) - mean) / values.std(axis=0))
    assert np.sqrt(np.mean(np.square(off))) < 0.2


@pytest.mark.parametrize("noise_std", [0.1, 1.0])
def test_learned_noise_leaves_the_posterior_its_width(noise_std):
    """Langevin chains and mean fields that are told nothing: the variance is that of the posterior
    for the noise they learned, within a factor of 2; with a fifth of the noise it was 0.04."""
    n = 100
    xs, ys = many(n, noise_std)
    learner = es.Network(
        es.networks.GaussianMLP(DIM, ()), DIM, n, batch=None, steps=4, learning_rate=0.02
    )
    for posterior in (es.posteriors.Langevin(learner, 200), es.posteriors.BayesByBackprop(learner)):
        values, (shared, member) = linear_run(posterior, 0, xs, ys)
        learned = np.mean(shared.scales.noise_std(member.error, shared.held))
        rows = np.append((xs - xs.mean(0)) / xs.std(0), np.ones((n, 1)), axis=1)
        offer = np.concatenate([np.eye(DIM), np.zeros((1, DIM))])
        offer = np.append((offer - xs.mean(0)) / xs.std(0), np.ones((4, 1)), axis=1)
        spread, prior = ys.std(), 0.0625 / (DIM + 1)
        precision = np.eye(DIM + 1) / prior + rows.T @ rows * spread**2 / learned**2
        want = spread**2 * np.diag(offer @ np.linalg.inv(precision) @ offer.T)
        ratio = values.var(axis=0) / want
        assert (ratio > 0.5).all(), ratio
        assert (ratio < 2.0).all(), ratio


def test_langevins_temperature_scales_the_covariance():
    cold = es.posteriors.Langevin(linear(), 1000, False, temperature=0.25)
    drawn = np.asarray(cold.values(KEY, taught(cold, KEY, 4), EYE, 1))
    ratio = np.diag(np.cov(drawn.T)) / np.diag(np.linalg.inv(PRECISION))
    assert (np.abs(ratio / 0.25 - 1) < 0.3).all()  # 4 sqrt(2 / 1000) and the step's 10%


def test_randomised_priors_are_the_anchored_form_where_models_are_linear():
    make = es.learners.RandomisedPrior(LINEAR)
    posterior = es.Ensemble(linear(make, learning_rate=0.05, steps=200), 3)
    _, members = taught(posterior, jax.random.key(1), 1)
    prior = members.fixed.prior.module.weights[0]
    assert np.std(prior) > 0.2
    values = posterior.values(KEY, (_, members), EYE, 1)
    np.testing.assert_allclose(values, anchored(prior, members.noise.shift), atol=2e-4)


def test_a_randomised_prior_is_all_there_is_before_data_and_inflation_scales_it():
    make = es.learners.RandomisedPrior(es.networks.GaussianMLP(DIM, (4,), prior_std=1.0), scale=3.0)
    learner = es.Network(make, DIM, 4, 1.0, 1.0)
    _, member = learner.init(KEY, 2.0)
    hidden, last = (np.asarray(w) for w in member.fixed.prior.module.weights)
    before = hidden @ np.eye(DIM)
    want = 2.0 * 3.0 * last @ np.where(before > 0, before, 0.01 * before)
    np.testing.assert_allclose(learner.predict(_, member, EYE), want, atol=1e-2)


def test_a_hypermodel_shows_its_prior_before_data():
    """4,000 draws: a variance is known to 5 sqrt(2 / 4000), 11%."""
    posterior = es.posteriors.Hypermodel(linear(), 4, inflation=1.5)

    @jax.jit
    @jax.vmap
    def draw(key):
        return posterior.sample(key, posterior.init(jax.random.fold_in(key, 1)))(EYE)

    drawn = np.asarray(draw(jax.random.split(KEY, 4000)))
    np.testing.assert_allclose(np.cov(drawn.T), 1.44 * np.eye(DIM), atol=0.11 * 1.44)
    assert not mean(posterior, begun(posterior, KEY)).any()


@pytest.mark.parametrize(
    ("posterior", "factors"),
    [
        (es.posteriors.Hypermodel(es.Network(LINEAR, DIM), 4), lambda w: w.factors.weights[0]),
        (
            es.posteriors.EnsemblePlus(es.Network(es.networks.GaussianMLP(DIM, (6,)), DIM), 4),
            lambda w: w.factors,
        ),
    ],
    ids=["hypermodel", "ensemble++"],
)
def test_factors_learn_in_the_unit_of_the_weights(posterior, factors):
    """And not in that of their draws, which are sqrt(4) times smaller: 32 draws say it to 30%."""
    widths = begun(posterior, KEY)[1].widths
    made = posterior.learner.make.make
    want = np.std([np.asarray(made(jax.random.key(i)).weights[-1]) for i in range(200)])
    np.testing.assert_allclose(factors(widths), want, rtol=0.3)


def test_a_mean_field_learns_logarithms_in_units_of_one():
    widths = begun(es.posteriors.BayesByBackprop(es.Network(LINEAR, DIM)), KEY)[1].widths
    np.testing.assert_allclose(widths.log_std.weights[0], 1.0)
    np.testing.assert_allclose(widths.mean.weights[0], PRIOR_STD, rtol=0.3)


def test_a_randomised_prior_learns_in_the_unit_of_its_prior():
    """Wherever f starts: here near zero, which is not how far it may go."""
    near = es.networks.GaussianMLP(DIM, (), prior_std=0.01)
    learner = es.Network(es.learners.RandomisedPrior(LINEAR, start=near), DIM)
    _, member = learner.init(KEY)
    np.testing.assert_allclose(member.widths.learned.weights[0], PRIOR_STD, rtol=0.3)


@pytest.mark.parametrize(
    "make",
    [
        lambda net, c: es.posteriors.Epinet(net, 5, inflation=c),
        lambda net, c: es.posteriors.EnsemblePlus(net, 5, inflation=c),
        lambda net, c: es.posteriors.Hypermodel(net, 5, inflation=c),
    ],
    ids=["epinet", "ensemble++", "hypermodel"],
)
def test_inflation_scales_the_prior_and_the_perturbations(make):
    net = es.Network(es.networks.GaussianMLP(DIM, (), prior_std=1.0), DIM, 4, 1.0, 1.0)
    if "Hypermodel" not in type(make(net, 1.0)).__name__:
        net = es.Network(es.networks.GaussianMLP(DIM, (6,), prior_std=1.0), DIM, 4, 1.0, 1.0)
    found = []
    for inflation in (1.0, 3.0):
        posterior = make(net, inflation)
        belief = begun(posterior, KEY)
        values = posterior.values(KEY, belief, EYE, 20)
        after = posterior.update(KEY, belief, es.core.Action(jnp.int32(0), EYE[0]), 1.0)
        found.append((np.asarray(values), np.asarray(after[1].noise.shift[0])))
    np.testing.assert_allclose(found[1][0], 3 * found[0][0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1][1], 3 * found[0][1], rtol=1e-5)
    assert np.abs(found[0][0]).max() > 0.1


def test_an_epinets_head_sees_the_index():
    """A head that is not silent is no multiple of z: twice the index is not twice the output."""
    posterior = es.posteriors.Epinet(linear(es.networks.GaussianMLP(DIM, (6,))), 5)
    module = posterior.learner.make.wide(KEY)  # pyright: ignore[reportFunctionMemberAccess]
    z, x = jax.random.normal(KEY, (5,)), jnp.ones(DIM)
    once, twice, none = (module.at(c * z)(x) for c in (1.0, 2.0, 0.0))
    assert abs(float(twice - 2 * once + none)) > 1e-3


def test_perturbations_go_in_all_directions_alike():
    """Of 2,000 directions of length 1 in a plane: their mean has the standard error 1 / sqrt(4000)
    in either entry, and five are allowed."""
    posterior = es.posteriors.Hypermodel(es.Network(LINEAR, DIM, 1, steps=1, batch=1), 2)
    belief = begun(posterior, KEY)

    @jax.jit
    @jax.vmap
    def direction(key):
        action = es.core.Action(jnp.int32(0), EYE[0])
        return posterior.update(key, belief, action, jnp.zeros(()))[1].noise.shift[0]

    drawn = np.asarray(direction(jax.random.split(KEY, 2000)))
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-5)
    assert (np.abs(drawn.mean(axis=0)) < 5 / np.sqrt(4000)).all()


def test_a_linear_hypermodel_learns_the_exact_mean_and_an_ensembles_members():
    """At the indices sqrt(width) e_m, within the noise of averaging over random ones."""
    width = 3
    settings: dict[str, Any] = {"learning_rate": 0.01, "steps": 300}
    posterior = es.posteriors.Hypermodel(linear(**settings), width, indices=50)
    _, member = belief = taught(posterior, jax.random.key(2), 1)
    anchors = np.sqrt(width) * np.asarray(member.start.factors.weights[0])
    want = anchored(anchors, np.sqrt(width) * np.asarray(member.noise.shift).T)
    indices = np.sqrt(width) * jnp.eye(width)
    have = jax.vmap(lambda z: posterior.model(belief, z)(EYE))(indices)
    distance = np.abs(want - MEAN).max()
    np.testing.assert_allclose(mean(posterior, belief), MEAN, atol=0.1 * distance)
    np.testing.assert_allclose(have, want, atol=0.1 * distance)
    np.testing.assert_allclose(np.linalg.norm(member.noise.shift, axis=1), 1, rtol=1e-5)


def test_an_epinet_shows_its_prior_before_data():
    posterior = es.posteriors.Epinet(
        es.Network(es.networks.GaussianMLP(DIM, (6,)), DIM, 4, 1.0), 5, scale=2.0
    )
    belief = begun(posterior, KEY)
    z = jax.random.normal(jax.random.key(1), (5,))
    fixed = belief[1].fixed.prior.module.networks.weights
    want = np.zeros(DIM)
    for m in range(5):
        units = np.concatenate([np.eye(DIM), np.ones((DIM, 1))], axis=1)
        for w in fixed[:-1]:
            units = units @ np.asarray(w[m]).T
            units = np.where(units > 0, units, 0.01 * units)
        want += float(z[m]) * 2.0 / np.sqrt(5) * (units @ np.asarray(fixed[-1][m]))
    np.testing.assert_allclose(posterior.model(belief, z)(EYE), want, rtol=1e-4, atol=1e-6)
    assert want.std() > 0.01
    assert not mean(posterior, belief).any()


@pytest.mark.parametrize("posterior", [es.posteriors.Epinet, es.posteriors.EnsemblePlus])
def test_the_spread_does_not_teach_the_trunk(posterior):
    """While the base is silent, only the spread could change its hidden layer, and must not."""
    module = posterior(linear(es.networks.GaussianMLP(DIM, (6,)))).learner.make(KEY)
    z = module.index(jax.random.key(1))
    gradient = eqx.filter_grad(lambda m: m.at(z)(jnp.ones(DIM)))(module)
    assert not np.asarray(gradient.base.weights[0]).any()
    assert np.asarray(gradient.base.weights[1]).any()


def test_ensemble_plus_with_a_coordinate_index_is_the_ensemble():
    learner, key = es.Linear(DIM, NOISE_STD, prior_std=PRIOR_STD), KEY
    ensemble = es.Ensemble(learner, 4)
    plus = es.posteriors.EnsemblePlus(learner, 4, continuous=False)
    beliefs = taught(ensemble, key, 1), taught(plus, key, 1)
    want, have = (p.values(key, b, EYE, 1) for p, b in zip((ensemble, plus), beliefs, strict=True))
    np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-7)
    one = plus.sample(jax.random.key(5), beliefs[1])(EYE)
    assert np.isclose(want, one, atol=1e-6).all(axis=1).sum() == 1


def test_ensemble_plus_with_a_continuous_index_has_the_members_covariance():
    learner, key, draws = es.Linear(DIM, NOISE_STD, prior_std=PRIOR_STD), KEY, 20000
    plus = es.posteriors.EnsemblePlus(learner, 4)
    belief = taught(plus, key, 1)
    members = es.Ensemble(learner, 4).values(key, belief, EYE, 1)
    away = np.asarray(members, np.float64) - MEAN
    drawn = np.asarray(plus.values(key, belief, EYE, draws))
    width = np.sqrt((away**2).mean(axis=0))
    error = (np.cov(drawn.T) - away.T @ away / 4) / np.outer(width, width)
    assert (np.abs(error) < 5 * np.sqrt(2 / draws)).all()
    assert (np.abs(drawn.mean(axis=0) - MEAN) < 5 * width / np.sqrt(draws)).all()


def test_ensemble_plus_of_networks_shows_its_prior_before_data():
    """At sqrt(M) e_m the output layer is the prior draw of factor m, on the units of the trunk."""
    posterior = es.posteriors.EnsemblePlus(
        linear(es.networks.GaussianMLP(DIM, (6,), prior_std=1.0)), 4, False
    )
    _, member = belief = begun(posterior, KEY)
    before = np.asarray(member.model.base.weights[0])
    units = np.where(before > 0, before, 0.01 * before)
    want = np.asarray(2.0 * member.model.factors) @ units
    np.testing.assert_allclose(posterior.values(KEY, belief, EYE, 1), want, rtol=1e-5, atol=1e-6)
    assert 0.5 < np.std(2.0 * member.model.factors) < 1.5


def test_bayes_by_backprop_finds_the_exact_mean_and_the_mean_field_variances():
    settings: dict[str, Any] = {"learning_rate": 0.02, "steps": 100}
    posterior = es.posteriors.BayesByBackprop(linear(**settings), indices=32)
    start = begun(posterior, KEY)[1].model
    np.testing.assert_allclose(np.exp(start.log_std.weights[0]), PRIOR_STD, rtol=1e-5)
    model = taught(posterior, KEY, 1)[1].model
    sd = np.sqrt(np.diag(np.linalg.inv(PRECISION)))
    assert (np.abs(np.asarray(model.mean.weights[0]) - MEAN) < 0.2 * sd).all()
    variance = np.exp(2 * np.asarray(model.log_std.weights[0]))
    np.testing.assert_allclose(variance, 1 / np.diag(PRECISION), rtol=0.1)
    assert variance[0] < 0.9 * sd[0] ** 2  # weights go together here, which mean fields miss


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "langevin": (lambda: es.posteriors.Langevin(es.Linear(2)), TypeError, "takes a Network"),  # pyright: ignore
    "chains": (
        lambda: es.posteriors.Langevin(linear(), 0),
        ValueError,
        "chains must be at least 1, got 0",
    ),
    "hypermodel": (lambda: es.posteriors.Hypermodel(es.Linear(2)), TypeError, "takes a Network"),  # pyright: ignore
    "twice": (
        lambda: es.posteriors.Hypermodel(es.posteriors.Hypermodel(linear()).learner),
        ValueError,
        "plain Network",
    ),
    "frozen": (
        lambda: es.posteriors.Hypermodel(linear(es.learners.RandomisedPrior(LINEAR))),
        ValueError,
        "Hypermodel draws all weights of a network, and this one has some that are never learned",
    ),
    "frozen means": (
        lambda: es.posteriors.BayesByBackprop(linear(es.learners.RandomisedPrior(LINEAR))),
        ValueError,
        "without RandomisedPrior",
    ),
    "epinet": (
        lambda: es.posteriors.Epinet(es.Network(lambda k: eqx.nn.MLP(3, "scalar", 4, 1, key=k), 3)),
        TypeError,
        "Network of an MLP",
    ),
    "ensemble++": (lambda: es.posteriors.EnsemblePlus(3), TypeError, "Linear or a Network, got 3"),  # pyright: ignore
    "prior": (lambda: es.learners.RandomisedPrior(3), TypeError, "key -> module, got 3"),  # pyright: ignore
    "scale": (
        lambda: es.learners.RandomisedPrior(LINEAR, -1),
        ValueError,
        "scale must be greater than 0",
    ),
    "start": (
        lambda: es.posteriors.BayesByBackprop(linear(), 0.0),
        ValueError,
        "start must be greater",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name):
    call, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        call()


def test_an_epinets_head_does_not_teach_the_main_network():
    """It sees the hidden units of a base that is silent, and moves none of their weights."""
    made: Any = es.posteriors.Epinet(
        es.Network(es.networks.GaussianMLP(DIM, (6,)), DIM), 5
    ).learner.make
    drawn = made.wide(KEY)  # the head speaks
    drawn = eqx.tree_at(lambda m: m.base, drawn, silent(drawn.base))

    def output(base):
        at = eqx.tree_at(lambda m: m.base, drawn, base).at(jnp.ones(5))
        return at(EYE[0])

    hidden = drawn.base.weights[0]
    assert output(drawn.base) != output(
        eqx.tree_at(lambda b: b.weights[0], drawn.base, hidden + 1.0)
    )
    np.testing.assert_array_equal(eqx.filter_grad(output)(drawn.base).weights[0], 0 * hidden)
