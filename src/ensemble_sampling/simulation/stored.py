"""A result as one file of plain arrays and words, checked when it is read."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..files import Damaged, write_atomically
from .results import Result

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
