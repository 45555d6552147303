"""What else comes of decisions is kept, compared, and kept within bounds."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import datetime

import numpy as np
import pytest

import ensemble_sampling as es

ARMS = ["tea", "coffee"]


def beta(**given):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(2)))
    return es.Bandit(agent, actions=ARMS, **given)


def decided_and_returned(bandit):
    for _ in range(200):
        one = bandit.choose()
        bandit.observe(one.id, {"returned": one.index})


def test_metrics_are_kept_compared_and_replaced():
    rng, bandit = np.random.default_rng(0), beta(holdback=0.4)
    made = bandit.choose_many(contexts=[None] * 400)
    sent = {}
    for one in made[:300]:
        value = float(one.index + rng.normal())
        assert bandit.observe(one.id, {"margin": value, "returned": one.index})
        assert not bandit.observe(one.id, {"margin": value})
        sent[one.id] = value
    assert bandit.observe(made[0], {"margin": 9.0})  # the decision or its id
    sent[made[0].id] = 9.0
    margin, returned = bandit.metrics()
    assert (margin.name, margin.decisions, returned.decisions) == ("margin", 300, 300)
    mine = [sent[d.id] for d in made[:300] if not d.control]
    assert margin.mean.value == pytest.approx(np.mean(mine))
    assert margin.mean.low < np.mean(mine) < margin.mean.high
    assert margin.lift == bandit.lift("margin")
    assert margin.lift.decisions == 300
    assert bandit.lift("returned").control.value == 0.0  # which always takes the first
    assert "margin" in str(margin)
    assert bandit.lift().decisions == 0  # no outcome came


def test_a_broken_bound_is_said_and_the_baseline_decides_until_somebody_says_go_on():
    bandit = beta(holdback=0.1)
    bandit.configure(guard={"returned": ("<=", 0.2)}, fallback=True, who="ann")
    said = "'returned' is .* and should be <= 0.2: the baseline decides"
    with pytest.warns(UserWarning, match=said):
        decided_and_returned(bandit)
    rest = [bandit.choose() for _ in range(20)]
    assert {(one.action, one.control, one.probability) for one in rest} == {("tea", True, 1.0)}
    assert any("`resume`" in said for said in bandit.summary().warnings)
    before = bandit.lift("returned").decisions
    bandit.observe(rest[0].id, {"returned": 0})
    assert bandit.lift("returned").decisions == before  # nothing is compared meanwhile
    assert bandit.resume("bob")
    assert not bandit.resume()
    assert {bandit.choose().action for _ in range(60)} == {"tea", "coffee"}
    who = [(c.who, c.value["halted"]) for c in bandit._ledger.changes()]
    assert who == [(None, None), ("ann", None), ("guardrail", "returned"), ("bob", None)]


def test_a_bound_alone_warns_and_changes_nothing():
    bandit = beta()
    bandit.configure(guard={"returned": ("<=", 0.2), "margin": (">=", 5.0)})
    with pytest.warns(UserWarning, match="'returned' is .* look at what it chooses"):
        decided_and_returned(bandit)
    assert bandit.choose().control is None
    said = " ".join(bandit.summary().warnings)
    assert "'margin' has a bound, but no decision has a value of it" in said
    assert bandit.metrics()[1].broken


def test_a_bound_that_holds_is_never_said_to_be_broken(recwarn):
    rng = np.random.default_rng(1)
    for _ in range(20):
        bandit = beta()
        bandit.configure(guard={"returned": ("<=", 0.1)}, fallback=True)
        for one in bandit.choose_many(contexts=[None] * 200):
            bandit.observe(one.id, {"returned": float(rng.random() < 0.1)})
    assert not recwarn.list


def test_metrics_outlive_a_restart_and_go_with_their_subject(tmp_path):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(2)))
    with es.Bandit.open(tmp_path / "b", agent, actions=ARMS) as bandit:
        ann, bob = (bandit.choose(subject=name) for name in ("ann", "bob"))
        bandit.observe(ann.id, {"margin": 4321.5})
        bandit.observe(bob.id, {"margin": 2.0})
        bandit.backup(tmp_path / "copy")
    with es.Bandit.open(tmp_path / "b", agent, actions=ARMS) as bandit:
        assert bandit.metrics()[0].mean.value == pytest.approx((4321.5 + 2.0) / 2)
        bandit.erase("ann")
        assert bandit.metrics()[0].mean.value == 2.0
        assert bandit._ledger.metrics(0) == {"": None}
        with pytest.raises(ValueError, match="was erased"):
            bandit.observe(ann.id, {"margin": 1.0})
        assert bandit.retain(0) == 2
        assert bandit.metrics() == ()


@pytest.mark.parametrize("subjects", [True, False])
def test_a_bound_counts_subjects_who_come_again_once(subjects, recwarn):
    """Ten people, of whom six always send things back, are no 500 of whom 300 do."""
    bandit = beta()
    bandit.configure(guard={"returned": ("<=", 0.35)}, fallback=True)
    names = [f"u{n % 10}" if subjects else None for n in range(500)]
    made = bandit.choose_many(contexts=[None] * 500, subjects=names)
    for n, one in enumerate(made):
        bandit.observe(one.id, {"returned": float(n % 10 < 6)})
    (found,) = bandit.metrics()
    assert found.broken == bool(recwarn.list) == (not subjects)
    assert found.mean.value == pytest.approx(0.6)
    if subjects:  # as wide as that of ten decisions, about
        assert found.mean.high - found.mean.low > 0.5


def test_metrics_and_lift_are_of_decisions_since(monkeypatch):
    rng, bandit, now = np.random.default_rng(0), beta(holdback=0.5), [1e9]
    bandit._ledger.clock = lambda: now[0]
    for day in range(4):
        now[0] = 1e9 + 86400 * day
        made = bandit.choose_many(contexts=[None] * 50)
        bandit.learn_many([(one.id, float(rng.random())) for one in made])
        for one in made:
            bandit.observe(one.id, {"margin": day})
    late = 1e9 + 2 * 86400
    assert bandit.lift(since=late).decisions == 100
    assert bandit.lift("margin", since=datetime.datetime.fromtimestamp(late)).bandit.value > 2
    assert bandit.metrics(since=late)[0].decisions == 100
    assert bandit.metrics(since=late)[0].mean.value > bandit.metrics()[0].mean.value
    assert bandit.lift(since=datetime.timedelta(days=1)).decisions == 0
    assert len(bandit.lift(since=late, daily=True).parts) == 2
    with pytest.raises(ValueError, match="since"):
        bandit.lift(since=-1.0)
