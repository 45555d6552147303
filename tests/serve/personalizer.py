"""A running service, and the published clients of Personalizer."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import requests
import services
from azure.ai.personalizer import PersonalizerAdministrationClient, PersonalizerClient
from azure.cognitiveservices.personalizer import PersonalizerClient as FirstClient
from azure.core.credentials import AzureKeyCredential
from msgspec import structs
from msrest.authentication import CognitiveServicesCredentials

from ensemble_sampling.serve import admin as administration
from ensemble_sampling.serve.engine import Engine
from ensemble_sampling.serve.http.keys import Keys
from ensemble_sampling.serve.storage import Storage
from ensemble_sampling.serve.types import Choose, Decision, Settings

ACTIONS = [
    {"id": "pasta", "features": [{"taste": "salty"}, {"nutrition": {"calories": 800}}]},
    {"id": "ice cream", "features": [{"taste": "sweet"}, {"nutrition": {"calories": 300}}]},
    {"id": "salad", "features": [{"taste": "salty"}, {"nutrition": {"calories": 200}}]},
]
CONTEXT = [{"time": "morning"}, {"user": {"device": "phone", "vector": [0.5, 1.0]}}]


class Running(NamedTuple):
    """Where it listens, its key, the engine of its bandit, and what that was asked and made."""

    url: str
    key: str
    engine: Engine
    asked: list[Choose]
    made: dict[tuple[str | None, str], Decision]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    agents, place = folder / "agents.py", folder / "service"
    agents.write_text(
        "import ensemble_sampling as es\n"
        "AGENTS = dict.fromkeys(('default', 'twin'), {'floor': 0.3})\n"
        "AGENTS |= {'other': None, 'empty': None}\n"
        "CANDIDATES = {'rival': es.EnsembleSampling(es.Linear(256), members=4)}\n"
    )
    key, _ = Keys(Storage.of(place)).create(["admin"])
    with services.running(place, agents=agents) as (url, service):
        engine, asked, made = service.engines["default"], [], {}
        decide = engine.decide

        async def recording(choices: Sequence[Choose]) -> list[Decision]:
            asked.extend(choices)
            answers = await decide(choices)
            made.update({(one.event, one.slot): one for one in answers})
            return answers

        vars(engine)["decide"] = recording
        yield Running(url, key, engine, asked, made)


@pytest.fixture
def running(served) -> Running:
    configure(served)
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


def configure(running: Running, **settings: Any) -> None:
    administration.configure(running.engine.replicas, structs.asdict(Settings(**settings)))


def asked(**more) -> dict[str, Any]:
    return {"contextFeatures": CONTEXT, "actions": ACTIONS, **more}


def decisions(running: Running) -> int:
    return running.engine.reader.summary()["decisions"]


def outcome(running: Running, event: str, slot: str = "") -> Any:
    log = running.engine.reader.page(0, decisions(running)).columns
    return dict(zip(log["id"], log["outcome"], strict=True))[running.made[event, slot].id]


def send(running: Running, method: str, path: str, **more: Any) -> requests.Response:
    headers = {"Ocp-Apim-Subscription-Key": running.key, **more.pop("headers", {})}
    return requests.request(method, f"{running.url}/{path}", headers=headers, timeout=30, **more)
