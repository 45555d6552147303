"""Runs a service: binds its socket, and serves in this process or in workers under a supervisor."""

import asyncio
import atexit
import faulthandler
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn

from .. import checks
from . import supervisor
from .http.admission import CONNECTIONS, Connection, Limits, is_local
from .http.app import build
from .http.keys import Keys
from .service import Service, checked

KEEP_ALIVE = 65  # seconds: longer than proxies keep a connection, so that they close it, not we
LAST = 35  # seconds until a process ends after a signal, whatever it waits for


@dataclass(frozen=True)
class Options:
    """How to serve. From `socket` on, for workers: descriptors of the listening socket and of a
    pipe that closes when the supervisor ends, and whether to accept no connection before it
    decides."""

    place: str
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    bandits: list[str] = field(default_factory=list)
    agents: str | None = None
    role: str = "both"
    limits: Limits = field(default_factory=Limits)
    access_log: bool = False
    socket: int = -1
    alive: int | None = None
    waits: bool = False


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; connections that nobody reads from are dropped in time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listening.set_inheritable(True)
    return listening


def serve(options: Options) -> int:
    """Serve until told to end; the exit status. With several workers it does not return: the
    supervisor takes this process's place, without what was imported here."""
    checks.size("workers", options.workers, below=1000)
    place = checked(options.place, options.bandits, options.role)
    keyed = bool(Keys(place).all())
    if not keyed and not is_local(options.host):
        raise ValueError(
            f"without keys only this machine is served, and {options.host} is open to others: make "
            f"a key first, `ensemble-sampling keys create {place} --scope decide --scope learn`"
        )
    if options.agents is not None and not Path(options.agents).is_file():
        raise FileNotFoundError(f"there is no file {options.agents}")
    listening = bind(options.host, options.port)
    port = listening.getsockname()[1]
    shown = f"[{options.host}]" if ":" in options.host else options.host
    print(f"listening on http://{shown}:{port}")
    print(f"dashboard at http://{shown}:{port}/dashboard")
    print(
        f"keys: {'asked for' if keyed else 'none yet, open to this machine alone'}; make one with "
        f"`ensemble-sampling keys create {place} --scope decide --scope learn`",
        flush=True,
    )
    options = replace(options, socket=listening.fileno())
    if options.workers == 1:
        return work(options, listening)
    os.environ[supervisor.OPTIONS] = msgspec.json.encode(options).decode()
    os.execv(sys.executable, [sys.executable, "-P", supervisor.__file__])


def work(options: Options, listening: socket.socket) -> int:
    """Serve in this process."""
    files = raise_files()
    Connection.most = max(1, min(CONNECTIONS, files // 2))
    sys.setswitchinterval(0.001)  # reading requests and deciding take turns
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    if options.access_log:
        access = logging.getLogger("uvicorn.access")
        access.setLevel(logging.INFO)
        access.addFilter(_without_query)
    try:
        service = Service(
            options.place,
            bandits=options.bandits,
            agents=options.agents,
            role=options.role,
            limits=replace(options.limits, open=max(1, min(options.limits.open, files // 50))),
            local=is_local(options.host),
            processes=options.workers,
        )
        app = build(service, options.waits)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return supervisor.REFUSED
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=options.access_log,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=20,
    )
    server = Server(config)
    service.when_broken = server.end
    if options.alive is not None:
        threading.Thread(target=_watch, args=(options.alive,), daemon=True).start()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([listening]))
    if service.broken is not None:
        print(f"error: {service.broken}", file=sys.stderr)
        return supervisor.REFUSED if isinstance(service.broken, ValueError | TypeError) else 1
    return 0


def raise_files() -> int:
    """Raise the limit on open files as far as it goes, and return it. Every connection and every
    bandit takes some, and the usual limit is meant for programs that do not serve."""
    try:
        import resource
    except ImportError:  # on Windows
        return 4 * CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems have a limit beyond the limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4 * CONNECTIONS if soft == resource.RLIM_INFINITY else soft


class Server(uvicorn.Server):
    """A server whose process ends with status 0 after a signal; uvicorn's own raises it again."""

    def end(self) -> None:
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.end()
        # A database that neither answers nor disconnects would be waited for for ever. Everything
        # that was answered is on disk; the stacks of the threads are printed.
        faulthandler.dump_traceback_later(LAST, exit=True, file=sys.__stderr__ or 2)


def _without_query(record: logging.LogRecord) -> bool:
    """Do not log the query: somebody may have put a key into it by mistake."""
    if isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, *rest = record.args
        record.args = (client, method, str(path).partition("?")[0], *rest)
    return True


def _watch(alive: int) -> None:
    """End with the supervisor, also if it is killed; and remove the counts then."""
    os.read(alive, 1)
    atexit.register(shutil.rmtree, os.environ[supervisor.METRICS], ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    given = msgspec.json.decode(os.environ.pop(supervisor.OPTIONS), type=Options)
    if given.alive is not None:
        os.set_inheritable(given.alive, False)
    sys.exit(work(given, socket.socket(fileno=given.socket)))
