"""Neural-linear: exact regression on whatever features the network has by now."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_laplace import DIM, KEY, PROJECTION, X, Y, frozen, learned

import ensemble_sampling as es
from ensemble_sampling.core import fact

FEATURES = jnp.asarray(np.random.default_rng(3).normal(size=(6, DIM)), float)


def moving(**settings):
    return es.Network(es.GaussianMLP(DIM, (5,)), DIM, 20, **settings)


def test_on_features_that_stand_still_it_is_exact_linear_regression():
    """Float32 sums of 30 rows: 1e-4."""
    have = learned(es.NeuralLinear(frozen()))
    shared, member = learned(
        es.Exact(es.Linear(4, noise_std=0.7, prior_std=1.5)), np.tanh(X @ PROJECTION.T), Y
    )
    root = 0.7 * np.asarray(shared.root.value, np.float64)
    precision = np.asarray(have.root @ have.root.T, np.float64)
    np.testing.assert_allclose(have.mean, shared.mean.value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.inv(precision), root @ root.T, rtol=1e-4, atol=1e-6)
    mean, std = es.NeuralLinear(frozen()).mean_and_std(have, FEATURES)
    phi = jnp.tanh(FEATURES @ PROJECTION.T)
    want = fact(es.Linear(4, 0.7, prior_std=1.5), "mean_and_std")((shared, member), phi)
    np.testing.assert_allclose(mean, want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, want[1], rtol=1e-4)


@pytest.mark.parametrize("noise_std", [0.7, None], ids=["told", "learned"])
def test_the_regression_is_made_anew_on_the_features_of_the_moment(noise_std):
    """From the 20 newest of 30 observations, by plain NumPy on the network's own hidden units."""
    posterior = es.NeuralLinear(moving(noise_std=noise_std, prior_std=1.5))
    have = learned(posterior, 3 + 2 * X, 5 + Y)
    first, last = (np.asarray(w, np.float64) for w in have.member.model.weights)
    shared, noise = have.shared, noise_std
    xs, ys = np.asarray(shared.features, np.float64), np.asarray(shared.outcomes, np.float64)
    center, spread = 0.0, 1.0
    if shared.scales is not None:
        moments = jax.tree.map(lambda a: np.asarray(a, np.float64), shared.scales)
        xs = np.clip((xs - moments.features.center) / np.sqrt(moments.features.variance), -5, 5)
        center, spread = moments.outcomes.center, np.sqrt(moments.outcomes.variance)
        noise = float(shared.scales.noise_std(have.member.error, shared.held))
    units = np.append(xs, np.ones((20, 1)), axis=1) @ first.T
    phi = spread * np.where(units > 0, units, 0.01 * units)
    precision = np.eye(len(last)) / 1.5**2 + phi.T @ phi / noise**2
    mean = np.linalg.solve(precision, phi.T @ (ys - center) / noise**2)
    np.testing.assert_allclose(have.root @ have.root.T, precision, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(have.mean, mean, rtol=1e-2, atol=1e-3)


def test_samples_have_the_moments_it_says():
    posterior = es.NeuralLinear(moving(noise_std=0.7), inflation=1.3)
    belief = learned(posterior)
    draw = jax.jit(lambda: posterior.values(jax.random.key(1), belief, FEATURES, 20_000))
    values = np.asarray(draw(), np.float64)
    mean, std = fact(posterior, "mean_and_std")(belief, FEATURES)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(20_000)).all()
    np.testing.assert_allclose(std, values.std(axis=0), rtol=5 / 200)


def test_with_no_data_it_shows_its_prior():
    posterior = es.NeuralLinear(frozen())
    _, std = posterior.mean_and_std(posterior.init(KEY), FEATURES)
    phi = np.tanh(np.asarray(FEATURES) @ PROJECTION.T)
    np.testing.assert_allclose(std, 1.5 * np.linalg.norm(phi, axis=1), rtol=1e-5)


BAD = [
    (lambda: es.NeuralLinear(es.Linear(3)), TypeError, "takes a Network, got Linear"),
    (lambda: es.NeuralLinear(moving(loss=es.CrossEntropy())), ValueError, "SquaredError"),
    (
        lambda: es.NeuralLinear(es.Network(es.GaussianMLP(DIM, (5,), 4), DIM, arms=4)),
        ValueError,
        "single output, got arms=4",
    ),
    (lambda: es.NeuralLinear(moving(), inflation=-1), ValueError, "inflation must be greater"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
