"""The service as processes: it listens, ends gracefully, and workers that die are started anew."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise

import httpx
import pytest
from services import ready

import ensemble_sampling as es
from ensemble_sampling.serve import supervisor
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.storage import Storage

OFFER = {"actions": {"a": {"x": "1"}, "b": {"x": "2"}}}


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


def children(process):
    """Of a supervisor, by their ids."""
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(path) as file:
        return [int(number) for number in file.read().split()]


def test_it_says_where_it_listens_and_ends_when_told(tmp_path):
    with started(tmp_path / "place") as (process, url, lines):
        assert lines[1] == f"dashboard at {url}/dashboard\n"
        assert "keys create" in lines[2]
        ready(url)
        made = httpx.post(f"{url}/v1/bandits/default/choose", json=OFFER, timeout=60).json()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    secret, _ = Keys(Storage.of(tmp_path / "place")).create(["read"])
    with started(tmp_path / "place", "--access-log") as (process, url, lines):
        assert lines[2].startswith("keys: asked for")
        ready(url)
        headers = {"Authorization": f"Bearer {secret}"}
        found = httpx.get(f"{url}/v1/bandits/default/log", headers=headers).json()
        assert found["columns"]["id"] == [made["id"]]
        assert found["columns"]["outcome"] == [None]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        logged = process.stderr.read()
        assert '"GET /v1/bandits/default/log HTTP/1.1" 200' in logged
        assert secret not in logged


def test_a_request_in_flight_is_answered_when_it_ends(tmp_path):
    with started(tmp_path / "place") as (process, url, _):
        ready(url)
        body = json.dumps(OFFER).encode()
        head = "POST /v1/bandits/default/choose HTTP/1.1\r\nHost: localhost\r\n"
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(
                f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # it waits for the body
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            connection.sendall(body)
            found = b"".join(iter(lambda: connection.recv(65536), b""))
        assert found.startswith(b"HTTP/1.1 200 ")
        assert process.wait(30) == 0


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "ensemble_sampling.cli", "serve", str(tmp_path), "--port"]
        found = subprocess.run([*command, port], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="looks for children in /proc")
def test_workers_that_die_are_started_anew_and_all_end_together(tmp_path):
    with started(tmp_path / "place", "--workers", "2") as (process, url, _):
        ready(url)
        first = children(process)
        assert len(first) == 2
        made = []
        for _ in range(8):  # a connection each, for whichever worker takes it
            with es.Client(url, timeout=60, retries=20) as client:
                made.append(client.choose(OFFER["actions"]).id)
        os.kill(first[0], signal.SIGKILL)
        until = time.monotonic() + 30
        while time.monotonic() < until and (
            len(children(process)) < 2 or first[0] in children(process)
        ):
            time.sleep(0.05)
        second = children(process)
        assert len(second) == 2
        assert first[1] in second
        assert first[0] not in second
        for id in made:
            with es.Client(url, timeout=60, retries=20) as client:
                assert client.learn(id, 1.0)
        counted = httpx.get(f"{url}/metrics", timeout=60).text  # also by the one that was killed
        said = 'method="POST",route="/v1/bandits/{name}/choose",status="200"'
        assert f"ensemble_requests_total{{{said}}} 8.0\n" in counted
        os.kill(process.pid, signal.SIGKILL)  # workers end with their supervisor
        process.wait(30)
        until = time.monotonic() + 30
        while time.monotonic() < until and any(map(lives, second)):
            time.sleep(0.05)
        assert not any(map(lives, second))


def lives(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_supervisor_waits_longer_each_time_a_worker_dies_at_once(monkeypatch):
    class Dead:
        def __init__(self, *_, **__):
            starts.append(now[0])

        def poll(self):
            return 1

    starts, now = [], [0.0]
    monkeypatch.setattr(supervisor.subprocess, "Popen", Dead)
    worker = supervisor.Worker(0, {}, ())
    while now[0] < 30.0:
        worker.look(now[0])
        now[0] += 0.05
    waits = [b - a for a, b in pairwise(starts)]
    assert waits[0] == pytest.approx(0.1, abs=0.01)  # seen at one look, started at the next
    for wait, least in zip(waits[1:6], (0.5, 1.0, 2.0, 4.0, 8.0), strict=True):
        assert least <= wait <= least + 0.2


def test_a_supervisor_imports_nothing_heavy():
    code = (
        "import sys, runpy; runpy.run_path(sys.argv[1], run_name='supervisor'); "
        "print([m for m in ('jax', 'numpy', 'ensemble_sampling') if m in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", code, supervisor.__file__]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"
