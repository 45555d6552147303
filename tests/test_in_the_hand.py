"""What is printed, and shown in notebooks, is short and rounded; what lacks is said with a cure."""

import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling import extras, tables
from ensemble_sampling.intervals import Estimate

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bandit():
    bandit = es.Bandit(es.EnsembleSampling(es.IndependentArms(3), 3), actions=["a", "b", "<c>"])
    for reward in (0.0, 1.0, 1 / 3):
        bandit.learn(bandit.choose(), reward)
    return bandit


def test_everything_in_the_hand_has_a_short_repr_and_one_for_notebooks(bandit, tmp_path):
    agent = "EnsembleSampling(IndependentArms(arms=3), members=3)"
    assert repr(bandit) == f"Bandit(in memory, {agent}, 3 decisions)"
    assert repr(es.Bandit()) == "Bandit(in memory, the default agent, 0 decisions)"
    with es.Bandit.open(tmp_path / "shop", es.Uniform()) as kept:
        pass
    assert re.fullmatch(r"Bandit\('.*shop', Uniform\(\), closed\)", repr(kept))
    decision, seen = bandit.choose(top=2), bandit.predict()
    shown = r"Decision\('.*', probability=\d[.\d]* among 3 actions, ranking=\[.*\], id='.*-3'\)"
    assert re.fullmatch(shown, repr(decision))
    assert re.fullmatch(
        r"Prediction\(probabilities=\[.*\], values=Values\(mean=\[.*\], spread=\[.*\]\)\)",
        repr(seen),
    )
    assert repr(bandit.summary()).startswith("Summary(4 decisions, 1 pending, reward 0.4444, ")
    estimate = Estimate(1 / 3, None, 0.0, 2 / 3)
    assert repr(estimate) == "Estimate(value=0.3333, stderr=None, low=0, high=0.6667)"
    for thing in (bandit, decision, seen, bandit.summary(), estimate, kept):
        assert "<" in thing._repr_html_()
        assert not re.search(r"\d\.\d{6}", repr(thing) + thing._repr_html_())
    assert "&lt;c&gt;" in bandit._repr_html_() or "<c>" not in bandit._repr_html_()


def test_what_is_found_out_about_a_bandit_prints_in_words():
    agent = es.EnsembleSampling(es.Linear(8), 3)
    bandit = es.Bandit(agent, hasher=es.Hasher(8), holdback=0.2, baseline="first")
    offer = {"a": {"x": 1}, "b": {"x": 2}}
    made = [bandit.choose(offer, context={"day": "monday"}) for _ in range(6)]
    for decision in made:
        bandit.learn(decision, 1 / 3)
        bandit.observe(decision, {"margin": 1 / 3})
    log = es.Log([0, 1] * 50, [1.0, 0.0] * 50, propensities=[[0.5, 0.5]] * 100)
    explained = bandit.explain(made[-1])
    found = (bandit.lift(), bandit.metrics()[0], bandit.segments("day"), explained)
    for thing in (*found, es.replay(log, es.Uniform())):
        assert repr(thing) == str(thing)
        assert thing._repr_html_().startswith("<pre>")
        assert "object at" not in repr(thing)
        assert not re.search(r"\d\.\d{7}", repr(thing))
    swept = es.simulation.results.Estimate(np.array([1 / 3, 2.0]), np.array([0.5, 0.1]))
    assert repr(swept) == "Estimate(mean=[0.3333, 2], stderr=[0.5, 0.1])"
    assert "<td>0.3333</td><td>0.5</td>" in swept._repr_html_()
    plan = es.plan(
        es.IndependentArms(2, noise_std=1.0),
        es.GaussianArms(2),
        periods=10,
        tolerance=0.5,
        realizations=100,
    )
    assert repr(plan).startswith(f"Plan({plan.members} members, 95% range ")
    assert plan._repr_html_().startswith("<pre>")


def test_a_table_prints_as_one_and_stands_in_where_there_is_no_data_frame(monkeypatch):
    columns = {"name": ["a", None], "value": [1 / 3, 20.0]}
    assert list(tables.as_frame(columns).columns) == ["name", "value"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert type(tables.as_frame(columns)).__module__.startswith("polars")
    monkeypatch.setitem(sys.modules, "polars", None)
    table = tables.as_frame(columns)
    assert table["value"] == [1 / 3, 20.0]
    assert repr(table) == "name   value\n   a  0.3333\n          20"
    assert "<td>0.3333</td>" in table._repr_html_()
    long = tables.Table(n=range(30))
    assert repr(long).splitlines()[-1] == "... 30 rows in all"
    assert "and 10 more" in long._repr_html_()
    assert tables.series(range(12)) == "[0, 1, 2, 3, 4, 5, 6, 7, ... 12 in all]"


def test_every_extra_has_its_command_and_what_lacks_is_said_with_it(monkeypatch):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["optional-dependencies"]
    for library, extra in extras.EXTRAS.items():
        brought = re.findall(r"'([^']+)'", extras.install(library).partition(" (extra")[0])
        assert sorted(brought) == sorted(declared[extra])
    assert {*extras.EXTRAS.values()} == {*declared} - {"dev", "docs"}
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ImportError, match=r"a client needs httpx: pip install 'httpx>=0\.27'"):
        es.Client("http://localhost:1")


def test_every_evaluation_has_a_best(bandit):
    log = es.Log([0, 1] * 50, [1.0, 0.0] * 50, propensities=[[0.5, 0.5]] * 100)
    found = es.evaluate(log, {"first": [1.0, 0.0], "second": [0.0, 1.0]})
    assert found.best.policy == "first"
    assert found["first"].best == found["first"]["doubly robust"]
    assert "<td>first</td>" in found._repr_html_()
    assert "<td>doubly robust</td>" in found["second"]._repr_html_()
    run = es.replay(log, es.Uniform())
    assert run.best is run.value
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


def test_every_place_that_says_the_version_says_this_one():
    assert f"version: {es.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == es.__version__
    client = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())
    assert client["version"] == es.__version__


def test_the_installation_page_names_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "install.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted({*project["optional-dependencies"]} - {"dev"})
    assert f"ensemble_sampling-{es.__version__}-py3" in page
    for text in (ROOT / "docs").rglob("*.md"):
        assert "install ensemble-sampling" not in text.read_text()  # from no index that has it
        assert "'ensemble-sampling[" not in text.read_text()
