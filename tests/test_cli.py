"""The command line: thin, quiet off the terminal, and plain about mistakes."""

import pytest
import toy_panels
from typer.testing import CliRunner

from ensemble_sampling.cli import app
from ensemble_sampling.paper import reproduce as running

runner = CliRunner()


@pytest.fixture
def toy(monkeypatch):
    toy_panels.install(monkeypatch.setattr)


def test_reproduce_writes_results_figures_and_report_and_says_where(toy, tmp_path):
    out = tmp_path / "out"
    done = runner.invoke(app, ["reproduce", "1a", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert done.stdout.startswith(str(out / "report.html"))
    names = {path.name for path in out.iterdir()}
    assert names == {"1a.json", "figure1.png", "figure1.svg", "report.md", "report.html"}


def test_no_report_saves_results_alone_and_report_adds_the_rest(toy, tmp_path, monkeypatch):
    done = runner.invoke(app, ["reproduce", "1a", "--no-report", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [path.name for path in tmp_path.iterdir()] == ["1a.json"]
    monkeypatch.setattr(running, "simulate", None)
    done = runner.invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "7x"], "there is no panel '7x'; accepted are 1a, 1b"),
        (["reproduce", "--realizations", "0"], "realizations must be at least 2, got 0"),
        (["reproduce", "--scale", "moon"], "'moon' is not one of 'laptop', 'paper'"),
        (["report", "nowhere"], "nowhere holds no results"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_commands():
    done = runner.invoke(app, ["--help"])
    assert done.exit_code == 0
    assert "reproduce" in done.stdout
    assert "report" in done.stdout
