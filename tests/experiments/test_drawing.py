"""Figures are drawn beside what still runs: each once its panels are there, and only once."""

import threading
from dataclasses import replace

import pytest
from toy_panels import CURVES

import ensemble_sampling as es
from ensemble_sampling.experiments import Figure, Study, report, runner

LATER = replace(CURVES, name="2a", title="Later")
STUDY = Study("Two", [Figure(1, "one", "", (CURVES,)), Figure(2, "two", "", (LATER,))])


@pytest.fixture
def drawn(monkeypatch):
    """Numbers of figures in the order in which they were drawn."""
    numbers, inner = [], report._draw

    def draw(figure, found, folder):
        numbers.append(figure.number)
        return inner(figure, found, folder)

    monkeypatch.setattr(report, "_draw", draw)
    return numbers


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def test_each_is_drawn_once_and_as_the_report_alone_would(drawn, tmp_path):
    es.experiments.run(STUDY, realizations=4, out=tmp_path, progress=False, say=lambda words: None)
    assert sorted(drawn) == [1, 2]
    first = contents(tmp_path)
    assert {"figure1.png", "figure2.svg", "report.html"} <= first.keys()
    report.build(STUDY, tmp_path)
    assert contents(tmp_path) == first


def test_of_panels_that_are_asked_for_alone_a_figure_is_drawn_without_the_rest(drawn, tmp_path):
    study = Study("One", [Figure(1, "both", "", (CURVES, LATER))])
    quiet = {"realizations": 4, "out": tmp_path, "progress": False, "say": lambda words: None}
    es.experiments.run(study, ["1a"], **quiet)
    assert drawn == [1]
    alone = contents(tmp_path)
    es.experiments.run(study, ["2a"], **quiet)
    assert drawn == [1, 1]
    assert contents(tmp_path)["figure1.png"] != alone["figure1.png"]


def test_drawing_waits_while_something_is_traced(drawn, tmp_path, monkeypatch):
    es.experiments.run(STUDY, realizations=4, out=tmp_path, progress=False, say=lambda words: None)
    drawn.clear()
    busy = threading.Event()
    busy.set()
    monkeypatch.setattr(runner, "tracing", busy.is_set)
    thread = threading.Thread(
        target=runner._drawn, args=(STUDY, tmp_path, STUDY.figures[0]), daemon=True
    )
    thread.start()
    thread.join(0.2)
    assert drawn == []
    busy.clear()
    thread.join(30)
    assert drawn == [1]


def test_what_cannot_be_drawn_is_said_and_the_results_stay(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(report, "_draw", fail)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="no space"):
        es.experiments.run(
            STUDY, realizations=4, out=tmp_path, progress=False, say=lambda words: None
        )
    assert (tmp_path / "1a.json").exists()
    assert (tmp_path / "2a.json").exists()
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if "ThreadPool" in thread.name]
