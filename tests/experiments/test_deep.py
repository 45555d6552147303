"""The study of deep exploration: its panels run and are drawn, and its claims can come out."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import cli
from ensemble_sampling.episodes import DeepSea
from ensemble_sampling.experiments import Unavailable, Verdict, deep
from ensemble_sampling.experiments.deep import agents
from ensemble_sampling.experiments.deep.claims import effectiveness, exponent, fewer, learned
from ensemble_sampling.files import read_json

SEA = DeepSea(3)
TIMES = replace(
    deep.RLSVI_SEA, series=[replace(deep.RLSVI_SEA.series[0], points=(2, 3), shapes=(3,))]
)
WALK = replace(deep.VISITS, world=SEA, agent=agents.least_squares(SEA), periods=12)


def test_a_small_study_is_run_drawn_and_reported(tmp_path, monkeypatch):
    small = replace(TIMES, periods=30, name="times"), replace(WALK, name="visits")
    study = replace(deep.STUDY, content=list(small), claims=())
    monkeypatch.setattr(deep, "STUDY", study)
    command = ["deep", "--realizations", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "figure1.png").exists()
    (series,) = read_json(tmp_path / "times.json")["series"]
    direct = es.episodes.simulate(
        agents.least_squares(DeepSea(2, 3)), DeepSea(2, 3), 30, 3, keep=True, progress=False
    )
    np.testing.assert_array_equal(series["times"][0], es.episodes.learning_times(direct))
    (walk,) = read_json(tmp_path / "visits.json")["agents"]
    first = np.array(walk["first"])
    assert first[0, 0] == 0
    assert (first[np.triu_indices(3, 1)] == -1).all()  # no column is beyond its row
    assert "2 | 3 of 3" in (tmp_path / "report.md").read_text()


def test_agents_fit_the_worlds_of_their_panels():
    panels = deep.STUDY.panels
    for name in ("dqn-stochastic", "rlsvi-stochastic", "chain", "members"):
        panels[name].jobs(2, 0)[0].check()
    assert all(panel.jobs(2, 0) for panel in panels.values())


def results(points, times, label="a"):
    return {"p": {"series": [{"label": label, "points": points, "times": times}]}}


def test_the_exponent_is_that_of_a_power():
    points = [10, 20, 40]
    found = exponent(results(points, [[3 * n**1.5] * 4 for n in points]), "p", "a")
    np.testing.assert_allclose(found, 1.5)
    noisy = [[3 * n**1.5 * f for f in (0.8, 1, 1.25)] for n in points]
    low, high = exponent(results(points, noisy), "p", "a")[1:]
    assert low < 1.5 < high
    with pytest.raises(Unavailable, match="not every run learned"):
        exponent(results(points, [[1, 2], [3, None], [4, 5]]), "p", "a")


def test_what_was_learned_is_told_by_point():
    assert learned(results([1, 2], [[5, 6], [7, 8]]), "p", "a").verdict == Verdict.HOLDS
    found = learned(results([1, 2], [[5, 6], [7, None]]), "p", "a")
    assert found == (Verdict.FAILS, "3 of 4 runs at 2 points; not all at 2")


def test_shares_are_compared_in_the_same_worlds():
    both = results([1, 2], [[5, 6, 7], [7, 8, 9]])
    worse = results([1, 2], [[None, 6, 7], [None, None, 9]], "b")
    both["p"]["series"] += worse["p"]["series"]
    found = fewer(both, "p", "a", "b")
    assert found.estimate == pytest.approx(0.5)
    assert found.high - found.estimate == pytest.approx(4.3027 * 0.5 / 3**0.5, rel=1e-3)


def test_the_effectiveness_of_members_is_found_again():
    rng, members, psi = np.random.default_rng(0), [1, 2, 5, 10, 20], 0.8
    chance = 1 - (1 - psi**10) ** np.array(members)
    times = [[1 if rng.random() < p else None for _ in range(400)] for p in chance]
    found = effectiveness(results(members, times), "p", "a", 10)
    assert found.low < psi < found.high
    assert found.high - found.low < 0.03
