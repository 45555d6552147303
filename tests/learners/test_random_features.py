"""Random waves of the features, and the kernel that they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import learn

import ensemble_sampling as es

DIM = 3
X = np.random.default_rng(0).normal(size=(6, DIM))
ROWS = jnp.asarray(X, float)
KINDS = (es.learners.Waves(8, 1.0, 2.0), es.learners.Waves(6, 3.0, 0.5))


def orthogonal(rng, number):
    """Blocks of at most DIM columns: a basis by Gram and Schmidt, and lengths of normal vectors."""
    columns = []
    for start in range(0, number, DIM):
        many = min(DIM, number - start)
        drawn, basis = rng.standard_normal((DIM, many)), []
        for j in range(many):
            rest = drawn[:, j] - sum((b @ drawn[:, j]) * b for b in basis)
            basis.append(rest / np.linalg.norm(rest))
        lengths = np.linalg.norm(rng.standard_normal((DIM, many)), axis=0)
        columns += [length * b for length, b in zip(lengths, basis, strict=True)]
    return np.stack(columns, axis=1)


def test_features_are_followed_by_cosines_and_sines_of_every_kind(float64):
    made = es.RandomFeatures(es.Linear, DIM, KINDS, seed=4)
    rng = np.random.default_rng(4)
    rows = []
    directions = [f / np.sqrt(DIM) * orthogonal(rng, n // 2) for n, f, _ in KINDS]
    scales = [a / np.sqrt(n // 2) for n, _, a in KINDS]
    for x in X:
        row = list(x)
        for wave in (np.cos, np.sin):
            for w, scale in zip(directions, scales, strict=True):
                row += [scale * wave(x @ w[:, j]) for j in range(w.shape[1])]
        rows.append(row)
    assert made.width == DIM + 8 + 6
    np.testing.assert_allclose(made.expand(jnp.asarray(X)), rows, rtol=0, atol=1e-12)
    np.testing.assert_allclose(made.expand(jnp.asarray(X[0])), rows[0], rtol=0, atol=1e-12)


def test_the_seed_and_nothing_else_decides_the_waves():
    one, same, other = (es.RandomFeatures(es.Linear, DIM, KINDS, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.expand(ROWS), same.expand(ROWS))
    assert (one.expand(ROWS)[:, DIM:] != other.expand(ROWS)[:, DIM:]).all()
    np.testing.assert_array_equal(other.expand(ROWS)[:, :DIM], ROWS)


class Narrow:
    """A learner that is never asked: of a width at which a real one would be large."""

    def __init__(self, dim):
        self.dim = dim

    init = predict = observe = staticmethod(lambda *given: None)


@pytest.mark.parametrize("frequency", [1.0, 3.0])
def test_many_waves_are_a_gaussian_kernel(frequency, float64):
    """20,000 cosines and sines: an entry is a mean of 10,000 cosines, within five standard errors,
    5 / sqrt(2 * 10,000) = 0.036 at most."""
    waves = (es.learners.Waves(20_000, frequency, 1.0),)
    made = es.RandomFeatures(Narrow, DIM, waves)  # pyright: ignore[reportArgumentType]
    z = np.asarray(made.expand(jnp.asarray(X)))[:, DIM:]
    apart = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    want = np.exp(-apart * frequency**2 / (2 * DIM))
    assert np.abs(z @ z.T - want).max() < 0.036
    np.testing.assert_allclose(np.diag(z @ z.T), 1, rtol=1e-10)


def per_action(width):
    return es.PerAction(es.learners.Blend((es.Linear(width), es.Linear(2))), 4)


@pytest.mark.parametrize(
    ("make", "posterior"),
    [
        (es.Linear, es.Exact),
        (es.Linear, lambda learner: es.Ensemble(learner, 3)),
        (lambda width: es.PerAction(es.Linear(width), 4), es.Exact),
        (per_action, es.Exact),
    ],
    ids=["exact", "ensemble", "per action", "blend per action"],
)
def test_the_learner_learns_and_predicts_from_expanded_features(make, posterior, float64):
    whole, key = es.RandomFeatures(make, DIM, KINDS), jax.random.key(0)
    index, y = np.arange(6) % 4, np.random.default_rng(1).normal(size=6)
    expanded = np.asarray(whole.expand(jnp.asarray(X)))
    ours, theirs = posterior(whole), posterior(make(whole.width))
    one, two = learn(ours, key, index, X, y)[1], learn(theirs, key, index, expanded, y)[1]
    have = ours.values(key, one, jnp.asarray(X[:4]), 5)
    want = theirs.values(key, two, jnp.asarray(expanded[:4]), 5)
    np.testing.assert_allclose(have, want, rtol=1e-9)


def test_what_is_not_linear_is_learned():
    """y = sin(2 x): waves explain nearly all of it, a linear model hardly any."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-3, 3, size=(300, 1))
    y, index = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=300), np.zeros(300, int)
    left = []
    for learner in (es.RandomFeatures(es.Linear, 1), es.Linear(1)):
        _, belief = learn(es.Exact(learner), jax.random.key(0), index, x, y)
        shared, mean = belief
        guess = np.asarray(learner.predict(shared, mean, jnp.asarray(x, float)))
        left.append(np.mean((guess - np.sin(2 * x[:, 0])) ** 2))
    assert left[0] < 0.01 < 0.3 < left[1]


def test_a_part_says_of_itself_what_its_learner_does():
    made = es.RandomFeatures(lambda width: es.PerAction(es.Linear(width), 4), DIM, KINDS)
    assert (made.arms, made.dim, es.Ensemble(made, 2).arms) == (4, DIM, 4)
