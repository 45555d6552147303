"""A running service, and the published clients of Personalizer."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import requests
import uvicorn
from azure.ai.personalizer import PersonalizerAdministrationClient, PersonalizerClient
from azure.cognitiveservices.personalizer import PersonalizerClient as FirstClient
from azure.core.credentials import AzureKeyCredential
from msrest.authentication import CognitiveServicesCredentials

from ensemble_sampling.serve.engine import Choice, ChoiceRequest, Engine, Settings
from ensemble_sampling.serve.http.app import build
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.service import Service

ACTIONS = [
    {"id": "pasta", "features": [{"taste": "salty"}, {"nutrition": {"calories": 800}}]},
    {"id": "ice cream", "features": [{"taste": "sweet"}, {"nutrition": {"calories": 300}}]},
    {"id": "salad", "features": [{"taste": "salty"}, {"nutrition": {"calories": 200}}]},
]
CONTEXT = [{"time": "morning"}, {"user": {"device": "phone", "vector": [0.5, 1.0]}}]


class Running(NamedTuple):
    """Where it listens, its key, one that may only decide, the engine of its bandit, and what that
    was asked and made."""

    url: str
    key: str
    narrow: str
    engine: Engine
    asked: list[ChoiceRequest]
    made: dict[tuple[str | None, str], Choice]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("served")
    agents = place / "agents.py"
    agents.write_text("AGENTS = {'default': {'floor': 0.3}, 'other': None}")
    service = Service(place / "service", agents=agents)
    keys = Keys(service.storage)
    key, narrow = (keys.create(of)[0] for of in (["decide", "learn", "read", "admin"], ["decide"]))
    config = uvicorn.Config(build(service), port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and service.ready):
        assert service.broken is None
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    engine, asked, made = service.engines["default"], [], {}
    decide = engine.decide

    async def recording(asks: Sequence[ChoiceRequest]) -> list[Choice]:
        asked.extend(asks)
        answers = await decide(asks)
        made.update({(one.event, one.slot): one for one in answers})
        return answers

    vars(engine)["decide"] = recording
    yield Running(f"http://127.0.0.1:{port}", key, narrow, engine, asked, made)
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def running(served) -> Running:
    served.engine.configure(Settings())
    served.asked.clear()
    return served


@pytest.fixture
def first(running) -> FirstClient:
    return FirstClient(running.url, CognitiveServicesCredentials(running.key))


@pytest.fixture
def client(running) -> Iterator[PersonalizerClient]:
    with PersonalizerClient(running.url, AzureKeyCredential(running.key), retry_total=0) as client:
        yield client


@pytest.fixture
def admin(running) -> Iterator[PersonalizerAdministrationClient]:
    with PersonalizerAdministrationClient(
        running.url, AzureKeyCredential(running.key), retry_total=0
    ) as client:
        yield client


def asked(**more) -> dict[str, Any]:
    return {"contextFeatures": CONTEXT, "actions": ACTIONS, **more}


def decisions(running: Running) -> int:
    return running.engine.summary()["decisions"]


def outcome(running: Running, event: str, slot: str = "") -> Any:
    log = running.engine.page(0, decisions(running))[0]
    return dict(zip(log["id"], log["outcome"], strict=True))[running.made[event, slot].id]


def send(
    running: Running, method: str, path: str, key: str | None = None, **more: Any
) -> requests.Response:
    headers = {"Ocp-Apim-Subscription-Key": key or running.key, **more.pop("headers", {})}
    return requests.request(method, f"{running.url}/{path}", headers=headers, timeout=30, **more)
