"""The gold standard: right where the posterior is known, and a yardstick where it is not."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import fact
from ensemble_sampling.study.gold import distance, gold_standard

DIM, KEY = 3, jax.random.key(0)
RNG = np.random.default_rng(0)
X, ACTIONS = RNG.normal(size=(30, DIM)), RNG.normal(size=(6, DIM))
Y = X @ [1.0, -0.5, 0.3] + 0.7 * RNG.normal(size=30)
CLICKS = (RNG.uniform(size=30) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 0.5]))).astype(float)


def line(**settings):
    return es.Network(
        es.networks.GaussianMLP(DIM, (), prior_std=2.0), DIM, 30, prior_std=2.0, **settings
    )


def learned(posterior, ys):
    def step(belief, seen):
        x, y, t = seen
        action = es.core.Action(jnp.int32(0), x)
        return posterior.update(jax.random.fold_in(KEY, t), belief, action, y), None

    rows = jnp.asarray(X, float), jnp.asarray(ys, float), jnp.arange(30)
    return jax.jit(lambda: jax.lax.scan(step, posterior.init(KEY), rows)[0])()


def test_for_a_linear_model_it_is_the_exact_posterior():
    """2,000 draws of which at least a quarter are as good as independent: means within five of
    std / sqrt(500), standard deviations within five of 1 / sqrt(1,000)."""
    pytest.importorskip("blackjax")
    gold = gold_standard(line(noise_std=0.7), X, Y)
    values = np.asarray(gold.values(jnp.asarray(ACTIONS, float)), np.float64)
    exact = es.Exact(es.Linear(DIM, noise_std=0.7, prior_std=2.0))
    mean, std = map(np.asarray, fact(exact, "mean_and_std")(learned(exact, Y), ACTIONS))
    assert (np.abs(values.mean(axis=0) - mean) < 5 * std / np.sqrt(500)).all()
    np.testing.assert_allclose(values.std(axis=0), std, rtol=5 / np.sqrt(1000))
    assert 0.6 < gold.acceptance < 0.98
    assert gold.divergent == 0
    drawn = exact.values(KEY, learned(exact, Y), jnp.asarray(ACTIONS, float), 2000)
    near = distance(drawn, values)
    assert near.mean < 0.15
    assert 0.9 < near.spread < 1.1
    assert near.covariance < 0.25


def test_for_a_logistic_model_laplace_is_near_it_and_an_unperturbed_point_is_not():
    pytest.importorskip("blackjax")
    learner = line(loss=es.learners.CrossEntropy(), noise_std=0.5)
    gold = gold_standard(learner, X, CLICKS).values(jnp.asarray(ACTIONS, float))

    def away(posterior):
        values = posterior.values(
            KEY, learned(posterior, CLICKS), jnp.asarray(ACTIONS, float), 2000
        )
        return distance(values, gold)

    right, narrow = (
        away(es.posteriors.Laplace(learner)),
        away(es.posteriors.Laplace(learner, inflation=0.1)),
    )
    assert right.mean < 0.6
    assert 0.75 < right.spread < 1.35
    assert narrow.spread < 0.2
    assert narrow.covariance > 0.9


def test_the_distance_is_what_it_says():
    gold = RNG.normal(size=(400, 3)) * [1.0, 2.0, 0.5]
    same = distance(gold, gold)
    assert same == (0.0, 1.0, 0.0)
    moved = distance(gold + 2 * gold.std(axis=0, ddof=1), gold)
    np.testing.assert_allclose(moved, (2.0, 1.0, 0.0), atol=1e-5)
    center = gold.mean(axis=0)
    wide = distance(center + 3 * (gold - center), gold)
    np.testing.assert_allclose(wide, (0.0, 3.0, 8.0), rtol=1e-5, atol=1e-6)


BAD = [
    (lambda: gold_standard(es.Linear(3), X, Y), TypeError, "is for a Network, got Linear"),
    (lambda: gold_standard(line(), X, Y), ValueError, "needs a Network with noise_std"),
    (lambda: gold_standard(line(noise_std=1.0), X, Y[:3]), ValueError, r"shape \(30,\), got \(3,"),
    (lambda: gold_standard(line(noise_std=1.0), X, Y, warmup=9), ValueError, "warmup must be at"),
    (lambda: distance(np.ones((3, 2)), np.ones((3, 4))), ValueError, "the same actions, got"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
