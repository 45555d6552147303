"""Finished chunks of a simulation on disk, for a run that goes on where it stopped."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..config import differences, fingerprint
from ..files import write_atomically

ARRAYS = {"count", "mean", "m2", "sums_m2", "diverged"}


def as_folder(name: str, path: Any) -> Path:
    """A folder that is there or can be made."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a folder's path, got {path!r}")
    if Path(path).exists() and not Path(path).is_dir():
        raise ValueError(f"{name} must be a folder, but {path} is a file")
    return Path(path)


class Checkpoint:
    """A folder with the run's description and one file per finished chunk.

    chunk: realizations per chunk; where the folder holds some, as many as these have
    """

    def __init__(self, path: str | os.PathLike[str], run: dict[str, Any], chunk: int):
        self.folder = folder = as_folder("checkpoint", path)
        self.chunk, self.run = chunk, json.loads(json.dumps(run))
        described = folder / "run.json"
        if described.exists():
            self._go_on(described.read_text())
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*.part"):  # what a kill cut short
            left.unlink(missing_ok=True)
        begun = {"chunk": self.chunk, "run": self.run}
        self.mark = fingerprint(begun)  # of chunks, lest a stray one be taken for ours
        text = json.dumps(begun, indent=1)
        write_atomically(described, lambda file: file.write(text.encode()))

    def _go_on(self, text: str) -> None:
        """Take over the earlier run's description, unless it is another run's."""
        try:
            saved = json.loads(text)
            self.chunk, saved_run = int(saved["chunk"]), saved["run"]
        except (ValueError, KeyError, TypeError) as error:
            where = self.folder / "run.json"
            raise ValueError(f"{where} is damaged ({error}); delete {self.folder}") from error
        if changed := differences(saved_run, self.run):
            raise ValueError(
                f"{self.folder} holds another run's checkpoint; delete it, or choose another "
                "folder. It differs in\n  " + "\n  ".join(changed)
            )
        self.run = saved_run

    def save(self, number: int, part: dict[str, Any]) -> None:
        path = self.folder / f"chunk-{number:05d}.npz"
        write_atomically(path, lambda file: np.savez(file, run=self.mark, **part))

    def load(self) -> dict[int, dict[str, np.ndarray]]:
        """The finished chunks by their numbers, but for damaged ones (a CRC is checked), which are
        computed again."""
        found = {}
        for path in sorted(self.folder.glob("chunk-*.npz")):
            try:
                with np.load(path, allow_pickle=False) as file:
                    part = {name: file[name] for name in file.files}
                if part.pop("run") != self.mark:
                    raise ValueError("it belongs to another run")
                if missing := ARRAYS - part.keys():
                    raise ValueError(f"it has no {', '.join(sorted(missing))}")
                found[int(path.stem.removeprefix("chunk-"))] = part
            except Exception as error:  # a damaged archive fails in too many ways to list
                warnings.warn(f"{path} is damaged ({error}) and is computed again", stacklevel=3)
        return found
