"""Results on disk: one JSON file for each panel, whole and checked, or refused by name."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from .files import write_atomically


class Damaged(ValueError):
    """A results file that cannot be trusted."""


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def write(path: Path, data: dict[str, Any]) -> None:
    """Save `data` with a digest of itself, which `read` checks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = {**data, "sha256": _digest(data)}.items()
    lines = (f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in entries)
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read(path: Path) -> dict[str, Any]:
    """What `write` saved; raises `Damaged` with the file's name where it is no longer that."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        digest = data.pop("sha256")
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise Damaged(f"{path} is damaged: it cannot be read as results ({error!r})") from error
    if digest != _digest(data):
        raise Damaged(f"{path} is damaged: its contents do not match its digest")
    return data


def numbers(values: Any) -> Any:
    """Arrays as nested lists, to the seven digits that float32 arithmetic can mean."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64)]


def mean_and_error(values: Any) -> tuple[float, float]:
    """The mean over realizations, and its standard error."""
    values = np.asarray(values, dtype=np.float64)
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
