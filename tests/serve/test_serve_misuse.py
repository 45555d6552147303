"""What a served bandit does about requests that are meant ill, and about faults of its own."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportPossiblyUnboundVariable=false

import asyncio
import logging
import threading

import httpx
import numpy as np
import pytest
from services import raw, running

import ensemble_sampling as es
from ensemble_sampling.serve import outcomes, run, supervisor
from ensemble_sampling.serve.engine import Engine, _resolve
from ensemble_sampling.serve.types import ChoiceRequest, Refused

OFFER = {"actions": {"a": {"x": "one"}, "b": {"x": "two"}}}
HUGE = "1" + "0" * 400  # a whole number that no float can be


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    with (
        running(tmp_path_factory.mktemp("open"), bandits=["rows", "sums", "names"]) as (url, _),
        httpx.Client(base_url=f"{url}/v1/bandits/", timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("bandit", ["default", "rows"])
@pytest.mark.parametrize("part", ["action", "context"])
def test_numbers_beyond_all_floats_are_refused(http, bandit, part):
    one = "[[1, 2], [3, 4]]" if bandit == "rows" else '{"a": {"x": "y"}, "b": {"x": "z"}}'
    first = http.post(f"{bandit}/choose", content=f'{{"actions": {one}}}')
    assert first.status_code == 200
    row = f"[{HUGE}, 2]" if bandit == "rows" else f'{{"x": {HUGE}}}'
    if part == "action":
        body = f'{{"actions": [{row}, {row}]}}'
    else:
        body = f'{{"actions": {one}, "context": {row}}}'
    for what in ("choose", "predict"):
        found = http.post(f"{bandit}/{what}", content=body)
        assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid"), found.text


def test_what_is_said_by_names_may_be_more_the_next_time(http):
    offers = [
        {"actions": {"a": {"x": 1.0}, "b": {"x": 2.0}}},  # numbers alone, which could be columns
        {"actions": {"a": {"x": 1.0, "y": 2.0}, "c": {"z": "text"}}, "context": {"hour": 8}},
        {"actions": {"a": None, "b": {}}},
    ]
    assert http.post("names/predict", json=offers[0]).status_code == 200
    for offer in offers:
        assert http.post("names/choose", json=offer).status_code == 200


def test_amounts_add_up_once_by_what_they_refer_to_all_of_a_request_or_none(http):
    assert http.put("sums/settings", json={"aggregation": "sum"}).status_code == 200
    for event in "ab":
        http.post("sums/choose", json={**OFFER, "event": event}).raise_for_status()

    def told(*outcomes):
        known = [dict(zip(("id", "outcome", "ref"), one, strict=False)) for one in outcomes]
        return http.post("sums/outcome", json={"outcomes": known})

    assert told(("a", 1.0, "r1"), ("a", 2.0, "r2"), ("a", 1.0, "r1")).json() == {
        "new": [True, True, False]
    }
    assert told(("a", 4.0, "r3"), ("nobody", 1.0, "r4")).status_code == 404
    assert told(("a", 4.0, "r3"), ("a", 5.0, "r2")).status_code == 409  # r2 was 2
    assert told(("a", 4.0, "r3"), ("a", 9e14, "r5"), ("a", 9e14, "r6")).status_code == 400
    assert told(("a", 4.0, "r3"), ("b", 1.0)).json() == {"new": [True, True]}
    assert told(("b", 1.0), ("a", 4.0, "r3")).json() == {"new": [True, False]}
    columns = http.get("sums/log").json()["columns"]
    assert columns["outcome"] == [7.0, 2.0]
    assert columns["first"] == [1.0, 1.0]


@pytest.mark.parametrize("opens", ["[", '{"a": '])
@pytest.mark.parametrize("what", ["choose", "predict"])
def test_nesting_has_an_end(http, opens, what):
    statuses = set()
    for depth in (10, 70, *range(900, 1000, 7), 100_000):
        said = opens * depth + "1" + ("]" if opens == "[" else "}") * depth
        body = f'{{"actions": {{"a": {{"x": 1}}, "b": {{"x": 2}}}}, "context": {{"y": {said}}}}}'
        found = http.post(f"names/{what}", content=body)
        statuses.add((depth > 60, found.status_code))
    assert statuses == {(False, 200), (True, 413), (True, 400)}


def test_an_event_is_not_called_like_a_decision(http):
    made = http.post("default/choose", json=OFFER).json()
    for event in (made["id"], "0123456789ab-7"):
        found = http.post("default/choose", json={**OFFER, "event": event})
        assert found.status_code == 400
        assert "own id" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (
            "choose",
            {**OFFER, "event": "a/b"},
            "Expected text without / and control characters - at",
        ),
        ("outcome", {"id": "a\0", "outcome": 1}, "Expected text without control characters - at"),
        ("outcome", {"id": "a\n", "outcome": 1}, "Expected text without control characters - at"),
        ("choose", {**OFFER, "event": "a\n"}, "text without / and control characters - at"),
        ("choose", {**OFFER, "slot": "a\n"}, "text without / and control characters - at"),
        ("choose", {**OFFER, "slot": "\n"}, "text without / and control characters - at"),
    ],
)
def test_what_a_text_may_not_have_is_said_in_words(http, path, body, says):
    found = http.post(f"default/{path}", json=body)
    assert found.status_code == 400
    assert says in found.json()["error"]["message"]


def test_headers_without_end_are_cut_off(http):
    found = raw(str(http.base_url).split("/v1")[0], b"GET / HTTP/1.1\r\nX: " + b"a" * 2_000_000)
    assert found == b""


def test_a_default_that_nobody_could_learn_is_refused(http):
    found = http.put("default/settings", json={"wait": 60, "default": 1e300})
    assert found.status_code == 400
    assert "below 1e+15" in found.json()["error"]["message"]


def test_without_keys_what_a_proxy_hands_on_is_refused(http):
    for name in ("X-Forwarded-For", "Forwarded", "Via"):
        found = http.get("default/summary", headers={name: "203.0.113.7"})
        assert found.status_code == 421
        assert "proxy" in found.json()["error"]["message"]


def test_a_process_that_only_learns_does_not_rank_either(tmp_path):
    with running(tmp_path, role="learn") as (url, _):
        rank = {"actions": [{"id": "a"}, {"id": "b"}]}
        for path, body in (
            ("/v1/bandits/default/choose", OFFER),
            ("/personalizer/v1.0/rank", rank),
            ("/bandits/default/personalizer/v1.1-preview.3/multislot/rank", rank),
        ):
            found = httpx.post(url + path, json=body)
            assert (found.status_code, found.json()["error"]["code"]) == (503, "unavailable")


def test_an_own_agent_may_have_a_hasher(tmp_path):
    file = tmp_path / "agents.py"
    file.write_text(
        "import ensemble_sampling as es\n"
        "agent = es.EnsembleSampling(es.Linear(dim=16), members=4)\n"
        'AGENTS = {"default": {"agent": agent, "hasher": es.Hasher(16)}}\n'
    )
    with running(tmp_path / "place", agents=file) as (url, _):
        for what in ("predict", "choose"):
            found = httpx.post(f"{url}/v1/bandits/default/{what}", json=OFFER, timeout=60)
            assert found.status_code == 200, found.text


@pytest.fixture
def engine(tmp_path):
    agent = es.EnsembleSampling(es.Linear(dim=2), members=4)
    made = Engine("shop", tmp_path / "shop", agent)
    yield made
    made.close()


def asked(engine, *events):
    async def together():
        rows = np.eye(2).tolist()
        waiting = [engine.decide([ChoiceRequest(rows, event=event)]) for event in events]
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(together())


def test_a_fault_of_ours_is_no_refusal_and_spares_the_requests_beside_it(engine, monkeypatch):
    asked(engine, "first")
    record = engine._decider._record

    def faulty(groups):
        if any(draft.request.event == "ill" for group in groups for draft in group):
            raise ValueError("a mistake of ours")
        return record(groups)

    monkeypatch.setattr(engine._decider, "_record", faulty)
    for _ in range(3):  # however they happen to come together
        one, ill, two = asked(engine, "one", "ill", "two")
        assert type(ill) is ValueError
        assert (one[0].event, two[0].event) == ("one", "two")
    assert engine.page(0, 10)[0]["id"] == [f"{one[0].id[:12]}-{n}" for n in range(3)]


def test_where_the_ledger_is_is_for_the_log_alone(engine, monkeypatch, caplog):
    def away(*_, **__):
        raise OSError("cannot write to the ledger in /srv/secret: away")

    monkeypatch.setattr(engine._decider, "work", away)
    monkeypatch.setattr(outcomes, "correct", away)
    with caplog.at_level(logging.ERROR):
        found = asked(engine, "e1", "e2")
        with pytest.raises(Refused) as told:
            engine.correct("e1", 1.0)
    for refused in (*found, told.value):
        assert refused.kind == "unavailable"
        assert "secret" not in str(refused)
    assert len([record for record in caplog.records if "/srv/secret" in record.getMessage()]) == 1


def test_a_database_that_neither_answers_nor_goes_is_not_waited_for(engine, monkeypatch):
    asked(engine, "first")
    monkeypatch.setattr("ensemble_sampling.serve.engine.PATIENCE", 0.2)
    work, waiting = engine._decider.work, threading.Event()

    def slow(*given, **named):
        waiting.wait(60)
        return work(*given, **named)

    monkeypatch.setattr(engine._decider, "work", slow)
    for event in ("taken up", "in the queue"):
        (found,) = asked(engine, event)
        assert (type(found), found.kind) == (Refused, "unavailable")
    monkeypatch.setattr("ensemble_sampling.serve.engine.PATIENCE", 60)
    waiting.set()
    (made,) = asked(engine, "later")
    assert made[0].id.endswith("-2")  # what nobody waited for any more was not begun


def test_who_has_gone_is_not_worked_for_and_keeps_no_answer_from_the_others(engine, monkeypatch):
    asked(engine, "first")
    work, working, may = engine._decider.work, threading.Event(), threading.Event()

    def slow(*given, **named):
        working.set()
        assert may.wait(60)
        return work(*given, **named)

    monkeypatch.setattr(engine._decider, "work", slow)

    async def together():
        def decide(event):
            return asyncio.create_task(
                engine.decide([ChoiceRequest(np.eye(2).tolist(), event=event)])
            )

        taken = decide("taken up")
        await asyncio.to_thread(working.wait, 60)
        queued = [decide(event) for event in ("gone", "two", "three")]
        while engine._asked.qsize() < 3:
            await asyncio.sleep(0.01)
        taken.cancel()
        queued[0].cancel()
        may.set()
        return await asyncio.gather(taken, *queued, return_exceptions=True)

    taken, gone, two, three = asyncio.run(together())
    assert isinstance(taken, asyncio.CancelledError)
    assert isinstance(gone, asyncio.CancelledError)
    # What was begun is recorded, what was not is not.
    assert [made[0].id.rpartition("-")[2] for made in (two, three)] == ["2", "3"]
    assert engine._unanswered == {}


def test_an_answer_for_who_has_gone_spares_those_it_comes_with():
    async def together():
        gone, there, wrong = (asyncio.get_running_loop().create_future() for _ in range(3))
        gone.cancel()
        _resolve([(gone, 1), (there, 2), (wrong, Refused("invalid", "so it is"))])
        assert there.result() == 2
        with pytest.raises(Refused, match="so it is"):
            wrong.result()

    asyncio.run(together())


def test_a_loop_that_has_ended_waits_for_no_answer(engine, monkeypatch):
    asked(engine, "first")
    work, may = engine._decider.work, threading.Event()
    monkeypatch.setattr(engine._decider, "work", lambda *a, **k: may.wait(60) and work(*a, **k))

    async def leave():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.decide([ChoiceRequest(np.eye(2).tolist())]), 0.05)

    asyncio.run(leave())
    may.set()
    (made,) = asked(engine, "later")
    assert made[0].id.endswith("-2")


def test_what_is_asked_when_it_is_closed_is_answered_and_nothing_after(tmp_path, monkeypatch):
    agent = es.EnsembleSampling(es.Linear(dim=2), members=4)
    engine = Engine("shop", tmp_path / "shop", agent)
    work, working, may = engine._decider.work, threading.Event(), threading.Event()

    def slow(*given, **named):
        working.set()
        assert may.wait(60)
        return work(*given, **named)

    monkeypatch.setattr(engine._decider, "work", slow)

    async def together():
        first = asyncio.create_task(engine.decide([ChoiceRequest(np.eye(2).tolist())]))
        await asyncio.to_thread(working.wait, 60)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        while not engine._ending:
            await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="the service is ending"):
            await engine.decide([ChoiceRequest(np.eye(2).tolist())])
        may.set()
        await closing
        return await first

    (made,) = asyncio.run(together())
    assert made.id.endswith("-0")


def test_what_hangs_when_it_is_closed_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("ensemble_sampling.serve.engine.ENDING", 0.2)
    engine = Engine("shop", tmp_path / "shop", es.EnsembleSampling(es.Linear(dim=2), members=4))
    may = threading.Event()
    monkeypatch.setattr(engine._decider, "work", lambda *_, **__: may.wait(60) and 1 / 0)

    async def together():
        asking = asyncio.create_task(engine.decide([ChoiceRequest(np.eye(2).tolist())]))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        with pytest.raises(Refused, match="the service is ending"):
            await asking
        may.set()
        await closing

    asyncio.run(together())


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


def test_who_is_started_anew_leaves_connections_to_the_others(monkeypatch):
    told = []

    class Process:
        def __init__(self, command, env, **_):
            told.append("true" in env[supervisor.OPTIONS])

        def poll(self):
            return -9

    monkeypatch.setattr(supervisor.subprocess, "Popen", Process)
    workers = [supervisor.Worker(number, {}, ()) for number in range(2)]
    for worker in workers:
        worker.look(0.0)
        assert worker.first
    for worker in workers:
        assert worker.look(20.0) == -9
        worker.look(20.0)
        assert not worker.first
    assert told == [False, True, True, True]
