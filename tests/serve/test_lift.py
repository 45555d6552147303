"""What a bandit earns, for whom and at whose expense, over HTTP and in the client."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import importlib
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml
from services import running, until

import ensemble_sampling as es
from ensemble_sampling.decide.health import KINDS
from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import admin, updater
from ensemble_sampling.serve.decider import Decider
from ensemble_sampling.serve.replicas import Replicas
from ensemble_sampling.serve.types import Choose, Learn

OFFER = {"a": {"x": "1"}, "b": {"x": "2"}, "c": {"x": "3"}}
ALERTS = Path(__file__).parents[2] / "deploy" / "alerts.yml"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(tmp_path_factory.mktemp("served"), bandits=["sticky", "guarded"]) as (url, _):
        yield url


def test_lift_metrics_and_segments_over_http_are_those_of_the_ledger(url):
    with es.Client(url, timeout=60) as client:
        now = client.configure(holdback=0.4, baseline={"action": "b"})
        assert (now["holdback"], now["baseline"]) == (0.4, {"action": "b"})
        offers = [{"actions": OFFER, "context": {"device": "phone"}}] * 150
        made = client.choose_many(offers)
        assert {d.action for d in made if d.control} == {"b"}
        assert 30 < sum(d.control or False for d in made) < 90
        client.learn_many([(d.id, float(d.action == "a")) for d in made])
        for one in made[:20]:
            assert client.observe(one.id, {"margin": one.index})
        assert not client.observe(made[0].id, {"margin": made[0].index})
        found = client.lift(daily=True)
        assert isinstance(found, es.Bandit().lift().__class__)
        assert (found.decisions, len(found.parts)) == (150, 1)
        assert found.control.value == pytest.approx(0.0, abs=1e-12)
        assert found.held == sum(d.control or False for d in made)
        (margin,) = client.metrics()
        assert (margin.name, margin.decisions, margin.guard) == ("margin", 20, None)
        assert margin.lift == client.lift("margin")
        segments = client.segments("device")
        assert (segments.key, segments.parts[0].name) == ("device", "phone")
        assert segments.parts[0].lift.decisions == 150
        with pytest.raises(es.ServiceError, match="no context has 'colour'"):
            client.segments("colour")
        log = client.log(count=10)
        assert log["control"] == [d.control for d in made[:10]]
        assert client.predict(OFFER).probabilities[1] >= 0.4
        changes = httpx.get(f"{url}/v1/bandits/default/changes").json()
        assert changes[0]["name"] == "control"
        assert changes[0]["value"]["holdback"] == 0.4
        before = len(changes)
        client.configure(holdback=0.4)
        assert len(httpx.get(f"{url}/v1/bandits/default/changes").json()) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"holdback": 1}, "holdback"),
        ({"baseline": "best"}, "baseline must be"),
        ({"baseline": {"frozen": "soon"}}, "baseline must be"),
        ({"guard": {"x": ["<", 1.0]}}, "guard"),
        ({"guard": {"": ["<=", 1.0]}}, "metric's name"),
        ({"sticky": -1}, "sticky"),
        ({"baseline": "rule"}, "one of the file of `serve --agents`"),
        ({"baseline": {"rule": "shop.rule"}}, "give the same function as baseline again"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(url, settings, words):
    with es.Client(url, timeout=60) as client:
        before = client.settings()
        with pytest.raises(es.ServiceError, match=words) as raised:
            client.configure(**settings)
        assert raised.value.status == 400
        assert client.settings() == before


def test_a_subject_is_given_the_same_by_whoever_asks_at_once(url):
    with es.Client(url, bandit="sticky", timeout=60) as client:
        client.configure(sticky=3600, holdback=0.5)
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda n: client.choose(OFFER, subject=f"u{n % 5}"), range(40)))
        by = {n: {one.id for one in made[n::5]} for n in range(5)}
        assert all(len(ids) == 1 for ids in by.values())
        assert sum(one.again for one in made) == 35
        turned = dict(reversed(OFFER.items()))
        again = client.choose(turned, subject="u0", event="visit-1")
        assert again.again
        assert [*turned][again.index] == again.action == made[0].action
        assert client.learn("visit-1", 1.0)
        assert not client.learn(made[0].id, 1.0)
        assert client.summary().decisions == 5


def test_several_processes_and_a_killed_learner_agree_on_a_subject(tmp_path):
    """Two that serve one ledger, without a learner."""
    es.Bandit.open(tmp_path / "b", sticky=3600, holdback=0.5).close()
    one, other = (Decider(Replicas(tmp_path / "b", Options())) for _ in range(2))
    try:
        for n in range(6):
            request = [[Choose(actions=OFFER, subject=f"u{n}")]]
            ((first,),), _ = (one if n % 2 else other).work(request, [])
            ((again,),), _ = (other if n % 2 else one).work(request, [])
            assert (again.id, again.index, again.again) == (first.id, first.index, True)
            assert again.control == first.control
    finally:
        one.replicas.close()
        other.replicas.close()


def test_a_broken_bound_puts_the_baseline_in_charge_and_is_told(url, monkeypatch):
    monkeypatch.setattr(updater, "EXAMINED", 0.1)
    with es.Client(url, bandit="guarded", timeout=60) as client:
        client.configure(holdback=0.1, guard={"returned": ("<=", 0.1)}, fallback=True)
        for one in client.choose_many([{"actions": OFFER}] * 60):
            client.observe(one.id, {"returned": 1})
        status = f"{url}/v1/bandits/guarded/status"
        until(lambda: "halted" in httpx.get(status).json()["health"])
        assert httpx.get(status).json()["holdback"] == 1.0
        made = client.choose_many([{"actions": OFFER}] * 20)
        assert {(d.action, d.control) for d in made} == {("a", True)}
        page = httpx.get(f"{url}/metrics").text
        assert re.search(r'ensemble_unhealthy\{bandit="guarded",check="halted"\} 1\.0', page)
        assert re.search(r'ensemble_unhealthy\{bandit="guarded",check="few"\} 0\.0', page)
        assert client.resume()
        assert not client.resume()
        assert {d.action for d in client.choose_many([{"actions": OFFER}] * 60)} == {"a", "b", "c"}
        who = [c["who"] for c in httpx.get(f"{url}/v1/bandits/guarded/changes").json()]
        assert who == [None, "guardrail", None]


def test_a_bandit_without_actions_yet_has_noticed_no_change(tmp_path):
    with running(tmp_path, bandits=["new"]) as (url, _):
        httpx.get(f"{url}/v1/bandits/new/status")
        time.sleep(0.5)  # it has looked around
        status = httpx.get(f"{url}/v1/bandits/new/status").json()
        assert (status["trouble"], status["restarts"]) == (None, 0)
        assert httpx.get(f"{url}/v1/bandits/new/changes").status_code == 200


def test_that_the_world_changed_is_in_health_metrics_and_among_the_changes(url, monkeypatch):
    monkeypatch.setattr(updater, "EXAMINED", 0.1)
    at, rng = f"{url}/v1/bandits/turned", np.random.default_rng(0)
    with es.Client(url, bandit="turned", timeout=60) as client:
        httpx.put(at, json={"actions": ["a", "b"]})
        rows = rng.normal(size=(400, 2)).tolist()
        made = client.choose_many([{"context": row} for row in rows])
        signs = [
            (1 if n < 300 else -1) * (1 if d.action == "a" else -1) for n, d in enumerate(made)
        ]
        told = zip(made, signs, rows, strict=True)
        client.learn_many([(d.id, sign * row[0]) for d, sign, row in told])
        until(lambda: httpx.get(f"{at}/status").json()["learned"] == 400)
        until(lambda: "changed" in httpx.get(f"{at}/status").json()["health"])
        restarts = httpx.get(f"{at}/status").json()["restarts"]
        page = httpx.get(f"{url}/metrics").text
        assert restarts >= 1
        assert f'ensemble_restarts_total{{bandit="turned"}} {restarts}.0' in page
        assert 'ensemble_unhealthy{bandit="turned",check="changed"} 1.0' in page
        before = httpx.get(f"{at}/changes").json()
        assert httpx.get(f"{at}/changes").json() == before  # reading it writes nothing
        [noticed] = [change for change in before if change["name"] == "noticed"]
        assert sum(noticed["value"].values()) == restarts
        assert 300 < [d.id for d in made].index(client.log()["id"][noticed["decision"]]) < 360


def test_alert_rules_are_on_metrics_and_checks_that_there_are(url):
    page = httpx.get(f"{url}/metrics").text
    names = {*re.findall(r"^# TYPE (\w+)", page, re.MULTILINE)}
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        used = re.findall(r"ensemble_\w+", rule["expr"])
        assert used
        assert {*used} <= names | {"ensemble_requests_total"}
        assert rule["annotations"]["summary"]
        for checks in re.findall(r'check=~"([^"]+)"', rule["expr"]):
            assert {*checks.split("|")} <= {*KINDS}
    assert np.all([rule["labels"]["severity"] in ("info", "warning", "critical") for rule in rules])
    watched = [checks for rule in rules for checks in re.findall(r'check=~"([^"]+)"', rule["expr"])]
    assert {*"|".join(watched).split("|")} == {*KINDS}  # there is a rule for each


@pytest.mark.browser  # which has the programs of other packages, too
def test_prometheus_loads_the_alert_rules():
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS: 8 rules found" in done.stdout


def test_what_a_bandit_notices_is_in_its_status_and_for_prometheus(url, monkeypatch):
    monkeypatch.setattr(updater, "EXAMINED", 0.1)
    with es.Client(url, bandit="noticing", timeout=60) as client:
        client.create()
        offer = {"a": [1.0, 3.0, 5.0], "b": [1.0, 3.0, 5.0]}
        made = client.choose_many([{"actions": offer}] * 150)
        client.learn_many([(one.id, 1.0) for one in made])
        until(lambda: "constant" in client.status()["health"])
        assert "no feature has varied" in client.status()["health"]["constant"]
        page = httpx.get(f"{url}/metrics").text
        assert re.search(r'ensemble_unhealthy\{bandit="noticing",check="constant"\} 1\.0', page)
        assert re.search(r'ensemble_unhealthy\{bandit="noticing",check="strays"\} 0\.0', page)


def test_the_agent_as_it_was_decides_for_the_control_group_of_a_service(url):
    with es.Client(url, bandit="frozen", timeout=60) as client:
        httpx.put(f"{url}/v1/bandits/frozen", json={"actions": ["a", "b"]})
        made = client.choose_many([{}] * 60)
        client.learn_many([(one.id, float(one.action == "b")) for one in made])
        now = client.configure(holdback=0.5, baseline="frozen")
        assert now["baseline"] == {"frozen": 60}
        made = client.choose_many([{}] * 40)
        held = [one for one in made if one.control]
        assert 5 < len(held) < 35
        assert sum(one.action == "b" for one in held) > len(held) / 2  # which it knew by then
        assert client.configure(holdback=0.2)["baseline"] == {"frozen": 60}


RULE = """
def cheapest(context, actions):
    return min(actions, key=lambda name: actions[name]["price"])

AGENTS = {"shop": {"baseline": cheapest}, "other": {"baseline": cheapest}}
"""


def test_a_rule_of_ones_own_decides_for_the_control_group_of_a_service(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rules.py").write_text(RULE)
    rule = importlib.import_module("rules").cheapest  # as a program that began the bandit
    offer = {"a": {"price": 3}, "b": {"price": 1}, "c": {"price": 2}}
    with es.Bandit.open(tmp_path / "place" / "shop", holdback=0.5, baseline=rule) as bandit:
        bandit.choose(offer)
    with running(tmp_path / "place") as (url, _):
        said = httpx.post(f"{url}/v1/bandits/shop/choose", json={"actions": offer})
        assert said.status_code == 503
        assert "in the file of `serve --agents`" in said.json()["error"]["message"]
    (tmp_path / "agents.py").write_text(RULE)  # the same function, as another module has it
    with running(tmp_path / "place", agents=tmp_path / "agents.py") as (url, _):
        with es.Client(url, bandit="shop", timeout=60) as client:
            made = client.choose_many([{"actions": offer}] * 40)
            assert {one.action for one in made if one.control} == {"b"}
            assert client.configure(holdback=0.2)["baseline"]["rule"]["function"]
        with es.Client(url, bandit="other", timeout=60) as client:
            client.configure(holdback=0.5, baseline="rule")
            made = client.choose_many([{"actions": offer}] * 40)
            assert {one.action for one in made if one.control} == {"b"}


def test_what_a_caller_decided_while_the_service_was_away_is_no_part_of_lift(url):
    with es.Client(url, bandit="away", timeout=60) as client:
        base = f"{url}/v1/bandits/away"
        httpx.put(base, json={"actions": ["a", "b"]})
        client.configure(holdback=0.5, sticky=3600, guard={"margin": [">=", 0]})
        first = client.choose(subject="ann")
        body = {"subject": "ann", "available": ["b"], "made_at": 1e9, "event": "e1"}
        one = httpx.post(f"{base}/choose", json=body).json()
        assert (one["action"], one["probabilities"], one["time"]) == ("b", [0.0, 1.0], 1e9)
        assert one["id"] != first.id  # though ann is given the same again
        ids = [first.id, *(client.choose().id for _ in range(20))]
        client.learn_many([(id, 1.0) for id in ids])
        client.learn(one["id"], 1000.0)
        client.observe(one["id"], {"margin": -1000.0})
        client.observe(ids[1], {"margin": 1.0})
        assert client.lift().decisions == 21
        (margin,) = client.metrics()
        assert margin.mean is None or margin.mean.value == 1.0
        late = httpx.post(f"{base}/choose", json={**body, "event": "e2", "made_at": 9e10}).json()
        assert abs(late["time"] - time.time()) < 60
        for wrong in ({"available": ["a", "b"]}, {"available": None}):
            said = httpx.post(f"{base}/choose", json={**body, **wrong, "event": "e3"})
            assert said.status_code == 400
            assert "one available action" in said.json()["error"]["message"]


def test_a_reward_made_of_metrics_is_weighed_anew_in_every_process(url, tmp_path):
    with es.Client(url, bandit="weighed", timeout=60) as client:
        httpx.put(f"{url}/v1/bandits/weighed", json={"actions": ["a", "b"]})
        now = client.configure(reward={"click": 1.0, "margin": 0.5})
        assert now["reward"] == {"click": 1.0, "margin": 0.5}
        one, two, three = (client.choose().id for _ in range(3))
        assert client.observe(one, {"click": 1})
        assert client.log()["outcome"] == [None] * 3
        assert client.observe(one, {"margin": 4})
        assert client.learn_many([(two, {"click": 1}), (three, {"click": 0, "margin": 2})])
        assert client.log()["outcome"] == [3.0, 1.0, 1.0]
        for wrong, words in (
            ({"reward": {"clik": 1}}, "no metric 'clik'"),
            ({"reward": {"click": "1"}}, "reward"),
            ({"reward": {"click": 1e13}}, "the weight of 'click'"),
        ):
            with pytest.raises(es.ServiceError, match=words):
                client.configure(**wrong)
        for tell in (client.learn, client.correct, client.add):
            with pytest.raises(es.ServiceError, match="the reward is made of 'click', 'margin'"):
                tell(one, 1.0)
        client.configure(reward={"margin": 1.0})
        assert client.log()["outcome"] == [4.0, 0.0, 2.0]
        until(lambda: client.settings()["reward"] == {"margin": 1.0})
        assert client.lift().decisions == 0
        change = httpx.get(f"{url}/v1/bandits/weighed/changes").json()[-1]
        assert (change["name"], change["value"]) == ("reward", {"margin": 1.0})
        four = client.choose().id
        assert client.expire(0, 0.25) == 1
        assert client.log()["outcome"][3] == 0.25
        client.observe(four, {"margin": 7})
        assert client.log()["outcome"][3] == 7.0


def test_a_process_that_has_not_heard_of_other_weights_yet_goes_by_them_all_the_same(tmp_path):
    one, other = (Decider(Replicas(tmp_path / "b", Options())) for _ in range(2))
    try:
        admin.configure(one.replicas, {"reward": {"click": 1.0}})
        (((made,),), _) = other.work([[Choose(actions=OFFER)]], [])
        other.work([], [[Learn(made.id, {"click": 1.0})]])
        admin.configure(one.replicas, {"reward": {"click": 3.0}, "holdback": 0.5})
        assert other.replicas.weights == {"click": 1.0}
        (((made,),), (flags,)) = other.work(
            [[Choose(actions=OFFER)]], [[Learn(made.id, {"click": 2.0})]]
        )
        assert flags == [True]
        assert made.control is not None
        assert other.replicas.ledger.decision(0).outcome == 6.0
    finally:
        one.replicas.close()
        other.replicas.close()
