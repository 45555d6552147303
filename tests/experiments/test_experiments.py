"""The declared panels are the paper's, and running them survives whatever interrupts it."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import toy_panels

import ensemble_sampling as es
from ensemble_sampling import files
from ensemble_sampling.experiments import Experiment, Study, ensembles, paper, regret, runner
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


@pytest.fixture
def toy(monkeypatch):
    toy_panels.install(monkeypatch.setattr)


def reproduce(names=(), realizations="laptop", **options):
    """As the command does."""
    runner.compute(paper.STUDY, names, realizations, **options)


def numbers(path):
    """What the results say, but for when and how fast they were made."""
    return {name: value for name, value in files.read_json(path).items() if name not in CHANGING}


def forbidden(*args, **kwargs):
    raise AssertionError("nothing should have been run")


def test_the_panels_are_those_of_the_paper():
    declared = {
        name: (
            panel.periods,
            panel.realizations,
            panel.labels if isinstance(panel, Experiment) else [*getattr(panel, "arms", ())],
        )
        for figure in STUDY.figures
        if not figure.remark
        for name, panel in ((p.name, p) for p in figure.panels)
    }
    assert declared == PAPER


@pytest.mark.parametrize("name", [n for n, p in PANELS.items() if isinstance(p, Experiment)])
def test_every_declared_agent_fits_its_environment(name):
    panel = PANELS[name]
    assert isinstance(panel, Experiment)
    for agent in panel.agents:
        check_parts(agent, panel.environment)


def test_no_panel_at_laptop_scale_is_larger_than_published():
    assert all(2 <= panel.laptop <= panel.realizations for panel in PANELS.values())


def test_panels_are_chosen_by_name_figure_or_all():
    def names(*given):
        return sorted(panel.name for panel in runner.select(STUDY, given))

    assert names() == names("all") == sorted(PANELS)
    assert names("2") == ["2a", "2b"]
    assert names("3c", "1", "1a") == ["1a", "1b", "3c"]
    with pytest.raises(ValueError, match=r"no panel '5'; accepted are 1a, 1b.*4b, 1, 2, 3, 4, all"):
        runner.select(STUDY, ["1a", "5"])


def test_the_cheapest_panel_comes_first():
    assert runner.select(STUDY)[0].name == "1a"


def test_results_say_what_was_run_and_what_came_out(toy, tmp_path):
    reproduce(out=tmp_path, seed=3)
    saved = files.read_json(tmp_path / "1a.json")
    assert saved["panel"] == "1a"
    assert saved["environment"]["arms"] == 3
    assert (saved["periods"], saved["realizations"], saved["seed"]) == (20, 30, 3)
    assert saved["seconds"] > 0
    assert saved["versions"]["jax"]
    assert saved["device"]
    assert [s["label"] for s in saved["series"]] == ["uniform", "greedy", "2 models"]
    for agent, series in zip(toy_panels.CURVES.agents, saved["series"], strict=True):
        run = es.simulate(agent, toy_panels.CURVES.environment, 20, 30, seed=3, keep=True, chunk=2)
        np.testing.assert_allclose(series["mean"], run.mean, rtol=1e-6)
        np.testing.assert_allclose(series["stderr"], run.stderr, rtol=1e-6)
        assert series["diverged"] == 0
        assert run.regret is not None
        for (first, last), averages in zip(saved["windows"], series["averages"], strict=True):
            np.testing.assert_allclose(averages, run.regret[:, first:last].mean(axis=1), rtol=1e-5)
    sizes = files.read_json(tmp_path / "1b.json")
    for arms, point in zip((2, 3), sizes["points"], strict=True):
        assert point["arms"] == arms
        assert 1 <= point["low"] <= point["members"] <= point["high"]
        assert point["threshold"] == pytest.approx(point["thompson"] + 0.2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1a.json", "1b.json"]


def test_finished_panels_are_not_run_again_unless_forced(toy, tmp_path, monkeypatch):
    finished = []
    reproduce(["1a"], out=tmp_path, finished=lambda panel: finished.append(panel.name))
    before = numbers(tmp_path / "1a.json")
    with monkeypatch.context() as patch:
        patch.setattr(regret, "simulate", forbidden)
        reproduce(["1a"], out=tmp_path)
        with pytest.raises(AssertionError, match="nothing should"):
            reproduce(["1a"], out=tmp_path, force=True)
    reproduce(["1a"], out=tmp_path, force=True)
    assert numbers(tmp_path / "1a.json") == before
    assert finished == ["1a"]


def test_other_settings_do_not_silently_replace_results(toy, tmp_path):
    reproduce(["1a"], out=tmp_path)
    with pytest.raises(ValueError, match=r"(?s)1a\.json holds other results.*seed: 0 -> 1"):
        reproduce(["1a"], seed=1, out=tmp_path)
    reproduce(["1a"], seed=1, out=tmp_path, force=True)
    assert files.read_json(tmp_path / "1a.json")["seed"] == 1


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
def test_a_damaged_file_is_named_and_computed_again(toy, tmp_path, harm):
    reproduce(["1a"], out=tmp_path)
    path, told = tmp_path / "1a.json", []
    before = numbers(path)
    path.write_text(harm(path.read_text()))
    reproduce(["1a"], out=tmp_path, say=told.append)
    assert f"{path} is damaged" in told[0]
    assert len(told) == 3  # and what is run, and that it is done
    assert numbers(path) == before


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import toy_panels
from ensemble_sampling.experiments import regret
from ensemble_sampling.experiments import runner
toy_panels.install()
simulate = regret.simulate

def killing(agent, *args, progress, **kwargs):
    def report(done, total):
        progress(done, total)
        if agent.label == "2 models" and done:
            os.kill(os.getpid(), signal.SIGKILL)

    return simulate(agent, *args, progress=report, **kwargs)

regret.simulate = killing
runner.compute(toy_panels.STUDY, ["1a"], "laptop", out={out!r})
"""


def test_after_kill_9_it_continues_and_gives_the_same_numbers(toy, tmp_path, monkeypatch):
    out, tests = tmp_path / "killed", Path(__file__).parent
    script = KILLED.format(tests=str(tests), out=str(out))
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "1a.json").exists()
    saved = len(list((out / "unfinished" / "1a").glob("*.json")))
    assert saved in (1, 2), "two jobs run at a time, so the third began after one was saved"

    ran, simulate = {}, regret.simulate

    def counting(agent, *args, progress, **kwargs):
        done = []
        result = simulate(agent, *args, progress=lambda n, total: done.append(n), **kwargs)
        ran[agent.label] = done[0]
        return result

    monkeypatch.setattr(regret, "simulate", counting)
    reproduce(["1a"], out=out)
    assert len(ran) == 3 - saved, "what was saved before the kill is not run again"
    assert ran["2 models"] > 0, "nor are single chunks"
    reproduce(["1a"], out=tmp_path / "whole")
    again, whole = (files.read_json(tmp_path / n / "1a.json") for n in ("killed", "whole"))
    for ours, theirs in zip(again["series"], whole["series"], strict=True):
        assert ours["averages"] == theirs["averages"]
        np.testing.assert_allclose(ours["mean"], theirs["mean"], rtol=2e-7)
    assert not (out / "unfinished" / "1a").exists()


def test_when_one_job_fails_the_others_stop_and_what_is_done_stays(toy, tmp_path, monkeypatch):
    simulate = regret.simulate

    def failing(agent, *args, **kwargs):
        if agent.label == "2 models":
            raise OSError("the disk is full")
        return simulate(agent, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(regret, "simulate", failing)
        with pytest.raises(OSError, match="disk is full"):
            reproduce(["1a"], out=tmp_path)
    assert not (tmp_path / "1a.json").exists()
    reproduce(["1a"], out=tmp_path)
    reproduce(["1a"], out=tmp_path / "whole")
    again, whole = (files.read_json(f / "1a.json") for f in (tmp_path, tmp_path / "whole"))
    assert again["series"] == whole["series"]


def test_an_interrupted_run_leaves_its_simulations():
    stop = Event()
    runner._unless(stop, lambda done, total: None, 1, 2)
    stop.set()
    with pytest.raises(InterruptedError):
        runner._unless(stop, lambda done, total: None, 2, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"realizations": 1}, "realizations must be at least 2, got 1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"realizations": "desk"}, "a number, 'full' or 'laptop', got 'desk'"),
        ({"names": ["9z"]}, "no panel '9z'"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        reproduce(out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_side_by_side_on_an_accelerator_gives_the_same_results(toy, tmp_path, monkeypatch):
    """The threaded path, which accelerators take, run here on the CPU."""
    reproduce(["1a"], out=tmp_path / "turn")
    with monkeypatch.context() as patch:
        patch.setattr(runner.jax, "default_backend", lambda: "elsewhere")
        reproduce(["1a"], out=tmp_path / "side")
    turn, side = (numbers(tmp_path / f / "1a.json") for f in ("turn", "side"))
    assert {**turn, "series": []} == {**side, "series": []}
    for one, other in zip(turn["series"], side["series"], strict=True):
        np.testing.assert_allclose(one["mean"], other["mean"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(one["averages"], other["averages"], rtol=0, atol=1e-5)


def test_a_figure_that_could_not_be_drawn_meanwhile_is_drawn_at_the_end(tmp_path, monkeypatch):
    drawn, begun = runner._drawn, []

    def slowly(*given):
        begun.append(given)
        time.sleep(3)
        return drawn(*given)

    monkeypatch.setattr(runner, "_drawn", slowly)
    panels = [dataclasses.replace(toy_panels.CURVES, name=name) for name in ("1a", "2a", "3a")]
    page = runner.run(Study("Three", panels), realizations=4, out=tmp_path, say=lambda _: None)
    assert 1 <= len(begun) < 3
    assert all((tmp_path / f"figure{number}.png").exists() for number in (1, 2, 3))
    assert page.read_text(encoding="utf-8").count("data:image/png") >= 3


def test_off_the_terminal_it_says_what_it_will_do_and_each_panel_that_is_done(toy, tmp_path):
    told = []
    reproduce(out=tmp_path, say=told.append)
    assert told[0] == (
        f"running 1a (30 realizations), 1b (100 realizations); results go to {tmp_path}"
    )
    assert sorted(line[:9] for line in told[1:]) == ["1a: done ", "1b: done "]
    assert told[1].endswith("1 of 2 panels")
    assert told[2].endswith("2 of 2 panels")
    told.clear()
    reproduce(out=tmp_path, say=told.append)
    assert told == [f"nothing to run: the results are in {tmp_path}"]
    (tmp_path / "1b.json").unlink()
    told.clear()
    reproduce(out=tmp_path, say=told.append)
    assert "; 1 are there already;" in told[0]


def test_agents_that_share_a_label_are_told_apart(toy, tmp_path, monkeypatch):
    learner = toy_panels.LEARNER
    agents = (
        es.EnsembleSampling(learner, 2),
        es.EnsembleSampling(learner, 2, inflation=2.0),
        es.EnsembleSampling(learner, 2, es.posteriors.Poisson()),
    )
    panel = dataclasses.replace(toy_panels.CURVES, agents=agents)
    monkeypatch.setattr(paper, "STUDY", Study("A toy", [panel]))
    reproduce(["1a"], out=tmp_path)
    series = files.read_json(tmp_path / "1a.json")["series"]
    assert [s["label"] for s in series] == panel.labels
    assert len(set(panel.labels)) == 3
    assert len({tuple(s["mean"]) for s in series}) == 3


def test_the_committed_results_are_complete_at_paper_scale(tmp_path, monkeypatch):
    """Their records are older than the files the types live in now."""
    shutil.copytree(RESULTS, tmp_path / "results")
    for part in ("simulate", "smallest_ensemble", "trajectory"):
        for module in (regret, ensembles):
            monkeypatch.setattr(module, part, forbidden, raising=False)
    told = []
    reproduce(realizations="full", out=tmp_path / "results", say=told.append)
    assert told == [f"nothing to run: the results are in {tmp_path / 'results'}"]
