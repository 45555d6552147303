"""What simulations leave on disk: finished chunks, to go on where they stopped, and results."""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..config import differences, fingerprint
from ..files import Damaged, write_atomically
from .results import Result


def as_folder(name: str, path: Any) -> Path:
    """A folder that is there or can be made."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a folder's path, got {path!r}")
    if Path(path).exists() and not Path(path).is_dir():
        raise ValueError(f"{name} must be a folder, but {path} is a file")
    return Path(path)


class Checkpoint:
    """A folder with the run's description and one file per finished chunk."""

    def __init__(self, path: str | os.PathLike[str], run: dict[str, Any]):
        self.folder = folder = as_folder("checkpoint", path)
        self.run, self.chunk = json.loads(json.dumps(run)), None
        described = folder / "run.json"
        if not described.exists():
            return
        try:
            saved = json.loads(described.read_text())
            chunk, saved_run = int(saved["chunk"]), saved["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{described} is damaged ({error}); delete {folder}") from error
        changed = differences(saved_run, self.run)
        if changed:
            raise ValueError(
                f"{folder} holds another run's checkpoint; delete it, or choose another folder. "
                "It differs in\n  " + "\n  ".join(changed)
            )
        self.chunk, self.run = chunk, saved_run

    def begin(self, chunk: int) -> None:
        """Describe the run on disk, and mark chunks with it, lest a stray one be taken for ours."""
        self.mark = fingerprint({"chunk": chunk, "run": self.run})
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob("*.part"):  # what a kill cut short
            left.unlink(missing_ok=True)
        text = json.dumps({"chunk": chunk, "run": self.run}, indent=1)
        write_atomically(self.folder / "run.json", lambda file: file.write(text.encode()))

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:05d}.npz"

    def save(self, number: int, part: dict[str, Any]) -> None:
        write_atomically(self._path(number), lambda file: np.savez(file, run=self.mark, **part))

    def load(self, number: int) -> dict[str, Any] | None:
        """A finished chunk; one that cannot be read (its CRC is checked) is computed again."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                part = {name: file[name] for name in file.files}
            if part.pop("run") != self.mark:
                raise ValueError("it belongs to another run")
            if missing := {"count", "mean", "m2", "sums_m2", "diverged"} - part.keys():
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            return part
        except Exception as error:  # a damaged archive fails in too many ways to list
            warnings.warn(f"{path} is damaged ({error}) and is computed again", stacklevel=3)
            return None


FORMAT = 1
ARRAYS = ("mean", "stderr", "regret", "cumulative_stderr")
WORDS = ("label", "realizations", "diverged", "seconds", "settings")


def save_result(result: Result, path: str | os.PathLike[str]) -> Path:
    """Write the result to `path`, all of it or nothing; returns the path."""
    path = Path(path)
    about = {name: getattr(result, name) for name in WORDS}
    text = json.dumps({"format": FORMAT, **about, "settings": dict(result.settings)})
    arrays: dict[str, Any] = {name: getattr(result, name) for name in ARRAYS}
    arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = _digest(text, arrays)
    write_atomically(path, lambda file: np.savez(file, about=text, sha256=digest, **arrays))
    return path


def load_result(path: str | os.PathLike[str]) -> Result:
    """What `Result.save` wrote; a file that is not that any more is an error that says so."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no result at {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        text, digest = str(found.pop("about")), str(found.pop("sha256"))
        about = json.loads(text)
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise Damaged(f"{path} is damaged: it cannot be read as a result ({error!r})") from error
    if digest != _digest(text, found):
        raise Damaged(f"{path} is damaged: its contents do not match its digest")
    if about.get("format") != FORMAT:
        raise ValueError(f"{path} has format {about.get('format')}, this version reads {FORMAT}")
    return Result(**{name: about[name] for name in WORDS}, **found)


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
