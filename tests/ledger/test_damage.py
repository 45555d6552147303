"""A ledger with a flipped bit or a missing row says so, and names it; older ledgers are read."""

import random
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger import schema
from ensemble_sampling.ledger.ledger import Ledger

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFERS = np.random.default_rng(0).normal(size=(40, 5, 2))
FLIPS = 300


@pytest.fixture
def folder(tmp_path):
    """A closed ledger of forty decisions, some named, with thirty outcomes."""
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        named = [dict(zip("abcde", offer, strict=True)) for offer in OFFERS[20:]]
        ids = [d.id for d in bandit.choose_many([*OFFERS[:20], *named])]
        bandit.learn_many([(id, float(n) / 3) for n, id in enumerate(ids[5:35])])
    (tmp_path / "shop" / "state.safetensors").unlink()
    return tmp_path / "shop"


def contents(folder):
    """All there is to know: agents, ids, log and the order of learning."""
    with closing(Ledger(folder)) as ledger:
        order = [row.number for row in ledger.learned(after=0)]
        names = [ledger.number(id) for id in ledger.table()["id"]]
        pending = ledger.pending(before=1e12)
        return ledger.description, ledger.table(), order, names, pending


def change(folder, statement, *values):
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as db:
        db.execute(statement, values)


def test_a_flipped_bit_changes_nothing_or_is_noticed(folder):
    path = folder / "ledger.sqlite"
    good, before = path.read_bytes(), contents(folder)
    dice, noticed = random.Random(0), []
    used = [8 * n + bit for n, byte in enumerate(good) if byte for bit in range(8)]  # the rest is 0
    for bit in dice.sample(used, FLIPS):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        for name in ("-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        path.write_bytes(bytes(flipped))
        try:
            after = contents(folder)
        except (OSError, ValueError) as error:
            noticed.append(str(error))
        else:
            assert after == before, f"bit {bit} went unnoticed"
    assert all(str(folder) in told for told in noticed)
    assert len(noticed) > 0.9 * FLIPS


def test_a_page_that_does_not_fit_the_others_is_said_to_be_damage_again_and_again(folder):
    path = folder / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'decisions'"
        page, size = db.execute(query).fetchone()[0], db.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(Damaged, match=r"which is damaged: .* malformed; restore a backup"):
            contents(folder)


ROWS = {"decisions": "number = 7", "outcomes": "sequence = 7", "offers": "decision = 7"}
ROWS |= {"items": "number = 3", "agents": "number = 1"}
FIELDS = [
    (table, row, column.split()[0])
    for table, row in ROWS.items()
    for column in (*schema.COLUMNS[table][1:], "checksum BLOB")
]
FIELDS += [("about", "name = 'precision'", "value"), ("ids", "number = 0", "id")]


@pytest.mark.parametrize(("table", "row", "column"), FIELDS)
def test_every_field_of_every_row_is_under_its_checksum(folder, table, row, column):
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db:
        value = db.execute(f"SELECT {column} FROM {table} WHERE {row}").fetchone()[0]
    other = {bytes: b"x" * 8, str: "0", int: 3, float: 0.1, type(None): "0"}[type(value)]
    other = 4 if other == value else other
    change(folder, f"UPDATE {table} SET {column} = ? WHERE {row}", other)
    where = row.split(" = ")[1]
    with pytest.raises(Damaged, match=rf"{folder}.*damaged: row {where} of the table {table} is"):
        contents(folder)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM decisions WHERE number = 3", "row 3 of the table decisions is missing"),
        ("DELETE FROM outcomes WHERE sequence = 3", "row 3 of the table outcomes is missing"),
        ("DELETE FROM decisions WHERE number = 39", "it has 39 decisions, and had 40"),
        ("DELETE FROM outcomes WHERE sequence > 20", "it has 20 outcomes, and had 30"),
        ("DELETE FROM agents", "it has 0 agents, and had 2"),
        ("DELETE FROM about WHERE name = 'file'", "the table about lacks file"),
        ("DROP TABLE agents", "its table agents is missing or altered"),
        ("ALTER TABLE decisions RENAME COLUMN chosen TO choice", "its table decisions is missing"),
    ],
)
def test_missing_rows_and_tables_are_noticed(folder, statement, told):
    change(folder, statement)
    with pytest.raises(Damaged, match=told):
        contents(folder)


def test_a_row_that_lost_its_decision_is_noticed_when_it_is_replayed(folder):
    change(folder, "DELETE FROM decisions WHERE number = 9")
    with pytest.raises(Damaged, match="row 9 of the table decisions is missing"):
        es.Bandit.open(folder, AGENT)


def test_an_index_that_lost_an_outcome_is_noticed(folder):
    """Its decision would seem to wait for one."""
    with closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as db:
        index = "name = 'sqlite_autoindex_outcomes_1'"
        page = db.execute(f"SELECT rootpage FROM sqlite_master WHERE {index}").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray((folder / "ledger.sqlite").read_bytes())
    content[(page - 1) * size + 4] -= 1  # the low byte of how many entries the page has
    (folder / "ledger.sqlite").write_bytes(bytes(content))
    with closing(Ledger(folder)) as ledger:
        with pytest.raises(Damaged, match="its index of outcomes does not fit them"):
            ledger.pending(before=1e12)
        with pytest.raises(Damaged, match="its index of outcomes does not fit them"):
            ledger.table()


def checksum(table, row):
    return schema.seal(table, row)[-1]


def test_a_checksum_tells_kinds_of_values_apart():
    rows = [(0,), (b"",), ("",), (None,), (0.0,), ("0",), (b"\0",), (1,), ("None",)]
    assert len({checksum("about", row) for row in rows}) == len(rows)
    assert checksum("about", (1, b"ab", b"c")) != checksum("about", (1, b"a", b"bc"))
    assert checksum("about", (1,)) != checksum("ids", (1,))


def test_numbers_come_back_as_they_were_recorded(tmp_path):
    """SQLite keeps no sign of zero and no not-a-number: no damage."""
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        for outcome in (-0.0, 0.0, 1e-300, 1e9, 3.0, 1 / 3, -5.0):
            bandit.learn(bandit.choose(OFFERS[0]).id, outcome)
    with closing(Ledger(tmp_path)) as ledger:
        assert ledger.table()["outcome"] == [-0.0, 0.0, 1e-300, 1e9, 3.0, 1 / 3, -5.0]
