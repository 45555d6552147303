"""The service's own API: what it decides, learns and refuses over HTTP."""

# pyright: reportArgumentType=false

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import pytest
from services import raw, running

from ensemble_sampling.serve.http.app import App
from ensemble_sampling.serve.http.errors import Reply
from ensemble_sampling.serve.http.limits import Bucket, Limits
from ensemble_sampling.serve.http.metrics import BOUNDS
from ensemble_sampling.serve.http.operation import Operation
from ensemble_sampling.serve.service import Service

OFFER = {"actions": {"news": {"kind": "politics"}, "match": {"kind": "sport"}}}
BASE = "/v1/bandits/default"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    limits = Limits(actions=60, features=50, decisions=20)
    with running(tmp_path_factory.mktemp("open"), limits=limits) as (url, service):
        yield url, service


@pytest.fixture(scope="module")
def http(served):
    with httpx.Client(base_url=served[0], timeout=30) as client:
        yield client


def decided(http, **body):
    found = http.post(f"{BASE}/choose", json={**OFFER, **body})
    assert found.status_code == 200, found.text
    return found.json()


def error(found, status, code):
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/json"
    said = found.json()["error"]
    assert said["code"] == code, said
    return said["message"]


def test_a_decision_says_what_was_chosen_and_how_likely_everything_was(http):
    found = decided(http, context={"device": "phone"})
    assert found["action"] in OFFER["actions"]
    assert found["action"] == found["actions"][found["index"]]
    assert found["probability"] == found["probabilities"][found["index"]]
    assert sum(found["probabilities"]) == pytest.approx(1.0, abs=1e-5)
    assert len(found["mean"]) == len(found["spread"]) == 2
    assert found["again"] is False


def test_of_a_name_given_twice_the_last_counts(http):
    body = b'{"actions": {"a": {"x": 1}, "b": {}, "a": {"y": 1}}, "event": "one", "event": "two"}'
    found = http.post(f"{BASE}/choose", content=body).json()
    assert (found["event"], found["actions"]) == ("two", ["a", "b"])


def test_an_event_asked_for_again_gets_the_same_decision(http):
    first, again = decided(http, event="visit-1"), decided(http, event="visit-1")
    values = ("mean", "spread")  # those as of then are not kept
    assert {k: v for k, v in again.items() if k not in values} == {
        **{k: v for k, v in first.items() if k not in values},
        "again": True,
    }
    other = decided(http, event="visit-1", slot="right")
    assert other["id"] != first["id"]


def test_many_decisions_and_outcomes_in_one_request(http):
    several = [{**OFFER, "event": f"many-{n}"} for n in range(3)]
    found = http.post(f"{BASE}/choose", json={"decisions": several}).json()["decisions"]
    assert [one["event"] for one in found] == ["many-0", "many-1", "many-2"]
    told = [{"id": "many-0", "outcome": 1.0}, {"id": found[1]["id"], "outcome": 0.0}]
    assert http.post(f"{BASE}/outcome", json={"outcomes": told}).json() == {"new": [True, True]}
    told[1] = {"id": found[2]["id"], "outcome": 0.0}
    assert http.post(f"{BASE}/outcome", json={"outcomes": told}).json() == {"new": [False, True]}
    assert http.post(f"{BASE}/choose", json={"decisions": []}).json() == {"decisions": []}


def test_an_outcome_counts_once_and_a_second_one_is_a_conflict(http):
    made = decided(http)
    before = http.get(f"{BASE}/summary").json()["outcomes"]
    for new in (True, False):
        found = http.post(f"{BASE}/outcome", json={"id": made["id"], "outcome": 1.0})
        assert found.json() == {"new": new}
    assert http.get(f"{BASE}/summary").json()["outcomes"] == before + 1
    message = error(
        http.post(f"{BASE}/outcome", json={"id": made["id"], "outcome": 0.5}), 409, "conflict"
    )
    assert "1.0" in message
    assert "0.5" in message


def test_outcomes_are_corrected_added_to_and_expired(http):
    made = decided(http)["id"]
    http.post(f"{BASE}/outcome", json={"id": made, "outcome": 1.0})
    for changed in (True, False):
        found = http.post(f"{BASE}/correct", json={"id": made, "outcome": 0.25})
        assert found.json() == {"changed": changed}
    other = decided(http)["id"]
    for ref, new in (("order-1", True), ("order-1", False), ("order-2", True)):
        found = http.post(f"{BASE}/add", json={"id": other, "amount": 2.0, "ref": ref})
        assert found.json() == {"new": new}
    log = columns(http)
    assert log["outcome"][log["id"].index(made)] == 0.25
    assert log["outcome"][log["id"].index(other)] == 4.0
    waiting = sum(outcome is None for outcome in log["outcome"])
    found = http.post(f"{BASE}/expire", json={"older_than": 0.0, "outcome": 0.0})
    assert found.json() == {"expired": waiting}
    assert waiting > 0


def columns(http):
    """The whole log, page by page."""
    found, first = {}, 0
    while first is not None:
        page = http.get(f"{BASE}/log", params={"first": first, "count": 3}).json()
        for name, values in page["columns"].items():
            found.setdefault(name, []).extend(values)
        first = page["next"]
    return found


def test_the_log_comes_in_pages_that_leave_nothing_out(http, served):
    for _ in range(4):
        decided(http)
    found = columns(http)
    assert (
        len(set(found["id"])) == len(found["id"]) == http.get(f"{BASE}/summary").json()["decisions"]
    )
    assert http.get(f"{BASE}/log", params={"first": 10**9}).json()["count"] == 0


def test_a_page_of_the_log_is_bounded_in_bytes_and_says_where_to_go_on(http, monkeypatch):
    made = [decided(http)["id"] for _ in range(4)]
    first = http.get(f"{BASE}/summary").json()["decisions"] - 4
    whole = http.get(f"{BASE}/log", params={"first": first})
    assert whole.json()["next"] is None
    for most, sizes in ((len(whole.content) * 5 // 8, [2, 2]), (1, [1, 1, 1, 1])):
        monkeypatch.setattr("ensemble_sampling.serve.engine.PAGE", most)
        found, at = [], first
        while at is not None:
            page = http.get(f"{BASE}/log", params={"first": at}).json()
            assert page["count"] == len(page["columns"]["id"])
            found.append(page["columns"]["id"])
            at = page["next"]
        assert [len(ids) for ids in found] == sizes
        assert [id for ids in found for id in ids] == made


def test_a_prediction_records_nothing(http):
    before = http.get(f"{BASE}/summary").json()["decisions"]
    found = http.post(f"{BASE}/predict", json=OFFER).json()
    assert found["actions"] == ["news", "match"]
    assert sum(found["probabilities"]) == pytest.approx(1.0, abs=1e-5)
    assert http.get(f"{BASE}/summary").json()["decisions"] == before


def test_what_is_available_restricts_the_choice(http):
    assert decided(http, available=["match"])["action"] == "match"
    assert decided(http, available={"news": True, "match": False})["action"] == "news"


def test_a_bandit_is_begun_once_with_its_actions(http):
    assert http.put("/v1/bandits/lights", json={"actions": ["red", "green"]}).status_code == 201
    assert http.put("/v1/bandits/lights").status_code == 200
    error(http.put("/v1/bandits/lights", json={"actions": ["blue"]}), 409, "conflict")
    assert http.get("/v1/bandits").json()["bandits"] == ["default", "lights"]
    found = http.post("/v1/bandits/lights/choose", json={}).json()
    assert found["action"] in ("red", "green")
    message = error(http.put("/v1/bandits/No"), 400, "invalid")
    assert "'No'" in message


def test_settings_are_read_and_written(http):
    default = {
        "wait": None, "default": 0.0, "aggregation": "first", "mode": "online", "floor": 0.0,
    }  # fmt: skip
    assert http.get(f"{BASE}/settings").json() == default
    new = {**default, "wait": 600.0, "floor": 0.25}
    assert http.put(f"{BASE}/settings", json=new).json() == new
    assert http.get(f"{BASE}/settings").json() == new
    assert http.put(f"{BASE}/settings", json=default).status_code == 200
    error(http.put(f"{BASE}/settings", json={"floor": 1.5}), 400, "invalid")
    error(http.put(f"{BASE}/settings", json={"mode": "wild"}), 400, "invalid")


def test_summary_history_and_recent_answer(http):
    decided(http)
    assert http.get(f"{BASE}/summary").json()["decisions"] > 0
    assert isinstance(http.get(f"{BASE}/history", params={"buckets": 5}).json(), list)
    assert isinstance(http.get(f"{BASE}/recent", params={"count": 2}).json(), list)
    latency = http.get(f"{BASE}/status").json()["latency"]
    assert 0 < latency["p50"] <= latency["p99"]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("choose", b"", 400, "the body is empty"),
        ("choose", b"{", 400, "not JSON"),
        ("choose", b'{"actions": {"a": {"x": NaN}}}', 400, "not JSON"),
        ("choose", b'{"actions": {"a": {"x": 1e999}}}', 400, "out of range"),
        ("choose", b'{"actions": 3}', 400, "Expected `object | array | null`, got `int`"),
        ("choose", b'{"acts": {}}', 400, "unknown field `acts`"),
        ("choose", b'{"actions": {"a": "\xff"}}', 400, "UTF-8"),
        ("choose", b'{"actions": {"a": ' + b"[" * 3000 + b"]" * 3000 + b"}}", 400, "too deeply"),
        ("choose", b'{"event": ""}', 400, "length"),
        ("choose", b'{"decisions": [], "event": "x"}', 400, "not both"),
        ("choose", b'{"actions": {"a": {}, "b": {}}, "available": ["c"]}', 400, "'c'"),
        ("choose", json.dumps({"actions": [[1]] * 61}).encode(), 413, "61 actions; at most 60"),
        ("choose", json.dumps({"actions": {"a": [1] * 51}}).encode(), 413, "51 features"),
        ("choose", json.dumps({"decisions": [{}] * 21}).encode(), 413, "21 decisions"),
        ("outcome", b'{"id": "x"}', 400, "`id` and `outcome`"),
        ("outcome", b'{"id": "x", "outcome": "1"}', 400, "Expected `float | array | null`"),
        ("outcome", b'{"id": "nothing", "outcome": 1}', 404, "nothing"),
        ("expire", b'{"older_than": -1, "outcome": 0}', 400, ">= 0"),
        ("shadows", b'{"name": "nobody"}', 404, "nobody"),
        ("evaluate", b"{}", 404, "no candidates"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(http, path, body, status, says):
    found = http.post(f"{BASE}/{path}", content=body)
    code = {400: "invalid", 404: "unknown", 413: "too_large"}[status]
    assert says in error(found, status, code)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("first=-1", "first must be a whole number from 0"),
        ("first=x", "got 'x'"),
        ("count=0", "from 1 to 1000, got '0'"),
        ("last=1", "no parameter 'last'"),
    ],
)
def test_wrong_queries_are_said(http, query, says):
    assert says in error(http.get(f"{BASE}/log?{query}"), 400, "invalid")


def test_what_is_not_there_and_methods_that_are_not(http):
    error(http.get("/v1/nothing"), 404, "unknown")
    error(http.get("/v1/bandits/nobody"), 404, "unknown")
    error(http.get("/v1/bandits/..%2Fdefault/log"), 404, "unknown")
    found = http.delete(f"{BASE}/settings")
    assert found.status_code == 405
    assert set(found.headers["allow"].split(", ")) >= {"GET", "PUT"}


def test_a_body_over_the_limit_is_refused_before_it_is_read(served):
    url, _ = served
    head = f"POST {BASE}/choose HTTP/1.1\r\nHost: localhost\r\n"
    found = raw(url, f"{head}Content-Length: 1000001\r\n\r\n".encode())
    assert found.startswith(b"HTTP/1.1 413")
    assert not found.endswith(b"(still open)")  # it is not waited for
    part = b"F4240\r\n" + b" " * 1_000_000 + b"\r\n"
    found = raw(url, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + part + part)
    assert found.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("path", [f"{BASE}/log", "/personalizer/v1.0/model", "/openapi.json", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_where_there_is_nothing_to_say_a_body_is_refused_before_it_is_read(served, method, path):
    url, _ = served
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    for length in ("Content-Length: 150000000", "Transfer-Encoding: chunked"):
        found = raw(url, f"{head}{length}\r\n\r\n".encode())
        assert found.startswith(b"HTTP/1.1 413"), found
        assert not found.endswith(b"(still open)")
    found = raw(url, f"{head}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert not found.startswith(b"HTTP/1.1 413")


def test_the_body_of_an_operation_without_one_has_the_same_limit(served):
    url, _ = served
    head = f"POST {BASE}/shadows/x/promote HTTP/1.1\r\nHost: localhost\r\n"
    found = raw(url, f"{head}Content-Length: 1000001\r\n\r\n".encode())
    assert found.startswith(b"HTTP/1.1 413")


def test_bodies_that_do_not_come_shut_nobody_out(tmp_path):
    from ensemble_sampling.serve.http.connections import Connection

    class Few(Connection):
        most = 5

    head = f"POST {BASE}/choose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{{"
    with running(tmp_path, Few) as (url, _), ExitStack() as stack:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(10):
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            one.sendall(head.encode())
        for _ in range(3):
            assert httpx.get(f"{url}/healthz").status_code == 200


def test_connections_on_which_nothing_is_asked_make_room_for_others(tmp_path):
    from ensemble_sampling.serve.http.connections import Connection

    class Few(Connection):
        most = 5

    def healthy(connection):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while not found.endswith(b'{"status":"ok"}') and (part := connection.recv(1000)):
            found += part
        return found.startswith(b"HTTP/1.1 200")

    with running(tmp_path, Few) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        open = [socket.create_connection((host, int(port)), timeout=30) for _ in range(5)]
        used = open[0]
        assert all(map(healthy, [*open, used]))
        assert httpx.get(f"{url}/healthz").status_code == 200
        with suppress(ConnectionResetError):
            assert open[1].recv(10) == b""  # which had waited longest
        assert healthy(used)
        for one in open:
            one.close()


def test_slow_clients_are_dropped(tmp_path):
    from ensemble_sampling.serve.http.connections import Connection

    class Hasty(Connection):
        patience = 0.3

    with running(tmp_path, Hasty, limits=Limits(patience=0.3)) as (url, _):
        assert raw(url, b"GET /healthz HTTP/1.1\r\nHost: loc") == b""
        assert raw(url, b"") == b""
        head = f"POST {BASE}/choose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
        found = raw(url, head.encode() + b"{")
        assert found.startswith(b"HTTP/1.1 408")
        assert not found.endswith(b"(still open)")


def test_without_keys_other_sites_are_refused(http):
    """A page whose name was made to lead here, or a form of another site."""
    found = http.get("/v1/bandits", headers={"Host": "rebound.example"})
    assert "rebound.example" in error(found, 421, "forbidden")
    for host in ("localhost", "127.0.0.1:9", "[::1]:80", "LOCALHOST:1"):
        assert http.get("/v1/bandits", headers={"Host": host}).status_code == 200
    for host in ("localhost.example", "127.0.0.1.example", "", "10.0.0.1"):
        error(http.get("/v1/bandits", headers={"Host": host}), 421, "forbidden")
    error(http.get("/v1/bandits", headers={"Origin": "http://elsewhere.example"}), 403, "forbidden")
    same = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert http.get("/v1/bandits", headers=same).status_code == 200


def test_others_are_decided_while_programs_for_new_offers_are_compiled(tmp_path):
    def decide(count):
        actions = {f"a{n}": {"x": n} for n in range(count)}
        return httpx.post(f"{url}{BASE}/choose", json={"actions": actions}, timeout=60).status_code

    with running(tmp_path) as (url, service), ThreadPoolExecutor(1) as pool:
        assert [decide(2), decide(2)] == [200, 200]
        warmup, may = service.engines["default"]._decider.warmup, threading.Event()
        prepare = warmup.prepare

        def slow(offer, size):
            assert size > 1 or may.wait(30)
            return prepare(offer, size)

        warmup.prepare = slow
        late = pool.submit(decide, 20)
        time.sleep(0.2)
        assert decide(2) == 200
        assert not late.done()
        may.set()
        assert late.result() == 200


def test_it_is_not_ready_while_its_folder_is_away(tmp_path):
    def status():
        assert httpx.get(f"{url}/healthz").status_code == 200
        return httpx.get(f"{url}/readyz").status_code

    with running(tmp_path / "shop") as (url, _):
        assert status() == 200
        for name, then in (("elsewhere", 503), ("shop", 200)):
            next(tmp_path.iterdir()).rename(tmp_path / name)
            end = time.monotonic() + 5.0
            while status() != then:
                assert time.monotonic() < end
                time.sleep(0.02)


def test_health_readiness_and_metrics(http):
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    decided(http)
    for _ in range(100):  # the count is looked up a few times a second
        if http.get(f"{BASE}/status").json()["decisions"]:
            break
        time.sleep(0.05)
    found = http.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = found.text.splitlines()
    right = re.compile(r"# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? [-+0-9.e]+")
    assert [line for line in lines if not right.fullmatch(line)] == []
    counted = [line for line in lines if line.startswith('ensemble_decisions_total{bandit="def')]
    assert 0 < float(counted[0].split()[-1]) <= http.get(f"{BASE}/summary").json()["decisions"]
    asked = 'method="POST",route="/v1/bandits/{name}/choose"'
    buckets = [x for x in lines if x.startswith("ensemble_request_seconds_bucket") and asked in x]
    counts = [float(line.split()[-1]) for line in buckets]
    assert len(counts) == len(BOUNDS) + 1
    assert counts == sorted(counts)
    total = next(x for x in lines if x.startswith(f"ensemble_request_seconds_count{{{asked}"))
    assert float(total.split()[-1]) == counts[-1] > 0


def test_counts_of_all_processes_add_up(tmp_path):
    code = (
        "from ensemble_sampling.serve.http.metrics import Metrics; metrics = Metrics(); "
        "[metrics.count(*each) for each in {}]; print(metrics.text({{}}).decode())"
    )

    def count(*requests):
        command = [sys.executable, "-c", code.format(requests)]
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    count(("GET", "/a", 200, 1 / 512))
    count(("GET", "/a", 200, 1 / 64), ("BREW", None, 418, 5.0))
    lines = count(("GET", "/a", 500, 1 / 64)).splitlines()
    asked = 'method="GET",route="/a"'
    assert f'ensemble_requests_total{{{asked},status="200"}} 2.0' in lines
    assert f'ensemble_requests_total{{{asked},status="500"}} 1.0' in lines
    assert 'ensemble_requests_total{method="other",route="other",status="418"} 1.0' in lines
    assert f'ensemble_request_seconds_bucket{{le="0.0025",{asked}}} 1.0' in lines
    assert f'ensemble_request_seconds_bucket{{le="+Inf",{asked}}} 3.0' in lines
    assert f"ensemble_request_seconds_sum{{{asked}}} {1 / 512 + 2 / 64}" in lines


def test_a_request_is_answered_also_where_it_cannot_be_counted(tmp_path):
    code = (
        "from ensemble_sampling.serve.http.metrics import Metrics; "
        "Metrics().count('GET', '/a', 200, 1.0); print('answered')"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "gone")}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert found.stdout == b"answered\n", found.stderr


def test_a_request_is_counted_before_who_asked_has_any_of_the_answer(tmp_path):
    """Else the count of a process that is killed then lacks what it has answered."""

    class Counts:
        def __init__(self):
            self.counted = []

        def count(self, method, route, status, seconds):
            self.counted.append((method, route, status))

    sent = []

    async def send(message):
        sent.append((message["type"], len(counts.counted)))

    async def run(call):
        if call.params["what"] == "fails":
            raise OSError("cut short")
        return Reply(200, b"a")

    counts = Counts()
    app = App([Operation("GET", "/{what}", run, None)], Service(tmp_path), counts, False)
    scope = {"type": "http", "method": "GET", "path": "/a", "query_string": b""}
    scope["headers"] = [(b"host", b"localhost")]
    asyncio.run(app(scope, None, send))
    assert [count for _, count in sent] == [1, 1]
    asyncio.run(app({**scope, "path": "/fails"}, None, send))
    assert [count for _, count in sent] == [1, 1, 2, 2]
    assert counts.counted == [("GET", "/{what}", 200), ("GET", "/{what}", 503)]


def test_patterns_end_where_the_text_does_in_python_and_in_the_description(http):
    said = http.get("/openapi.json").text
    assert "\\Z" not in said
    assert '"^[a-z0-9][a-z0-9_-]{0,39}$"' in said


def test_a_bucket_lets_bursts_pass_and_then_its_rate(monkeypatch):
    from ensemble_sampling.serve.http import limits

    now = [100.0]
    monkeypatch.setattr(limits, "monotonic", lambda: now[0])
    bucket = Bucket(10.0)
    assert [bucket.take() for _ in range(10)] == [0.0] * 10
    assert bucket.take() == pytest.approx(0.1)
    now[0] += 0.25
    assert [bucket.take() for _ in range(2)] == [0.0, 0.0]
    assert bucket.take() == pytest.approx(0.05)
    now[0] += 1000.0
    assert sum(bucket.take() == 0.0 for _ in range(20)) == 10


def test_too_many_requests_are_told_when_to_come_again(tmp_path):
    with running(tmp_path, limits=Limits(rate=3.0)) as (url, _), httpx.Client(base_url=url) as http:
        found = [http.get("/v1/bandits") for _ in range(6)]
    assert [one.status_code for one in found[:3]] == [200] * 3
    late = found[-1]
    error(late, 429, "too_many")
    assert int(late.headers["retry-after"]) >= 1


def test_what_was_served_is_there_when_served_again(tmp_path):
    with running(tmp_path, bandits=["shop"]) as (url, _):
        made = httpx.post(f"{url}/v1/bandits/shop/choose", json=OFFER, timeout=60).json()
    with running(tmp_path) as (url, service):
        assert service.storage.names() == ["default", "shop"]
        told = httpx.post(
            f"{url}/v1/bandits/shop/outcome", json={"id": made["id"], "outcome": 1}, timeout=60
        )
        assert told.json() == {"new": True}


def test_a_ledger_s_own_folder_is_served_as_default(tmp_path):
    import ensemble_sampling as es

    es.Bandit.open(tmp_path, actions=["a", "b"]).close()
    with running(tmp_path) as (url, service):
        assert service.storage.names() == ["default"]
        assert httpx.post(f"{url}{BASE}/choose", json={}, timeout=60).json()["action"] in "ab"
        error(httpx.put(f"{url}/v1/bandits/shop"), 400, "invalid")


def test_own_agents_and_candidates_are_read_from_a_file(tmp_path):
    file = tmp_path / "agents.py"
    file.write_text(
        "import ensemble_sampling as es\n"
        "def arms(): return es.EnsembleSampling(es.IndependentArms(2, 1.0), members=8)\n"
        "AGENTS = {'plain': arms(), 'named': {'agent': arms(), 'actions': ['a', 'b']}}\n"
        "CANDIDATES = {'uniform': es.Uniform()}\n"
    )
    with running(tmp_path / "place", agents=file) as (url, service):
        assert service.storage.names() == ["default", "named", "plain"]
        for _ in range(8):
            made = httpx.post(f"{url}/v1/bandits/named/choose", json={}, timeout=60).json()
            told = {"id": made["id"], "outcome": 1.0}
            httpx.post(f"{url}/v1/bandits/named/outcome", json=told, timeout=60)
        found = httpx.post(f"{url}/v1/bandits/named/evaluate", json={}, timeout=60)
    assert found.status_code == 200, found.text
    assert set(found.json()["columns"]["policy"]) == {"uniform"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("X = 1", "must define AGENTS"),
        ("X = 1\nAGENTS = {'a': 1 / 0}", "agents.py, line 2: ZeroDivisionError"),
        ("AGENTS = [1]", "AGENTS = {name: agent}"),
        ("AGENTS = {'a': {'agnt': 1}}", "agnt"),
        ("AGENTS = {'No': None}", "'No'"),
    ],
)
def test_a_wrong_file_of_agents_is_said(tmp_path, text, says):
    (tmp_path / "agents.py").write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        Service(tmp_path / "place", agents=tmp_path / "agents.py")
