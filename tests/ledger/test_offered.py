"""What was on offer comes back from the ledger as it was, and what repeats is kept once."""

# pyright: reportAttributeAccessIssue=false

import sqlite3
from contextlib import closing

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.ledger import offers as stored
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger
from ensemble_sampling.ledger.offers import StoredOffer, packed, unpacked

RNG = np.random.default_rng(0)
CATALOGUE = RNG.normal(size=(30, 6)).astype(np.float32)


def random_offers(count, seed=0):
    """Some of a catalogue in any order, now and then the last offer again, or nothing known."""
    rng, last = np.random.default_rng(seed), None
    for number in range(count):
        kind = rng.integers(6)
        if kind == 0 and number:
            yield last
            continue
        size, context = int(rng.integers(1, 9)), int(rng.choice([0, 2, 6]))
        rows = CATALOGUE[rng.integers(0, 30, size)].copy()
        rows[:, :context] = rng.normal(size=context)
        if kind == 1:
            rows[:, context:] = np.where(rng.random((size, 6 - context)) < 0.9, 0, -0.0)
        names = [f"n{i}" for i in rng.integers(0, 9, size)] if kind == 2 else None
        free = rng.random(size) < 0.8 if kind == 3 else np.ones(size, bool)
        last = None if kind == 5 else StoredOffer(names, rows, context, free)
        yield last


def record(ledger, offers):
    """Decide the first action of every offer."""
    rows = []
    for number, offer in enumerate(offers, start=ledger.decisions):
        features = CATALOGUE[0] if offer is None else offer.table[0]
        shares = np.ones(1, np.float32)
        rows.append(DecisionRow(number, 1e9, 0, None, features, shares, offer=offer))
    ledger.add_decisions(rows)


def same(one, other):
    if one is None or other is None:
        return one is other
    names = [None if offer.names is None else list(offer.names) for offer in (one, other)]
    rows = one.rows.tobytes() == other.rows.tobytes()  # also the signs of zeros
    return names[0] == names[1] and rows and np.array_equal(one.available, other.available)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("most", [4, 2**12])
def test_offers_come_back_as_they_were(tmp_path, where, most, monkeypatch):
    monkeypatch.setattr(stored, "OFFERS", most)  # also where little is remembered
    monkeypatch.setattr(stored, "ROWS", 3 * most)
    offers = list(random_offers(300))
    ledger = Ledger(None if where == "memory" else tmp_path)
    for start, end in ((0, 1), (1, 2), (2, 90), (90, 200), (200, 300)):
        record(ledger, offers[start:end])
        if where == "disk" and end in (2, 200):
            ledger.close()
            ledger = Ledger(tmp_path)
        else:
            ledger._transactions.settle()  # as after an interrupt: what was remembered is forgotten
    found = [row.offer for row in ledger.all(offers=True)]
    assert all(map(same, found, offers))
    for first, last in ((0, 1), (5, 50), (250, 300), (299, 300)):
        assert all(map(same, (r.offer for r in ledger.between(first, last)), offers[first:last]))
    ledger.close()


def test_offers_in_memory_are_theirs_whatever_follows():
    """They are written many at once, when something is read."""
    ledger, tables = Ledger(None), RNG.normal(size=(700, 8, 6)).astype(np.float32)
    for table in tables:
        told = table.copy()
        record(ledger, [StoredOffer(None, told, 0, np.ones(8, bool))])
        told[:] = 0.0  # the caller's
    found = [row.offer.rows for row in ledger.all(offers=True) if row.offer is not None]
    assert np.array_equal(found, tables)


def test_what_repeats_is_kept_once(tmp_path):
    wide = RNG.normal(size=(50, 100)).astype(np.float32)
    ledger = Ledger(tmp_path)
    free = np.ones(20, bool)
    choice = np.random.default_rng(1)
    for _ in range(400):  # the same twenty, in another context each time
        table = np.concatenate([np.full((20, 3), choice.normal()), wide[:20, 3:]], axis=1)
        record(ledger, [StoredOffer(None, table.astype(np.float32), 3, free)])
    assert ledger.ask("SELECT count(*) FROM offers") == 1
    for _ in range(100):  # twenty of fifty
        record(ledger, [StoredOffer(None, wide[choice.permutation(50)[:20]], 0, free)])
    assert ledger.ask("SELECT count(*) FROM offers") == 101
    stored = ledger.ask("SELECT sum(length(rows)) FROM offers")
    assert stored < (20 * 97 + 50 * 100) * 4 + 200  # every row once
    assert ledger.ask("SELECT sum(length(places)) FROM offers") <= 100 * 20 * 8
    again = StoredOffer(None, wide[:20], 0, free)
    for offer in (again, again._replace(names=list(range(20))), again, again):
        record(ledger, [offer])
    assert ledger.ask("SELECT sum(length(rows)) FROM offers") < stored + 20  # names made it new
    ledger.close()


def test_mostly_zeros_take_little_room_and_signs_are_kept():
    table = np.zeros((4, 64), np.float32)
    table[1, 5], table[3, 63], table[0, 0] = 2.5, -1.0, -0.0
    content = packed(table.tobytes(), table.itemsize)
    assert len(content) == 1 + 3 * 8
    assert unpacked(content, 4, 64, 0, table.dtype).tobytes() == table.tobytes()
    full = np.ones((2, 3))
    content = packed(full.tobytes(), full.itemsize)
    assert unpacked(content, 2, 5, 2, full.dtype).tobytes() == full.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whatever_is_shorter_is_kept(dtype):
    for count in range(65):
        table = np.zeros((1, 64), dtype)
        table[0, :count] = np.where(np.arange(count) % 3, 1.0, np.pi)
        content = packed(table.tobytes(), table.itemsize)
        few = count * (4 + table.itemsize) < 0.8 * table.nbytes
        assert len(content) == 1 + (count * (4 + table.itemsize) if few else table.nbytes)
        assert unpacked(content, 1, 64, 0, table.dtype).tobytes() == table.tobytes()


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
    assert log["offer"][1] == [[16.0, *row] for row in rows.values()]
    assert log["offer"][2][decision.index] == log["features"][2]
    assert log["probabilities"][2] == decision.probabilities.tolist()
    assert bandit._ledger.ask("SELECT count(*) FROM offers") == 3
    bandit.close()


def test_actions_that_share_a_context_are_all_there():
    bandit = es.Bandit(actions=["a", "b"])
    bandit.choose(context={"age": 3.0, "size": 1.0})
    bandit.choose(context={"age": 5.0, "size": 2.0})
    log = bandit.log()
    assert log["context"] == [[3.0, 1.0], [5.0, 2.0]]
    assert log["actions"] == [["a", "b"]] * 2
    assert log["offer"] == [[[3.0, 1.0]] * 2, [[5.0, 2.0]] * 2]
    assert bandit._ledger.ask("SELECT count(*) FROM offers") == 1
    plain = es.Bandit(es.EnsembleSampling(es.IndependentArms(3), members=2))
    plain.choose()
    assert plain.log()["offer"] == [[[], [], []]]
    assert plain.log()["context"] == [None]


def test_hashed_descriptions_are_kept_as_the_agent_saw_them():
    bandit = es.Bandit()
    offer = {"x": {"kind": "tea", "price": 2.0}, "y": {"kind": "coffee", "price": 3.0}}
    bandit.choose(offer, context={"user": "ann"})
    hashed = es.Hasher(256, numbers=64, names=True, mixed=True)(
        list(offer.values()), {"user": "ann"}, list(offer)
    )
    assert bandit.log()["offer"] == [hashed.astype(np.float32).tolist()]
    assert bandit._ledger.ask("SELECT length(rows) FROM offers") < 2 * 256


def test_the_switch_to_keep_only_what_was_chosen_is_remembered(tmp_path):
    offer = RNG.normal(size=(4, 3))
    with es.Bandit.open(tmp_path, AGENT, offers="chosen") as bandit:
        bandit.choose(offer)
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.choose(offer)
    with es.Bandit.open(tmp_path, AGENT, offers="all") as bandit:
        bandit.choose(offer)
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        bandit.choose(offer)
    with es.Bandit.open(tmp_path, AGENT, offers="chosen") as bandit:
        bandit.choose(offer)
        log = bandit.log()
    expected = offer.astype(np.float32).tolist()
    assert log["offer"] == [None, None, expected, expected, None]
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
        ("UPDATE offers SET available = x'80' WHERE number = 2", "row 2 of the table offers is"),
    ],
)
def test_missing_offers_are_noticed(tmp_path, statement, told):
    with closing(Ledger(tmp_path)) as ledger:
        record(ledger, [offer for offer in random_offers(40) if offer is not None])
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as db:
        db.execute(statement)
    if "row 2" in told:
        told = r"row \d+ of the table offers is not what was written"
    with pytest.raises(ValueError, match=told), closing(Ledger(tmp_path)) as ledger:
        ledger.table()
