"""One process writes to a ledger, whatever is copied, forked or removed around it."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import closing, contextmanager
from itertools import takewhile
from pathlib import Path

import jax
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.decide.summary import inspect
from ensemble_sampling.ledger import backup, locks, schema, sqlite
from ensemble_sampling.ledger.ledger import DecisionRow, Ledger, OutcomeRow

AGENT = es.EnsembleSampling(es.Linear(dim=2, noise_std=0.5), members=4)
OFFER = np.random.default_rng(0).normal(size=(5, 2))
EXACT_LOCKS = pytest.mark.skipif(
    not hasattr(locks.fcntl, "F_OFD_SETLK"), reason="needs locks of open files"
)


def decided(number):
    features = np.array([number, 0.5], np.float32)
    return DecisionRow(number, 1e9 + number, 1, None, features, np.array([0.25, 0.75], np.float32))


def record(ledger, rounds):
    for number in range(ledger.decisions, ledger.decisions + rounds):
        ledger.add_decisions([decided(number)])
        ledger.add_outcomes([OutcomeRow(number, float(number), float(number))])


@contextmanager
def writer(code, *words):
    """Another process, which imports this module and runs code; it is killed at the end."""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-c", f"{start}from test_ledger import *\n{code}", *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.send_signal(signal.SIGKILL)


COPIED_AND_KILLED = """
folders = [Path(word) for word in sys.argv[1:]]
ledgers = [Ledger(folder) for folder in folders]
for ledger in ledgers:
    record(ledger, 1)
shutil.copy(folders[0] / "ledger.sqlite", folders[0].parent / "copy.sqlite")
shutil.copytree(folders[1], folders[1].parent / "copy")
(folders[1] / "ledger.sqlite-shm").read_bytes()
print("copied", flush=True)
input()
for ledger in ledgers:
    record(ledger, 200)
print("recorded", flush=True)
input()
"""


@EXACT_LOCKS
def test_copies_and_other_readers_cost_no_row_when_the_process_is_killed(tmp_path):
    folders = [tmp_path / "copied", tmp_path / "all-copied"]
    with writer(COPIED_AND_KILLED, *folders) as (say, hear):
        assert hear.readline() == "copied\n"
        for folder in folders:
            count = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(*db.execute("
            count += "'SELECT count(*) FROM decisions').fetchone()); db.close()"
            command = [sys.executable, "-c", count, str(folder / "ledger.sqlite")]
            assert subprocess.check_output(command, text=True) == "1\n"
            with pytest.raises(OSError, match="another process has it open for writing"):
                Ledger(folder)
            assert inspect(folder).decisions == 1
            (folder / "lock").unlink()  # not even then
            with pytest.raises(OSError, match="another process has it open for writing"):
                Ledger(folder)
        say.write("go on\n")
        assert hear.readline() == "recorded\n"
    for folder in folders:
        with closing(Ledger(folder, write=False)) as ledger:
            assert ledger.table()["outcome"] == [float(number) for number in range(201)]


def test_where_there_are_no_other_locks_those_of_sqlite_keep_writers_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "EXACT", False)
    with closing(Ledger(tmp_path)) as ledger:
        record(ledger, 2)
        with pytest.raises(OSError, match="this process has it open already"):
            Ledger(tmp_path)
    with closing(Ledger(tmp_path)) as ledger:
        assert ledger.outcomes == 2


@pytest.mark.parametrize("what", ["folder", "ledger.sqlite", "ledger.sqlite-wal"])
@pytest.mark.parametrize("how", ["removed", "replaced", "restored", "moved"])
@pytest.mark.parametrize("pause", [0.0, 0.06])
def test_a_ledger_that_is_taken_away_acknowledges_nothing_more(tmp_path, what, how, pause):
    folder = tmp_path / "shop"
    with closing(Ledger(folder)) as ledger:
        record(ledger, 3)
        time.sleep(pause)  # after which only the folder is looked at
        ledger.check()
        target, before = folder if what == "folder" else folder / what, folder.stat()
        if how == "removed":
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        else:
            target.rename(tmp_path / "elsewhere")
        if how in ("replaced", "restored"):
            again = shutil.copytree if what == "folder" else shutil.copy
            again(tmp_path / "elsewhere", target)
        if how == "restored":  # as `cp -a` and others do
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(OSError, match="was moved, removed or replaced while it was open"):
            ledger.check()
        with pytest.raises(OSError, match="nothing of this call is acknowledged"):
            ledger.add_decisions([decided(3)])
        with pytest.raises(OSError, match="was moved, removed or replaced"):
            ledger.backup(tmp_path / "backup")


def test_a_log_has_its_whole_length_early_and_what_follows_the_last_row_is_nothing(tmp_path):
    with closing(Ledger(tmp_path / "shop")) as ledger:
        record(ledger, 10)
        log = tmp_path / "shop" / "ledger.sqlite-wal"
        assert log.stat().st_size == sqlite.LOG
        record(ledger, 20)
        assert log.stat().st_size == sqlite.LOG
        shutil.copytree(tmp_path / "shop", tmp_path / "killed")
    for name in ("shop", "killed"):
        with closing(Ledger(tmp_path / name, write=False)) as ledger:
            assert ledger.table()["outcome"] == [float(number) for number in range(30)]


def test_a_bandit_whose_folder_was_moved_notices_at_once_and_writes_no_more(tmp_path):
    bandit = es.Bandit.open(tmp_path / "shop", AGENT)
    known, other = bandit.choose(OFFER), bandit.choose(OFFER)
    bandit.learn(known.id, 1.0)
    (tmp_path / "shop").rename(tmp_path / "elsewhere")
    calls = (
        lambda: bandit.learn(known.id, 1.0),  # nothing to write: it looks nevertheless
        lambda: bandit.choose(OFFER),
        lambda: bandit.learn(other.id, 1.0),
        lambda: bandit.choose_many([OFFER, OFFER]),
        lambda: bandit.learn_many([(other.id, 1.0)]),
    )
    for call in (*calls, *calls):
        with pytest.raises(OSError, match="was moved, removed or replaced"):
            call()
    bandit._ledger.close()
    with closing(Ledger(tmp_path / "elsewhere", write=False)) as ledger:
        assert ledger.decisions <= 3  # the one that noticed
        assert ledger.outcomes == 1


def test_a_bandit_whose_folder_is_gone_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bandit = es.Bandit.open("shop", AGENT)
    id = bandit.choose(OFFER).id
    monkeypatch.chdir("/")  # the folder is still where it was
    bandit.learn(id, 1.0)
    shutil.rmtree(tmp_path / "shop")
    with pytest.raises(OSError, match="removed"):
        bandit.choose(OFFER)
    bandit._ledger.close()


FORKED = """
bandit = es.Bandit.open(sys.argv[1], AGENT)
memory = es.Bandit(AGENT)
bandit.choose(OFFER)
child = os.fork()
if child == 0:
    for one in (bandit, memory):
        try:
            one.choose(OFFER)
        except RuntimeError as error:
            print(error, flush=True)
    bandit._ledger.close()
    sys.exit()
os.waitpid(child, 0)
sleeper = os.fork()
if sleeper == 0:
    signal.pause()
ids = [bandit.choose(OFFER).id for _ in range(50)]
print(sleeper, *ids, flush=True)
input()
"""


def test_a_forked_child_is_refused_and_harms_nobody(tmp_path):
    with writer(FORKED, tmp_path) as (_, hear):
        for _ in range(2):
            told = hear.readline()
            assert "is a fork" in told
            assert "open bandits in the child" in told
        sleeper, *ids = hear.readline().split()
    try:  # a child that outlives its parent keeps nothing locked
        with es.Bandit.open(tmp_path, AGENT) as bandit:
            assert bandit.log()["id"][1:] == ids
    finally:
        os.kill(int(sleeper), signal.SIGKILL)


def test_a_backup_of_a_running_bandit_is_complete(tmp_path):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        ids = [bandit.choose(OFFER).id for _ in range(100)]
        bandit.learn_many([(id, 1.0) for id in ids[:90]])
        bandit.backup(tmp_path / "backups" / "monday")
        bandit.choose(OFFER)
        log, state = bandit.log(), bandit.state
    assert sorted(p.name for p in (tmp_path / "backups").iterdir()) == ["monday"]
    with pytest.warns(UserWarning, match=r"is a copy.*the 100 before keep theirs"):
        copy = es.Bandit.open(tmp_path / "backups" / "monday", AGENT)
    with copy:
        assert copy.log() == {name: column[:100] for name, column in log.items()}
        assert jax.tree.all(jax.tree.map(np.array_equal, copy.state, state))
        assert copy.learn(ids[95], 0.0)
        assert not copy.learn(ids[0], 1.0)


def test_a_backup_restored_in_the_place_of_the_original_is_a_copy_too(tmp_path):
    with closing(Ledger(tmp_path / "shop")) as ledger:
        record(ledger, 3)
        ledger.backup(tmp_path / "backup")
        record(ledger, 2)
        lost = ledger.decision_id(4)
    content = (tmp_path / "backup" / "ledger.sqlite").read_bytes()
    (tmp_path / "shop" / "ledger.sqlite").write_bytes(content)  # the very same file
    with pytest.warns(UserWarning, match="was restored"):
        ledger = Ledger(tmp_path / "shop")
    with closing(ledger):
        record(ledger, 2)
        assert ledger.decision_id(4) != lost


def test_a_bandit_in_memory_can_be_backed_up_too(tmp_path):
    bandit = es.Bandit(AGENT)
    id = bandit.choose(OFFER).id
    bandit.backup(tmp_path / "shop")
    with pytest.warns(UserWarning, match="is a copy"):
        copy = es.Bandit.open(tmp_path / "shop", AGENT)
    with copy:
        assert copy.log()["id"] == [id]


def test_a_backup_overwrites_nothing(tmp_path):
    with closing(Ledger(None)) as ledger:
        record(ledger, 3)
        (tmp_path / "file").write_text("mine")
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for name in ("file", "folder", "link"):
            with pytest.raises(OSError, match="exists already, and a backup goes into a new"):
                ledger.backup(tmp_path / name)
        (tmp_path / "new.part").mkdir()
        (tmp_path / "new.part" / "thesis.txt").write_text("mine")
        with pytest.raises(OSError, match=r"thesis.txt, which is no part of a backup"):
            ledger.backup(tmp_path / "new")
        assert (tmp_path / "new.part" / "thesis.txt").read_text() == "mine"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "link", "new.part"]


def test_a_backup_that_fails_leaves_nothing_and_a_killed_one_is_taken_over(tmp_path, monkeypatch):
    with closing(Ledger(tmp_path / "shop")) as ledger:
        record(ledger, 3)

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(backup.os, "fsync", full)
        with pytest.raises(OSError, match=r"cannot back up the ledger in .*No space left"):
            ledger.backup(tmp_path / "backup")
        monkeypatch.undo()
        assert [p.name for p in tmp_path.iterdir()] == ["shop"]
        (tmp_path / "backup.part").mkdir()  # as left by a process that was killed
        (tmp_path / "backup.part" / "ledger.sqlite").write_text("half of a led")
        ledger.backup(tmp_path / "backup")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["backup", "shop"]
    with closing(Ledger(tmp_path / "backup", write=False)) as copy:
        assert copy.outcomes == 3


def test_a_copied_folder_goes_on_by_an_id_of_its_own(tmp_path):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        old = [bandit.choose(OFFER).id for _ in range(3)]
        bandit.learn(old[0], 1.0)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        elsewhere = bandit.choose(OFFER).id
        bandit.learn(elsewhere, 1.0)
        state = bandit.state
    assert elsewhere == old[0][:-1] + "3"  # the original is what it was
    with pytest.warns(UserWarning, match="is a copy"):
        copy = es.Bandit.open(tmp_path / "copy", AGENT)
    with copy:
        new = [copy.choose(OFFER).id for _ in range(2)]
        assert new[0] != elsewhere
        assert copy.log()["id"] == old + new
        assert copy.learn(old[2], 0.0)
        assert copy.learn(new[0], 1.0)
        assert not copy.learn(old[0], 1.0)
        for wrong in (elsewhere, new[0][:-1] + "0", new[0][:-1] + "9"):
            with pytest.raises(ValueError, match=f"there is no decision {wrong} in this ledger"):
                copy.learn(wrong, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warned once, and is an original now
        with es.Bandit.open(tmp_path / "copy", AGENT) as copy:
            assert copy.log()["id"] == old + new
    shutil.copy(tmp_path / "shop" / "state.safetensors", tmp_path / "copy" / "state.safetensors")
    with pytest.raises(ValueError, match="knows 2 outcomes, the ledger beside it only 1"):
        es.Bandit.open(tmp_path / "copy", AGENT)  # the original went another way since
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        assert jax.tree.all(jax.tree.map(np.array_equal, bandit.state, state))


@pytest.mark.filterwarnings("error")
def test_a_folder_that_was_moved_or_read_is_no_copy(tmp_path):
    with closing(Ledger(tmp_path / "shop")) as ledger:
        record(ledger, 2)
        id = ledger.id
    (tmp_path / "shop").rename(tmp_path / "store")
    assert inspect(tmp_path / "store").decisions == 2
    with closing(Ledger(tmp_path / "store")) as ledger:
        assert ledger.id == id


def test_a_file_is_itself_if_inode_and_device_or_file_system_are_the_same():
    assert backup.same_file("7: 5 900", "7: 5 900")
    assert backup.same_file("7: 5 900", "7: 6 900")  # a device numbered anew
    assert backup.same_file("7: 5 -", "7: 5 -")
    assert not backup.same_file("7: 5 900", "8: 5 900")
    assert not backup.same_file("7: 5 900", "7: 6 901")
    assert not backup.same_file("7: 5 -", "7: 6 -")  # no file system is none in common
    assert not backup.same_file("", "7: 5 900")


@pytest.mark.parametrize(
    "end", ["-" + "1" * 30, "-01", "-00", "-٣", "-²", "--1", "-1 ", " -1", "-1\n", "-", "-1.0", ""]
)
def test_what_is_no_id_is_refused(end):
    with closing(Ledger(None)) as ledger:
        record(ledger, 3)
        assert ledger.number(f"{ledger.id}-1") == 1
        with pytest.raises(ValueError, match="is not the id of a decision"):
            ledger.number(ledger.id + end)
        with pytest.raises(ValueError, match="is not the id of a decision"):
            ledger.number(ledger.id.upper().replace(ledger.id[0], "G") + "-1")
        with pytest.raises(ValueError, match="there is no decision"):
            ledger.number(f"{ledger.id}-3")
        with pytest.raises(ValueError, match="belongs to the ledger 0123456789ab, this is"):
            ledger.number("0123456789ab-1")
        for wrong in (1, None, b"x", [f"{ledger.id}-1"]):
            with pytest.raises(TypeError, match="a decision's id is text"):
                ledger.number(wrong)


FAILING_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int failing(void) {
  int fail = unlink(getenv("FAIL_ONCE")) == 0 || access(getenv("FAIL_ALWAYS"), F_OK) == 0;
  errno = fail ? EIO : errno;
  return fail;
}
int fsync(int fd) { return failing() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { return failing() ? -1 : ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""
SYNC_FAILS_AND_KILLED = """
for folder, fail in zip(sys.argv[1:], ("FAIL_ONCE", "FAIL_ONCE", "FAIL_ALWAYS")):
    ledger = Ledger(Path(folder))
    record(ledger, 3)
    Path(os.environ[fail]).touch()
    try:
        ledger.add_decisions([decided(3)])
    except OSError as error:
        print(error, flush=True)
    if folder == sys.argv[2]:
        record(ledger, 1)
    globals()[folder] = ledger  # never closed
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
def test_after_a_failed_sync_it_is_true_that_nothing_was_recorded(tmp_path, monkeypatch):
    (tmp_path / "fail.c").write_text(FAILING_SYNC)
    build = ["cc", "-shared", "-fPIC", "-o", "fail.so", "fail.c", "-ldl"]
    subprocess.run(build, cwd=tmp_path, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "fail.so"))
    monkeypatch.setenv("FAIL_ONCE", str(tmp_path / "fail-once"))
    monkeypatch.setenv("FAIL_ALWAYS", str(tmp_path / "fail-always"))
    folders = [tmp_path / name for name in ("once", "on", "always")]
    with writer(SYNC_FAILS_AND_KILLED, *folders) as (_, hear):
        told = [hear.readline() for _ in folders]
    assert all("could not write to the ledger" in line for line in told)
    assert "nothing was recorded" in told[0]
    assert "nothing was recorded" in told[1]
    assert "may or may not have been recorded" in told[2]
    expected = [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]
    for folder, outcomes in zip(folders, expected, strict=True):
        with closing(Ledger(folder, write=False)) as ledger:
            table = ledger.table()
            assert [y for y in table["outcome"] if y is not None] == outcomes
            assert len(table["id"]) == len(outcomes) or folder == folders[2]


FAILING_READ = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static long left = -1;
static int on = 0;
void fail_after(long reads, int always) { left = reads; on = always; }
long reads_left(void) { return left; }
static int failing(int fd) {
  char link[64], path[4096];
  ssize_t n;
  if (left < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  n = readlink(link, path, sizeof path - 1);
  path[n < 0 ? 0 : n] = 0;
  if (strstr(path, "ledger.sqlite") == NULL || strstr(path, "-shm") != NULL) return 0;
  if (left > 0) { left--; return 0; }
  if (!on) left = -1;
  errno = EIO;
  return 1;
}
#define NEXT(name, ...) ((ssize_t (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
ssize_t read(int fd, void *to, size_t n) {
  return failing(fd) ? -1 : NEXT("read", int, void *, size_t)(fd, to, n);
}
ssize_t pread(int fd, void *to, size_t n, off_t at) {
  return failing(fd) ? -1 : NEXT("pread", int, void *, size_t, off_t)(fd, to, n, at);
}
ssize_t pread64(int fd, void *to, size_t n, off_t at) {
  return failing(fd) ? -1 : NEXT("pread64", int, void *, size_t, off_t)(fd, to, n, at);
}
"""
READS_FAIL = """
import ctypes
disk, folder = ctypes.CDLL(None), Path(sys.argv[1])
for shared in (False, True):
    for always in (0, 1):
        failed, after = 0, 0
        while True:
            # At the end there is a read that was not reached.
            disk.fail_after(after, always)
            ledger = None
            try:
                ledger = Ledger(folder, shared=shared)
                ledger._database.execute("PRAGMA cache_size = 1")
                ledger.table()
                ledger.find([0, 100, 200])
                record(ledger, 1)
            except OSError as error:
                assert "restore a backup" not in str(error), error
                assert "the disk failed to" in str(error) or "disk I/O error" in str(error), error
                failed += 1
            left = disk.reads_left()
            disk.fail_after(-1, 0)
            if ledger is not None:
                assert len(ledger.table()["id"]) == ledger.decisions  # it can be read again
                record(ledger, 1)
                ledger.close()
            if left > 0:
                break
            after += 1 if after < 20 else 7
        print(failed > 10, flush=True)
ledger, failed = Ledger(folder), 0
record(ledger, 1)
for after in range(8):  # of a reader beside it
    disk.fail_after(after, 1)
    try:
        Ledger(folder, write=False).close()
    except OSError as error:
        assert "the disk failed to" in str(error) or "disk I/O error" in str(error), error
        failed += 1
    disk.fail_after(-1, 0)
print(failed > 2, flush=True)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD")
def test_a_disk_that_fails_to_read_is_said_to_and_no_damage_is(tmp_path, monkeypatch):
    (tmp_path / "fail.c").write_text(FAILING_READ)
    build = ["cc", "-shared", "-fPIC", "-o", "fail.so", "fail.c", "-ldl"]
    subprocess.run(build, cwd=tmp_path, check=True)
    with closing(Ledger(tmp_path / "shop")) as ledger:
        ledger.add_decisions([decided(number) for number in range(300)])
        ledger.add_outcomes([OutcomeRow(number, float(number), 0.0) for number in range(300)])
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "fail.so"))
    with writer(READS_FAIL, tmp_path / "shop") as (_, hear):
        assert [hear.readline() for _ in range(5)] == ["True\n"] * 5


@pytest.mark.parametrize(
    ("name", "error"), [("SQLITE_ERROR", ValueError), ("SQLITE_BUSY", sqlite3.OperationalError)]
)
def test_only_what_lacks_the_tables_is_said_to_hold_no_ledger(name, error):
    class Failing:
        def execute(self, query):
            failure = sqlite3.OperationalError("it failed")
            failure.sqlite_errorname = name
            raise failure

    with pytest.raises(error):
        schema.read_format(Failing())


@contextmanager
def read_only(folder):
    """A folder in which an ordinary user may read, and such a user."""
    above = takewhile(lambda path: path != Path(tempfile.gettempdir()), folder.parents)
    for path in (folder, *above):
        path.chmod(0o755)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o755)


@pytest.mark.parametrize("left", [(), ("ledger.sqlite-wal", "ledger.sqlite-shm")])
def test_a_closed_bandit_can_be_inspected_where_nothing_can_be_written(tmp_path, left):
    with es.Bandit.open(tmp_path / "shop", AGENT) as bandit:
        bandit.learn(bandit.choose(OFFER).id, 1.0)
    for name in left:
        (tmp_path / "shop" / name).touch()
    files = {p.name for p in (tmp_path / "shop").iterdir()}
    with read_only(tmp_path / "shop"):
        assert inspect(tmp_path / "shop").outcomes == 1
    assert {p.name for p in (tmp_path / "shop").iterdir()} == files


def test_a_bandit_that_was_not_closed_is_not_half_read_where_nothing_can_be_written(tmp_path):
    with closing(Ledger(tmp_path / "shop")) as ledger:
        record(ledger, 3)
        shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    (tmp_path / "copy" / "ledger.sqlite-shm").unlink()
    with (
        read_only(tmp_path / "copy"),
        pytest.raises(OSError, match="copy the folder elsewhere and read the copy"),
    ):
        inspect(tmp_path / "copy")
    assert inspect(tmp_path / "copy").decisions == 3


def test_readers_leave_the_log_of_a_ledger_alone(tmp_path):
    with closing(Ledger(tmp_path)) as ledger:
        record(ledger, 3)
        log = tmp_path / "ledger.sqlite-wal"
        before = (log.stat().st_ino, log.stat().st_size)
        for _ in range(3):
            inspect(tmp_path)
            with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
                assert db.execute("SELECT count(*) FROM decisions").fetchone() == (3,)
        assert (log.stat().st_ino, log.stat().st_size) == before
        ledger.check()


def test_what_was_just_decided_is_what_a_reading_gives(tmp_path):
    """Also where the ledger is kept in another precision than the agent's."""
    with closing(Ledger(tmp_path)) as ledger:
        fine = decided(0)._replace(features=np.array([1 / 3, 2 / 3]))
        ledger.add_decisions([fine])
        soon = ledger.decision(0)
        ledger._recent.clear()
        late = ledger.decision(0)
        assert soon is not None
        assert late is not None
        assert soon.features.dtype == late.features.dtype == np.float32
        assert np.array_equal(soon.features, late.features)
