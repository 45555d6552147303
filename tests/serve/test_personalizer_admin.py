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
from services import until

from ensemble_sampling.serve import admin as administration
from ensemble_sampling.serve.personalizer import evaluations
from ensemble_sampling.serve.personalizer.settings import duration
from ensemble_sampling.serve.types import Settings


def error(caught: Any) -> Any:
    return caught.value.error


def administer(running, bandit: str) -> PersonalizerAdministrationClient:
    key, url = AzureKeyCredential(running.key), f"{running.url}/bandits/{bandit}"
    return PersonalizerAdministrationClient(url, key, retry_total=0)


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
    assert running.engine.replicas.settings == Settings(600.0, -0.5, "sum", "apprentice", 0.2)
    assert answered == config | {"rewardWaitTime": "PT10M"} == admin.get_service_configuration()
    back = answered | {"rewardWaitTime": "PT0S", "learningMode": "Online"}
    back |= {"rewardAggregation": "earliest"}
    admin.update_service_configuration(back)
    assert running.engine.replicas.settings == Settings(None, -0.5, "first", "online", 0.2)


def test_the_configuration_leaves_alone_what_personalizer_does_not_know(admin, running):
    held = {"holdback": 0.2, "baseline": "uniform", "sticky": 60.0, "fallback": True}
    held["guard"] = {"returned": ["<=", 0.1]}
    administration.configure(running.engine.replicas, held, "ann")
    config = admin.get_service_configuration()
    admin.update_service_configuration(config | {"explorationPercentage": 0.2})
    now = running.engine.replicas.settings
    assert {name: getattr(now, name) for name in held} == held
    assert now.floor == 0.2
    last = running.engine.reader.changes()[-1]
    assert (last["name"], last["who"] is not None) == ("service", True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rewardAggregation": "mean"}, "InvalidServiceConfiguration"),
        ({"learningMode": "Offline"}, "InvalidServiceConfiguration"),
        ({"explorationPercentage": 1.5}, "InvalidServiceConfiguration"),
        ({"rewardWaitTime": "soon"}, "InvalidServiceConfiguration"),
        ({"rewardWaitTime": "-PT5M"}, "InvalidServiceConfiguration"),
        ({"logRetentionDays": 0}, "InvalidLogRetentionDays"),
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
    assert running.engine.replicas.settings == Settings()


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


def test_a_candidate_is_put_in_charge_by_its_name(admin, running):
    assert admin.get_policy()["name"] == admin.reset_policy()["name"] == "default"
    send(running, "POST", "bandits/other/personalizer/v1.0/rank", json=asked())
    with administer(running, "other") as other:
        vw = {"name": "mine", "arguments": "--cb_explore_adf --epsilon 0.2"}
        with pytest.raises(HttpResponseError) as caught:
            other.update_policy(vw)
        assert error(caught).code == "InvalidPolicyConfiguration"
        assert "'rival'" in error(caught).message
        assert other.update_policy({"name": "rival", "arguments": ""})["name"] == "rival"
        assert "EnsembleSampling" in other.get_policy()["arguments"]
        with pytest.raises(HttpResponseError, match="no agent 'default'"):
            other.reset_policy()


def test_a_model_is_exported_and_imported(admin, client, running):
    client.reward(client.rank(asked())["eventId"], {"value": 1.0})
    model = b"".join(admin.export_model(signed=True))
    with administer(running, "twin") as twin:
        with pytest.raises(ResourceNotFoundError):  # nothing has been learned yet
            twin.export_model()
        twin.import_model(io.BytesIO(model))
        assert len(b"".join(twin.export_model())) > 0
        with pytest.raises(HttpResponseError) as caught:
            twin.import_model(io.BytesIO(b"PK"))
        assert error(caught).code == "InvalidModelImportFormat"


def test_the_log_says_from_when_to_when(admin, client, running):
    client.rank(asked())
    found = admin.get_log_properties()
    assert found["count"] == decisions(running)
    assert found["dateRange"]["from"] <= found["dateRange"]["to"]
    made = datetime.datetime.fromisoformat(found["dateRange"]["to"])
    assert abs(made.timestamp() - time.time()) < 60
    assert admin.get_model_properties()["creationTime"] == found["dateRange"]["from"]
    path = "bandits/empty/personalizer/v1.1-preview.3"
    reply = send(running, "GET", f"{path}/logs/properties")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "LogsPropertiesNotFound")
    assert send(running, "GET", f"{path}/model/properties").json() == {}


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
    until(lambda: outcome(running, "active") == -0.5)
    assert outcome(running, "inactive") is None
    client.activate("inactive")
    until(lambda: outcome(running, "inactive") == -0.5)
    assert outcome(running, "rewarded") == 1.0
    client.reward("active", {"value": 1.0})  # too late: accepted and ignored
    assert outcome(running, "active") == -0.5


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
    until(lambda: admin.get_evaluation(id, **times)["status"] != "Running")
    return admin.get_evaluation(id, **times)


def sweet(offer: Any) -> list[float]:
    return [0.0, 1.0, 0.0]


@pytest.fixture
def promoted(running, monkeypatch) -> list[str]:
    """What is put in charge, of which `sweet` can be."""
    names: list[str] = []
    monkeypatch.setitem(running.engine.replicas.candidates, "sweet", sweet)
    monkeypatch.setattr(evaluations, "promote", lambda engine, name: names.append(name))
    return names


def test_policies_are_evaluated_on_the_log(admin, client, running, promoted):
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
    log = running.engine.reader.page(before, 60).columns
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
    _check_lists_and_old_versions(admin, running, promoted, values)


def _check_lists_and_old_versions(admin, running, promoted, values):
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
    _check_applying(running, promoted, old)
    admin.delete_evaluation("e1")
    with pytest.raises(ResourceNotFoundError, match="EvaluationNotFound"):
        finished(admin, "e1")


def _check_applying(running, promoted, old):
    def applied(name: str) -> requests.Response:
        body = {"evaluationId": "e1", "policyName": name}
        return send(running, "POST", f"{old}/configurations/applyFromEvaluation", json=body)

    assert applied("sweet").status_code == applied("Online").status_code == 204
    assert applied("Random").json()["error"]["code"] == "LearningSettingsNotFound"
    assert promoted == ["sweet"]


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
    assert f"personalizer/evaluation/{id}" in running.engine.reader.kept("personalizer/")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"endTime": "2001-01-01T00:00:00Z"}, "InvalidDateTimesInEvaluationContract"),
        ({"startTime": "yesterday"}, "InvalidEvaluationContract"),
        ({"policies": [{"name": "x", "arguments": "--cb"}]}, "InvalidEvaluationContract"),
        ({"policies": [{"name": "sweet", "arguments": ""}] * 2}, "DuplicateCustomPolicyNames"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(admin, promoted, change, code):
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
def test_no_body_makes_administration_fail(running, method, path):
    for odd in (None, 0, "", [], {}, {"name": ""}, {"name": "x"}, {"evaluationId": "x"}):
        reply = send(running, method, f"personalizer/{path}", json=odd)
        assert reply.status_code == 400, (odd, reply.text)
    for odd in ("-1", "x", "9" * 20):
        assert send(running, "GET", f"personalizer/evaluations?top={odd}").status_code == 400
