"""Programs in two processes and in two threads: none crashes, waits for ever, or differs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling import linalg
from ensemble_sampling.simulation import programs

SCRIPT = Path(__file__).with_name("every_kind.py")
QUICKLY = "--xla_backend_optimization_level=0"  # to compile


def found(folder, seconds, *names):
    """What the script prints in a process that keeps programs in the folder."""
    clean = {name: v for name, v in os.environ.items() if "CACHE" not in name}
    told = {"ENSEMBLE_SAMPLING_CACHE": str(folder), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICKLY}
    done = subprocess.run(
        [sys.executable, SCRIPT, *names],
        env={**clean, **told},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_cold_and_warm(folder, seconds, *names):
    cold = found(folder, seconds, *names)
    kept = sorted(file.name for file in folder.glob("*-cache"))
    assert kept
    assert found(folder, seconds, *names) == cold
    assert sorted(file.name for file in folder.glob("*-cache")) == kept  # nothing compiled anew


def test_a_second_process_finds_what_calls_lapack_and_runs_it_in_chunks(tmp_path):
    check_cold_and_warm(tmp_path, 120, "ensemble of linear that forget")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kind_runs_in_a_first_and_a_second_process(tmp_path):
    check_cold_and_warm(tmp_path, 400)


CALLS = {
    "cholesky": (linalg.cholesky, 1),
    "triangle": (linalg.triangle, 1),
    "solve": (linalg.solve, 2),
    "solve_lower": (linalg.solve_lower, 2),
    "solve_upper": (linalg.solve_upper, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_factorisation_is_numpys_and_of_many_matrices_one_by_one(name, float64):
    function, count = CALLS[name]
    rng = np.random.default_rng(0)
    square = rng.normal(size=(5, 3, 3))
    matrices = square @ square.swapaxes(1, 2) + np.eye(3)
    if name in ("solve_lower", "solve_upper"):
        matrices = np.tril(matrices) if name == "solve_lower" else np.triu(matrices)
    given = (matrices, rng.normal(size=(5, 3, 2)))[:count]
    mapped = jax.jit(jax.vmap(function))
    have = np.asarray(mapped(*given))
    for i, each in enumerate(have):
        alone = np.asarray(function(*(part[i] for part in given)))
        np.testing.assert_array_equal(each, alone)
        if name == "triangle":
            np.testing.assert_allclose(each.T @ each, matrices[i].T @ matrices[i])
            assert (np.tril(each, -1) == 0).all()
        else:
            want = np.linalg.cholesky(matrices[i]) if count == 1 else None
            want = np.linalg.solve(*(part[i] for part in given)) if want is None else want
            np.testing.assert_allclose(each, want)
    assert not linalg.in_batches(mapped.lower(*given))


@pytest.mark.parametrize(
    "function",
    [jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.eigh, jnp.linalg.qr, jnp.linalg.svd],
)
def test_batches_of_lapack_are_seen_in_what_is_compiled(function):
    one = jax.ShapeDtypeStruct((3, 3), float)
    many = jax.ShapeDtypeStruct((5, 3, 3), float)
    assert not linalg.in_batches(jax.jit(function).lower(one))
    assert linalg.in_batches(jax.jit(jax.vmap(function)).lower(many))


class Own(es.Uniform):
    """A user's agent, whose factorisations are mapped over realizations as JAX does it."""

    size: int = eqx.field(static=True, default=3)

    def act(self, key, state, features, available=None):
        rows = jax.random.normal(key, (8, self.size, self.size))
        squares = [each @ each.T + jnp.eye(self.size) for each in rows]
        sums = jnp.stack([jnp.linalg.cholesky(one).sum() for one in squares])
        return (sums.sum() > 0).astype(jnp.int32)


class Batch(es.Uniform):
    """One that calls LAPACK for many matrices by itself."""

    def act(self, key, state, features, available=None):
        rows = jax.random.normal(key, (2, 3, 3))
        return (jnp.linalg.qr(rows, mode="r").sum() > 0).astype(jnp.int32)


class Noting:
    """In place of a lock: how many chunks held it, and whether they were done by then."""

    def __init__(self):
        self.held = 0

    def __enter__(self):
        self.held += 1

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(("agent", "held"), [(Batch(), 3), (Own(), 0), (es.Uniform(), 0)])
def test_only_programs_with_batches_of_lapack_take_turns(agent, held, monkeypatch):
    turn = Noting()
    monkeypatch.setattr(programs, "_TURN", turn)
    programs._program.cache_clear()
    try:
        es.simulate(agent, es.GaussianArms(2), 2, 6, chunk=2)
    finally:
        programs._program.cache_clear()
    assert turn.held == held


def test_several_factorisations_of_a_users_agent_do_not_wait_for_one_another():
    """They did on two cores, nearly every time."""
    found = es.simulate(Own(40), es.GaussianArms(2), periods=10, realizations=400)
    assert found.realizations == 400
