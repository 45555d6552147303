"""What is wrong with the data is said in a sentence; where nothing is, nothing is said."""

import re

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide import health
from ensemble_sampling.decide.control import uniform
from ensemble_sampling.ledger import ledger as ledger_module
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow
from ensemble_sampling.ledger.rows import Held

COUNT = 1000


def beta(**given):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(2)))
    return es.Bandit(agent, actions=["a", "b"], **given)


def made(
    monkeypatch,
    place,
    delay=60.0,
    came=lambda n, control: True,
    share=0.1,
    chances=(0.5, 0.5),
    **about,
):
    """A ledger of decisions made every minute, a share of them left to the baseline."""
    rng, ledger = np.random.default_rng(0), Ledger(place)
    control = rng.random(COUNT) < share
    shares, none = np.array(chances, np.float32), np.zeros(0, np.float32)
    rows = [
        DecisionRow(
            n, 1e9 + 60 * n, 0, None, none, shares, held=Held(bool(control[n]), 0.1, 1.0), **about
        )
        for n in range(COUNT)
    ]
    ledger.add_decisions(rows)
    for n in range(COUNT):
        if came(n, control[n]):
            monkeypatch.setattr(ledger_module.time, "time", lambda n=n: 1e9 + 60 * n + delay)
            ledger.add_outcomes([OutcomeRow(n, 1.0, 1.0)])
    return ledger


CASES = {
    "nothing": ({}, None),
    "split": ({"share": 0.2}, "were left to the baseline, and 0.1 of them should be"),
    "arrival": (
        {"came": lambda n, control: control or n % 3 == 0},
        "outcomes come more often in one group",
    ),
    "few": ({"came": lambda n, control: n % 25 == 0}, "outcomes came of 4.0% of the .* last"),
    "late": ({"delay": 30_000.0}, "half of the outcomes come later than 8.33 hours after"),
    "chances": ({"chances": (1.0, 0.0)}, "in 100% of the last 500 decisions some action had no"),
    "seldom": ({"chances": (0.9995, 0.0005)}, "some action had less than 0.1%, so that the log"),
}


@pytest.mark.parametrize("kind", CASES)
def test_each_fault_is_said_and_no_other(kind, monkeypatch, tmp_path):
    about, said = CASES[kind]
    kind = "chances" if kind == "seldom" else kind
    place = tmp_path if kind == "chances" else None  # one in memory is not kept to be asked
    found = health.found(made(monkeypatch, place, **about))
    assert list(found) == ([] if said is None else [kind])
    for text in found.values():
        assert said is not None and re.search(said, text)  # noqa: PT018


def test_actions_that_are_never_on_offer_and_a_baseline_that_is_not():
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(3)))
    bandit = es.Bandit(
        agent, actions=["a", "b", "c"], holdback=0.2, baseline={"action": "c"}, floor=0.1
    )
    with pytest.warns(UserWarning, match="'c' is not on offer"):
        bandit.choose_many(contexts=[None] * 600, available=[["a", "b"]] * 600)
    first, second = bandit.summary().warnings
    assert first.startswith("c of 3 actions could not be chosen in any of the last 600 decisions")
    assert "the baseline 'c' was not on offer in" in second
    bandit.choose()
    assert not any("could not be chosen" in said for said in bandit.summary().warnings)


def test_nothing_is_said_of_nothing():
    assert health.found(Ledger(None)) == {}


def test_kinds_are_all_there_are():
    assert {*CASES} - {"nothing", "seldom"} < {*health.KINDS}


def test_a_baseline_that_took_the_place_of_another_is_not_said_to_have_been_away():
    bandit = beta(holdback=0.5, baseline={"action": "a"})
    bandit.choose_many(contexts=[None] * 100)
    bandit.configure(baseline={"action": "b"})
    assert "baseline" not in health.found(bandit._ledger)
    bandit.choose_many(contexts=[None] * 100)
    assert "baseline" not in health.found(bandit._ledger)
    with pytest.warns(UserWarning, match="'b' is not on offer"):
        bandit.choose_many(contexts=[None] * 20, available=[["a"]] * 20)
    assert "'b' was not on offer in" in health.found(bandit._ledger)["baseline"]


def test_subjects_who_come_again_after_a_change_of_the_share_are_no_new_evidence():
    """By luck, too many of these subjects are left to the baseline, at every share: counted at each
    of them, that would be evidence against the shares."""
    names = [f"u{n}" for n in range(20_000)]
    lucky = [name for name in names if uniform("0", "subject", name) < 0.1][:130]
    others = [name for name in names if uniform("0", "subject", name) >= 0.25][:870]
    bandit = beta(holdback=0.1)
    for share in (0.1, 0.102, 0.104, 0.106, 0.108, 0.11):
        bandit.configure(holdback=share)
        made = bandit.choose_many(contexts=[None] * 1000, subjects=lucky + others)
        bandit.learn_many([(one.id, 1.0) for one in made])
    assert not {"split", "arrival"} & {*health.found(bandit._ledger)}
    _, held, units, _ = health._counted(bandit._ledger, "")
    assert (held, units) == (130, 1000)
    made = bandit.choose_many(contexts=[None] * 300, subjects=[f"new{n}" for n in range(300)])
    fresh = health._counted(bandit._ledger, "")
    assert fresh[1:3] == (130 + sum(bool(one.control) for one in made), 1300)


def test_that_actions_have_no_chance_is_said_soon(tmp_path):
    agent = es.ThompsonSampling(es.Exact(es.IndependentArms(2)))
    with es.Bandit.open(tmp_path / "b", es.Greedy(es.Linear(2, noise_std=1.0))) as bandit:
        bandit.choose_many([np.eye(2)] * 99)
        assert "chances" not in health.found(bandit._ledger)
        bandit.learn(bandit.choose(np.eye(2)).id, 1.0)
        bandit.choose_many([np.eye(2)] * 120)
        assert "floor=0.02" in health.found(bandit._ledger)["chances"]
    with es.Bandit.open(tmp_path / "c", agent, actions=["a", "b"]) as bandit:
        bandit.choose_many(contexts=[None] * 120)
        assert "chances" not in health.found(bandit._ledger)
