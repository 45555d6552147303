"""Personalizer's published clients rank, reward and activate unchanged."""
# ruff: noqa: F401, F811 (fixtures are imported, and named again by tests)

from typing import Any

import numpy as np
import pytest
from azure.ai.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import (
    ErrorResponseException,
    RankableAction,
    RankRequest,
)
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError
from personalizer import (
    ACTIONS,
    CONTEXT,
    asked,
    client,
    configure,
    decisions,
    first,
    outcome,
    running,
    send,
    served,
)

import ensemble_sampling as es
from ensemble_sampling.serve.personalizer.events import described, ranked
from ensemble_sampling.serve.personalizer.replies import IGNORED
from ensemble_sampling.serve.types import Decision, Refused

# The published client of v1.0.


def test_the_first_client_ranks_rewards_and_activates(first, running):
    actions = [RankableAction(id=one["id"], features=one["features"]) for one in ACTIONS]
    request = RankRequest(actions=actions, context_features=CONTEXT, event_id="first")
    response = first.rank(request)
    assert response.event_id == "first"
    assert {one.id for one in response.ranking} == {"pasta", "ice cream", "salad"}
    assert sum(one.probability for one in response.ranking) == pytest.approx(1, abs=1e-6)
    assert response.ranking[0].id == response.reward_action_id
    first.events.reward("first", 1.0)
    first.events.activate("first")
    assert outcome(running, "first") == 1.0


def test_the_first_client_reads_an_error_as_its_own(first):
    with pytest.raises(ErrorResponseException) as caught:
        first.rank(RankRequest(actions=[]))
    failed: Any = caught.value
    assert failed.response.status_code == 400
    error = failed.error.error
    assert (error.code, error.inner_error.code) == ("BadRequest", "InvalidRankRequest")
    assert (error.target, error.details) == ("actions", [])
    assert "length" in error.message


# The published client of api-version=2022-09-01-preview.


def test_an_event_is_given_where_none_is_and_decided_once(client, running):
    response = client.rank(asked())
    client.reward(response["eventId"], {"value": 0.5})
    assert outcome(running, response["eventId"]) == 0.5
    before = decisions(running)
    answers = [client.rank(asked(eventId="again")) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert decisions(running) == before + 1


def test_excluded_actions_keep_their_place_and_are_never_chosen(client):
    for n in range(20):
        response = client.rank(asked(excludedActions=["ice cream"], eventId=f"excluded {n}"))
        assert response["ranking"][1] == {"id": "ice cream", "probability": 0.0}
        assert response["rewardActionId"] == response["ranking"][0]["id"] != "ice cream"
    response = client.rank(asked(excludedActions=["pasta"]))
    assert response["ranking"][0] == {"id": "pasta", "probability": 0.0}
    assert response["rewardActionId"] == response["ranking"][1]["id"]


def test_what_was_chosen_comes_first_then_the_likely_then_as_offered():
    about = ("id", "e", "", 4, "e", 0.1)
    shares = [0.1, 0.3, 0.0, 0.5, 0.1]
    made = Decision(*about, list("abcde"), shares, [*shares], None, 0.0, False)
    expected = [("e", 0.1), ("d", 0.5), ("c", 0.0), ("b", 0.3), ("a", 0.1)]
    assert [*ranked(made, {"c"})] == expected
    # What a ledger remembers gives the same.
    again = Decision(*about, list("abcde"), shares, None, None, 0.0, True)
    assert [*ranked(again, {"c"})] == expected
    assert [*ranked(Decision(*about, None, shares, None, None, 0.0, True), {"c"})] == [("e", 0.1)]


def test_features_are_asked_as_descriptions_and_ids_may_have_slashes(client, running):
    client.rank(asked(deferActivation=True, eventId="asked/%"))
    (ask,) = running.asked
    assert ask.actions["pasta"] == {"taste": "salty", "nutrition.calories": 800}
    assert ask.context == {
        "time": "morning",
        "user.device": "phone",
        "user.vector.0": 0.5,
        "user.vector.1": 1.0,
    }
    assert (ask.event, ask.deferred, ask.available) == ("asked%2F%25", True, None)
    client.reward("asked/%", {"value": 0.25})
    assert outcome(running, "asked%2F%25") == 0.25


def test_nested_and_flat_features_are_hashed_alike():
    nested = [{"user": {"age": 3, "likes": ["tea", "rum"]}}, {"user": {"age": 4}}, None]
    said = described(nested)
    assert said == {"user.age": [3, 4], "user.likes": ["tea", "rum"]}
    hasher = es.Hasher(64)
    np.testing.assert_array_equal(hasher([said]), hasher([nested]))


def test_a_reward_is_final_or_adds_up_and_counts_once_when_it_is_sent_again(client, running):
    client.rank(asked(eventId="twice"))
    client.reward("twice", {"value": 1.0})
    client.reward("twice", {"value": 0.0})  # accepted, as Personalizer does, and ignored
    assert outcome(running, "twice") == 1.0
    configure(running, aggregation="sum")
    client.rank(asked(eventId="sum"))
    client.reward("sum", {"value": 0.5})
    client.reward("sum", {"value": 0.5})
    for _ in range(2):  # what a client that retries sends
        client.reward("sum", {"value": 0.25}, headers={"x-ms-client-request-id": "retried"})
    assert outcome(running, "sum") == 1.25


@pytest.mark.parametrize("aggregation", ["first", "sum"])
def test_rewards_of_unknown_events_are_accepted_and_said_to_be_ignored(running, aggregation):
    configure(running, aggregation=aggregation)
    path = "personalizer/v1.0/events/nobody"
    reply = send(running, "POST", f"{path}/reward", json={"value": 1})
    assert (reply.status_code, reply.headers[IGNORED]) == (204, "unknown event")
    reply = send(running, "POST", f"{path}/activate")
    assert (reply.status_code, reply.headers[IGNORED]) == (204, "unknown event")


def test_slots_take_different_actions_and_are_rewarded_each(client, running):
    slots = [
        {"id": "top", "baselineAction": "salad", "features": [{"size": "large"}]},
        {"id": "si/de", "baselineAction": "pasta", "excludedActions": ["salad"]},
    ]
    request = asked(slots=slots, eventId="page")
    response = client.rank_multi_slot(request)
    assert response == client.rank_multi_slot(request)
    top, side = response["slots"]
    assert (top["id"], side["id"], response["eventId"]) == ("top", "si/de", "page")
    assert top["rewardActionId"] != side["rewardActionId"] != "salad"
    ask = running.asked[0]
    assert next(iter(ask.actions)) == "salad"  # what an apprentice takes
    assert (ask.context["slot"], ask.context["slot.size"], ask.slot) == ("top", "large", "top")
    told = [{"slotId": "si/de", "value": 0.75}, {"slotId": "nowhere", "value": 1.0}]
    client.reward_multi_slot("page", {"reward": told})
    client.activate_multi_slot("page")
    assert outcome(running, "page", "si%2Fde") == 0.75
    assert outcome(running, "page", "top") is None


@pytest.mark.parametrize(("aggregation", "known"), [("sum", 1.75), ("first", 0.5)])
def test_several_rewards_of_one_slot_in_a_request_are_aggregated(running, aggregation, known):
    configure(running, aggregation=aggregation)
    event, path = f"twice-{aggregation}", "personalizer/v1.1-preview.3/multislot"
    body = asked(slots=[{"id": "top", "baselineAction": "salad"}], eventId=event)
    assert send(running, "POST", f"{path}/rank", json=body).status_code == 201
    told = [{"slotId": "top", "value": value} for value in (0.5, 0.75, 0.5)]
    for _ in range(2):  # sent again, it counts once
        reply = send(
            running, "POST", f"{path}/events/{event}/reward",
            json={"reward": told}, headers={"x-ms-client-request-id": "one"},
        )  # fmt: skip
        assert reply.status_code == 204
        assert reply.headers.get(IGNORED) == (None if aggregation == "sum" else "rewarded before")
        assert outcome(running, event, "top") == known


def test_a_slot_without_an_action_left_gets_none(client):
    slots = [
        {"id": "top", "baselineAction": "salad"},
        {"id": "side", "baselineAction": "pasta", "excludedActions": ["salad", "ice cream"]},
    ]
    for n in range(30):
        response = client.rank_multi_slot(asked(slots=slots, eventId=f"left {n}"))
        top, side = (slot["rewardActionId"] for slot in response["slots"])
        assert side == (None if top == "pasta" else "pasta")


def test_a_key_is_asked_for(running):
    stranger = PersonalizerClient(running.url, AzureKeyCredential("another"))
    with stranger, pytest.raises(ClientAuthenticationError):
        stranger.rank(asked())


# What is wrong with a request.


def one(**more) -> dict[str, Any]:
    return {"actions": [{"id": "a", "features": [{"x": 1}]}], **more}


SLOT = {"id": "s", "baselineAction": "a"}
OTHER, OUT = {**SLOT, "baselineAction": "b"}, {**SLOT, "excludedActions": ["a"]}
TWO, WIDE = [{"id": "a"}, {"id": "b"}], {str(n): 1 for n in range(1001)}
DEEP: Any = {"x": 1}
for _ in range(20):
    DEEP = {"x": DEEP}
WRONG = [
    ("rank", {}, "InvalidRankRequest", "", "actions"),
    ("rank", one(actions=[]), "InvalidRankRequest", "actions", "length"),
    ("rank", one(actions=[{"id": "a"}] * 51), "InvalidRankRequest", "actions", "length <= 50"),
    ("rank", one(actions=[{"id": "a"}] * 2), "InvalidRankRequest", "actions", "of its own"),
    ("rank", one(actions=[{"id": ""}]), "InvalidRankRequest", "actions[0].id", "length >= 1"),
    ("rank", one(excludedActions=["a"]), "InvalidRankRequest", "excludedActions", "all actions"),
    ("rank", one(eventId=""), "InvalidRankRequest", "eventId", "got none"),
    ("rank", one(eventId="e" * 257), "InvalidRankRequest", "eventId", "257 letters"),
    ("rank", one(eventId="e\n"), "InvalidRankRequest", "eventId", r"'e\n'"),
    ("rank", one(contextFeatures=[1]), "InvalidRankRequest", "contextFeatures[0]", "object"),
    ("rank", one(contextFeatures=[DEEP]), "InvalidRankRequest", "features", "16 deep"),
    ("rank", one(contextFeatures=[{"x": 1e300}]), "InvalidRankRequest", None, "finite"),
    ("rank", one(contextFeatures=[WIDE]), "PayloadSizeExceeded", None, "at most 1000"),
    ("events/e/reward", {}, "InvalidRewardRequest", "", "value"),
    ("events/e/reward", {"value": "much"}, "InvalidRewardRequest", "value", "float"),
    ("events/" + "e" * 257 + "/reward", {"value": 1}, "InvalidRewardRequest", "eventId", "257"),
    ("events/" + "e" * 257 + "/activate", {}, "InvalidEventIdToActivate", "eventId", "257"),
    ("multislot/rank", one(slots=[]), "InvalidRankRequest", "slots", "length"),
    ("multislot/rank", one(slots=[SLOT] * 2), "InvalidRankRequest", "slots", "only 1 actions"),
    ("multislot/rank", one(slots=[SLOT] * 2, actions=TWO), "InvalidRankRequest", "slots", "id of"),
    ("multislot/rank", one(slots=[OTHER]), "InvalidRankRequest", "slots[0]", "no actions ['b']"),
    ("multislot/rank", one(slots=[OUT]), "InvalidRankRequest", "slots[0]", "must not be excluded"),
]


@pytest.mark.parametrize(("path", "body", "code", "target", "words"), WRONG)
def test_a_bad_request_is_told_what_is_wrong(running, path, body, code, target, words):
    before = decisions(running)
    reply = send(running, "POST", f"personalizer/v1.1-preview.3/{path}", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, code), error
    assert words in error["message"]
    assert (error["target"] or "") == (target or "")
    assert set(error) == {"code", "message", "target", "details", "innerError"}
    assert decisions(running) == before


@pytest.mark.parametrize("body", [b"", b"{", b'"\xff"', b"[" * 100_000, b"null"])
def test_what_is_not_json_is_a_bad_request(running, body):
    reply = send(running, "POST", "personalizer/v1.0/rank", data=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("bandits/other/personalizer/v1.0/rank", 201),
        ("bandits/other/personalizer/rank?api-version=2022-09-01-preview", 201),
        ("bandits/nobody/personalizer/v1.0/rank", 404),
        ("personalizer/v1.1-preview.1/rank", 201),
        ("personalizer/v2.0/rank", 404),
        ("personalizer/v1.0/ranks", 404),
        ("personalizer/v1.0/model", 404),
    ],
)
def test_paths_lead_to_bandits_and_versions(running, path, status):
    reply = send(running, "POST", path, json=asked())
    assert reply.status_code == status
    if status == 404:
        known = "unknown" if "nobody" in path else "ResourceNotFound"  # the former by the door
        assert reply.json()["error"]["code"] == known


def test_a_database_that_is_away_is_said_to_be_and_a_fault_is_not_told(running, monkeypatch):
    def away(kind):
        async def decide(choices):
            raise (Refused("unavailable", "away") if kind else KeyError("a secret"))

        return decide

    path = "personalizer/v1.1-preview.3/rank"
    monkeypatch.setattr(running.engine, "decide", away(True))
    reply = send(running, "POST", path, json=asked())
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json()["error"]["code"] == "OperationNotAllowed"
    monkeypatch.setattr(running.engine, "decide", away(False))
    reply = send(running, "POST", path, json=asked())
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "InternalServerError")
    assert "secret" not in reply.text


ODD: list[Any] = [None, 0, -1.5, "", "a", True, [], {}, [None], [[]], {"": {}}, ["a", "a"], 1e308]


def test_nothing_that_is_sent_makes_it_fail(running):
    whole = asked(slots=[{"id": "top", "baselineAction": "salad"}])
    whole |= {"excludedActions": [], "eventId": None, "deferActivation": False}
    bodies: list[Any] = [*ODD, *({**whole, name: odd} for name in whole for odd in ODD)]
    bodies += [{**whole, "contextFeatures": [{"x": odd}]} for odd in ODD]
    bodies += [{**whole, "actions": [{"id": "a", "features": odd}]} for odd in ODD]
    found = set()
    for body in bodies:
        for path in ("rank", "multislot/rank"):
            reply = send(running, "POST", f"personalizer/{path}", json=body)
            found.add(reply.status_code)
            assert reply.status_code in (201, 400), (path, body, reply.text)
    for odd in (*ODD, *({"value": odd} for odd in ODD), *({"reward": odd} for odd in ODD)):
        for path in ("events/e/reward", "multislot/events/e/reward"):
            reply = send(running, "POST", f"personalizer/{path}", json=odd)
            assert reply.status_code in (204, 400), (path, odd, reply.text)
    assert found == {201, 400}
