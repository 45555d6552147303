"""The Laplace approximation: exact where it should be, and as plain Newton says elsewhere."""

# pyright: reportArgumentType=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import fact
from ensemble_sampling.learners import layers
from ensemble_sampling.posteriors.laplace import _shrunk

DIM, KEY = 3, jax.random.key(0)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, DIM)), RNG.normal(size=30)
CLICKS = (RNG.uniform(size=30) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))).astype(float)
PROJECTION = RNG.normal(size=(4, DIM))


def line(**settings):
    """A linear model as a network: one layer, weights N(0, 4)."""
    make = es.networks.GaussianMLP(DIM, (), prior_std=2.0)
    return es.Network(make, DIM, 4, settings.pop("noise_std", 0.7), 2.0, **settings)


class OnFixed(eqx.Module):
    """A last layer, all that is learned, on features that never move."""

    last: jax.Array

    def __call__(self, x):
        return self.last @ jnp.tanh(jnp.asarray(PROJECTION, float) @ x)


def frozen(**settings):
    make = lambda key: OnFixed(jax.random.normal(key, (4,)))  # noqa: E731
    return es.Network(make, DIM, 40, 0.7, 1.5, learning_rate=1e-3, **settings)


def learned(posterior, xs=X, ys=Y):
    def step(belief, seen):
        x, y = seen
        return posterior.update(KEY, belief, es.core.Action(jnp.int32(0), x), y), None

    rows = jnp.asarray(xs, float), jnp.asarray(ys, float)
    return jax.jit(lambda: jax.lax.scan(step, posterior.init(KEY), rows)[0])()


def weights(belief):
    return np.asarray(layers.vector(belief.member.model)[0], np.float64)


def covariance(belief):
    root = np.asarray(belief.spread, np.float64)
    return root @ root.T


def test_for_linear_gaussian_models_it_is_the_exact_posterior():
    """To float32's rounding over 30 updates; the prior's mean is where the network starts."""
    posterior = es.posteriors.Laplace(line())
    start = weights(posterior.init(KEY))
    have = learned(posterior)
    exact = es.Exact(es.Linear(DIM, noise_std=0.7, prior_mean=start, prior_std=2.0))
    shared, _ = learned(exact)
    root = 0.7 * np.asarray(shared.root.value, np.float64)
    np.testing.assert_allclose(weights(have), shared.mean.value, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(covariance(have), root @ root.T, rtol=2e-5, atol=2e-7)
    features = jnp.asarray(RNG.normal(size=(5, DIM)), float)
    draws = posterior.values(KEY, have, features, 4000)
    mean, std = fact(exact, "mean_and_std")((shared, learned(exact)[1]), features)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.06)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(4000)).all()


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


def test_for_logistic_models_every_update_is_newtons():
    """Outcome by outcome as Chapelle and Li do it, to rounding; and near all of them at once."""
    posterior = es.posteriors.Laplace(line(loss=es.learners.CrossEntropy(), noise_std=0.5))
    have = learned(posterior, X, CLICKS)
    mean = start = weights(posterior.init(KEY))
    precision = np.eye(DIM) / 4
    for x, y in zip(X, CLICKS, strict=True):
        mean, precision = newton(x[None], np.array([y]), mean, precision)
    np.testing.assert_allclose(weights(have), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance(have), np.linalg.inv(precision), rtol=1e-3, atol=1e-5)
    mode, whole = newton(X, CLICKS, start, np.eye(DIM) / 4)
    std = np.sqrt(np.diag(np.linalg.inv(whole)))
    assert (np.abs(weights(have) - mode) < 0.5 * std).all()
    np.testing.assert_allclose(np.sqrt(np.diag(covariance(have))), std, rtol=0.25)


def test_a_great_surprise_does_not_overshoot():
    """At an output of -8 the likelihood of a click is flat, and plain Newton jumps far beyond."""
    posterior = es.posteriors.Laplace(line(loss=es.learners.CrossEntropy(), noise_std=0.5))
    start = posterior.init(KEY)
    x, at = np.array([8.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0])
    member = start.member._replace(model=layers.vector(start.member.model)[1](jnp.asarray(at)))
    have = posterior.update(
        KEY,
        start._replace(member=member),
        es.core.Action(jnp.int32(0), jnp.asarray(x)),
        jnp.asarray(1.0),
    )
    mode, _ = newton(x[None], np.ones(1), at, np.eye(DIM) / 4)
    np.testing.assert_allclose(weights(have), mode, rtol=1e-4, atol=1e-5)


def test_the_last_layers_covariance_is_exact_where_features_stand_still():
    phi = np.tanh(X @ PROJECTION.T)
    precision = np.eye(4) / 1.5**2 + phi.T @ phi / 0.7**2
    have = learned(es.posteriors.Laplace(frozen(), "last"))
    np.testing.assert_allclose(covariance(have), np.linalg.inv(precision), rtol=1e-4, atol=1e-6)
    have = learned(es.posteriors.Laplace(frozen(), "diagonal"))
    np.testing.assert_allclose(have.spread, np.diag(precision), rtol=1e-5)


def test_the_network_learns_as_a_point_does():
    last, point = (
        learned(es.posteriors.Laplace(frozen(), "last")),
        learned(es.posteriors.Point(frozen())),
    )
    assert np.array_equal(weights(last), layers.vector(point[1].model)[0])


def test_vectors_of_outcomes_add_a_curvature_in_every_direction():
    jacobian, half = RNG.normal(size=(2, 5)), RNG.normal(size=(2, 2))
    root, curvature = np.tril(RNG.normal(size=(5, 5))) + 3 * np.eye(5), half @ half.T
    have = np.asarray(_shrunk(*(jnp.asarray(a, float) for a in (root, jacobian, curvature))))
    want = np.linalg.inv(np.linalg.inv(root @ root.T) + jacobian.T @ curvature @ jacobian)
    np.testing.assert_allclose(have @ have.T, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["last", "diagonal"])
def test_jacobians_are_of_the_network_that_has_learned_the_outcome(kind):
    """By plain NumPy from the network after every update, on features that move a lot."""
    make = es.networks.GaussianMLP(2, (3,))
    posterior = es.posteriors.Laplace(es.Network(make, 2, 16, 0.7, learning_rate=0.2), kind)
    belief, update = posterior.init(KEY), jax.jit(lambda *given: posterior.update(*given))
    width = np.asarray(layers.widths(posterior.learner, belief.member, kind == "last"), float)
    precision, xs = np.diag(width**-2.0), 2 + X[:6, :2]
    for t, (x, y) in enumerate(zip(xs, 1 + Y[:6], strict=True)):
        action = es.core.Action(jnp.int32(0), jnp.asarray(x, float))
        belief = update(jax.random.key(t), belief, action, jnp.asarray(y, float))
        first, last = (np.asarray(w, np.float64) for w in belief.member.model.weights)
        units = first @ np.append(x, 1)
        hidden, slope = np.where(units > 0, units, 0.01 * units), np.where(units > 0, 1, 0.01)
        inner = np.outer(last * slope, np.append(x, 1)).ravel()
        jacobian = hidden if kind == "last" else np.append(inner, hidden)
        precision += np.outer(jacobian, jacobian) / 0.7**2
    if kind == "last":
        np.testing.assert_allclose(covariance(belief), np.linalg.inv(precision), rtol=1e-3)
    else:
        np.testing.assert_allclose(belief.spread, np.diag(precision), rtol=1e-3)


def test_a_full_covariance_takes_its_jacobian_where_the_step_began():
    """For one outcome of a network with hidden units: Lambda = P + J'J / noise^2 at the start."""
    posterior = es.posteriors.Laplace(
        es.Network(es.networks.GaussianMLP(2, (3,), prior_std=1.0), 2, 4, 0.3, 1.0)
    )
    start = posterior.init(KEY)
    grown = jax.tree.map(lambda w: 50 * w, start.member.model)  # it starts near zero
    start = start._replace(member=start.member._replace(model=grown, start=grown))
    x = X[0, :2]
    first, last = (np.asarray(w, np.float64) for w in grown.weights)
    units = first @ x
    hidden, slope = np.where(units > 0, units, 0.01 * units), np.where(units > 0, 1, 0.01)
    jacobian = np.append(np.outer(last * slope, x).ravel(), hidden)
    action = es.core.Action(jnp.int32(0), jnp.asarray(x, float))
    have = posterior.update(KEY, start, action, jnp.asarray(3.0))
    want = np.linalg.inv(np.eye(9) + np.outer(jacobian, jacobian) / 0.09)
    assert np.abs(weights(have) - weights(start)).max() > 0.1
    np.testing.assert_allclose(covariance(have), want, atol=1e-4)


@pytest.mark.parametrize("kind", ["full", "last", "diagonal"])
def test_samples_have_the_covariance_it_says(kind):
    """Of 20,000 draws: a covariance in units of the deviations to 5 sqrt(2 / 20,000) = 0.05. A
    root that is not symmetric, which rows of one action after another make."""
    make = es.networks.GaussianMLP(DIM, (), prior_std=2.0)
    posterior = es.posteriors.Laplace(es.Network(make, DIM, 40, 0.2, 2.0), kind)
    belief = learned(posterior, X @ np.array([[1, 0.9, 0.9], [0, 0.3, 0], [0, 0, 0.1]]))
    wide = np.asarray(belief.spread, np.float64)
    want = np.diag(1 / wide) if kind == "diagonal" else wide @ wide.T
    drawn = np.asarray(posterior.values(KEY, belief, jnp.eye(DIM), 20_000))
    sd = np.sqrt(np.diag(want))
    error = (np.cov(drawn.T) - want) / np.outer(sd, sd)
    assert (np.abs(error) < 0.05).all(), error
    if kind != "diagonal":
        assert np.abs((wide.T @ wide - want) / np.outer(sd, sd)).max() > 0.2


def test_inflation_scales_how_far_samples_are():
    one, two = (es.posteriors.Laplace(frozen(), "diagonal", inflation) for inflation in (1.0, 3.0))
    belief, features = learned(one), jnp.asarray(X[:4], float)
    mean = one.learner.predict(belief.shared, belief.member, features)
    near, far = (p.sample(KEY, belief)(features) - mean for p in (one, two))
    np.testing.assert_allclose(far, 3 * near, rtol=1e-3, atol=1e-5)


def test_the_last_layer_is_the_last_array_or_a_weight_with_its_bias():
    listed = es.networks.GaussianMLP(DIM, (5,))(KEY)
    assert layers.vector(eqx.filter(listed, eqx.is_array), last=True)[0].shape == (5,)
    assert layers.vector(eqx.filter(listed, eqx.is_array))[0].shape == (5 * (DIM + 1) + 5,)
    named = eqx.filter(eqx.nn.MLP(DIM, "scalar", 5, 1, key=KEY), eqx.is_array)
    flat, whole = layers.vector(named, last=True)
    assert flat.shape == (5 + 1,)
    back = whole(jnp.arange(6.0))
    assert np.array_equal(layers.vector(back, last=True)[0], np.arange(6.0))
    assert np.array_equal(back.layers[0].weight, named.layers[0].weight)


BAD = [
    (
        lambda: es.posteriors.Laplace(es.Linear(3)),
        TypeError,
        r"Laplace takes a Network, got Linear.*Exact",
    ),
    (
        lambda: es.posteriors.Laplace(line(), "block"),
        ValueError,
        "'full', 'last' or 'diagonal', got 'block'",
    ),
    (lambda: es.posteriors.Laplace(line(noise_std=None)), ValueError, "give the Network noise_std"),
    (
        lambda: es.posteriors.Laplace(line(), inflation=0),
        ValueError,
        "inflation must be greater than 0",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
