"""Files that are whole or absent, also through a crash; JSON that is known to be what was saved."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def write_atomically(path: Path, write: Callable[[Any], Any], durable: bool = True) -> None:
    """All of the file or nothing of it: `write` gets the open file. Where it need not be
    `durable`, a power loss may take it away or garble it.

    It is prepared under one name, `<path>.part`, so that a process killed meanwhile leaves at
    most one such file, which the next to write takes over.
    """
    part = path.with_name(path.name + ".part")
    with _taken_over(part) as file:
        try:
            file.truncate(0)
            write(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows renames no open file
            os.replace(part, path)
        except BaseException:
            file.close()
            part.unlink(missing_ok=True)
            raise
    if durable:
        sync_folder(path.parent)


def _taken_over(part: Path) -> BinaryIO:
    """The file opened for one writer at a time, whoever left it there."""
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        file = os.fdopen(descriptor, "w+b")
        if fcntl is None or _is_ours(file, part):
            return file
        file.close()


def _is_ours(file: BinaryIO, path: Path) -> bool:
    """Wait for our turn; False if the one before us took the file away, finished."""
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
    except OSError:  # a file system without locks
        return True


def sync_folder(folder: Path) -> None:
    """What was created or renamed in the folder stays so, also through a power loss."""
    with suppress(OSError):  # Windows opens no folders, some file systems do not sync them
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Damaged(ValueError):
    """A file that cannot be trusted."""


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
