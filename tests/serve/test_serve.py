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
from pathlib import Path

import httpx
import pytest
from services import raw, running, until

import ensemble_sampling as es
from ensemble_sampling.serve.http import admission, app, pages
from ensemble_sampling.serve.http.admission import Connection, Limits
from ensemble_sampling.serve.http.metrics import BOUNDS
from ensemble_sampling.serve.http.operation import Operation, Reply
from ensemble_sampling.serve.service import Service
from ensemble_sampling.serve.types import Refused

OFFER = {"actions": {"news": {"kind": "politics"}, "match": {"kind": "sport"}}}
BASE = "/v1/bandits/default"
HUGE = "1" + "0" * 400  # a whole number that no float can be
AGENTS = """
import ensemble_sampling as es
def arms(): return es.EnsembleSampling(es.IndependentArms(2, 1.0), members=8)
hashing = {'agent': es.EnsembleSampling(es.Linear(dim=16), members=4), 'hasher': es.Hasher(16)}
AGENTS = {'plain': arms(), 'named': {'agent': arms(), 'actions': ['a', 'b']}, 'words': hashing}
CANDIDATES = {'uniform': es.Uniform()}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open")
    (folder / "agents.py").write_text(AGENTS)
    limits = Limits(actions=60, features=50, decisions=20)
    bandits, agents = ["rows", "names"], folder / "agents.py"
    with running(folder / "place", limits=limits, bandits=bandits, agents=agents) as (url, service):
        yield url, service


@pytest.fixture(scope="module")
def http(served):
    with httpx.Client(base_url=served[0], timeout=60) as client:
        yield client


def post(http, path, bandit="default", status=200, **body):
    found = http.post(f"/v1/bandits/{bandit}/{path}", json=body)
    assert found.status_code == status, found.text
    return found.json()


def decided(http, **body):
    return post(http, "choose", **{**OFFER, **body})


def get(http, path, bandit="default", **query):
    found = http.get(f"/v1/bandits/{bandit}/{path}", params=query)
    assert found.status_code == 200, found.text
    return found.json()


def error(found, status, code):
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/json"
    said = found.json()["error"]
    assert said["code"] == code, said
    return said["message"]


def test_a_decision_says_what_was_chosen_and_how_likely_everything_was(http):
    post(http, "predict", **OFFER)  # compiles, else chance decides at first
    found = decided(http, context={"device": "phone"})
    assert found["action"] in OFFER["actions"]
    assert found["action"] == found["actions"][found["index"]]
    assert found["probability"] == found["probabilities"][found["index"]]
    assert sum(found["probabilities"]) == pytest.approx(1.0, abs=1e-5)
    assert found["again"] is False
    while found["mean"] is None:  # by chance, until programs are compiled
        found = decided(http, context={"device": "phone"})
    assert len(found["mean"]) == len(found["spread"]) == 2
    assert decided(http, available=["match"])["action"] == "match"
    assert decided(http, available={"news": True, "match": False})["action"] == "news"
    before = get(http, "summary")["decisions"]
    found = post(http, "predict", **OFFER)
    assert found["actions"] == ["news", "match"]
    assert sum(found["probabilities"]) == pytest.approx(1.0, abs=1e-5)
    assert get(http, "summary")["decisions"] == before  # a prediction records nothing


def test_of_a_name_given_twice_the_last_counts(http):
    body = b'{"actions": {"a": {"x": 1}, "b": {}, "a": {"y": 1}}, "event": "one", "event": "two"}'
    found = http.post(f"{BASE}/choose", content=body).json()
    assert (found["event"], found["actions"]) == ("two", ["a", "b"])


def test_what_is_said_by_names_may_be_more_the_next_time(http):
    offers = [
        {"actions": {"a": {"x": 1.0}, "b": {"x": 2.0}}},  # numbers alone, which could be columns
        {"actions": {"a": {"x": 1.0, "y": 2.0}, "c": {"z": "text"}}, "context": {"hour": 8}},
        {"actions": {"a": None, "b": {}}},
    ]
    post(http, "predict", "names", **offers[0])
    for offer in offers:
        post(http, "choose", "names", **offer)


def test_decisions_and_outcomes_told_twice_count_once_one_by_one_or_many(http):
    first, again = decided(http, event="visit-1"), decided(http, event="visit-1")
    values = {"mean": None, "spread": None}  # those as of then are not kept
    assert again == {**first, **values, "again": True}
    several = [{**OFFER, "event": f"many-{n}"} for n in range(3)]
    found = post(http, "choose", decisions=several)["decisions"]
    assert [one["event"] for one in found] == ["many-0", "many-1", "many-2"]
    told = [{"id": "many-0", "outcome": 1.0}, {"id": found[1]["id"], "outcome": 0.0}]
    assert post(http, "outcome", outcomes=told) == {"new": [True, True]}
    told[1] = {"id": found[2]["id"], "outcome": 0.0}
    assert post(http, "outcome", outcomes=told) == {"new": [False, True]}
    assert post(http, "choose", decisions=[]) == {"decisions": []}
    assert post(http, "outcome", outcomes=[]) == {"new": []}
    made, before = first["id"], get(http, "summary")["outcomes"]
    assert [post(http, "outcome", id=made, outcome=1.0)["new"] for _ in "ab"] == [True, False]
    assert get(http, "summary")["outcomes"] == before + 1
    found = http.post(f"{BASE}/outcome", json={"id": made, "outcome": 0.5})
    assert re.search(r"1\.0.* 0\.5", error(found, 409, "conflict"))
    assert [post(http, "correct", id=made, outcome=0.25)["changed"] for _ in "ab"] == [True, False]
    for ref, new in (("order-1", True), ("order-1", False), ("order-2", True)):
        body = {"id": decided(http, event="sum")["id"], "amount": 2.0, "ref": ref}
        assert post(http, "add", **body) == {"new": new}
    decided(http)  # of which nothing is told
    log = columns(http)
    assert log["outcome"][log["id"].index(made)] == 0.25
    assert log["outcome"][log["id"].index(body["id"])] == 4.0
    waiting = sum(outcome is None for outcome in log["outcome"])
    assert post(http, "expire", older_than=0.0, outcome=0.0) == {"expired": waiting}
    assert waiting > 0


def columns(http, first=0, count=3):
    """The log from a decision on, page by page."""
    found = {}
    while first is not None:
        page = get(http, "log", first=first, count=count)
        assert page["count"] == len(page["columns"]["id"])
        for name, values in page["columns"].items():
            found.setdefault(name, []).extend(values)
        first = page["next"]
    return found


def test_the_log_comes_in_pages_bounded_in_bytes_that_leave_nothing_out(http, monkeypatch):
    made = [decided(http)["id"] for _ in range(4)]
    total = get(http, "summary")["decisions"]
    ids = columns(http)["id"]
    assert len(set(ids)) == len(ids) == total
    assert get(http, "log", first=10**9)["count"] == 0
    whole = http.get(f"{BASE}/log", params={"first": total - 4})
    assert whole.json()["next"] is None
    for most, size in ((len(whole.content) // 2, 2), (1, 1)):
        monkeypatch.setattr("ensemble_sampling.serve.reader.PAGE", most)
        assert get(http, "log", first=total - 4)["count"] == size
        assert columns(http, total - 4, 100)["id"] == made


def test_a_bandit_is_begun_once_with_its_actions(http):
    lights = "/v1/bandits/lights"
    assert http.put(lights, json={"actions": ["red", "green"]}).status_code == 201
    found = http.put(lights)
    assert (found.status_code, found.json()) == (200, http.get(lights).json())
    assert found.json()["candidates"] == ["uniform"]
    error(http.put(lights, json={"actions": ["blue"]}), 409, "conflict")
    assert {"default", "lights"} <= {*http.get("/v1/bandits").json()["bandits"]}
    assert post(http, "choose", "lights")["action"] in ("red", "green")
    assert "'No'" in error(http.put("/v1/bandits/No"), 400, "invalid")


def test_settings_are_read_and_written(http):
    default = {
        "wait": None, "default": 0.0, "aggregation": "first", "mode": "online", "floor": 0.0,
        "retain": None, "holdback": 0.0, "baseline": "first", "sticky": 0.0, "guard": {},
        "fallback": False, "reward": {},
    }  # fmt: skip
    assert get(http, "settings") == default
    new = {**default, "wait": 600.0, "floor": 0.25}
    assert http.put(f"{BASE}/settings", json=new).json() == new
    assert get(http, "settings") == new
    for method in (http.patch, http.put):  # what is not given stays as it is
        assert method(f"{BASE}/settings", json={"floor": 0.5}).json() == {**new, "floor": 0.5}
    assert http.patch(f"{BASE}/settings", json={}).json() == {**new, "floor": 0.5}
    assert http.patch(f"{BASE}/settings", json={"wait": None}).json()["wait"] is None
    assert http.patch(f"{BASE}/settings", json=default).json() == default
    for wrong in (
        {"floor": 1.5}, {"floor": -0.1}, {"wait": -1.0}, {"aggregation": "mean"}, {"mode": "wild"},
    ):  # fmt: skip
        message = error(http.patch(f"{BASE}/settings", json=wrong), 400, "invalid")
        assert next(iter(wrong)) in message
    found = http.put(f"{BASE}/settings", json={"wait": 60, "default": 1e300})
    assert "below 1e+15" in error(found, 400, "invalid")  # nobody could learn it


def test_summary_history_and_recent_answer(http):
    decided(http)
    assert get(http, "summary")["decisions"] > 0
    assert isinstance(get(http, "history", buckets=5), list)
    assert len(get(http, "recent", count=2)) == 2
    latency = get(http, "status")["latency"]
    assert 0 < latency["p50"] <= latency["p99"]
    assert get(http, "status", "plain")["latency"] == {"p50": None, "p99": None}


NESTED = b'{"actions": {"a": ' + b"[" * 3000 + b"]" * 3000 + b"}}"
WITHOUT = "Expected text without {}control characters - at"


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
        ("choose", NESTED, 400, "too deeply"),
        ("choose", b'{"event": ""}', 400, "length"),
        ("choose", b'{"event": "a/b"}', 400, WITHOUT.format("/ and ")),
        ("choose", b'{"event": "a\\n"}', 400, WITHOUT.format("/ and ")),
        ("choose", b'{"slot": "a\\n"}', 400, WITHOUT.format("/ and ")),
        ("choose", b'{"event": "0123456789ab-7"}', 400, "a decision's own id"),
        ("choose", b'{"decisions": [], "event": "x"}', 400, "not both"),
        ("choose", b'{"actions": {"a": {}, "b": {}}, "available": ["c"]}', 400, "'c'"),
        ("choose", json.dumps({"actions": [[1]] * 61}).encode(), 413, "61 actions; at most 60"),
        ("choose", json.dumps({"actions": {"a": [1] * 51}}).encode(), 413, "51 features"),
        ("choose", json.dumps({"decisions": [{}] * 21}).encode(), 413, "21 decisions"),
        ("outcome", b'{"id": "x"}', 400, "`id` and `outcome`"),
        ("outcome", b'{"id": "x", "outcomes": []}', 400, "not both"),
        ("outcome", b'{"id": "x", "outcome": "1"}', 400, "Expected `float | object | array"),
        ("outcome", b'{"id": "nothing", "outcome": 1}', 404, "nothing"),
        ("outcome", b'{"id": "a\\u0000", "outcome": 1}', 400, WITHOUT.format("")),
        ("outcome", b'{"id": "a\\n", "outcome": 1}', 400, WITHOUT.format("")),
        ("expire", b'{"older_than": -1, "outcome": 0}', 400, ">= 0"),
        ("shadows", b'{"name": "nobody"}', 404, "nobody"),
        ("evaluate", b'{"candidates": ["bold"]}', 404, "no candidates"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(http, path, body, status, says):
    found = http.post(f"{BASE}/{path}", content=body)
    code = {400: "invalid", 404: "unknown", 413: "too_large"}[status]
    assert says in error(found, status, code)


@pytest.mark.parametrize("bandit", ["default", "rows"])
@pytest.mark.parametrize("part", ["action", "context"])
def test_numbers_beyond_all_floats_are_refused(http, bandit, part):
    one = "[[1, 2], [3, 4]]" if bandit == "rows" else '{"a": {"x": "y"}, "b": {"x": "z"}}'
    path = f"/v1/bandits/{bandit}"
    assert http.post(f"{path}/choose", content=f'{{"actions": {one}}}').status_code == 200
    row = f"[{HUGE}, 2]" if bandit == "rows" else f'{{"x": {HUGE}}}'
    if part == "action":
        body = f'{{"actions": [{row}, {row}]}}'
    else:
        body = f'{{"actions": {one}, "context": {row}}}'
    for what in ("choose", "predict"):
        error(http.post(f"{path}/{what}", content=body), 400, "invalid")


@pytest.mark.parametrize("opens", ["[", '{"a": '])
@pytest.mark.parametrize("what", ["choose", "predict"])
def test_nesting_has_an_end(http, opens, what):
    statuses = set()
    for depth in (10, 70, *range(900, 1000, 14), 100_000):
        said = opens * depth + "1" + ("]" if opens == "[" else "}") * depth
        body = f'{{"actions": {{"a": {{"x": 1}}, "b": {{"x": 2}}}}, "context": {{"y": {said}}}}}'
        found = http.post(f"/v1/bandits/names/{what}", content=body)
        statuses.add((depth > 60, found.status_code))
    assert statuses == {(False, 200), (True, 413), (True, 400)}


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
    for path in ("/v1/nothing", "/v1/bandits/nobody", "/v1/bandits/..%2Fdefault/log"):
        error(http.get(path), 404, "unknown")
    for shadow in (http.delete(f"{BASE}/shadows/x"), http.post(f"{BASE}/shadows/x/promote")):
        assert "'x'" in error(shadow, 404, "unknown")
    found = http.delete(f"{BASE}/settings")
    assert found.status_code == 405
    assert set(found.headers["allow"].split(", ")) >= {"GET", "PUT", "PATCH"}


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (f"POST {BASE}/choose", "Content-Length: 1000001\r\n\r\n"),
        (f"POST {BASE}/shadows/x/promote", "Content-Length: 1000001\r\n\r\n"),
        (
            f"POST {BASE}/choose",
            "Transfer-Encoding: chunked\r\n\r\n" + 2 * f"F4240\r\n{1_000_000 * ' '}\r\n",
        ),
        *(
            (f"{method} {path}", f"{length}\r\n\r\n")
            for path in (f"{BASE}/log", "/personalizer/v1.0/model", "/openapi.json", "/")
            for method in ("GET", "HEAD", "DELETE")
            for length in ("Content-Length: 150000000", "Transfer-Encoding: chunked")
        ),
    ],
)
def test_a_body_that_is_too_large_or_not_asked_for_is_not_read(served, head, sent):
    found = raw(served[0], f"{head} HTTP/1.1\r\nHost: localhost\r\n{sent}".encode())
    assert found.startswith(b"HTTP/1.1 413"), found
    assert not found.endswith(b"(still open)")
    if not head.startswith("POST"):  # what some clients send with everything does no harm
        small = "Host: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
        assert not raw(served[0], f"{head} HTTP/1.1\r\n{small}".encode()).startswith(
            b"HTTP/1.1 413"
        )


def test_limits_hold_to_the_last_one_that_is_let_through():
    limits = Limits(body=10, features=4, actions=2)

    def body(size, told):
        async def receive():
            return {"type": "http.request", "body": bytes(size)}

        headers = [] if told is None else [(b"content-length", str(told).encode())]
        return asyncio.run(limits.read_body({"headers": headers}, receive))

    assert len(body(10, 10)) == len(body(10, None)) == 10
    for size, told in ((11, 11), (11, None), (0, 11)):
        with pytest.raises(Refused, match="10") as refused:
            body(size, told)
        assert refused.value.status == 413
    limits.offer([{"a": 1, "b": [1, 2]}], {"c": {"d": 1, "e": 2}, "f": 3})
    with pytest.raises(Refused, match="5 features"):
        limits.offer([{"a": 1, "b": [1, 2, 3]}], None)
    with pytest.raises(Refused, match="3 actions"):
        limits.offer({"a": 1, "b": 2, "c": 3}, None)


def test_bodies_that_do_not_come_and_idle_connections_make_room_for_others(tmp_path):
    class Few(Connection):
        most = 5

    def healthy(connection):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while not found.endswith(b'{"status":"ok"}') and (part := connection.recv(1000)):
            found += part
        return found.startswith(b"HTTP/1.1 200")

    head = f"POST {BASE}/choose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{{"
    with running(tmp_path, Few) as (url, _), ExitStack() as stack:

        def connect():
            host, port = url.removeprefix("http://").split(":")
            return stack.enter_context(socket.create_connection((host, int(port)), timeout=30))

        open = [connect() for _ in range(5)]
        assert all(map(healthy, [*open, open[0]]))
        assert httpx.get(f"{url}/healthz").status_code == 200
        with suppress(ConnectionResetError):
            assert open[1].recv(10) == b""  # which had waited longest
        assert healthy(open[0])
        for _ in range(10):
            connect().sendall(head.encode())
        for _ in range(3):
            assert httpx.get(f"{url}/healthz").status_code == 200


def test_slow_clients_are_dropped(tmp_path):
    class Hasty(Connection):
        patience = 0.3

    with running(tmp_path, Hasty, limits=Limits(patience=0.3)) as (url, _):
        assert raw(url, b"GET /healthz HTTP/1.1\r\nHost: loc") == b""
        assert raw(url, b"") == b""
        assert raw(url, b"GET / HTTP/1.1\r\nX: " + b"a" * 2_000_000) == b""  # without end
        head = f"POST {BASE}/choose HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
        found = raw(url, head.encode() + b"{")
        assert found.startswith(b"HTTP/1.1 408")
        assert not found.endswith(b"(still open)")


def test_without_keys_other_sites_and_proxies_are_refused(http):
    """A page whose name was made to lead here, or a form of another site."""

    def asked(**headers):
        return http.get("/v1/bandits", headers={k.replace("_", "-"): v for k, v in headers.items()})

    assert "rebound.example" in error(asked(Host="rebound.example"), 421, "forbidden")
    for host in ("localhost", "127.0.0.1:9", "[::1]:80", "LOCALHOST:1"):
        assert asked(Host=host).status_code == 200
    for host in ("localhost.example", "127.0.0.1.example", "", "10.0.0.1"):
        error(asked(Host=host), 421, "forbidden")
    error(asked(Origin="http://elsewhere.example"), 403, "forbidden")
    same = asked(Host="localhost:8000", Origin="http://localhost:8000")
    assert same.status_code == 200
    for name in ("X_Forwarded_For", "Forwarded", "Via"):
        assert "proxy" in error(asked(**{name: "203.0.113.7"}), 421, "forbidden")


def test_others_are_decided_while_programs_for_new_offers_are_compiled(served, monkeypatch):
    url, service = served

    def decide(count):
        actions = {f"a{n}": {"x": n} for n in range(count)}
        return httpx.post(f"{url}{BASE}/choose", json={"actions": actions}, timeout=60).status_code

    assert [decide(2), decide(2)] == [200, 200]
    decider, may = service.engines["default"].decider, threading.Event()
    prepare = decider.prepare
    made = httpx.post(f"{url}{BASE}/choose", json=OFFER, timeout=60).json()
    told = httpx.post(f"{url}{BASE}/outcome", json={"id": made["id"], "outcome": 1.0}, timeout=60)
    assert told.status_code == 200
    # Of a bandit that has learned nothing chance decides at once.
    until(lambda: decider.replicas.main.version and decider.replicas.main.version.outcomes)

    def slow(offer, size):
        assert size > 1 or may.wait(30)
        return prepare(offer, size)

    monkeypatch.setattr(decider, "prepare", slow)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(decide, 40)
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
            until(lambda then=then: status() == then, 5.0)


def test_health_readiness_and_metrics(http):
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    decided(http)
    until(lambda: get(http, "status")["decisions"])  # looked up a few times a second
    found = http.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = found.text.splitlines()
    right = re.compile(r"# (HELP|TYPE) \w+ .+|\w+(\{(\w+=\"[^\"]*\",?)+\})? [-+0-9.e]+")
    assert [line for line in lines if not right.fullmatch(line)] == []
    counted = [line for line in lines if line.startswith('ensemble_decisions_total{bandit="def')]
    assert 0 < float(counted[0].split()[-1]) <= get(http, "summary")["decisions"]
    asked = 'method="POST",route="/v1/bandits/{name}/choose"'
    buckets = [x for x in lines if x.startswith("ensemble_request_seconds_bucket") and asked in x]
    counts = [float(line.split()[-1]) for line in buckets]
    assert len(counts) == len(BOUNDS) + 1
    assert counts == sorted(counts)
    total = next(x for x in lines if x.startswith(f"ensemble_request_seconds_count{{{asked}"))
    assert float(total.split()[-1]) == counts[-1] > 0


def test_counts_of_all_processes_add_up(tmp_path):
    code = (
        "from ensemble_sampling.serve.http import metrics\n"
        "for status, seconds in {}:\n"
        "    metrics.REQUESTS.labels('GET', '/a', status).inc()\n"
        "    metrics.SECONDS.labels('GET', '/a').observe(seconds)\n"
        "print(metrics.page({{}}).decode())"
    )

    def count(*requests):
        command = [sys.executable, "-c", code.format(requests)]
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    count(("200", 1 / 512))
    lines = count(("200", 1 / 64), ("500", 1 / 64)).splitlines()
    asked = 'method="GET",route="/a"'
    assert f'ensemble_requests_total{{{asked},status="200"}} 2.0' in lines
    assert f'ensemble_requests_total{{{asked},status="500"}} 1.0' in lines
    assert f'ensemble_request_seconds_bucket{{le="0.0025",{asked}}} 1.0' in lines
    assert f'ensemble_request_seconds_bucket{{le="+Inf",{asked}}} 3.0' in lines
    assert f"ensemble_request_seconds_sum{{{asked}}} {1 / 512 + 2 / 64}" in lines


def test_a_request_is_counted_before_who_asked_has_any_of_the_answer(tmp_path, monkeypatch):
    """Else the count of a process that is killed then lacks what it has answered. Where it cannot
    be counted, it is answered all the same."""
    counted, sent = [], []

    class Counts:
        def labels(self, *given):
            counted.append(given)
            if len(counted) == 4:
                raise OSError("the folder is gone")
            return self

        def inc(self):
            pass

    async def send(message):
        sent.append((message.get("status"), len(counted)))

    async def run(call):
        if call.params["what"] == "fails":
            raise OSError("cut short")
        return Reply(200, b"a")

    monkeypatch.setattr(app, "REQUESTS", Counts())
    served = app.App([Operation("GET", "/{what}", run, None)], Service(tmp_path))
    scope = {"type": "http", "query_string": b"", "headers": [(b"host", b"localhost")]}
    for method, path in (("GET", "/a"), ("GET", "/fails"), ("BREW", "/a/b"), ("GET", "/a")):
        asyncio.run(served({**scope, "method": method, "path": path}, None, send))
    statuses = [(200, 1), (503, 2), (404, 3), (200, 4)]
    assert sent == [pair for each in statuses for pair in (each, (None, each[1]))]
    routes = [("GET", "/{what}", "200"), ("GET", "/{what}", "503"), ("other", "other", "404")]
    assert counted[:3] == routes


def test_a_rate_lets_bursts_pass_and_then_so_many(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(admission, "monotonic", lambda: now[0])
    rates = admission.Rates(10.0)
    assert [rates.wait("a") for _ in range(10)] == [0.0] * 10
    assert rates.wait("a") == pytest.approx(0.1)
    assert rates.wait("b") == 0.0
    now[0] += 0.25
    assert [rates.wait("a") for _ in range(2)] == [0.0, 0.0]
    assert rates.wait("a") == pytest.approx(0.05)
    now[0] += 1000.0
    assert sum(rates.wait("a") == 0.0 for _ in range(20)) == 10


def test_what_was_served_is_there_when_served_again_and_rates_are_kept(tmp_path):
    with running(tmp_path, bandits=["shop"]) as (url, _):
        made = httpx.post(f"{url}/v1/bandits/shop/choose", json=OFFER, timeout=60).json()
    limits = {"limits": Limits(rate=6.0), "processes": 2}  # which share the rate
    with running(tmp_path, **limits) as (url, service), httpx.Client(base_url=url) as http:
        assert service.storage.names() == ["default", "shop"]
        assert post(http, "outcome", "shop", id=made["id"], outcome=1) == {"new": True}
        found = [http.get("/v1/bandits") for _ in range(5)]
    assert [one.status_code for one in found[:2]] == [200] * 2
    error(found[-1], 429, "too_many")
    assert int(found[-1].headers["retry-after"]) >= 1


def test_a_ledger_s_own_folder_is_served_as_default_and_its_path_not_told(tmp_path):
    es.Bandit.open(tmp_path / "secret", actions=["a", "b"]).close()
    with running(tmp_path / "secret") as (url, service):
        assert service.storage.names() == ["default"]
        assert httpx.post(f"{url}{BASE}/choose", json={}, timeout=60).json()["action"] in "ab"
        message = error(httpx.put(f"{url}/v1/bandits/shop"), 400, "invalid")
    assert "'default'" in message
    assert "secret" not in message


def test_own_agents_and_candidates_are_read_from_a_file(http, served):
    assert {"named", "plain", "words"} <= {*served[1].storage.names()}
    for what in ("predict", "choose"):
        post(http, what, "words", **OFFER)
    for _ in range(8):
        made = post(http, "choose", "named")
        post(http, "outcome", "named", id=made["id"], outcome=1.0)
    found = post(http, "evaluate", "named")
    assert set(found["columns"]["policy"]) == {"uniform"}
    with served[1].evaluating:
        post(http, "evaluate", "named", 409)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("X = 1", "must define AGENTS"),
        ("X = 1\nAGENTS = {'a': 1 / 0}", "agents.py, line 2: ZeroDivisionError"),
        ("AGENTS = [1]", "AGENTS = {name: agent}"),
        ("AGENTS = {'a': {'agnt': 1}}", "agnt"),
        ("AGENTS = {'No': None}", "'No'"),
        ("AGENTS = {'a': {'baseline': 'first'}}", "others are settings"),
    ],
)
def test_a_wrong_file_of_agents_is_said(tmp_path, text, says):
    (tmp_path / "agents.py").write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        Service(tmp_path / "place", agents=tmp_path / "agents.py")


def test_the_dashboard_and_its_files_are_served_under_a_strict_policy(http):
    for path, kind in {
        "/dashboard": "text/html", "/dashboard/app.js": "text/javascript",
        "/dashboard/draw.js": "text/javascript", "/dashboard/style.css": "text/css",
    }.items():  # fmt: skip
        answer = http.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/dashboard/dashboard.html", "/dashboard/..%2Fpages.py"):
        assert http.get(path).status_code == 404
    assert http.get("/").headers["location"] == "/dashboard"


def test_the_dashboard_asks_nobody_else_and_makes_no_html_of_what_it_is_told():
    folder = Path(pages.__file__).with_name("page")
    sources = {name: (folder / name).read_text() for name in pages.KINDS}
    for name, text in sources.items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert "localStorage.setItem(KEY" not in text
    html = sources[pages.PAGE]
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", html)
    assert {*re.findall(r'(?:src|href)="([^"#]*)"', html)} == {
        "data:,", "dashboard/style.css", "dashboard/app.js",
    }  # fmt: skip
