"""A bandit that cannot be opened keeps no other from being served, and says what is the matter."""

import asyncio
import shutil

import httpx
import pytest
from services import running

import ensemble_sampling as es
from ensemble_sampling.files import Damaged
from ensemble_sampling.serve import service as module
from ensemble_sampling.serve.service import Service


def begun(place, *names):
    """Folders of bandits that have decided once."""
    for name in names:
        with es.Bandit.open(place / name, actions=["a", "b"]) as bandit:
            bandit.choose()


def asked(url, name):
    found = httpx.get(f"{url}/v1/bandits/{name}/status", timeout=60)
    return found.status_code, found.text


def flip(path):
    """Damage what the ledger says of itself."""
    content = path.read_bytes()
    assert b"precision" in content
    path.write_bytes(content.replace(b"precision", b"precisiom"))


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(module, "RETRY", 0.0)


def test_those_that_are_held_damaged_or_unreadable_are_said_and_the_others_served(
    tmp_path, at_once, caplog
):
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
        assert asked(url, "default")[0] == 200
        said = {name: asked(url, name) for name in service.failed}
        assert sorted(said) == ["damaged", "held", "new", "strange"]
        assert {status for status, _ in said.values()} == {503}
        assert "has it open" in said["held"][1]
        assert "its ledger is damaged; restore a backup" in said["damaged"][1]
        assert "cannot be read or written" in said["strange"][1]
        assert "cannot be read or written" in said["new"][1]
        assert not any(str(tmp_path) in text for _, text in said.values())
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
            assert asked(url, name)[0] == 200, name
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok"}
        assert service.failed == []


def test_it_starts_without_its_default_where_there_are_others(tmp_path, at_once):
    begun(tmp_path, "default", "other")
    with es.Bandit.open(tmp_path / "default"), running(tmp_path) as (url, _):
        assert asked(url, "default")[0] == 503
        assert asked(url, "other")[0] == 200
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok", "unavailable": 1}


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
    monkeypatch.setattr(module, "RETRY", 600.0)
    begun(tmp_path, "default", "other")
    with es.Bandit.open(tmp_path / "other"), running(tmp_path) as (url, service):
        tried, engine = [], service._engine
        monkeypatch.setattr(
            service, "_engine", lambda *given: tried.append(given) or engine(*given)
        )
        assert [asked(url, "other")[0] for _ in range(3)] == [503] * 3
        assert len(tried) == 1
        shutil.rmtree(tmp_path / "other")
        assert asked(url, "other")[0] == 404
        assert service.failed == []
