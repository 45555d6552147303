"""A log in chunks, in a data frame or in a file says the same, and streams."""

import json
import sys
import tracemalloc
from datetime import datetime
from itertools import chain

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.inputs.offer import Offer
from ensemble_sampling.ledger.export import export
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow

AGENT = es.EnsembleSampling(es.Linear(dim=3, noise_std=0.5), members=4)


@pytest.fixture
def shop(tmp_path):
    """A folder whose log has everything in it, and its log."""
    rng = np.random.default_rng(0)
    with es.Bandit.open(tmp_path / "shop", AGENT, offers="chosen") as bandit:
        bandit.choose(rng.normal(size=(2, 3)))
    with es.Bandit.open(tmp_path / "shop", AGENT, offers="all") as bandit:
        ids = [bandit.choose(rng.normal(size=(k, 3))).id for k in (1, 4, 2)]
        named = {"tea, green": rng.normal(size=3), 'the "best"': rng.normal(size=3)}
        ids += [bandit.choose(named, available=[True, False]).id for _ in range(3)]
        ids.append(bandit.choose({1: rng.normal(size=3), 2: rng.normal(size=3)}).id)
        bandit.learn_many([(ids[1], 0.1), (ids[4], -3.0)])
        bandit.expire(0, 0.0)
        bandit.choose(rng.normal(size=(2, 3)))
        log = bandit.log()
    return tmp_path / "shop", log


def as_text(name):
    return name if isinstance(name, str) or name is None else str(name)


def test_chunks_are_the_log_in_parts(shop):
    folder, log = shop
    with es.Bandit.open(folder, AGENT) as bandit:
        for size in (1, 4, 100):
            parts = list(bandit.log(chunk=size))
            assert max(len(part["id"]) for part in parts) <= size
            joined = {name: list(chain.from_iterable(part[name] for part in parts)) for name in log}
            assert joined == log
        parts = bandit.log(chunk=5)
        next(parts)
        bandit.choose(np.eye(3))  # decided meanwhile
        assert sum(len(part["id"]) for part in parts) == len(log["id"]) - 5
        for wrong in (0, -1, 2.5, "all"):
            with pytest.raises((TypeError, ValueError), match="chunk"):
                bandit.log(chunk=wrong)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_parquet_holds_the_log(shop, tmp_path):
    folder, log = shop
    assert export(folder, tmp_path / "log.parquet") == len(log["id"])
    read = pq.read_table(tmp_path / "log.parquet").to_pydict()
    named = [value and [as_text(item) for item in value] for value in log["actions"]]
    text = {"action": [as_text(value) for value in log["action"]], "actions": named}
    assert read == {**log, **text}
    assert list(read) == list(log)


def test_csv_holds_the_log(shop, tmp_path):
    folder, log = shop
    export(folder, tmp_path / "log.csv")
    frame = pd.read_csv(tmp_path / "log.csv", dtype=str, keep_default_na=False)
    assert list(frame) == list(log)
    for name, column in log.items():
        found = frame[name].to_list()
        if name in ("id", "action"):
            assert found == [as_text(value) or "" for value in column]
        else:
            assert [json.loads(value) if value else None for value in found] == column, name


def test_long_offers_and_what_is_missing_in_them_are_exported_too(tmp_path):
    offer = [{"words": "x" * 30_000, "at": datetime(2026, 3, n)} for n in (1, 2, 3)]
    given = {"words": offer, "rows": np.array([[1.0, np.nan], [0.5, 2.0]])}
    for name, one in given.items():
        with es.Bandit.open(tmp_path / name) as bandit:
            bandit.choose(one)
        export(tmp_path / name, tmp_path / f"{name}.csv")
    first, second = (pd.read_csv(tmp_path / f"{name}.csv")["offer"].to_list()[0] for name in given)
    assert [one["words"] for one in json.loads(first)] == ["x" * 30_000] * 3
    assert json.loads(first)[2]["at"] == {"$time": "2026-03-03T00:00:00"}
    assert json.loads(second) == [[1.0, None], [0.5, 2.0]]


def test_several_outcomes_are_lists_in_parquet(tmp_path):
    learner = es.Linear(dim=3, noise_std=0.5)
    with es.Bandit.open(tmp_path / "shop", es.EnsembleSampling(learner, members=2)) as bandit:
        bandit._ledger.add_decisions(
            [DecisionRow(0, 1.0, 0, None, np.zeros(3, np.float32), np.ones(1, np.float32))]
        )
    ledger = Ledger(tmp_path / "shop")
    ledger.add_outcomes([OutcomeRow(0, [1.0, 2.0], None)])
    ledger.close()
    export(tmp_path / "shop", tmp_path / "log.parquet")
    assert pd.read_parquet(tmp_path / "log.parquet")["outcome"][0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_export_takes_little_memory_however_long_the_log(tmp_path, kind):
    ledger, count, shares = Ledger(tmp_path / "shop"), 3000, np.full(20, 0.05, np.float32)
    rng = np.random.default_rng(0)
    for start in range(0, count, 500):
        tables = rng.normal(size=(500, 20, 50)).astype(np.float32)
        free = np.ones(20, bool)
        ledger.add_decisions(
            [
                DecisionRow(
                    start + n,
                    1.0,
                    0,
                    None,
                    table[0],
                    shares,
                    offer=Offer(table, None, None, free),
                )
                for n, table in enumerate(tables)
            ]
        )
    ledger.close()
    export(tmp_path / "shop", tmp_path / f"first.{kind}")  # imports, and caches fill up
    tracemalloc.start()
    assert export(tmp_path / "shop", tmp_path / f"log.{kind}") == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 3,000 offers of 1,000 numbers are 96 MB as Python's own; a thousand of them and the cache fit.
    assert peak < (80 if kind == "csv" else 60) * 2**20


def test_the_command_line_exports_and_backs_up(shop, tmp_path, monkeypatch):
    folder, log = shop

    def run(*words):
        return CliRunner().invoke(app, [*map(str, words)])

    with es.Bandit.open(folder, AGENT):  # also while it is in use
        done = run("export", folder, tmp_path / "log.csv")
        assert (done.exit_code, done.output) == (0, f"9 decisions in {tmp_path / 'log.csv'}\n")
        done = run("backup", folder, tmp_path / "copy")
        assert (done.exit_code, done.output) == (0, f"9 decisions in {tmp_path / 'copy'}\n")
    with pytest.warns(UserWarning, match="is a copy"):
        copy = es.Bandit.open(tmp_path / "copy", AGENT)
    assert copy.log() == log
    copy.close()
    for words, told in {
        ("export", folder, tmp_path / "log.xls"): "a .parquet or a .csv file",
        ("export", tmp_path / "nothing", tmp_path / "log.csv"): "cannot open the ledger",
        ("backup", folder, tmp_path / "copy"): "exists already",
        ("backup", tmp_path / "nothing", tmp_path / "more"): "cannot open the ledger",
    }.items():
        done = run(*words)
        assert done.exit_code == 2
        assert told in " ".join(done.output.split())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = run("export", folder, tmp_path / "other.parquet")
    assert done.exit_code == 2
    assert "needs pyarrow" in done.output
    assert not list(tmp_path.glob("other*"))
