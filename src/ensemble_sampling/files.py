"""Files that are whole or absent, also through a crash; JSON that is known to be what was saved."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Any], Any]) -> None:
    """All of the file or nothing of it: `write` gets the open file."""
    temporary = path.with_suffix(path.suffix + f".{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class Damaged(ValueError):
    """A results file that cannot be trusted."""


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Save `data` with a digest of itself, which `read_json` checks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = {**data, "sha256": _digest(data)}.items()
    lines = (f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in entries)
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` saved; raises `Damaged` with the file's name where it is no longer that."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        digest = data.pop("sha256")
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise Damaged(f"{path} is damaged: it cannot be read as results ({error!r})") from error
    if digest != _digest(data):
        raise Damaged(f"{path} is damaged: its contents do not match its digest")
    return data
