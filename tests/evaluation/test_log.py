"""Logs: what may be given, from where they are read, and how what is wrong is said."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ensemble_sampling as es
from ensemble_sampling.evaluation import log as logs
from ensemble_sampling.evaluation import said
from ensemble_sampling.inputs.features import HASHER
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
    monkeypatch.setattr(said, "IN_MEMORY", 1)
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
    with pytest.raises(ValueError, match="actions have 3 features, got 2"):
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
        seen.append(list(offer.names))
        return [float(name == "tea") for name in offer.names]

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


def test_actions_called_by_numbers_are_not_taken_for_positions():
    bandit = es.Bandit(ARMS, actions=[2, 0, 1])
    made = [bandit.choose() for _ in range(9)]
    for decision in made:
        bandit.learn(decision.id, 1.0)
    for log in (es.Log.of(bandit), es.Log.of(bandit.log())):
        np.testing.assert_array_equal(log.chosen, [decision.index for decision in made])
        assert log.actions == [2, 0, 1]


def shop(folder=None):
    """A bandit with descriptions of which some say less, and are in other units."""
    bandit = es.Bandit(floor=0.5) if folder is None else es.Bandit.open(folder, floor=0.5)
    rng = np.random.default_rng(8)
    for t in range(21):
        actions = {
            name: {"kind": kind, "price": round(float(rng.uniform(5, 900)), 2)}
            for name, kind in [("mug", "cup"), ("jar", "pot"), ("tin", "pot")][: 2 + t % 2]
        }
        if t % 4 == 0:
            actions["jar"]["sale"] = True
        made = bandit.choose(actions, context={"hour": int(rng.integers(24)), "device": "phone"})
        if t:
            bandit.learn(made.id, float(actions[made.action]["price"] < 300) + t % 3)
    return bandit


def cheapest(offer):
    return min(range(len(offer.actions)), key=lambda i: offer.actions[i]["price"])


def test_descriptions_come_back_as_they_were_said_from_wherever_a_log_is_read(tmp_path):
    """Functions see them field by field, features are the same, and so is what is estimated."""
    with shop(tmp_path / "b") as bandit:
        logs = {"bandit": es.Log.of(bandit), "folder": es.Log.of(tmp_path / "b")}
        table = bandit.log()
        for suffix in ("csv", "parquet"):
            export(tmp_path / "b", tmp_path / f"log.{suffix}")
    logs["columns"] = es.Log.of(table)
    logs["frame"] = es.Log.of(pd.DataFrame(table))
    logs["polars"] = es.Log.of(pl.DataFrame(table))
    logs["csv"] = es.Log.of(pd.read_csv(tmp_path / "log.csv"))
    logs["parquet"] = es.Log.of(pd.read_parquet(tmp_path / "log.parquet"))
    logs["polars parquet"] = es.Log.of(pl.read_parquet(tmp_path / "log.parquet"))
    total = 0.0
    for t in range(1, 21):  # of the first, the outcome is not known
        prices = [one["price"] for one in table["offer"][t]]
        hit = table["index"][t] == prices.index(min(prices))
        total += hit * table["reward"][t] / table["probabilities"][t][table["index"][t]] / 20
    features = logs["bandit"].features(slice(0, 20))
    assert features.shape == (20, 3, 256)
    for name, log in logs.items():
        assert log.hashed
        assert log.excluded == {"outcome missing": 1}
        for t, offer in enumerate(log.offers(), 1):
            assert list(offer.actions) == table["offer"][t], name
            assert offer.context == table["context"][t], name
            assert list(offer.names) == table["actions"][t], name
        np.testing.assert_allclose(log.features(slice(0, 20)), features, atol=1e-6, err_msg=name)
        found = es.evaluate(log, cheapest)
        assert found["inverse propensity"].value == pytest.approx(total), name


def test_hashed_numbers_are_in_the_units_of_the_first_outcomes():
    """Of 16 of 20; a plain oracle of mean and deviation, by the ledger's own hasher."""
    bandit = shop()
    table, log = bandit.log(), es.Log.of(bandit)
    rows = [dict(table["features"][t], hour=table["context"][t]["hour"]) for t in range(1, 17)]
    fields = {}
    for name, key in (("action.price", "price"), ("context.hour", "hour")):
        values = np.array([row[key] for row in rows])
        away = values - values.mean()
        first = away[np.abs(away) > 0.1 * values.std()][0]
        fields[name] = values.mean(), np.copysign(values.std(), first)
    for t in (1, 7, 20):
        said = [json.dumps(one) for one in table["offer"][t]]
        context = json.dumps(table["context"][t])
        want = HASHER.table(said, context, table["actions"][t], fields)
        (have,) = log.features(slice(t - 1, t))
        np.testing.assert_allclose(have[: len(want)], want, atol=1e-5)
        assert not have[len(want) :].any()


def test_offers_can_be_read_in_any_parts(monkeypatch):
    log = es.Log.of(shop())
    whole = list(log.offers())
    monkeypatch.setattr(logs, "CHUNK", 7)
    for have, want in zip(log.offers(), whole, strict=True):
        assert (have.actions, have.context) == (want.actions, want.context)
        np.testing.assert_array_equal(have.features, want.features)


def test_a_number_that_first_varies_late_has_its_unit_from_then_on():
    bandit = es.Bandit()
    for size in [1.0] * 5 + [4.0, 7.0]:  # four outcomes decide the units
        bandit.learn(bandit.choose([{"kind": "x", "size": size}]).id, 1.0)
    column = es.Log.of(bandit).chosen_features()
    before, one, two = column[4], column[5], column[6]
    assert not np.array_equal(before, one)
    np.testing.assert_allclose(two - before, 2 * (one - before), atol=1e-6)


def test_a_row_stands_for_all_actions_where_only_some_offers_describe_them(tmp_path):
    with es.Bandit.open(tmp_path / "b", actions=["a", "b"]) as bandit:
        bandit.learn(bandit.choose({"a": "x", "b": "y"}, context="z").id, 1.0)
        bandit.learn(bandit.choose(context="z").id, 0.0)
        log = es.Log.of(bandit)
        table = es.Log.of(bandit.log())
    for each in (log, table, es.Log.of(tmp_path / "b")):
        assert not each.shared
        first, second = each.features(slice(0, 2))
        assert not np.array_equal(first[0], first[1])
        np.testing.assert_array_equal(second[0], second[1])
        assert [offer.actions for offer in each.offers()] == [["x", "y"], [None, None]]


def test_rows_of_numbers_are_parted_into_context_and_actions():
    bandit = es.Bandit(es.Uniform())
    rng = np.random.default_rng(0)
    for size in (2, 3, 2):
        actions, context = rng.normal(size=(size, 2)), rng.normal(size=1)
        bandit.learn(bandit.choose(actions, context=context).id, 1.0)
    for log in (es.Log.of(bandit), es.Log.of(bandit.log()), es.Log.of(pd.DataFrame(bandit.log()))):
        assert not log.hashed
        for offer, want in zip(log.offers(), bandit.log()["offer"], strict=True):
            np.testing.assert_allclose(offer.actions, want)
            np.testing.assert_allclose(offer.features[: len(want), 1:], want)
            np.testing.assert_allclose(offer.context, offer.features[0, :1])
            assert offer.names is None
    named = es.Bandit(es.Uniform())
    for names in ("ab", "ba"):
        named.learn(named.choose({name: [float(name == "a")] for name in names}).id, 1.0)
    for log in (es.Log.of(named), es.Log.of(named.log())):
        assert [list(offer.names) for offer in log.offers()] == [["a", "b"], ["b", "a"]]
        assert np.ravel([o.actions for o in log.offers()]).tolist() == [1.0, 0.0, 0.0, 1.0]
    arms = es.Log(**A, context=[[1.0], [2.0]])
    assert [(list(o.actions), o.context.tolist()) for o in arms.offers()][1] == ([None] * 2, [2.0])
    plain = es.Log(**A, features=np.ones((2, 2, 1)), actions=["a", "b"])
    offer = next(plain.offers())
    assert (offer.actions.tolist(), offer.context, offer.names) == ([[1.0]] * 2, None, ["a", "b"])
    assert next(es.Log(**A).offers()).context is None


def test_a_log_is_read_with_the_columns_and_the_hasher_that_its_ledger_records(tmp_path):
    """Numbers by name have columns, in the order in which they came; a hasher of the bandit's own
    is recorded too, and its numbers are as they were said."""
    with es.Bandit.open(tmp_path / "n") as bandit:
        for row in ({"a": 1.0}, {"a": 2.0, "b": 5.0}):
            bandit.learn(bandit.choose([row, {**row, "a": 3.0}]).id, 1.0)
    log = es.Log.of(tmp_path / "n")
    want = [[[1, np.nan], [3, np.nan]], [[2, 5], [3, 5]]]
    np.testing.assert_array_equal(log.features(slice(0, 2)), want)
    assert not log.hashed
    assert log.missing == 1
    with es.Bandit.open(tmp_path / "f", es.Greedy(es.Linear(1))) as bandit:
        for row in ({"a": 1.0}, {"a": 2.0, "b": 5.0}):
            bandit.learn(bandit.choose([row]).id, 1.0)
    fixed = es.Log.of(tmp_path / "f")
    np.testing.assert_array_equal(fixed.chosen_features(), [[1.0], [2.0]])
    hasher = es.Hasher(16, interactions=False)
    with es.Bandit.open(tmp_path / "h", es.Uniform(), hasher=hasher) as bandit:
        bandit.learn(bandit.choose(["x", {"y": 7.0}]).id, 1.0)
    log = es.Log.of(tmp_path / "h")
    np.testing.assert_allclose(log.features(slice(0, 1))[0], hasher(["x", {"y": 7.0}]))
    assert [offer.actions for offer in log.offers()] == [["x", {"y": 7.0}]]


def test_text_in_a_table_stays_text_unless_it_is_a_list_or_a_description():
    row = {
        "index": 0,
        "probabilities": "[0.5, 0.5]",
        "reward": 1.0,
        "features": "x",
        "context": "[not] json",
        "offer": '["x", "{y"]',
        "available": "[true, true]",
        "actions": None,
    }
    (offer,) = es.Log.of({name: [value] for name, value in row.items()}).offers()
    assert (offer.actions, offer.context) == (["x", "{y"], "[not] json")
    row["offer"] = "[[1.0], [2.0, 3.0]]"
    with pytest.raises(ValueError, match="actions must have as many numbers each"):
        es.Log.of({name: [value] for name, value in row.items()})
