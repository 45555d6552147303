"""Features in units of their usual size: the scale, and beliefs that always agree with it."""

import contextlib
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import SGDRegressor
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.replica import Replica
from ensemble_sampling.inputs.scale import LARGEST_RATIO, LAST, Scale, frozen

DIM, NOISE = 4, 0.3
EXACT = es.ThompsonSampling(es.Exact(es.Linear(DIM, noise_std=NOISE)), draws=20)


def rows_with_newcomers(n, seed=0):
    """Features of very different sizes; the last two appear late, one of them after all freezes."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, DIM)) * [1e-3, 5.0, 200.0, 0.1]
    rows[:5, 2] = 0
    rows[: LAST + 6, 3] = 0
    rows[rng.random((n, DIM)) < 0.2] = 0
    return rows.astype(np.float32)


def taught(bandit, rows, outcomes):
    """A bandit that saw one action at a time; the features as they come."""
    decisions = bandit.choose_many([row[None] for row in rows])
    bandit.learn_many([(d.id, float(y)) for d, y in zip(decisions, outcomes, strict=True)])
    return bandit


def sizes(rows):
    """What the scale should be after these rows: plain loops over them."""
    power = 1
    while 2 * power <= min(len(rows), 1024):
        power *= 2
    result = np.zeros(rows.shape[1])
    for column in range(rows.shape[1]):
        seen = [float(x) for x in rows[:power, column] if x != 0]
        result[column] = np.sqrt(np.mean(np.square(seen))) if seen else 0.0
        for x in rows[power:, column]:
            if result[column] == 0:
                result[column] = abs(float(x))
    return result


def posterior(rows, outcomes):
    """Mean and covariance of N(0, I) after the rows, in closed form."""
    x, y = rows.astype(np.float64), np.asarray(outcomes)
    covariance = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / NOISE**2)
    return covariance @ x.T @ y / NOISE**2, covariance


def belief(bandit):
    """Mean and the covariance's root, of an exact linear agent that was told its noise."""
    known, noise = bandit.state.belief[0], bandit._replica.agent.posterior.learner.noise_std
    mean, root = (
        np.asarray(part.value, np.float64) + np.asarray(part.lost, np.float64)
        for part in (known.mean, known.root)
    )
    return mean, noise * root


def test_scale_is_the_root_mean_square_of_what_is_not_zero():
    rows = np.array([[3.0, 0.0, 0.0], [-4.0, 5.0, 0.0], [0.0, 0.0, 0.0]])
    scale = Scale.of(rows)
    # (9 + 16) / 2 and 25 / 1; the last feature was never seen and keeps its unit.
    expected = [1 / np.sqrt(12.5), 1 / 5, 1.0]
    assert np.asarray(scale.apply(jnp.ones(3))) == pytest.approx(expected)


def test_scale_leaves_indicators_exactly_alone():
    rows = np.random.default_rng(0).integers(0, 2, size=(50, 4)).astype(float)
    assert np.array_equal(Scale.of(rows).apply(jnp.asarray(rows)), rows)


def test_a_feature_first_seen_takes_that_size_and_others_keep_theirs():
    scale = Scale(jnp.asarray([2.0, 0.0, 0.0])).see(jnp.asarray([7.0, -3.0, 0.0]))
    assert np.asarray(scale.size).tolist() == [2.0, 3.0, 0.0]


def test_the_scale_is_taken_at_powers_of_two_up_to_the_last():
    assert [frozen(n) for n in (0, 1, 2, 3, 4, 7, 8)] == [0, 1, 2, 2, 4, 4, 8]
    assert [frozen(n) for n in (1023, 1024, 1025, 5000)] == [512, 1024, 1024, 1024]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 37, 64, 200])
def test_the_belief_is_the_posterior_in_the_units_of_the_scale(n):
    rows, outcomes = rows_with_newcomers(n), np.sin(np.arange(n))
    bandit = taught(es.Bandit(EXACT), rows, outcomes)
    scale = bandit.state.scale
    assert scale is not None
    assert np.asarray(scale.size) == pytest.approx(sizes(rows), rel=1e-6)
    mean, root = belief(bandit)
    unit = np.where(np.asarray(scale.size) > 0, scale.size, 1.0)
    expected, covariance = posterior(rows / unit, outcomes)
    # Float32 roundings, against widths of about 0.02 and more.
    assert mean == pytest.approx(expected, abs=1e-3)
    assert root @ root.T == pytest.approx(covariance, abs=1e-4)


def test_one_at_a_time_in_batches_and_replayed_the_state_is_the_same_to_the_bit(tmp_path):
    n = LAST + 40
    rows, outcomes = rows_with_newcomers(n), np.sin(np.arange(n))
    single = es.Bandit(EXACT)
    decisions = single.choose_many([row[None] for row in rows])
    for decision, y in zip(decisions, outcomes.tolist(), strict=True):
        single.learn(decision.id, y)
    state = single.state
    assert np.asarray(state.scale and state.scale.size) == pytest.approx(sizes(rows), rel=1e-6)
    batches = es.Bandit.open(tmp_path, EXACT, snapshot_every=700)
    for start, end in itertools.pairwise([0, 1, 7, 60, 700, 1000, n]):
        taught(batches, rows[start:end], outcomes[start:end])
        batches.choose(rows[:3])  # deciding in between changes nothing
    assert equal(batches.state.scale, state.scale)
    live = batches.state
    batches._ledger.close()  # as if killed: the last snapshot is of 700 outcomes
    with es.Bandit.open(tmp_path, EXACT, snapshot_every=700) as again:
        assert equal(again.state, live)
    (tmp_path / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path, EXACT, snapshot_every=700) as replayed:
        assert equal(replayed.state, live)
    single._replica.version = None
    assert equal(single.state, state)


@pytest.mark.parametrize(
    "agent",
    [
        es.EnsembleSampling(es.IndependentArms(1, noise_std=0.5), members=3),
        es.Uniform(),
        es.EstimatorEnsemble(SGDRegressor, members=2),
    ],
    ids=["arms", "uniform", "estimators"],
)
def test_agents_of_open_width_replay_to_the_same_state(agent):
    rows, outcomes = rows_with_newcomers(21), np.sin(np.arange(21))
    bandit = es.Bandit(agent)
    for row, y in zip(rows, outcomes.tolist(), strict=True):
        decision = bandit.choose(row[None])
        bandit.learn(decision.id, y)
    live, offer = bandit.state, rows[4:5]
    assert live.scale is not None
    assert np.asarray(live.scale.size) == pytest.approx(sizes(rows), rel=1e-6)
    before = bandit.choose(offer).probabilities
    bandit._replica.version = None
    assert np.array_equal(bandit.state.scale.size, live.scale.size)  # pyright: ignore
    assert np.array_equal(bandit.choose(offer).probabilities, before)
    if not isinstance(agent, es.EstimatorEnsemble):
        assert equal(bandit.state, live)


def test_an_estimator_learns_rows_in_the_units_of_the_scale():
    rows, outcomes = rows_with_newcomers(13), np.sin(np.arange(13))
    bandit = taught(es.Bandit(es.EstimatorEnsemble(SGDRegressor, members=2)), rows, outcomes)
    table = bandit.state.belief.tables[0]
    unit = sizes(rows)
    stored = np.stack([row.features for row in table.rows])
    assert stored == pytest.approx(rows / np.where(unit > 0, unit, 1.0), rel=1e-5)


def test_an_interrupted_rebuild_is_finished_by_the_next_call():
    rows, outcomes = rows_with_newcomers(16), np.sin(np.arange(16))
    expected = taught(es.Bandit(EXACT), rows, outcomes).state
    bandit = es.Bandit(EXACT)
    decisions = bandit.choose_many([row[None] for row in rows])
    programs: Any = bandit._replica.programs
    learn, calls = programs._learn_slip, []

    def interrupted(*given):
        calls.append(1)
        if len(calls) in (2, 5, 6, 20, 21, 40):
            raise KeyboardInterrupt
        return learn(*given)

    programs._learn_slip = interrupted
    for decision, y in zip(decisions, outcomes.tolist(), strict=True):
        for _ in range(3):
            with contextlib.suppress(KeyboardInterrupt):
                bandit.learn(decision.id, y)
    assert len(calls) >= 40
    assert equal(bandit.state, expected)


def test_where_sizes_do_not_change_nothing_is_learned_twice():
    rows = np.random.default_rng(0).integers(0, 2, size=(40, DIM)).astype(np.float32)
    bandit = es.Bandit(EXACT)
    bandit.choose(rows[:1])
    programs: Any = bandit._replica.programs
    learn, calls = programs._learn_slip, []
    programs._learn_slip = lambda *given: calls.append(1) or learn(*given)
    for row in rows:
        bandit.learn(bandit.choose(row[None]).id, 1.0)
    assert len(calls) == 40


def test_absurd_sizes_neither_overflow_nor_spoil_the_belief():
    bandit = es.Bandit(EXACT)
    rows = np.zeros((20, DIM), np.float32)
    rows[:, 0] = 1.0
    rows[16, 1], rows[17:, 1] = 1e-30, 9e14  # after the freeze at 16
    taught(bandit, rows, np.ones(20))
    state = bandit.state
    assert jax.tree.all(jax.tree.map(lambda a: np.isfinite(a).all(), state))
    assert np.isfinite(bandit.choose(rows[-1:]).probabilities).all()
    assert float(state.scale.apply(jnp.asarray(rows[-1]))[1]) == pytest.approx(LARGEST_RATIO)  # pyright: ignore


def surprise(bandit, theta):
    """Squared distance of the truth in the posterior's own units / d: 1 on average."""
    (mean, root), scale = belief(bandit), bandit.state.scale
    size = np.ones(len(theta)) if scale is None else np.asarray(scale.size, np.float64)
    error = np.linalg.solve(root, theta * size - mean)
    return error @ error / len(theta)


def played(agent, seed, periods, noise, normalise):
    """(bandit, truth, regret) after `periods` decisions among five N(0, 1) rows."""
    rng, d = np.random.default_rng(seed), 5
    theta, bandit = rng.normal(size=d), es.Bandit(agent, seed=seed, normalise=normalise)
    offers, noises, regret = rng.normal(size=(periods, 5, d)), rng.normal(size=periods), 0.0
    for offer, z in zip(offers, noises, strict=True):
        means = offer @ theta
        decision = bandit.choose(offer.astype(np.float32))
        bandit.learn(decision.id, float(means[decision.index] + noise * z))
        regret += means.max() - means[decision.index]
    return bandit, theta, regret


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_a_normalising_bandit_is_calibrated(noise):
    agent = es.ThompsonSampling(es.Exact(es.Linear(5, noise_std=noise)), draws=20)
    found = [surprise(*played(agent, seed, 100, noise, True)[:2]) for seed in range(16)]
    # A mean of 16 draws of chi2(5) / 5 has a standard error of 0.16: four of them.
    assert np.mean(found) == pytest.approx(1.0, abs=0.64)


def test_a_normalising_bandit_is_calibrated_after_many_outcomes():
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        theta, rows = rng.normal(size=DIM), rng.normal(size=(2000, DIM)).astype(np.float32)
        outcomes = rows @ theta + NOISE * rng.normal(size=2000)
        found.append(surprise(taught(es.Bandit(EXACT), rows, outcomes), theta))
    # A mean of 5 draws of chi2(4) / 4 has a standard error of 0.32: four of them above.
    assert 0.2 < np.mean(found) < 2.3


def test_normalising_costs_no_regret_where_it_is_not_needed():
    agent = es.EnsembleSampling(es.Linear(5, noise_std=0.1), members=30)
    regret = np.array(
        [[played(agent, seed, 60, 0.1, yes)[2] for yes in (True, False)] for seed in range(12)]
    )
    more = regret[:, 0] - regret[:, 1]
    # Four standard errors of the difference; and that must mean something.
    assert more.mean() < 4 * more.std() / np.sqrt(12)
    assert regret[:, 0].mean() < 1.5 * regret[:, 1].mean()


def test_what_a_snapshot_knows_is_not_learned_again(tmp_path, monkeypatch):
    rows, outcomes = rows_with_newcomers(24), np.sin(np.arange(24))
    rows[:18, 1] = 0  # its size is that of its first sight, and not of the first 16 outcomes
    with es.Bandit.open(tmp_path, EXACT) as bandit:
        taught(bandit, rows[:20], outcomes[:20])
    bandit = es.Bandit.open(tmp_path, EXACT)
    taught(bandit, rows[20:], outcomes[20:])
    live = bandit.state
    bandit._ledger.close()  # as if killed: the snapshot is of 20 outcomes
    apply, learned = Replica._apply, []
    monkeypatch.setattr(Replica, "_apply", lambda *a: learned.append(1) or apply(*a))
    with es.Bandit.open(tmp_path, EXACT) as again:
        assert len(learned) == 4
        assert equal(again.state, live)
