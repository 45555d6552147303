"""Keys: kept as hashes, limited by scope and bandit, and gone within a second of being revoked."""

import hashlib
import sqlite3
import stat
import time
from collections import defaultdict

import httpx
import pytest
from services import running
from typer.testing import CliRunner

from ensemble_sampling.cli import app
from ensemble_sampling.serve.http.admission import Access
from ensemble_sampling.serve.http.api import OPERATIONS
from ensemble_sampling.serve.http.app import build
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.service import Service
from ensemble_sampling.serve.storage import Storage

runner = CliRunner()
OFFER = {"actions": {"a": {"x": "1"}, "b": {"x": "2"}}}


def called(*arguments):
    return runner.invoke(app, ["keys", *map(str, arguments)])


def created(place, *arguments):
    found = called("create", place, *arguments)
    assert found.exit_code == 0, found.output
    return found.stdout.strip()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    place = tmp_path_factory.mktemp("keyed")
    keys = {scope: created(place, "--scope", scope) for scope in ("decide", "learn", "read")}
    keys["admin"] = created(place, "--scope", "admin")
    keys["shop"] = created(place, "--scope", "admin", "--bandit", "shop")
    with running(place, bandits=["shop", "other"]) as (url, _), httpx.Client(base_url=url) as http:
        yield place, http, keys


def bearer(key):
    return {"Authorization": f"Bearer {key}".encode("latin-1")} if key is not None else {}


def asked(http, operation, bandit, key):
    parts = defaultdict(lambda: "nobody", name=bandit, decision="0-0")
    path = operation.path.format_map(parts)
    return http.request(operation.method, path, headers=bearer(key), content=b"{}", timeout=60)


CLOSED = [each for each in OPERATIONS if each.needs is not None]


@pytest.mark.parametrize("operation", CLOSED, ids=lambda o: f"{o.method} {o.path}")
def test_every_operation_asks_for_a_key_its_scope_and_its_bandit(served, operation):
    _, http, keys = served
    for key in (None, "x", "es_wrong", keys["read"][:-1], keys["read"] + "x", "\u00e9"):
        found = asked(http, operation, "default", key)
        assert found.status_code == 401, (key, found.text)
        assert found.headers["www-authenticate"] == "Bearer"
        assert found.json()["error"]["code"] == "unauthorized"
    for scope in ("decide", "learn", "read"):
        found = asked(http, operation, "default", keys[scope])
        assert (found.status_code == 403) == (scope != operation.needs), found.text
        assert found.status_code != 401
        if found.status_code == 403:
            assert repr(operation.needs) in found.json()["error"]["message"]
    assert asked(http, operation, "default", keys["admin"]).status_code not in (401, 403)
    # With a key for one, another that is there is answered for as one that is not.
    there = asked(http, operation, "other", keys["shop"])
    absent = asked(http, operation, "absent", keys["shop"])
    if "{name}" in operation.path:
        assert there.status_code == absent.status_code == 404
        assert there.text.replace("other", "") == absent.text.replace("absent", "")
    else:
        assert "other" not in there.text
        assert "default" not in there.text
    assert asked(http, operation, "shop", keys["shop"]).status_code not in (401, 403)


@pytest.mark.parametrize("of", ["", "/bandits/other", "/bandits/absent"])
@pytest.mark.parametrize(
    ("what", "needs"),
    [
        ("POST rank", "decide"),
        ("POST multislot/rank", "decide"),
        ("POST events/x/reward", "learn"),
        ("POST events/x/activate", "learn"),
        ("POST multislot/events/x/reward", "learn"),
        ("GET configurations/service", "read"),
        ("PUT configurations/service", "admin"),
        ("GET model", "read"),
        ("PUT evaluations/x", "admin"),
    ],
)
def test_personalizer_s_paths_ask_for_them_too(served, of, what, needs):
    """Those without a name are the bandit `default`'s."""
    _, http, keys = served
    method, _, path = what.partition(" ")
    path = f"{of}/personalizer/v1.0/{path}"
    assert http.request(method, path).status_code == 401
    for who in ("decide", "learn", "read"):
        found = http.request(method, path, headers={"Ocp-Apim-Subscription-Key": keys[who]})
        assert (found.status_code == 403) == (who != needs)
    found = http.request(method, path, headers={"Ocp-Apim-Subscription-Key": keys["shop"]})
    assert found.status_code == 404


def test_a_list_of_bandits_has_those_that_the_key_is_for(served):
    _, http, keys = served
    found = {who: http.get("/v1/bandits", headers=bearer(keys[who])) for who in ("read", "shop")}
    assert found["read"].json()["bandits"] == ["default", "other", "shop"]
    assert found["shop"].json()["bandits"] == ["shop"]


def test_a_subscription_key_is_a_key_and_some_pages_need_none(served):
    _, http, keys = served
    headers = {"Ocp-Apim-Subscription-Key": keys["decide"]}
    found = http.post("/v1/bandits/default/choose", headers=headers, json=OFFER, timeout=60)
    assert found.status_code == 200
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert http.get(path).status_code == 200


def test_keys_made_and_revoked_hold_within_a_second(served):
    place, http, _ = served
    key = created(place, "--scope", "read", "--note", "short-lived")
    time.sleep(1.0)
    assert http.get("/v1/bandits", headers=bearer(key)).status_code == 200
    id = next(one.id for one in Keys(Storage.of(place)).all() if one.note == "short-lived")
    assert called("revoke", place, id).stdout == f"key {id} is revoked\n"
    time.sleep(1.0)
    assert http.get("/v1/bandits", headers=bearer(key)).status_code == 401
    assert called("revoke", place, id).stdout == f"key {id} was revoked already\n"


def test_every_operation_needs_a_key_but_for_pages_without_data(tmp_path):
    """Also those beside the own API."""
    public = {each.path for each in build(Service(tmp_path)).operations if each.needs is None}
    assert {path for path in public if not path.startswith("/dashboard")} == {
        "/", "/openapi.json", "/healthz", "/readyz",
    }  # fmt: skip


def test_the_key_is_printed_once_and_only_its_hash_is_kept(tmp_path):
    secret = created(tmp_path, "--scope", "decide", "--scope", "learn", "--note", "web")
    assert secret.startswith("es_")
    assert len(secret) == 3 + 43  # 256 bits
    file = tmp_path / "service.sqlite"
    assert secret.encode() not in file.read_bytes()
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = called("list", tmp_path).stdout
    assert secret not in listed
    assert "decide,learn" in listed
    assert "web" in listed
    assert created(tmp_path, "--scope", "decide") != secret


def test_a_key_expires(tmp_path):
    keys = Keys(Storage.of(tmp_path))
    secret, _ = keys.create(["read"], days=1.0)
    ring = Access(Storage.of(tmp_path), local=True, rate=0.0)
    assert ring.open
    ring.refresh()
    assert not ring.open
    found = ring.find(secret)
    assert found is not None
    assert found.expires == pytest.approx(time.time() + 86400, abs=60)
    with sqlite3.connect(tmp_path / "service.sqlite") as database:
        database.execute("UPDATE keys SET expires = ?", (time.time() - 1,))
    ring.refresh()
    assert ring.find(secret) is None
    assert "expired" in called("list", tmp_path).stdout


def test_a_place_whose_keys_are_all_revoked_does_not_open_again(tmp_path):
    keys = Keys(Storage.of(tmp_path))
    _, key = keys.create(["read"])
    keys.revoke(key.id)
    access = Service(tmp_path).access
    access.refresh()
    assert not access.open
    (tmp_path / "service.sqlite").unlink()  # nor does one that runs, when they are lost
    access.refresh()
    assert not access.open


def test_without_keys_a_service_is_open_to_this_machine_alone(tmp_path):
    assert Service(tmp_path).access.open
    assert not Service(tmp_path, local=False).access.open
    found = runner.invoke(app, ["serve", str(tmp_path), "--host", "0.0.0.0", "--port", "0"])
    assert found.exit_code == 2
    assert "without keys only this machine is served" in found.stderr
    assert "keys create" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "p", "--scope", "fly"], "scopes are decide, learn, read, admin; got 'fly'"),
        (["create", "p", "--scope", "read", "--expires", "0"], "more than 0 days, got 0.0"),
        (["create", "p", "--scope", "read", "--bandit", "No"], "got 'No'"),
        (["create", "mysql://x", "--scope", "read"], "got mysql://..."),
        (["revoke", "p", "abc"], "there is no key 'abc'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = called(*arguments)
    assert found.exit_code == 2
    assert says in found.stderr
    assert "Traceback" not in found.output


def test_the_password_of_a_database_is_not_shown():
    place = Storage.of("postgresql://me:secret@db/app")
    assert str(place) == "postgresql://db/app"
    assert place.ledger("shop") == "postgresql://me:secret@db/app#shop"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@[::1/db",  # libpq's own words repeat it
        "postgresql://me:hunter2%zz@127.0.0.1/db",
        "postgresql://me:hunter2@hunter2@127.0.0.1:1/db",
        "postgresql://me:hunter2/@127.0.0.1:1/db",
        "postgresql://me:hunter2#@127.0.0.1:1/db",
        "postgresql://me:hunter2@127.0.0.1:port/db",
        "postgresql://127.0.0.1:1/db?password=hunter2",
        "postgresql:me:hunter2@127.0.0.1/db",
        "mysql://me:hunter2@127.0.0.1/db",
    ],
)
def test_nor_that_of_a_url_that_is_wrong(url):
    pytest.importorskip("psycopg")
    for arguments in (["keys", "list", url], ["inspect", url], ["serve", url, "--port", "0"]):
        if not url.startswith("postgresql:me"):  # to others than a service it is a folder's name
            found = runner.invoke(app, arguments)
            assert found.exit_code != 0
            assert "hunter2" not in found.output + found.stderr
    with pytest.raises(ValueError, match=r"expected|leave out|127") as told:
        raise ValueError(str(Storage.of(url)))
    assert "hunter2" not in str(told.value)
