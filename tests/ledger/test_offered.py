"""What was on offer comes back from the ledger as it was said, and what repeats is kept once."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import sqlite3
from contextlib import closing
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import ensemble_sampling as es
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger import offers as stored
from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.ledger.rows import decided

RNG = np.random.default_rng(0)
CATALOGUE = RNG.normal(size=(30, 6)).astype(np.float32)
WORDS = [f'{{"kind":"k{n % 4}","price":{n / 2}}}' for n in range(30)]


def random_offers(count, seed=0):
    """Some of a catalogue in any order, as rows or descriptions, with or without names; now and
    then the last offer again, or nothing known."""
    rng, last = np.random.default_rng(seed), None
    for number in range(count):
        kind = rng.integers(7)
        if kind == 0 and number:
            yield last
            continue
        size, width = int(rng.integers(1, 9)), int(rng.choice([0, 2]))
        which = rng.integers(0, 30, size)
        rows = CATALOGUE[which, width:].copy()
        if kind == 1:
            rows = np.where(rng.random(rows.shape) < 0.9, 0, -0.0).astype(np.float32)
        names = [f"n{i}" for i in rng.permutation(9)[:size]] if rng.random() < 0.5 else None
        free = rng.random(size) < 0.8 if kind == 3 else np.ones(size, bool)
        context = rng.normal(size=width).astype(np.float32) if width else None
        last = None if kind == 5 else Offer(rows, context, names, free)
        if kind in (4, 6):
            said = [WORDS[n] for n in which] if kind == 4 else None
            last = Offer(said, f'{{"age":{number}}}', names, free)
        yield last


def record(ledger, offers):
    """Decide the first action of every offer."""
    shares, rows = np.ones(1, np.float32), []
    nothing = Offer(CATALOGUE[:1], None, None, np.ones(1, bool))
    for number, offer in enumerate(offers, start=ledger.decisions):
        row = decided(number, 1e9, offer or nothing, 0, shares)
        rows.append(row._replace(offer=offer))
    ledger.add_decisions(rows)


def same(one, other):
    if one is None or other is None:
        return one is other
    if isinstance(one.actions, np.ndarray):  # also the signs of zeros
        alike = [offer.actions.tobytes() for offer in (one, other)]
        alike += [
            b"" if offer.context is None else offer.context.tobytes() for offer in (one, other)
        ]
        rows = alike[0] == alike[1] and alike[2] == alike[3]
    else:
        rows = one.actions == other.actions and one.context == other.context
    return rows and one.names == other.names and np.array_equal(one.available, other.available)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("most", [4, 2**12])
def test_offers_come_back_as_they_were(tmp_path, where, most, monkeypatch):
    monkeypatch.setattr(stored, "KNOWN", most)  # also where little is remembered
    offers = list(random_offers(300))
    ledger = Ledger(None if where == "memory" else tmp_path)
    for start, end in ((0, 1), (1, 2), (2, 90), (90, 200), (200, 300)):
        record(ledger, offers[start:end])
        if where == "disk" and end in (2, 200):
            ledger.close()
            ledger = Ledger(tmp_path)
        else:
            ledger._transactions.settle()  # as after an interrupt: what was remembered is forgotten
    rows = list(ledger.all(offers=True))
    assert all(map(same, (row.offer for row in rows), offers))
    for row in rows:
        if row.offer is not None and isinstance(row.offer.actions, list):
            assert row.description == row.offer.actions[0]
    for first, last in ((0, 1), (5, 50), (250, 300), (299, 300)):
        assert all(map(same, (r.offer for r in ledger.between(first, last)), offers[first:last]))
    ledger.close()


def test_offers_in_memory_are_theirs_whatever_follows():
    """They are written many at once, when something is read."""
    ledger, tables = Ledger(None), RNG.normal(size=(700, 8, 6)).astype(np.float32)
    for table in tables:
        told = table.copy()
        record(ledger, [Offer(told, None, None, np.ones(8, bool))])
        told[:] = 0.0  # the caller's
    found = [row.offer.actions for row in ledger.all(offers=True) if row.offer is not None]
    assert np.array_equal(found, tables)


def test_what_repeats_is_kept_once(tmp_path):
    wide = RNG.normal(size=(50, 97)).astype(np.float32)
    ledger, free, choice = Ledger(tmp_path), np.ones(20, bool), np.random.default_rng(1)
    for _ in range(400):  # the same twenty, in another context each time
        context = choice.normal(size=3).astype(np.float32)
        record(ledger, [Offer(wide[:20], context, None, free)])
    assert ledger.ask("SELECT count(*) FROM offers") == 1
    for _ in range(100):  # twenty of fifty
        record(ledger, [Offer(wide[choice.permutation(50)[:20]], None, None, free)])
    assert ledger.ask("SELECT count(*) FROM offers") == 101
    rows = ledger.ask("SELECT sum(length(rows)) FROM items")
    assert rows == 50 * 97 * 4  # every row once
    assert ledger.ask("SELECT sum(length(items)) FROM offers") <= 100 * 20 * 6
    again = Offer(wide[:20], None, None, free)
    names = again._replace(names=list(range(20)))
    for offer in (again, names, again, again._replace(available=free & (np.arange(20) > 3))):
        record(ledger, [offer])
    assert ledger.ask("SELECT count(*) FROM offers") == 104  # what is available makes none new
    assert ledger.ask("SELECT sum(length(rows)) FROM items") == rows
    said = [f'{{"kind":"{n}","price":{n}}}' for n in range(60)]
    for start in range(10):  # one goes, one comes
        some = said[start : start + 50]
        called = [f"item {n}" for n in range(start, start + 50)]
        record(ledger, [Offer(some, '{"age":3}', called, np.ones(50, bool))])
    assert ledger.ask("SELECT sum(count) FROM items WHERE said IS NOT NULL") == 59
    assert ledger.ask("SELECT sum(length(items)) FROM offers WHERE count = 50") < 10 * 60
    ledger.close()


AGENT = es.EnsembleSampling(es.Linear(dim=3, noise_std=0.5), members=4)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_log_says_everything_that_was_on_offer(tmp_path, where):
    def opened():
        return es.Bandit(AGENT) if where == "memory" else es.Bandit.open(tmp_path, AGENT)

    bandit = opened()
    rows = {"tea": [1.0, 0.5], "coffee": [0.25, 2.0], "juice": [0.0, 4.0]}
    bandit.choose(rows, context=[8.0])
    bandit.choose(rows, context=[16.0], available=["tea", "juice"])
    if where == "disk":
        bandit.close()
        bandit = opened()
    decision = bandit.choose(rows, context=[16.0])
    log = bandit.log()
    assert log["context"] == [[8.0], [16.0], [16.0]]
    assert log["actions"] == [list(rows)] * 3
    assert log["available"] == [[True] * 3, [True, False, True], [True] * 3]
    assert log["offer"] == [list(rows.values())] * 3
    assert log["features"][2] == [16.0, *log["offer"][2][decision.index]]
    assert log["probabilities"][2] == decision.probabilities.tolist()
    assert bandit._ledger.ask("SELECT count(*) FROM offers") == 1
    bandit.close()


def test_descriptions_come_back_field_by_field(tmp_path):
    at = datetime(2024, 2, 3, 7, 30)
    offer = [
        {"id": "x", "kind": "tea", "price": 2, "since": at, "tags": ["new", "ä"]},
        {"id": "y", "kind": "coffee", "price": np.float32(3.5), "day": date(2024, 2, 3)},
    ]
    context = pd.Series({"user": "ann", "age": np.nan, "for": timedelta(hours=2), "new": True})
    with es.Bandit.open(tmp_path) as bandit:
        made = bandit.choose(offer, context=context, subject="ann")
        plain = bandit.choose(["tea", "milk"])
    with es.Bandit.open(tmp_path) as bandit:
        log = bandit.log()
    known = [{k: v for k, v in one.items() if k != "id"} for one in offer]
    assert log["offer"] == [known, ["tea", "milk"]]
    assert log["actions"] == [["x", "y"], ["tea", "milk"]]
    about = {"user": "ann", "age": None, "for": timedelta(hours=2), "new": True}
    assert log["context"] == [about, None]
    assert log["features"] == [known[made.index], ["tea", "milk"][plain.index]]
    assert log["subject"] == ["ann", None]


def test_what_is_said_of_fixed_actions_is_their_context():
    bandit = es.Bandit(actions=["a", "b"])
    bandit.choose(context={"age": 3, "size": 1.5})
    bandit.choose(context={"age": 5, "size": 2.5})
    log = bandit.log()
    assert log["context"] == [{"age": 3, "size": 1.5}, {"age": 5, "size": 2.5}]
    assert log["actions"] == [["a", "b"]] * 2
    assert log["offer"] == [None, None]
    assert bandit._ledger.ask("SELECT count(*) FROM offers") == 1
    plain = es.Bandit(es.EnsembleSampling(es.IndependentArms(3), members=2))
    plain.choose()
    assert plain.log()["context"] == plain.log()["offer"] == [None]
    assert plain.log()["available"] == [[True] * 3]


@pytest.mark.parametrize("described", [False, True])
def test_the_switch_to_keep_only_what_was_chosen_is_remembered(tmp_path, described):
    rows = RNG.normal(size=(4, 3))
    offer = [{"kind": f"k{n}"} for n in range(4)] if described else rows
    agent = None if described else AGENT
    made = []
    for offers in ("chosen", None, "all", None, "chosen"):
        with es.Bandit.open(tmp_path, agent, offers=offers) as bandit:
            made.append(bandit.choose(offer).index)
            log = bandit.log()
    expected = offer if described else rows.astype(np.float32).tolist()
    assert log["offer"] == [None, None, expected, expected, None]
    assert log["features"] == [expected[index] for index in made]
    for wrong in ("some", 3, True):
        with pytest.raises(ValueError, match='offers must be "all" or "chosen", got'):
            es.Bandit(AGENT, offers=wrong)  # pyright: ignore[reportArgumentType]


def test_one_transaction_records_a_decision_and_its_offer(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.choose(RNG.normal(size=(4, 3)))
        said = []
        bandit._ledger._database.connection.set_trace_callback(said.append)
        bandit.choose(RNG.normal(size=(4, 3)))
        assert [word for word in said if word.startswith(("BEGIN", "COMMIT"))] == [
            "BEGIN IMMEDIATE",
            "COMMIT",
        ]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM offers WHERE number = 0", "row 0 of the table offers is missing"),
        ("DELETE FROM offers WHERE number = 3", "row 3 of the table offers is missing"),
        ("DELETE FROM offers WHERE number > 5", r"it has 6 offers, and had \d+"),
        ("UPDATE offers SET count = 7 WHERE number = 2", "row 2 of the table offers is"),
        ("DELETE FROM items WHERE number = 1", "rows of the table items are missing"),
        ("UPDATE items SET rows = x'80' WHERE number = 2", "row 2 of the table items is"),
    ],
)
def test_missing_offers_are_noticed(tmp_path, statement, told):
    with closing(Ledger(tmp_path)) as ledger:
        record(ledger, [offer for offer in random_offers(40) if offer is not None])
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
        db.execute(statement)
    with pytest.raises(ValueError, match=told), closing(Ledger(tmp_path)) as ledger:
        ledger.table()
