"""The ledger keeps what it acknowledged, and says clearly what is wrong with what it finds."""

import json
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from states import equal
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling.cli import app
from ensemble_sampling.decide import snapshots
from ensemble_sampling.decide.snapshots import Snapshot
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow
from ensemble_sampling.ledger.schema import FORMAT

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFERS = np.random.default_rng(0).normal(size=(30, 5, 2))


def play(bandit, offers):
    decisions = []
    for offer in offers:
        decisions.append(bandit.choose(offer))
        bandit.learn(decisions[-1].id, float(offer[decisions[-1].index].sum()))
    return decisions


@pytest.fixture
def shop(tmp_path):
    """A folder with ten decisions and outcomes and a snapshot, closed; and its state."""
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        play(bandit, OFFERS[:10])
        state = bandit.state
    return tmp_path / "shop", state


def test_reopening_goes_on_as_if_it_had_never_been_closed(tmp_path):
    with es.Bandit.open(tmp_path / "whole", AGENT) as whole:
        decisions = play(whole, OFFERS)
        state = whole.state
    parts = []
    for n in range(0, 30, 10):
        with es.Bandit.open(tmp_path / "parts", AGENT) as bandit:
            parts += play(bandit, OFFERS[n : n + 10])
    assert [d.index for d in decisions] == [d.index for d in parts]
    with es.Bandit.open(tmp_path / "parts", AGENT) as bandit:
        assert equal(bandit.state, state)


def test_without_snapshots_the_ledger_replays_to_the_same_state(shop):
    folder, state = shop
    (folder / "state.safetensors").unlink()
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_an_older_snapshot_is_caught_up_with_the_ledger(shop):
    folder, _ = shop
    old = (folder / "state.safetensors").read_bytes()
    with es.Bandit.open(folder, AGENT) as bandit:
        play(bandit, OFFERS[10:15])
        state = bandit.state
    (folder / "state.safetensors").write_bytes(old)
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_memory_and_disk_decide_alike(shop):
    _, state = shop
    bandit = es.Bandit(AGENT)
    play(bandit, OFFERS[:10])
    assert equal(bandit.state, state)


def test_outcomes_may_come_after_a_restart(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        ids = [bandit.choose(offer).id for offer in OFFERS[:3]]
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert bandit.summary().pending == 3
        assert bandit.learn(ids[2], 1.0)
        assert bandit.learn(ids[0], 0.0)
        assert bandit.choose(OFFERS[3]).id.endswith("-3")


def test_snapshots_are_taken_every_so_many_outcomes(tmp_path):
    bandit = es.Bandit.open(tmp_path, AGENT, snapshot_every=4)
    stamp = (tmp_path / "state.safetensors").stat().st_mtime_ns
    play(bandit, OFFERS[:3])
    assert (tmp_path / "state.safetensors").stat().st_mtime_ns == stamp
    play(bandit, OFFERS[3:5])
    assert (tmp_path / "state.safetensors").stat().st_mtime_ns > stamp
    bandit.close()


def test_another_configuration_is_refused_with_the_difference(shop):
    folder, state = shop
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=7)
    with pytest.raises(ValueError, match=r"members: 4 -> 7[\s\S]*migrate"):
        es.Bandit.open(folder, other)
    with pytest.raises(ValueError, match="seed: 0 -> 1"):
        es.Bandit.open(folder, AGENT, seed=1)
    with pytest.raises(ValueError, match="normalise: True -> False"):
        es.Bandit.open(folder, AGENT, normalise=False)
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_migrate_replays_the_history_into_another_agent(shop):
    folder, _ = shop
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.3), members=5)
    with es.Bandit.migrate(folder, other) as bandit:
        migrated = bandit.state
        next_one = bandit.choose(OFFERS[10])
    ledger = Ledger(folder, write=False)
    rows = list(ledger.learned(after=0))
    ledger.close()
    reference = es.Bandit(other)  # as if the new agent had seen the old one's decisions
    reference._ledger.add_decisions(rows)
    reference._ledger.add_outcomes([OutcomeRow(row.number, row.outcome, None) for row in rows])
    assert equal(migrated, reference.state)
    with es.Bandit.open(folder, other) as bandit:
        assert equal(bandit.state, migrated)
        assert bandit.log()["id"][-1] == next_one.id
    with pytest.raises(ValueError, match="members: 5 -> 4"):
        es.Bandit.open(folder, AGENT)


@pytest.mark.filterwarnings("ignore:.*is a copy")
def test_a_migration_to_another_hasher_gives_decision_by_decision_what_it_would_have_learned(
    tmp_path,
):
    """Held to a bandit without a hasher, which is given the rows that the other hasher makes."""

    def agent(width):
        return es.EnsembleSampling(es.Linear(dim=width, noise_std=0.5), members=4)

    hasher, by_hand = es.Hasher(32), es.Bandit(agent(32), normalise=False)
    narrow = {"hasher": es.Hasher(16), "normalise": False}
    for n in range(6):
        offer = [{"kind": kind, "price": 0.1 * n + k} for k, kind in enumerate("abc")]
        said = [json.dumps(one) for one in offer], json.dumps({"hour": n})
        rows = hasher.table(*said)
        with es.Bandit.open(tmp_path / "shop", agent(16), **narrow) as bandit:
            made = bandit.choose(offer, context={"hour": n})
            bandit.learn(made.id, float(np.sin(n)))
            bandit.backup(tmp_path / f"copy-{n}")
        row = DecisionRow(n, 0.0, made.index, None, rows[made.index], made.probabilities)
        by_hand._ledger.add_decisions([row])
        by_hand._ledger.add_outcomes([OutcomeRow(n, float(np.sin(n)), None)])
        moved = es.Bandit.migrate(tmp_path / f"copy-{n}", agent(32), hasher=hasher, normalise=False)
        with moved:
            assert equal(moved.state, by_hand.state)


def test_a_failed_migration_changes_nothing(shop):
    folder, state = shop
    with pytest.raises(ValueError, match="have 2 features, this agent 3"):
        es.Bandit.migrate(folder, es.EnsembleSampling(es.Linear(dim=3), members=4))
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        play(bandit, OFFERS[:2])
        with pytest.raises(OSError, match="this process has it open already"):
            es.Bandit.open(tmp_path, AGENT)
        code = (
            "import sys, ensemble_sampling as es\n"
            "from ensemble_sampling.ledger.ledger import Ledger\n"
            "from ensemble_sampling.decide.summary import inspect\n"
            "from pathlib import Path\n"
            "assert inspect(sys.argv[1]).decisions == 2\n"
            "try: Ledger(Path(sys.argv[1]))\n"
            "except OSError as error: print(error)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert "another process has it open for writing" in ran.stdout
    es.Bandit.open(tmp_path, AGENT).close()


def reopened(folder, warning):
    """The state after opening a folder, which warns."""
    with pytest.warns(UserWarning, match=warning), es.Bandit.open(folder, AGENT) as bandit:
        return bandit.state


def test_a_damaged_snapshot_is_passed_over_and_written_anew(shop):
    folder, state = shop
    path = folder / "state.safetensors"
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[-3] ^= 1
    cuts = [good[:cut] for cut in (0, 5, len(good) // 2, len(good) - 1)]
    for bad in (bytes(flipped), *cuts):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"damaged .*delete it"):
            inspect(folder)
        assert equal(reopened(folder, "is damaged .* rebuilt from the ledger"), state)
        assert inspect(folder).outcomes == 10


def test_a_snapshot_whose_numbers_or_words_were_changed_is_passed_over(shop):
    folder, state = shop
    path = folder / "state.safetensors"
    tensors = load_file(path)
    with safe_open(path, "numpy") as file:
        about = file.metadata()
    save_file({name: array + 1 for name, array in tensors.items()}, path, about)
    assert equal(reopened(folder, "its checksum does not fit"), state)
    for name, value in {"sequence": "9", "diverged": "3", "description": "{}"}.items():
        save_file(tensors, path, {**about, name: value})
        assert equal(reopened(folder, "its checksum does not fit"), state)
    save_file(tensors, path, {key: about[key] for key in about if key != "checksum"})
    assert equal(reopened(folder, "its checksum does not fit"), state)


def test_a_snapshot_of_another_agent_or_shape_is_passed_over(shop, tmp_path):
    folder, state = shop
    path = folder / "state.safetensors"
    _, about = snapshots._read_snapshot(path.read_bytes(), str(path))
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=7)
    with es.Bandit.open(tmp_path / "other", other) as bandit:
        play(bandit, OFFERS[:10])
        foreign = Snapshot(
            bandit._replica.state(bandit._ledger),
            about["ledger"],
            10,
            bandit._replica.setup.description,
            0,
        )
    path.write_bytes(snapshots.pack(foreign))
    assert equal(reopened(folder, "is another agent's"), state)
    other = foreign._replace(description=json.loads(about["description"]))
    path.write_bytes(snapshots.pack(other))
    assert equal(reopened(folder, "does not fit this agent's state"), state)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("agent", [es.Uniform(), es.EnsembleSampling(es.IndependentArms(3), 4)])
def test_a_process_that_dies_before_its_first_snapshot_locks_nobody_out(tmp_path, agent):
    """Its number of features was open when the folder was begun."""
    bandit = es.Bandit.open(tmp_path, agent)
    saved = tmp_path / "state.safetensors"
    early = saved.read_bytes() if saved.exists() else None
    play(bandit, OFFERS[:3, :3])
    state = bandit.state
    bandit._ledger.close()  # as if killed: no snapshot is written
    assert (saved.read_bytes() if saved.exists() else None) == early
    with es.Bandit.open(tmp_path, agent) as bandit:
        assert equal(bandit.state, state)
    with es.Bandit.open(tmp_path, agent) as bandit:
        assert equal(bandit.state, state)


@pytest.mark.filterwarnings("error")
def test_a_snapshot_from_before_the_first_outcome_is_of_no_account(shop):
    folder, state = shop
    path = folder / "state.safetensors"
    _, about = snapshots._read_snapshot(path.read_bytes(), str(path))
    empty = Snapshot(np.zeros(3), about["ledger"], 0, json.loads(about["description"]), 0)
    path.write_bytes(snapshots.pack(empty))
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


@pytest.mark.filterwarnings("error")
def test_a_migration_that_cannot_save_leaves_no_snapshot_of_the_old_agent(shop, monkeypatch):
    folder, _ = shop
    other = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=7)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ensemble_sampling.decide.replica.pack", full)
    with pytest.raises(OSError, match="No space left"):
        es.Bandit.migrate(folder, other)
    monkeypatch.undo()
    assert not (folder / "state.safetensors").exists()
    es.Bandit.open(folder, other).close()


def test_a_snapshot_of_another_ledger_is_refused(shop, tmp_path):
    folder, _ = shop
    with es.Bandit.open(tmp_path / "other", AGENT) as bandit:
        play(bandit, OFFERS[:1])
    stray = (folder / "state.safetensors").read_bytes()
    (tmp_path / "other" / "state.safetensors").write_bytes(stray)
    with pytest.raises(ValueError, match="belongs to another ledger"):
        es.Bandit.open(tmp_path / "other", AGENT)


def test_a_ledger_older_than_its_snapshot_is_refused(shop, tmp_path):
    folder, _ = shop
    old = (folder / "ledger.sqlite").read_bytes()
    with es.Bandit.open(folder, AGENT) as bandit:
        play(bandit, OFFERS[10:15])
    (folder / "ledger.sqlite").write_bytes(old)
    with pytest.raises(ValueError, match="knows 15 outcomes, the ledger beside it only 10"):
        es.Bandit.open(folder, AGENT)


def test_a_newer_format_is_refused(shop):
    folder, _ = shop
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        db.execute("UPDATE about SET value = ? WHERE name = 'format'", (str(FORMAT + 1),))
    said = f"has format {FORMAT + 1}, and this version reads format {FORMAT}: update"
    with pytest.raises(ValueError, match=said):
        es.Bandit.open(folder, AGENT)
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        assert db.execute("SELECT count(*) FROM outcomes").fetchone() == (10,)


def test_what_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "ledger.sqlite").write_text("not a database, but long enough to be read as one")
    with pytest.raises(ValueError, match=r"cannot open the ledger .* not a database"):
        es.Bandit.open(tmp_path, AGENT)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="cannot open the ledger"):
        es.Bandit.open(tmp_path / "file", AGENT)
    with pytest.raises(OSError, match="cannot open the ledger"):
        inspect(tmp_path / "nothing")
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / "ledger.sqlite") as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(ValueError, match="holds no ledger"):
        es.Bandit.open(other, AGENT)


@contextmanager
def small_disk(most):
    """No file may grow beyond `most` bytes: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(bandit):
    """Decide and learn until the disk is full; what was acknowledged, and what failed."""
    known = []
    for offer in np.resize(OFFERS, (2000, 5, 2)):
        try:
            decision = bandit.choose(offer)
        except OSError as error:
            return known, error
        known.append([decision, None])
        try:
            bandit.learn(decision.id, 1.0)
        except OSError as error:
            return known, error
        known[-1][1] = 1.0
    raise AssertionError("the disk never filled")


@pytest.mark.parametrize("how", ["limit", "pages"])
def test_a_full_disk_loses_nothing(tmp_path, how):
    bandit = es.Bandit.open(tmp_path, AGENT)
    play(bandit, OFFERS[:1])
    if how == "limit":
        with small_disk((tmp_path / "ledger.sqlite-wal").stat().st_size + 40_000):
            known, error = fill(bandit)
    else:
        pages = bandit._ledger._database.execute("PRAGMA page_count").fetchone()[0]
        bandit._ledger._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        known, error = fill(bandit)
        bandit._ledger._database.execute("PRAGMA max_page_count = 1000000")
    assert "nothing was recorded" in str(error)
    state, log = bandit.state, bandit.log()
    bandit._replica.version = None
    assert equal(bandit.state, state)  # the ledger knows just what the state knows
    assert log["id"][1:] == [d.id for d, _ in known]
    assert log["outcome"][1:] == [y for _, y in known]
    play(bandit, OFFERS[1:3])  # there is room again
    bandit.close()
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert bandit.summary().decisions == len(known) + 3


def test_a_snapshot_that_cannot_be_written_is_only_a_warning(tmp_path, monkeypatch):
    bandit = es.Bandit.open(tmp_path, AGENT, snapshot_every=2)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ensemble_sampling.decide.replica.pack", full)
    with pytest.warns(UserWarning, match="No space left"):
        play(bandit, OFFERS[:2])
    state = bandit.state
    monkeypatch.undo()
    bandit.close()
    with es.Bandit.open(tmp_path, AGENT) as bandit:
        assert equal(bandit.state, state)


@contextmanager
def ordinary_user():
    """The superuser may write anywhere; act as somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder_is_refused(shop):
    folder, state = shop
    new = folder.parent / "new"
    new.mkdir()
    for path in (*folder.iterdir(), folder, new, folder.parent):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in (folder.parent.parent, folder.parent.parent.parent):
        path.chmod(0o755)  # where pytest keeps its folders private
    with ordinary_user():
        for where in (folder, new, new / "deeper"):
            with pytest.raises(OSError, match="cannot open the ledger"):
                es.Bandit.open(where, AGENT)
    for path in (folder.parent, folder, new, *folder.iterdir()):
        path.chmod(0o755)
    with es.Bandit.open(folder, AGENT) as bandit:
        assert equal(bandit.state, state)


def test_float64_ledgers_keep_float64(tmp_path):
    with jax.enable_x64(True):
        with es.Bandit.open(tmp_path, AGENT) as bandit:
            play(bandit, OFFERS[:3])
            assert bandit.state.belief[0].mean.value.dtype == np.float64
            state = bandit.state
        (tmp_path / "state.safetensors").unlink()
        with es.Bandit.open(tmp_path, AGENT) as bandit:
            assert equal(bandit.state, state)
    with pytest.raises(ValueError, match="precision: 'float64' -> 'float32'"):
        es.Bandit.open(tmp_path, AGENT)


def test_the_command_line_shows_how_a_bandit_is_doing(shop, tmp_path):
    folder, _ = shop

    def run(*words):
        return CliRunner().invoke(app, ["inspect", *map(str, words)])

    shown = run(folder, "--plot", tmp_path / "shop.png")
    assert shown.exit_code == 0
    assert "decisions  10" in shown.output
    assert "agreement" in shown.output
    assert (tmp_path / "shop.png").stat().st_size > 1000
    nothing = run(tmp_path / "nothing")
    assert nothing.exit_code == 2
    assert "cannot open the ledger" in nothing.output
