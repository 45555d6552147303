"""A file is whole or absent, and what was half written is taken over, not left to gather."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from ensemble_sampling import files
from ensemble_sampling.files import write_atomically


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    path = tmp_path / "state.bin"
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {os.path.dirname(files.__file__)!r})\nimport files\n"
        "def write(file):\n"
        "    file.write(b'x' * 10_000); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write_atomically(Path(sys.argv[1]), write)\n"
    )
    path.write_bytes(b"old")
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
        assert ran.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p != path] == ["state.bin.part"]
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"  # nothing of the longer one is left behind it
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "state.bin"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"new")
        raise error

    with pytest.raises(error):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_archives_that_seek_are_written_whole(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"x": np.arange(1000), "y": np.ones(3)}
    for _ in range(2):
        write_atomically(path, lambda file: np.savez(file, **arrays))
        with np.load(path) as found:
            assert np.array_equal(found["x"], arrays["x"])


def test_writers_at_the_same_time_take_turns(tmp_path):
    path = tmp_path / "state.bin"
    second = threading.Thread(target=write_atomically, args=(path, lambda f: f.write(b"second")))

    def slowly(file):
        file.write(b"first " * 1000)
        file.flush()
        second.start()
        second.join(timeout=0.2)
        assert second.is_alive()  # it waits
        file.write(b"first " * 1000)

    write_atomically(path, slowly)
    second.join()
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_without_locks_files_are_still_whole_or_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    path = tmp_path / "state.bin"
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
