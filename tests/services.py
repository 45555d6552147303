"""A service on a free port: in a thread of the test's own process, or in processes of its own."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from ensemble_sampling.serve.http.admission import Connection
from ensemble_sampling.serve.http.app import build
from ensemble_sampling.serve.run import KEEP_ALIVE, Server, bind
from ensemble_sampling.serve.service import Service


@contextmanager
def running(place, http=Connection, **options):
    """(url, service), once it decides."""
    service = Service(place, **options)
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        build(service),
        http=http,
        ws="none",
        lifespan="on",
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
    )
    server = Server(config)
    # One that hangs is not to keep the tests from ending.
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        ready(url, lambda: thread.is_alive())
        yield url, service
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the service does not end"


@contextmanager
def started(*arguments):
    """(process, url, lines it printed) of a service on a free port."""
    command = [sys.executable, "-m", "ensemble_sampling.cli", "serve", *map(str, arguments)]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+)\n", lines[0])
        assert found, (lines, process.stderr and process.stderr.read())
        yield process, found[1], lines
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def ready(url, alive=lambda: True):
    """Wait until a service decides."""

    def decides():
        assert alive(), f"the service at {url} did not start"
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    until(decides, 60.0)


def until(true, seconds=30.0):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def raw(url, sent, wait=5.0):
    """What comes back on a connection for bytes, until it is closed or nothing comes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        connection.sendall(sent)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except TimeoutError:
            return found + b" (still open)"
        except ConnectionResetError:
            pass
    return found
