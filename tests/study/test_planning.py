"""Plans: small ones, start to end, in words, numbers and a picture, from Python and the shell."""

import inspect
import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import files
from ensemble_sampling.cli import app
from ensemble_sampling.study import planning

SETTINGS = ["--arms", "4", "--periods", "60", "--tolerance", "0.1", "--realizations", "300"]
PROBLEM = es.IndependentArms(4, 1.0), es.GaussianArms(4), 60


@pytest.fixture(scope="module")
def small():
    return es.plan(*PROBLEM, tolerance=0.1, realizations=300)


def test_a_plan_says_how_many_members_and_why(small):
    text, size = str(small), small.size
    assert size.low <= small.members <= size.high
    assert text.startswith(f"{small.members} members (95% range {size.low} to {size.high})")
    assert f"within 0.1 of Thompson sampling's {size.thompson:.4f}" in text
    asked = es.theory.members_for_loss(dim=4, arms=4, periods=60, epsilon=0.1)
    assert f"asks for {asked:,} members" in text
    assert small.decision_seconds > 0
    state = es.EnsembleSampling(es.IndependentArms(4, 1.0), small.members).init(jax.random.key(0))
    assert small.decision_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert all(f"{e.members:>6} members {e.difference:8.4f}" in text for e in size.evaluated)
    assert "± is one standard error" in text
    assert small.warning == es.theory.too_few_members(4, small.members)
    warned = replace(small, warning=es.theory.too_few_members(6, 1))
    assert "Warning: M = 1 in d = 6 dimensions" in str(warned)
    assert "Warning" not in str(replace(small, warning=None))


def gaps(found):
    return {e.members: e.difference for e in found.size.evaluated}


def test_the_size_a_plan_recommends_is_itself_measured_to_be_within_the_tolerance(
    small, monkeypatch
):
    assert gaps(small)[small.members] <= 0.1
    line = replace(small.size, members=2, high=2)  # as of a line that is too low there
    monkeypatch.setattr(planning, "smallest_ensemble", lambda *_: line)
    found = es.plan(*PROBLEM, tolerance=0.1, realizations=300)
    assert gaps(found)[2] > 0.1
    assert 2 < found.members <= found.size.high
    assert gaps(found)[found.members] <= 0.1
    assert found.curves[1].label == f"{found.members} models"
    with pytest.raises(ValueError, match="3 members are not enough"):
        es.plan(*PROBLEM, tolerance=0.01, realizations=300, most=3)


def test_tolerance_and_realizations_are_told_apart_by_name():
    with pytest.raises(TypeError, match="positional"):
        es.plan(*PROBLEM, 0.1, 300)  # pyright: ignore[reportCallIssue]
    assert [*inspect.signature(es.plan).parameters][3:6] == ["tolerance", "realizations", "seed"]


def test_a_plan_shows_the_curves_of_its_own_ensemble(small):
    thompson, ensemble = small.curves
    assert (thompson.label, ensemble.label) == ("Thompson sampling", f"{small.members} models")
    assert len(thompson.mean) == len(ensemble.mean) == 60
    assert thompson.mean[-1] == pytest.approx(small.size.thompson)
    agent = es.EnsembleSampling(es.IndependentArms(4, 1.0), small.members)
    alone = es.simulate(agent, es.GaussianArms(4), 60, 300)
    np.testing.assert_allclose(alone.mean, ensemble.mean, rtol=1e-6)


def test_a_plan_is_saved_as_text_json_and_pictures_and_the_command_gives_the_same(small, tmp_path):
    small.save(tmp_path / "here")
    saved = files.read_json(tmp_path / "here" / "plan.json")
    assert saved == json.loads(json.dumps(small.data()))
    assert (saved["members"], saved["tolerance"], saved["periods"]) == (small.members, 0.1, 60)
    assert (tmp_path / "here" / "plan.txt").read_text(encoding="utf-8") == f"{small}\n"
    assert (tmp_path / "here" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "here" / "plan.svg").read_text(encoding="utf-8")
    out = tmp_path / "there"
    done = CliRunner().invoke(app, ["plan", *SETTINGS, "--json", "--out", str(out)])
    assert done.exit_code == 0, done.output
    told, varying = json.loads(done.stdout), ("decision_seconds", "seconds", "sha256")
    assert all(told[name] == saved[name] for name in saved if name not in varying)
    assert sorted(p.name for p in out.iterdir()) == [
        f"plan.{kind}" for kind in ("json", "png", "svg", "txt")
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tolerance", "-1"], "tolerance must be greater than 0, got -1"),
        (["--tolerance", "0"], "tolerance must be greater than 0, got 0"),
        (["--arms", "0"], "arms must be at least 1, got 0"),
        (["--noise-std", "0"], "noise_std must be greater than 0, got 0"),
        (["--periods", "0"], "periods must be at least 1, got 0"),
        (["--realizations", "1"], "realizations must be at least 2, got 1"),
        (["--most", "1000000000"], "GiB of memory, and there are"),
        (["--most", "10000000000"], "most must be less than"),
        (["--dim", "0"], "dim must be at least 1, got 0"),
    ],
)
def test_the_command_says_what_was_asked_wrongly(words, says, tmp_path):
    done = CliRunner().invoke(app, ["plan", *SETTINGS, *words, "--out", str(tmp_path / "plan")])
    assert done.exit_code == 2
    assert says in done.output
    assert not (tmp_path / "plan").exists()
