"""What a bandit does for whom, by plain counting."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.lift import Compared
from ensemble_sampling.decide.segments import _apart

OFFER = {"a": {"kind": "a"}, "b": {"kind": "b"}}


@pytest.fixture(scope="module")
def shop():
    """Phones gain by the second action, desks lose by it, and the bandit has no idea."""
    rng = np.random.default_rng(0)
    bandit = es.Bandit(es.Uniform(), hasher=es.Hasher(8), holdback=0.3)
    devices = rng.choice(["phone", "desk", "tv"], 3000, p=[0.5, 0.4, 0.1]).tolist()
    contexts = [
        {"device": device, "age": float(age)} if device != "tv" else {"age": 20.0}
        for device, age in zip(devices, rng.uniform(18, 80, 3000), strict=True)
    ]
    made = bandit.choose_many([OFFER] * 3000, contexts=contexts)
    gain = {"phone": 3.0, "desk": -3.0, "tv": 0.0}
    worth = [gain[d] * m.index + rng.normal() for d, m in zip(devices, made, strict=True)]
    bandit.learn_many([(m.id, float(y)) for m, y in zip(made[:2900], worth, strict=False)])
    return bandit, np.array(devices), made, np.array(worth)


def test_segments_are_counted_and_told_apart(shop):
    bandit, devices, made, worth = shop
    found = bandit.segments("device")
    assert [part.name for part in found.parts] == ["phone", "desk", "not said"]
    assert (found.most, found.least) == ("phone", "desk")
    phone, mine = found.parts[0], devices == "phone"
    assert phone.decisions == mine.sum()
    assert phone.outcomes == mine[:2900].sum()
    assert phone.reward.value == pytest.approx(worth[:2900][mine[:2900]].mean())
    share = np.mean([m.action == "a" for m, own in zip(made, mine, strict=True) if own])
    assert phone.actions == pytest.approx({"a": share, "b": 1 - share})
    assert phone.lift.difference.low < 1.5 < phone.lift.difference.high
    assert phone.lift.decisions == phone.outcomes
    assert found.parts[2].lift.verdict == "not told apart yet"
    text = str(found)
    assert text.startswith("device: phone gains most; desk gains least")


def test_numbers_are_told_in_ranges(shop):
    bandit, *_ = shop
    found = bandit.segments("age")
    assert len(found.parts) == 4
    assert sum(part.decisions for part in found.parts) == 3000
    assert all(" to " in part.name for part in found.parts)
    assert found.most is None


def test_intervals_are_wider_the_more_segments_there_are(shop):
    bandit, devices, _, worth = shop
    one = es.Bandit(es.Uniform(), hasher=es.Hasher(8))
    mine = devices[:2900] == "phone"
    ids = [one.choose(OFFER, context={"device": "phone"}).id for _ in range(mine.sum())]
    one.learn_many(list(zip(ids, worth[:2900][mine].tolist(), strict=True)))
    alone, among = one.segments("device").parts[0], bandit.segments("device").parts[0]
    assert alone.lift is None
    assert alone.reward.value == pytest.approx(among.reward.value)
    assert among.reward.high - among.reward.low > alone.reward.high - alone.reward.low


def test_a_key_that_nobody_says_is_refused(shop):
    with pytest.raises(ValueError, match="no context has 'colour'"):
        shop[0].segments("colour")
    with pytest.raises(ValueError, match="segments are by a key of contexts in words"):
        es.Bandit().segments("device")


def test_many_values_are_few_segments():
    bandit = es.Bandit(es.Uniform(), hasher=es.Hasher(8))
    for n in range(60):
        bandit.choose(OFFER, context={"city": f"c{n % 30 if n % 2 else 0}"})
    parts = bandit.segments("city").parts
    assert len(parts) == 11
    assert sum(part.decisions for part in parts) == 60
    assert {part.name for part in parts} >= {"c0", "others"}


def test_that_a_segment_gains_most_is_wrong_in_few_histories():
    """Six segments that gain alike, and one interval of six beyond the point estimate of all would
    often be found by chance."""
    rng, wrong = np.random.default_rng(3), 0
    names = [f"s{n}" for n in range(6)]
    for _ in range(300):
        keys = rng.choice(names, 600)
        control = rng.random(600) < 0.3
        first, second = (control / 0.3, ~control / 0.7)
        made = Compared(
            np.zeros(600), control, np.stack([second, first], 1), np.arange(600),
            rng.normal(size=600) + ~control, keys.astype(object),
        )  # fmt: skip
        wrong += any(_apart(made, keys == name, 0.5 / 12) for name in names)
    assert wrong <= 0.5 * 300 / 10  # at a level of 0.5 in all, to see anything


def test_rewards_of_subjects_who_come_again_are_one_piece_of_evidence():
    widths = []
    for subjects in ([None] * 400, [f"u{n % 20}" for n in range(400)]):
        bandit = es.Bandit(es.Uniform(), hasher=es.Hasher(8))
        contexts = [{"device": "phone"}] * 400
        made = bandit.choose_many([OFFER] * 400, contexts=contexts, subjects=subjects)
        bandit.learn_many([(one.id, float(n % 20)) for n, one in enumerate(made)])
        (part,) = bandit.segments("device").parts
        widths.append(part.reward.high - part.reward.low)
    assert widths[1] > 3 * widths[0]
