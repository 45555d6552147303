"""A run that was interrupted or killed goes on to the same bits, whatever was damaged meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from small_runs import CHUNK, Stop, interrupt_after, small, whole

import ensemble_sampling as es
from ensemble_sampling.simulation import run
from ensemble_sampling.simulation.checkpoint import Checkpoint


def identical(one, two):
    for name in ("mean", "stderr", "regret"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("keep", [(0, -1), np.array([3, 5]), iter([7])])
def test_chosen_periods_can_be_kept_and_checkpointed(keep, tmp_path):
    some = small(keep=keep, chunk=CHUNK, checkpoint=tmp_path).regret
    described = json.loads((tmp_path / "run.json").read_text())["run"]
    assert (some == whole().regret[:, described["keep"]]).all()
    again = small(keep=described["keep"], checkpoint=tmp_path)
    assert (again.regret == some).all()


# Interrupted after two chunks: one thread runs a third and has begun or finished a fourth at most,
# so that four of the eight are never run, however fast the machine.
SAVED = range(2, 5)


@pytest.mark.parametrize("last", [False, True])
def test_an_interrupted_run_resumes_to_the_same_bits(last, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "threads_at_a_time", lambda: 1)
    asked = {"keep": True, "chunk": CHUNK, "last": last}
    begun = {"keep": True, "last": last, "checkpoint": tmp_path}
    with pytest.raises(Stop):
        small(**asked, checkpoint=tmp_path, progress=interrupt_after(2 * CHUNK))
    assert len(list(tmp_path.glob("chunk-*.npz"))) in SAVED
    left = tmp_path / "chunk-00003.npz.4711.part"
    left.write_bytes(b"half of it")  # as a kill leaves it
    reports = []
    resumed = small(**begun, progress=lambda *told: reports.append(told))
    identical(resumed, small(**asked))
    assert reports[0][0] >= 2 * CHUNK  # not computed again
    assert reports[-1] == (22, 22)
    assert not left.exists()
    identical(small(**begun), resumed)  # nothing left to do
    described = json.loads((tmp_path / "run.json").read_text())["run"]
    assert ("last" in described) == last  # what was begun before there was such a thing has none


OTHER_PROCESS = """
import os, signal, sys
import numpy as np
from small_runs import CHUNK, Stop, interrupt_after, small
from ensemble_sampling.simulation import run

run.threads_at_a_time = lambda: 1

def die(done, total):
    if done >= 2 * CHUNK:
        os.kill(os.getpid(), signal.SIGKILL)

folder = sys.argv[1]
if sys.argv[2] == "kill":
    small(keep=True, chunk=CHUNK, checkpoint=folder, progress=die)
np.save(folder + "/regret.npy", small(keep=True, chunk=CHUNK).regret)
try:
    small(keep=True, chunk=CHUNK, checkpoint=folder + "/half", progress=interrupt_after(2 * CHUNK))
except Stop:
    pass
"""


def run_elsewhere(folder, what, devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-c", OTHER_PROCESS, str(folder), what]
    env = os.environ | {"XLA_FLAGS": flags}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    killed = run_elsewhere(tmp_path, "kill", 1)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list(tmp_path.glob("chunk-*.npz"))) in SAVED
    identical(small(keep=True, checkpoint=tmp_path), whole())


def test_the_number_of_devices_changes_nothing_beyond_rounding(tmp_path):
    """Chunks of 3 do not divide by 4 devices, and a run begun there is finished here."""
    done = run_elsewhere(tmp_path, "devices", 4)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "half").glob("chunk-*.npz"))) in SAVED
    resumed = small(keep=True, checkpoint=tmp_path / "half")
    for regret in (np.load(tmp_path / "regret.npy"), resumed.regret):
        np.testing.assert_allclose(regret, whole().regret, rtol=0, atol=1e-5)
    np.testing.assert_allclose(resumed.mean, whole().mean, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    small(keep=True, chunk=CHUNK, checkpoint=folder)
    return folder


@pytest.fixture
def finished(saved, tmp_path):
    """A folder of a finished run, to be spoilt."""
    return shutil.copytree(saved, tmp_path / "finished")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 3}, "seed: 2 -> 3"),
        ({"realizations": 23}, "realizations: 22 -> 23"),
        ({"periods": 21}, "periods: 20 -> 21"),
        ({"coupled": True}, "coupled: False -> True"),
        ({"expected": True}, "expected: False -> True"),
        ({"last": True}, "last: None -> True"),
        ({"keep": False}, "keep: True -> False"),
        ({"agent": es.EnsembleSampling(es.IndependentArms(4, 1.0), 4)}, r"members: 3 -> 4"),
        ({"environment": es.GaussianArms(4, noise_std=2.0)}, r"environment.noise_std: 1.0 -> 2.0"),
    ],
)
def test_another_runs_checkpoint_is_refused_by_what_differs(saved, change, named):
    before = {p.name: p.read_bytes() for p in saved.iterdir()}
    with pytest.raises(ValueError, match=named):
        small(**({"keep": True, "checkpoint": saved} | change))
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == before


def test_another_precision_is_another_run(saved, float64):
    with pytest.raises(ValueError, match="precision: 'float32' -> 'float64'"):
        small(keep=True, checkpoint=saved)


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "another run's"])
def test_a_damaged_chunk_is_computed_again_with_a_warning(finished, damage, tmp_path):
    path = finished / "chunk-00001.npz"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    elif damage == "another run's":
        other = tmp_path / "other"
        es.simulate(es.Uniform(), es.GaussianArms(4), 20, 22, chunk=CHUNK, checkpoint=other)
        data = (other / path.name).read_bytes()
    path.write_bytes({"truncated": data[:-100], "empty": b""}.get(damage, data))
    with pytest.warns(UserWarning, match=r"chunk-00001.npz is damaged .* computed again"):
        identical(small(keep=True, checkpoint=finished), whole())
    identical(small(keep=True, checkpoint=finished), whole())  # and is sound now


def test_a_chunk_that_lacks_a_number_is_computed_again(finished):
    store = Checkpoint(finished, json.loads((finished / "run.json").read_text())["run"], CHUNK)
    store.save(1, {name: array for name, array in store.load()[1].items() if name != "sums_m2"})
    with pytest.warns(UserWarning, match=r"damaged \(it has no sums_m2\)"):
        identical(small(keep=True, checkpoint=finished), whole())


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_no_flipped_bit_of_a_chunk_goes_unnoticed(finished):
    for other in range(1, 8):
        (finished / f"chunk-0000{other}.npz").unlink()
    store = Checkpoint(finished, json.loads((finished / "run.json").read_text())["run"], CHUNK)
    path, good = finished / "chunk-00000.npz", store.load()[0]
    data, noticed = path.read_bytes(), 0
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        part = store.load().get(0)
        noticed += part is None
        for name, value in (part or {}).items():  # a time stamp, say, may change unharmed
            assert np.array_equal(value, good[name]), f"byte {at} changed {name}"
    assert noticed > len(data) / 7 / 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"chunk": 5}', '{"chunk": "x", "run": {}}'])
def test_a_damaged_description_is_a_clear_error(finished, text):
    (finished / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json is damaged .*; delete"):
        small(keep=True, checkpoint=finished)


def test_chunks_without_a_description_are_not_taken_for_ours(finished):
    (finished / "run.json").unlink()
    with pytest.warns(UserWarning, match="belongs to another run"):
        result = small(keep=True, chunk=7, checkpoint=finished)
    np.testing.assert_allclose(result.regret, whole().regret, rtol=0, atol=1e-5)
