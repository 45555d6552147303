"""The command line: thin, quiet off the terminal, and plain about mistakes."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
import toy_panels
import typer
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import cli
from ensemble_sampling.cli import app
from ensemble_sampling.experiments import regret

runner = CliRunner()


@pytest.fixture
def toy(monkeypatch):
    toy_panels.install(monkeypatch.setattr)


def test_reproduce_writes_results_figures_and_report_and_says_where(toy, tmp_path):
    out = tmp_path / "out"
    done = runner.invoke(app, ["reproduce", "1a", "--out", str(out)])
    assert done.exit_code == 0, done.output
    told = done.stderr.splitlines()
    assert told[0].startswith("running 1a (30 realizations); results go to")
    assert told[1].startswith("1a: done in ")
    assert len(told) == 2
    assert done.stdout.startswith(str(out / "report.html"))
    names = {path.name for path in out.iterdir()}
    assert names == {"1a.json", "figure1.png", "figure1.svg", "report.md", "report.html"}


def test_no_report_saves_results_alone_and_report_adds_the_rest(toy, tmp_path, monkeypatch):
    done = runner.invoke(app, ["reproduce", "1a", "--no-report", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [path.name for path in tmp_path.iterdir()] == ["1a.json"]
    monkeypatch.setattr(regret, "simulate", None)
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
        (["inspect", ""], "expected the path of a folder, got an empty one"),
        (["export", "", "log.csv"], "expected the path of a folder, got an empty one"),
        (["backup", "", "copy"], "expected the path of a folder, got an empty one"),
        (["inspect", "nowhere", "--plot", ""], "plot must name a file"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_alone_it_says_in_five_lines_what_one_can_do():
    done = runner.invoke(app, [])
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 5
    named = re.findall(r"\b[a-z]{3,}\b", " ".join(x[:26] for x in done.stdout.splitlines()[:4]))
    known = {getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert {"serve", "inspect", "evaluate", "reproduce", "run", "plan"} <= known & {*named}


def test_a_missing_library_is_named_with_its_extra(capsys):
    with pytest.raises(typer.Exit), cli._errors():
        raise ModuleNotFoundError(name="psycopg")
    told = "error: this needs psycopg: pip install 'psycopg[binary]>=3.2' (extra 'postgres')\n"
    assert capsys.readouterr().err == told
    for error in (ModuleNotFoundError(name="of_ones_own"), BrokenPipeError()):
        with pytest.raises(type(error)), cli._errors():
            raise error


def test_the_version_and_the_commands_are_said():
    done = runner.invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"ensemble-sampling {es.__version__}\n")
    done = runner.invoke(app, ["--help"])
    assert done.exit_code == 0
    for command in ("reproduce", "run", "report", "inspect", "export", "plan", "serve", "keys"):
        assert command in done.stdout


def test_a_bandit_is_inspected_as_json(tmp_path):
    with es.Bandit.open(tmp_path / "b", es.EnsembleSampling(es.IndependentArms(3), 2)) as bandit:
        decision = bandit.choose()
        bandit.learn(decision.id, 2.5)
        bandit.choose()
    done = runner.invoke(app, ["inspect", str(tmp_path / "b"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["decisions"], told["outcomes"], told["pending"], told["reward"]) == (2, 1, 1, 2.5)
    assert told["shadows"] == []
    assert "decisions  2" in runner.invoke(app, ["inspect", str(tmp_path / "b")]).stdout


MESSAGE = "interrupted; the same command goes on from here"
LONG = ["--arms", "9", "--periods", "200", "--tolerance", "0.03", "--realizations", "1000000"]


def test_ctrl_c_ends_a_plan_with_130_and_keeps_what_is_done(tmp_path):
    """Interrupted while compiled programs run on other threads, once two chunks are saved."""
    out = tmp_path / "plan"
    command = [sys.executable, "-m", "ensemble_sampling.cli", "plan", *LONG, "--out", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while len(list(out.glob("unfinished/*/chunk-*.npz"))) < 2:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=300)
    assert (running.returncode, told.splitlines()) == (130, [MESSAGE])
    assert len(list(out.glob("unfinished/*/chunk-*.npz"))) >= 2


SWALLOWED = """
import gc, os, signal
from ensemble_sampling import cli

def interrupted(phase, info):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # here Python would raise KeyboardInterrupt, and drop it
        pass

with cli._errors():
    gc.callbacks.append(interrupted)
    gc.collect()
print("went on")
"""


def test_ctrl_c_is_heard_also_where_python_drops_exceptions():
    """JAX has a callback of the garbage collector, in which an interrupt used to be lost."""
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (130, "", [MESSAGE])


def test_outside_of_commands_interrupts_are_left_alone(toy, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    runner.invoke(app, ["report", str(tmp_path)])
    assert signal.getsignal(signal.SIGINT) is before
