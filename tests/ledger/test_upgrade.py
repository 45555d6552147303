"""Folders made by the version before are brought up to date by one command, and lose nothing."""

# pyright: reportCallIssue=false, reportArgumentType=false

import json
import sqlite3
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import jax
import numpy as np
import psycopg
import pytest
from servers import admin, new_place
from servers import schema as schema_of
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger import schema
from ensemble_sampling.ledger import upgrade as module
from ensemble_sampling.ledger.postgres import BLOBS, translated
from ensemble_sampling.ledger.upgrade import upgrade

FOLDERS = Path(__file__).with_name("format-4.zip")  # written by that version
LINEAR = es.EnsembleSampling(es.Linear(3, noise_std=0.5), 4)
AGENTS = {
    "rows": LINEAR,
    "context": es.EnsembleSampling(es.Linear(3), 4),
    "named": None,
    "words": None,
    "chosen": LINEAR,
}
CATALOGUE = np.random.default_rng(0).normal(size=(12, 3))
HOT, COLD = {"kind": "hot", "price": 2.0}, {"kind": "cold", "price": 3.0}
PROBES = {
    "rows": lambda b: b.predict(CATALOGUE[:4]),
    "context": lambda b: b.predict(np.eye(3, 2), context=[2.0]),
    "named": lambda b: b.predict(context={"age": 30, "hour": 4}),
    "chosen": lambda b: b.predict(CATALOGUE[:4]),
}
COPY = "ignore:the ledger in .* is a copy:UserWarning"


@pytest.fixture
def folders(tmp_path):
    with zipfile.ZipFile(FOLDERS) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def sums(state):
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    return [float(leaf.astype(float).sum()) for leaf in leaves if leaf.dtype.kind == "f"]


@pytest.mark.filterwarnings(COPY)
@pytest.mark.parametrize("name", AGENTS)
def test_nothing_is_lost_and_the_state_is_the_same(folders, name):
    before = json.loads((folders / "expected.json").read_text())[name]
    with pytest.raises(ValueError, match=r"has format 4, .* `ensemble-sampling upgrade`"):
        es.Bandit.open(folders / name, AGENTS[name])
    assert upgrade(folders / name).decisions == len(before["log"]["id"])
    assert upgrade(folders / name) == (len(before["log"]["id"]), 0, True)  # nothing is left to do
    with es.Bandit.open(folders / name, AGENTS[name]) as bandit:
        log = bandit.log()
        for column, values in before["log"].items():
            assert log[column] == values, column
        if "features" in before:
            assert log["features"] == before["features"]
        if "offer" in before:
            assert log["offer"] == before["offer"]
        np.testing.assert_allclose(sums(bandit.state), before["state"], rtol=1e-5, atol=1e-5)
        if name in PROBES:
            found = PROBES[name](bandit).probabilities
            np.testing.assert_allclose(found, before["probabilities"], atol=1e-6)


@pytest.mark.filterwarnings(COPY)
def test_hashed_rows_go_on_beside_words(folders):
    upgrade(folders / "words")
    with es.Bandit.open(folders / "words") as bandit:
        made = bandit.choose({"x": HOT, "y": COLD}, context={"user": "ann"})
        bandit.learn(made.id, 1.0)
        state, log = bandit.state, bandit.log()
        assert log["context"] == [None] * 30 + [{"user": "ann"}]
        assert log["offer"][-1] == [HOT, COLD]
        assert len(log["features"][0]) == 256
    (folders / "words" / "state.safetensors").unlink()
    with es.Bandit.open(folders / "words") as bandit:
        assert sums(bandit.state) == sums(state)
    with (
        pytest.warns(UserWarning, match="30 of 31 decisions were hashed by a version that did not"),
        es.Bandit.migrate(folders / "words", hasher=es.Hasher(64)) as bandit,
    ):
        assert bandit.summary().outcomes == 31


@pytest.mark.filterwarnings(COPY)
def test_what_was_hashed_in_a_way_that_is_no_more_is_kept_but_not_learned(folders):
    upgrade(folders / "unmixed")
    agent = es.EnsembleSampling(es.Linear(32), 3)
    with es.Bandit.open(folders / "unmixed", agent, hasher=es.Hasher(32)) as bandit:
        assert bandit.summary().outcomes == 10
        bandit.learn(bandit.choose([HOT, COLD]).id, 1.0)
        fresh = es.Bandit(agent, hasher=es.Hasher(32))
        fresh.choose([HOT, COLD])
        assert sums(bandit.state) != sums(fresh.state)


@pytest.mark.parametrize("step", range(1, 18, 4))
def test_an_upgrade_that_is_cut_short_leaves_the_old_ledger(folders, monkeypatch, step):
    def stopped(table, row, count=[0]):  # noqa: B006
        count[0] += 1
        if count[0] == step * 10:
            raise KeyboardInterrupt
        return seal(table, row)

    seal = module.seal
    monkeypatch.setattr(module, "seal", stopped)
    with suppress(KeyboardInterrupt):
        upgrade(folders / "rows")
    monkeypatch.undo()
    with closing(sqlite3.connect(folders / "rows" / "ledger.sqlite")) as db:
        assert schema.read_format(db) == 4
    assert upgrade(folders / "rows") == (60, 0, True)


def test_what_was_lost_before_is_missed(folders):
    with closing(sqlite3.connect(folders / "rows" / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("DELETE FROM outcomes WHERE sequence > 20")
    with pytest.raises(Damaged, match="it has 20 outcomes, and had 40"):
        upgrade(folders / "rows")


def test_a_folder_whose_metrics_refer_to_decisions_is_opened_as_it_is(folders):
    """As folders of this format once had it."""
    upgrade(folders / "rows")
    with closing(sqlite3.connect(folders / "rows" / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        change = "sql = replace(sql, 'decision INTEGER NOT NULL', 'decision INTEGER NOT NULL{}')"
        where = "WHERE type = 'table' AND name = 'metrics'"
        db.execute(f"UPDATE sqlite_master SET {change.format(schema.FOREIGN)} {where}")
    with es.Bandit.open(folders / "rows", LINEAR) as bandit:
        bandit.observe(bandit.choose(CATALOGUE[:4]).id, {"margin": 1.0})
        bandit._ledger.retain(1e12, bandit._base_states)
        assert bandit.log()["id"] == []
    with closing(sqlite3.connect(folders / "rows" / "ledger.sqlite")) as db:
        assert schema.FOREIGN not in schema.SCHEMA["metrics"]
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'metrics'").fetchone()
        assert schema.FOREIGN in sql


def test_what_is_none_is_refused(folders):
    with pytest.raises(ValueError, match="no ledger"):
        upgrade(folders / "nothing")
    with closing(sqlite3.connect(folders / "rows" / "ledger.sqlite", isolation_level=None)) as db:
        for found in (1, 3):
            db.execute("UPDATE about SET value = ? WHERE name = 'format'", (str(found),))
            no = f"format {found}, and this version .*it can neither be read nor upgraded. Export"
            with pytest.raises(ValueError, match=no) as opened:
                es.Bandit.open(folders / "rows", LINEAR)
            with pytest.raises(ValueError, match=no):
                upgrade(folders / "rows")
            assert "`ensemble-sampling upgrade`" not in str(opened.value)
        newer = (str(schema.FORMAT + 1),)
        db.execute("UPDATE about SET value = ? WHERE name = 'format'", newer)
    said = f"upgrades format {schema.BEFORE}: update ensemble-sampling"
    with pytest.raises(ValueError, match=said):
        upgrade(folders / "rows")


def test_the_command_says_what_was_done(folders):
    found = CliRunner().invoke(app, ["upgrade", str(folders / "named")])
    assert found.exit_code == 0
    assert found.output.endswith("named: 30 decisions\n")
    found = CliRunner().invoke(app, ["upgrade", str(folders / "words")])
    assert "30 decisions; of 30 the words are gone" in found.output
    assert "learned from as long as words are hashed the same way" in found.output
    assert upgrade(folders / "words") == (30, 0, True)
    assert "stay in the log, and are not learned from" in str(upgrade(folders / "unmixed"))
    found = CliRunner().invoke(app, ["upgrade", str(folders / "none")])
    assert found.exit_code == 2
    assert "no ledger" in found.output


@pytest.mark.filterwarnings(COPY)
@pytest.mark.parametrize("name", ["rows", "named"])
def test_a_database_is_upgraded_as_a_folder_is(folders, name):
    """With the tables and rows of a folder, as that version had them in PostgreSQL."""
    place = new_place()
    there = schema_of(place)
    admin(f'CREATE SCHEMA "{there}"')
    with (
        closing(sqlite3.connect(folders / name / "ledger.sqlite")) as source,
        psycopg.connect(place.split("#")[0], options=f"-c search_path={there}") as target,
    ):
        blobs = f"CREATE TABLE blobs ({', '.join(BLOBS)})"
        tables = source.execute("SELECT name, sql FROM sqlite_master WHERE sql > ''").fetchall()
        target.execute(translated(blobs))
        for table, statement in tables:
            target.execute(translated(statement))
            for row in source.execute(f"SELECT * FROM {table}"):
                marks = ", ".join(["%s"] * len(row))
                target.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    count = upgrade(place).decisions
    upgrade(folders / name)
    with (
        es.Bandit.open(place, AGENTS[name]) as one,
        es.Bandit.open(folders / name, AGENTS[name]) as other,
    ):
        assert one.summary().decisions == count
        assert one.log() == other.log()
        assert sums(one.state) == sums(other.state)
