"""The appendix's lemmas, inflation, perturbations; members in pairs, and ensembles that grow."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import covariance, learn, random_covariance, regression, thetas, updates

import ensemble_sampling as es
from ensemble_sampling.config import describe
from ensemble_sampling.core import fact
from ensemble_sampling.posteriors import (
    Anytime,
    Bernoulli,
    Gaussian,
    Poisson,
    Rademacher,
    Symmetric,
    Unperturbed,
)
from ensemble_sampling.study.diagnostics import prior_distance

DIM, PERIODS = 3, 15


def fixed_sequence():
    """(learner, mu_t, Sigma_t, data) for one deterministic action sequence."""
    rng = np.random.default_rng(0)
    mean, cov = rng.normal(size=DIM), random_covariance(rng, DIM)
    x, y = rng.normal(size=(PERIODS, DIM)), 2 * rng.normal(size=PERIODS)
    learner = es.Linear(DIM, 0.8, mean, prior_cov=cov)
    return learner, *regression(x, y, 0.8, mean, cov), (np.zeros(PERIODS, np.int32), x, y)


def whitened(models, mean, cov) -> np.ndarray:
    """N(0, I) if the models are N(mean, cov)."""
    return np.linalg.solve(np.linalg.cholesky(cov), (models - mean).T).T


@pytest.mark.parametrize(
    ("perturbation", "inflation"),
    [(Gaussian(), 1.0), (Gaussian(), 2.5), (Rademacher(), 1.0)],
    ids=["as in the paper", "inflated", "coin flips"],
)
def test_a_large_ensemble_matches_the_posterior_of_a_fixed_action_sequence(perturbation, inflation):
    """The posterior-match lemma; inflation scales the covariance by its square.

    For M whitened members N(0, I) an entry of the mean has standard deviation 1/sqrt(M), of the
    second moment 1/sqrt(M) off and sqrt(2/M) on the diagonal. Five of them: each entry fails by
    chance once in 1.7 million. (Coin flips match two moments; their kurtosis is smaller.)
    """
    members = 20_000
    learner, mean, cov, data = fixed_sequence()
    ensemble = es.Ensemble(learner, members, perturbation, inflation)
    _, belief = learn(ensemble, jax.random.key(0), *data)
    white = whitened(thetas(learner, belief), mean, inflation**2 * cov)
    assert np.abs(white.mean(axis=0)).max() < 5 / np.sqrt(members)
    second = white.T @ white / members
    assert np.abs(second - np.diag(np.diag(second))).max() < 5 / np.sqrt(members)
    assert np.abs(np.diag(second) - 1).max() < 5 * np.sqrt(2 / members)
    np.testing.assert_allclose(covariance(learner, belief), cov, rtol=1e-4)  # never inflated


def test_members_are_normal_and_independent_of_each_other():
    """20,000 ensembles of 4 members that saw the same data: members are uncorrelated across
    ensembles (five standard deviations, 1/sqrt(n)), and so are their squares (2/sqrt(n)); the
    fourth moment is a normal's 3 (standard deviation sqrt(96/n))."""
    ensembles = 20_000
    learner, mean, cov, data = fixed_sequence()
    ensemble, keys = es.Ensemble(learner, 4), jax.random.split(jax.random.key(1), ensembles)
    ends = jax.jit(jax.vmap(lambda key: learn(ensemble, key, *data)[1]))(keys)
    shared, members = ends
    one = jax.tree.map(lambda leaf: leaf[0], shared)  # what members share is the same for all
    white = whitened(thetas(learner, (one, members)).reshape(-1, DIM), mean, cov)
    flat = white.reshape(ensembles, 4 * DIM)
    different = np.kron(~np.eye(4, dtype=bool), np.ones((DIM, DIM), bool))
    assert np.abs(flat.T @ flat / ensembles)[different].max() < 5 / np.sqrt(ensembles)
    squares = flat**2 - 1
    assert np.abs(squares.T @ squares / ensembles)[different].max() < 10 / np.sqrt(ensembles)
    assert np.abs((flat**4).mean(axis=0) - 3).max() < 5 * np.sqrt(96 / ensembles)


@pytest.mark.parametrize(
    "learner", [es.IndependentArms(4, 1.0), es.Linear(4, 1.0)], ids=["arms", "linear"]
)
def test_with_coupled_noise_the_order_of_the_same_counts_does_not_matter(learner, float64):
    """The order lemma: outcome and noise belong to (arm, n-th pull), as in a coupled run."""
    rng, periods = np.random.default_rng(0), 40
    ensemble, key = es.Ensemble(learner, 5), jax.random.key(0)
    outcomes = rng.normal(size=(4, periods))
    order = rng.integers(4, size=periods)
    start = ensemble.init(key)
    ends = []
    for indices in (order, rng.permutation(order), np.sort(order)):
        pulls = np.array([(indices[:t] == i).sum() for t, i in enumerate(indices)])
        keys = jax.vmap(lambda n: jax.random.fold_in(key, n))(indices * periods + pulls)
        seen = (indices, jnp.eye(4)[indices], jnp.asarray(outcomes[indices, pulls]))
        ends.append(thetas(learner, jax.jit(updates)(ensemble, start, keys, *seen)))
    assert np.abs(ends[0] - thetas(learner, start)).max() > 0.1
    np.testing.assert_allclose(ends[1], ends[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(ends[2], ends[0], rtol=0, atol=1e-9)


def draws(perturbation, inflation=1.0, n=100_000) -> Any:
    noise = perturbation.draw(jax.random.key(0), (n,), inflation)
    return [
        None if part is None else np.asarray(part, np.float64)
        for part in (noise.shift, noise.weight)
    ]


@pytest.mark.parametrize("inflation", [1.0, 3.0])
@pytest.mark.parametrize("perturbation", [Gaussian(), Rademacher()])
def test_shifts_have_mean_zero_and_the_inflated_variance(perturbation, inflation):
    shift, weight = draws(perturbation, inflation)
    assert weight is None
    n = len(shift)
    assert abs(shift.mean()) < 5 * inflation / np.sqrt(n)
    assert abs(np.mean(shift**2) - inflation**2) < 5 * inflation**2 * np.sqrt(2 / n)
    if isinstance(perturbation, Rademacher):
        assert set(shift) == {-inflation, inflation}


def test_poisson_weights_are_poisson():
    shift, weight = draws(Poisson())
    assert shift is None
    n, chance = len(weight), np.exp(-1)
    for k in range(8):
        share = (weight == k).mean()
        assert abs(share - chance) < 5 * np.sqrt(chance / n), f"P(W = {k})"
        chance /= k + 1
    assert weight.max() <= 12


def test_bernoulli_weights_are_double_or_nothing():
    shift, weight = draws(Bernoulli())
    assert shift is None
    assert set(weight) == {0.0, 2.0}
    assert abs(weight.mean() - 1) < 5 / np.sqrt(len(weight))


@pytest.mark.parametrize("learner", [es.IndependentArms(3), es.Linear(3)], ids=["arms", "linear"])
def test_what_members_share_is_stored_once_unless_they_weigh_the_data(learner):
    key = jax.random.key(0)
    one, _ = jax.eval_shape(learner.init, key)
    sizes = lambda tree: [leaf.shape for leaf in jax.tree.leaves(tree)]  # noqa: E731
    for perturbation, lead in (
        (Gaussian(), ()),
        (Unperturbed(), ()),
        (Poisson(), (7,)),
    ):
        shared, _ = jax.eval_shape(es.Ensemble(learner, 7, perturbation).init, key)
        assert sizes(shared) == [lead + shape for shape in sizes(one)]


def test_ensemble_sampling_is_thompson_sampling_over_an_ensemble():
    learner = es.IndependentArms(3)
    made = es.EnsembleSampling(learner, 4, Poisson())
    same = es.ThompsonSampling(es.Ensemble(learner, 4, Poisson()))
    assert describe(made) == describe(same)
    assert made.label == "4 models"
    assert es.EnsembleSampling(learner, 1).label == "1 model"


@pytest.mark.parametrize(
    "learner",
    [es.IndependentArms(3, forgetting=0.9), es.Linear(3, noise_std=0.5), es.Linear(3)],
    ids=lambda learner: repr(learner)[:20],
)
@pytest.mark.parametrize("perturbation", [Gaussian(), Poisson(), Symmetric()])
def test_members_along_the_last_axis_are_the_same_members(learner, perturbation):
    index, key, features = np.arange(5) % 3, jax.random.key(3), jnp.eye(3)
    found = []
    for last in (False, True):
        posterior = es.Ensemble(learner, 4, perturbation, members_last=last)
        belief = learn(posterior, key, index, features[index], np.sin(np.arange(5)))[1]
        members = jax.tree.map(lambda leaf, last=last: jnp.moveaxis(leaf, -last, 0), belief[1])
        values = posterior.values(key, belief, features, 4)
        sample = posterior.sample(key, belief)(features)
        found.append(jax.tree.leaves((members, values, sample, posterior.diverged(belief))))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_lost_members_are_counted_one_by_one_along_either_axis():
    for last in (False, True):
        ensemble = es.Ensemble(es.Linear(3, noise_std=0.5), 4, members_last=last)
        shared, members = ensemble.init(jax.random.key(0))
        at = (..., 1) if last else 1
        broken = jax.tree.map(lambda leaf, at=at: leaf.at[at].set(jnp.nan), members)
        assert ensemble.diverged((shared, members)) == 0
        assert ensemble.diverged((shared, broken)) == 1


def test_how_far_networks_have_moved_is_the_same_along_either_axis():
    make, moved = es.networks.GaussianMLP(3, (5,)), []
    network = es.Network(make, 3, capacity=4, batch=4, learning_rate=0.01)
    for last in (False, True):
        ensemble = es.Ensemble(network, 4, members_last=last)
        _, belief = learn(
            ensemble, jax.random.key(0), np.zeros(1, int), np.ones((1, 3)), np.ones(1)
        )
        moved.append(prior_distance(ensemble, belief))
    assert moved[0].shape == (4,)
    np.testing.assert_allclose(*moved, rtol=1e-5)
    assert np.min(moved) > 0


def test_where_members_are_kept_is_told_only_when_it_is_not_as_always():
    assert "members_last" not in describe(es.Ensemble(es.Linear(3), 4))
    assert describe(es.Ensemble(es.Linear(3), 4, members_last=True))["members_last"] is True


# Ensembles that grow, and members in opposite pairs


KEY, LINE = jax.random.key(0), es.Linear(DIM, noise_std=0.7)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, DIM)), RNG.normal(size=40)
FEATURES = jnp.asarray(RNG.normal(size=(5, DIM)), float)


def learned(posterior, n):
    return learn(posterior, KEY, np.zeros(n, int), X[:n], Y[:n])[1]


def test_members_grow_with_the_logarithm_of_time():
    posterior = Anytime(LINE, most=12, first=3, rate=2.0)
    have = [int(posterior.members(jnp.int32(t))) for t in (0, 1, 2, 3, 7, 15, 22, 23, 10**9)]
    assert have == [3, 5, 6, 7, 9, 11, 12, 12, 12]


@pytest.mark.parametrize("n", [0, 5, 40])
def test_only_members_that_joined_are_sampled_each_as_often(n):
    """4,000 samples of m members: each is drawn 4,000 / m times, within five deviations."""
    posterior = Anytime(LINE, most=12, first=3, rate=1.0)
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
    posterior = Anytime(LINE, most=12, first=3, rate=1.0)
    models, _ = learned(posterior, 3)
    belief = (models, jnp.int32(15))
    values = np.asarray(posterior.ensemble.values(KEY, models, FEATURES, 1))[:7]
    want = np.bincount(values.argmax(axis=1), minlength=5) / 7
    assert len(np.unique(values.argmax(axis=1))) > 1
    have = es.ThompsonSampling(posterior, draws).probabilities(belief, FEATURES)
    np.testing.assert_allclose(have, want, atol=1e-5)  # sums of 1,000 in float32


def test_members_join_at_powers_of_two_however_it_is_compiled():
    posterior = Anytime(LINE, most=64, first=4, rate=2.0)
    for count in (posterior.members, jax.jit(lambda t: posterior.members(t))):
        have = [int(count(jnp.int32(2**k - 1))) for k in range(30)]
        assert have == [4 + 2 * k for k in range(30)]
        assert [int(count(jnp.int32(2**k - 2))) for k in range(3, 20)] == [
            3 + 2 * k for k in range(3, 20)
        ]


def test_one_that_joins_late_is_as_far_from_the_mean_as_the_others():
    """Members that have just joined a linear ensemble of 2,000 have the exact posterior's moments:
    a standard deviation of 1,000 is off by 1 / 45 of itself, and five of these are allowed."""
    posterior = Anytime(LINE, most=2000, first=1000, rate=0.0)
    belief = learned(posterior, 20)
    values = np.asarray(posterior.ensemble.values(KEY, belief[0], FEATURES, 1), np.float64)[1000:]
    exact = es.Exact(LINE)
    mean, std = fact(exact, "mean_and_std")(learned(exact, 20), FEATURES)
    np.testing.assert_allclose(values.std(axis=0), std, rtol=5 / 45)
    assert (np.abs(values.mean(axis=0) - mean) < 5 * np.asarray(std) / np.sqrt(1000)).all()


@pytest.mark.parametrize("learner", [LINE, es.Linear(DIM, 0.7, forgetting=0.9)], ids=["", "drift"])
@pytest.mark.parametrize("members", [6, 7])
def test_linear_pairs_lie_opposite_each_other_around_the_posterior_mean(members, learner):
    posterior = es.Ensemble(learner, members, Symmetric(), inflation=1.4)
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
    one, two = (es.Ensemble(LINE, 6, Symmetric(), inflation) for inflation in (1.0, 3.0))
    near, far = (np.asarray(p.values(KEY, p.init(KEY), FEATURES, 1)) for p in (one, two))
    np.testing.assert_allclose(far, 3 * near, rtol=1e-5)


def test_a_symmetric_perturbation_keeps_its_kind():
    flips = np.asarray(Symmetric(Rademacher()).draw(KEY, (9, 2), 0.5).shift)
    assert set(np.abs(flips).ravel()) == {0.5}
    assert flips.shape == (9, 2)
    assert np.array_equal(flips[0:8:2], -flips[1:8:2])
