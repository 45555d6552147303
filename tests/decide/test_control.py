"""A part of decisions is left to a baseline, recorded as such, and what that costs and tells."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
# pyright: reportOptionalOperand=false, reportOperatorIssue=false

import datetime

import jax
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.control import uniform
from ensemble_sampling.decide.lift import weights

ARMS = ["tea", "coffee", "milk"]
RATES = np.array([0.2, 0.3, 0.6])
LINEAR = es.EnsembleSampling(es.Linear(2, noise_std=0.5), 8)
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def beta(**given):
    """Few and fast: conjugate models of three actions."""
    return es.Bandit(es.ThompsonSampling(es.Exact(es.IndependentArms(3))), actions=ARMS, **given)


def leaves(state):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


def test_decisions_of_the_bandit_are_what_they_would_be_without_a_holdback():
    plain, held = beta(), beta(holdback=0.3)
    one, other = plain.choose_many(contexts=[None] * 200), held.choose_many(contexts=[None] * 200)
    assert [d.control for d in one] == [None] * 200
    mine = [not d.control for d in other]
    assert 0.6 < np.mean(mine) < 0.8
    assert all(a.index == b.index for a, b, m in zip(one, other, mine, strict=True) if m)
    assert {b.action for b in other if b.control} == {"tea"}
    for a, b in zip(one, other, strict=True):
        mixed = 0.3 * np.array([1.0, 0.0, 0.0]) + 0.7 * a.probabilities
        np.testing.assert_allclose(b.probabilities, mixed, atol=1e-6)
        assert b.probability == b.probabilities[b.index]


def test_a_group_is_drawn_by_the_number_or_the_subject_alone():
    bandit = beta(holdback=0.5, seed=7)
    made = bandit.choose_many(contexts=[None] * 40, subjects=["ann", "bob", None, "eve"] * 10)
    for n, one in enumerate(made):
        subject = ["ann", "bob", None, "eve"][n % 4]
        words = ("decision", n) if subject is None else ("subject", subject)
        assert one.control == (uniform("7", *words) < 0.5)


def test_the_ledger_knows_it_and_says_who_changed_it(tmp_path):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    with es.Bandit.open(tmp_path / "b", agent, actions=ARMS, holdback=0.25) as bandit:
        for _ in range(40):
            bandit.learn(bandit.choose().id, 1.0)
    (tmp_path / "b" / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path / "b", agent, actions=ARMS) as bandit:
        state, log = bandit.state, bandit.log()
        assert bandit.choose().control is not None
        bandit.configure(holdback=0.0, who="ann")
        assert bandit.choose().control is None
        assert log["holdback"] == [0.25] * 40
        assert {*log["control"]} == {True, False}
        chances = zip(log["baseline"], log["action"], strict=True)
        assert all(b == (name == "tea") for b, name in chances)
        made = [(c.who, c.decision, c.value["holdback"]) for c in bandit._ledger.changes()]
        assert made == [(None, 0, 0.25), ("ann", 41, 0.0)]
    with es.Bandit.open(tmp_path / "b", agent, actions=ARMS) as bandit:
        assert leaves(bandit.state) == leaves(state)  # replayed and from its snapshot
        assert bandit.choose().control is None


def test_what_a_log_says_of_others_is_right_with_a_holdback():
    """Values by the recorded propensities, in plain words, against what is true."""
    rng, bandit = (
        np.random.default_rng(0),
        beta(holdback=0.3, baseline={"action": "coffee"}, floor=0.1),
    )
    for _ in range(60):
        made = bandit.choose_many(contexts=[None] * 50)
        bandit.learn_many([(d.id, float(rng.random() < RATES[d.index])) for d in made])
    log = bandit.log()
    chosen, reward = np.array(log["index"]), np.array(log["reward"])
    chance = np.array(log["probability"])
    for target in (np.ones(3) / 3, np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.1, 0.9])):
        weight = target[chosen] / chance
        value, stderr = np.mean(weight * reward), np.std(weight * reward) / np.sqrt(len(chosen))
        assert abs(value - RATES @ target) < 4 * stderr
    found = es.evaluate(bandit, {"coffee": np.array([0.0, 1.0, 0.0])})
    assert found is not None
    # As if the propensity were that of whoever decided, it would be wrong.
    alone = np.where(log["control"], chosen == 1, (chance - 0.3 * (chosen == 1)) / 0.7)
    wrong = np.mean((np.ones(3) / 3)[chosen] / alone * reward)
    assert abs(wrong - RATES.mean()) > 0.02


def test_lift_is_what_plain_weights_say_and_true():
    rng, bandit = np.random.default_rng(1), beta(holdback=0.2)
    truth = np.zeros(2)
    for _ in range(80):
        made = bandit.choose_many(contexts=[None] * 50)
        bandit.learn_many([(d.id, float(rng.random() < RATES[d.index])) for d in made])
        mine = (made[0].probabilities - 0.2 * np.eye(3)[0]) / 0.8
        truth += [mine @ RATES / 80, RATES[0] / 80]
    found, log = bandit.lift(daily=True), bandit.log()
    p, b, y = (np.array(log[name], float) for name in ("probability", "baseline", "reward"))
    by = [(p - 0.2 * b) / 0.8 / p, b / p]
    means = [float((w * y).sum() / w.sum()) for w in by]
    assert [found.bandit.value, found.control.value] == pytest.approx(means, rel=1e-5)
    assert found.difference.value == pytest.approx(means[0] - means[1], rel=1e-4)
    assert found.ratio.value == pytest.approx(means[0] / means[1], rel=1e-4)
    assert found.difference.low < truth[0] - truth[1] < found.difference.high
    assert (found.decisions, found.units, found.held) == (4000, 4000, sum(log["control"]))
    assert sum(part.decisions for part in found.parts) == 4000
    assert found.verdict == "more with the bandit"
    assert "more with the bandit" in str(found)


def test_weights_have_the_mean_one_and_of_a_subject_are_those_of_all_it_did():
    rng = np.random.default_rng(2)
    h, q, b = 0.3, np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.8, 0.1])
    control = rng.random(20_000) < h
    chosen = np.array([rng.choice(3, 2, p=b if c else q) for c in control])
    p = h * b + (1 - h) * q
    flat, groups = chosen.ravel(), np.repeat(np.arange(20_000), 2)
    share = np.full(40_000, h)
    found = weights(share, b[flat], p[flat], groups)
    both = np.stack([q[chosen].prod(axis=1), b[chosen].prod(axis=1)], axis=1)
    expected = both / (h * both[:, 1:] + (1 - h) * both[:, :1])
    np.testing.assert_allclose(found[::2], expected, rtol=1e-6)
    np.testing.assert_allclose(found.mean(axis=0), 1.0, atol=0.02)
    alone = weights(share, b[flat], p[flat], np.arange(40_000))
    np.testing.assert_allclose(alone, np.stack([q[flat], b[flat]], 1) / p[flat, None], rtol=1e-6)
    assert found[:, 1].var() < (control / h).var()  # sharper than by the group alone


def test_lift_waits_until_there_is_something_to_compare():
    bandit = beta()
    assert bandit.lift().difference is None
    bandit.learn(bandit.choose().id, 1.0)
    assert (bandit.lift().decisions, bandit.lift().held) == (0, 0)
    bandit.configure(holdback=0.5)
    for _ in range(20):
        bandit.learn(bandit.choose().id, 0.0)
    found = bandit.lift()
    assert found.decisions == 20
    assert found.ratio is None
    assert found.difference.low < 0 < found.difference.high


def rule(context, actions):
    return max(actions, key=lambda name: actions[name]["price"])


@pytest.mark.parametrize(
    ("baseline", "chances"),
    [
        ("first", [0, 1, 0]),
        ("uniform", [0, 0.5, 0.5]),
        ({"action": "c"}, [0, 0, 1]),
        (rule, [0, 0, 1]),
    ],
)
def test_every_baseline_chooses_among_what_is_available(baseline, chances):
    bandit = es.Bandit(holdback=0.5, baseline=baseline)
    offer = {"a": {"price": 9}, "b": {"price": 1}, "c": {"price": 3}}
    made = [bandit.choose(offer, available=["b", "c"]) for _ in range(60)]
    log = bandit.log()
    chosen = [index for index, held in zip(log["index"], log["control"], strict=True) if held]
    assert {*chosen} == {*np.flatnonzero(chances).tolist()}
    assert log["baseline"] == [chances[d.index] for d in made]


def test_a_baseline_that_is_not_on_offer_is_said_and_the_first_taken(recwarn):
    bandit = es.Bandit(holdback=0.9, baseline={"action": "tea"})
    made = [bandit.choose({"milk": {"x": 1.0}, "juice": {"x": 2.0}}) for _ in range(20)]
    assert {one.action for one in made if one.control} == {"milk"}
    said = [str(w.message) for w in recwarn]
    assert said == ["of the baseline 'tea' is not on offer: the first on offer is taken"]


def test_a_rule_that_fails_keeps_nobody_from_deciding(recwarn):
    bandit = beta(holdback=0.9, baseline=lambda context, actions: 1 / 0)
    made = [bandit.choose() for _ in range(10)]
    assert {one.action for one in made if one.control} == {"tea"}
    assert "ZeroDivisionError" in str(recwarn.pop().message)


def test_a_rule_is_to_be_given_again(tmp_path):
    es.Bandit.open(tmp_path / "b", holdback=0.5, baseline=rule).close()
    with pytest.raises(ValueError, match="give the same function as baseline again"):
        es.Bandit.open(tmp_path / "b")
    with es.Bandit.open(tmp_path / "b", baseline=rule) as bandit:
        assert bandit.choose({"a": {"price": 1}, "b": {"price": 2}}).control is not None


def test_the_frozen_agent_decides_as_it_did_on_that_day(tmp_path):
    rng, context = np.random.default_rng(3), None
    with es.Bandit.open(tmp_path / "b", LINEAR) as bandit:
        for _ in range(30):
            one = bandit.choose(ROWS)
            bandit.learn(one.id, float(ROWS[one.index] @ [1.0, -1.0] + 0.1 * rng.normal()))
        then = datetime.datetime.now(datetime.UTC)
        expected = bandit.predict(ROWS).probabilities
        state = leaves(bandit.state)
    with es.Bandit.open(tmp_path / "b", LINEAR, holdback=0.5, baseline="frozen") as bandit:
        assert leaves(bandit.state) == state
        shares = bandit._divider._baseline(30, bandit._replica.inputs.read(ROWS, context, None))
        np.testing.assert_allclose(shares, expected)
        for _ in range(30):  # the world turns round
            one = bandit.choose(ROWS)
            bandit.learn(one.id, float(ROWS[one.index] @ [-1.0, 1.0] + 0.1 * rng.normal()))
    with es.Bandit.open(tmp_path / "b", LINEAR) as bandit:  # and it stays what it was
        offer = bandit._replica.inputs.read(ROWS, context, None)
        np.testing.assert_allclose(bandit._divider._baseline(30, offer), expected)
        bandit.configure(baseline={"frozen": then.isoformat()})
        np.testing.assert_allclose(bandit._divider._baseline(30, offer), expected)


def test_whoever_is_erased_is_not_known_to_the_frozen_agent_either(tmp_path):
    def learned(bandit):
        for n in range(20):
            one = bandit.choose(ROWS, subject=f"u{n % 2}")
            bandit.learn(one.id, float(n % 2) * 10)

    with es.Bandit.open(tmp_path / "b", LINEAR) as bandit:
        learned(bandit)
        bandit.configure(holdback=0.5, baseline="frozen")
        offer = bandit._replica.inputs.read(ROWS, None, None)
        before = bandit._divider._baseline(99, offer)
        assert (tmp_path / "b" / "frozen-20.safetensors").exists()
        bandit.erase("u1", keep=True)
        bandit.erase("u1")
        assert (tmp_path / "b" / "frozen-20.safetensors").exists()  # nobody was left to be erased
        bandit.erase("u0")
        assert not (tmp_path / "b" / "frozen-20.safetensors").exists()
        assert (bandit._divider._baseline(99, offer) != before).any()


def test_decisions_of_another_baseline_are_no_part_of_the_control_group():
    bandit = beta(holdback=0.5, baseline={"action": "tea"}, floor=0.1)
    made = bandit.choose_many(contexts=[None] * 100)
    bandit.learn_many([(one.id, 1.0) for one in made])
    bandit.configure(baseline={"action": "milk"})
    assert bandit.lift().decisions == 0
    made = bandit.choose_many(contexts=[None] * 80)
    bandit.learn_many([(one.id, float(one.action == "milk")) for one in made])
    bandit.configure(holdback=0.4)  # the baseline stays what it is
    made = bandit.choose_many(contexts=[None] * 20)
    bandit.learn_many([(one.id, float(one.action == "milk")) for one in made])
    assert bandit.lift().decisions == 100
    assert bandit.lift().control.value == pytest.approx(1.0)
    assert bandit.lift(since=0).decisions == 100
    bandit.configure(baseline={"action": "tea"})
    assert bandit.lift().decisions == 0


def test_every_change_is_an_event_with_who_made_it(tmp_path):
    with es.Bandit.open(tmp_path / "b", LINEAR) as bandit:
        for n in range(4):
            bandit.learn(bandit.choose(ROWS, subject=f"u{n}").id, 1.0)
        for name in ("bold", "calm"):
            bandit.shadow(name, es.EnsembleSampling(es.Linear(2, noise_std=0.5), 4), who="ann")
        bandit.shadow("calm", es.EnsembleSampling(es.Linear(2, noise_std=0.5), 4))  # it is one
        bandit.dismiss("bold", who="bob")
        bandit.promote("calm")
        bandit.erase("u1", who="eve")
        bandit.erase("nobody", who="eve")
        bandit.configure(reward={}, holdback=0.5, who="dan")
        assert bandit.retain(0, who="dan") == 4
        found = [(one.name, one.value, one.who) for one in bandit.changes()]
        assert bandit.changes()[1].decision == 4
    assert found[:5] == [
        ("shadows", {"began": "bold"}, "ann"),
        ("shadows", {"began": "calm"}, "ann"),
        ("shadows", {"dismissed": "bold"}, "bob"),
        ("shadows", {"promoted": "calm"}, None),
        ("removed", {"erased": 1, "known": False}, "eve"),
    ]
    assert [one[0] for one in found[5:]] == ["control", "removed"]
    assert found[6][1:] == ({"retained": 0.0, "gone": 4}, "dan")
    assert "u1" not in repr(found)
