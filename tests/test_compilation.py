"""What one process compiled the next need not; unless somebody says otherwise."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling import compilation

PROGRAM = """
import json, jax, ensemble_sampling as es
es.EnsembleSampling(es.Linear(3), members=2).init(jax.random.key(0))
print(json.dumps(jax.config.jax_compilation_cache_dir))
"""


def test_programs_are_kept_in_the_users_cache(tmp_path):
    clean = {name: v for name, v in os.environ.items() if "CACHE" not in name}
    environment = {**clean, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    where = Path(json.loads(done.stdout.splitlines()[-1]))
    assert where.parent == tmp_path / "ensemble-sampling"
    assert any(where.iterdir())


@pytest.mark.parametrize(
    ("environment", "configured", "used"),
    [
        ({}, None, "home/.cache/ensemble-sampling/jax-1-here"),
        ({"XDG_CACHE_HOME": "xdg"}, None, "xdg/ensemble-sampling/jax-1-here"),
        ({compilation.SWITCH: "own"}, None, "own"),
        *(({compilation.SWITCH: no}, None, None) for no in ("off", "0", "No", "FALSE")),
        ({"JAX_COMPILATION_CACHE_DIR": "jax"}, None, None),
        ({}, "jax", None),
        ({"XDG_CACHE_HOME": "file"}, None, None),
    ],
)
def test_the_cache_is_where_the_user_wants_it(environment, configured, used, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("no folder can be made in this")
    for name in ("XDG_CACHE_HOME", compilation.SWITCH, "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "home", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(compilation, "processor", lambda: "here")
    updated = {}
    config = SimpleNamespace(jax_compilation_cache_dir=configured, update=updated.__setitem__)
    monkeypatch.setattr(compilation, "jax", SimpleNamespace(config=config, __version__="1"))
    compilation.enable_cache()
    assert updated.get("jax_compilation_cache_dir") == used
    assert used is None or Path(used).is_dir()


REOPENED = """
import sys, jax, numpy as np, ensemble_sampling as es
programs = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **about: programs.append(event) if "to_mlir_module" in event else None
)
for name, agent in eval(sys.argv[2]).items():
    bandit = es.Bandit.open(f"{sys.argv[1]}/{name}", *eval(agent))
    print(len(programs))
    bandit.choose(np.ones((3, 2)))
    print(len(programs))
"""
AGENTS = {"default": "()", "given": "(es.EnsembleSampling(es.Linear(2), 3),)"}


def test_a_folder_is_opened_without_a_program_and_decided_in_by_one(tmp_path):
    for name, agent in AGENTS.items():
        with es.Bandit.open(tmp_path / name, *eval(agent)) as bandit:
            bandit.learn(bandit.choose(np.ones((3, 2))).id, 1.0)
    command = [sys.executable, "-c", REOPENED, str(tmp_path), repr(AGENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "1", "2"]


def test_it_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "FILES", 10)
    for n in range(11):
        (tmp_path / f"{n:02}").write_text("")
        os.utime(tmp_path / f"{n:02}", (n, n))
    for _ in range(2):
        compilation._trim(tmp_path)
        assert sorted(file.name for file in tmp_path.iterdir()) == [f"{n:02}" for n in range(5, 11)]


def test_memory_is_taken_as_it_is_needed_unless_the_user_says_otherwise(monkeypatch):
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.setenv(name, "true")
    compilation.start_devices()
    assert os.environ[name] == "true"
    monkeypatch.delenv(name)
    compilation.start_devices()
    assert os.environ[name] == "false"
