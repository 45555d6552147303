"""Ensembles that grow, and members in opposite pairs."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import fact

DIM, KEY = 3, jax.random.key(0)
LINE = es.Linear(DIM, noise_std=0.7)
RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.normal(size=(40, DIM)), float), jnp.asarray(RNG.normal(size=40), float)
FEATURES = jnp.asarray(RNG.normal(size=(5, DIM)), float)


def learned(posterior, n):
    def step(belief, t):
        action = es.core.Action(jnp.int32(0), X[t])
        return posterior.update(jax.random.fold_in(KEY, t), belief, action, Y[t]), None

    return jax.jit(lambda: jax.lax.scan(step, posterior.init(KEY), jnp.arange(n))[0])()


def test_members_grow_with_the_logarithm_of_time():
    posterior = es.posteriors.Anytime(LINE, most=12, first=3, rate=2.0)
    have = [int(posterior.members(jnp.int32(t))) for t in (0, 1, 2, 3, 7, 15, 22, 23, 10**9)]
    assert have == [3, 5, 6, 7, 9, 11, 12, 12, 12]


@pytest.mark.parametrize("n", [0, 5, 40])
def test_only_members_that_joined_are_sampled_each_as_often(n):
    """4,000 samples of m members: each is drawn 4,000 / m times, within five deviations."""
    posterior = es.posteriors.Anytime(LINE, most=12, first=3, rate=1.0)
    belief = learned(posterior, n)
    count = int(posterior.members(jnp.int32(n)))
    assert 3 <= count < 12
    worth = np.asarray(posterior.ensemble.values(KEY, belief[0], FEATURES, 1))
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.vmap(lambda k: posterior.sample(k, belief)(FEATURES))(keys))
    each = np.abs(drawn[:, None] - worth[None]).max(axis=-1).argmin(axis=1)
    times = np.bincount(each, minlength=12)
    assert (times[count:] == 0).all()
    expected = 4000 / count
    assert (np.abs(times[:count] - expected) < 5 * np.sqrt(expected)).all()
    values = np.asarray(posterior.values(KEY, belief, FEATURES, 1000))
    rows = np.abs(values[:, None] - worth[None]).max(axis=-1).argmin(axis=1)
    shares = np.bincount(rows, minlength=12)
    assert (np.abs(shares[:count] - 1000 / count) <= 1).all()
    assert shares[count:].sum() == 0
    assert (np.diff(rows) >= 0).all()  # side by side


@pytest.mark.parametrize("draws", [12, 100, 1000])
def test_probabilities_are_exact_however_many_draws(draws):
    """Every member there has one vote; 7 of them do not divide any of these."""
    posterior = es.posteriors.Anytime(LINE, most=12, first=3, rate=1.0)
    models, _ = learned(posterior, 3)
    belief = (models, jnp.int32(15))
    values = np.asarray(posterior.ensemble.values(KEY, models, FEATURES, 1))[:7]
    want = np.bincount(values.argmax(axis=1), minlength=5) / 7
    assert len(np.unique(values.argmax(axis=1))) > 1
    have = es.ThompsonSampling(posterior, draws).probabilities(belief, FEATURES)
    np.testing.assert_allclose(have, want, atol=1e-5)  # sums of 1,000 in float32


def test_members_join_at_powers_of_two_however_it_is_compiled():
    posterior = es.posteriors.Anytime(LINE, most=64, first=4, rate=2.0)
    for count in (posterior.members, jax.jit(lambda t: posterior.members(t))):
        have = [int(count(jnp.int32(2**k - 1))) for k in range(30)]
        assert have == [4 + 2 * k for k in range(30)]
        assert [int(count(jnp.int32(2**k - 2))) for k in range(3, 20)] == [
            3 + 2 * k for k in range(3, 20)
        ]


def test_one_that_joins_late_is_as_far_from_the_mean_as_the_others():
    """Members that have just joined a linear ensemble of 2,000 have the exact posterior's moments:
    a standard deviation of 1,000 is off by 1 / 45 of itself, and five of these are allowed."""
    posterior = es.posteriors.Anytime(LINE, most=2000, first=1000, rate=0.0)
    belief = learned(posterior, 20)
    values = np.asarray(posterior.ensemble.values(KEY, belief[0], FEATURES, 1), np.float64)[1000:]
    exact = es.Exact(LINE)
    mean, std = fact(exact, "mean_and_std")(learned(exact, 20), FEATURES)
    np.testing.assert_allclose(values.std(axis=0), std, rtol=5 / 45)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(1000)).all()


@pytest.mark.parametrize("learner", [LINE, es.Linear(DIM, 0.7, forgetting=0.9)], ids=["", "drift"])
@pytest.mark.parametrize("members", [6, 7])
def test_linear_pairs_lie_opposite_each_other_around_the_posterior_mean(members, learner):
    posterior = es.Ensemble(learner, members, es.posteriors.Symmetric(), inflation=1.4)
    for n in (0, 10):
        values = np.asarray(posterior.values(KEY, learned(posterior, n), FEATURES, 1), np.float64)
        exact = es.Exact(learner)
        mean, _ = fact(exact, "mean_and_std")(learned(exact, n), FEATURES)
        opposite = values[0:6:2] + values[1:6:2]
        np.testing.assert_allclose(
            opposite, 2 * np.broadcast_to(mean, (3, 5)), rtol=1e-4, atol=1e-5
        )
        assert np.abs(values[0] - values[2]).max() > 0.01


def test_inflation_widens_pairs_by_as_much():
    one, two = (
        es.Ensemble(LINE, 6, es.posteriors.Symmetric(), inflation) for inflation in (1.0, 3.0)
    )
    near, far = (np.asarray(p.values(KEY, p.init(KEY), FEATURES, 1)) for p in (one, two))
    np.testing.assert_allclose(far, 3 * near, rtol=1e-5)


def test_a_symmetric_perturbation_keeps_its_kind():
    flips = np.asarray(
        es.posteriors.Symmetric(es.posteriors.Rademacher()).draw(KEY, (9, 2), 0.5).shift
    )
    assert set(np.abs(flips).ravel()) == {0.5}
    assert flips.shape == (9, 2)
    assert np.array_equal(flips[0:8:2], -flips[1:8:2])


BAD = [
    (
        lambda: es.agents.UCB(es.posteriors.Anytime(LINE), draws=63).upper(
            es.posteriors.Anytime(LINE).init(KEY), FEATURES
        ),
        ValueError,
        "64 models cannot all be among 63 draws",
    ),
    (
        lambda: es.posteriors.Anytime(LINE, 3, 4),
        ValueError,
        "first must be at most 3, `most`, got 4",
    ),
    (lambda: es.posteriors.Anytime(LINE, 0), ValueError, "most must be at least 1, got 0"),
    (
        lambda: es.posteriors.Anytime(LINE, 8, rate=-1),
        ValueError,
        "rate must be between 0 and inf, got -1",
    ),
    (
        lambda: es.posteriors.Anytime(LINE, 8, inflation=0),
        ValueError,
        "inflation must be greater than 0",
    ),
    (lambda: es.posteriors.Anytime(es.Exact(LINE)), TypeError, "learner must have the methods"),
    (
        lambda: es.posteriors.Symmetric(es.posteriors.Poisson()),
        ValueError,
        "weights have no opposite: got Poisson",
    ),
    (lambda: es.posteriors.Symmetric(3), TypeError, "perturbation must have"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD)
def test_mistakes_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
