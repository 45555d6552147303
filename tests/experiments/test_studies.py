"""A study in a user's own file gets runs, figures and a report by the code that the paper's has."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import code, files
from ensemble_sampling.cli import app
from ensemble_sampling.experiments import Experiment, Figure, Study, regret

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-study.md"
runner = CliRunner()

SMALL = """
import equinox as eqx
import jax.numpy as jnp
import ensemble_sampling as es

class First(eqx.Module):
    label = "always <b>first</b>"
    def init(self, key):
        return ()
    def act(self, key, state, features, available=None):
        return jnp.zeros((), int)
    def update(self, key, state, action, outcome):
        return state
    def probabilities(self, state, features, available=None, key=None):
        return jnp.eye(len(features))[0]

AGENTS = [es.Uniform(), First()]
PANEL = es.experiments.Experiment("small", es.GaussianArms(3), AGENTS, 5, 20, laptop=4)

def alike(results):
    ((uniform, first),) = es.experiments.claims.averages(results, "whole", PANEL)
    return es.experiments.claims.advantage([uniform], [first])

CLAIM = es.experiments.Claim("They differ.", "regret", alike, figure=1)
STUDY = es.experiments.Study("Small", [PANEL], [CLAIM])
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """In an empty folder, and modules forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in {*sys.modules} - before:
        if not getattr(sys.modules[name], "__spec__", None):
            del sys.modules[name]


def run(*arguments):
    return runner.invoke(app, ["run", *arguments])


def test_the_page_on_own_studies_runs_by_the_command(tmp_path):
    block = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    Path("my_study.py").write_text(block[1])
    done = run("my_study.py", "--realizations", "30")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("my_study-results/report.html after ")
    made = {path.name for path in Path("my_study-results").iterdir()}
    assert made == {"arms.json", "figure1.png", "figure1.svg", "report.md", "report.html"}
    text = Path("my_study-results/report.md").read_text()
    assert text.startswith("# Do ten models suffice for ten arms?\n")
    assert "- arms: 30 realizations instead of 2,000." in text
    for claim in ("Ten models beat greed.", "Ten models are as good as the exact posterior"):
        row = next(line for line in text.splitlines() if claim in line)
        assert re.search(r"\| . \*\*(holds|does not hold|cannot tell.*)\*\* \|$", row)


def test_an_own_agent_in_an_own_study_is_simulated_as_any_other():
    Path("small.py").write_text(SMALL)
    assert run("small.py", "small", "--seed", "3", "--out", "out").exit_code == 0
    saved = files.read_json(Path("out/small.json"))
    assert (saved["realizations"], saved["seed"], saved["periods"]) == (20, 3, 5)
    uniform = es.simulate(es.Uniform(), es.GaussianArms(3), 5, 20, seed=3)
    np.testing.assert_allclose(saved["series"][0]["mean"], uniform.mean, rtol=1e-6)
    assert "&lt;b&gt;first&lt;/b&gt;" in Path("out/report.html").read_text()


def test_a_second_run_computes_nothing_and_a_report_alone_takes_an_edited_claim(monkeypatch):
    Path("small.py").write_text(SMALL)
    first = run("small.py", "--scale", "laptop")
    assert "running small (4 realizations)" in first.stderr
    monkeypatch.setattr(regret, "simulate", None)
    again = run("small.py", "--scale", "laptop")
    assert again.exit_code == 0, again.output
    assert again.stderr.startswith("nothing to run")
    Path("small.py").write_text(SMALL.replace("They differ.", "They are not alike."))
    done = runner.invoke(app, ["report", "small-results", "--study", "small.py"])
    assert done.exit_code == 0, done.output
    assert "They are not alike." in Path("small-results/report.md").read_text()


def test_an_edited_agent_does_not_pass_for_the_one_that_was_run():
    Path("small.py").write_text(SMALL)
    assert run("small.py", "--scale", "laptop").exit_code == 0
    Path("small.py").write_text(SMALL.replace("jnp.zeros((), int)", "jnp.ones((), int)"))
    done = run("small.py", "--scale", "laptop")
    assert done.exit_code == 2
    assert "holds other results" in done.stderr
    assert "code" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "x = 1\n",
            r"own.py must define STUDY = es.experiments.Study\(title, \[es.experiments.Experiment",
        ),
        ("STUDY = 3\n", "own.py must define STUDY = es.experiments.Study.*it says STUDY = 3"),
        (SMALL.replace("STUDY =", "OTHER ="), "must define STUDY.*; it has PANEL, which belong"),
        ("import nothing_of_the_kind\n", "own.py, line 1: ModuleNotFoundError: No module named"),
        ("\n\nx = 1 / 0\n", "own.py, line 3: ZeroDivisionError: division by zero"),
        ("def (:\n", "own.py: SyntaxError: invalid syntax"),
        (SMALL.replace("First()]", "3]"), "own.py, line .*: TypeError: agent must have"),
        (
            SMALL.replace("[PANEL]", "[]"),
            "own.py, line 25: ValueError: the study 'Small' has no con",
        ),
        (SMALL.replace('"small"', '"a/b"'), "the name of a panel names its file.*got 'a/b'"),
        (SMALL.replace("[PANEL]", "[PANEL, PANEL]"), "two panels of a study are called small"),
        (
            SMALL.replace("[PANEL]", "[3]"),
            "made of es.experiments.Experiment and other panels, got 3",
        ),
        (SMALL.replace("alike, ", "3, "), "quantity of a claim must be a function of the results"),
        (
            SMALL.replace("es.Uniform()", "es.Greedy(es.Linear(7))"),
            "own.py: panel small, greedy: .*7",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_file_and_nothing_is_written(text, words):
    Path("own.py").write_text(text)
    done = run("own.py")
    assert done.exit_code == 2, done.output
    assert re.search(words, done.stderr), done.stderr
    assert "Traceback" not in done.output
    assert not Path("own-results").exists()


def test_a_file_that_is_missing_or_called_like_a_module_is_refused():
    assert "there is no file nowhere.py" in run("nowhere.py").stderr
    for name in ("numpy.py", "statistics.py"):
        Path(name).write_text(SMALL)
        assert "already; rename the file" in run(name).stderr


def test_a_neighbouring_file_can_be_imported_and_a_file_may_be_loaded_again():
    Path("beside_it.py").write_text("VALUE = 1\n")
    Path("reads.py").write_text("from beside_it import VALUE\n")
    assert code.load("reads.py").VALUE == 1
    Path("reads.py").write_text("VALUE = 2\n")
    assert code.load("reads.py").VALUE == 2
    del sys.modules["beside_it"]


def test_a_study_is_checked_when_it_is_made():
    def panel(name, agents):
        return Experiment(name, es.GaussianArms(2), agents, 10, 20)

    a, b = (panel(name, [es.Uniform()]) for name in "ab")
    assert (a.title, a.laptop, a.late) == ("a", 20, (9, 10))
    study = Study("Two", [a, Figure(7, "b", "", (b,))])
    assert [figure.number for figure in study.figures] == [1, 7]
    assert [*study.panels] == ["a", "b"]
    with pytest.raises(ValueError, match="two figures of a study are called 1"):
        Study("Two", [a, Figure(1, "b", "", (b,))])
    with pytest.raises(ValueError, match="cannot be called '1', which means others"):
        Study("One", [panel("1", a.agents)])
    with pytest.raises(TypeError, match=r"claims must be of es.experiments.Claim, got 3"):
        Study("One", [a], [3])  # type: ignore
    with pytest.raises(TypeError, match=r"'a' needs a list of agents, got \(\)"):
        panel("a", ())
    with pytest.raises(TypeError, match=r"study must be an es.experiments.Study, got"):
        es.experiments.run(a)  # type: ignore
    with pytest.raises(ValueError, match="figure 1 has no panels"):
        Figure(1, "", "", ())
