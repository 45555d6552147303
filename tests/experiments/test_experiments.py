"""The declared panels are the paper's, and running them survives whatever interrupts it."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import toy_panels
from toy_panels import CURVES

import ensemble_sampling as es
from ensemble_sampling import files
from ensemble_sampling.experiments import (
    Experiment,
    Figure,
    Study,
    ensembles,
    regret,
    report,
    runner,
)
from ensemble_sampling.experiments.paper import PANELS, STUDY
from ensemble_sampling.simulation.programs import check_parts

# Section 5 of the paper: periods, realizations, and the curves of each panel.
PAPER = {
    "1a": (700, 2_000, ["Thompson sampling", "5 models", "10 models", "20 models", "30 models"]),
    "1b": (2_000, 10_000, [10, 20, 30, 50, 70, 100, 150, 200]),
    "2a": (
        2_000,
        1_000,
        ["ε = 0.05", "ε = 0.1", "ε = 0.2"] + [f"ε = {k}/({k}+t)" for k in (50, 150, 300)],
    ),
    "2b": (2_000, 1_000, ["5 models", "10 models", "30 models", "50 models"]),
    "3a": (500, 1_000, ["ε = 0.05", "ε = 0.1", "ε = 0.2", "ε = 0.3"]),
    "3b": (500, 1_000, [f"ε = {k}/({k}+t)" for k in (10, 30, 50, 70)]),
    "3c": (500, 1_000, ["dropout 0.25", "dropout 0.5", "dropout 0.75", "dropout 0.9"]),
    "3d": (500, 1_000, ["5 models", "10 models", "30 models", "50 models"]),
}
CHANGING = {"seconds", "finished"}
RESULTS = Path(__file__).parents[2] / "results"


def run(out, names=("1a",), study=toy_panels.STUDY, **options):
    """Save the results of the toy study at laptop scale, and nothing else."""
    options = {"realizations": "laptop", "report": False, "say": lambda words: None, **options}
    return runner.run(study, names, out=out, **options)


def numbers(folder):
    """What the results say, but for when and how fast they were made."""
    saved = files.read_json(folder / "1a.json")
    return {name: value for name, value in saved.items() if name not in CHANGING}


def forbidden(*args, **kwargs):
    raise AssertionError("nothing should have been run")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the results of all toy panels, and what was said meanwhile."""
    folder, told = tmp_path_factory.mktemp("all"), []
    run(folder, (), seed=3, say=told.append)
    return folder, told


@pytest.fixture
def again(saved, tmp_path):
    """The same folder, to be harmed."""
    return Path(shutil.copytree(saved[0], tmp_path / "again"))


def test_the_panels_are_those_of_the_paper_and_can_be_run():
    declared = {
        panel.name: (
            panel.periods,
            panel.realizations,
            panel.labels if isinstance(panel, Experiment) else [*getattr(panel, "arms", ())],
        )
        for figure in STUDY.figures
        if not figure.remark
        for panel in figure.panels
    }
    assert declared == PAPER
    for panel in PANELS.values():
        assert 2 <= panel.laptop <= panel.realizations
        for agent in panel.agents if isinstance(panel, Experiment) else ():
            check_parts(agent, panel.environment)  # type: ignore


def test_panels_are_chosen_by_name_figure_or_all_and_the_cheapest_comes_first():
    def names(*given):
        return sorted(panel.name for panel in runner.select(STUDY, given))

    assert names() == names("all") == sorted(PANELS)
    assert names("2") == ["2a", "2b"]
    assert names("3c", "1", "1a") == ["1a", "1b", "3c"]
    with pytest.raises(ValueError, match=r"no panel '5'; accepted are 1a, 1b.*4b, 1, 2, 3, 4, all"):
        runner.select(STUDY, ["1a", "5"])
    assert runner.select(STUDY)[0].name == "1a"


def test_results_say_what_was_run_and_what_came_out(saved):
    folder, _ = saved
    assert sorted(path.name for path in folder.iterdir()) == ["1a.json", "1b.json"]
    found = files.read_json(folder / "1a.json")
    assert found["panel"] == "1a"
    assert found["environment"]["arms"] == 3
    assert (found["periods"], found["realizations"], found["seed"]) == (20, 30, 3)
    assert found["seconds"] > 0
    assert found["versions"]["jax"]
    assert found["device"]
    assert [s["label"] for s in found["series"]] == ["uniform", "greedy", "2 models"]
    for agent, series in zip(CURVES.agents, found["series"], strict=True):
        alone = es.simulate(agent, CURVES.environment, 20, 30, seed=3, keep=True, chunk=2)
        np.testing.assert_allclose(series["mean"], alone.mean, rtol=1e-6)
        np.testing.assert_allclose(series["stderr"], alone.stderr, rtol=1e-6)
        assert series["diverged"] == 0
        assert alone.regret is not None
        for (first, last), averages in zip(found["windows"], series["averages"], strict=True):
            expected = alone.regret[:, first:last].mean(axis=1)
            np.testing.assert_allclose(averages, expected, rtol=1e-5)
    sizes = files.read_json(folder / "1b.json")
    for arms, point in zip((2, 3), sizes["points"], strict=True):
        assert point["arms"] == arms
        assert 1 <= point["low"] <= point["members"] <= point["high"]
        assert point["threshold"] == pytest.approx(point["thompson"] + 0.2)


def test_off_the_terminal_it_says_what_it_will_do_and_each_panel_that_is_done(saved, again):
    folder, told = saved
    assert told[0] == (
        f"running 1a (30 realizations), 1b (100 realizations); results go to {folder}"
    )
    assert sorted(line[:9] for line in told[1:]) == ["1a: done ", "1b: done "]
    assert [line[-13:] for line in told[1:]] == ["1 of 2 panels", "2 of 2 panels"]
    (again / "1b.json").unlink()
    said = []
    run(again, (), seed=3, say=said.append)
    assert "; 1 are there already;" in said[0]


def test_finished_panels_are_not_run_again_unless_forced(again, monkeypatch):
    before, told = numbers(again), []
    with monkeypatch.context() as patch:
        patch.setattr(regret, "simulate", forbidden)
        assert run(again, seed=3, say=told.append) == again
        assert told == [f"nothing to run: the results are in {again}"]
        with pytest.raises(ValueError, match=r"(?s)1a\.json holds other results.*seed: 3 -> 1"):
            run(again, seed=1)
        with pytest.raises(AssertionError, match="nothing should"):
            run(again, seed=3, force=True)
    run(again, seed=3, force=True)
    assert numbers(again) == before
    run(again, seed=1, force=True)
    assert numbers(again)["seed"] == 1


def truncate(text):
    return text[: len(text) // 2]


def alter_a_number(text):
    at = text.index('"mean": [') + len('"mean": [')
    return text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]


def drop_the_digest(text):
    data = json.loads(text)
    del data["sha256"]
    return json.dumps(data)


@pytest.mark.parametrize("harm", [truncate, alter_a_number, drop_the_digest, lambda text: "[]"])
def test_a_damaged_file_is_named_and_computed_again(again, harm):
    path, told, before = again / "1a.json", [], numbers(again)
    path.write_text(harm(path.read_text()))
    run(again, seed=3, say=told.append)
    assert f"{path} is damaged" in told[0]
    assert len(told) == 3  # and what is run, and that it is done
    assert numbers(again) == before


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import toy_panels
from ensemble_sampling.experiments import regret
from ensemble_sampling.experiments import runner
simulate = regret.simulate

def killing(agent, *args, progress, **kwargs):
    def report(done, total):
        progress(done, total)
        if agent.label == "2 models" and done:
            os.kill(os.getpid(), signal.SIGKILL)

    return simulate(agent, *args, progress=report, **kwargs)

regret.simulate = killing
runner.run(toy_panels.STUDY, ["1a"], realizations="laptop", seed=3, out={out!r}, report=False)
"""


def test_after_kill_9_it_continues_and_gives_the_same_numbers(saved, tmp_path, monkeypatch):
    out, tests = tmp_path / "killed", Path(__file__).parent
    script = KILLED.format(tests=str(tests), out=str(out))
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "1a.json").exists()
    jobs = len(list((out / "unfinished" / "1a").glob("*.json")))
    assert jobs in (1, 2), "two jobs run at a time, so the third began after one was saved"

    ran, simulate = {}, regret.simulate

    def counting(agent, *args, progress, **kwargs):
        done = []
        result = simulate(agent, *args, progress=lambda n, total: done.append(n), **kwargs)
        ran[agent.label] = done[0]
        return result

    monkeypatch.setattr(regret, "simulate", counting)
    run(out, seed=3)
    assert len(ran) == 3 - jobs, "what was saved before the kill is not run again"
    assert ran["2 models"] > 0, "nor are single chunks"
    for ours, theirs in zip(numbers(out)["series"], numbers(saved[0])["series"], strict=True):
        assert ours["averages"] == theirs["averages"]
        np.testing.assert_allclose(ours["mean"], theirs["mean"], rtol=2e-7)
    assert not (out / "unfinished" / "1a").exists()


def test_when_one_job_fails_the_others_stop_and_what_is_done_stays(saved, tmp_path, monkeypatch):
    simulate = regret.simulate

    def failing(agent, *args, **kwargs):
        if agent.label == "2 models":
            raise OSError("the disk is full")
        return simulate(agent, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(regret, "simulate", failing)
        with pytest.raises(OSError, match="disk is full"):
            run(tmp_path, seed=3)
    assert not (tmp_path / "1a.json").exists()
    run(tmp_path, seed=3)
    assert numbers(tmp_path)["series"] == numbers(saved[0])["series"]
    stop = threading.Event()
    runner._unless(stop, lambda done, total: None, 1, 2)
    stop.set()
    with pytest.raises(InterruptedError):
        runner._unless(stop, lambda done, total: None, 2, 2)


def test_side_by_side_on_an_accelerator_gives_the_same_results(saved, tmp_path, monkeypatch):
    """The threaded path, which accelerators take, run here on the CPU."""
    monkeypatch.setattr(runner.jax, "default_backend", lambda: "elsewhere")
    run(tmp_path, seed=3)
    turn, side = numbers(saved[0]), numbers(tmp_path)
    assert {**turn, "series": []} == {**side, "series": []}
    for one, other in zip(turn["series"], side["series"], strict=True):
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(one["averages"], other["averages"], rtol=0, atol=1e-5)


def test_agents_that_share_a_label_are_told_apart(tmp_path):
    learner = toy_panels.LEARNER
    agents = (
        es.EnsembleSampling(learner, 2),
        es.EnsembleSampling(learner, 2, inflation=2.0),
        es.EnsembleSampling(learner, 2, es.posteriors.Poisson()),
    )
    panel = dataclasses.replace(CURVES, agents=agents)
    run(tmp_path, study=Study("A toy", [panel]))
    series = numbers(tmp_path)["series"]
    assert [s["label"] for s in series] == panel.labels
    assert len(set(panel.labels)) == 3
    assert len({tuple(s["mean"]) for s in series}) == 3


def test_the_committed_results_are_complete_at_paper_scale(tmp_path, monkeypatch):
    """Their records are older than the files the types live in now."""
    shutil.copytree(RESULTS, tmp_path / "results")
    monkeypatch.setattr(regret, "simulate", forbidden)
    for part in ("smallest_ensemble", "trajectory"):
        monkeypatch.setattr(ensembles, part, forbidden)
    told = []
    run(tmp_path / "results", (), STUDY, realizations="full", say=told.append)
    assert told == [f"nothing to run: the results are in {tmp_path / 'results'}"]


LATER = dataclasses.replace(CURVES, name="2a", title="Later")
TWO = Study("Two", [Figure(1, "one", "", (CURVES,)), Figure(2, "two", "", (LATER,))])


@pytest.fixture
def drawn(monkeypatch):
    """Numbers of figures in the order in which they were drawn."""
    order, inner = [], report.draw_figure

    def draw(figure, found, folder):
        order.append(figure.number)
        return inner(figure, found, folder)

    for module in (report, runner):
        monkeypatch.setattr(module, "draw_figure", draw)
    return order


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def test_figures_are_drawn_once_beside_what_still_runs_and_as_the_report_alone_would(
    drawn, tmp_path, monkeypatch
):
    run(tmp_path, (), TWO, realizations=4, report=True)
    assert sorted(drawn) == [1, 2]
    first = contents(tmp_path)
    assert {"figure1.png", "figure2.svg", "report.html"} <= first.keys()
    report.build(TWO, tmp_path)
    assert contents(tmp_path) == first
    drawn.clear()
    busy = threading.Event()
    busy.set()
    monkeypatch.setattr(runner, "tracing", busy.is_set)
    given = (TWO, tmp_path, TWO.figures[0])
    thread = threading.Thread(target=runner._draw_when_idle, args=given, daemon=True)
    thread.start()
    thread.join(0.2)
    assert drawn == []  # while something is traced
    busy.clear()
    thread.join(30)
    assert drawn == [1]


def test_of_panels_that_are_asked_for_alone_a_figure_is_drawn_without_the_rest(drawn, tmp_path):
    study = Study("One", [Figure(1, "both", "", (CURVES, LATER))])
    run(tmp_path, ["1a"], study, realizations=4, report=True)
    assert drawn == [1]
    alone = contents(tmp_path)
    run(tmp_path, ["2a"], study, realizations=4, report=True)
    assert drawn == [1, 1]
    assert contents(tmp_path)["figure1.png"] != alone["figure1.png"]


def test_what_cannot_be_drawn_is_said_and_the_results_stay(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(runner, "draw_figure", fail)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="no space"):
        run(tmp_path, (), TWO, realizations=4, report=True)
    assert (tmp_path / "1a.json").exists()
    assert (tmp_path / "2a.json").exists()
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if "ThreadPool" in thread.name]
