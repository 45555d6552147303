"""Many bandits in one service: opened when asked, closed when idle, begun once."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from services import running

from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.serve import service as services
from ensemble_sampling.serve import updater
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.http.limits import Limits
from ensemble_sampling.serve.pools import Pool
from ensemble_sampling.serve.service import Service
from ensemble_sampling.serve.storage import Storage

ARMS = {"actions": ["a", "b"]}


def sent(url, method, path, body=None):
    return httpx.request(method, f"{url}/v1/bandits/{path}", json=body, timeout=60)


def played(url, name):
    """A decision and its outcome; its id."""
    made = sent(url, "POST", f"{name}/choose", {})
    assert made.status_code == 200, made.text
    told = {"id": made.json()["id"], "outcome": 1.0}
    assert sent(url, "POST", f"{name}/outcome", told).json() == {"new": True}
    return told["id"]


def until(true, seconds=30.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def threads():
    """All but those that asyncio begins as it needs them, of which there are few."""
    return sorted(t.name for t in threading.enumerate() if not t.name.startswith("asyncio"))


def test_threads_do_not_grow_with_the_number_of_bandits(tmp_path):
    with running(tmp_path) as (url, service):
        counts = []
        for n in range(8):
            assert sent(url, "PUT", f"b{n}", ARMS).status_code == 201
            played(url, f"b{n}")
            counts.append(threads())
        assert len(service.engines) == 9
        assert counts[0] == counts[-1]
    until(lambda: not [name for name in threads() if name.startswith(("decide-", "keep-"))])


def test_only_what_is_asked_for_is_open(tmp_path):
    with running(tmp_path) as (url, _):
        for name in ("one", "two"):
            sent(url, "PUT", name, ARMS)
        made = played(url, "one")
    with running(tmp_path) as (url, service):
        assert list(service.engines) == ["default"]
        assert service.storage.names() == ["default", "one", "two"]
        assert httpx.get(f"{url}/v1/bandits").json()["bandits"] == service.storage.names()
        assert sent(url, "GET", "one/log").json()["columns"]["id"] == [made]
        assert list(service.engines) == ["default", "one"]
        assert sent(url, "GET", "three/log").status_code == 404
        assert not (tmp_path / "three").exists()


def test_an_idle_bandit_is_closed_and_opened_again_without_a_loss(tmp_path, monkeypatch):
    with running(tmp_path) as (url, service):
        sent(url, "PUT", "shop", ARMS)
        ids = [played(url, "shop")]
        monkeypatch.setattr(services, "IDLE", 0.1)
        for _ in range(2):
            until(lambda: not service.engines)
            ids.append(played(url, "shop"))
        until(lambda: not service.engines)
        until((tmp_path / "shop" / "state.safetensors").exists)  # what was learned is saved
        assert httpx.get(f"{url}/readyz").status_code == 200
        monkeypatch.setattr(services, "IDLE", 60.0)
        log = sent(url, "GET", "shop/log").json()["columns"]
        assert (log["id"], log["outcome"]) == (ids, [1.0, 1.0, 1.0])
        until(lambda: sent(url, "GET", "shop/status").json()["learned"] == 3)


def test_a_bandit_is_not_closed_while_it_is_used_or_has_outcomes_to_assume(tmp_path, monkeypatch):
    with running(tmp_path) as (url, service):
        sent(url, "PUT", "shop", ARMS)
        sent(url, "PUT", "late", ARMS)
        sent(url, "PUT", "late/settings", {"wait": 1.5, "default": 0.0})
        sent(url, "POST", "late/choose", {})
        until(lambda: service.engines["late"].waits)
        with service.engines["shop"].used():
            monkeypatch.setattr(services, "IDLE", 0.1)
            until(lambda: "default" not in service.engines)
            assert "shop" in service.engines
            until(lambda: "late" not in service.engines)
            with closing(Ledger(tmp_path / "late", write=False)) as ledger:
                assert ledger.outcomes == 1  # only then
            assert "shop" in service.engines
        until(lambda: not service.engines)


def test_of_too_many_the_one_longest_not_asked_for_is_closed(tmp_path):
    with running(tmp_path, limits=Limits(open=2)) as (url, service):
        for name in ("one", "two", "three"):
            sent(url, "PUT", name, ARMS)
            played(url, name)
            assert len(service.engines) == 2
        assert list(service.engines) == ["three", "two"]
        played(url, "two")
        played(url, "one")
        assert list(service.engines) == ["one", "two"]
        assert sent(url, "GET", "three/summary").json()["outcomes"] == 1


def test_a_process_that_closes_a_bandit_lets_another_learn(tmp_path, monkeypatch):
    monkeypatch.setattr(updater, "LEASE", 0.6)
    with running(tmp_path) as (first, one), running(tmp_path) as (second, two):
        sent(first, "PUT", "shop", ARMS)
        played(first, "shop")
        played(second, "shop")
        assert one.engines["shop"].status()["learning"]
        assert not two.engines["shop"].status()["learning"]
        with two.engines["shop"].used(), two.engines["default"].used():
            monkeypatch.setattr(services, "IDLE", 0.1)
            until(lambda: not one.engines)
            until(lambda: two.engines["shop"].status()["learning"])
            played(second, "shop")
            until(lambda: two.engines["shop"].status()["learned"] == 3)


def test_who_only_learns_has_all_open_also_those_begun_later(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "TENDED", 0.05)
    with running(tmp_path, role="decide") as (url, _):
        sent(url, "PUT", "one", ARMS)
        with running(tmp_path, role="learn", limits=Limits(open=1)) as (_, learner):
            assert set(learner.engines) == {"default", "one"}
            sent(url, "PUT", "two", ARMS)
            until(lambda: "two" in learner.engines)
            played(url, "two")
            until(lambda: sent(url, "GET", "two/status").json()["learned"] == 1)


def test_of_several_who_begin_a_bandit_at_once_one_does(tmp_path):
    with running(tmp_path) as (first, _), running(tmp_path) as (second, _):
        urls, ready = [first, second] * 4, threading.Barrier(8)

        def begin(n):
            ready.wait()
            return sent(urls[n], "PUT", "shop", {"actions": [f"a{n}", f"b{n}"]}).status_code

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(begin, range(8)))
        assert sorted(found) == [201] + [409] * 7
        n = found.index(201)
        for url in (first, second):
            made = sent(url, "POST", "shop/choose", {}).json()
            assert made["actions"] == [f"a{n}", f"b{n}"]
            assert sent(url, "PUT", "shop").status_code == 200


@pytest.mark.parametrize("same", [True, False])
def test_who_waits_for_another_to_begin_a_bandit_did_not_begin_it(tmp_path, same):
    async def together():
        async with Service(tmp_path) as one, Service(tmp_path) as two:
            begun = [
                service.create("shop", ["a", "b" if same else f"b{n}"], None)
                for n, service in enumerate((one, one, one, two, two, two))
            ]
            return await asyncio.gather(*begun)

    assert sorted(asyncio.run(together())) == [False] * 5 + [True]


def test_what_cannot_be_begun_is_said_and_leaves_nothing(tmp_path):
    with running(tmp_path) as (url, _):
        found = sent(url, "PUT", "shop", {"actions": ["a", "a"]})
        assert found.status_code == 400
        assert "'a'" in found.json()["error"]["message"]
        assert not (tmp_path / "shop").exists()
        assert sent(url, "GET", "shop").status_code == 404


def test_no_answer_says_where_a_bandit_is_kept(tmp_path, caplog, monkeypatch):
    agents = tmp_path / "agents.py"
    agents.write_text(
        "import ensemble_sampling as es\n"
        "AGENTS = {'own': es.EnsembleSampling(es.IndependentArms(2, 1.0), members=4)}\n"
        "CANDIDATES = {'any': es.Uniform()}\n"
    )
    place = tmp_path / "secret"
    with running(place, agents=agents) as (url, _):
        sent(url, "PUT", "gone", ARMS)
    (place / "gone" / "ledger.sqlite").write_bytes(b"no database" * 100)
    with running(place, bandits=["shop"]) as (url, service):
        said = []
        for method, path, body, status in (
            ("GET", "own/log", None, 503),  # begun with an agent that is not declared any more
            ("POST", "own/choose", {}, 503),
            ("PUT", "own", ARMS, 503),
            ("GET", "gone/log", None, 503),
            ("POST", "default/evaluate", {}, 404),
        ):
            found = sent(url, method, path, body)
            assert found.status_code == status, found.text
            said.append(found.text)
        monkeypatch.setattr(service.engines["shop"]._updater, "step", lambda: 1 / 0)
        until(lambda: service.engines["shop"].trouble)
        said.append(sent(url, "GET", "shop/status").text)
        place.rename(tmp_path / "elsewhere")
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        until(lambda: service.engines["default"].trouble)
        for method, path, body in (
            ("GET", "default/status", None),
            ("GET", "default/log", None),
            ("GET", "other/log", None),
            ("POST", "default/choose", {"actions": {"a": {"x": 1}}}),
            ("PUT", "new", ARMS),
        ):
            found = sent(url, method, path, body)
            assert found.status_code == 503 or "trouble" in found.json(), found.text
            said.append(found.text)
        (tmp_path / "elsewhere").rename(place)
    with running(place, agents=agents) as (url, _):
        found = sent(url, "POST", "default/evaluate", {})  # of nothing
        assert found.status_code == 400
        said.append(found.text)
    for text in said:
        assert "secret" not in text
        assert str(tmp_path) not in text
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "bandit own cannot be opened" in logged
    assert str(place) in logged


def test_of_the_folder_of_one_bandit_the_path_is_not_told(tmp_path):
    import ensemble_sampling as es

    es.Bandit.open(tmp_path / "secret", actions=["a", "b"]).close()
    with running(tmp_path / "secret") as (url, _):
        found = sent(url, "PUT", "shop", ARMS)
    assert found.status_code == 400
    assert "'default'" in found.text
    assert "secret" not in found.text


def test_a_revoked_key_is_refused_while_all_threads_are_at_the_log(tmp_path, monkeypatch):
    secret, key = Keys(Storage.of(tmp_path)).create(["read"])
    headers, may = {"Authorization": f"Bearer {secret}"}, threading.Event()
    with running(tmp_path) as (url, service), ThreadPoolExecutor(50) as pool:
        engine = service.engines["default"]
        monkeypatch.setattr(engine, "page", lambda *_: (may.wait(60), engine._decider) and 1 / 0)
        log = f"{url}/v1/bandits/default/log"
        pages = [pool.submit(httpx.get, log, headers=headers, timeout=60) for _ in range(50)]
        until(lambda: engine.users == 50)
        try:
            assert httpx.get(log + "?last=1", headers=headers).status_code == 400
            Keys(Storage.of(tmp_path)).revoke(key.id)
            until(lambda: httpx.get(log + "?last=1", headers=headers).status_code == 401)
            assert engine.users == 50
        finally:
            may.set()
        assert {page.result().status_code for page in pages} == {500}


def test_jobs_are_done_when_they_are_due_and_in_that_order():
    pool, done, end = Pool("test", 1), [], threading.Event()
    began = time.monotonic()
    for wait in (0.2, 0.1, 0.3):
        pool.add(lambda wait=wait: done.append((wait, time.monotonic() - began)), began + wait)
    pool.add(lambda: done.append(1 / 0))  # which is no other's fault
    pool.add(end.set, began + 0.4)
    assert end.wait(30)
    assert [wait for wait, _ in done] == [0.1, 0.2, 0.3]
    assert all(late >= wait for wait, late in done)
    pool.close()
    pool.add(end.clear)
    assert end.is_set()
