"""A service on a free port, in a thread of the test's own process."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from ensemble_sampling.serve.http.app import build
from ensemble_sampling.serve.http.limits import Connection
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
