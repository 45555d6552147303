"""What a bandit earns, for whom and at whose expense, over HTTP and in the client."""

# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false

import re
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
from ensemble_sampling.serve import updater
from ensemble_sampling.serve.decider import Decider
from ensemble_sampling.serve.replicas import Replicas
from ensemble_sampling.serve.types import Choose

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
        assert (found.decisions, found.control.value, len(found.parts)) == (150, 0.0, 1)
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
        assert who == [None, None, "guardrail", None]


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
    assert np.all([rule["labels"]["severity"] in ("warning", "critical") for rule in rules])


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
