"""A reward that is made of metrics is learned as if it had been told, whatever weights become."""

# pyright: reportArgumentType=false, reportCallIssue=false

import jax
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide import health

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
FIRST, SECOND = {"click": 1.0, "margin": 0.2}, {"click": 0.5, "returned": -2.0}


def linear(**given):
    return es.Bandit(es.EnsembleSampling(es.Linear(2, noise_std=0.5), 8), **given)


def leaves(state):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def lived(bandit, count=60, rows=ROWS):
    """Metrics come one by one, late, twice, and of some decisions never."""
    rng, ids = np.random.default_rng(1), []
    for n in range(count):
        one = bandit.choose(rows)
        ids.append(one.id)
        bandit.observe(one.id, {"click": float(rng.random() < 0.5), "returned": n % 3})
        if n >= 5:
            bandit.observe(ids[n - 5], {"margin": float(rng.normal())})
        if n % 7 == 0:
            bandit.learn(one.id, {"click": 1})
    return ids


def outcomes(bandit):
    log = bandit.log()
    return dict(zip(log["id"], log["outcome"], strict=True))


def values(bandit):
    """By decision, as they are recorded."""
    ledger = bandit._ledger
    return {ledger.decision_id(n): ledger.metrics(n) for n in range(ledger.decisions)}


@pytest.mark.parametrize("given", [FIRST, es.Reward(weights=FIRST)])
def test_a_decision_is_worth_its_metrics_by_their_weights(given):
    bandit = linear(reward=given)
    lived(bandit)
    for id, known in values(bandit).items():
        worth = outcomes(bandit)[id]
        if "margin" in known:
            assert worth == pytest.approx(known["click"] + 0.2 * known["margin"])
        else:  # it is not complete, unless somebody said that it is
            assert worth in (None, 1.0)
    assert None in outcomes(bandit).values()


def test_a_decision_is_learned_when_it_is_complete_and_corrected_when_a_metric_changes():
    bandit = linear(reward=FIRST)
    one = bandit.choose(ROWS)
    assert bandit.observe(one.id, {"click": 1, "other": 9})
    assert outcomes(bandit)[one.id] is None
    assert bandit.observe(one.id, {"margin": 5})
    assert outcomes(bandit)[one.id] == 2.0
    assert not bandit.observe(one.id, {"margin": 5})
    assert bandit.observe(one.id, {"margin": 10})
    assert outcomes(bandit)[one.id] == 3.0
    two, three, four = (bandit.choose(ROWS).id for _ in range(3))
    assert bandit.learn(two, {"click": 1})
    assert not bandit.learn(two, {"click": 1})
    bandit.observe(three, {"margin": -5})
    assert bandit.expire(0, 0.5) == 2
    assert [outcomes(bandit)[id] for id in (two, three, four)] == [1.0, -1.0, 0.5]
    assert bandit.learn_many([(two, {"margin": 5}), (two, {"margin": 10})]) == 2
    assert outcomes(bandit)[two] == 3.0
    plain = linear()
    for worth in (3.0, 3.0, -1.0, 0.5):
        plain.learn(plain.choose(ROWS).id, worth)
    rewards = [1.0 * x for x in outcomes(plain).values()]
    assert list(outcomes(bandit).values()) == rewards


def test_other_weights_give_the_state_that_they_would_have_given_from_the_start(tmp_path):
    agent = es.EnsembleSampling(es.Linear(2, noise_std=0.5), 8)
    with es.Bandit.open(tmp_path / "b", agent, reward=FIRST) as bandit:
        ids = lived(bandit)
        before = leaves(bandit.state)
        bandit.configure(reward=SECOND, who="ann")
        now, state = outcomes(bandit), leaves(bandit.state)
        assert state != before
        for id, known in values(bandit).items():
            assert now[id] == 0.5 * known["click"] - 2.0 * known["returned"]
        changes = [(c.name, c.value, c.who) for c in bandit._ledger.changes()]
        assert changes == [("reward", FIRST, None), ("reward", SECOND, "ann")]
    (tmp_path / "b" / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path / "b", agent) as bandit:  # by replay
        assert leaves(bandit.state) == state
        bandit.observe(ids[0], {"click": 3})  # the weights are those of the ledger
        assert outcomes(bandit)[ids[0]] == 1.5
        bandit.observe(ids[0], {"click": values(bandit)[ids[1]]["click"]})


def test_the_state_is_that_of_the_same_outcomes_told_as_numbers():
    """Of one action on offer, so that the same is decided whatever was learned."""
    weighed, told = linear(reward=FIRST), linear()
    ids = lived(weighed, rows=ROWS[2:])
    weighed.configure(reward=SECOND)
    same = {id: told.choose(ROWS[2:]).id for id in ids}
    for row in [*weighed._ledger.learned(after=0)]:
        told.learn(same[weighed._ledger.decision_id(row.number)], row.outcome)
    assert told.summary().outcomes == len(ids)
    assert leaves(told.state) == leaves(weighed.state)
    weighed.configure(reward={})  # and from now on numbers again
    one, other = weighed.choose(ROWS[2:]), told.choose(ROWS[2:])
    assert weighed.learn(one.id, 1.0)
    assert told.learn(other.id, 1.0)
    assert leaves(told.state) == leaves(weighed.state)


def test_weights_change_all_or_nothing_and_what_makes_no_sense_is_refused():
    bandit = linear(reward=FIRST)
    ids = lived(bandit, 20)
    before, was = outcomes(bandit), leaves(bandit.state)
    for wrong, words in (
        ({"clik": 1.0}, "no metric 'clik', of those that were sent: 'click', 'margin'"),
        ({"click": float("nan")}, "the weight of 'click'"),
        ({"click": "1"}, "the weight of 'click'"),
        (["click"], "reward must be es.Reward"),
        (es.Reward(sum, 2), "reward must be es.Reward"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            bandit.configure(reward=wrong, holdback=0.5)
        assert bandit.choose(ROWS).control is None
    for tell in (
        lambda: bandit.learn(ids[0], 1.0),
        lambda: bandit.learn_many([(ids[0], 1.0)]),
        lambda: bandit.add(ids[0], 1.0),
        lambda: bandit.correct(ids[0], 1.0),
    ):
        with pytest.raises(ValueError, match="the reward is made of 'click', 'margin': give these"):
            tell()
    with pytest.raises(ValueError, match="holdback"):
        bandit.configure(reward=SECOND, holdback=1)
    assert {id: outcomes(bandit)[id] for id in ids} == {id: before[id] for id in ids}
    assert leaves(bandit.state) == was
    other = linear()
    with pytest.raises(TypeError, match="needs weights"):
        other.learn(other.choose(ROWS).id, {"click": 1})
    with pytest.raises(ValueError, match="made of weights, or by a function"):
        es.Reward(sum, 2, weights={"click": 1.0})
    with pytest.raises(ValueError, match="weights of metrics are for a Bandit"):
        es.Linear(2, outcomes=2, reward=es.Reward(weights={"click": 1.0}))


def test_clicks_that_could_not_be_learned_by_other_weights_refuse_these():
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    bandit = es.Bandit(agent, reward={"click": 1.0})
    one = bandit.choose()
    bandit.learn(one.id, {"click": 1})
    bandit.observe(one.id, {"margin": 1e12})
    with pytest.raises(ValueError, match="below"):
        bandit.configure(reward={"margin": 1e6})
    assert outcomes(bandit)[one.id] == 1.0
    assert bandit._ledger.setting("reward") == {"click": 1.0}


def test_outcomes_that_were_told_before_there_were_weights_are_said():
    bandit = linear()
    for n in range(6):
        one = bandit.choose(ROWS)
        bandit.learn(one.id, 10.0)
        if n < 4:
            bandit.observe(one.id, {"margin": n})
    with pytest.warns(UserWarning, match="2 outcomes were told without 'margin', and stay"):
        bandit.configure(reward={"margin": 1.0})
    assert [*outcomes(bandit).values()] == [0.0, 1.0, 2.0, 3.0, 10.0, 10.0]


def test_a_metric_that_counts_and_nobody_sends_is_said():
    bandit = linear(reward={"clik": 1.0})
    for _ in range(100):
        bandit.observe(bandit.choose(ROWS).id, {"click": 1})
    assert "the reward is made of 'clik'" in health.found(bandit._ledger)["reward"]
    bandit.configure(reward={"click": 1.0})
    assert "reward" not in health.found(bandit._ledger)
    assert bandit.summary().outcomes == 100  # all of them were complete by these weights


def test_the_default_agent_and_erased_subjects_do_with_weights():
    bandit = es.Bandit(reward=FIRST)
    offer = {"a": {"kind": "x"}, "b": {"kind": "y"}}
    ids = [bandit.choose(offer, subject=f"u{n % 5}").id for n in range(20)]
    assert bandit.learn_many([(id, {"click": n % 2, "margin": n}) for n, id in enumerate(ids)])
    bandit.erase("u1")
    bandit.configure(reward={"margin": 1.0})
    kept = [n for n in range(20) if n % 5 != 1]
    assert [outcomes(bandit)[ids[n]] for n in kept] == [float(n) for n in kept]
    bandit.choose(offer)
