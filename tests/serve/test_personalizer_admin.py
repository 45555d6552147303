"""Personalizer's administration: configuration, policy, model, logs and evaluations."""
# ruff: noqa: F401, F811 (fixtures are imported, and named again by tests)

import datetime
import io
import time
from typing import Any

import isodate
import numpy as np
import pytest
import requests
from azure.ai.personalizer import PersonalizerAdministrationClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from personalizer import admin, asked, client, decisions, outcome, running, send, served

from ensemble_sampling.serve.engine import Refused, Settings
from ensemble_sampling.serve.personalizer.settings import duration


def error(caught: Any) -> Any:
    return caught.value.error


@pytest.fixture
def stage(running, monkeypatch) -> dict[str, Any]:
    """Who is in charge and what was learned, told by an engine that has one candidate."""
    now: dict[str, Any] = {"charge": "default", "state": b"learned"}

    def take(content: bytes) -> None:
        if not content.startswith(b"learned"):
            raise Refused("invalid", "not a state")
        now["state"] = content

    def sweet(offer: Any) -> list[float]:
        return [0.0, 1.0, 0.0]

    for name, does in {
        "candidates": lambda: ["sweet"],
        "candidate": {"sweet": sweet}.__getitem__,
        "in_charge": lambda: (now["charge"], "an agent"),
        "shadow": lambda name: None,
        "promote": lambda name: now.update(charge=name),
        "export_state": lambda: now["state"],
        "import_state": take,
    }.items():
        monkeypatch.setattr(running.engine, name, does)
    return now


def test_the_configuration_is_what_the_bandit_is_served_by(admin, running):
    config = admin.get_service_configuration()
    assert (config["rewardWaitTime"], config["learningMode"]) == ("PT0S", "Online")
    config |= {
        "rewardWaitTime": datetime.timedelta(minutes=10),
        "defaultReward": -0.5,
        "rewardAggregation": "sum",
        "explorationPercentage": 0.2,
        "learningMode": "Apprentice",
    }
    answered = admin.update_service_configuration(config)
    assert running.engine.settings == Settings(600.0, -0.5, "sum", "apprentice", 0.2)
    assert answered == config | {"rewardWaitTime": "PT10M"} == admin.get_service_configuration()
    back = answered | {"rewardWaitTime": "PT0S", "learningMode": "Online"}
    back |= {"rewardAggregation": "earliest"}
    admin.update_service_configuration(back)
    assert running.engine.settings == Settings(None, -0.5, "first", "online", 0.2)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rewardAggregation": "mean"}, "InvalidServiceConfiguration"),
        ({"learningMode": "Offline"}, "InvalidServiceConfiguration"),
        ({"explorationPercentage": 1.5}, "InvalidServiceConfiguration"),
        ({"rewardWaitTime": "soon"}, "InvalidServiceConfiguration"),
        ({"rewardWaitTime": "-PT5M"}, "InvalidServiceConfiguration"),
        ({"logRetentionDays": 90}, "InvalidLogRetentionDays"),
        ({"isAutoOptimizationEnabled": True}, "InvalidServiceConfiguration"),
        ({"logMirrorEnabled": True}, "InvalidServiceConfiguration"),
    ],
)
def test_what_cannot_be_configured_is_refused(admin, running, change, code):
    config = admin.get_service_configuration()
    with pytest.raises(HttpResponseError) as caught:
        admin.update_service_configuration(config | change)
    assert error(caught).code == code
    assert next(iter(change)) in f"{error(caught).target}"
    assert running.engine.settings == Settings()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "PT0S"),
        (600, "PT10M"),
        (86400, "P1D"),
        (90061.5, "P1DT1H1M1.5S"),
        (0.25, "PT0.25S"),
        (172800.0, "P2D"),
    ],
)
def test_seconds_are_durations(seconds, text):
    assert duration(seconds) == text
    assert isodate.parse_duration(text).total_seconds() == seconds


def test_a_candidate_is_put_in_charge_by_its_name(admin, stage):
    assert admin.get_policy() == {"name": "default", "arguments": "an agent"}
    vw = {"name": "mine", "arguments": "--cb_explore_adf --epsilon 0.2"}
    with pytest.raises(HttpResponseError) as caught:
        admin.update_policy(vw)
    assert error(caught).code == "InvalidPolicyConfiguration"
    assert "'sweet'" in error(caught).message
    assert admin.update_policy({"name": "sweet", "arguments": ""})["name"] == "sweet"
    stage["charge"] = "default"
    assert admin.reset_policy()["name"] == "default"


def test_a_model_is_exported_and_imported(admin, stage):
    assert b"".join(admin.export_model(signed=True)) == b"learned"
    admin.import_model(io.BytesIO(b"learned more"))
    assert stage["state"] == b"learned more"
    stage["state"] = b"learned"
    with pytest.raises(HttpResponseError) as caught:
        admin.import_model(io.BytesIO(b"PK"))
    assert error(caught).code == "InvalidModelImportFormat"


def test_the_log_says_from_when_to_when(admin, client, running):
    client.rank(asked())
    found = admin.get_log_properties()
    assert found["count"] == decisions(running)
    assert found["dateRange"]["from"] <= found["dateRange"]["to"]
    made = datetime.datetime.fromisoformat(found["dateRange"]["to"])
    assert abs(made.timestamp() - time.time()) < 60
    assert admin.get_model_properties()["creationTime"] == found["dateRange"]["from"]


def test_an_empty_log_has_no_properties(running):
    path = "bandits/other/personalizer/v1.1-preview.3"
    reply = send(running, "GET", f"{path}/logs/properties")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "LogsPropertiesNotFound")
    assert send(running, "GET", f"{path}/model/properties").json() == {}


def other(running) -> PersonalizerAdministrationClient:
    """Administers the bandit that has decided nothing."""
    key = AzureKeyCredential(running.key)
    return PersonalizerAdministrationClient(f"{running.url}/bandits/other", key, retry_total=0)


def test_what_is_not_there_yet_or_cannot_be_is_said(running):
    with other(running) as admin:
        with pytest.raises(ResourceNotFoundError):
            admin.export_model()
        with pytest.raises(HttpResponseError, match="InvalidModelImportFormat"):
            admin.import_model(io.BytesIO(b"anything"))


def test_an_apprentice_takes_the_first_action_that_is_not_excluded(admin, client):
    config = admin.get_service_configuration()
    admin.update_service_configuration(config | {"learningMode": "Apprentice"})
    for _ in range(5):
        assert client.rank(asked())["ranking"][0] == {"id": "pasta", "probability": 1.0}
        assert client.rank(asked(excludedActions=["pasta"]))["rewardActionId"] == "ice cream"
    slots = [{"id": "top", "baselineAction": "salad"}, {"id": "side", "baselineAction": "pasta"}]
    taken = client.rank_multi_slot(asked(slots=slots))["slots"]
    assert [slot["rewardActionId"] for slot in taken] == ["salad", "pasta"]
    assert admin.update_service_configuration(config)["learningMode"] == "Online"
    chosen = {client.rank(asked())["rewardActionId"] for _ in range(60)}
    assert len(chosen) > 1  # the chance of the contrary, by the floor alone, is below 1 in 10^5


def test_a_default_reward_is_given_after_the_waiting_time_to_what_is_active(admin, client, running):
    config = admin.get_service_configuration()
    waiting = config | {"rewardWaitTime": "PT0.2S", "defaultReward": -0.5}
    client.rank(asked(eventId="active"))
    client.rank(asked(eventId="inactive", deferActivation=True))
    client.rank(asked(eventId="rewarded", deferActivation=True))
    client.reward("rewarded", {"value": 1.0})
    admin.update_service_configuration(waiting)
    assert awaited(running, "active") == -0.5
    assert outcome(running, "inactive") is None
    client.activate("inactive")
    assert awaited(running, "inactive") == -0.5
    assert outcome(running, "rewarded") == 1.0
    client.reward("active", {"value": 1.0})  # too late: accepted and ignored
    assert outcome(running, "active") == -0.5


def awaited(running, event: str) -> float:
    for _ in range(200):
        found = outcome(running, event)
        if found is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no outcome of {event}")


@pytest.mark.parametrize("call", ["delete_logs", "reset_model"])
def test_what_would_lose_history_is_refused(admin, call):
    with pytest.raises(HttpResponseError) as caught:
        getattr(admin, call)()
    assert (caught.value.status_code, error(caught).code) == (403, "InvalidApiAccess")


# Evaluations.


def when(hours: float) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return (now + datetime.timedelta(hours=hours)).isoformat()


def finished(admin, id: str) -> dict[str, Any]:
    times = dict.fromkeys(("start_time", "end_time"), datetime.datetime.now(datetime.UTC))
    for _ in range(600):
        found = admin.get_evaluation(id, **times)
        if found["status"] != "Running":
            return found
        time.sleep(0.05)
    raise AssertionError("it does not end")


def test_policies_are_evaluated_on_the_log(admin, client, running, stage):
    earns = {"pasta": 0.0, "ice cream": 1.0, "salad": 0.5}
    start, before = when(0), decisions(running)  # an apprentice's decisions tell nothing of others
    for n in range(60):
        made = client.rank(asked(eventId=f"judged {n}"))
        client.reward(made["eventId"], {"value": earns[made["rewardActionId"]]})
    contract = {"name": "mine", "startTime": start, "endTime": when(1)}
    custom = [{"name": "sweet", "arguments": ""}]
    admin.create_evaluation("e1", contract | {"policies": custom})
    found = finished(admin, "e1")
    assert (found["status"], found["description"]) == ("Succeeded", "")
    results = {one["name"]: one for one in found["content"]["value"]}
    assert {name: one["policySource"] for name, one in results.items()} == {
        "Online": "Online",
        "Baseline": "Baseline",
        "Random": "Random",
        "sweet": "Custom",
    }
    log = running.engine.page(before, 60)[0]
    rewards = [reward for reward in log["reward"] if reward is not None]
    online = results["Online"]["summary"]
    assert online["expectedReward"] == pytest.approx(np.mean(rewards))
    assert {one["arguments"] for one in results.values()} == {""}  # nothing was refused
    for summary in (one["summary"] for one in results.values()):
        low, high = summary["confidenceInterval"]
        assert low <= summary["expectedReward"] <= high
    values = {name: one["summary"]["expectedReward"] for name, one in results.items()}
    assert values["Baseline"] < min(values["Random"], values["Online"])
    assert values["sweet"] == pytest.approx(1.0, abs=0.25)
    assert found["optimalPolicy"] == max(values, key=lambda name: values[name])
    _check_lists_and_old_versions(admin, running, stage, values)


def _check_lists_and_old_versions(admin, running, stage, values):
    assert [one["id"] for one in admin.list_evaluations()] == ["e1"]
    assert list(admin.list_evaluations(filter_expression="evaluationType eq 'Auto'")) == []
    assert list(admin.list_evaluations(skip=1, top=1)) == []
    old = "personalizer/v1.1-preview.3"
    (listed,) = send(running, "GET", f"{old}/evaluations").json()
    assert listed == send(running, "GET", f"{old}/evaluations/e1").json()
    assert listed["status"] == "completed"
    for one in listed["policyResults"]:
        total = one["totalSummary"]
        assert total["averageReward"] == values[one["name"]]
        assert total["ipsEstimatorNumerator"] <= total["ipsEstimatorDenominator"] * 1.5
    _check_applying(running, stage, old)
    admin.delete_evaluation("e1")
    with pytest.raises(ResourceNotFoundError, match="EvaluationNotFound"):
        finished(admin, "e1")


def _check_applying(running, stage, old):
    def applied(name: str) -> requests.Response:
        body = {"evaluationId": "e1", "policyName": name}
        return send(running, "POST", f"{old}/configurations/applyFromEvaluation", json=body)

    assert applied("sweet").status_code == 204
    assert stage["charge"] == "sweet"
    stage["charge"] = "default"
    assert applied("Online").status_code == 204
    assert applied("Random").json()["error"]["code"] == "LearningSettingsNotFound"
    assert stage["charge"] == "default"


def test_an_evaluation_of_a_time_without_decisions_fails_and_says_so(admin, client, running):
    client.rank(asked())
    body = {"name": "empty", "startTime": when(1), "endTime": when(2), "policies": []}
    reply = send(running, "POST", "personalizer/v1.0/evaluations", json=body)
    assert reply.status_code == 201
    id = reply.json()["id"]
    assert reply.headers["location"] == f"/personalizer/v1.0/evaluations/{id}"
    found = finished(admin, id)
    assert (found["status"], found["content"]) == ("Failed", None)
    assert "no logs exist" in found["description"]
    assert running.engine.kept("personalizer/evaluation/").keys() >= {
        f"personalizer/evaluation/{id}"
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"endTime": "2001-01-01T00:00:00Z"}, "InvalidDateTimesInEvaluationContract"),
        ({"startTime": "yesterday"}, "InvalidEvaluationContract"),
        ({"policies": [{"name": "x", "arguments": "--cb"}]}, "InvalidEvaluationContract"),
        ({"policies": [{"name": "sweet", "arguments": ""}] * 2}, "DuplicateCustomPolicyNames"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(admin, stage, change, code):
    contract = {"name": "mine", "startTime": when(-1), "endTime": when(1), "policies": []}
    with pytest.raises(HttpResponseError) as caught:
        admin.create_evaluation("wrong", contract | change)
    assert error(caught).code == code


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "configurations/service"),
        ("PUT", "configurations/policy"),
        ("POST", "configurations/applyFromEvaluation"),
        ("POST", "evaluations"),
        ("PUT", "evaluations/odd"),
    ],
)
def test_no_body_makes_administration_fail(running, stage, method, path):
    for odd in (None, 0, "", [], {}, {"name": ""}, {"name": "x"}, {"evaluationId": "x"}):
        reply = send(running, method, f"personalizer/{path}", json=odd)
        assert reply.status_code == 400, (odd, reply.text)
    for odd in ("-1", "x", "9" * 20):
        assert send(running, "GET", f"personalizer/evaluations?top={odd}").status_code == 400
