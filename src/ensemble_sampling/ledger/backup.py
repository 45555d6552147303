"""Reading a ledger beside its writer, copying it whole, and telling a copy from the original."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import sync_folder
from . import schema
from .locks import FolderLock
from .rows import seal

NAME = "ledger.sqlite"
OPTIONS: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}


def reader(path: Path) -> sqlite3.Connection:
    """A connection that sees the ledger as it is now, and changes nothing."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path.name}")
    try:
        return _at_once(f"{path.as_uri()}?mode=ro")
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
            raise
        # SQLite needs a file beside it, which cannot be made here.
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise OSError(
                f"what was written last is still in {log.name}, which cannot be read where "
                "nothing can be written: copy the folder elsewhere and read the copy"
            ) from None
        return _at_once(f"{path.as_uri()}?immutable=1")


def _at_once(uri: str) -> sqlite3.Connection:
    """A connection within one reading, so that all answers fit together."""
    db = sqlite3.connect(uri, uri=True, **OPTIONS)
    try:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def identity(path: Path) -> str:
    """By what to tell a file from a copy of it: inode, device, file system and, if known, birth.

    A device may get another number when the machine starts, a file system not.
    """
    stat = path.stat()
    system = getattr(os.statvfs(path), "f_fsid", 0) if hasattr(os, "statvfs") else 0
    return f"{stat.st_ino}:{getattr(stat, 'st_birthtime', '')} {stat.st_dev} {system or '-'}"


def same_file(recorded: str, found: str) -> bool:
    """Whether two identities are of one file."""
    if not recorded:
        return False
    (one, *device), (other, *found_device) = recorded.split(" "), found.split(" ")
    alike = [a == b for a, b in zip(device, found_device, strict=True) if a != "-"]
    return one == other and any(alike)


def write_backup(fill: Callable[[sqlite3.Connection], Any], folder: Path) -> None:
    """A ledger of its own in a new folder, which appears only when it is whole and on disk;
    `fill` puts everything into the new database."""
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} exists already, and a backup goes into a new folder")
    part = folder.absolute().with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(part)
    try:
        _empty(part)
        _copy(fill, part / NAME)
        sync_folder(part)
        if os.name == "nt":
            lock.release()  # Windows renames no folder with open files
        os.rename(part, folder)
        sync_folder(part.parent)
    except BaseException:
        if part.exists():
            _empty(part)
            (part / "lock").unlink(missing_ok=True)
            part.rmdir()
        raise
    finally:
        lock.release()


def _empty(part: Path) -> None:
    """Remove what a backup that was cut short left; anything else is not ours."""
    ours = {NAME + end for end in ("", "-wal", "-shm", "-journal")}
    if strangers := {file.name for file in part.iterdir()} - ours - {"lock"}:
        raise FileExistsError(f"{part} holds {strangers.pop()}, which is no part of a backup")
    for name in ours:
        (part / name).unlink(missing_ok=True)


def _copy(fill: Callable[[sqlite3.Connection], Any], target: Path) -> None:
    db = sqlite3.connect(target, **OPTIONS)
    try:
        fill(db)
        db.execute("PRAGMA journal_mode = DELETE")  # one file, complete by itself
        db.execute("PRAGMA synchronous = FULL")
        db.execute(schema.SET, seal("about", ("file", "")))  # no original: a copy
        schema.record_counts(db)
    finally:
        db.close()
    with open(target, "rb+") as file:
        os.fsync(file.fileno())
