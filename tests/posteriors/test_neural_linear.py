"""Neural-linear: exact regression on whatever features the network has by now."""

# pyright: reportArgumentType=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_laplace import DIM, KEY, PROJECTION, X, Y, frozen, learned

import ensemble_sampling as es
from ensemble_sampling.core import fact

FEATURES = jnp.asarray(np.random.default_rng(3).normal(size=(6, DIM)), float)


def moving(**settings):
    return es.Network(es.networks.GaussianMLP(DIM, (5,)), DIM, 20, **settings)


def test_on_features_that_stand_still_it_is_exact_linear_regression():
    """Float32 sums of 30 rows: 1e-4."""
    have = learned(es.posteriors.NeuralLinear(frozen()))
    shared, member = learned(
        es.Exact(es.Linear(4, noise_std=0.7, prior_std=1.5)), np.tanh(X @ PROJECTION.T), Y
    )
    root = 0.7 * np.asarray(shared.root.value, np.float64)
    precision = np.asarray(have.root @ have.root.T, np.float64)
    np.testing.assert_allclose(have.mean, shared.mean.value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.inv(precision), root @ root.T, rtol=1e-4, atol=1e-6)
    mean, std = es.posteriors.NeuralLinear(frozen()).mean_and_std(have, FEATURES)
    phi = jnp.tanh(FEATURES @ PROJECTION.T)
    want = fact(es.Linear(4, 0.7, prior_std=1.5), "mean_and_std")((shared, member), phi)
    np.testing.assert_allclose(mean, want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, want[1], rtol=1e-4)


@pytest.mark.parametrize("noise_std", [0.7, None], ids=["told", "learned"])
def test_the_regression_is_made_anew_on_the_features_of_the_moment(noise_std):
    """From the 20 newest of 30 observations, by plain NumPy on the network's own hidden units."""
    posterior = es.posteriors.NeuralLinear(moving(noise_std=noise_std, prior_std=1.5))
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
    """With little noise the root is far from symmetric, and which way it is solved by matters."""
    posterior = es.posteriors.NeuralLinear(moving(noise_std=0.1), inflation=1.3)
    belief = learned(posterior)
    draw = jax.jit(lambda: posterior.values(jax.random.key(1), belief, FEATURES, 20_000))
    values = np.asarray(draw(), np.float64)
    mean, std = fact(posterior, "mean_and_std")(belief, FEATURES)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(20_000)).all()
    np.testing.assert_allclose(std, values.std(axis=0), rtol=5 / 200)


def test_only_what_was_seen_counts():
    """After 3 of 20 possible observations: an empty row has the constant for a feature."""
    posterior = es.posteriors.NeuralLinear(moving(noise_std=0.7, prior_std=1.5))
    have = learned(posterior, X[:3], Y[:3])
    first, last = (np.asarray(w, np.float64) for w in have.member.model.weights)
    units = np.append(X[:3], np.ones((3, 1)), axis=1) @ first.T
    phi = np.where(units > 0, units, 0.01 * units)
    precision = np.eye(len(last)) / 1.5**2 + phi.T @ phi / 0.7**2
    np.testing.assert_allclose(have.root @ have.root.T, precision, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("noise_std", [1e-2, 1e-4])
def test_precise_outcomes_do_not_break_the_regression(noise_std):
    """More units than float32 can tell apart in a sum of squares of phi / noise_std: NaN then."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(60, DIM))
    make = es.networks.GaussianMLP(DIM, (50,))
    posterior = es.posteriors.NeuralLinear(es.Network(make, DIM, 64, noise_std, steps=1, batch=8))
    belief = learned(posterior, xs, xs[:, 0] ** 2)
    assert int(posterior.diverged(belief)) == 0
    mean, std = posterior.mean_and_std(belief, jnp.asarray(xs, float))
    assert np.isfinite(mean).all()
    assert (np.asarray(std) > 0).all()


def test_with_no_data_it_shows_its_prior():
    posterior = es.posteriors.NeuralLinear(frozen())
    _, std = posterior.mean_and_std(posterior.init(KEY), FEATURES)
    phi = np.tanh(np.asarray(FEATURES) @ PROJECTION.T)
    np.testing.assert_allclose(std, 1.5 * np.linalg.norm(phi, axis=1), rtol=1e-5)


class Together(eqx.Module):
    """Two layers side by side in one module: all of it would be taken for the last."""

    hidden: jax.Array
    last: jax.Array

    def __call__(self, x):
        return self.last @ jnp.tanh(self.hidden @ x)


def together(key):
    return Together(jax.random.normal(key, (5, DIM)), jax.random.normal(key, (5,)))


def squashed(final):
    return lambda key: eqx.nn.MLP(DIM, "scalar", 5, 1, final_activation=final, key=key)


def test_plain_equinox_modules_with_a_linear_last_layer_are_fine():
    es.posteriors.NeuralLinear(es.Network(squashed(lambda x: x), DIM))
    es.posteriors.Laplace(
        es.Network(es.learners.RandomisedPrior(es.networks.GaussianMLP(DIM, (5,))), DIM), "last"
    )


@pytest.mark.parametrize(
    "posterior", [es.posteriors.NeuralLinear, lambda net: es.posteriors.Laplace(net, "last")]
)
@pytest.mark.parametrize(
    "make",
    [
        together,
        squashed(jnp.tanh),
        squashed(jax.nn.relu),
        es.networks.GaussianMLP(DIM, (5,), squash=True),
    ],
    ids=["together", "tanh", "relu", "squash"],
)
def test_an_output_that_is_not_linear_in_the_last_layer_is_refused(posterior, make):
    with pytest.raises(ValueError, match="needs a network whose output is linear in its last"):
        posterior(es.Network(make, DIM))


BAD = [
    (lambda: es.posteriors.NeuralLinear(es.Linear(3)), TypeError, "takes a Network, got Linear"),
    (
        lambda: es.posteriors.NeuralLinear(moving(loss=es.learners.CrossEntropy())),
        ValueError,
        "SquaredError",
    ),
    (
        lambda: es.posteriors.NeuralLinear(
            es.Network(es.networks.GaussianMLP(DIM, (5,), 4), DIM, arms=4)
        ),
        ValueError,
        "single output, got arms=4",
    ),
    (
        lambda: es.posteriors.NeuralLinear(moving(), inflation=-1),
        ValueError,
        "inflation must be greater",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
