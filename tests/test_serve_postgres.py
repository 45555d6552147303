"""The service on PostgreSQL: its bandits, keys and what is said when the database is away."""

# pyright: reportOptionalSubscript=false

import re
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import quote, unquote

import httpx
import pytest
import servers
from serving import running

from ensemble_sampling.serve import service as services
from ensemble_sampling.serve.keys import Keys, Ring
from ensemble_sampling.serve.places import Place
from ensemble_sampling.serve.service import Service

OFFER = {"actions": {"a": {"x": "1"}, "b": {"x": "2"}}}


@pytest.fixture(scope="module")
def url():
    """A database of its own, since a service takes all there is in one."""
    import psycopg
    from psycopg import sql

    server = servers.postgres()
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        name = f"served_{time.time_ns()}"
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.get_uri().replace("/postgres?", f"/{name}?")


def test_bandits_and_keys_are_in_the_database(url):
    place = Place.of(url)
    assert place.names() == []
    assert Keys(place).all() == []
    with running(url, bandits=["shop"]) as (http, service):
        assert service.open
        assert service.names == ["default", "shop"]
        made = httpx.post(f"{http}/v1/bandits/shop/decide", json=OFFER, timeout=60).json()
        assert httpx.put(f"{http}/v1/bandits/new-one", timeout=60).status_code == 201
        secret, key = Keys(place).create(["learn"], bandit="shop")
        time.sleep(1.0)
        told = {"id": made["id"], "outcome": 1.0}
        path = f"{http}/v1/bandits/shop/outcome"
        assert httpx.post(path, json=told).status_code == 401
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.post(path, json=told, headers=headers, timeout=60).json() == {"new": True}
        assert Keys(place).revoke(key.id)
        time.sleep(1.0)
        assert httpx.post(path, json=told, headers=headers).status_code == 401
    assert place.names() == ["default", "new-one", "shop"]
    assert place.exists("shop")
    assert not place.exists("other")


def test_a_database_that_is_away_is_said_without_its_password():
    url = "postgresql://me:secret@127.0.0.1:1/nowhere"
    for call in (Place.of(url).names, Keys(Place.of(url)).all, Ring(Keys(Place.of(url))).refresh):
        with pytest.raises(OSError, match="does not answer") as found:
            call()
        assert "secret" not in str(found.value)
    assert "secret" not in str(Service(url).place)


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


def until(http, status, said, seconds):
    end = time.monotonic() + seconds
    while (found := httpx.get(f"{http}/readyz")).status_code != status:
        assert time.monotonic() < end, found.text
        time.sleep(0.02)
    assert found.json() == {"status": said}
    assert httpx.get(f"{http}/healthz").status_code == 200


def test_it_is_not_ready_while_the_database_is_away(url, tmp_path, monkeypatch):
    monkeypatch.setattr(services, "SILENT", 1.5)
    folder = re.search(r"host=([^&]*)", url)[1]
    line = Line(tmp_path, f"{unquote(folder)}/.s.PGSQL.5432")
    with running(url.replace(folder, quote(str(tmp_path), safe=""))) as (http, _):
        until(http, 200, "ok", 5.0)
        line.cut()
        until(http, 503, "away", 2.0)
        line.open()
        until(http, 200, "ok", 5.0)
        line.silent = True
        until(http, 503, "away", 4.0)
        line.silent = False
        until(http, 200, "ok", 5.0)
    line.cut()
