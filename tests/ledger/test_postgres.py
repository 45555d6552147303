"""What works on a folder works on PostgreSQL, and survives a server that goes away."""

import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from servers import admin, lose, new_place, schema
from states import equal

import ensemble_sampling as es
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.evaluation.sources import read
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger import sqlite
from ensemble_sampling.ledger.export import export
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow

psycopg = pytest.importorskip("psycopg")
AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFERS = np.random.default_rng(0).normal(size=(40, 5, 2))


@pytest.fixture
def place():
    return new_place()


def decided(number):
    features = np.array([number, 0.5], np.float32)
    return DecisionRow(number, 1e9 + number, 1, None, features, np.array([0.25, 0.75], np.float32))


def play(bandit):
    """A bandit's life: decisions of several kinds, outcomes, corrections, a shadow."""
    named = [dict(zip("abcde", offer, strict=True)) for offer in OFFERS[20:]]
    ids = [d.id for d in bandit.choose_many([*OFFERS[:20], *named])]
    bandit.learn_many([(id, float(n) / 3) for n, id in enumerate(ids[5:25])])
    bandit.shadow("other", es.EnsembleSampling(es.Linear(dim=2), members=3))
    for offer in OFFERS[:10]:
        bandit.learn(bandit.choose(offer, available=[True, False, True, True, True]).id, -0.0)
    bandit.correct(ids[5], 7.0)
    bandit.add(ids[6], 1.5, ref="order 1")
    assert not bandit.add(ids[6], 1.5, ref="order 1")
    rows = {"x": list(OFFERS[0]), "y": [0.0, 1.0, 0.5, 0.25, 2.0]}
    bandit.learn_from(rows, features="x", outcome="y")
    bandit.choose(OFFERS[0])
    return bandit.log(), bandit.state, bandit.opinions("other"), bandit.summary()


def test_a_bandit_lives_in_postgres_as_in_a_folder(place, tmp_path):
    with es.Bandit.open(place, AGENT) as there, es.Bandit.open(tmp_path / "shop", AGENT) as here:
        (log, state, said, summary), (log_here, state_here, said_here, expected) = (
            play(there),
            play(here),
        )
        times = ("time", "learned", "revised", "id")
        assert {k: v for k, v in log.items() if k not in times} == {
            k: v for k, v in log_here.items() if k not in times
        }
        assert equal(state, state_here)
        assert said["probability"] == said_here["probability"]
        assert summary.reward == pytest.approx(expected.reward, rel=1e-12)
        assert summary.shadows[0].agreement == pytest.approx(expected.shadows[0].agreement)
        assert summary.shadows[0].value == pytest.approx(expected.shadows[0].value)
        assert (summary.expired, summary.revised) == (expected.expired, expected.revised)
        there.backup(tmp_path / "backup")
    assert inspect(place).decisions == summary.decisions
    with es.Bandit.open(place, AGENT) as again:  # from its snapshot
        assert equal(again.state, state)
        assert again.log() == log
    for kind in ("csv", "parquet"):
        assert export(place, tmp_path / f"log.{kind}") == summary.decisions
    with pytest.warns(UserWarning, match="is a copy"):
        copy = es.Bandit.open(tmp_path / "backup", AGENT)
    with copy:
        assert copy.log() == log
        assert equal(copy.state, state)


def test_the_same_decisions_and_state_without_a_snapshot_and_after_a_migration(place):
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=5)
    with pytest.raises(FileNotFoundError, match="there is no ledger in postgresql://"):
        es.Bandit.migrate(place, other)
    with es.Bandit.open(place, AGENT) as bandit:
        *_, state, _, _ = play(bandit)
        bandit._ledger.discard("state.safetensors")
        bandit._ledger.close()
    with es.Bandit.open(place, AGENT) as bandit:
        assert equal(bandit.state, state)
    with es.Bandit.migrate(place, other) as bandit:
        migrated = bandit.state
    with es.Bandit.open(place, other) as bandit:
        assert equal(bandit.state, migrated)
    with pytest.raises(ValueError, match="members: 5 -> 4") as told:
        es.Bandit.open(place, AGENT)
    assert "host=" not in str(told.value)


def test_evaluation_reads_from_postgres(place):
    with es.Bandit.open(place, es.Uniform(), seed=3) as bandit:
        for offer in OFFERS:
            decision = bandit.choose(offer)
            bandit.learn(decision.id, float(offer[decision.index].sum()))
        inside, outside = read(bandit), read(place)
    assert np.array_equal(inside.chosen, outside.chosen)
    assert len(inside.chosen) == 40


def test_one_writes_alone_or_several_in_turns(place):
    with closing(Ledger(place)):
        with pytest.raises(OSError, match="another process has it open for writing"):
            Ledger(place)
        with pytest.raises(OSError, match="another process has it open for writing"):
            Ledger(place, shared=True)
        assert Ledger(place, write=False).decisions == 0
    with closing(Ledger(place, shared=True)):
        with pytest.raises(OSError, match="it is being served: ask the service, or stop it"):
            Ledger(place)
        Ledger(place, shared=True).close()


def test_what_is_not_there_or_no_ledger_is_said(place):
    with pytest.raises(OSError, match="it holds no decisions"):
        Ledger(place, write=False)
    with pytest.raises(OSError, match="it holds no decisions"):
        inspect(place)
    with pytest.raises(ValueError, match=r"follows the # .* letters, digits, - and _"):
        Ledger("postgresql://nowhere/x#a b")
    admin(f'CREATE SCHEMA "{schema(place)}"')
    admin(f'CREATE TABLE "{schema(place)}".mine (x TEXT)')
    with pytest.raises(OSError, match="cannot open the ledger in postgresql"):
        Ledger(place)


def test_no_password_is_in_a_message():
    url = "postgresql://me:secret@localhost:1/db?password=secret2#shop"
    assert sqlite.public(url) == "postgresql://localhost:1/db#shop"
    began = time.monotonic()
    with pytest.raises(OSError, match="cannot open the ledger in postgresql://localhost:1") as told:
        Ledger(url)
    assert time.monotonic() - began < 20
    assert "secret" not in str(told.value)


def test_rows_and_tables_that_were_tampered_with_are_noticed(place):
    with closing(Ledger(place)) as ledger:
        ledger.add_decisions([decided(n) for n in range(300)])
        ledger.add_outcomes([OutcomeRow(n, 1.0, 1.0) for n in range(300)])
    table = f'"{schema(place)}".decisions'
    admin(f"UPDATE {table} SET chosen = 0 WHERE number = 7")
    with closing(Ledger(place)) as ledger, pytest.raises(Damaged, match="row 7 of the table"):
        ledger.table()
    admin(f'ALTER TABLE {table} RENAME COLUMN chosen TO "choice"')
    with pytest.raises(Damaged, match="its table decisions is missing or altered"):
        Ledger(place)


@pytest.mark.parametrize("shared", [False, True])
def test_after_the_connection_was_lost_the_next_call_works(place, shared):
    with closing(Ledger(place, shared=shared)) as ledger:
        ledger.add_decisions([decided(0)])
        lose(place)
        assert ledger.decision(0) is not None
        lose(place)
        ledger.add_decisions([decided(1)])
        lose(place)
        assert ledger.stored("x") is None
        lose(place)
        ledger.store("x", b"1", durable=False)
        lose(place)
        with ledger.turn():
            ledger.add_outcomes([OutcomeRow(1, 1.0, 1.0)])
            assert ledger.decisions == 2
        lose(place)
        assert ledger.lease("a", 60)
        assert ledger.table()["outcome"] == [None, 1.0]


def test_lost_in_the_middle_of_a_turn_nothing_of_it_is_there(place):
    with closing(Ledger(place, shared=True)) as ledger:
        ledger.add_decisions([decided(0)])
        with pytest.raises(OSError, match="nothing"):
            loses_in_a_turn(ledger, place)
        assert ledger.decisions == 1
        ledger.add_decisions([decided(1)])
        assert [row.number for row in ledger.all()] == [0, 1]


def loses_in_a_turn(ledger, place):
    with ledger.turn():
        ledger.add_decisions([decided(1)])
        lose(place)
        ledger.add_decisions([decided(2)])


def test_lost_while_it_commits_its_fate_is_unknown_and_looked_up_next(place, monkeypatch):
    with closing(Ledger(place, shared=True)) as ledger:
        commit = ledger._database.commit
        ledger.add_decisions([decided(0)])

        def lost_after():
            commit()
            lose(place)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(ledger._database, "commit", lost_after)
        with pytest.raises(OSError, match="may or may not have been recorded"):
            ledger.add_decisions([decided(1)])
        monkeypatch.undo()
        assert ledger.decisions == 2
        ledger.add_decisions([decided(2)])
        assert len(ledger.table()["id"]) == 3


def test_a_ledger_restored_from_a_dump_goes_on_by_another_id(place):
    with closing(Ledger(place)) as ledger:
        ledger.add_decisions([decided(0)])
        first = ledger.decision_id(0)
    copy = f"{place}-copy"
    dump = f"{schema(place)}-copy"
    admin(f'CREATE SCHEMA "{dump}"')
    tables = admin("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema(place))
    for (table,) in tables or ():
        source = f'"{schema(place)}".{table}'
        admin(f'CREATE TABLE "{dump}".{table} (LIKE {source} INCLUDING ALL)')
        admin(f'INSERT INTO "{dump}".{table} SELECT * FROM {source}')
    with pytest.warns(UserWarning, match="is a copy"):
        ledger = Ledger(copy)
    with closing(ledger):
        ledger.add_decisions([decided(1)])
        assert ledger.decision_id(0) == first
        assert ledger.decision_id(1)[:12] != first[:12]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ledger(copy).close()


@pytest.mark.slow
def test_a_server_that_is_killed_or_restarted_is_found_again():
    """A server of its own, since it is killed."""
    code = Path(__file__).with_name("killed_server.py")
    subprocess.run([sys.executable, str(code)], check=True, timeout=120)
