"""The study of deep exploration: its panels run and are drawn, and its claims can come out."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from typer.testing import CliRunner

import ensemble_sampling as es
from ensemble_sampling import cli
from ensemble_sampling.episodes import DeepSea
from ensemble_sampling.experiments import Unavailable, Verdict, deep
from ensemble_sampling.experiments.deep import agents
from ensemble_sampling.experiments.deep.claims import (
    SIZES,
    effectiveness,
    exponent,
    fewer,
    gain,
    growth,
    learned,
    score,
)
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


def test_a_discovery_is_the_first_episode_that_found_the_reward():
    regret = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1.0]])
    result: Any = SimpleNamespace(regret=regret)
    np.testing.assert_array_equal(deep.FOUND.times(result), (2, 1, np.nan))
    assert [job.item["members"] for job in deep.FOUND.jobs(2, 0)] == [1, 2, 5, 10]


def test_discoveries_are_drawn_with_the_law_and_tabulated():
    data = {**discovered(0.8, 0), "periods": 50}
    ax = Canvas().subplots()
    deep.FOUND.draw(ax, data)
    lines: Any = ax.lines
    points, law = lines[0], lines[3]
    np.testing.assert_allclose(points.get_xdata(), (1, 2, 5, 10, 20))
    shares = np.interp(points.get_xdata(), *law.get_data())
    np.testing.assert_allclose(points.get_ydata(), shares, atol=0.1)
    (text,) = deep.FOUND.tables(data)
    wins = [sum(t is not None for t in each) for each in data["series"][1]["times"]]
    assert "| 2 | " + " | ".join(f"{n} of 200" for n in wins) + " |" in text
    for share in (None, 1):  # no law fits where all or none found it
        every = [{**s, "times": [[share] * 2] * 3} for s in data["series"]]
        deep.FOUND.draw(Canvas().subplots(), {**data, "series": every})


def test_agents_fit_the_worlds_of_their_panels():
    panels = deep.STUDY.panels
    for name in ("dqn-stochastic", "rlsvi-stochastic", "chain", "river", "priors", "found"):
        for job in panels[name].jobs(2, 0):
            job.check()
    assert all(panel.jobs(2, 0) for panel in panels.values())


def results(points, times, label="a") -> dict[str, Any]:
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
    with pytest.raises(Unavailable, match="panel p was run without b"):
        learned(results([1], [[5]]), "p", "b")


def test_a_share_of_the_runs_may_be_enough():
    some = results([100], [[5] * 8 + [None] * 2])
    assert learned(some, "p", "a", 0.8) == (Verdict.HOLDS, "8 of 10 runs at 1 point")
    few = results([100, 101], [[5] * 7 + [None] * 3, [5] * 10])
    assert learned(few, "p", "a", 0.8).text == "17 of 20 runs at 2 points; less than 80% at 100"


def test_the_score_counts_sizes_that_beat_dithering():
    times: Any = [[50, 50] for _ in SIZES]
    assert score(results(list(SIZES), times), "p", "a").verdict == Verdict.HOLDS
    times[0][1] = 2**10 + 100  # one episode too late
    found = score(results(list(SIZES), times), "p", "a")
    assert found == (Verdict.FAILS, "0.976 on average over 2 runs, 0.952 the lowest")
    times[0][1], times[5][0] = 2**10 + 99, None
    assert "0.952 the lowest" in score(results(list(SIZES), times), "p", "a").text
    with pytest.raises(Unavailable, match="all of its sizes"):
        score(results([10, 12], [[1], [1]]), "p", "a")


def test_growth_is_found_again_though_runs_are_cut():
    rng, sizes, cut = np.random.default_rng(1), [4, 5, 6, 7, 8, 9, 10], 500
    drawn = [rng.exponential(3 * 2.0**n, 200) for n in sizes]
    times = [[t if t < cut else None for t in each] for each in drawn]
    data = results(sizes, times)
    data["p"]["periods"] = cut
    found = growth(data, "p", "a")
    assert found.low < 2 < found.high
    assert found.high - found.low < 0.2
    data["p"]["series"][0]["times"] = [[None] * 3] * 7
    with pytest.raises(Unavailable, match="no run learned"):
        growth(data, "p", "a")


def test_shares_are_compared_in_the_same_worlds():
    both = results([1, 2], [[5, 6, 7], [7, 8, 9]])
    worse = results([1, 2], [[None, 6, 7], [None, None, 9]], "b")
    both["p"]["series"] += worse["p"]["series"]
    found = fewer(both, "p", "a", "b")
    gap = np.array([1, 0.5, 0])
    assert found.estimate == pytest.approx(gap.mean())
    middle = gap.sum() / 5
    wide = 2.7764 * (((gap**2).sum() + 1) / 5 - middle**2) ** 0.5 / 5**0.5
    assert found.low == pytest.approx(middle - wide, rel=1e-3)
    assert found.high == 1 < middle + wide


@pytest.mark.parametrize("count", [2, 4, 20])
def test_no_share_differs_by_more_than_all(count):
    """Nor is a difference certain for being the same in all runs."""
    both = results([1], [[5] * count])
    both["p"]["series"] += results([1], [[None] * count], "b")["p"]["series"]
    for pair, sign in ((("a", "b"), 1), (("b", "a"), -1)):
        found = fewer(both, "p", *pair)
        assert -1 <= found.low < found.high <= 1
        assert found.estimate == sign
        assert found.high - found.low > 0.1


def discovered(psi, seed) -> dict[str, Any]:
    rng, sizes = np.random.default_rng(seed), [6, 8, 10]
    series = []
    for members in (1, 2, 5, 10, 20):
        chance = 1 - (1 - psi ** np.array(sizes)) ** members
        times = [[1 if rng.random() < p else None for _ in range(200)] for p in chance]
        series.append({"label": str(members), "members": members, "points": sizes, "times": times})
    return {"series": series}


def test_the_effectiveness_of_members_is_found_again():
    both = {"p": discovered(0.8, 0), "q": discovered(0.7, 1)}
    found = effectiveness(both, "p")
    assert found.low < 0.8 < found.high
    assert found.high - found.low < 0.02
    more = gain(both, "p", "q")
    assert more.low < 0.1 < more.high
    other = effectiveness(both, "q")
    assert more.estimate == pytest.approx(found.estimate - other.estimate)
    down, up = found.estimate - found.low, other.high - other.estimate
    assert more.low == pytest.approx(more.estimate - (down**2 + up**2) ** 0.5)
    with pytest.raises(Unavailable, match="not been run"):
        effectiveness(both, "r")
