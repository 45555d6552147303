"""Linear learners against the closed forms of Section 3, and over long float32 runs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import covariance, exact, learn, noises, random_covariance, regression, thetas

import ensemble_sampling as es

PERTURBATIONS = [
    es.posteriors.Gaussian(),
    es.posteriors.Rademacher(),
    es.posteriors.Poisson(),
    es.posteriors.Bernoulli(),
    es.posteriors.Unperturbed(),
]
PROBLEMS, DIM, PERIODS, MEMBERS = 20, 5, 25, 3


def problem(kind: str, seed: int) -> Any:
    """(learner, prior mean, prior covariance, indices, actions, outcomes), all at random."""
    rng = np.random.default_rng(seed)
    noise_std = float(np.exp(rng.uniform(-2, 2)))
    indices = rng.integers(DIM, size=PERIODS)
    if kind == "arms":
        mean, std = float(rng.normal()), float(np.exp(rng.uniform(-1, 1)))
        learner = es.IndependentArms(DIM, noise_std, mean, std)
        prior, x = (np.full(DIM, mean), std**2 * np.eye(DIM)), np.eye(DIM)[indices]
    else:
        prior = rng.normal(size=DIM), random_covariance(rng, DIM)
        learner = es.Linear(DIM, noise_std, prior[0], prior_cov=prior[1])
        x = rng.normal(size=(PERIODS, DIM))
    y = x @ rng.normal(size=DIM) + noise_std * rng.normal(size=PERIODS)
    return learner, *prior, indices, x, y


@jax.jit
def learn_with_noise(ensemble, key, indices, x, y):
    return *learn(ensemble, key, indices, x, y), *noises(ensemble, key, len(y))


def check_members(kind, perturbation, tolerance):
    """`tolerance` is per unit of sqrt(condition number), the most an orthogonal method loses."""
    for seed in range(PROBLEMS):
        learner, _, cov, indices, x, y = problem(kind, seed)
        inflation = 1.0 if perturbation.reweights else 1.5
        ensemble = es.Ensemble(learner, MEMBERS, perturbation, inflation)
        key = jax.random.key(seed)
        start, end, shifts, weights = learn_with_noise(ensemble, key, indices, x, y)
        condition = np.linalg.cond(cov @ (np.linalg.inv(cov) + x.T @ x / learner.noise_std**2))
        for m, theta0 in enumerate(thetas(learner, start)):
            seen = y + learner.noise_std * np.asarray(shifts, np.float64)[:, m]
            want, _ = regression(x, seen, learner.noise_std, theta0, cov, weights[:, m])
            atol = tolerance * np.sqrt(condition) * (1 + np.abs([want, theta0]).max())
            np.testing.assert_allclose(thetas(learner, end)[m], want, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("kind", "perturbation"),
    [("linear", p) for p in PERTURBATIONS]
    + [("arms", es.posteriors.Gaussian()), ("arms", es.posteriors.Bernoulli())],
    ids=lambda p: p if isinstance(p, str) else type(p).__name__,
)
def test_every_member_is_the_closed_form_minimiser_in_float64(kind, perturbation, float64):
    check_members(kind, perturbation, 1e-10)  # condition numbers below 100: 1e-9 or better


@pytest.mark.parametrize(
    "perturbation", [es.posteriors.Gaussian(), es.posteriors.Poisson()], ids=["shift", "weight"]
)
@pytest.mark.parametrize("kind", ["linear", "arms"])
def test_every_member_is_the_minimiser_within_float32_rounding(kind, perturbation):
    check_members(kind, perturbation, 10 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("kind", ["linear", "arms"])
def test_exact_is_batch_bayesian_regression(kind, float64):
    for seed in range(PROBLEMS):
        learner, mean, cov, indices, x, y = problem(kind, seed)
        want_mean, want_cov = regression(x, y, learner.noise_std, mean, cov)
        _, belief = learn(es.Exact(learner), jax.random.key(0), indices, x, y)
        scale = 1 + np.abs([want_mean, mean]).max()
        np.testing.assert_allclose(thetas(learner, belief), want_mean, rtol=0, atol=1e-9 * scale)
        have_cov = covariance(learner, belief)
        np.testing.assert_allclose(have_cov, want_cov, rtol=0, atol=1e-9 * np.abs(cov).max())


@pytest.mark.parametrize("noise_std", [1.0, 1e-2], ids=["variance 1", "variance 1e-4"])
@pytest.mark.parametrize("jitter", [None, 1e-3], ids=["iid", "nearly equal"])
def test_200_000_float32_updates_stay_within_one_percent_of_float64(noise_std, jitter):
    """Actions are iid, or one common direction plus `jitter`, so that they correlate to
    1 / (1 + 20 jitter^2) = 0.99998. Observed here: 3e-5 at worst."""
    dim, periods = 20, 200_000
    rng = np.random.default_rng(0)
    x = rng.normal(size=(periods, dim))
    if jitter is not None:
        x = rng.normal(size=(periods, 1)) / np.sqrt(dim) + jitter * x
    x = x.astype(np.float32)
    y = (x @ rng.normal(size=dim) + noise_std * rng.normal(size=periods)).astype(np.float32)
    learner = es.Linear(dim, noise_std)
    _, belief = learn(es.Exact(learner), jax.random.key(0), np.zeros(periods, np.int32), x, y)
    have_mean, have_cov = thetas(learner, belief), covariance(learner, belief)
    want_mean, want_cov = regression(x, y, noise_std, np.zeros(dim), np.eye(dim))

    assert (have_cov == have_cov.T).all()
    assert np.linalg.eigvalsh(have_cov)[0] > 0
    assert np.linalg.norm(have_mean - want_mean) < 0.01 * np.linalg.norm(want_mean)
    assert np.linalg.norm(have_cov - want_cov) < 0.01 * np.linalg.norm(want_cov)
    # In every direction, also those the norm does not see: variances relative to float64's,
    # and the mean's error in units of the posterior's width.
    root = np.linalg.cholesky(want_cov)
    white = np.linalg.solve(root, np.linalg.solve(root, have_cov).T)
    assert np.abs(np.linalg.eigvalsh(white) - 1).max() < 0.01
    assert np.linalg.norm(np.linalg.solve(root, have_mean - want_mean)) < 0.1


MILLION = 1_000_000


@pytest.mark.parametrize(
    "learner",
    [
        es.IndependentArms(2, 1.0, prior_mean=5.0),
        es.Linear(1, 1.0, prior_mean=5.0),
        es.PerAction(es.Linear(1, 1.0, prior_mean=5.0), 2),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_a_million_float32_outcomes_around_1000_leave_every_member_where_float64_does(learner):
    """All of one arm, whose noise is 1. Observed here: a hundredth of the posterior's width."""
    members, key = 3, jax.random.key(0)
    ensemble = es.Ensemble(learner, members)
    y = (1000 + np.random.default_rng(0).normal(size=MILLION)).astype(np.float32)
    index, x = jnp.zeros(MILLION, jnp.int32), jnp.ones((MILLION, 1))
    start, end = learn(ensemble, key, index, x, y)
    shift, _ = noises(ensemble, key, MILLION)
    targets = y.astype(np.float64)[:, None] + np.asarray(shift, np.float64)

    def first(belief):
        return thetas(learner, belief).reshape(members, -1)[:, 0]

    want = (first(start) + targets.sum(axis=0)) / (1 + MILLION)
    width = 1 / np.sqrt(1 + MILLION)
    np.testing.assert_allclose(first(end), want, rtol=0, atol=0.1 * width)
    have = covariance(learner, end).reshape(-1, *covariance(learner, end).shape[-2:])[0, 0, 0]
    np.testing.assert_allclose(np.sqrt(have), width, rtol=0.01)


def test_pulls_are_counted_beyond_what_float32_counts():
    learner = es.IndependentArms(2, 1.0)
    shared, member = learner.init(jax.random.key(0))
    many = shared.pulls._replace(value=shared.pulls.value.at[1].set(2.0**24))
    start = (shared._replace(pulls=many), member)
    action, key = es.core.Action(jnp.int32(1), jnp.zeros(1)), jax.random.key(0)

    def pull(_, belief):
        return es.Exact(learner).update(key, belief, action, jnp.float32(0))

    end = jax.jit(lambda belief: jax.lax.fori_loop(0, 1001, pull, belief))(start)
    np.testing.assert_array_equal(exact(end[0].pulls), [1, 2**24 + 1001])


# Vector outcomes, and beliefs that are lost


def test_every_entry_of_a_vector_outcome_has_the_given_prior_mean_and_its_own_regression(float64):
    rng = np.random.default_rng(2)
    mean, cov = np.array([3.0, -2.0, 0.5]), random_covariance(rng, 3)
    learner = es.Linear(3, 0.6, mean, prior_cov=cov, outcomes=2, reward=jnp.sum)
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    start, end = learn(es.Exact(learner), jax.random.key(0), np.zeros(7, int), x, y)
    np.testing.assert_allclose(thetas(learner, start), np.stack([mean, mean], axis=1), rtol=1e-12)
    for entry in range(2):
        want, _ = regression(x, y[:, entry], 0.6, mean, cov)
        np.testing.assert_allclose(thetas(learner, end)[:, entry], want, atol=1e-10)


def test_a_linear_model_values_a_vector_by_its_reward_averaged_over_the_noise(float64):
    learner = es.Linear(2, 0.7, [1.0, -1.0], outcomes=2, reward=lambda y: y[0] * y[1] + y[0] ** 2)
    x = jnp.asarray([[1.0, 0.5], [2.0, 1.0]])
    m = np.asarray(x) @ [1.0, -1.0]
    have = learner.predict(*learner.center(jax.random.key(0)), x)
    np.testing.assert_allclose(have, m * m + m**2 + 0.7**2, rtol=1e-10)


@pytest.mark.parametrize(
    "learner",
    [
        es.IndependentArms(3, 1.0),
        es.Linear(3, 1.0),
        es.PerAction(es.Linear(3, 1.0), 3),
        es.IndependentArms(3),
        es.Linear(3),
        es.PerAction(es.Linear(3), 3),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_a_belief_that_is_no_longer_finite_is_noticed(learner):
    index, x, y = np.arange(30) % 3, np.eye(3)[np.arange(30) % 3], np.ones(30)
    for posterior in (es.Exact(learner), es.Ensemble(learner, 4, es.posteriors.Poisson())):
        for scale, lost in ((1.0, False), (3e38, True)):
            outcomes = scale * y * (-1) ** (np.arange(30) // 3)
            _, belief = learn(posterior, jax.random.key(0), index, x, outcomes)
            assert (int(es.ThompsonSampling(posterior).diverged(belief)) > 0) == lost


def test_an_update_touches_one_arm_only():
    learner, key = es.IndependentArms(1000, 1.0), jax.random.key(0)
    ensemble = es.Ensemble(learner, 7)
    before = ensemble.init(key)
    after = ensemble.update(
        key, before, es.core.Action(jnp.int32(3), jnp.zeros(1)), jnp.float32(2.0)
    )
    rest = np.arange(1000) != 3
    assert (thetas(learner, after)[:, rest] == thetas(learner, before)[:, rest]).all()
    assert (thetas(learner, after)[:, 3] != thetas(learner, before)[:, 3]).all()


@pytest.mark.parametrize(
    ("learner", "floats"),
    [(es.IndependentArms(1000), 50), (es.Linear(50), 4 * 50**2 + 4 * 50 * 300)],
    ids=["arms: O(members)", "linear: O(d^2 + d members)"],
)
def test_the_cost_of_an_update_is_what_is_promised(learner, floats):
    """No intermediate array larger than the promise; only the state itself may be."""
    ensemble, key = es.Ensemble(learner, 300), jax.random.key(0)
    belief = jax.eval_shape(ensemble.init, key)
    width = getattr(learner, "dim", 1)

    def update(key, belief, index, x, y):
        return ensemble.update(key, belief, es.core.Action(index, x), y)

    shapes = (jax.ShapeDtypeStruct(s, t) for s, t in (((), int), ((width,), float), ((), float)))
    cost: Any = jax.jit(update, donate_argnums=1).lower(key, belief, *shapes).cost_analysis()
    # 300 normals cost some 100 operations each; a pass over 300 x 1000 or 300 x 50^2 costs more.
    assert cost["flops"] < 300 * 200 + 4 * floats
