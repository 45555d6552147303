"""Finished chunks on disk, so that an interrupted simulation goes on where it stopped."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..config import differences, fingerprint
from ..files import write_atomically


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
