"""What one process compiled the next need not; unless somebody says otherwise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling import compilation

PROGRAM = """
import json, jax, ensemble_sampling as es
es.EnsembleSampling(es.Linear(3), members=2).init(jax.random.key(0))
print(json.dumps([jax.config.jax_compilation_cache_dir]))
"""


def run(**settings: str) -> str | None:
    clean = {name: v for name, v in os.environ.items() if "CACHE" not in name}
    environment = {**clean, "JAX_PLATFORMS": "cpu", **settings}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])[0]


def test_programs_are_kept_in_the_users_cache(tmp_path):
    where = run(XDG_CACHE_HOME=str(tmp_path))
    assert where is not None
    assert Path(where).parent == tmp_path / "ensemble-sampling"
    assert any(Path(where).iterdir())


def test_what_was_told_is_heard(tmp_path):
    assert run(ENSEMBLE_SAMPLING_CACHE="off", XDG_CACHE_HOME=str(tmp_path)) is None
    assert run(ENSEMBLE_SAMPLING_CACHE=str(tmp_path / "own")) == str(tmp_path / "own")
    told = run(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"), XDG_CACHE_HOME=str(tmp_path))
    assert told == str(tmp_path / "jax")
    assert list(tmp_path.glob("ensemble-sampling")) == []


REOPENED = """
import sys, jax, numpy as np, ensemble_sampling as es
programs = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **about: programs.append(event) if "to_mlir_module" in event else None
)
bandit = es.Bandit.open(sys.argv[1], *eval(sys.argv[2]))
opened = len(programs)
bandit.choose(np.ones((3, 2)))
print(opened, len(programs))
"""


@pytest.mark.parametrize("agent", ["()", "(es.EnsembleSampling(es.Linear(2), 3),)"])
def test_a_folder_is_opened_without_a_program_and_decided_in_by_one(tmp_path, agent):
    with es.Bandit.open(tmp_path / "b", *eval(agent)) as bandit:
        bandit.learn(bandit.choose(np.ones((3, 2))).id, 1.0)
    command = [sys.executable, "-c", REOPENED, str(tmp_path / "b"), agent]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


@pytest.mark.parametrize("given", ["off", "0", "No", "FALSE"])
def test_the_switch(given):
    assert compilation.folder({compilation.SWITCH: given}) is None


def test_it_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "MOST", 10)
    for n in range(11):
        (tmp_path / f"{n:02}").write_text("")
        os.utime(tmp_path / f"{n:02}", (n, n))
    compilation._trim(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"{n:02}" for n in range(5, 11)]
    compilation._trim(tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


def test_memory_is_taken_as_it_is_needed_unless_the_user_says_otherwise(monkeypatch):
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.setenv(name, "true")
    compilation.wake()
    assert os.environ[name] == "true"
    monkeypatch.delenv(name)
    compilation.wake()
    assert os.environ[name] == "false"
