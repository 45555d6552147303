"""A Gaussian around one network: exact where it should be, and as plain Newton says elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

import ensemble_sampling as es
from ensemble_sampling.core import Action, fact
from ensemble_sampling.learners.modules import vector
from ensemble_sampling.networks import GaussianMLP
from ensemble_sampling.posteriors import Laplace, NeuralLinear, Point
from ensemble_sampling.posteriors.laplace import _condition

DIM, KEY = 3, jax.random.key(0)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, DIM)), RNG.normal(size=30)
CLICKS = (RNG.uniform(size=30) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))).astype(float)
PROJECTION = RNG.normal(size=(4, DIM))
PHI = np.tanh(X @ PROJECTION.T)
FEATURES = jnp.asarray(np.random.default_rng(3).normal(size=(6, DIM)), float)


def line(noise_std=0.7, **settings):
    """A linear model as a network: one layer, weights N(0, 4)."""
    return es.Network(GaussianMLP(DIM, (), prior_std=2.0), DIM, 40, noise_std, 2.0, **settings)


class OnFixed(eqx.Module):
    """A last layer, all that is learned, on features that never move."""

    last: jax.Array

    def __call__(self, x):
        return self.last @ jnp.tanh(jnp.asarray(PROJECTION, float) @ x)


def frozen(**settings):
    make = lambda key: OnFixed(jax.random.normal(key, (4,)))  # noqa: E731
    return es.Network(make, DIM, 40, 0.7, 1.5, learning_rate=1e-3, **settings)


def moving(**settings):
    return es.Network(GaussianMLP(DIM, (5,)), DIM, 20, **settings)


def learned(posterior, xs=X, ys=Y):
    return reference.learn(posterior, KEY, np.zeros(len(ys), int), xs, ys)[1]


def weights(belief):
    return np.asarray(vector(belief.member.model)[0], np.float64)


def covariance(belief):
    root = np.asarray(belief.spread, np.float64)
    return root @ root.T


def check_moments(values, mean, std):
    """Those of draws, to five standard errors."""
    draws = len(values)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(draws)).all()
    np.testing.assert_allclose(values.std(axis=0), std, rtol=5 / np.sqrt(2 * draws))


def test_for_linear_gaussian_models_it_is_the_exact_posterior():
    """To float32's rounding over 30 updates; the prior's mean is where the network starts."""
    posterior = Laplace(line())
    have, start = learned(posterior), weights(posterior.init(KEY))
    exact = es.Exact(es.Linear(DIM, noise_std=0.7, prior_mean=start, prior_std=2.0))
    shared, member = learned(exact)
    root = 0.7 * np.asarray(shared.root.value, np.float64)
    np.testing.assert_allclose(weights(have), shared.mean.value, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(covariance(have), root @ root.T, rtol=2e-5, atol=2e-7)
    draws = posterior.values(KEY, have, FEATURES, 4000)
    check_moments(draws, *fact(exact, "mean_and_std")((shared, member), FEATURES))


def sigmoid(f):
    return 1 / (1 + np.exp(-f))


def newton(xs, ys, mean, precision):
    """The logistic model's mode and its precision, from a prior, by forty damped Newton steps."""

    def cost(w):
        far, f = w - mean, xs @ w
        return far @ precision @ far / 2 + np.sum(np.logaddexp(0, f) - ys * f)

    w = mean.copy()
    for _ in range(40):
        p = sigmoid(xs @ w)
        hessian = precision + (xs.T * (p * (1 - p))) @ xs
        step = np.linalg.solve(hessian, precision @ (w - mean) + xs.T @ (p - ys))
        while cost(w - step) > cost(w) + 1e-12 and np.abs(step).max() > 1e-12:
            step = step / 2
        w = w - step
    p = sigmoid(xs @ w)
    return w, precision + (xs.T * (p * (1 - p))) @ xs


LOGISTIC = Laplace(line(loss=es.learners.CrossEntropy(), noise_std=0.5))


def test_for_logistic_models_every_update_is_newtons():
    """Outcome by outcome as Chapelle and Li do it, to rounding; and near all of them at once."""
    have = learned(LOGISTIC, X, CLICKS)
    mean = start = weights(LOGISTIC.init(KEY))
    precision = np.eye(DIM) / 4
    for x, y in zip(X, CLICKS, strict=True):
        mean, precision = newton(x[None], np.array([y]), mean, precision)
    np.testing.assert_allclose(weights(have), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance(have), np.linalg.inv(precision), rtol=1e-3, atol=1e-5)
    mode, whole = newton(X, CLICKS, start, np.eye(DIM) / 4)
    std = np.sqrt(np.diag(np.linalg.inv(whole)))
    assert (np.abs(weights(have) - mode) < 0.5 * std).all()
    np.testing.assert_allclose(np.sqrt(np.diag(covariance(have))), std, rtol=0.25)


@jax.jit
def update(posterior, key, belief, x, y):
    return posterior.update(key, belief, Action(jnp.int32(0), jnp.asarray(x, float)), y)


def test_a_great_surprise_does_not_overshoot():
    """At an output of -8 the likelihood of a click is flat, and plain Newton jumps far beyond."""
    start = LOGISTIC.init(KEY)
    x, at = np.array([8.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0])
    member = start.member._replace(model=vector(start.member.model)[1](jnp.asarray(at)))
    have = update(LOGISTIC, KEY, start._replace(member=member), x, 1.0)
    mode, _ = newton(x[None], np.ones(1), at, np.eye(DIM) / 4)
    np.testing.assert_allclose(weights(have), mode, rtol=1e-4, atol=1e-5)


def test_vectors_of_outcomes_add_a_curvature_in_every_direction():
    jacobian, half = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 2))
    root, curvature = np.tril(RNG.normal(size=(5, 5))) + 3 * np.eye(5), half @ half.T
    have = np.asarray(_condition(*(jnp.asarray(a, float) for a in (root, jacobian, curvature))))
    want = np.linalg.inv(np.linalg.inv(root @ root.T) + jacobian.T @ curvature @ jacobian)
    np.testing.assert_allclose(have @ have.T, want, rtol=1e-3, atol=1e-4)


def test_where_features_stand_still_covariances_are_exact_and_the_network_learns_as_a_point():
    """Float32 sums of 30 rows: 1e-4."""
    precision = np.eye(4) / 1.5**2 + PHI.T @ PHI / 0.7**2
    last, diagonal, point = map(
        learned, (Laplace(frozen(), "last"), Laplace(frozen(), "diagonal"), Point(frozen()))
    )
    np.testing.assert_allclose(covariance(last), np.linalg.inv(precision), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(diagonal.spread, np.diag(precision), rtol=1e-5)
    np.testing.assert_allclose(weights(last), vector(point[1].model)[0], rtol=1e-5)


def gradient(network, x):
    """By a two-layer network's weights, layer after layer, and its hidden units."""
    first, last = (np.asarray(w, np.float64) for w in network.weights)
    units = first @ x
    hidden, slope = np.where(units > 0, units, 0.01 * units), np.where(units > 0, 1, 0.01)
    return np.append(np.outer(last * slope, x).ravel(), hidden), hidden


@pytest.mark.parametrize("kind", ["last", "diagonal"])
def test_jacobians_are_of_the_network_that_has_learned_the_outcome(kind):
    """By plain NumPy from the network after every update, on features that move a lot."""
    learner = es.Network(GaussianMLP(2, (3,)), 2, 16, 0.7, learning_rate=0.2)
    posterior = Laplace(learner, kind)
    belief = posterior.init(KEY)
    width, _ = vector(learner.prior_widths(belief.member), kind == "last")
    precision, xs = np.diag(np.asarray(width, float) ** -2.0), 2 + X[:6, :2]
    for t, (x, y) in enumerate(zip(xs, 1 + Y[:6], strict=True)):
        belief = update(posterior, jax.random.key(t), belief, x, y)
        jacobian = gradient(belief.member.model, np.append(x, 1))[kind == "last"]
        precision += np.outer(jacobian, jacobian) / 0.7**2
    if kind == "last":
        np.testing.assert_allclose(covariance(belief), np.linalg.inv(precision), rtol=1e-3)
    else:
        np.testing.assert_allclose(belief.spread, np.diag(precision), rtol=1e-3)


def test_a_full_covariance_takes_its_jacobian_where_the_step_began():
    """For one outcome of a network with hidden units: Lambda = P + J'J / noise^2 at the start."""
    posterior = Laplace(es.Network(GaussianMLP(2, (3,), prior_std=1.0), 2, 4, 0.3, 1.0))
    start = posterior.init(KEY)
    grown = jax.tree.map(lambda w: 50 * w, start.member.model)  # it starts near zero
    start = start._replace(member=start.member._replace(model=grown, start=grown))
    jacobian, _ = gradient(grown, X[0, :2])
    have = update(posterior, KEY, start, X[0, :2], 3.0)
    want = np.linalg.inv(np.eye(9) + np.outer(jacobian, jacobian) / 0.09)
    assert np.abs(weights(have) - weights(start)).max() > 0.1
    np.testing.assert_allclose(covariance(have), want, atol=1e-4)


@pytest.mark.parametrize("kind", ["full", "last", "diagonal"])
def test_samples_have_the_covariance_it_says_and_inflation_scales_how_far_they_are(kind):
    """Of 20,000 draws: a covariance in units of the deviations to 5 sqrt(2 / 20,000) = 0.05. A
    root that is not symmetric, which rows of one action after another make."""
    posterior = Laplace(line(0.2), kind)
    belief = learned(posterior, X @ np.array([[1, 0.9, 0.9], [0, 0.3, 0], [0, 0, 0.1]]))
    wide = np.asarray(belief.spread, np.float64)
    want = np.diag(1 / wide) if kind == "diagonal" else wide @ wide.T
    drawn = np.asarray(posterior.values(KEY, belief, jnp.eye(DIM), 20_000))
    sd = np.sqrt(np.diag(want))
    error = (np.cov(drawn.T) - want) / np.outer(sd, sd)
    assert (np.abs(error) < 0.05).all(), error
    if kind != "diagonal":
        assert np.abs((wide.T @ wide - want) / np.outer(sd, sd)).max() > 0.2
    mean = posterior.learner.predict(belief.shared, belief.member, FEATURES)
    near, far = (
        Laplace(line(0.2), kind, inflation).sample(KEY, belief)(FEATURES) - mean
        for inflation in (1.0, 3.0)
    )
    np.testing.assert_allclose(far, 3 * near, rtol=1e-3, atol=1e-5)


def test_the_last_layer_is_the_last_array_or_a_weight_with_its_bias():
    listed = eqx.filter(GaussianMLP(DIM, (5,))(KEY), eqx.is_array)
    assert vector(listed, last=True)[0].shape == (5,)
    assert vector(listed)[0].shape == (5 * (DIM + 1) + 5,)
    named = eqx.filter(eqx.nn.MLP(DIM, "scalar", 5, 1, key=KEY), eqx.is_array)
    flat, whole = vector(named, last=True)
    assert flat.shape == (5 + 1,)
    back = whole(jnp.arange(6.0))
    assert np.array_equal(vector(back, last=True)[0], np.arange(6.0))
    assert np.array_equal(back.layers[0].weight, named.layers[0].weight)


# Neural-linear: exact regression on whatever features the network has by now


def test_on_features_that_stand_still_it_is_exact_linear_regression():
    """Float32 sums of 30 rows: 1e-4. With no data it shows its prior."""
    posterior, line = NeuralLinear(frozen()), es.Linear(4, noise_std=0.7, prior_std=1.5)
    have, (shared, member) = learned(posterior), learned(es.Exact(line), PHI, Y)
    root = 0.7 * np.asarray(shared.root.value, np.float64)
    precision = np.asarray(have.root @ have.root.T, np.float64)
    np.testing.assert_allclose(have.mean, shared.mean.value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.inv(precision), root @ root.T, rtol=1e-4, atol=1e-6)
    mean, std = posterior.mean_and_std(have, FEATURES)
    phi = jnp.tanh(FEATURES @ PROJECTION.T)
    want = fact(line, "mean_and_std")((shared, member), phi)
    np.testing.assert_allclose(mean, want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, want[1], rtol=1e-4)
    _, std = posterior.mean_and_std(posterior.init(KEY), FEATURES)
    np.testing.assert_allclose(std, 1.5 * np.linalg.norm(phi, axis=1), rtol=1e-5)


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("noise_std", [0.7, None], ids=["told", "learned"])
def test_the_regression_is_made_anew_on_the_features_of_the_moment(noise_std, count):
    """From the newest 20 observations, or the 3 there are, by plain NumPy on the network's own
    hidden units. An empty row has the constant for a feature, and must not count."""
    posterior = NeuralLinear(moving(noise_std=noise_std, prior_std=1.5))
    have = learned(posterior, 3 + 2 * X[:count], 5 + Y[:count])
    first, last = (np.asarray(w, np.float64) for w in have.member.model.weights)
    shared, noise, held = have.shared, noise_std, min(count, 20)
    xs, ys = (np.asarray(a, np.float64)[:held] for a in (shared.features, shared.outcomes))
    center, spread = 0.0, 1.0
    if shared.scales is not None:
        moments = jax.tree.map(lambda a: np.asarray(a, np.float64), shared.scales)
        xs = np.clip((xs - moments.features.center) / np.sqrt(moments.features.variance), -5, 5)
        center, spread = moments.outcomes.center, np.sqrt(moments.outcomes.variance)
        noise = float(shared.scales.noise_std(have.member.error, shared.held))
    units = np.append(xs, np.ones((held, 1)), axis=1) @ first.T
    phi = spread * np.where(units > 0, units, 0.01 * units)
    precision = np.eye(len(last)) / 1.5**2 + phi.T @ phi / noise**2
    mean = np.linalg.solve(precision, phi.T @ (ys - center) / noise**2)
    np.testing.assert_allclose(have.root @ have.root.T, precision, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(have.mean, mean, rtol=1e-2, atol=1e-3)


def test_samples_of_the_regression_have_the_moments_it_says():
    """With little noise the root is far from symmetric, and which way it is solved by matters."""
    posterior = NeuralLinear(moving(noise_std=0.1), inflation=1.3)
    belief = learned(posterior)
    draw = jax.jit(lambda: posterior.values(jax.random.key(1), belief, FEATURES, 20_000))
    moments = fact(posterior, "mean_and_std")(belief, FEATURES)
    check_moments(np.asarray(draw(), np.float64), *moments)


@pytest.mark.parametrize("noise_std", [1e-2, 1e-4])
def test_precise_outcomes_do_not_break_the_regression(noise_std):
    """More units than float32 can tell apart in a sum of squares of phi / noise_std: NaN then."""
    xs = np.random.default_rng(1).normal(size=(60, DIM))
    make = GaussianMLP(DIM, (50,))
    posterior = NeuralLinear(es.Network(make, DIM, 64, noise_std, steps=1, batch=8))
    belief = learned(posterior, xs, xs[:, 0] ** 2)
    assert int(posterior.diverged(belief)) == 0
    mean, std = posterior.mean_and_std(belief, jnp.asarray(xs, float))
    assert np.isfinite(mean).all()
    assert (np.asarray(std) > 0).all()
