"""The report says what the results say: verdicts, figures and pages, from results made up here."""

import dataclasses
import os
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from ensemble_sampling import files
from ensemble_sampling.experiments import (
    Experiment,
    Figure,
    Gaps,
    Paths,
    Study,
    claims,
    figures,
    page,
    regret,
    report,
)
from ensemble_sampling.experiments.claims import Claim, Finding, Interval, Verdict
from ensemble_sampling.experiments.paper import PANELS, STUDY, figure1, figure2
from ensemble_sampling.experiments.paper.claims import CLAIMS
from ensemble_sampling.simulation import numbers, programs
from ensemble_sampling.simulation.plot import style
from ensemble_sampling.study import theory

REALIZATIONS = 50
RESULTS = Path(__file__).parents[2] / "results"

# Late regret of every agent, as the paper has it.
AS_CLAIMED = {
    "1a": (1.0, 5.0, 4.0, 3.0, 2.0),
    "2a": (3000.0, 3100.0, 3200.0, 2900.0, 2800.0, 2700.0),
    "2b": (200.0, 100.0, 20.0, 10.0),
    "3a": (30.0, 31.0, 32.0, 33.0),
    "3b": (23.0, 22.0, 20.0, 21.0),
    "3c": (45.0, 43.0, 42.0, 40.0),
    "3d": (12.0, 10.0, 6.0, 5.0),
}
THE_OPPOSITE = {
    "1a": (1.0, 2.0, 3.0, 4.0, 5.0),
    "2a": (5.0, 6.0, 7.0, 8.0, 9.0, 9.5),
    "2b": (10.0, 20.0, 30.0, 40.0),
    "3a": (20.0, 21.0, 22.0, 23.0),
    "3b": (30.0, 31.0, 32.0, 33.0),
    "3c": (10.0, 11.0, 12.0, 13.0),
    "3d": (50.0, 51.0, 52.0, 53.0),
}
OURS = {"4b": (0.1, 0.9, 0.7, 0.5, 0.3, 0.2, 0.15)}
AS_CLAIMED |= OURS
THE_OPPOSITE |= OURS
NO_DIFFERENCE = {name: (20.0,) * len(levels) for name, levels in AS_CLAIMED.items()}
# Ten models equal ε-greedy, and fifty are a tenth: where "orders of magnitude" begins.
NO_DIFFERENCE |= {"2a": (200.0,) * 6, "2b": (200.0, 200.0, 20.0, 20.0)}
A_HUNDREDTH = NO_DIFFERENCE | {"2a": (2000.0,) * 6}
SIZES = {
    "claimed": {arms: (m - 2, m, m + 2) for arms, m in PANELS["1b"].published.items()},  # type: ignore
    "opposite": {arms: (arms**2 - 1, arms**2, arms**2 + 1) for arms in PANELS["1b"].arms},  # type: ignore
    "unclear": {arms: (max(1, arms // 4), arms, 4 * arms) for arms in PANELS["1b"].arms},  # type: ignore
}


def series(label, level, windows, periods, rng):
    """Curves that start at 50 and settle at `level`, which differs between worlds."""
    regret = np.linspace(1.2, 1.0, periods) * (
        level * (1 + 0.2 * rng.normal(size=(REALIZATIONS, 1)))
    )
    mean, stderr = regret.mean(axis=0), regret.std(axis=0, ddof=1) / REALIZATIONS**0.5
    return {
        "label": label,
        "agent": {"type": "made up"},
        "mean": numbers(mean),
        "stderr": numbers(stderr),
        "diverged": 0,
        "averages": numbers(np.stack([regret[:, a:b].mean(axis=1) for a, b in windows])),
    }


def made_up(levels, sizes, seed=0):
    """Results of every panel with the given regret."""
    rng, found = np.random.default_rng(seed), {}
    for name, panel in PANELS.items():
        found[name] = {
            "panel": name,
            "environment": {"type": "made up"},
            "periods": panel.periods,
            "realizations": REALIZATIONS,
            "seed": 0,
            "versions": {"jax": "0"},
            "device": "paper and pencil",
            "seconds": 1.0,
        }
        if isinstance(panel, Experiment):
            found[name]["windows"] = [list(window) for window in panel.windows]
            found[name]["series"] = [
                series(label, level, panel.windows, panel.periods, rng)
                for label, level in zip(panel.labels, levels[name], strict=True)
            ]
        elif isinstance(panel, Paths):
            made = {"label": "5 models", "members": 5, "after": [0, 9, 99]}
            for part in ("kl", "tv", "distinct"):
                made |= {part: [0.5, 0.2, 0.125], f"{part}_stderr": [0.01, 0.01, 0.01]}
            found[name]["paths"] = [made]
        else:
            found[name]["points"] = [
                {
                    "arms": arms,
                    "members": members,
                    "low": low,
                    "high": high,
                    "thompson": 0.01,
                    "threshold": 0.04,
                }
                for arms, (low, members, high) in sizes.items()
            ]
    return found


@pytest.fixture(scope="module")
def claimed():
    return made_up(AS_CLAIMED, SIZES["claimed"])


def markdown(found, study=STUDY):
    return report.markdown(study, found)


def save(found, folder):
    for name, data in found.items():
        files.write_json(folder / f"{name}.json", data)


@pytest.mark.parametrize(
    ("verdict", "levels", "sizes"),
    [
        (Verdict.HOLDS, AS_CLAIMED, "claimed"),
        (Verdict.FAILS, THE_OPPOSITE, "opposite"),
        (Verdict.UNCLEAR, NO_DIFFERENCE, "unclear"),
    ],
)
def test_every_claim_can_come_out_in_each_of_three_ways(verdict, levels, sizes):
    found = made_up(levels, SIZES[sizes])
    at_two_orders = made_up(A_HUNDREDTH, SIZES[sizes]) if verdict is Verdict.UNCLEAR else found
    for claim in CLAIMS:
        interval = claim.quantity(at_two_orders if claim.threshold == 100 else found)
        assert isinstance(interval, Interval)
        assert interval.low <= interval.estimate <= interval.high
        assert claim.verdict(interval) == verdict, (claim.statement, interval)


def test_the_interval_around_the_best_of_each_family_covers_the_truth():
    """Three against four agents in common worlds, the two best of them equal to their rivals.

    Bonferroni covers at least 95%; in 500 trials fewer than 92% would be 3 standard errors off.
    """
    rng, covered = np.random.default_rng(1), 0
    better, worse = np.array([1.0, 1.0, 1.2]), np.array([1.3, 1.3, 1.3, 2.0])
    for _ in range(500):
        world = rng.exponential(size=(40, 1))
        a, b = (
            level * world + 0.3 * rng.normal(size=(40, len(level))) for level in (better, worse)
        )
        interval = claims.advantage([*a.T], [*b.T])
        covered += interval.low <= worse.min() - better.min() <= interval.high
    assert covered >= 0.92 * 500


def test_the_interval_of_a_ratio_covers_the_truth():
    """One comparison: 95% nominal, 3 standard errors of 500 trials below is 92%."""
    rng, covered = np.random.default_rng(2), 0
    for _ in range(500):
        world = rng.exponential(size=200)
        interval = claims.factor(
            world * rng.uniform(0.5, 1.5, 200), [9 * world + rng.normal(size=200)]
        )
        covered += interval.low <= 9.0 <= interval.high
    assert 0.92 * 500 <= covered <= 0.98 * 500


def test_the_growth_exponent_is_that_of_a_power_law():
    arms = np.array([10, 20, 40, 80])
    points = [
        {"arms": a, "members": m, "low": m, "high": m}
        for a, m in zip(arms, 3 * arms**0.5, strict=True)
    ]
    interval = claims.exponent({"1b": {"points": points}}, figure1.MEMBERS)
    np.testing.assert_allclose(interval, 0.5, rtol=1e-12)


def correlated(sign, by_neighbours):
    """How the errors of eight points may go together, all of them alike in size."""
    apart = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    return np.outer(sign, sign) * (by_neighbours**apart)


@pytest.mark.parametrize(
    ("correlation", "most"),
    [
        (np.eye(8), 1.0),
        (correlated(np.ones(8), 0.6), 1.0),
        # Worst of all: every error moves the slope the same way. Then it is exactly 95%.
        (correlated([-1, -1, -1, -1, 1, 1, 1, 1], 1.0), 0.97),
    ],
    ids=["independent", "neighbours", "worst"],
)
def test_the_growth_exponent_is_covered_whatever_the_correlation_of_the_points(correlation, most):
    """Of 1,000 trials at 95% fewer than 93% are 3 standard errors off."""
    rng = np.random.default_rng(4)
    arms = np.geomspace(10, 200, 8)
    errors = rng.multivariate_normal(np.zeros(8), correlation, size=1000, method="svd")
    covered, independent = 0, 0
    weights = np.log(arms) - np.log(arms).mean()
    weights /= (weights**2).sum()
    for error in errors:
        members = 3 * arms**0.6 * np.exp(0.05 * error)
        points = [
            {"arms": a, "members": m, "low": m * np.exp(-0.098), "high": m * np.exp(0.098)}
            for a, m in zip(arms, members, strict=True)
        ]
        found = claims.exponent({"1b": {"points": points}}, figure1.MEMBERS)
        covered += found.low <= 0.6 <= found.high
        independent += abs(found.estimate - 0.6) <= 0.098 * np.linalg.norm(weights)
    assert 0.93 <= covered / 1000 <= most
    if correlation[0, 1] > 0.5:  # adding squares, as if points were independent, covers less
        assert independent / 1000 < 0.9


# Student's t with 5 degrees of freedom: 97.5% and, for five comparisons, 99.5% lie below.
ONE, FIVE = 2.570582, 4.032143
SIX = np.array([0.3, -1.2, 2.5, 0.9, 1.1, -0.4])
HALF = SIX.std(ddof=1) / 6**0.5


def test_an_interval_is_students_and_widened_for_every_comparison():
    zero = np.zeros(6)
    for worse, errors in (([SIX], ONE), ([SIX] * 5, FIVE)):
        found = claims.advantage([zero], worse)
        want = SIX.mean() + errors * HALF * np.array([0, -1, 1])
        np.testing.assert_allclose(found, want, rtol=1e-6)
    np.testing.assert_allclose(
        claims.advantage([zero] * 5, [SIX]), claims.advantage([zero], [SIX] * 5), rtol=1e-12
    )
    steps = claims.improvement([(5 - i) * SIX for i in range(6)])
    np.testing.assert_allclose(steps, SIX.mean() + FIVE * HALF * np.array([0, -1, 1]), rtol=1e-6)


def test_a_ratios_interval_is_students_on_the_log_scale_and_widened_too():
    better, worse = np.full(6, 2.0), 10 + SIX
    relative = worse.std(ddof=1) / 6**0.5 / worse.mean()
    for count, errors in ((1, ONE), (5, FIVE)):
        found = claims.factor(better, [worse] * count)
        ratio = worse.mean() / 2
        want = ratio * np.exp(errors * relative * np.array([0, -1, 1]))
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_approaching_from_below_counts_as_approaching():
    rng = np.random.default_rng(3)
    target, *sequence = (level + 0.1 * rng.normal(size=100) for level in (5.0, 1.0, 8.0, 4.0, 5.5))
    assert claims.approach(target, sequence).low > 0


def test_panels_are_compared_in_the_worlds_they_share_and_not_in_others(claimed):
    other = {**claimed, "2b": {**claimed["2b"], "seed": 1}}
    assert "not computed: panels 2a, 2b were run with different seeds" in markdown(other)
    cut = [{**s, "averages": [row[:20] for row in s["averages"]]} for s in claimed["2b"]["series"]]
    short = {**claimed, "2b": {**claimed["2b"], "series": cut}}
    greedy, ensembles = claims.averages(short, "late", figure2.GREEDY, figure2.ENSEMBLES)
    assert {len(values) for values in (*greedy, *ensembles)} == {20}


def test_the_report_says_what_was_reduced_what_deviates_and_what_is_published(claimed):
    text = markdown(claimed)
    assert "± is one standard error" in text.split("##")[0]
    assert "95% confidence bands" in text.split("##")[0]
    assert "- 1b: 50 realizations instead of 10,000." in text
    for deviation in ("withdrew", "divided by the number", "published gradient", "diverge"):
        assert deviation in text
    assert "| Thompson sampling | 140-175 | 0.368 | " in text
    assert re.search(r"\| 200 \| 99 \| 99 \| 97 to 101 \|", text)
    assert "over all realizations: none" in text
    last = {**claimed["3d"]["series"][-1], "diverged": 1234}
    found = {**claimed, "3d": {**claimed["3d"], "series": [*claimed["3d"]["series"][:-1], last]}}
    assert "3d 50 models: 1,234" in markdown(found)
    full = {name: {**d, "realizations": PANELS[name].realizations} for name, d in claimed.items()}
    assert "Nothing: every panel has its full number" in markdown(full)


def test_the_report_says_what_was_not_run_and_leaves_its_claims_open(claimed):
    text = markdown({"1a": claimed["1a"]})
    assert "**holds**" in text
    assert "not computed: panel 1b has not been run" in text
    assert "- 2b: not run." in text
    sharper = {n: {**claimed[n], "realizations": 10_000} for n in claimed if n[0] in "23"}
    text = markdown(sharper)
    assert "| 10,000 (10 times the full number) |" in text
    assert "Thompson sampling" not in text.split("## Settings")[0]
    assert "The claims about figures that were not run (2) are left out." in text
    assert "- 1a: not run." in text
    assert "realizations instead of" not in text


@pytest.fixture(scope="module")
def built(claimed, tmp_path_factory):
    """A folder with the whole report."""

    def forbidden(*args, **kwargs):
        raise AssertionError("the report ran something")

    folder = tmp_path_factory.mktemp("report")
    save(claimed, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "_program", forbidden)
        assert report.build(STUDY, folder) == folder / "report.html"
    return folder


def test_the_report_is_built_without_running_anything(built):
    made = {path.name for path in built.iterdir()} - {f"{name}.json" for name in PANELS}
    pictures = {f"figure{n}.{kind}" for n in (1, 2, 3, 4) for kind in ("png", "svg")}
    assert made == pictures | {"report.md", "report.html"}
    text = (built / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]{0,30})', text)
    assert len(sources) == len(PANELS)  # one by one, that a phone can show them below each other
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert 'alt="Figure 2, (b) Ensemble sampling"' in text
    assert "<link" not in text
    assert "<script" not in text
    for n in (1, 2, 3, 4):
        ElementTree.parse(built / f"figure{n}.svg")


def test_legends_name_every_series_in_a_style_of_its_own_over_published_ones(claimed):
    for figure in STUDY.figures:
        axes = figures.draw(figure, claimed).axes
        for ax, panel in zip(axes, figure.panels, strict=True):
            if not isinstance(panel, Experiment) or isinstance(panel, Gaps):
                continue
            lines = [line for line in ax.lines if line.get_label() in panel.labels]
            assert [line.get_label() for line in lines] == panel.labels
            assert len({str(line.get_marker()) for line in lines}) == len(lines)
            assert len({line.get_color() for line in lines}) == len(lines)
            grey = [line for line in ax.lines if line.get_color() == regret.GREY["color"]]
            assert {line.get_zorder() for line in grey} == {1.5}  # below lines, which have 2
            theirs = [line for line in grey if len(np.asarray(line.get_xdata()))]
            for line, values in zip(theirs, (panel.published or {}).values(), strict=True):
                np.testing.assert_allclose(np.asarray(line.get_ydata()), [*values.values()])
                middles = [(first + last) / 2 for first, last in values]
                np.testing.assert_allclose(np.asarray(line.get_xdata()), middles)
    assert len({style(i) for i in range(264)}) == 264  # for any number of curves that is drawn


def crowd(claimed, count):
    """Panel 1a with so many agents, whose labels are awkward."""
    names = ["a|b", "<script>alert(1)</script>", "$x_1$", "_hidden", "*bold* & `code`"]
    labels = names + [f"agent {i}" for i in range(count - len(names))]
    first = claimed["1a"]["series"][0]
    series = [{**first, "label": label} for label in labels]
    panel = dataclasses.replace(figure1.REGRET, published=None)
    return panel, labels, {"1a": {**claimed["1a"], "series": series}}


def test_panels_of_regret_in_one_figure_share_a_scale_that_begins_at_zero(claimed):
    (low, high), *others = [ax.get_ylim() for ax in figures.draw(STUDY.figures[2], claimed).axes]
    assert low == 0
    assert high >= 1.2 * 45  # the highest curve of all four panels begins there
    assert others == [(low, high)] * 3


def test_any_number_of_curves_is_drawn_each_in_a_style_of_its_own(claimed):
    panel, labels, found = crowd(claimed, 40)
    (ax,) = figures.draw(Figure(1, "toy", "A toy.", (panel,)), found).axes
    assert len(ax.lines) == 40
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 40
    legend = ax.get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    assert r"\$x_1\$" in shown  # no mathematics
    assert [s.replace(r"\$", "$").strip() for s in shown] == labels


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2)])
def test_a_figure_may_have_any_number_of_panels(claimed, count, rows, columns):
    drawn = figures.draw(Figure(9, "toy", "A toy.", STUDY.figures[2].panels[:count]), claimed)
    assert len(drawn.axes) == count
    assert drawn.get_size_inches().tolist() == [4.5 * columns, 3.5 * rows]


def test_labels_are_shown_as_they_are_in_markdown_and_html(claimed, tmp_path):
    panel, labels, found = crowd(claimed, 7)
    text = "\n\n".join(panel.tables(found["1a"]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1  # no cell was split
    whole = page.html(f"# A <b>title</b>\n\n{text}\n", tmp_path)
    body = whole.split("<body>")[1]
    assert [unescape(cell) for cell in re.findall(r"<tr>\n<td>(.*?)</td>", body)] == labels
    assert "<script" not in whole
    assert "<b>" not in whole
    assert "<title>A &lt;b&gt;title&lt;/b&gt;</title>" in whole
    assert page.plain("one\ntwo") == "one two"


def test_losses_are_shown_beside_the_bound_and_marked_as_ours(claimed):
    """Levels are those at the end of a fall from 1.2 times as much: 1.1 times on average."""
    panel = PANELS["4b"]
    assert isinstance(panel, Gaps)
    rows = panel.losses(claimed["4b"], panel.whole)
    np.testing.assert_array_equal(rows[:, 0], panel.members)
    for (_, loss, error), level in zip(rows, OURS["4b"][1:], strict=True):
        assert loss == pytest.approx(1.1 * (level - OURS["4b"][0]), abs=5 * error)
    ax = figures.draw(STUDY.figures[-1], claimed).axes[1]
    bound = next(line for line in ax.lines if str(line.get_label()).startswith("bound"))
    np.testing.assert_allclose(
        np.asarray(bound.get_ydata()), [theory.added_loss(50, 50, 2000, m) for m in panel.members]
    )
    text = markdown(claimed)
    assert "## Figure 4 (ours, not the paper’s)" in text
    assert "| 5 models | 0.500 ± 0.010 | 0.200 ± 0.010 | 0.125 ± 0.010 |" in text
    assert f"| 64 | {rows[-1, 1]:.4f} ± {rows[-1, 2]:.4f} |" in text


def test_a_damaged_file_is_named_and_left_out_and_nothing_at_all_is_refused(claimed, tmp_path):
    with pytest.raises(ValueError, match=r"holds no results; expected some of 1a\.json"):
        report.build(STUDY, tmp_path)
    save({name: claimed[name] for name in ("1b", "2a")}, tmp_path)
    (tmp_path / "2a.json").write_text("{")
    told = []
    assert [*report.load(STUDY, tmp_path, told.append)] == ["1b"]
    assert len(told) == 1
    assert "2a.json is damaged" in told[0]


def test_the_committed_report_is_that_of_the_committed_results():
    found = report.load(STUDY, RESULTS)
    text = report.markdown(STUDY, found, STUDY.more(RESULTS))
    assert (RESULTS / "report.md").read_text(encoding="utf-8") == text


def test_a_verdict_needs_the_whole_interval_on_one_side():
    claim = Claim("", "", lambda found: Interval(0, 0, 0), threshold=1.0)
    below = Claim("", "", lambda found: Interval(0, 0, 0), threshold=1.0, above=False)
    for interval, verdict, opposite in (
        (Interval(2.0, 1.1, 3.0), Verdict.HOLDS, Verdict.FAILS),
        (Interval(0.5, 0.1, 0.9), Verdict.FAILS, Verdict.HOLDS),
        (Interval(2.0, 0.9, 3.0), Verdict.UNCLEAR, Verdict.UNCLEAR),
    ):
        assert claim.verdict(interval) == verdict
        assert below.verdict(interval) == opposite


def test_the_published_curves_are_of_the_agents_that_are_run():
    for name in ("2a", "2b", "3a", "3b", "3c", "3d"):
        panel = PANELS[name]
        assert isinstance(panel, Experiment)
        assert panel.published is not None
        assert [*panel.published] == panel.labels
        for values in panel.published.values():
            windows = sorted(values)
            assert len(windows) == 20
            assert [a for a, _ in windows] == [0, *(b for _, b in windows[:-1])]
            assert windows[-1][1] == panel.periods
    assert figure2.GREEDY.published["ε = 0.05"][0, 100] == 30.04  # type: ignore
    assert figure2.ENSEMBLES.published["50 models"][1900, 2000] == 0.68  # type: ignore


def test_differences_from_the_published_are_in_errors_of_the_difference(claimed):
    """The last tenth of 2b's is two of the published windows; both have their errors."""
    data, late = claimed["2b"], slice(1800, 2000)
    ours = np.array(data["series"][3]["averages"][1])
    error = ours.std(ddof=1) / REALIZATIONS**0.5
    theirs = (0.715 + 0.68) / 2
    off = ours.mean() - theirs
    both = error * (1 + REALIZATIONS / 1000) ** 0.5
    np.testing.assert_allclose(ours.mean(), np.mean(data["series"][3]["mean"][late]), rtol=1e-5)
    row = (
        f"| 50 models | 1800-2000 | {theirs:.3f} | {ours.mean():.3f} ± {error:.3f} | {off:+.3f} "
        f"| {100 * off / theirs:+.1f}% | {off / both:+.1f} |"
    )
    assert row in markdown(claimed)


def test_differences_in_every_published_window_are_summed_up_in_a_sentence():
    """Two windows of one series: 1 off by 0.5 with errors of 0.1, and not off at all."""
    theirs = {"a": {(0, 2): 1.0, (2, 4): 2.0}}
    settings: Any = {"published": theirs, "published_realizations": None, "kept": ()}
    panel = dataclasses.replace(figure1.REGRET, name="p", periods=4, **settings)
    off = np.array([-1.0, 0.0, 1.0]) * 0.25 * 3**0.5  # of which the standard error is 0.25
    series = {"label": "a", "mean": [1.5, 1.5, 2.0, 2.0], "stderr": [0.1] * 4}
    averages = [(1.75 + off).tolist(), (2.0 + off).tolist()]
    data = {
        "realizations": 3,
        "windows": panel.windows,
        "series": [{**series, "averages": averages}],
    }
    _, shown, told = panel.tables(data)
    assert "| a | 0-4 | 1.500 | 1.750 ± 0.250 | +0.250 | +16.7% | +1.0 |" in shown
    assert "Of all 2 windows that were published, 1 differ by at most two" in told
    assert "the most is +5.0 (a, periods 0-2)" in told
    assert len(shown.splitlines()) == 3  # the last period alone is no whole number of windows


def own(claims=(), label="greedy"):
    """A study of one panel, of agents that say what they are called."""
    panel = dataclasses.replace(figure1.REGRET, name="mine", published=None, kept=())
    series_of = [
        series(name, level, panel.windows, panel.periods, np.random.default_rng(i))
        for i, (name, level) in enumerate(((label, 2.0), ("better", 1.0)))
    ]
    data = made_up(AS_CLAIMED, SIZES["claimed"])["1a"]
    data |= {"windows": [list(w) for w in panel.windows], "series": series_of}
    return Study("Mine & <b>yours</b>", [panel], claims), {"mine": data}


def wrong(found):
    raise ZeroDivisionError("none | of <b>them</b>")


def missing(found):
    raise claims.Unavailable("no <b> results")


def test_claims_may_decide_by_themselves_and_mistakes_in_one_leave_the_report():
    made = [
        Claim("It <b>works</b>.", "by | eye", lambda found: Finding(Verdict.HOLDS, "3 of 3")),
        Claim("It fails.", "", wrong),
        Claim("It is not there.", "", missing),
        Claim("It says nothing.", "", lambda found: 3.0),  # type: ignore
    ]
    text = report.markdown(*own(made))
    assert r"|  | It \<b\>works\</b\>. | by \| eye | 3 of 3 | ✓ **holds** |" in text
    assert r"not computed: ZeroDivisionError: none \| of" in text
    assert r"not computed: no \<b\> results" in text
    assert "must give an Interval or a Finding, got 3.0" in text


def test_nothing_of_the_users_becomes_markup_in_the_page(tmp_path):
    study, found = own([Claim("<b>s", "<b>m", wrong)], label="<b>bold</b><img src=x onerror=a()>")
    save(found, tmp_path)
    report.build(study, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "<img src=x" not in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    assert "<title>Mine &amp; &lt;b&gt;yours&lt;/b&gt;</title>" in text
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    report.build(study, tmp_path)  # the same results give the same files
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_verdicts_are_cards_on_a_phone_and_other_tables_scroll_by_themselves(claimed, tmp_path):
    text = page.html(
        markdown({"1b": claimed["1b"]}).replace("![Figure 1](figure1.png)", ""), tmp_path
    )
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    card = next(row for row in rows if "sublinearly" in row)
    heads = re.findall(r'<td[^>]* data-head="([^"]*)">', card)
    assert heads == ["figure", "claim", "measured", "estimate (95% interval)", "verdict"]
    assert text.count('<table class="cards">') == 1
    assert text.count('<div class="scroll"><table>') == text.count("<table") - 1
    assert "prefers-color-scheme: dark" in text


def test_verdicts_have_a_mark_and_a_colour_and_contents_lead_to_every_section(claimed, tmp_path):
    text = markdown(claimed)
    assert "✓ **holds**" in text
    row = "| 9 | More | a | 1 | {} |\n"
    rest = "".join(map(row.format, ("✗ **does not hold**", "? **cannot tell**")))
    text = text.replace("| 1 | ", f"{rest}| 1 | ", 1)
    shown = page.html(re.sub(r"!\[Figure \d\]\([^)]*\)", "", text), tmp_path)
    for mark, kind in page.MARKS.items():
        cells = re.findall(rf'<td class="{kind}" data-head="verdict">{re.escape(mark)} <', shown)
        assert len(cells) == text.count(f"| {mark} **")
        assert cells
    links, places = (re.findall(rf'{a}"#?([^"]+)"', shown) for a in ("<li><a href=", "<h2 id="))
    assert links == places
    assert {"figure-1", "what-is-claimed-and-what-was-measured", "settings"} <= {*links}


CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_verdicts_are_seen_without_scrolling_sideways(built, scheme):
    from playwright.sync_api import sync_playwright

    places = "(all) => all.map((one) => one.getBoundingClientRect().toJSON())"
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        shown: Any = {"viewport": {"width": 375, "height": 800}, "color_scheme": scheme}
        tab = browser.new_page(**shown)
        tab.goto((built / "report.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == 375
        verdicts = tab.eval_on_selector_all("table.cards td:last-child strong", places)
        assert len(verdicts) == len(CLAIMS)
        assert all(at["left"] >= 0 and at["right"] <= 375 for at in verdicts)
        panels = tab.eval_on_selector_all(".panels img", places)
        assert len(panels) == len(PANELS)
        assert all(at["width"] > 300 for at in panels)  # one below the other
        browser.close()
