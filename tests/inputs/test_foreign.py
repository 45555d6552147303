"""Decisions made elsewhere are learned as if one by one, recorded as such, and replayed."""

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import polars as pl
import pytest
from states import equal

import ensemble_sampling as es
from ensemble_sampling.files import Damaged
from ensemble_sampling.inputs.features import HASHER
from ensemble_sampling.ledger.ledger import Ledger

AGENT = es.EnsembleSampling(es.Linear(dim=3, noise_std=0.5), members=4)
ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
TABLE = {
    "a": ROWS[:, 0],
    "b": ROWS[:, 1],
    "c": ROWS[:, 2],
    "what": [f"n{n % 3}" for n in range(40)],
    "sale": np.sin(np.arange(40)),
    "p": np.linspace(0.1, 1.0, 40),
}
FRAMES = {"columns": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame}
WHICH = {"features": ["a", "b", "c"], "action": "what", "outcome": "sale", "propensity": "p"}


def one_by_one(bandit, rows=ROWS):
    """Choose from one action at a time, whose features come from a frame, and learn."""
    for n, row in enumerate(rows):
        frame = pd.DataFrame([row], columns=["a", "b", "c"], index=[TABLE["what"][n]])
        bandit.learn(bandit.choose(frame).id, float(TABLE["sale"][n]))
    return bandit


@pytest.mark.parametrize("kind", FRAMES)
def test_a_log_is_learned_as_if_one_by_one(kind, tmp_path):
    expected = one_by_one(es.Bandit(AGENT))
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert bandit.learn_from(FRAMES[kind](TABLE), **WHICH) == 40
        assert equal(bandit.state, expected.state)
        log = bandit.log()
        offer = pd.DataFrame(ROWS[:4], columns=["a", "b", "c"])
        assert bandit.choose(offer).index == expected.choose(offer).index
    assert log["features"] == [dict(zip("abc", row, strict=True)) for row in ROWS.tolist()]
    assert log["action"] == TABLE["what"]
    assert log["foreign"] == [True] * 40
    assert log["probability"] == TABLE["p"].astype(np.float32).tolist()
    assert log["probabilities"] == log["offer"] == [None] * 40
    assert log["outcome"] == log["reward"] == TABLE["sale"].tolist()
    (tmp_path / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path, AGENT) as bandit:  # replayed like the rest
        assert equal(bandit.state, expected.state)
        with pytest.raises(ValueError, match="this bandit's columns have names"):
            bandit.choose(ROWS[:4])
        assert bandit.correct(log["id"][3], 9.0)


def test_it_goes_on_from_what_was_decided_before_and_after():
    bandit, expected = es.Bandit(AGENT), es.Bandit(AGENT)
    for one in (bandit, expected):
        one.learn(one.choose(ROWS[:1]).id, 1.0)
    bandit.learn_from({"x": list(ROWS[1:9]), "y": [0] * 4 + [1] * 4}, features="x", outcome="y")
    for n, row in enumerate(ROWS[1:9]):
        expected.learn(expected.choose(row[None]).id, float(n >= 4))
    for one in (bandit, expected):
        one.learn(one.choose(ROWS[:4]).id, 2.0)
    assert equal(bandit.state, expected.state)
    log = bandit.log()
    assert log["foreign"] == [False] + [True] * 8 + [False]
    assert log["probability"][1] is None
    assert log["offer"][9] == ROWS[:4].tolist()
    assert bandit.summary().decisions == 10


@pytest.mark.parametrize("by", ["features", "context"])
def test_fixed_actions_are_found_by_name(by):
    agent = es.EnsembleSampling(es.PerAction(es.Linear(2, noise_std=0.5), 3), members=3)
    bandit = es.Bandit(agent, actions=["n0", "n1", "n2"])
    bandit.learn_from(TABLE, **{by: ["a", "b"]}, action="what", outcome="sale", propensity="p")
    log = bandit.log()
    assert log["index"] == [n % 3 for n in range(40)]
    expected = es.Bandit(agent, actions=["n0", "n1", "n2"])
    contexts = [dict(zip("ab", row[:2].tolist(), strict=True)) for row in ROWS]
    names = [[name] for name in TABLE["what"]]
    decisions = expected.choose_many(contexts=contexts, available=names)
    assert [d.action for d in decisions] == TABLE["what"]
    expected.learn_many([(d.id, y) for d, y in zip(decisions, TABLE["sale"], strict=True)])
    assert equal(bandit.state, expected.state)
    with pytest.raises(ValueError, match=r"40 of 40 rows with an action that is none of \['n0'"):
        bandit.learn_from({**TABLE, "what": [1] * 40}, context=["a", "b"], action="what",
                          outcome="sale")  # fmt: skip
    with pytest.raises(ValueError, match="say which column names the chosen one"):
        bandit.learn_from(TABLE, context=["a", "b"], outcome="sale")


def test_arms_without_features_and_actions_by_number():
    bandit = es.Bandit(es.EnsembleSampling(es.IndependentArms(3, noise_std=0.5), members=3))
    bandit.learn_from({"i": [0, 1, 2, 1], "y": [0.0, 1.0, 0.0, 1.0]}, action="i", outcome="y")
    assert bandit.log()["index"] == [0, 1, 2, 1]
    assert bandit.choose().index in (0, 1, 2)


def test_the_default_agent_takes_a_log_of_words_at_once(tmp_path):
    frame = pd.DataFrame(
        {"city": ["x", "y"] * 30, "dish": ["tea", "soup", "tea"] * 20, "y": np.arange(60.0) % 2}
    )
    with es.Bandit.open(tmp_path) as bandit:
        bandit.learn_from(frame, features=["dish"], context=["city"], outcome="y")
        state = bandit.state
        bandit.choose([{"dish": "tea"}, {"dish": "soup"}], context={"city": "x"})
    with es.Bandit.open(tmp_path) as bandit:
        assert equal(bandit.state, state)
        assert bandit._replica.inputs.hasher == HASHER


def test_another_bandits_log_can_be_learned():
    one = es.Bandit(AGENT)
    for n in range(20):
        one.learn(one.choose(ROWS[n : n + 3]).id, float(n % 2))
    other = es.Bandit(AGENT)
    log = one.log()
    other.learn_from(log, features="features", outcome="outcome", propensity="probability")
    assert equal(one.state, other.state)
    assert other.log()["probability"] == log["probability"]


BAD = {
    "sale": ([None, np.nan, *TABLE["sale"][2:]], r"2 of 40 rows without an outcome \(rows 0, 1\)"),
    "p": (
        [0.0, 1.5, None, *TABLE["p"][3:]],
        r"1 of 40 rows without a propensity \(rows 2\); 2 of 40 rows with a propensity that is "
        r"not above 0 and at most 1 \(rows 0, 1\)",
    ),
    "what": ([None] * 7 + TABLE["what"][7:], r"7 of 40 rows without an action \(rows 0, .*, ...\)"),
}


@pytest.mark.parametrize("column", BAD)
def test_bad_rows_are_counted_and_nothing_is_learned(column):
    values, told = BAD[column]
    bandit = es.Bandit(AGENT)
    with pytest.raises(ValueError, match="nothing was learned: .*" + told):
        bandit.learn_from({**TABLE, column: values}, **WHICH)
    assert bandit.summary().decisions == 0
    bandit.choose(np.eye(3))  # columns without names are still free


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"outcome": "sales"}, ValueError, "no column 'sales' for the outcome, but"),
        ({"features": ["a", "z"]}, ValueError, "no column 'z' for the features"),
        ({"features": ["a", "b"]}, ValueError, "have 3 features, got 2"),
        ({"features": []}, TypeError, "features must name a column or several"),
        ({"features": None}, ValueError, "give the features"),
        ({"features": ["a", "b", "what"]}, TypeError, "numbers of one width"),
        ({"outcome": 3}, TypeError, "outcome must be the name of a column"),
        ({"outcome": "what"}, ValueError, "40 of 40 rows with an outcome that is not a finite"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, kind, told):
    bandit = es.Bandit(AGENT)
    with pytest.raises(kind, match=told):
        bandit.learn_from(TABLE, **{**WHICH, **change})
    assert bandit.summary().decisions == 0


def test_tables_that_are_none_are_refused():
    bandit = es.Bandit(AGENT)
    with pytest.raises(TypeError, match="a data frame or as a dictionary of columns"):
        bandit.learn_from([1, 2], **WHICH)
    with pytest.raises(ValueError, match="columns are empty"):
        bandit.learn_from({name: [] for name in TABLE}, **WHICH)
    with pytest.raises(ValueError, match=r"of one length, got \[39, 40\]"):
        bandit.learn_from({**TABLE, "p": TABLE["p"][1:]}, **WHICH)


def test_several_choices_take_what_is_available():
    one, many = es.Bandit(AGENT, seed=2), es.Bandit(AGENT, seed=2)
    offers = [ROWS[n : n + 4] for n in range(6)]
    free = [None, [True, False, True, False], *([[False, True, True, True]] * 4)]
    single = [one.choose(o, available=f) for o, f in zip(offers, free, strict=True)]
    several = many.choose_many(offers, available=free)
    assert [d.index for d in single] == [d.index for d in several]
    assert all(np.array_equal(a.probabilities, b.probabilities)
               for a, b in zip(single, several, strict=True))  # fmt: skip
    with pytest.raises(ValueError, match="6 decisions, but 2 entries in available"):
        many.choose_many(offers, available=[None] * 2)
    with pytest.raises(TypeError, match="available must be a list, one entry per decision"):
        many.choose_many(offers, available="all")


def test_an_import_is_all_there_or_not_at_all(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        for table in ("imports", "outcomes"):
            no = f"CREATE TEMP TRIGGER no BEFORE INSERT ON {table}"
            bandit._ledger._database.execute(f"{no} BEGIN SELECT RAISE(ABORT, 'no'); END")
            with pytest.raises(OSError, match="nothing was recorded"):
                bandit.learn_from(TABLE, **WHICH)
            bandit._ledger._database.execute("DROP TRIGGER no")
            assert (bandit.summary().decisions, bandit.summary().outcomes) == (0, 0)
        bandit.learn_from(TABLE, **WHICH)
        assert bandit.log()["foreign"] == [True] * 40
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE imports SET count = 39")
    with pytest.raises(Damaged, match="row 0 of the table imports"), closing(Ledger(tmp_path)) as b:
        b.table()
