"""Locks that copying the locked file cannot drop.

SQLite's own locks belong to the process: whoever in it opens and closes the database, as copying
does, drops them all. Those here belong to an open file and go only with it, or with the process.
"""

import os
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

# The bytes by which SQLite knows that others have a database open, in the file itself (whoever
# deletes the log at closing must have them alone) and in its shared memory (whoever has them alone
# starts it anew). The third lies behind the first, where SQLite stores nothing: one of us writes,
# or several in turns.
SHARED, DEAD_MAN, WRITER = (0x40000002, 510), (128, 1), (0x40000200, 1)
TURN = (0, 1)  # of the file `lock`: whoever has it writes
WAIT = 5.0  # seconds for a turn

_descriptors: set[int] = set()  # of files with locks
_mutex = threading.Lock()  # over the next
_together: dict[tuple[int, int], "DatabaseLock"] = {}  # those of databases that we share


class FolderLock:
    """A folder taken for one writer, or for several, until it is released or the process dies."""

    def __init__(self, folder: Path, shared: bool = False):
        self._files: list[Any] = []
        if fcntl is None:
            self._files.append(_by_sqlite(folder / "lock", shared))
            return
        descriptor = _open(folder / "lock", os.O_CREAT)
        self._files.append(descriptor)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BaseException as error:
            alone = shared or not _is_shared(descriptor)
            self.release()
            raise _taken(error, alone) from error

    def begin(self) -> None:
        """Wait until no other of those who share the folder writes."""
        if not _exact():
            return  # SQLite's own locks have to do
        end, pause = time.monotonic() + WAIT, 1e-4
        while True:
            try:
                return _set(self._files[0], fcntl.F_WRLCK, TURN)
            except BlockingIOError as error:
                if time.monotonic() > end:
                    told = f"other processes have been writing to it for {WAIT:g} seconds"
                    raise OSError(told) from error
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def end(self) -> None:
        """Let others write."""
        if _exact():
            _set(self._files[0], fcntl.F_UNLCK, TURN)

    def release(self) -> None:
        while self._files:
            file = self._files.pop()
            _close(file) if isinstance(file, int) else file.close()


class DatabaseLock:
    """Keeps others from closing for good a database in WAL mode that is written to here."""

    def __init__(self, path: Path, shared: bool = False):
        self._files: list[int] = []
        self._users, self._key = 1, None
        if not _exact():
            return  # SQLite's own locks have to do
        try:
            self._files.append(_open(path))
            _set(self._files[0], fcntl.F_RDLCK, SHARED)
            _set(self._files[0], fcntl.F_RDLCK if shared else fcntl.F_WRLCK, WRITER)
            self._files.append(_open(path.with_name(path.name + "-shm")))
            _set(self._files[1], fcntl.F_RDLCK, DEAD_MAN)
        except BaseException as error:
            self.close()
            raise _taken(error) from error

    @classmethod
    def shared(cls, path: Path) -> "DatabaseLock":
        """One for all in this process: closing a file drops SQLite's own locks on it."""
        stat = path.stat()
        key = stat.st_dev, stat.st_ino
        with _mutex:
            if key in _together:
                _together[key]._users += 1
            else:
                _together[key] = cls(path, shared=True)
                _together[key]._key = key
            return _together[key]

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Around the closing of the connection, which wants these bytes for itself; only then are
        the files closed, since that drops SQLite's own locks."""
        with _mutex:
            if self._users == 1:
                for file in self._files:
                    _set(file, fcntl.F_UNLCK, (0, 0))
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        self._users -= 1
        if self._users:
            return
        if self._key is not None:
            del _together[self._key]
        while self._files:
            _close(self._files.pop())


def _exact() -> bool:
    """Whether there are locks of open files, of parts of them."""
    return hasattr(fcntl, "F_OFD_SETLK") and sys.maxsize >= 2**32


def _is_shared(descriptor: int) -> bool:
    """Whether those who have a file locked share it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


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


def _by_sqlite(path: Path, shared: bool) -> sqlite3.Connection:
    """The same by SQLite's locks, where there are no others."""
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN" if shared else "BEGIN EXCLUSIVE")
        lock.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException as error:
        lock.close()
        raise _taken(error) from error
    return lock


def _taken(error: BaseException, alone: bool = True) -> BaseException:
    if not isinstance(error, BlockingIOError) and "locked" not in str(error):
        return error
    if alone:
        return OSError("another process has it open for writing; one process writes at a time")
    return OSError("it is being served: ask the service, or stop it first")


def _after_fork() -> None:
    """A child's copies would keep the locks when the parent dies."""
    global _mutex
    _mutex = threading.Lock()  # another thread may have held it
    _together.clear()
    while _descriptors:
        os.close(_descriptors.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
