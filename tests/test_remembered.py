"""A program is found again by what it is made from, and by nothing less."""

import json
import os
import subprocess
import sys
import textwrap
import types
import zlib
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling import compilation, remembered
from ensemble_sampling.code import is_known
from ensemble_sampling.simulate import execution

PROGRAM = """
import json, sys
import jax, numpy as np
import ensemble_sampling as es
from ensemble_sampling.simulate import execution

traced = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: traced.append(about.get("fun_name"))
)
agent = es.EnsembleSampling(es.IndependentArms(4, noise_std=float(sys.argv[1])), int(sys.argv[2]))
found = es.simulate(agent, es.GaussianArms(4), 20, 6, seed=int(sys.argv[3]))
print(json.dumps([found.mean.tolist(), sum(name in ("one", "start", "run") for name in traced)]))
"""


def run(folder, *settings, **environment):
    clean = {name: v for name, v in os.environ.items() if "CACHE" not in name}
    told = {"ENSEMBLE_SAMPLING_CACHE": str(folder), "JAX_PLATFORMS": "cpu", **environment}
    asked = [sys.executable, "-c", PROGRAM, *map(str, settings)]
    done = subprocess.run(asked, env={**clean, **told}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_next_process_traces_nothing_and_finds_the_same_numbers(tmp_path):
    first, traced = run(tmp_path, 1.0, 3, 0)
    assert traced > 0
    again, traced = run(tmp_path, 1.0, 3, 0)
    assert (again, traced) == (first, 0)
    # Settings and the seed are free; the number of members is not.
    other, traced = run(tmp_path, 0.5, 3, 1)
    assert other != first
    assert traced == 0
    _, traced = run(tmp_path, 1.0, 2, 0)
    assert traced > 0


@pytest.mark.slow
def test_a_file_that_is_damaged_or_cut_is_not_used(tmp_path):
    first, _ = run(tmp_path, 1.0, 3, 0)
    kept = sorted(tmp_path.glob("*-remembered"))
    assert len(kept) == 3
    for file in kept:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] + b"x" * 9)
    again, traced = run(tmp_path, 1.0, 3, 0)
    assert again == first
    assert traced == 3
    # The program was in JAX's own files; made from that, one of ours would not run.
    assert run(tmp_path, 1.0, 3, 0) == [first, 1]
    for file in tmp_path.iterdir():
        file.unlink()
    run(tmp_path, 1.0, 3, 0)
    assert run(tmp_path, 1.0, 3, 0) == [first, 0]


@pytest.mark.slow
def test_nothing_is_kept_where_the_user_keeps_programs_or_none(tmp_path):
    run(tmp_path / "off", 1.0, 3, 0, ENSEMBLE_SAMPLING_CACHE="off")
    run(tmp_path / "jax", 1.0, 3, 0, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"))
    assert list(tmp_path.rglob("*-remembered")) == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "kept_in", lambda: tmp_path)
    return tmp_path


def counted(value):
    calls = []
    return calls, lambda: calls.append(value) or value


def test_a_number_is_computed_once(folder):
    calls, compute = counted(7)
    assert [remembered.number(compute, es.Linear(3), "n") for _ in range(3)] == [7, 7, 7]
    assert calls == [7]
    remembered.number(compute, es.Linear(4), "n")
    remembered.number(compute, es.Linear(3), "m")
    assert calls == [7, 7, 7]


def test_a_program_is_compiled_once_and_runs_again(folder):
    calls, new = [], np.float32(np.random.default_rng().random())  # to JAX's files as well

    def lower():
        calls.append(1)
        return jax.jit(lambda x: {"more": new + x}).lower(jnp.zeros(3))

    for _ in range(2):
        program = remembered.program(lower, None, es.Linear(3), ["about"])
        np.testing.assert_allclose(program(jnp.arange(3.0))["more"], new + np.arange(3))
    assert calls == [1]


def square(x):
    return x * x


class Own(eqx.Module):
    """A part that somebody else wrote."""

    width: float = 1.0


@wraps(jnp.tanh)
def renamed(x):
    return 2 * x


def without_a_module(text):
    space = {"es": es}
    exec(text, space)
    return space["it"]


@pytest.mark.parametrize(
    "part",
    [
        square,
        Own(),
        [es.Linear(2), Own()],
        {"f": square},
        partial(optax.sgd, learning_rate=square),
        partial(square),
        es.EpsilonGreedy(es.Linear(2), lambda t: 0.1),
        partial(optax.sgd, square),
        optax.scale_by_schedule(square),
        renamed,
        jax.jit(partial(square)),
        jax.custom_jvp(partial(square)),
        np.vectorize(square),
        without_a_module("def it(x): return x"),
        without_a_module("class Arms(es.GaussianArms): pass\nit = Arms(2)"),
        sys.modules[__name__],
    ],
    ids=lambda part: type(part).__name__,
)
def test_code_of_others_is_never_found_by_its_name(folder, part):
    calls, compute = counted(1)
    for _ in range(2):
        remembered.number(compute, part, "n")
    assert calls == [1, 1]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("part", [optax.scale, lambda rate: jax.jit(optax.constant_schedule(rate))])
def test_what_libraries_make_is_not_found_by_its_name_alone(folder, part):
    calls, compute = counted(1)
    for rate in (0.1, 0.2):
        remembered.number(compute, part(rate), "n")
    assert calls == [1, 1]


@pytest.mark.parametrize("part", [None, jax.nn.relu, jnp.tanh, optax.adam, es.Linear(2)])
def test_what_its_module_has_under_its_name_is_found_by_it(folder, part):
    calls, compute = counted(1)
    for _ in range(2):
        remembered.number(compute, partial(optax.adam, b1=part), "n")
    assert calls == [1]


def test_a_class_with_a_method_of_others_is_theirs(folder, monkeypatch):
    calls, compute = counted(1)
    remembered.number(compute, es.GaussianArms(2), "n")
    monkeypatch.setattr(es.GaussianArms, "outcome", lambda self, key, world, action: 0.0)
    remembered.number(compute, es.GaussianArms(2), "n")
    assert calls == [1, 1]


def test_what_has_no_digest_is_made_every_time(folder):
    calls, compute = counted(1)
    world = es.Classification(np.eye(2), [b"no", b"yes"])
    assert [remembered.number(compute, world, "n") for _ in range(2)] == [1, 1]
    assert calls == [1, 1]


def test_a_file_of_somebody_else_is_used_all_the_same(folder, monkeypatch):
    def refused(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "utime", refused)
    calls, compute = counted(1)
    assert [remembered.number(compute, None, "n") for _ in range(2)] == [1, 1]
    assert calls == [1]


def test_a_setting_of_jax_counts_in_the_same_process(folder):
    class Others(es.GaussianArms):
        """Its keys are JAX's own, which depend on the setting."""

    def found():
        agent = es.EnsembleSampling(es.IndependentArms(3), 2)
        return es.simulate(agent, Others(3), 10, 4).mean.tolist()

    before = found()
    with jax.threefry_partitionable(False):
        assert found() != before
    assert found() == before


def test_other_settings_of_jax_and_another_version_are_other_programs(folder, monkeypatch):
    calls, compute = counted(1)
    remembered.number(compute, None, "n")
    with jax.enable_x64(True):
        remembered.number(compute, None, "n")
    assert calls == [1, 1]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    remembered.number(compute, None, "n")
    assert calls == [1, 1, 1]
    monkeypatch.setattr(remembered, "_code", lambda: ["another version"])
    remembered.number(compute, None, "n")
    assert calls == [1, 1, 1, 1]


def test_an_edited_file_of_the_package_is_another_version(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered, "__file__", str(tmp_path / "remembered.py"))
    code = remembered._code.__wrapped__
    more = tmp_path / "room" / "more.py"
    more.parent.mkdir()
    found = [code()]
    for text, time in (("x = 1\n", 1), ("x = 1\n", 2), ("x = 11\n", 2)):
        more.write_text(textwrap.dedent(text))
        os.utime(more, (time, time))
        found.append(code())
    monkeypatch.setattr(remembered.platform, "python_version", lambda: "4.0")
    found.append(code())
    monkeypatch.setattr(remembered.importlib.metadata, "version", lambda name: f"{name} 99")
    found.append(code())
    assert all(one != other for one, other in pairwise(found))


def test_another_device_or_compiler_is_another_machine(folder, monkeypatch):
    calls, compute = counted(1)
    for kind, version in (("a", "1"), ("a", "1"), ("b", "1"), ("b", "2")):
        device = SimpleNamespace(device_kind=kind, client=SimpleNamespace(platform_version=version))
        monkeypatch.setattr(jax, "local_devices", lambda device=device: [device])
        remembered.number(compute, None, "n")
    assert calls == [1, 1, 1]


def test_what_jax_says_and_where_it_keeps_files_is_no_matter(folder):
    calls, compute = counted(1)
    remembered.number(compute, None, "n")
    with jax.log_compiles(True):
        remembered.number(compute, None, "n")
    assert calls == [1]


def test_whatever_a_program_depends_on_tells_it_from_others(monkeypatch):
    found = []

    def tell(build, made_from, *_):
        found.append(remembered._digest(made_from))

    monkeypatch.setattr(remembered, "_remembered", tell)
    agent = es.EnsembleSampling(es.IndependentArms(4, noise_std=1.0), 3)
    outline = execution.outline(agent, es.GaussianArms(4))
    (shape, dtype), *others = outline.shapes
    same, mode = (False,) * len(outline.shapes), (20, False, False, None, False)
    base = {
        "outline": outline,
        "differs": same,
        "lanes": 4,
        "mode": mode,
        "cipher": "threefry2x32",
    }
    changes = [
        {},
        {"outline": outline._replace(shapes=((shape, jnp.dtype("int32")), *others))},
        {"outline": outline._replace(shapes=(((2, *shape), dtype), *others))},
        {"differs": (True, *same[1:])},
        {"lanes": 5},
        {"cipher": "rbg"},
        {"mode": (21, *mode[1:])},
        {"mode": (*mode[:-1], True)},
    ]
    for change in changes:
        execution._program.__wrapped__(**(base | change))
    execution._held.__wrapped__(outline)
    execution._traced.__wrapped__(outline)
    remembered.program(lambda: None, None, None, None)
    remembered.program(lambda: None, {"xla_gpu_deterministic_ops": True}, None, None)
    assert len(found) == len(changes) + 4
    assert len(set(found)) == len(found)


def test_what_was_used_counts_as_new(folder):
    remembered.number(lambda: 1, None, "n")
    (file,) = folder.iterdir()
    os.utime(file, (0, 0))
    remembered.number(lambda: 1, None, "n")
    assert file.stat().st_mtime > 0


def test_a_file_without_its_own_digest_is_not_read(folder):
    remembered.number(lambda: 7, None, "n")
    (file,) = folder.iterdir()
    file.write_bytes(b"0" * 32 + zlib.compress(b"8"))
    assert remembered.number(lambda: 7, None, "n") == 7


@pytest.mark.parametrize("setting", [np.dtype("float32"), frozenset([1]), range(3)])
def test_what_cannot_be_described_is_run_and_not_kept(folder, setting):
    calls, compute = counted(1)
    part = partial(optax.adam, mu_dtype=setting)
    assert [remembered.number(compute, part, "n") for _ in range(2)] == [1, 1]
    assert calls == [1, 1]
    assert list(folder.iterdir()) == []


def test_functions_and_classes_are_known_where_their_module_has_them():
    assert is_known(es.Linear)
    assert is_known(jnp.tanh)
    assert not is_known(Own)
    made = types.FunctionType((lambda: 0).__code__, {})
    made.__module__ = "optax.anything"
    assert not is_known(made)


def test_a_full_disk_is_no_reason_not_to_run(folder, monkeypatch):
    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(remembered, "write_atomically", full)
    calls, compute = counted(1)
    assert [remembered.number(compute, None, "n") for _ in range(2)] == [1, 1]
    assert calls == [1, 1]


def test_what_fails_is_not_kept(folder):
    def fail():
        raise ValueError("shapes disagree")

    for _ in range(2):
        with pytest.raises(ValueError, match="disagree"):
            remembered.number(fail, None, "n")
    assert list(Path(folder).iterdir()) == []
