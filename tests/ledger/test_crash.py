"""A process killed at any moment loses nothing it had acknowledged, and goes on as if unharmed."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from states import equal

import ensemble_sampling as es
from ensemble_sampling.ledger.ledger import Ledger

AGENTS = {  # the second learns only from its first offer how many features there are
    "linear": es.EnsembleSampling(es.Linear(dim=3, noise_std=0.5), members=5),
    "open": es.Uniform(),
}
KILLS = {"linear": 18, "open": 10}

# Imports are slow, so one process imports and forks a worker for every life; JAX starts its
# threads on first use, which is in the worker. Lines this short are written whole or not at all.
NURSERY = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_crash import work
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        work(sys.argv[1])
        os._exit(0)
    os.write(1, f"born {pid}\\n".encode())
    os.waitpid(pid, 0)
    os.write(1, b"dead\\n")
"""


def work(folder):
    """Decide and learn for ever, saying what was acknowledged."""

    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\n").encode())

    bandit = es.Bandit.open(folder, AGENTS[Path(folder).name], snapshot_every=3)
    log = bandit.log()
    for number, (id, known) in enumerate(zip(log["id"], log["outcome"], strict=True)):
        if known is None:  # decided before the crash, its outcome not recorded
            bandit.learn(id, outcome(number))
        if number % 4 == 0:
            bandit.correct(id, revised(number))
    if log["id"]:
        bandit.shadow("chance", es.Uniform())
    for number in itertools.count(len(log["id"])):
        decision = bandit.choose(offer(number))
        say("chose", decision.id, decision.index)
        bandit.learn(decision.id, outcome(number))
        say("learned", decision.id, outcome(number))
        if number % 4 == 0:
            bandit.correct(decision.id, revised(number))
            say("revised", decision.id, revised(number))
        if number % 7 == 0:
            (Path(folder) / "ledger.sqlite").read_bytes()  # as copying does: drops SQLite's locks


def offer(number):
    return np.random.default_rng(number).normal(size=(1 + number % 8, 3))


def outcome(number):
    return float(np.sin(number))


def revised(number):
    return -1.0 - number


def look(folder):
    """Another program reads the ledger and closes it."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(folder / "ledger.sqlite", timeout=0)) as db,
    ):
        db.execute("SELECT count(*) FROM decisions").fetchone()


def live_and_die(nursery, folder, dice, at_work):
    """What one worker acknowledged before it was killed, at a random moment."""
    said, pid = [], None
    lines = dice.randint(11, 40) if at_work else 0  # or while opening
    delay = dice.uniform(0, 0.005 if lines else 0.5)
    nursery.stdin.write("go\n")
    while pid is None or len(said) < lines:
        line = nursery.stdout.readline().split()
        assert line, "the worker's nursery died"
        if line[0] == "born":
            pid = int(line[1])
        else:
            said.append(line)
            if len(said) % 5 == 0:
                look(folder)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    while (line := nursery.stdout.readline().split()) != ["dead"]:
        said.append(line)
    return said


def check(folder, acknowledged):
    """Every acknowledged decision and outcome is in the ledger."""
    if not (folder / "ledger.sqlite").exists():
        assert not acknowledged
        return
    try:
        ledger = Ledger(folder, write=False)
    except OSError:
        assert not acknowledged  # killed before the ledger was begun
        return
    table = ledger.table()
    ledger.close()
    chosen = dict(zip(table["id"], table["index"], strict=True))
    learned = dict(zip(table["id"], table["outcome"], strict=True))
    first = dict(zip(table["id"], table["first"], strict=True))
    offers = dict(zip(table["id"], table["offer"], strict=True))
    for word, id, value in acknowledged:
        number = int(id.split("-")[1])
        if word == "chose":
            assert chosen[id] == int(value)
            assert np.array_equal(offers[id], offer(number).astype(np.float32))
        elif word == "learned":
            assert first[id] == float(value)
        else:
            assert learned[id] == float(value)


def crash_often(folder, cache, kills, seed):
    fast = {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    dice, acknowledged = random.Random(seed), []
    command = [sys.executable, "-c", NURSERY, str(folder), str(Path(__file__).parent)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, **fast},
    ) as nursery:
        for kill in range(kills):
            acknowledged += live_and_die(nursery, folder, dice, at_work=kill % 2 == 1)
            check(folder, acknowledged)
        assert nursery.stdin is not None
        nursery.stdin.close()
    return acknowledged


def test_killed_at_random_moments_nothing_is_lost(tmp_path):
    with ThreadPoolExecutor(len(AGENTS)) as pool:
        jobs = {
            name: pool.submit(crash_often, tmp_path / name, tmp_path / "cache", kills, seed)
            for seed, (name, kills) in enumerate(KILLS.items())
        }
    for name, agent in AGENTS.items():
        assert len(jobs[name].result()) > 5 * KILLS[name]  # they did get to work
        with es.Bandit.open(tmp_path / name, agent, snapshot_every=3) as bandit:
            log, after = bandit.log(), bandit.state
            (shadow,) = bandit.summary().shadows
            said = bandit.opinions("chance")["id"]
            assert len(said) == shadow.decisions > 5
            assert said == log["id"][log["id"].index(said[0]) :][: len(said)]
        assert sorted(path.suffix for path in (tmp_path / name).glob("*.part*")) in ([], [".part"])
        unharmed = es.Bandit(agent)
        for number, known in enumerate(log["outcome"]):
            decision = unharmed.choose(offer(number))
            assert decision.index == log["index"][number]
            assert decision.probability == log["probability"][number]
            if known is not None:
                unharmed.learn(decision.id, outcome(number))
                if known != outcome(number):
                    unharmed.correct(decision.id, known)
        assert equal(after, unharmed.state)


def seen(bandit):
    """All that it holds: its log, and what it learned to the last bit."""
    return bandit.log(), [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(bandit.state)]


@pytest.mark.filterwarnings("ignore:.*is a copy")
@pytest.mark.parametrize(
    "remove",
    [
        lambda bandit: bandit.retain(days=1),
        lambda bandit: bandit.erase("s0"),
        lambda bandit: bandit.erase("s1", keep=True),
    ],
    ids=["retain", "erase", "erase and keep"],
)
def test_a_kill_between_any_two_steps_of_a_removal_leaves_all_or_nothing(
    tmp_path, remove, monkeypatch
):
    """The files as they are at that moment are what a killed process leaves."""
    folder, agent, copies, now = tmp_path / "shop", AGENTS["linear"], [], [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    replace = os.replace

    def kill(*_):
        copies.append(shutil.copytree(folder, tmp_path / f"{len(copies)}"))

    def replaced(*given):
        kill()
        replace(*given)
        kill()

    with es.Bandit.open(folder, agent, snapshot_every=3) as bandit:
        for number in range(8):
            now[0] += 40_000.0
            made = bandit.choose(offer(number), subject=f"s{number % 2}")
            bandit.learn(made.id, outcome(number))
        before, db = seen(bandit), bandit._ledger._database.connection  # pyright: ignore
        db.set_trace_callback(kill)
        monkeypatch.setattr(os, "replace", replaced)
        assert remove(bandit) > 3
        kill()  # it was said to be done
        monkeypatch.setattr(os, "replace", replace)
        db.set_trace_callback(None)
        after = seen(bandit)
    assert before != after
    assert len(copies) > 20
    removed = []
    for copy in copies:
        with es.Bandit.open(copy, agent, snapshot_every=3) as again:
            found = seen(again)
        assert found in (before, after)
        removed.append(found == after)
    assert removed == sorted(removed)
    assert removed[-1]
