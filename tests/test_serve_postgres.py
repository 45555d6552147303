"""The service on PostgreSQL: its bandits, keys and what is said when the database is away."""

import time

import httpx
import pytest
import servers
from serving import running

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
