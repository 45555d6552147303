"""The service on PostgreSQL: its bandits, keys and what is said when the database is away."""

# pyright: reportOptionalSubscript=false

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import quote, unquote

import httpx
import pytest
import servers
from services import ready, running, until

from ensemble_sampling.serve.http import admission
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.service import Service
from ensemble_sampling.serve.storage import Storage

OFFER = {"actions": {"a": {"x": "1"}, "b": {"x": "2"}}}


@pytest.fixture
def url():
    return servers.new_database()


def test_bandits_and_keys_are_in_the_database(url):
    place = Storage.of(url)
    assert place.names() == []
    assert Keys(place).all() == []
    with running(url, bandits=["shop"]) as (http, service):
        assert service.access.open
        assert service.storage.names() == ["default", "shop"]
        made = httpx.post(f"{http}/v1/bandits/shop/choose", json=OFFER, timeout=60).json()
        assert httpx.put(f"{http}/v1/bandits/new-one", timeout=60).status_code == 201
        secret, key = Keys(place).create(["learn"], bandit="shop")
        told = {"id": made["id"], "outcome": 1.0}
        path = f"{http}/v1/bandits/shop/outcome"
        until(lambda: not service.access.open)
        assert httpx.post(path, json=told).status_code == 401
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.post(path, json=told, headers=headers, timeout=60).json() == {"new": True}
        assert Keys(place).revoke(key.id)
        until(lambda: httpx.post(path, json=told, headers=headers).status_code == 401)
    assert place.names() == ["default", "new-one", "shop"]
    assert place.exists("shop")
    assert not place.exists("other")


def allowed(url):
    """Headers with a key for everything."""
    return {"Authorization": f"Bearer {Keys(Storage.of(url)).create(['admin'])[0]}"}


def test_a_database_that_is_away_is_said_without_its_password():
    url = "postgresql://me:secret@127.0.0.1:1/nowhere"
    storage = Storage.of(url)
    for call in (storage.names, Keys(storage).all, Service(url).access.refresh):
        with pytest.raises(OSError, match="does not answer") as found:
            call()
        assert "secret" not in str(found.value)
    assert "secret" not in str(Service(url).storage)


class Line:
    """A way to the server that can be cut, or fall silent."""

    def __init__(self, folder, target):
        self._folder, self._target, self.silent = folder, target, False
        self._pairs: list[socket.socket] = []
        self.open()

    def open(self):
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._folder / ".s.PGSQL.5432"))
        self._listening.listen()
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def cut(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        (self._folder / ".s.PGSQL.5432").unlink()
        while self._pairs:
            with suppress(OSError):
                self._pairs.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self, listening):
        with suppress(OSError):
            while True:
                near, far = listening.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect(self._target)
                self._pairs += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._hand_on, args=pair, daemon=True).start()

    def _hand_on(self, source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                while self.silent:
                    time.sleep(0.01)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def through(tmp_path, url):
    """(line, URL) of a way to the database."""
    folder = re.search(r"host=([^&]*)", url)[1]
    line = Line(tmp_path, f"{unquote(folder)}/.s.PGSQL.5432")
    try:
        yield line, url.replace(folder, quote(str(tmp_path), safe=""))
    finally:
        line.silent = False  # or it would never end
        line.cut()


def becomes(http, status, said):
    """Wait until it says whether it decides."""
    until(lambda: httpx.get(f"{http}/readyz").status_code == status, 10.0)
    assert httpx.get(f"{http}/readyz").json() == {"status": said}
    assert httpx.get(f"{http}/healthz").status_code == 200


def test_while_the_database_is_away_it_says_so_and_not_where_that_is(url, tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "SILENT", 1.5)
    headers = allowed(url)
    with through(tmp_path, url) as (line, place), running(place) as (http, service):
        becomes(http, 200, "ok")
        line.cut()
        becomes(http, 503, "away")
        until(lambda: service.engines["default"].trouble)
        for path in ("default/status", "default/log", "other/log"):
            found = httpx.get(f"{http}/v1/bandits/{path}", headers=headers, timeout=60)
            assert found.status_code == 503 or found.json()["trouble"] is not None
            assert "postgres" not in found.text
            assert str(tmp_path) not in found.text
        line.open()
        becomes(http, 200, "ok")
        line.silent = True
        try:
            becomes(http, 503, "away")
        finally:
            line.silent = False
        becomes(http, 200, "ok")


def lose(url):
    """End all connections to the service's database."""
    name = url.partition("?")[0].rpartition("/")[2]
    servers.admin(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", name
    )


REFUSED = {
    "add": ("POST", {"id": "nobody", "amount": 1.0}, 404),
    "correct": ("POST", {"id": "nobody", "outcome": 1.0}, 404),
    "settings": ("PUT", {"wait": 60.0, "default": [1.0, 2.0]}, 400),
}


def test_after_its_connections_were_lost_everything_works_again(url):
    known = []
    with running(url, bandits=["lost"]) as (http, _), httpx.Client(timeout=60) as client:
        base = f"{http}/v1/bandits/lost"

        def works(times=1):
            for _ in range(times):
                made = client.post(f"{base}/choose", json=OFFER)
                assert made.status_code == 200, made.text
                known.append(made.json()["id"])
                told = {"id": known[-1], "outcome": 1.0}
                assert client.post(f"{base}/outcome", json=told).json() == {"new": True}
                told = {"id": known[-1], "amount": 1.0, "ref": "order"}
                assert client.post(f"{base}/add", json=told).json() == {"new": True}

        def refused(path):
            method, body, status = REFUSED[path]
            assert client.request(method, f"{base}/{path}", json=body).status_code == status

        for path in REFUSED:
            lose(url)
            works(6)  # by then the driver has prepared what is asked often
            refused(path)
            works()
            lose(url)
            refused(path)
            works()
            refused(path)
            lose(url)
            works()
        becomes(http, 200, "ok")
        log = client.get(f"{base}/log").json()["columns"]
    assert log["id"] == known
    assert log["outcome"] == [2.0] * len(known)


def test_it_is_not_ready_while_only_what_decides_has_no_database(url, monkeypatch):
    import psycopg

    def away(*_):
        raise psycopg.OperationalError("no")

    with running(url) as (http, service):
        ledger = service.engines["default"].replicas.ledger
        decide = f"{http}/v1/bandits/default/choose"
        becomes(http, 200, "ok")
        assert httpx.post(decide, json=OFFER, timeout=60).status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(ledger._database, "standing", away)
            assert httpx.post(decide, json=OFFER, timeout=60).status_code == 503
            becomes(http, 503, "away")
            assert httpx.post(decide, json=OFFER, timeout=60).status_code == 503
        becomes(http, 200, "ok")
        assert httpx.post(decide, json=OFFER, timeout=60).status_code == 200


def test_told_to_end_it_does_also_while_the_database_is_silent(url, tmp_path):
    code = (
        "import sys; from ensemble_sampling.serve import run; run.LAST = 2; "
        "sys.exit(run.serve(run.Options(sys.argv[1], port=0)))"
    )
    with through(tmp_path, url) as (line, place):
        process = subprocess.Popen(
            [sys.executable, "-c", code, place], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            ready(process.stdout.readline().decode().split()[-1])
            line.silent = True
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert b"Timeout" in said
    assert b"postgres.py" in said  # where it waits
