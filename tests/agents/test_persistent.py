"""Thompson sampling that tries every action now and again, against a loop in NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import ensemble_sampling as es
from ensemble_sampling.agents.persistent import Tries
from ensemble_sampling.config import describe

ARMS, DIM, MEMBERS = 4, 2, 6
ENSEMBLE = es.Ensemble(es.PerAction(es.Linear(DIM), ARMS), MEMBERS)
AGENT = es.agents.Persistent(ENSEMBLE, tries=1.5, chance=0.4)
act = jax.jit(lambda *given: AGENT.act(*given))
update = jax.jit(lambda *given: AGENT.update(*given))
chances = jax.jit(lambda *given: AGENT.probabilities(*given))
model_values = jax.jit(lambda belief, rows: ENSEMBLE.values(jax.random.key(0), belief, rows, 1))


def rule(agent, values, tried, available):
    """The probabilities of all actions, action by action, and who is owed a try."""
    times, usual, square = (np.asarray(part, np.float64) for part in tried[:3])
    due = agent.tries * np.log2(times.sum() + 2)
    votes, owed = np.zeros(ARMS), []
    for row in values:
        free = np.where(available, row, -np.inf)
        votes[np.argmax(free)] += 1 / len(values)
    for k in range(ARMS):
        differ, deviation = values[:, k].std(), np.sqrt(max(square[k] - usual[k] ** 2, 0))
        soon = times[k] < due / 2 and differ >= 0.99 * usual[k]
        rest = times[k] < due and differ >= usual[k] + 1.5 * deviation
        owed.append(bool((soon or rest) and available[k]))
    if not any(owed):
        return votes, owed
    least = min(times[k] for k in range(ARMS) if owed[k])
    turn = [k for k in range(ARMS) if owed[k] and times[k] == least]
    result = votes.copy()
    for k in range(ARMS):
        if times[k] >= due:  # one that is owed nothing gives
            given = agent.chance * votes[k]
            result[k] -= given
            for other in turn:
                result[other] += given / len(turn)
    return result, owed


def offer(context):
    return jnp.broadcast_to(jnp.asarray(context, float), (ARMS, DIM))


def run(periods, seed=0, available=None):
    """Yields (state, offer, action) of a world where action 0 is best, or seems to be."""
    rng, state = np.random.default_rng(seed), AGENT.init(jax.random.key(seed))
    for t in range(periods):
        rows, key = offer(rng.normal(size=DIM)), jax.random.fold_in(jax.random.key(seed), t)
        index = int(act(key, state, rows, available))
        yield state, rows, index
        y = jnp.asarray(float(index == 0) + 0.1 * rng.normal(), float)
        state = update(key, state, es.core.Action(jnp.int32(index), rows[0]), y)


def test_probabilities_follow_the_rule_and_respect_what_is_available(float64):
    """Over 120 periods, with all actions and without one; tries are given in some, not in all."""
    gave = []
    for t, (state, rows, _) in enumerate(run(120)):
        values = np.asarray(model_values(state[0], rows))
        for available in (np.ones(ARMS, bool), np.arange(ARMS) != t % ARMS):
            want, owed = rule(AGENT, values, state[1], available)
            have = np.asarray(chances(state, rows, jnp.asarray(available)))
            np.testing.assert_allclose(have, want, rtol=0, atol=1e-9)
            np.testing.assert_allclose(have.sum(), 1, rtol=1e-9)
            assert (have[~available] == 0).all()
            gave.append(any(owed))
        want, _ = rule(AGENT, values, state[1], np.ones(ARMS, bool))
        np.testing.assert_allclose(chances(state, rows), want, rtol=0, atol=1e-9)
    assert 10 < sum(gave) < 230


def test_what_is_usual_follows_how_much_models_differ_and_starts_anew_with_the_unit(float64):
    """Outcomes 2, 2, 2, 5, ...: from the fourth on their unit is known."""
    state = AGENT.init(jax.random.key(0))
    rng, usual, square = np.random.default_rng(1), np.zeros(ARMS), np.zeros(ARMS)
    for t, y in enumerate([2.0, 2.0, 2.0, 5.0, 2.0, 3.0, 1.0]):
        rows, key = offer(rng.normal(size=DIM)), jax.random.key(t)
        now = np.asarray(model_values(state[0], rows)).std(axis=0)
        state = update(key, state, es.core.Action(jnp.int32(t % ARMS), rows[0]), jnp.asarray(y))
        if t == 3:
            usual, square = 0 * usual, 0 * square
        elif t in (0, 4):
            usual, square = now, now**2
        else:
            usual, square = usual + 0.02 * (now - usual), square + 0.02 * (now**2 - square)
        np.testing.assert_allclose(state[1].usual, usual, rtol=1e-9)
        np.testing.assert_allclose(state[1].square, square, rtol=1e-9)
        tried = np.bincount(np.arange(t + 1) % ARMS, minlength=ARMS)
        np.testing.assert_array_equal(state[1].times, tried)


@pytest.mark.parametrize("seed", range(3))
def test_every_action_gets_about_the_tries_it_is_owed(seed):
    """1.5 log2(302) = 12.4 in 300 periods, of which half wait for nothing but their turn; Thompson
    sampling alone leaves actions that look worse everywhere alone."""
    counts = np.bincount([index for *_, index in run(300, seed)], minlength=ARMS)
    assert counts.min() >= 6
    assert counts[0] > 200


def test_nothing_is_owed_without_tries_and_nothing_given_without_a_chance():
    plain = es.ThompsonSampling(ENSEMBLE)
    *_, (state, rows, _) = run(30)
    zero = jnp.zeros(ARMS)
    fewest = Tries(jnp.asarray([30.0, 0, 0, 0]), zero, zero, *state[1][3:])
    want = plain.probabilities(state[0], rows)
    for settings, same in (({"tries": 0.0}, True), ({"chance": 0.0}, True), ({}, False)):
        agent = es.agents.Persistent(ENSEMBLE, **settings)  # pyright: ignore[reportArgumentType]
        have = agent.probabilities((state[0], fewest), rows)
        assert np.allclose(have, want, atol=1e-6) == same


def test_the_next_try_goes_to_the_action_tried_least():
    *_, (state, rows, _) = run(30)
    zero = jnp.zeros(ARMS)
    tried = Tries(jnp.asarray([40.0, 2.0, 1.0, 1.0]), zero, zero, *state[1][3:])
    have = AGENT.probabilities((state[0], tried), rows)
    votes = es.ThompsonSampling(ENSEMBLE).probabilities(state[0], rows)
    moved = 0.4 * votes[0] * np.array([-1, 0, 0.5, 0.5])
    np.testing.assert_allclose(have - votes, moved, atol=1e-6)
    assert votes[0] > 0


def test_vectors_of_outcomes_count_by_their_sum_and_the_posterior_learns_by_the_same_key():
    learner = es.PerAction(es.Linear(DIM, outcomes=2, reward=lambda y: y[..., 0] - y[..., 1]), ARMS)
    ensemble = es.Ensemble(learner, 3)
    agent, key = es.agents.Persistent(ensemble), jax.random.key(2)
    learn = jax.jit(lambda part, *given: part.update(*given))
    state, action = agent.init(key), es.core.Action(jnp.int32(1), jnp.ones(DIM))
    after = learn(agent, key, state, action, jnp.array([1.0, 2.0]))
    again = learn(agent, key, after, action, jnp.array([2.0, 1.0]))
    for tried in (after[1], again[1]):
        assert (float(tried.low), float(tried.high)) == (3.0, 3.0)
    want = learn(ensemble, key, state[0], action, jnp.array([1.0, 2.0]))
    for ours, theirs in zip(*map(jax.tree.leaves, (after[0], want)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_context_is_looked_at_once_for_all_actions():
    """Other rows of the offer are not needed to learn: `values` is asked for one."""
    asked = []

    class Noting(es.Ensemble):
        def values(self, key, belief, features, draws):
            asked.append(features.shape)
            return super().values(key, belief, features, draws)

    agent = es.agents.Persistent(Noting(es.PerAction(es.Linear(DIM), ARMS), 3))
    key = jax.random.key(0)
    agent.update(key, agent.init(key), es.core.Action(jnp.int32(1), jnp.ones(DIM)), jnp.ones(()))
    assert asked == [(1, DIM)]


def test_the_tries_of_many_actions_are_bounded():
    """300 actions after 3,000 outcomes: 250 tries in all, less than one each, and not 3,465."""
    ensemble = es.Ensemble(es.PerAction(es.Linear(DIM), 300), 2)
    belief, ones = ensemble.init(jax.random.key(0)), jnp.ones(300)
    times = jnp.concatenate([jnp.ones(299), jnp.full(1, 2701.0)])
    tried = Tries(times, 0 * ones, 0 * ones, jnp.zeros(()), jnp.ones(()))
    values = jnp.stack([jnp.arange(300.0), jnp.arange(300.0) + 1])  # the last is best to all
    free, bounded = (es.agents.Persistent(ensemble, 1.0, share=share) for share in (None, 0.05))
    assert free.chances((belief, tried), values, None)[-1] == pytest.approx(0.5)
    assert bounded.chances((belief, tried), values, None)[-1] == 1
    never = tried._replace(times=times.at[:2].set(0))  # one of two that were never tried
    chances = np.asarray(bounded.chances((belief, never), values, None))
    assert chances[:3] == pytest.approx([0.25, 0.25, 0])


def test_a_bound_on_tries_leaves_few_actions_alone_and_is_a_share():
    bounded = es.agents.Persistent(ENSEMBLE, tries=1.0, share=0.05)
    for outcomes in (0.0, 10.0, 1e4, 1e6):
        tried = AGENT.init(jax.random.key(0))[1]._replace(times=jnp.full(ARMS, outcomes / ARMS))
        assert bounded._due(tried) == pytest.approx(np.log2(outcomes + 2))
    assert "share" not in describe(AGENT)  # folders of before need not say it


def test_it_runs_over_a_posterior_in_plain_python():
    trees = es.EstimatorEnsemble(partial(DecisionTreeRegressor, max_depth=2), 3, start=2, arms=ARMS)
    agent = es.agents.Persistent(trees)
    bandit = es.Bandit(agent, seed=0)
    for t in range(20):
        decision = bandit.choose(context=[1.0, float(t % 3)])
        assert sum(decision.probabilities) == pytest.approx(1)
        bandit.learn(decision.id, 0.5 * decision.action)
    found = es.simulate(agent, es.ContextualBandit(np.eye(DIM), ARMS), 5, 2)
    assert np.isfinite(found.mean).all()
