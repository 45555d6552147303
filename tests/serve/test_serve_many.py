"""Many bandits in one service: opened when asked, closed when idle, begun once; one that cannot be
opened keeps no other from being served."""

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from servers import new_database
from services import running, until

import ensemble_sampling as es
from ensemble_sampling.files import Damaged
from ensemble_sampling.ledger.ledger import Ledger
from ensemble_sampling.serve import service as services
from ensemble_sampling.serve import updater
from ensemble_sampling.serve.http.admission import Limits
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.service import Service
from ensemble_sampling.serve.storage import Storage

ARMS = {"actions": ["a", "b"]}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What is looked at now and then is looked at often."""
    monkeypatch.setattr(services, "TENDED", 0.05)
    monkeypatch.setattr(services, "RETRY", 0.0)


def sent(url, method, path, body=None):
    return httpx.request(method, f"{url}/v1/bandits/{path}", json=body, timeout=60)


def played(url, name):
    """A decision and its outcome; its id."""
    made = sent(url, "POST", f"{name}/choose", {})
    assert made.status_code == 200, made.text
    told = {"id": made.json()["id"], "outcome": 1.0}
    assert sent(url, "POST", f"{name}/outcome", told).json() == {"new": True}
    return told["id"]


def begin(url, *names):
    for name in names:
        assert sent(url, "PUT", name, ARMS).status_code == 201


def threads():
    """Those that the bandits of a process share."""
    names = ("decide", "compile", "prepare", "update")
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]


def test_threads_do_not_grow_with_the_bandits_and_only_those_asked_for_are_open(tmp_path):
    with running(tmp_path) as (url, service):
        begin(url, "b0", "b1", "b2", "b3")
        made = [played(url, f"b{n}") for n in range(4)][-1]
        assert len(service.engines) == 5
        assert 0 < len(threads()) <= 15
    until(lambda: not threads())
    with running(tmp_path) as (url, service):
        assert list(service.engines) == ["default"]
        assert service.storage.names() == ["default", "b0", "b1", "b2", "b3"]
        assert httpx.get(f"{url}/v1/bandits").json()["bandits"] == service.storage.names()
        assert sent(url, "GET", "b3/log").json()["columns"]["id"] == [made]
        assert sorted(service.engines) == ["b3", "default"]
        assert sent(url, "GET", "other/log").status_code == 404
        assert not (tmp_path / "other").exists()


def test_an_idle_bandit_is_closed_and_opened_again_without_a_loss(tmp_path, monkeypatch):
    with running(tmp_path) as (url, service):
        begin(url, "shop")
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
        begin(url, "shop", "late")
        sent(url, "PUT", "late/settings", {"wait": 1.0, "default": 0.0})
        sent(url, "POST", "late/choose", {})
        until(lambda: service.engines["late"].updater.waits)
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
            begin(url, name)
            played(url, name)
            assert len(service.engines) == 2
        assert sorted(service.engines) == ["three", "two"]
        played(url, "two")
        played(url, "one")
        assert sorted(service.engines) == ["one", "two"]
        assert sent(url, "GET", "three/summary").json()["outcomes"] == 1


def test_a_process_that_closes_a_bandit_lets_another_learn(tmp_path, monkeypatch):
    monkeypatch.setattr(updater, "LEASE", 0.6)
    with running(tmp_path) as (first, one), running(tmp_path) as (second, two):
        begin(first, "shop")
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


def test_who_only_learns_decides_nothing_and_has_all_open_also_those_begun_later(tmp_path):
    with running(tmp_path, role="decide") as (url, _):
        begin(url, "one")
        with running(tmp_path, role="learn", limits=Limits(open=1)) as (other, learner):
            assert set(learner.engines) == {"default", "one"}
            begin(url, "two")
            until(lambda: "two" in learner.engines)
            played(url, "two")
            until(lambda: sent(url, "GET", "two/status").json()["learned"] == 1)
            for path in (
                "v1/bandits/one/choose",
                "personalizer/v1.0/rank",
                "bandits/one/personalizer/v1.1-preview.3/multislot/rank",
            ):
                found = httpx.post(f"{other}/{path}", json={})
                assert (found.status_code, found.json()["error"]["code"]) == (503, "unavailable")


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("same", [True, False])
def test_of_several_who_begin_a_bandit_at_once_one_does(tmp_path, database, same):
    place = tmp_path if database == "sqlite" else new_database()
    with running(place) as (first, _), running(place) as (second, _):
        urls, ready = [first, second] * 3, threading.Barrier(6)

        def together(n):
            ready.wait()
            body = {"actions": ["a", "b"] if same else [f"a{n}", f"b{n}"]}
            return sent(urls[n], "PUT", "shop", body).status_code

        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(together, range(6)))
        assert sorted(found) == [201] + [409] * 5
        n = "" if same else found.index(201)
        for url in (first, second):
            made = sent(url, "POST", "shop/choose", {}).json()
            assert made["actions"] == [f"a{n}", f"b{n}"]
            assert sent(url, "PUT", "shop").status_code == 200


def test_no_answer_says_where_a_bandit_is_kept(tmp_path, caplog, monkeypatch):
    agents = tmp_path / "agents.py"
    agents.write_text(
        "import ensemble_sampling as es\n"
        "own = es.EpsilonGreedy(es.IndependentArms(2, 1.0), epsilon=lambda t: 0.1)\n"
        "AGENTS = {'own': own}  # its record cannot make a function\n"
        "CANDIDATES = {'any': es.Uniform()}\n"
    )
    place, said = tmp_path / "secret", []
    with running(place, agents=agents) as (url, _):
        begin(url, "gone")
        found = sent(url, "PUT", "shop", {"actions": ["a", "a"]})
        assert found.status_code == 400
        assert "'a'" in found.json()["error"]["message"]
        assert not (place / "shop").exists()  # what cannot be begun leaves nothing
        found = sent(url, "POST", "default/evaluate", {})  # of nothing
        assert found.status_code == 400
        said.append(found.text)
    (place / "gone" / "ledger.sqlite").write_bytes(b"no database" * 100)
    with running(place, bandits=["shop"]) as (url, service):
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
        monkeypatch.setattr(service.engines["shop"].updater, "step", lambda: 1 / 0)
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
    for text in said:
        assert "secret" not in text
        assert str(tmp_path) not in text
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "bandit own cannot be served for now" in logged
    assert str(place) in logged


def test_a_revoked_key_is_refused_while_all_threads_are_at_the_log(tmp_path, monkeypatch):
    secret, key = Keys(Storage.of(tmp_path)).create(["read"])
    headers, may = {"Authorization": f"Bearer {secret}"}, threading.Event()
    with running(tmp_path) as (url, service), ThreadPoolExecutor(50) as pool:
        engine = service.engines["default"]
        monkeypatch.setattr(engine.reader, "page", lambda *_: may.wait(60) and 1 / 0)
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


def begun(place, *names):
    """Folders of bandits that have decided once."""
    for name in names:
        with es.Bandit.open(place / name, actions=["a", "b"]) as bandit:
            bandit.choose()


def flip(path):
    """Damage what the ledger says of itself."""
    content = path.read_bytes()
    assert b"precision" in content
    path.write_bytes(content.replace(b"precision", b"precisiom"))


def test_those_that_are_held_damaged_or_unreadable_are_said_and_the_others_served(tmp_path, caplog):
    names = ["held", "damaged", "strange"]
    begun(tmp_path, "default", *names)
    shutil.copytree(tmp_path / "damaged", tmp_path.parent / "backup")
    flip(tmp_path / "damaged" / "ledger.sqlite")
    (tmp_path / "strange" / "ledger.sqlite").rename(tmp_path / "whole")
    (tmp_path / "strange" / "ledger.sqlite").mkdir()
    (tmp_path / "new" / "lock").mkdir(parents=True)  # in which nothing can be begun
    holder = es.Bandit.open(tmp_path / "held")
    with running(tmp_path, bandits=[*names, "new"]) as (url, service):
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok", "unavailable": 4}
        assert sent(url, "GET", "default/status").status_code == 200
        said = {name: sent(url, "GET", f"{name}/status") for name in service.failed}
        assert sorted(said) == ["damaged", "held", "new", "strange"]
        assert {found.status_code for found in said.values()} == {503}
        assert "has it open" in said["held"].text
        assert "its ledger is damaged; restore a backup" in said["damaged"].text
        assert "cannot be read or written" in said["strange"].text
        assert "cannot be read or written" in said["new"].text
        assert not any(str(tmp_path) in found.text for found in said.values())
        told = [record.getMessage() for record in caplog.records]
        for name in said:  # once, and with all that there is to say
            logged = [line for line in told if line.startswith(f"bandit {name} cannot be served")]
            assert len(logged) == 1
            assert str(tmp_path / name) in logged[0]
        assert {*httpx.get(f"{url}/v1/bandits").json()["bandits"]} == {"default", *names}
        holder.close()
        shutil.copy(tmp_path.parent / "backup" / "ledger.sqlite", tmp_path / "damaged")
        (tmp_path / "strange" / "ledger.sqlite").rmdir()
        (tmp_path / "whole").rename(tmp_path / "strange" / "ledger.sqlite")
        (tmp_path / "new" / "lock").rmdir()
        for name in said:
            assert sent(url, "GET", f"{name}/status").status_code == 200, name
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok"}
        assert service.failed == []


@pytest.mark.parametrize("what", ["held", "damaged"])
def test_where_there_is_no_other_it_does_not_start(tmp_path, what):
    begun(tmp_path, "default")
    if what == "damaged":
        flip(tmp_path / "default" / "ledger.sqlite")
    holder = es.Bandit.open(tmp_path / "default") if what == "held" else None

    async def start():
        service = Service(tmp_path)
        try:
            await service.start()
        finally:
            await service.stop()

    with pytest.raises(
        Damaged if what == "damaged" else OSError, match=what if holder is None else "has it open"
    ):
        asyncio.run(start())
    if holder is not None:
        holder.close()


@pytest.mark.filterwarnings("ignore:could not save a snapshot")
def test_one_that_cannot_be_opened_is_not_tried_with_every_request(tmp_path, monkeypatch):
    """Not even `default`, where there are others."""
    monkeypatch.setattr(services, "RETRY", 600.0)
    begun(tmp_path, "default", "held", "other")
    held = [es.Bandit.open(tmp_path / name) for name in ("default", "held")]
    with running(tmp_path) as (url, service):
        tried, engine = [], service._engine
        monkeypatch.setattr(
            service, "_engine", lambda *given: tried.append(given[0]) or engine(*given)
        )
        for name, status in {"default": 503, "held": 503, "other": 200}.items():
            for _ in range(3):
                assert sent(url, "GET", f"{name}/status").status_code == status
        assert tried == ["held", "other"]
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok", "unavailable": 2}
        shutil.rmtree(tmp_path / "held")
        assert sent(url, "GET", "held/status").status_code == 404
        assert service.failed == ["default"]
    for bandit in held:
        bandit.close()
