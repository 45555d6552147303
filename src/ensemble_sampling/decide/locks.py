"""Locks that copying the locked file cannot drop.

SQLite's own locks belong to the process: whoever in it opens and closes the database, as copying
does, drops them all. Those here belong to an open file and go only with it, or with the process.
"""

import os
import sqlite3
import struct
import sys
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

# The bytes by which SQLite knows that others have a database open, in the file itself (whoever
# deletes the log at closing must have them alone) and in its shared memory (whoever has them alone
# starts it anew). The third lies behind the first, where SQLite stores nothing: one of us writes.
SHARED, DEAD_MAN, WRITER = (0x40000002, 510), (128, 1), (0x40000200, 1)

_descriptors: set[int] = set()  # of files with locks


class FolderLock:
    """A folder taken for one writer, until it is released or the process dies."""

    def __init__(self, folder: Path):
        self._files: list[Any] = []
        if fcntl is None:
            self._files.append(_exclusive(folder / "lock"))
            return
        descriptor = _open(folder / "lock", os.O_CREAT)
        self._files.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            self.release()
            raise _taken(error) from error

    def release(self) -> None:
        while self._files:
            file = self._files.pop()
            _close(file) if isinstance(file, int) else file.close()


class DatabaseLock:
    """Keeps others from closing for good a database in WAL mode that is written to here."""

    def __init__(self, path: Path):
        self._files: list[int] = []
        if not hasattr(fcntl, "F_OFD_SETLK") or sys.maxsize < 2**32:
            return  # SQLite's own locks have to do
        try:
            self._files.append(_open(path))
            _set(self._files[0], fcntl.F_RDLCK, SHARED)
            _set(self._files[0], fcntl.F_WRLCK, WRITER)
            self._files.append(_open(path.with_name(path.name + "-shm")))
            _set(self._files[1], fcntl.F_RDLCK, DEAD_MAN)
        except BaseException as error:
            self.close()
            raise _taken(error) from error

    def release(self) -> None:
        """Just before the connection closes, which wants these bytes for itself."""
        for file in self._files:
            _set(file, fcntl.F_UNLCK, (0, 0))

    def close(self) -> None:
        """Only after the connection: closing its file drops SQLite's own locks."""
        while self._files:
            _close(self._files.pop())


def _open(path: Path, flags: int = 0) -> int:
    descriptor = os.open(path, os.O_RDWR | flags, 0o666)
    _descriptors.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    _descriptors.discard(descriptor)
    os.close(descriptor)


def _set(descriptor: int, kind: int, where: tuple[int, int]) -> None:
    """A lock of the open file, not of the process; (0, 0) is all of it."""
    lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)


def _exclusive(path: Path) -> sqlite3.Connection:
    """The same by SQLite's locks, where there are no others."""
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except BaseException as error:
        lock.close()
        raise _taken(error) from error
    return lock


def _taken(error: BaseException) -> BaseException:
    if isinstance(error, BlockingIOError) or "locked" in str(error):
        return OSError("another process has it open for writing; one process writes at a time")
    return error


def _after_fork() -> None:
    """A child's copies would keep the locks when the parent dies."""
    while _descriptors:
        os.close(_descriptors.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
