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
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

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
# Whether there are locks of open files, of parts of them. Without, SQLite's own have to do.
EXACT = hasattr(fcntl, "F_OFD_SETLK") and sys.maxsize >= 2**32

# Locks belong to file objects, which can be closed twice, and close when nobody has them any more:
# an interrupt at any moment leaves nothing locked that cannot be let go.
_files: WeakSet[FileIO] = WeakSet()
_folders: WeakSet["FolderLock"] = WeakSet()  # that this process has
_mutex = threading.RLock()  # over the next; see `_alone`
_together: WeakValueDictionary[tuple[int, int], "DatabaseLock"] = WeakValueDictionary()


class Held(OSError):
    """Somebody else has it open."""


class FolderLock:
    """A folder taken for one writer, or for several, until it is released or the process dies."""

    def __init__(self, folder: Path, shared: bool = False):
        stat = os.stat(folder)
        self._folder = stat.st_dev, stat.st_ino
        self._file: Any = None
        try:
            if fcntl is None:
                self._file = _by_sqlite(folder / "lock", shared)
            else:
                self._file = _open(folder / "lock", os.O_CREAT)
                kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BaseException as error:
            served = not shared and _is_shared(self._file)
            self.release()
            here = any(lock._folder == self._folder for lock in list(_folders))
            raise _taken(error, here, served) from error
        _folders.add(self)

    def begin(self) -> None:
        """Wait until no other of those who share the folder writes."""
        if not EXACT:
            return
        end, pause = time.monotonic() + WAIT, 1e-4
        while True:
            try:
                return _set(self._file, fcntl.F_WRLCK, TURN)
            except BlockingIOError as error:
                if time.monotonic() > end:
                    told = f"other processes have been writing to it for {WAIT:g} seconds"
                    raise OSError(told) from error
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def end(self) -> None:
        """Let others write."""
        if EXACT:
            _set(self._file, fcntl.F_UNLCK, TURN)

    def release(self) -> None:
        """May be called again."""
        if self._file is not None:
            self._file.close()
        _folders.discard(self)


class DatabaseLock:
    """Keeps others from closing for good a database in WAL mode that is written to here.

    user: what writes to it.
    """

    def __init__(self, path: Path, user: Any, shared: bool = False):
        self._files: list[FileIO] = []
        self._users, self._key = WeakSet([user]), None
        if not EXACT:
            return
        try:
            self._files.append(_open(path))
            _set(self._files[0], fcntl.F_RDLCK, SHARED)
            _set(self._files[0], fcntl.F_RDLCK if shared else fcntl.F_WRLCK, WRITER)
            self._files.append(_open(path.with_name(path.name + "-shm")))
            _set(self._files[1], fcntl.F_RDLCK, DEAD_MAN)
        except BaseException as error:
            self._close(user)
            raise _taken(error) from error

    @classmethod
    def shared(cls, path: Path, user: Any) -> "DatabaseLock":
        """One for all in this process: closing a file drops SQLite's own locks on it."""
        stat = path.stat()
        key = stat.st_dev, stat.st_ino
        with _alone():
            found = _together.get(key)
            if found is None:
                _together[key] = found = cls(path, user, shared=True)
                found._key = key
            found._users.add(user)
            return found

    def close(self, user: Any, connection: sqlite3.Connection) -> None:
        """Close the connection, which wants these bytes for itself; only then are the files closed,
        since that drops SQLite's own locks. May be called again."""
        # Nothing is handed out while it is held: an interrupt would leave it with whoever has that.
        with _alone():
            try:
                if set(self._users) == {user}:
                    for file in self._files:
                        _set(file, fcntl.F_UNLCK, (0, 0))
                connection.close()
            finally:
                self._close(user)

    def _close(self, user: Any) -> None:
        if set(self._users) - {user}:
            self._users.discard(user)
            return
        if self._key is not None and _together.get(self._key) is self:
            del _together[self._key]
        for file in self._files:
            file.close()
        self._users.discard(user)


def _alone() -> Any:
    """To be held while files are locked or closed.

    Interrupts come to the main thread. One at the wrong moment may leave it there, where it can be
    taken again, and then other threads wait no longer than for a turn.
    """
    global _mutex
    held = _mutex
    if threading.current_thread() is threading.main_thread():
        return held
    if held.acquire(timeout=WAIT):
        held.release()
    elif _mutex is held:
        _mutex = threading.RLock()
    return _mutex


def _is_shared(file: Any) -> bool:
    """Whether those who have a file locked share it."""
    if not isinstance(file, FileIO):
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _open(path: Path, more: int = 0) -> FileIO:
    file = FileIO(path, "r+", opener=lambda path, flags: os.open(path, flags | more, 0o666))
    _files.add(file)
    return file


def _set(file: FileIO, kind: int, where: tuple[int, int]) -> None:
    """A lock of the open file, not of the process; (0, 0) is all of it. One that was closed has
    none any more."""
    if not file.closed:
        lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, *where, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)


def _by_sqlite(path: Path, shared: bool) -> sqlite3.Connection:
    """The same by SQLite's locks, where there are no others."""
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN" if shared else "BEGIN EXCLUSIVE")
        lock.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        lock.close()
        raise
    return lock


def _taken(error: BaseException, here: bool = False, served: bool = False) -> BaseException:
    """`here`: by this process."""
    if not isinstance(error, BlockingIOError) and "locked" not in str(error):
        return error
    if served:
        return Held("it is being served: ask the service, or stop it first")
    if here:
        return Held(
            "this process has it open already, as a bandit that was not closed: go on with that "
            "one, or call its close() first (in a notebook, before the cell is run again)"
        )
    return Held("another process has it open for writing; one process writes at a time")


def _after_fork() -> None:
    """A child's copies would keep the locks when the parent dies."""
    global _mutex
    _mutex = threading.RLock()  # another thread may have held it
    _together.clear()
    _folders.clear()
    for file in list(_files):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
