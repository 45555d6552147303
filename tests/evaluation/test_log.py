"""Logs: what may be given, from where they are read, and how what is wrong is said."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ensemble_sampling as es
from ensemble_sampling.evaluation import log as logs
from ensemble_sampling.evaluation import sources
from ensemble_sampling.ledger.export import export

ARMS = es.EpsilonGreedy(es.IndependentArms(3), 0.2)
A = {"chosen": [0, 1], "outcome": [1.0, 2.0], "propensity": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensity": [0.0, 1.5]}, "at most 1: 1 of 2 are 0 or below"),
        ({"propensity": [1.5, 0.5]}, "at most 1: 1 of 2 are above 1"),
        ({"propensity": [np.nan, 0.5]}, "1 of 2 are missing"),
        ({"propensity": None}, "give the propensity of every chosen action"),
        ({"outcome": [np.nan, None]}, "none of the 2 decisions has an outcome"),
        ({"outcome": [np.inf, 1.0]}, "outcomes must be finite: 1 of 2"),
        ({"outcome": [1.0]}, "2 of chosen, 1 of outcome"),
        ({"outcome": [[1.0], [2.0]]}, "outcome must be one number per decision, got shape (2, 1)"),
        ({"outcome": ["a", "b"]}, "outcome must be one number per decision: could not convert"),
        (
            {**dict.fromkeys(A, ()), "chosen": np.arange(0)},
            "a log must hold at least one decision, got none",
        ),
        ({"chosen": [0, -1]}, "between 0 and 0: 1 of 2 are not, the first is -1"),
        ({"chosen": [0, 2], "actions": ["a", "b"]}, "between 0 and 1: 1 of 2 are not"),
        ({"chosen": ["a", "b"]}, "chosen must be positions, or names with `actions=[...]`"),
        ({"chosen": ["a", "z"], "actions": ["a", "b"]}, "not among `actions`: 'z' (1 times)"),
        ({"chosen": [[0], [1]]}, "chosen must be one action per decision, got shape (2, 1)"),
        ({"propensities": [[0.5, 0.4]] * 2}, "sum to 1: 2 of 2 do not, the first is decision 0"),
        ({"propensities": [[0.5, 0.5], [1.5, -0.5]]}, "the first is decision 1: [1.5, -0.5]"),
        (
            {"propensities": [[0.5, 0.5], [0.9, 0.1]]},
            "1 of 2 do not, the first is decision 1, whose propensity is 0.5 and whose "
            "propensities say 0.1 of the chosen action 1",
        ),
        (
            {"chosen": [0, 0], "propensities": [[0.5, 0.5]] * 2, "available": [[1, 1], [1, 0]]},
            "propensities above 0 of actions not available in 1 of 2 decisions",
        ),
        ({"actions": ["a", "a"]}, "must differ, got 'a' more than once"),
        ({"available": [[True, False]] * 2}, "1 of 2 chose what was not available"),
        ({"context": [1.0, 2.0]}, "context must be numbers of shape (n, d)"),
        ({"context": [[1.0]] * 2, "features": [[1.0]] * 2}, "the context they share, not both"),
        ({"features": np.zeros((2, 3, 1)), "actions": ["a", "b"]}, "2 in actions, 3 in features"),
        ({"features": np.zeros((3, 2, 1))}, "2 of outcome, 2 of propensity, 3 of features"),
    ],
    ids=str,
)
def test_a_log_says_what_is_wrong_by_name_and_count(change, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        es.Log(**{**A, **change})
    assert message in str(caught.value)


class Sliced:
    """Features of which only slices can be had."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self.rows[rows]


def test_features_are_the_same_however_they_are_given_and_wherever_they_are_cut(monkeypatch):
    rng = np.random.default_rng(0)
    features, outcome = rng.normal(size=(7, 3, 2)), rng.normal(size=7)
    chosen, outcome[[2, 5]] = rng.integers(0, 3, 7), np.nan
    kept = np.isfinite(outcome)
    about = {"chosen": chosen, "outcome": outcome, "propensity": np.full(7, 1 / 3)}
    monkeypatch.setattr(logs, "CHUNK", 2)
    for given, want in (
        (features, features),
        (Sliced(features), features),
        (features[0], np.broadcast_to(features[0], features.shape)),
    ):
        log = es.Log(**about, features=given)
        found = [offer.features for offer in log.offers()]
        np.testing.assert_array_equal(found, want[kept])
        np.testing.assert_array_equal(log.chosen_features(), want[np.arange(7), chosen][kept])
        assert repr(log) == "Log(5 decisions, 3 actions, 2 features, 2 left out: outcome missing)"
    features[4, 1, 0] = np.inf
    with pytest.raises(ValueError, match="features must be finite: 1 of 2 decisions from 2 on"):
        list(es.Log(**about, features=features).offers())
    nothing = es.Log(**about)
    assert (nothing.arms, nothing.dim, nothing.shared) == (3, 0, True)


def test_a_bandits_log_has_everything_and_so_has_the_table_it_writes():
    bandit = es.Bandit(ARMS, actions=["a", "b", "c"], floor=0.3)
    rng = np.random.default_rng(3)
    for t in range(30):
        x = rng.normal(size=2)
        made = bandit.choose(context=x, available=["a", "b"] if t % 5 == 0 else None)
        if t < 28:
            bandit.learn(made.id, float(x[0] * (made.index - 1)))
    log = es.Log.of(bandit)
    assert len(log) == 28
    assert log.actions == ["a", "b", "c"]
    assert log.excluded == {"outcome missing": 2}
    assert log.shared
    (want,) = (log.features(rows) for rows in logs.slices(28))
    for frame in (pd.DataFrame(bandit.log()), pl.DataFrame(bandit.log())):
        table = es.Log.of(frame)
        assert (table.actions, table.shared) == (log.actions, True)
        np.testing.assert_allclose(table.features(slice(0, 28)), want)
        for column in ("chosen", "outcome", "propensity", "propensities", "available"):
            np.testing.assert_allclose(
                getattr(table, column), getattr(log, column), rtol=1e-6, err_msg=column
            )


def test_what_cannot_be_evaluated_is_counted_by_its_reason():
    bandit = es.Bandit(es.Uniform(), offers="chosen")
    bandit.choose([[1.0], [2.0]])
    bandit.learn(bandit.choose([[1.0], [2.0]]).id, 1.0)
    elsewhere = es.Bandit(ARMS)
    table = {"x": [[1.0]], "a": [0], "y": [1.0]}
    elsewhere.learn_from(table, context="x", action="a", outcome="y")
    for source, why in (
        (bandit, "1 times outcome missing, 1 times what was on offer was not recorded"),
        (elsewhere, "1 times propensity missing"),
        (es.Bandit(es.Uniform()), "it is empty"),
    ):
        with pytest.raises(ValueError, match=f"in the bandit can be evaluated: {why}"):
            es.Log.of(source)
        if why != "it is empty":
            with pytest.raises(ValueError, match=f"in the table can be evaluated: {why}"):
                es.Log.of(source.log())
    arms = es.Bandit(ARMS)  # there is nothing to record
    arms.learn(arms.choose().id, 1.0)
    assert [es.Log.of(source).dim for source in (arms, arms.log())] == [0, 0]


def test_offers_of_different_sizes_are_filled_up_in_memory_and_on_disk(monkeypatch):
    bandit = es.Bandit(es.Uniform())
    rng, tables = np.random.default_rng(4), []
    for size in (1, 3, 2, 4, 3, 1, 2, 4, 2):
        tables.append(rng.normal(size=(size, 2)).repeat(2 if size == 2 else 1, axis=0))
        bandit.learn(bandit.choose(tables[-1]).id, 1.0)
    read = [es.Log.of(bandit), es.Log.of(bandit.log())]
    monkeypatch.setattr(sources, "IN_MEMORY", 1)
    read.append(es.Log.of(bandit))
    for log in read:
        for chunk in (4, 100):
            monkeypatch.setattr(logs, "CHUNK", chunk)
            for offer, table in zip(log.offers(), tables, strict=True):
                np.testing.assert_allclose(offer.features[: len(table)], table, rtol=1e-6)
                assert not offer.features[len(table) :].any()
                np.testing.assert_array_equal(offer.available, np.arange(4) < len(table))
    one, *others = (es.evaluate(log, es.Uniform()).best for log in read)
    assert others == [pytest.approx(one), one]
    wider = bandit.log()
    wider["offer"][0] = [[1.0, 2.0, 3.0]]
    with pytest.raises(ValueError, match="actions must have"):
        es.Log.of(wider)


def test_an_exported_file_is_read_again_and_names_are_kept_in_any_order(tmp_path):
    bandit = es.Bandit.open(tmp_path / "b", es.Uniform())
    for t in range(12):
        names = ["tea", "cola", "milk"] if t % 3 else ["cola", "tea"]
        decision = bandit.choose({name: {"size": float(len(name))} for name in names})
        if t:
            bandit.learn(decision.id, float(decision.action == "tea"))
    want = es.Log.of(bandit)
    bandit.close()
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere to write log.csv to"):
        export(tmp_path / "b", tmp_path / "nowhere" / "log.csv")
    export(tmp_path / "b", tmp_path / "log.csv")
    seen = []

    def tea(offer):
        seen.append(list(offer.actions))
        return [float(name == "tea") for name in offer.actions] + [0.0] * (3 - len(offer.actions))

    logs = [want, es.Log.of(tmp_path / "b"), es.Log.of(pd.read_csv(tmp_path / "log.csv"))]
    first, second, third = (es.evaluate(log, tea) for log in logs)
    assert first.best == second.best == pytest.approx(third.best)
    assert first["self-normalised"].value == 1.0
    assert seen[0] == ["tea", "cola", "milk"]
    assert seen[2] == ["cola", "tea"]
    assert seen[:11] == seen[11:22] == seen[22:]


def test_a_table_says_by_columns_what_is_what():
    frame = pd.DataFrame(
        {
            "arm": ["b", "a", "b"],
            "paid": pd.array([1.0, pd.NA, 0.0]),
            "p": [0.5, 0.5, 0.25],
            "age": [1, 2, 3],
        }
    )
    frame["both"] = [[0.5, 0.5], [0.5, 0.5], [0.75, 0.25]]
    plain = {**frame.to_dict("list"), "paid": [1.0, None, 0.0]}
    names = {"chosen": "arm", "outcome": "paid", "actions": ["a", "b"]}
    for table in (frame, pl.DataFrame(plain), plain):
        for context in ("age", ["age"]):
            log = es.Log.of(table, **names, propensity="p", context=context)
            np.testing.assert_array_equal(log.chosen, [1, 1])
            np.testing.assert_array_equal(log.chosen_features(), [[1], [3]])
            assert log.excluded == {"outcome missing": 1}
            assert log.propensities is None
        log = es.Log.of(table, **names, propensities="both", features=np.eye(2))
        np.testing.assert_array_equal(log.propensities, [[0.5, 0.5], [0.75, 0.25]])
        np.testing.assert_array_equal(log.chosen_features(), [[0, 1], [0, 1]])


@pytest.mark.parametrize(
    ("source", "columns", "message"),
    [
        (3, {}, "a log comes from a bandit, a folder or a table, got 3"),
        ({"a": [0]}, {"context": "d"}, "context: the table has no column 'd'; there are 'a'"),
        ({"a": [0]}, {"when": "a"}, "a log has no 'when'; say which columns are chosen, outcome"),
        ({"a": [0]}, {"chosen": "a"}, "say which column is the outcome: Log.of(table, outcome="),
        ("somewhere", {"chosen": "a"}, "a bandit's log has its own columns, got chosen"),
    ],
)
def test_a_mistake_in_what_to_read_is_told(source, columns, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        es.Log.of(source, **columns)
    assert message in str(caught.value)
