"""Frames, dictionaries and rows: columns are matched by name, and survive a reopening."""

# pyright: reportOptionalMemberAccess=false

import itertools
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, SGDRegressor
from sklearn.pipeline import make_pipeline

import ensemble_sampling as es
from ensemble_sampling.inputs.descriptions import DEEPEST, DESCRIPTION_LETTERS, as_text, terms_of
from ensemble_sampling.inputs.features import HASHER, Columns, Inputs
from ensemble_sampling.ledger.rows import decided

LINEAR = es.EnsembleSampling(es.Linear(3, noise_std=0.5), members=5)
DRINKS = pd.DataFrame(
    {"price": [2.0, 3.5, 1.0], "size": [0.3, 0.1, 0.5], "sale": [True, False, True]},
    index=["tea", "coffee", "milk"],
)


def forms(order):
    """The same offer in every form that names its columns."""
    frame = DRINKS[list(order)]
    rows = [dict(zip(order, row, strict=True)) for row in frame.astype(object).to_numpy().tolist()]
    return {
        "pandas": frame,
        "polars": pl.DataFrame({name: frame[name].tolist() for name in order}),
        "mapping": dict(zip(frame.index, rows, strict=True)),
        "dictionaries": rows,
        "series": [pd.Series(row) for row in rows],
        "shuffled": [dict(sorted(row.items(), key=str)) for row in rows],
    }


def taught(bandit, first=DRINKS):
    """Decisions and outcomes by which the columns come to matter."""
    for visit in range(12):
        decision = bandit.choose(first)
        bandit.learn(decision.id, float(decision.index == visit % 2))
    return bandit


@pytest.mark.parametrize("agent", [LINEAR, None], ids=["given", "default"])
def test_the_order_of_columns_and_the_form_of_a_table_never_matter(agent):
    expected = taught(es.Bandit(agent)).predict(DRINKS)
    for order in itertools.permutations(DRINKS.columns):
        bandit = taught(es.Bandit(agent))
        for offer in forms(order).values():
            assert np.array_equal(bandit.predict(offer).probabilities, expected.probabilities)
            inputs = bandit._replica.inputs
            table = inputs.table(inputs.read(offer, None, None))
            assert table.tolist() == DRINKS.to_numpy(np.float32).tolist()


def test_swapping_two_columns_gives_the_same_decisions():
    first, second = taught(es.Bandit(LINEAR)), taught(es.Bandit(LINEAR))
    for _ in range(10):
        one, other = first.choose(DRINKS), second.choose(DRINKS[["size", "sale", "price"]])
        assert one.action == other.action
        assert np.array_equal(one.probabilities, other.probabilities)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_columns_in_any_order_are_read_as_the_known_ones(data):
    name = st.text(max_size=3).filter(lambda text: text not in ("id", "name"))
    known = tuple(data.draw(st.lists(name, min_size=1, max_size=6, unique=True)))
    numbers = st.floats(-1e6, 1e6, width=32)
    count = data.draw(st.integers(1, 4))
    rows = data.draw(
        st.lists(
            st.lists(numbers, min_size=len(known), max_size=len(known)),
            min_size=count,
            max_size=count,
        )
    )
    order = data.draw(st.permutations(range(len(known))))
    frame = pd.DataFrame(rows, columns=list(known))
    wanted = np.array(rows, np.float32)
    for given_as in (frame.iloc[:, order], frame.iloc[:, order].to_dict("records")):
        inputs = Inputs(columns=Columns(0, known))
        offer = inputs.read(given_as, None, None)
        assert inputs.covering([offer]) is inputs
        assert np.array_equal(inputs.table(offer), wanted)
    hasher = es.Hasher(32, numbers=8)
    assert np.array_equal(
        hasher(frame.to_dict("records")), hasher(frame.iloc[:, order].to_dict("records"))
    )


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (DRINKS.drop(columns="size"), "'size' missing"),
        (DRINKS.rename(columns={"size": "weight"}), "'size' missing"),
        (DRINKS.to_numpy(float), "columns have names: give the features as a data frame"),
        ({"tea": [1.0, 2.0, 3.0]}, "not as rows without names"),
        ([{"price": 1.0, "size": 2.0, "sale": 1.0}, {"price": 1.0}], "nan in row 1, column 'size'"),
        (pd.concat([DRINKS, DRINKS], axis=1), "'price' occurs twice"),
    ],
)
def test_columns_that_an_agent_needs_must_be_there(offer, words):
    bandit = taught(es.Bandit(LINEAR))
    before, log = bandit._ledger.description, bandit.log()
    with pytest.raises(ValueError, match=words):
        bandit.choose(offer)
    assert bandit._ledger.description == before
    assert bandit.log() == log
    assert bandit.choose(DRINKS).action in DRINKS.index


def test_columns_that_an_agent_does_not_know_are_kept_and_change_nothing():
    one, other = taught(es.Bandit(LINEAR)), taught(es.Bandit(LINEAR))
    more = DRINKS.assign(colour=[1.0, 2.0, 3.0])
    assert np.array_equal(one.choose(more).probabilities, other.choose(DRINKS).probabilities)
    assert one.log()["offer"][-1][1]["colour"] == 2.0


def test_names_after_rows_without_are_refused():
    bandit = es.Bandit(LINEAR)
    bandit.choose(DRINKS.to_numpy(float))
    with pytest.raises(ValueError, match=r"have no names: .*frame\.to_numpy\(\)"):
        bandit.choose(DRINKS)
    bandit.choose(pd.DataFrame(DRINKS.to_numpy(float)))  # 0, 1, 2 are no names


def test_an_offer_that_was_not_recorded_fixes_no_columns():
    bandit = es.Bandit(LINEAR)
    with pytest.raises(ValueError, match="not on offer"):
        bandit.choose(DRINKS, available=["wine"])
    with pytest.raises(ValueError, match="3 features, got 2"):
        bandit.choose(DRINKS[["price", "size"]])
    bandit.predict(DRINKS)
    bandit.choose(DRINKS.to_numpy(float))


@pytest.mark.parametrize("agent", [LINEAR, None], ids=["given", "default"])
def test_columns_survive_reopening(tmp_path, agent):
    with es.Bandit.open(tmp_path, agent) as bandit:
        expected = taught(bandit).predict(DRINKS)
    swapped = DRINKS[["sale", "price", "size"]]
    with es.Bandit.open(tmp_path, agent) as bandit:
        assert np.array_equal(bandit.predict(swapped).probabilities, expected.probabilities)
        with pytest.raises(ValueError, match="columns have names"):
            bandit.choose(DRINKS.to_numpy(float))
    with es.Bandit.migrate(tmp_path, es.EnsembleSampling(es.Linear(3), members=3)) as bandit:
        bandit.choose(swapped)
        assert bandit.log()["features"][-1]["price"] in DRINKS["price"].tolist()


def test_a_row_is_the_context_and_then_the_action():
    action = {"tea": {"b": 3.0}, "milk": {"b": 4.0}}
    bandit = es.Bandit(LINEAR)
    first = bandit.choose(action, context={"x": 1.0, "y": 2.0})
    other = bandit.choose(action, context=pd.Series({"y": 2.0, "x": 1.0}))
    third = bandit.choose(pl.DataFrame({"b": [3.0]}), context=pd.DataFrame({"y": [2], "x": [1]}))
    rows = [bandit._replica.inputs.row(row) for row in bandit._ledger.all()]
    assert rows[0].tolist() == [1.0, 2.0, action[first.action]["b"]]
    assert rows[1].tolist() == [1.0, 2.0, action[other.action]["b"]]
    assert rows[2].tolist() == [1.0, 2.0, 3.0]
    assert third.action == 0
    with pytest.raises(ValueError, match=r"context must have the columns 'x', 'y', .* missing"):
        bandit.choose(action)
    plain = es.Bandit(LINEAR)
    plain.choose(np.array([[3.0]]), context=[1.0, 2.0])
    assert plain.log()["features"] == [[1.0, 2.0, 3.0]]
    with pytest.raises(ValueError, match="1 numbers of the context and 2 numbers of the action"):
        plain.choose(np.array([[2.0, 3.0]]), context=[1.0])


def test_the_context_of_fixed_actions_has_names_too():
    agent = es.EnsembleSampling(es.PerAction(es.Linear(2), arms=2), members=3)
    for given_agent in (agent, None):
        bandit = es.Bandit(given_agent, actions=["left", "right"])
        bandit.choose(context={"age": 3, "new": True})
        bandit.choose(context=pd.Series([0.0, 5.0], index=["new", "age"]))
        bandit.choose(context=pl.DataFrame({"new": [False], "age": [7]}))
        rows = [bandit._replica.inputs.row(row).tolist() for row in bandit._ledger.all()]
        assert rows == [[3.0, 1.0], [5.0, 0.0], [7.0, 0.0]]
        with pytest.raises(ValueError, match="columns have names"):
            bandit.choose(context=[3.0, 1.0])
        if given_agent is not None:
            with pytest.raises(ValueError, match="'new' missing"):
                bandit.choose(context={"age": 3})


def test_numbers_may_be_missing_where_the_bandit_takes_them():
    gaps = pd.DataFrame({"x": pd.array([1, None], "Int64"), "y": [None, 2.0]})
    wanted = np.array([[1.0, np.nan], [np.nan, 2.0]])
    for offer in (gaps, pl.DataFrame({"x": [1, None], "y": [None, 2.0]}), gaps.to_dict("records")):
        inputs = Inputs(grows=True)
        read = inputs.read(offer, None, None)
        assert np.array_equal(inputs.covering([read]).table(read), wanted, equal_nan=True)
        with pytest.raises((TypeError, ValueError), match="must be"):
            Inputs().covering([read]).table(read)
    bandit = es.Bandit()
    bandit.learn(bandit.choose(gaps).id, 1.0)


def test_a_wrong_number_is_named_by_its_column():
    with pytest.raises(ValueError, match=r"action\.size must be finite and below 1e\+15, got inf"):
        es.Bandit(LINEAR).choose(DRINKS.replace(0.3, np.inf))


@pytest.mark.parametrize(
    ("features", "context", "needed"),
    [
        (DRINKS, None, False),
        (DRINKS.assign(kind="hot"), None, True),
        (DRINKS.assign(kind=pd.Categorical(["a", "b", "a"])), None, True),
        (DRINKS.assign(since=pd.Timestamp("2024-02-03")), None, True),
        (pl.DataFrame({"x": [1.0], "kind": ["tea"]}), None, True),
        (pl.DataFrame({"x": [1.0], "since": [date(2024, 2, 3)]}), None, True),
        ({"tea": [1.0, 2.0]}, None, False),
        ({"tea": {"price": 1.0}, "milk": {"price": 2}}, None, False),
        ({"tea": {"price": 1.0}, "milk": {"size": 2}}, None, True),
        ({"tea": {"price": {"net": 1.0}}}, None, True),
        ({"tea": {}}, None, True),
        (["tea", "milk"], None, True),
        ([[1.0, 2.0]], None, False),
        (np.ones((2, 2)), [1.0, 2.0], False),
        (np.ones((2, 2)), {"age": 3, "new": np.bool_(True)}, False),
        (np.ones((2, 2)), {"tags": [1, 2]}, True),
        (None, {"user": "ann"}, True),
        (None, pd.Series({"at": pd.Timestamp("2024-02-03")}), True),
        (None, ["ann"], True),
        (None, None, False),
    ],
)
def test_the_default_agent_hashes_what_is_not_all_numbers(features, context, needed):
    inputs = Inputs(None if features is not None else 2, grows=True)
    covering = inputs.covering([inputs.read(features, context, None)])
    assert covering.hasher == (HASHER if needed else None)


def test_the_default_agent_takes_mixed_tables_from_pandas_and_polars():
    at = [datetime(2024, 2, 3, 7), datetime(2024, 2, 5, 18)]
    columns = {"kind": ["tea", "milk"], "price": [2.0, 3.0], "since": at, "note": [None, "cold"]}
    rows = []
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns)):
        bandit = es.Bandit()
        decision = bandit.choose(frame, context=pd.Series({"user": "ann", "age": 30}))
        bandit.learn(decision.id, 1.0)
        inputs = bandit._replica.inputs
        rows.append(inputs.table(inputs.read(frame, {"user": "ann", "age": 30}, None)))
    assert np.array_equal(*rows)


ROWS = np.random.default_rng(0).normal(size=(3, 2))
WORDS = {"x": {"kind": "new"}, "y": {"kind": "old"}, "z": {"kind": "new"}}
MIXED = {
    "rows, then a context in words": [(ROWS, None), (ROWS, {"user": "ann"})],
    "rows in a context in words": [(ROWS, {"user": "ann"}), (ROWS, {"user": "bob"})],
    "rows, then words": [(ROWS, None), (WORDS, None), (ROWS, None)],
    "rows in a row, then words": [(ROWS, [1.0]), (WORDS, {"user": "ann"}), (ROWS, [2.0])],
    "words, then rows": [(WORDS, {"user": "ann"}), (ROWS, {"user": "ann"}), (WORDS, None)],
    "rows, then a context": [(ROWS, None), (ROWS, [3.0])],
}
FIXED = {
    "a row, then words": [[1.0, 2.0], {"user": "ann"}, [3.0, 1.0]],
    "words, then a row": [{"user": "ann"}, [1.0, 2.0]],
    "nothing, then a row": [None, [1.0, 2.0]],
    "nothing, then words": [None, {"user": "ann"}],
}


@pytest.mark.parametrize("name", [*MIXED, *FIXED])
def test_rows_and_words_follow_one_another_and_all_is_learned(tmp_path, name):
    """Also of what was said before the words came, live and replayed alike."""
    fixed = name in FIXED
    offers = [(None, one) for one in FIXED[name]] if fixed else MIXED[name]
    options: dict[str, Any] = {"actions": ["a", "b"]} if fixed else {}
    with es.Bandit.open(tmp_path / "mixed", **options) as bandit:
        learned = []
        for n, (offer, context) in enumerate([*offers, *offers[1:]]):
            bandit.learn(bandit.choose(offer, context=context).id, float(n))
            (row,) = bandit._ledger.latest(1)
            learned.append(bandit._replica.inputs.row(row))
        inputs = bandit._replica.inputs
        rows = list(bandit._ledger.all(offers=True))
        for n, row in enumerate(rows):  # what was on offer is what was learned
            found = inputs.row(row)
            assert found is not None
            if inputs.hasher is not None:
                assert found.any()
            assert row.offer is not None
            table = inputs.table(row.offer)
            np.testing.assert_array_equal(table[0 if fixed else row.chosen], found)
            if n >= len(offers):
                np.testing.assert_array_equal(learned[n], found)
        state, log = bandit.state, bandit.log()
        explained = bandit.explain(log["id"][0])
        assert "version" not in explained.note
        assert es.Log.of(bandit).chosen.shape == (len(rows),)
    (tmp_path / "mixed" / "state.safetensors").unlink()
    with es.Bandit.open(tmp_path / "mixed", **options) as again:
        assert jax.tree.all(jax.tree.map(np.array_equal, again.state, state))
        assert again.log() == log
    with es.Bandit.migrate(tmp_path / "mixed", hasher=es.Hasher(64), **options) as other:
        assert all(other._replica.inputs.row(row) is not None for row in rows)
        assert other._replica.width == 64


def test_what_rows_taught_is_known_when_words_come():
    bandit, rows = es.Bandit(), np.eye(2)
    for _ in range(40):
        made = bandit.choose(rows)
        bandit.learn(made.id, float(made.index))
    bandit.choose(rows, context={"user": "ann"})  # from now on all is hashed
    mean = bandit.predict(rows, context={"user": "ann"}).values.mean
    assert mean[1] - mean[0] > 0.5


def test_a_history_is_given_to_another_hasher_as_it_would_have_learned_it(tmp_path):
    """The state is that of a bandit that had this hasher from the start, and decisions are."""
    rng, folder = np.random.default_rng(2), tmp_path / "shop"

    def options(width):
        agent = es.EnsembleSampling(es.Linear(width, noise_std=0.5), members=3)
        return {"agent": agent, "hasher": es.Hasher(width)}

    offers = []
    for n in range(60):
        kinds = rng.choice(["news", "sport", "arts"], 4)
        offer = {f"a{n // 9 + k}": {"kind": kinds[k], "age": int(k + n % 5)} for k in range(4)}
        offers.append((offer, {"device": ["phone", "desk"][n % 2], "hour": n % 24}))
    with es.Bandit.open(folder, **options(16)) as bandit:
        made = [bandit.choose(offer, context=context) for offer, context in offers]
        for n in rng.permutation(60)[:50]:
            bandit.learn(made[n].id, float(made[n].index))
    fresh = es.Bandit(**options(24))
    said = [fresh._replica.inputs.read(offer, context, None) for offer, context in offers]
    shares = np.full(4, 0.25, np.float32)
    rows = [decided(n, 0.0, one, made[n].index, shares) for n, one in enumerate(said)]
    fresh._ledger.add_decisions(rows)
    with es.Bandit.migrate(folder, **options(24)) as migrated:
        for row in migrated._ledger.learned(after=0):
            fresh.learn(fresh._ledger.decision_id(row.number), row.outcome)
        assert jax.tree.all(jax.tree.map(np.array_equal, fresh.state, migrated.state))
        for offer, context in offers:
            known, found = (b.predict(offer, context=context) for b in (fresh, migrated))
            np.testing.assert_array_equal(known.probabilities, found.probabilities)


def test_before_any_outcome_a_number_beside_text_weighs_as_a_word_does():
    """A price of 30 is no thirty words: what it may mean is as wide as it is for a word."""

    def spreads(offer):
        bandit = es.Bandit(seed=3)
        bandit.choose(offer)
        values = bandit.predict(offer).values
        assert values is not None
        return np.abs(values.mean).max(), values.spread.max()

    words = [{"kind": "news", "size": "big"}, {"kind": "arts", "size": "small"}]
    mean, spread = spreads(words)
    for price in (30.0, 3e6):
        priced = [{**one, "price": price * (1 + n)} for n, one in enumerate(words)]
        found = spreads(priced)
        assert found[0] < 3 * mean + 0.3
        assert found[1] == pytest.approx(spread, rel=0.5)


def said(value):
    terms = terms_of(as_text({"x": value}, "action"), "action")
    return {name: (number, kind) for name, number, kind in terms}


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan"), pd.NaT, pd.NA])
def test_what_is_missing_is_a_term_of_its_own(value):
    assert said(value) == {"action.x=missing": (1.0, False)}
    assert said(np.datetime64("NaT")) == said(None)
    assert terms_of("null", "action") == ()


def test_a_timestamp_says_its_weekday_hour_and_day():
    when = datetime(2020, 1, 3, 18)  # a Friday, two and three quarter days from the beginning
    wanted = {
        "action.x.weekday=4": (1.0, False),
        "action.x.hour=18": (1.0, False),
        "action.x.day": (2.75 / 365.25, True),
    }
    for given_as in (when, pd.Timestamp(when), np.datetime64(when), np.datetime64(when, "ns")):
        assert said(given_as) == wanted
    assert said(date(2020, 1, 3)).keys() == {"action.x.weekday=4", "action.x.day"}
    assert said(timedelta(hours=12)) == {"action.x": (0.5, True)}
    assert said(np.timedelta64(12 * 3600 * 10**9, "ns")) == {"action.x": (0.5, True)}


def test_numbers_have_columns_of_their_own():
    hasher, context = es.Hasher(64, numbers=16), {"user": "ann", "age": 30}
    words = hasher([{"kind": "tea"}], {"user": "ann"})
    assert not words[:, 48:].any()
    both = hasher([{"kind": "tea", "price": 2.5}], context)
    # The price, the age, and their pairs with what is said in words and with one another.
    assert np.abs(both[:, 48:]).sum() > 0
    assert np.array_equal(both[:, :48], words[:, :48])
    # Rows of numbers are told apart by position.
    assert np.array_equal(hasher([[1.0, 2.0]]), hasher([{"0": 1.0, "1": 2.0}]))
    assert not np.array_equal(hasher([[1.0, 2.0]]), hasher([[2.0, 1.0]]))
    wrongs: list = [-1, 64, 2.0]
    for wrong in wrongs:
        with pytest.raises((ValueError, TypeError), match="numbers"):
            es.Hasher(64, numbers=wrong)


def test_equal_values_of_other_kinds_are_not_confused():
    hasher = es.Hasher(512)
    one, true, text = (hasher([{"x": value}])[0] for value in (1, True, "1"))
    assert not np.array_equal(one, true)
    assert not np.array_equal(one, text)
    assert np.array_equal(one, hasher([{"x": 1.0}])[0])


def test_the_name_of_an_action_is_said_of_it_outside_any_pair():
    hasher, plain = es.Hasher(512, names=True), es.Hasher(512)
    items = {"a": {"kind": "tea"}, "b": {"kind": "tea"}}
    inputs = Inputs(hasher=hasher)

    def table(offer):
        return inputs.table(inputs.read(offer, {"user": "ann"}, None))

    bare = plain(list(items.values()), {"user": "ann"})
    named = table(items)
    assert (np.abs(named - bare).sum(axis=1) == 1).all()
    assert not np.array_equal(named[0], named[1])
    frame = pd.DataFrame(items).T
    listed = [{"id": name, **about} for name, about in items.items()]
    for offer in (frame, listed, frame.reset_index(names="name")):
        assert np.array_equal(table(offer), named)
    # 0, 1, ... are positions, and ids that two share no names.
    assert np.array_equal(table(frame.reset_index(drop=True)), bare)
    assert inputs.read([{"id": "a"}, {"id": "a"}], None, None).names is None


def test_a_recorded_hasher_keeps_its_meaning(tmp_path):
    for hasher in (es.Hasher(32), es.Hasher(32, False, 8, True)):
        assert es.Hasher.recorded(hasher.description) == hasher
    for _ in range(2):
        with es.Bandit.open(tmp_path) as bandit:
            bandit.choose({"tea": {"kind": "hot"}})
            assert bandit._replica.inputs.hasher == HASHER
    agent = es.EnsembleSampling(es.Linear(32), members=2)
    with es.Bandit.open(tmp_path / "given", agent, hasher=es.Hasher(32)) as bandit:
        bandit.choose([{"kind": "hot"}])
    with pytest.raises(ValueError, match=r"hasher\.numbers: 0 -> 8"):
        es.Bandit.open(tmp_path / "given", agent, hasher=es.Hasher(32, numbers=8))


class Seen(LinearRegression):
    """A regression that sees one column, and remembers what it was shown."""

    shown: list = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.shown.append(X)
        return super().fit(X[["b"]], y)

    def predict(self, X):
        self.shown.append(X)
        return super().predict(X[["b"]])


def test_estimators_see_frames_with_the_bandits_columns():
    Seen.shown.clear()
    agent = es.EstimatorEnsemble(Seen, members=2, start=2, columns=["a", "b"])
    bandit = es.Bandit(agent, normalise=False)
    for visit in range(4):
        offer = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, float(visit)]})
        bandit.learn(bandit.choose(offer).id, 1.0)
    assert Seen.shown
    assert all(list(frame.columns) == ["a", "b"] for frame in Seen.shown)
    assert all(set(frame["b"]) <= {1.0, 2.0} for frame in Seen.shown)
    with pytest.raises(ValueError, match="the agent's columns are"):
        es.Bandit(agent).choose(pd.DataFrame({"a": [1.0], "c": [1.0]}))
    with pytest.raises(ValueError, match="the agent's columns are"):
        es.Bandit(agent).choose(np.ones((2, 2)))
    mixed = es.Bandit(agent)
    with pytest.raises(ValueError, match="those of the context first"):
        mixed.choose(pd.DataFrame({"a": [1.0]}), context={"b": 1.0})
    mixed.choose(pd.DataFrame({"b": [1.0]}), context={"a": 1.0})


def test_pipelines_that_choose_columns_by_name_work():
    def pipeline(last):
        return make_pipeline(ColumnTransformer([("kept", "passthrough", ["b"])]), last())

    makers = [partial(pipeline, LinearRegression), SGDRegressor]
    agent = es.EstimatorEnsemble(makers, members=2, start=2, arms=2, columns=["a", "b"])
    bandit = es.Bandit(agent)
    for visit in range(6):
        decision = bandit.choose(context={"b": float(visit), "a": 1.0})
        bandit.learn(decision.id, float(visit))
    with pytest.raises(TypeError, match="list of names"):
        es.EstimatorEnsemble(LinearRegression, members=2, columns="ab")
    with pytest.raises(ValueError, match="different names"):
        es.EstimatorEnsemble(LinearRegression, members=2, columns=["a", "a"])


def test_columns_are_recorded_as_they_are():
    for columns in (Columns(("a",), ("b", "c")), Columns(0, ("b",)), Columns(2, 1)):
        assert Columns.recorded(columns.description) == columns
    assert Columns.recorded(None) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"$time": 5},
        {"$time": "tea time"},
        {"$time": True},
        {"$time": {"$time": None}},
        {"$seconds": 9e14},
        {"$seconds": -(10**14)},
        {"$seconds": True},
        {"$seconds": "long"},
        {"$time": "2024-02-03", "$seconds": 3},
    ],
)
def test_what_looks_like_a_time_and_is_none_is_a_dictionary(odd):
    bandit = es.Bandit()
    for each in (odd, {"nested": odd}):
        made = bandit.choose([each, {"kind": "plain"}], context={"about": odd})
        bandit.learn(made.id, 1.0)
    log = bandit.log()
    assert log["offer"] == [[odd, {"kind": "plain"}], [{"nested": odd}, {"kind": "plain"}]]
    assert log["context"] == [{"about": odd}] * 2


def test_json_says_times_by_a_tag():
    bandit = es.Bandit()
    said = {"at": {"$time": "2024-02-03T07:30:00"}, "day": {"$time": "2024-02-03"}}
    bandit.choose([{**said, "for": {"$seconds": 90}}])
    found = {"at": datetime(2024, 2, 3, 7, 30), "day": date(2024, 2, 3), "for": timedelta(0, 90)}
    assert bandit.log()["offer"] == [[found]]


def nested(depth):
    given: Any = 1.0
    for _ in range(depth - 1):
        given = {"a": given} if depth % 2 else [given]
    return given


def test_limits_of_descriptions_have_names():
    bandit = es.Bandit(actions=["a", "b"])
    fits = DESCRIPTION_LETTERS - len('{"word":""}')
    bandit.choose(context={"word": "x" * fits})
    before = bandit.summary().decisions
    with pytest.raises(
        ValueError,
        match=rf"a context has {DESCRIPTION_LETTERS + 1} char.*most {DESCRIPTION_LETTERS} .*\(DESC",
    ):
        bandit.choose(context={"word": "x" * (fits + 1)})
    with pytest.raises(
        ValueError,
        match=rf"an action has {DESCRIPTION_LETTERS + 1} char.*\(DESCRIPTION_LETTERS in ensemble",
    ):
        es.Bandit().choose([{"word": "x" * (fits + 1)}])
    bandit.choose(context={"deep": nested(DEEPEST), "when": date(2024, 2, 3)})
    for deep in (DEEPEST + 1, 5 * DEEPEST, 5000):
        with pytest.raises(ValueError, match=rf"nested deeper than {DEEPEST} \(DEEPEST in"):
            bandit.choose(context={"deep": nested(deep)})
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match="contains itself"):
        bandit.choose(context=loop)
    assert bandit.summary().decisions == before + 1
