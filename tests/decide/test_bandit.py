"""Real decisions: what is chosen, what is learned, and what is refused."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import warnings
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge, SGDRegressor
from states import equal, interrupted

import ensemble_sampling as es
from ensemble_sampling.decide import bandit as bandit_module
from ensemble_sampling.decide.programs import State

DIM = 3
OURS = str(Path(bandit_module.__file__).parent.parent)
AGENT = es.EnsembleSampling(es.Linear(dim=DIM, noise_std=0.5), members=6)
RNG = np.random.default_rng(0)
OFFERS = [RNG.normal(size=(k, DIM)) for k in RNG.integers(1, 9, size=40)]
THETA = np.array([1.0, -0.5, 2.0])


def play(bandit, offers=OFFERS, learn=True):
    """Choose from every offer and learn at once; the decisions."""
    decisions = []
    for offer in offers:
        decisions.append(bandit.choose(offer))
        if learn:
            bandit.learn(decisions[-1].id, float(offer[decisions[-1].index] @ THETA))
    return decisions


def test_learns_which_action_is_best():
    bandit = es.Bandit(AGENT, seed=1)
    offers = np.random.default_rng(1).normal(size=(200, 8, DIM))
    regret = [
        (offer @ THETA).max() - offer[d.index] @ THETA
        for offer, d in zip(offers, play(bandit, offers), strict=True)
    ]
    by_chance = np.mean([(offer @ THETA).max() - (offer @ THETA).mean() for offer in offers])
    assert np.mean(regret[100:]) < 0.05 * by_chance


def test_the_state_is_what_the_pure_functions_give():
    bandit = es.Bandit(AGENT, seed=7, normalise=False)
    decisions = play(bandit, OFFERS[:5])
    start, streams = jax.random.split(jax.random.key(7))
    learning = jax.random.bits(streams, (2,), jnp.uint32)[1]
    state = AGENT.init(start)
    for n, (offer, decision) in enumerate(zip(OFFERS[:5], decisions, strict=True)):
        features = jnp.asarray(offer, float)
        assert decision.probabilities == pytest.approx(AGENT.probabilities(state, features))
        action = es.core.Action(jnp.asarray(decision.index), features[decision.index])
        outcome = jnp.asarray(offer[decision.index] @ THETA, float)
        update_key = jax.random.wrap_key_data(jnp.stack([learning, jnp.uint32(n)]))
        state = AGENT.update(update_key, state, action, outcome)
    # Compiled and uncompiled sums round differently: a few float32 roundings per update.
    for ours, pure in zip(
        jax.tree.leaves(bandit.state.belief), jax.tree.leaves(state), strict=True
    ):
        assert np.allclose(ours, pure, rtol=1e-4, atol=1e-5)


def test_choices_are_distributed_as_recorded_and_as_the_agent_acts():
    bandit = es.Bandit(AGENT, seed=3)
    play(bandit, OFFERS[:4])
    offer = np.random.default_rng(5).normal(size=(5, DIM))
    chosen = [bandit.choose(offer) for _ in range(600)]
    counts = np.bincount([d.index for d in chosen], minlength=5) / 600
    p = chosen[0].probabilities
    assert p.sum() == pytest.approx(1)
    assert p * 6 == pytest.approx(np.round(p * 6))  # votes of six members
    assert all(d.probability == p[d.index] > 0 for d in chosen)
    # Four standard errors of a share of 600 draws.
    assert np.all(np.abs(counts - p) <= 4 * np.sqrt(p * (1 - p) / 600) + 1e-9)
    state = bandit.state
    assert state.scale is not None
    features = state.scale.apply(jnp.asarray(offer, float))
    belief = jax.tree.map(jnp.asarray, state.belief)
    keys = jax.random.split(jax.random.key(0), 600)
    acts = jax.vmap(lambda k: AGENT.act(k, belief, features))(keys)
    acted = np.bincount(np.asarray(acts), minlength=5) / 600
    assert np.all(np.abs(acted - p) <= 4 * np.sqrt(p * (1 - p) / 600) + 1e-9)


def test_estimated_propensities_are_those_drawn_from():
    agent = es.ThompsonSampling(es.Exact(es.Linear(dim=DIM)), draws=50)
    bandit = es.Bandit(agent)
    for decision in play(bandit, OFFERS[:10]):
        assert decision.probability > 0
        assert decision.probabilities.sum() == pytest.approx(1, abs=1e-5)


class Fickle(es.Uniform):
    """Prefers one of two actions, at random with the key its probabilities are made with."""

    def probabilities(self, state, features, available=None, key=None):
        assert key is not None
        first = jax.random.uniform(key) < 0.5
        shares = jnp.where(first, jnp.array([0.6, 0.4]), jnp.array([0.4, 0.6]))
        return jnp.zeros(features.shape[0]).at[:2].set(shares)


def test_the_index_is_drawn_by_a_key_of_its_own():
    decisions = es.Bandit(Fickle()).choose_many([np.eye(2)] * 400)
    preferred = [d.probability > 0.5 for d in decisions]
    assert 0.3 < np.mean([d.probabilities[0] > 0.5 for d in decisions]) < 0.7
    # 0.6, with a standard error of 0.025; drawn by one key it would be 1.
    assert np.mean(preferred) == pytest.approx(0.6, abs=0.1)


def test_offers_of_many_sizes_share_few_compilations(monkeypatch):
    agent = es.EnsembleSampling(es.Linear(dim=2), members=4)
    bandit = es.Bandit(agent)
    programs: Any = bandit._replica.programs
    before = programs._choose_sheet._cache_size()
    for k in range(1, 65):
        bandit.choose(np.ones((k, 2)))
    assert programs._choose_sheet._cache_size() - before == 4  # 8, 16, 32, 64


def test_padding_does_not_change_a_choice():
    bandit = es.Bandit(AGENT, seed=2)
    play(bandit, OFFERS[:6])
    offer = np.random.default_rng(8).normal(size=(9, DIM))
    mask = np.array([True] * 5 + [False] * 4)
    few = es.Bandit(AGENT, seed=2)
    play(few, OFFERS[:6])
    a, b = bandit.choose(offer[:5]), few.choose(offer, available=mask)
    assert b.probabilities[5:].sum() == 0
    assert a.probabilities == pytest.approx(b.probabilities[:5])


def test_batches_equal_one_at_a_time():
    one, many = es.Bandit(AGENT, seed=4), es.Bandit(AGENT, seed=4)
    first, second = [one.choose(offer) for offer in OFFERS], many.choose_many(OFFERS)
    assert [d.index for d in first] == [d.index for d in second]
    outcomes = RNG.normal(size=len(OFFERS))
    for decision, y in zip(first, outcomes, strict=True):
        assert one.learn(decision.id, y)
    assert many.learn_many([(d.id, y) for d, y in zip(second, outcomes, strict=True)]) == 40
    assert equal(one.state, many.state)


def test_outcomes_may_come_in_any_order_and_the_order_is_what_is_replayed():
    bandit = es.Bandit(AGENT)
    decisions = [bandit.choose(offer) for offer in OFFERS[:10]]
    for i in np.random.default_rng(3).permutation(10):
        bandit.learn(decisions[i].id, float(i))
    before = bandit.state
    bandit._replica.version = None  # as after an interrupted update: rebuilt from the ledger
    after = bandit.state
    assert equal(before, after)


def test_the_same_outcome_twice_changes_nothing_and_another_is_refused():
    bandit = es.Bandit(AGENT)
    decision = bandit.choose(OFFERS[0])
    assert bandit.learn(decision.id, 0.1)
    state = bandit.state
    assert not bandit.learn(decision.id, 0.1)
    with pytest.raises(ValueError, match=r"outcome 0\.1 and cannot have 0\.2"):
        bandit.learn(decision.id, 0.2)
    assert equal(state, bandit.state)
    assert bandit.summary().outcomes == 1


def test_a_batch_with_one_bad_outcome_teaches_nothing():
    bandit = es.Bandit(AGENT)
    a, b = bandit.choose_many(OFFERS[:2])
    state = bandit.state
    for bad, message in (((b.id, np.nan), "finite"), ((a.id, 2.0), "as well"), (("x", 1), "id")):
        with pytest.raises(ValueError, match=message):
            bandit.learn_many([(a.id, 1.0), bad])
    assert bandit.summary().outcomes == 0
    assert equal(state, bandit.state)
    assert bandit.learn_many([(a.id, 1.0), (a.id, 1.0)]) == 1


def test_expire_assumes_an_outcome_for_what_never_came():
    bandit = es.Bandit(AGENT)
    decisions = bandit.choose_many(OFFERS[:3])
    bandit.learn(decisions[1].id, 1.0)
    assert bandit.expire(timedelta(hours=1), 0.0) == 0
    assert bandit.expire(0, 0.0) == 2
    summary = bandit.summary()
    assert (summary.pending, summary.expired, summary.outcomes) == (0, 2, 3)
    with pytest.raises(ValueError, match=r"expired with the outcome 0\.0 and cannot have 1\.0"):
        bandit.learn(decisions[0].id, 1.0)
    assert not bandit.learn(decisions[0].id, 0.0)
    with pytest.raises(ValueError, match="older_than"):
        bandit.expire(-1, 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1.0, np.nan, 0.0]], "nan in row 0, column 1"),
        ([[1.0, 0.0, 0.0], [0.0, np.inf, 0.0]], "inf in row 1, column 1"),
        ([[1e300, 0.0, 0.0]], "finite"),
        (np.zeros((0, DIM)), "at least one action"),
        (np.zeros((2, DIM + 1)), "have 3 features, got 4"),
        (np.zeros(DIM), "one row per action"),
        ([[1.0, 2.0, 3.0], [1.0]], "numbers of one width"),
        ([["a", "b", "c"]], "Hasher"),
        ({}, "at least one action|one row per action"),
        ({"a": [1.0, 2.0, np.nan]}, "action 'a'"),
        (None, "give the features"),
    ],
)
def test_bad_features_are_refused_and_nothing_is_recorded(given, message):
    bandit = es.Bandit(AGENT)
    with pytest.raises((ValueError, TypeError), match=message):
        bandit.choose(given)
    assert bandit.summary().decisions == 0


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (np.nan, "finite"),
        (-np.inf, "finite"),
        (1e300, "below 1e"),
        (3e38, "below 1e"),
        (np.float32(-2e15), "below 1e"),
        ([1.0, 2.0], "single number|have shape"),
        ([[1.0]], r"got shape \(1, 1\)"),
        (np.ones((1, 1), np.float32).view(np.matrix), r"got shape \(1, 1\)"),
        ([], r"got shape \(0,\)"),
        (np.ma.masked, "masked"),
        (np.ma.array(1.0, mask=True), "masked"),
        ("good", "number"),
        (None, "finite|number"),
    ],
)
def test_bad_outcomes_are_refused_and_nothing_changes(outcome, message):
    bandit = es.Bandit(AGENT)
    decision = bandit.choose(OFFERS[0])
    state = bandit.state
    with pytest.raises((ValueError, TypeError), match=message):
        bandit.learn(decision.id, outcome)
    assert bandit.summary().pending == 1
    assert equal(state, bandit.state)


def test_unknown_ids_are_refused_by_name():
    bandit, other = es.Bandit(AGENT), es.Bandit(AGENT)
    decision = other.choose(OFFERS[0])
    with pytest.raises(ValueError, match="belongs to the ledger"):
        bandit.learn(decision.id, 1.0)
    with pytest.raises(ValueError, match=r"no decision .*-99"):
        other.learn(decision.id[:-1] + "99", 1.0)
    for bad in ("", "7", "abc-x"):
        with pytest.raises(ValueError, match="not the id"):
            bandit.learn(bad, 1.0)
    with pytest.raises(TypeError, match="text"):
        bandit.learn(3, 1.0)  # pyright: ignore[reportArgumentType]


def test_named_actions_from_mappings_and_data_frames():
    bandit = es.Bandit(AGENT)
    rows = {"red": [1.0, 0.0, 0.0], "blue": [0.0, 1.0, 0.0]}
    decision = bandit.choose(rows)
    assert decision.action == list(rows)[decision.index]
    frame = pd.DataFrame(rows).T  # without names of columns, as the first offer
    decision = bandit.choose(frame, available=["blue"])
    assert (decision.action, decision.index, decision.probability) == ("blue", 1, 1.0)
    assert bandit.log()["action"][1] == "blue"
    with pytest.raises(ValueError, match="'green', which is not on offer"):
        bandit.choose(rows, available=["green"])
    with pytest.raises(ValueError, match="at least one action"):
        bandit.choose(rows, available=[False, False])
    with pytest.raises(ValueError, match="'red' occurs twice"):
        bandit.choose(pd.DataFrame(np.eye(3), index=["red", "blue", "red"]))
    assert bandit.choose(np.eye(3)).action in (0, 1, 2)


def test_fixed_arms_need_no_features():
    agent = es.EnsembleSampling(es.IndependentArms(arms=3, noise_std=0.1), members=10)
    bandit = es.Bandit(agent, actions=["a", "b", "c"])
    worth = {"a": 0.0, "b": 1.0, "c": 0.5}
    chosen = []
    for _ in range(60):
        decision = bandit.choose()
        chosen.append(decision.action)
        bandit.learn(decision.id, worth[decision.action])
    assert chosen[-20:].count("b") >= 18
    assert bandit.choose(available=["a", "c"]).action in ("a", "c")
    with pytest.raises(ValueError, match="3 actions, got 2"):
        bandit.choose(np.eye(2))
    with pytest.raises(ValueError, match="the agent has 3 actions, but 1 are named"):
        es.Bandit(agent, actions=["a"])


def test_a_network_with_one_output_per_action_takes_a_context():
    make = es.networks.GaussianMLP(dim=2, hidden=(8,), outputs=2)
    learner = es.Network(make, dim=2, capacity=100, noise_std=0.3, arms=2, learning_rate=0.01)
    bandit = es.Bandit(es.EnsembleSampling(learner, members=12))
    rng = np.random.default_rng(2)
    right = []
    for _ in range(150):
        x = np.array([rng.choice([-1.0, 1.0]), 1.0])
        decision = bandit.choose(context=x)
        right.append(decision.index == (x[0] > 0))
        bandit.learn(decision.id, float(right[-1]))
    # By chance it would be 1/2, with a standard error of 0.07.
    assert np.mean(right[-50:]) > 0.8
    with pytest.raises(ValueError, match="one row of numbers"):
        bandit.choose(context=np.eye(2))
    with pytest.raises(ValueError, match="have 2 features, got 3"):
        bandit.choose(context=[1.0, 2.0, 3.0])


def test_dictionaries_are_hashed_and_learned_from():
    hasher = es.Hasher(width=64)
    agent = es.EnsembleSampling(es.Linear(dim=64, noise_std=0.3), members=10)
    bandit = es.Bandit(agent, hasher=hasher)
    likes = {"ann": "tea", "bob": "coffee"}
    rng = np.random.default_rng(0)
    right = []
    for _ in range(150):
        user = rng.choice(["ann", "bob"])
        drinks = {"tea": {"kind": "tea", "price": 2.0}, "coffee": {"kind": "coffee", "price": 3.0}}
        decision = bandit.choose(drinks, context={"user": user})
        right.append(decision.action == likes[user])
        bandit.learn(decision.id, float(right[-1]))
    assert np.mean(right[-50:]) > 0.8  # 0.5 by chance
    with pytest.raises(TypeError, match="need Bandit"):
        es.Bandit(AGENT).choose(np.eye(3), context={"user": "ann"})


def test_scaling_makes_units_irrelevant():
    units = np.array([1e-4, 1.0, 1e5])
    plain, scaled = es.Bandit(AGENT, seed=5), es.Bandit(AGENT, seed=5)
    rewards = []
    for bandit, unit in ((plain, 1.0), (scaled, units)):
        got = []
        for offer in np.random.default_rng(4).normal(size=(150, 6, DIM)):
            decision = bandit.choose(offer * unit)
            got.append(float(offer[decision.index] @ THETA))
            bandit.learn(decision.id, got[-1])
        rewards.append(np.mean(got[75:]))
    best = np.mean([(o @ THETA).max() for o in np.random.default_rng(4).normal(size=(150, 6, DIM))])
    assert rewards[0] > 0.9 * best
    assert rewards[1] > 0.9 * best


def test_log_and_summary_say_what_happened():
    bandit = es.Bandit(AGENT, seed=6)
    decisions = play(bandit, OFFERS[:5])
    last = bandit.choose(OFFERS[5])
    log = pd.DataFrame(bandit.log())
    assert list(log["id"]) == [d.id for d in [*decisions, last]]
    assert list(log["probability"]) == [d.probability for d in [*decisions, last]]
    assert log["outcome"].isna().tolist() == [False] * 5 + [True]
    summary = bandit.summary()
    assert (summary.decisions, summary.outcomes, summary.pending) == (6, 5, 1)
    assert summary.reward == pytest.approx(log["reward"].mean())
    votes = [d.probabilities @ d.probabilities for d in [*decisions, last]]
    assert summary.agreement == pytest.approx(np.mean(votes))
    text = str(summary)
    for word in ("decisions  6", "pending    1", "agreement", "diverged   0 times"):
        assert word in text


def test_log_writes_to_parquet(tmp_path):
    bandit = es.Bandit(AGENT)
    play(bandit, OFFERS[:3])
    frame = pd.DataFrame(bandit.log())
    frame.to_parquet(tmp_path / "log.parquet")
    assert pd.read_parquet(tmp_path / "log.parquet")["reward"].tolist() == frame["reward"].tolist()


def test_plot_draws_a_figure_even_of_nothing(tmp_path):
    bandit = es.Bandit(AGENT)
    bandit.plot().savefig(tmp_path / "empty.png")
    play(bandit, OFFERS[:4])
    bandit.plot().savefig(tmp_path / "some.png")
    assert (tmp_path / "some.png").stat().st_size > 1000


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_threads_may_share_a_bandit(where, tmp_path):
    bandit = es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path, AGENT)
    threads = [threading.Thread(target=play, args=(bandit, OFFERS[:10])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary = bandit.summary()
    assert (summary.decisions, summary.outcomes) == (40, 40)
    state = bandit.state
    bandit._replica.version = None
    assert equal(state, bandit.state)


def test_other_agents_work_too():
    agents = [
        es.EpsilonGreedy(es.Linear(dim=DIM), 0.1),
        es.Greedy(es.Linear(dim=DIM)),
        es.Uniform(),
        es.EnsembleSampling(es.Linear(dim=DIM), members=3, perturbation=es.posteriors.Poisson()),
    ]
    for agent in agents:
        bandit = es.Bandit(agent)
        play(bandit, OFFERS[:4])
        assert bandit.summary().outcomes == 4
        with pytest.raises(ValueError, match="have 3 features, got 2"):
            bandit.choose(np.eye(2))


def test_a_learner_is_not_an_agent():
    with pytest.raises(TypeError, match=r"expected an agent .* wrap a learner"):
        es.Bandit(es.Linear(dim=3))  # pyright: ignore[reportArgumentType]


def test_names_not_positions_decide_which_model_of_a_fixed_set_learns():
    learner = es.PerAction(es.Linear(dim=1, noise_std=0.1), arms=2)
    bandit = es.Bandit(es.ThompsonSampling(es.Exact(learner)), actions=["a", "b"])
    for i in range(40):
        offer = {"a": [1.0], "b": [1.0]} if i % 2 else {"b": [1.0], "a": [1.0]}
        decision = bandit.choose(offer)
        bandit.learn(decision.id, 1.0 if decision.action == "a" else -1.0)
    assert bandit.log()["action"][-6:] == ["a"] * 6
    with pytest.raises(ValueError, match=r"actions are \['a', 'b'\], got \['x', 'y'\]"):
        bandit.choose({"x": [1.0], "y": [2.0]})


def test_a_migration_finds_actions_by_name_when_their_order_changes(tmp_path):
    agent = es.EnsembleSampling(es.IndependentArms(arms=2, noise_std=0.1), members=10)
    with es.Bandit.open(tmp_path, agent, actions=["a", "b"]) as bandit:
        for _ in range(40):
            decision = bandit.choose()
            bandit.learn(decision.id, 1.0 if decision.action == "a" else -1.0)
    with es.Bandit.migrate(tmp_path, agent, actions=["b", "a"]) as bandit:
        assert bandit.choose().action == "a"
    with pytest.raises(ValueError, match="none of the agent's actions"):
        es.Bandit.migrate(tmp_path, agent, actions=["c", "d"])


def test_a_refused_choice_leaves_the_number_of_features_open():
    bandit = es.Bandit(es.Uniform())
    with pytest.raises(ValueError, match="available"):
        bandit.choose([[1.0, 2.0, 3.0]], available=[False])
    assert bandit.choose([[1.0, 2.0]]).index == 0


@pytest.mark.parametrize("actions", ["ab", ["a", "a"], [("a",), ("b",)]])
def test_bad_names_of_actions_are_refused_at_once(actions):
    agent = es.EnsembleSampling(es.IndependentArms(arms=2), members=2)
    with pytest.raises((TypeError, ValueError), match="name"):
        es.Bandit(agent, actions=actions)


def test_a_closed_bandit_says_so(tmp_path):
    for bandit in (es.Bandit(AGENT), es.Bandit.open(tmp_path / "b", AGENT)):
        decision = bandit.choose(OFFERS[0])
        bandit.close()
        bandit.close()
        for use in (
            lambda b=bandit: b.choose(OFFERS[0]),
            lambda b=bandit, d=decision: b.learn(d.id, 1.0),
            bandit.log,
            bandit.summary,
        ):
            with pytest.raises(ValueError, match="closed"):
                use()


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(TypeError, match=r"write Uniform\(\.\.\.\)"):
        es.Bandit(es.Uniform)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="hasher makes 8 features, the agent takes 3"):
        es.Bandit(AGENT, hasher=es.Hasher(8))
    bandit = es.Bandit(AGENT)
    decision = bandit.choose(OFFERS[0])
    with pytest.raises(TypeError, match="an outcome must be a number"):
        bandit.learn(decision.id, "1.5")
    assert bandit.learn(decision.id, 1.5)


def test_a_caller_may_reuse_its_array():
    ours, theirs = es.Bandit(AGENT, seed=2), es.Bandit(AGENT, seed=2)
    table = OFFERS[0].astype(np.float32)
    decisions = []
    for bandit in (ours, theirs):
        given = table.copy()
        decisions.append(bandit.choose(given))
        given[:] = 7.0 if bandit is ours else given
        bandit.learn(decisions[-1].id, 1.0)
    assert equal(ours.state, theirs.state)
    assert ours.log()["features"] == theirs.log()["features"]


def test_a_choice_that_fails_leaves_the_width_open():
    bandit = es.Bandit(es.EstimatorEnsemble(lambda: Ridge(), members=2, arms=3))
    with pytest.raises(ValueError, match="estimators need features"):
        bandit.choose()
    decision = bandit.choose(context=[1.0, 2.0])
    assert bandit.learn(decision.id, 1.0)


def test_a_name_must_be_equal_to_itself():
    with pytest.raises(ValueError, match="must be finite"):
        es.Bandit(es.EnsembleSampling(es.IndependentArms(2), 2), actions=[1.0, float("nan")])


def test_a_posterior_means_thompson_sampling_over_it():
    posterior = es.Ensemble(es.Linear(dim=DIM, noise_std=0.5), members=6)
    short, long = es.Bandit(posterior, seed=3), es.Bandit(AGENT, seed=3)
    assert [d.index for d in play(short)] == [d.index for d in play(long)]
    assert equal(short.state, long.state)


def test_decisions_compare_and_hash_by_what_was_decided():
    one, two = es.Bandit(AGENT, seed=1), es.Bandit(AGENT, seed=1)
    a, b = one.choose_many(OFFERS[:2])
    c = two.choose(OFFERS[0])
    assert a == es.Decision(a.id, a.index, a.action, a.probability, a.probabilities.copy())
    assert a != b
    assert a != c  # another ledger's
    assert a != a.id
    assert len({a, b, c, a}) == 3


def test_an_agent_with_features_is_not_left_to_guess_its_context():
    learner = es.PerAction(es.Linear(dim=2), arms=2)
    bandit = es.Bandit(es.EnsembleSampling(learner, members=3))
    with pytest.raises(ValueError, match=r"decides by 2 features: give choose\(context"):
        bandit.choose()
    hashed = es.Bandit(es.EnsembleSampling(es.PerAction(es.Linear(8), 2), 3), hasher=es.Hasher(8))
    with pytest.raises(ValueError, match="decides by 8 features"):
        hashed.choose()
    assert hashed.choose(context={}).index in (0, 1)  # nothing to say of it is something said
    arms = es.Bandit(es.EnsembleSampling(es.IndependentArms(2), members=3))
    assert arms.choose().index in (0, 1)


def test_expire_refuses_a_bad_outcome_also_when_nothing_is_pending():
    bandit = es.Bandit(AGENT)
    for bad in (np.nan, "0", [1.0, 2.0], None):
        with pytest.raises((ValueError, TypeError), match=r"outcome|number"):
            bandit.expire(0, bad)
    assert bandit.expire(0, 0.0) == 0


def test_the_state_of_estimators_is_a_copy():
    bandit = es.Bandit(es.EstimatorEnsemble(SGDRegressor, members=2))
    play(bandit, OFFERS[:5])
    before = bandit.choose(OFFERS[7]).probabilities
    copy = bandit.state.belief.tables[0]
    for row in copy.rows:
        row.features[:] = 7.0
    for fit in copy.fits.values():
        fit.estimator.coef_[:] = 7.0
    copy.fits.clear()
    assert np.array_equal(bandit.choose(OFFERS[7]).probabilities, before)


@pytest.mark.parametrize("agent", [AGENT, es.EstimatorEnsemble(Ridge, members=2), es.Uniform()])
def test_the_state_stays_what_it_was_when_more_is_learned(agent):
    bandit = es.Bandit(agent)
    play(bandit, OFFERS[:3])
    state = bandit.state
    before = [np.array(leaf) for leaf in jax.tree.leaves(state)]
    length = len(state.belief.tables[0].rows) if hasattr(state.belief, "tables") else None
    play(bandit, OFFERS[3:6])
    assert all(map(np.array_equal, jax.tree.leaves(state), before))
    if length is not None:
        assert len(state.belief.tables[0].rows) == length == 3


# Broken processes


def test_beliefs_that_are_no_numbers_are_noticed_and_nothing_is_recorded():
    bandit = es.Bandit(AGENT)
    play(bandit, OFFERS[:3])
    assert bandit.summary().diverged == 0
    taught = bandit._replica.version
    assert taught is not None
    state = bandit.state
    lost = State(state.scale, jax.tree.map(lambda a: a * jnp.nan, state.belief))
    bandit._replica.version = taught._replace(state=bandit._replica.programs.hold(lost))
    with pytest.raises(ValueError, match="no numbers any more"):
        bandit.choose(OFFERS[3])
    summary = bandit.summary()
    assert (summary.decisions, summary.outcomes) == (3, 3)
    assert summary.diverged > 0


def survives(bandit, prepare, call, step):
    """Interrupt a call at every `step`th line there is, with a whole round after each."""
    for line in range(1, 9000, step):
        given = prepare()
        try:
            interrupted(line, partial(call, given), OURS)
            return line
        except KeyboardInterrupt:
            play(bandit, OFFERS[:1])
    raise AssertionError("it never ran through")


@pytest.mark.parametrize(
    ("agent", "where", "step"),
    [
        (AGENT, "memory", 1),
        (AGENT, "disk", 3),
        (es.Uniform(), "memory", 7),
        (es.EstimatorEnsemble(SGDRegressor, members=2), "memory", 97),
    ],
    ids=["memory", "disk", "uniform", "estimators"],
)
def test_an_interrupt_at_any_line_loses_nothing_and_teaches_nothing_twice(
    agent, where, step, tmp_path
):
    bandit = es.Bandit(agent) if where == "memory" else es.Bandit.open(tmp_path, agent)
    with contextlib.suppress(KeyboardInterrupt):
        interrupted(40, lambda: bandit.choose(OFFERS[0]), OURS)  # while the width is still open
    play(bandit, OFFERS[:2])
    lines = [
        survives(bandit, lambda: None, lambda _: bandit.choose(OFFERS[1]), step),
        survives(bandit, lambda: bandit.choose(OFFERS[2]), lambda d: bandit.learn(d.id, 0.5), step),
    ]
    assert min(lines) > 50
    log, summary = bandit.log(), bandit.summary()
    assert len(set(log["id"])) == summary.decisions == len(log["id"])
    for id, outcome in zip(log["id"], log["outcome"], strict=True):
        bandit.learn(id, 0.5 if outcome is None else outcome)
    assert bandit.summary().pending == 0
    live, shares = bandit.state, bandit.choose(OFFERS[3]).probabilities
    bandit._replica.version = None  # learned anew from the ledger
    if where == "disk":
        (tmp_path / "state.safetensors").unlink(missing_ok=True)
    assert np.array_equal(bandit.choose(OFFERS[3]).probabilities, shares)
    assert all(map(np.array_equal, jax.tree.leaves(bandit.state), jax.tree.leaves(live)))
    bandit.close()


FORKED = """
import os, signal, sys, threading
import jax, numpy as np
jax.config.update("jax_cpu_enable_async_dispatch", sys.argv[2] == "async")
import ensemble_sampling as es

agent = es.EnsembleSampling(es.Linear(2), members=3)
bandits = [es.Bandit(agent), es.Bandit.open(sys.argv[1], agent)]
decisions = [bandit.choose(np.eye(2)) for bandit in bandits]
held, over = threading.Event(), threading.Event()

def busy():
    with bandits[0]._mutex, bandits[1]._mutex:
        held.set()
        over.wait()

threading.Thread(target=busy).start()
held.wait()
child = os.fork()  # while another thread is at work
if child == 0:
    signal.alarm(60)  # rather than hang
    for bandit, decision in zip(bandits, decisions):
        calls = [
            lambda: bandit.choose(np.eye(2)), lambda: bandit.choose_many([np.eye(2)]),
            lambda: bandit.learn(decision.id, 1.0), lambda: bandit.expire(0, 0.0), bandit.log,
            bandit.summary, bandit.plot, bandit.save, lambda: bandit.state,
            lambda: bandit.backup(sys.argv[1] + "-copy"),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except RuntimeError as error:
                assert "fork" in str(error) and "open" in str(error), error
            else:
                print("call", number, "was not refused")
                os._exit(1)
        bandit.close()
    os._exit(0)
over.set()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for bandit, decision in zip(bandits, decisions):
    assert bandit.learn(decision.id, 1.0)
    bandit.learn(bandit.choose(np.eye(2)).id, 0.0)
    assert bandit.summary().outcomes == 2
    bandit.close()
sys.exit(status)
"""


@pytest.mark.parametrize("dispatch", ["async", "sync"])
def test_a_fork_is_refused_and_the_parent_goes_on(dispatch, tmp_path):
    command = [sys.executable, "-c", FORKED, str(tmp_path / "shop"), dispatch]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with es.Bandit.open(tmp_path / "shop", es.EnsembleSampling(es.Linear(2), members=3)) as bandit:
        assert bandit.summary().outcomes == 2


OPEN_WIDTHS = {
    "uniform": es.Uniform(),
    "arms": es.EnsembleSampling(es.IndependentArms(2, noise_std=0.5), members=3),
}
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import numpy as np
from test_bandit import OPEN_WIDTHS, es

for name, agent in OPEN_WIDTHS.items():
    bandit = es.Bandit.open(f"{sys.argv[1]}/{name}", agent)
    first = bandit.choose(np.eye(2) * 3.0)
    bandit.choose(np.eye(2))
    bandit.learn(first.id, 1.0)
    print(first.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_agents_of_open_width_come_back_after_kill_9(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    first = ran.stdout.split()
    for (name, agent), id in zip(OPEN_WIDTHS.items(), first, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bandit = es.Bandit.open(tmp_path / name, agent)
        assert bandit.log()["id"][0] == id
        assert (bandit.summary().outcomes, bandit.summary().pending) == (1, 1)
        state, unharmed = bandit.state, es.Bandit(agent)
        decision, _ = unharmed.choose(np.eye(2) * 3.0), unharmed.choose(np.eye(2))
        unharmed.learn(decision.id, 1.0)
        assert state.scale is not None
        assert equal(state, unharmed.state)
        with pytest.raises(ValueError, match="have 2 features, got 3"):
            bandit.choose(np.eye(3)[:2])
        bandit.close()


def test_no_snapshot_is_saved_before_its_shape_is_known(tmp_path):
    with es.Bandit.open(tmp_path, es.Uniform()) as bandit:
        bandit.save()
        assert not (tmp_path / "state.safetensors").exists()
        bandit.choose(np.eye(2))
        bandit.save()
        assert (tmp_path / "state.safetensors").exists()


# Another configuration


@pytest.mark.parametrize(
    "other",
    [
        es.EnsembleSampling(es.Linear(dim=DIM, noise_std=0.5), members=3),
        es.EstimatorEnsemble(Ridge, members=2),
        es.Uniform(),
    ],
    ids=["ensemble", "estimators", "uniform"],
)
def test_after_a_migration_the_former_agents_snapshot_is_gone(other, tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        play(bandit, OFFERS[:4])
    snapshot = tmp_path / "state.safetensors"
    former = snapshot.read_bytes()
    bandit = es.Bandit.migrate(tmp_path, other)
    assert not snapshot.exists() or snapshot.read_bytes() != former
    assert snapshot.exists() != isinstance(other, es.EstimatorEnsemble)
    bandit._ledger.close()  # as if killed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        es.Bandit.open(tmp_path, other).close()


def test_words_are_not_migrated_to_an_agent_without_a_hasher(tmp_path):
    with es.Bandit.open(tmp_path) as bandit:
        offer = {"a": {"kind": "hot"}, "b": {"kind": "cold"}}
        made = bandit.choose(offer, context={"device": "phone"})
        bandit.learn(made.id, 1.0)
    said = re.escape(json.dumps(offer[made.action], separators=(",", ":")))
    said += r' in the context {"device":"phone"}: give a hasher, as in hasher=es.Hasher'
    with pytest.raises(ValueError, match=said):
        es.Bandit.migrate(tmp_path, es.EnsembleSampling(es.Linear(3), 4))
    agent = es.EnsembleSampling(es.Linear(16), 4)
    with es.Bandit.migrate(tmp_path, agent, hasher=es.Hasher(16)) as bandit:
        assert bandit.summary().outcomes == 1


def test_a_mistyped_folder_is_not_migrated_into_being(tmp_path):
    for folder in (tmp_path / "shpo", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no ledger in .*Bandit\.open begins"):
            es.Bandit.migrate(folder, AGENT)
    assert list(tmp_path.iterdir()) == []


def test_replay_is_exact_after_a_migration_to_float64(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        play(bandit, OFFERS[:3])
    with jax.enable_x64(True):
        bandit = es.Bandit.migrate(tmp_path, AGENT)
        decisions = bandit.choose_many(OFFERS[3:20])
        assert any(d.probability * 6 % 3 for d in decisions)  # sixths, which are rounded
        bandit.learn_many([(d.id, 0.1 * n) for n, d in enumerate(decisions)])
        live = bandit.state
        assert {leaf.dtype for leaf in jax.tree.leaves(live)} == {np.dtype(np.float64)}
        log = bandit.log()
        assert log["probability"][3:] == [d.probability for d in decisions]
        assert log["probabilities"][3:] == [d.probabilities.tolist() for d in decisions]
        bandit.close()
        (tmp_path / "state.safetensors").unlink()
        with es.Bandit.open(tmp_path, AGENT) as bandit:
            assert equal(bandit.state, live)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_change_of_precision_while_open_is_refused(where, tmp_path):
    bandit = es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path, AGENT)
    decision = bandit.choose(OFFERS[0])
    with jax.enable_x64(True):
        for call in (
            lambda: bandit.choose(OFFERS[1]),
            lambda: bandit.learn(decision.id, 1.0),
            lambda: bandit.expire(0, 1.0),
            lambda: bandit.state,
        ):
            with pytest.raises(ValueError, match="jax_enable_x64 was changed"):
                call()
    assert bandit.learn(decision.id, 1.0)
    state = bandit.state
    with jax.enable_x64(True):
        bandit.close()
    if where == "disk":
        with es.Bandit.open(tmp_path, AGENT) as bandit:
            assert equal(bandit.state, state)


def test_a_backup_opens_to_the_same_state(tmp_path):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        play(bandit, OFFERS[:5])
        bandit.backup(tmp_path / "copy")
        state = bandit.state
        play(bandit, OFFERS[5:7])
    with pytest.warns(UserWarning, match="copy"):
        again = es.Bandit.open(tmp_path / "copy", AGENT)
    assert equal(again.state, state)
    again.close()
    memory = es.Bandit(AGENT)
    play(memory, OFFERS[:5])
    memory.backup(tmp_path / "from memory")
    with pytest.warns(UserWarning, match="copy"):
        again = es.Bandit.open(tmp_path / "from memory", AGENT)
    assert equal(again.state, memory.state)
    again.close()
