"""The client: typed answers, and retries that count nothing twice."""

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from services import running

import ensemble_sampling as es
from ensemble_sampling import client as module
from ensemble_sampling.serve.http.api import OPERATIONS

OFFER = {"a": {"x": "1"}, "b": {"x": "2"}}
MADE = {
    "id": "0-0", "index": 0, "action": "a", "probability": 1.0, "probabilities": [1.0],
    "mean": None, "spread": None,
}  # fmt: skip

CANDIDATES = """
import ensemble_sampling as es
CANDIDATES = {name: es.EnsembleSampling(es.Linear(256), n) for name, n in (("few", 2), ("more", 4))}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "agents.py").write_text(CANDIDATES)
    with running(folder / "place", agents=folder / "agents.py") as (url, _):
        yield url


@pytest.fixture
def fast(monkeypatch):
    """No waiting between attempts; how long it would have been."""
    waits = []
    monkeypatch.setattr(module, "sleep", waits.append)
    return waits


def test_decisions_outcomes_and_the_rest(url):
    with es.Client(url, timeout=60) as client:
        client.predict(OFFER, context={"device": "phone"})  # compiles, else chance decides at first
        made = client.choose(OFFER, context={"device": "phone"})
        assert isinstance(made, es.Decision)
        assert made.action in OFFER
        assert made.probability == made.probabilities[made.index]
        values = client.predict(OFFER).values  # the first decisions by chance have none
        assert values is not None
        assert values.mean.shape == (2,)
        assert client.learn(made, 1.0)  # the decision or its id
        assert not client.learn(made.id, 1.0)
        assert client.correct(made.id, np.float32(0.5))
        several = client.choose_many([{"actions": OFFER, "event": "e1"}, {"actions": OFFER}])
        assert client.choose(OFFER, event="e1") == several[0]
        assert client.learn_many([("e1", 1.0), (several[1].id, 0.0)]) == [True, True]
        other = client.choose({"a": np.array([1.0, 2.0]), "b": np.array([0.0, 1.0])})
        assert client.add(other.id, 2.0, "order")
        assert not client.add(other.id, 2.0, "order")
        assert client.add(other.id, 3.0)
        client.choose(OFFER)
        assert client.expire(0.0, 0.0) == 1
        assert client.predict(OFFER).probabilities.sum() == pytest.approx(1.0, abs=1e-5)
        summary = client.summary()
        assert (summary.decisions, summary.outcomes, summary.expired) == (5, 5, 1)
        log = client.log()
        assert len(log["id"]) == 5
        assert log["outcome"][3] == 5.0
        assert client.log(2, 2)["id"] == log["id"][2:4]
        assert client.log(2, 0) == {}


def test_the_same_by_asyncio(url):
    async def talk():
        async with es.AsyncClient(url, timeout=60) as client:
            before = len((await client.log())["id"])
            made = await asyncio.gather(*(client.choose(OFFER) for _ in range(3)))
            assert len({one.id for one in made}) == 3
            assert await client.learn(made[0].id, 1.0)
            assert await client.learn_many([(made[1].id, 1.0)]) == [True]
            assert await client.correct(made[0].id, 0.5)
            assert await client.add(made[2].id, 1.0)
            assert len(await client.choose_many([{"actions": OFFER}] * 2)) == 2
            assert await client.expire(0.0, 0.0) == 2
            assert (await client.predict(OFFER)).values is not None
            assert (await client.summary()).decisions == before + 5
            assert len((await client.log(0, 3))["id"]) == 3

    asyncio.run(talk())


def test_what_was_said_of_a_subject_can_be_erased(url):
    with es.Client(url, timeout=60) as client:
        about = client.choose(OFFER, context={"device": "phone"}, subject="ann")
        client.choose(OFFER, subject="bob")
        client.choose_many([{"actions": OFFER, "subject": "ann"}, {"actions": OFFER}])
        client.learn(about.id, 1.0)
        assert client.erase("ann", keep=True) == 2
        assert client.erase("ann") == 0
        log = client.log()
        assert about.id not in log["id"]
        assert "bob" in log["subject"]
        assert "ann" not in log["subject"]

    async def talk():
        async with es.AsyncClient(url, timeout=60) as client:
            await client.choose(OFFER, subject="eve")
            assert await client.erase("eve") == 1

    asyncio.run(talk())


def test_a_decision_is_explained(url):
    with es.Client(url, timeout=60) as client:
        made = client.choose(OFFER, context={"device": "phone"})
        client.learn(made.id, 1.0)
        found = client.explain(made.id, top=2)
        assert (found.id, found.action, found.context) == (
            made.id,
            made.action,
            {"device": "phone"},
        )
        assert set(found.actions) == {found.action, found.next, *found.actions}
        assert len(found.reasons) <= 2
        assert all(one.side in ("context", "action") for one in found.reasons)
        with pytest.raises(es.ServiceError, match="404"):
            client.explain("nothing")
        with pytest.raises(ValueError, match="top"):
            client.explain(made.id, top=0)


def test_mistakes_are_said_and_not_tried_again(url, fast):
    with es.Client(url, timeout=60) as client:
        with pytest.raises(es.ServiceError, match="404, there is no decision 'nothing'") as found:
            client.learn("nothing", 1.0)
        assert (found.value.code, found.value.status) == ("unknown", 404)
        with pytest.raises(ValueError, match="must be finite"):
            client.learn("x", float("nan"))
        with pytest.raises(TypeError, match="a decision is a dictionary"):
            client.choose_many([OFFER.values()])  # pyright: ignore[reportArgumentType]
    with es.Client(url, bandit="nobody") as client, pytest.raises(es.ServiceError, match="nobody"):
        client.summary()
    with pytest.raises(ValueError, match="http://"):
        es.Client("localhost:8000")
    assert fast == []


LOOP: dict[str, object] = {"x": "1"}
LOOP["self"] = LOOP
WRONG = [
    (lambda: es.Client("http://localhost", 7), TypeError, "key must be text or None, got int"),  # pyright: ignore[reportArgumentType]
    (lambda: es.Client("http://localhost", b"es_1"), TypeError, "key must be text"),  # pyright: ignore[reportArgumentType]
    (lambda: es.AsyncClient("http://localhost", ["es_1"]), TypeError, "key must be text"),  # pyright: ignore[reportArgumentType]
    (lambda: es.Client("http://localhost", "es_1\n"), ValueError, "as `ensemble-sampling keys"),
    (lambda: es.Client("http://localhost", "es_é"), ValueError, "as `ensemble-sampling keys"),
    (lambda: es.Client("http://localhost", ""), ValueError, "as `ensemble-sampling keys"),
    (lambda: es.Client("http://localhost", None, ""), TypeError, "bandit must be text"),
    (lambda: es.Client("http://localhost", None, 7), TypeError, "bandit must be text"),  # pyright: ignore[reportArgumentType]
    (lambda: es.Client("http://localhost").add("0-0", 1.0, ""), TypeError, "ref must be text"),
    (lambda: es.Client("http://localhost").add("0-0", 1.0, "\udcff"), ValueError, "UTF-8"),
    (lambda: es.Client("http://localhost").choose(OFFER, event=""), TypeError, "event must be"),
    (lambda: es.Client("http://localhost").choose(OFFER, subject=""), TypeError, "subject must be"),
    (lambda: es.Client("http://localhost").erase(7), TypeError, "subject must be text"),  # pyright: ignore[reportArgumentType]
    (lambda: es.Client("http://localhost").erase("ann", keep=1), TypeError, "keep must be"),  # pyright: ignore[reportArgumentType]
    (lambda: es.Client("http://localhost").choose([LOOP]), ValueError, "not contain itself"),
    (lambda: es.Client("http://localhost").learn_many(["0-0"]), TypeError, "pairs (id, outcome)"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("call", "error", "word"), WRONG)
def test_what_cannot_be_sent_is_refused_before_anything_is(call, error, word):
    with pytest.raises(error) as raised:
        call()
    assert word in str(raised.value)
    assert "es_" not in str(raised.value)  # a key is secret


class Lossy(httpx.BaseTransport):
    """Hands requests on, but loses the answers to some of them, or answers itself."""

    def __init__(self, fates, inner=None):
        self.fates, self.inner, self.sent = list(fates), inner or httpx.HTTPTransport(), []

    def handle_request(self, request):
        self.sent.append(json.loads(request.read() or b"null"))
        fate = self.fates.pop(0) if self.fates else "well"
        if fate == "before":
            raise httpx.ConnectError("refused")
        if isinstance(fate, int):
            return httpx.Response(fate, headers={"Retry-After": "2"}, json={})
        response = self.inner.handle_request(request)
        if fate == "after":
            response.read()
            raise httpx.ReadTimeout("the answer was lost")
        return response


@pytest.mark.parametrize("fates", [["after"], ["before", "after", 503], [429, "after", 408]])
def test_what_is_sent_again_is_not_counted_again(url, fast, fates):
    def lossy():
        return es.Client(url, timeout=60, transport=Lossy(fates))

    with es.Client(url, timeout=60) as plain:
        before = plain.summary()
        with lossy() as client:
            made = client.choose(OFFER)
        with lossy() as client:
            several = client.choose_many([{"actions": OFFER}] * 2)
        with lossy() as client:
            client.learn(made.id, 1.0)
        with lossy() as client:
            client.add(several[0].id, 2.0)
        with lossy() as client:
            client.add(several[0].id, 2.0)
        after = plain.summary()
        assert after.decisions - before.decisions == 3
        assert after.outcomes - before.outcomes == 2
        log = plain.log(before.decisions)
        assert log["id"] == [made.id, *(one.id for one in several)]
        assert log["outcome"] == [1.0, 4.0, None]
    assert len(fast) == 5 * len(fates)


def test_waits_grow_and_follow_what_the_service_says(fast):
    well = httpx.MockTransport(lambda request: httpx.Response(200, json=MADE))
    lossy = Lossy(["before"] * 4 + [429], well)
    with es.Client("http://localhost", transport=lossy) as client:
        assert client.choose(OFFER).action == "a"
    for wait, least in zip(fast, (0.05, 0.1, 0.2, 0.4, 2.0), strict=True):
        assert 0.75 * least <= wait <= 1.25 * least
    assert len({body["event"] for body in lossy.sent}) == 1


def test_it_gives_up_in_the_end(fast):
    with (
        es.Client("http://localhost", retries=2, transport=Lossy(["before"] * 9)) as client,
        pytest.raises(es.ServiceError, match="tried 3 times: refused") as found,
    ):
        client.choose(OFFER)
    assert found.value.status is None
    with (
        es.Client("http://localhost", retries=1, transport=Lossy([503] * 9)) as client,
        pytest.raises(es.ServiceError, match="503"),
    ):
        client.choose(OFFER)


def test_the_key_is_sent_as_a_bearer_s_and_not_shown():
    seen = []

    def answer(request):
        seen.append(request.headers["authorization"])
        return httpx.Response(200, json=MADE)

    client = es.Client("http://localhost", "es_secret", transport=httpx.MockTransport(answer))
    client.choose()
    assert seen == ["Bearer es_secret"]
    assert "es_secret" not in repr(client)


MANY = [{"actions": OFFER, "event": f"m{n}"} for n in range(9)]
OFFERED = {"event": "e1", "context": {"device": "phone"}}
DID: list[tuple[str, tuple[Any, ...], dict[str, Any], Callable[[Any], bool]]] = [
    # In their order: a method, its arguments, and what is true of what it returns.
    ("create", (), {"floor": 0.1}, lambda found: found["candidates"] == ["few", "more"]),
    ("create", (), {}, lambda found: found["settings"]["holdback"] == 0.0),
    ("bandits", (), {}, lambda found: "default" in found and len(found) >= 2),
    ("key", (), {}, lambda found: found["bandit"] is None and "admin" in found["scopes"]),
    ("choose", (OFFER,), OFFERED, lambda found: found.action in OFFER),
    ("observe", ("e1", {"margin": 2.0}), {}, lambda found: found is True),
    ("learn", ("e1", 1.0), {}, lambda found: found is True),
    ("candidates", (), {}, lambda found: found == ["few", "more"]),
    ("shadow", ("few",), {}, lambda found: found is None),
    ("shadow", ("more",), {}, lambda found: found is None),
    ("dismiss", ("few",), {}, lambda found: found is None),
    ("promote", ("more",), {}, lambda found: found is None),
    ("configure", (), {"holdback": 0.2}, lambda found: found["holdback"] == 0.2),
    ("settings", (), {}, lambda found: found["holdback"] == 0.2),
    ("changes", (), {}, lambda found: [one.name for one in found] == CHANGED),
    ("status", (), {}, lambda found: found["holdback"] == 0.2 and "health" in found),
    ("history", (10,), {}, lambda found: found[0]["decisions"] == 1),
    ("history", (), {"since": datetime(2000, 1, 1)}, lambda found: len(found) == 1),
    ("recent", (5,), {}, lambda found: [one["outcome"] for one in found] == [1.0]),
    ("choose_many", (MANY,), {}, lambda found: len(found) == 9),
    ("learn_many", ([(one["event"], 0.5) for one in MANY],), {}, lambda found: found == [True] * 9),
    ("evaluate", (["few"],), {}, lambda found: {*found["policy"]} == {"few"}),
    ("lift", (), {"since": timedelta(days=1)}, lambda found: found.decisions == 9),
    ("metrics", (), {"since": timedelta(days=1)}, lambda found: found[0].mean.value == 2.0),
    ("segments", ("device",), {"since": 0}, lambda found: found.parts[0].name == "phone"),
    ("resume", (), {}, lambda found: found is False),
]
CHANGED = ["begun", *["shadows"] * 4, "control"]


@pytest.mark.parametrize("kind", [es.Client, es.AsyncClient])
def test_a_client_does_all_that_the_service_does(url, kind):
    client = kind(url, bandit=f"whole-{kind.__name__.lower()}", timeout=60)
    with asyncio.Runner() as runner:

        def done(method, *given, **named):
            found = getattr(client, method)(*given, **named)
            return found if kind is es.Client else runner.run(found)

        for method, given, named, right in DID:
            found = done(method, *given, **named)
            assert right(found), (method, found)
        done("close")


def test_every_operation_of_the_service_has_its_method():
    others = {"ready", "healthy", "measures"}  # for what watches processes
    named = {"choose", "judge", "observed", "about", "put_settings", "metric", "outcome", "shadows"}
    methods = {name for name in vars(module._Requests) if not name.startswith("_")}
    assert {each.run.__name__ for each in OPERATIONS} - others - named <= methods


def test_numbers_and_names_are_checked_before_anything_is_sent():
    with es.Client("http://nowhere", retries=0) as client:
        for call in (
            lambda: client.recent(0),
            lambda: client.history(-1),
            lambda: client.shadow(""),
            lambda: client.promote(""),
            lambda: client.dismiss(""),
            lambda: client.lift(since=-1),
        ):
            with pytest.raises((TypeError, ValueError)):
                call()
