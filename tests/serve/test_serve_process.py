"""The service as processes: it listens, ends gracefully, and workers that die are started anew."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest
from servers import new_database
from services import ready, started, until

import ensemble_sampling as es
from ensemble_sampling.serve import run, supervisor
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.storage import Storage

OFFER = {"actions": {"a": {"x": "1"}, "b": {"x": "2"}}}


def ended(process, number):
    """What a process printed as errors until it ended, as it was told by a signal."""
    process.send_signal(number)
    assert process.wait(30) == 0
    return process.stderr.read()


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
        taken = url.rpartition(":")[2]
        command = [sys.executable, "-m", "ensemble_sampling.cli", "serve", str(tmp_path / "other")]
        found = subprocess.run([*command, "--port", taken], capture_output=True, text=True)
        assert found.returncode == 2
        assert f"cannot listen on 127.0.0.1:{taken}" in found.stderr
        assert "Traceback" not in found.stderr
        assert ended(process, signal.SIGINT) == ""
    secret, _ = Keys(Storage.of(tmp_path / "place")).create(["read", "decide"])
    with started(tmp_path / "place", "--access-log") as (process, url, lines):
        assert lines[2].startswith("keys: asked for")
        ready(url)
        headers = {"Authorization": f"Bearer {secret}"}
        found = httpx.get(f"{url}/v1/bandits/default/log", headers=headers).json()
        assert found["columns"]["id"] == [made["id"]]
        assert found["columns"]["outcome"] == [None]
        answer = _in_flight(process, url, secret)
        assert answer.startswith(b"HTTP/1.1 200 ")
        logged = ended(process, signal.SIGTERM)
        assert '"GET /v1/bandits/default/log HTTP/1.1" 200' in logged
        assert secret not in logged


def _in_flight(process, url, secret):
    """The answer to a request whose body comes only when the process was told to end."""
    body = json.dumps(OFFER).encode()
    head = f"POST /v1/bandits/default/choose HTTP/1.1\r\nAuthorization: Bearer {secret}\r\n"
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        length = f"Host: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\n{length}".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # it waits for the body
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        connection.sendall(body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


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
        until(lambda: len(children(process)) == 2 and first[0] not in children(process))
        second = children(process)
        assert first[1] in second
        for id in made:
            with es.Client(url, timeout=60, retries=20) as client:
                assert client.learn(id, 1.0)
        counted = httpx.get(f"{url}/metrics", timeout=60).text  # also by the one that was killed
        said = 'method="POST",route="/v1/bandits/{name}/choose",status="200"'
        assert f"ensemble_requests_total{{{said}}} 8.0\n" in counted
        os.kill(process.pid, signal.SIGKILL)  # workers end with their supervisor
        process.wait(30)
        until(lambda: not any(map(lives, second)))


@pytest.mark.parametrize("kind", ["disk", "postgres"])
def test_subjects_keep_their_action_by_several_workers_when_the_learner_is_killed(kind, tmp_path):
    place = tmp_path / "place" if kind == "disk" else new_database()
    names, made = [f"u{n}" for n in range(12)], {}

    def asked(client, name):
        """Whoever answers, and whatever dies meanwhile."""
        one = client.choose(OFFER["actions"], subject=name)
        assert made.setdefault(name, (one.id, one.action)) == (one.id, one.action)

    with started(place, "--workers", "2") as (process, url, _):
        ready(url, lambda: process.poll() is None)
        with es.Client(url, timeout=60, retries=12) as client:
            client.configure(sticky=3600, holdback=0.3)
            with ThreadPoolExecutor(4) as pool:  # the first to come of a subject race
                list(pool.map(lambda name: asked(client, name), names * 4))
                learner = client.status()["learner"].split(":")[1]
                os.kill(int(learner), signal.SIGKILL)
                list(pool.map(lambda name: asked(client, name), names * 4))
            until(lambda: client.status()["learner"] not in (None, learner), 60)
            assert len({*client.log()["id"]}) == len(names)
        ended(process, signal.SIGTERM)
    with started(place, "--workers", "2") as (process, url, _):  # and after a restart
        ready(url, lambda: process.poll() is None)
        with es.Client(url, timeout=60) as client:
            for name in names:
                asked(client, name)
            assert len(client.log()["id"]) == len(names)


def lives(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def dead(monkeypatch):
    """Processes that end at once; whether each was told to wait until it decides."""
    told = []

    class Dead:
        def __init__(self, command, env, **_):
            told.append("true" in env[supervisor.OPTIONS])

        def poll(self):
            return -9

    monkeypatch.setattr(supervisor.subprocess, "Popen", Dead)
    return told


def test_a_supervisor_waits_longer_each_time_a_worker_dies_at_once(dead):
    starts, now, worker = [], 0.0, supervisor.Worker(0, {}, ())
    while now < 20.0:
        before = len(dead)
        worker.look(now)
        starts += [now] * (len(dead) - before)
        now += 0.05
    waits = [b - a for a, b in pairwise(starts)]
    assert waits[0] == pytest.approx(0.1, abs=0.01)  # seen at one look, started at the next
    for wait, least in zip(waits[1:5], (0.5, 1.0, 2.0, 4.0), strict=True):
        assert least <= wait <= least + 0.2


def test_who_is_started_anew_leaves_connections_to_the_others(dead):
    workers = [supervisor.Worker(number, {}, ()) for number in range(2)]
    for worker in workers:
        worker.look(0.0)
        assert worker.first
    for worker in workers:
        assert worker.look(20.0) == -9
        worker.look(20.0)
        assert not worker.first
    assert dead == [False, True, True, True]


def test_a_supervisor_imports_nothing_heavy():
    code = (
        "import sys, runpy; runpy.run_path(sys.argv[1], run_name='supervisor'); "
        "print([m for m in ('jax', 'numpy', 'ensemble_sampling') if m in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", code, supervisor.__file__]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"


def test_as_many_files_may_be_open_as_the_system_allows():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        found = run.raise_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert found == hard or hard == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_key_in_a_url_is_not_kept_in_the_access_log():
    record = logging.LogRecord(
        "uvicorn.access", logging.INFO, "", 0, '%s - "%s %s HTTP/%s" %d',
        ("127.0.0.1:1", "GET", "/v1/bandits?key=es_secret", "1.1", 401), None,
    )  # fmt: skip
    assert run._without_query(record)
    assert record.getMessage() == '127.0.0.1:1 - "GET /v1/bandits HTTP/1.1" 401'
