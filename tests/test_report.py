"""The report says what the results say: verdicts, figures and pages, from results made up here."""

import re
from importlib import import_module
from xml.etree import ElementTree

import numpy as np
import pytest

from ensemble_sampling import files
from ensemble_sampling.paper import FIGURES, PANELS, Curves, Gaps, Paths, claims, figures, report
from ensemble_sampling.paper.claims import CLAIMS, Interval, Verdict
from ensemble_sampling.simulate import numbers
from ensemble_sampling.study import sizing, theory

REALIZATIONS = 50

# Late regret of every agent, as the paper has it.
AS_CLAIMED = {
    "1a": (1.0, 5.0, 4.0, 3.0, 2.0),
    "2a": (300.0, 310.0, 320.0, 290.0, 280.0, 270.0),
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
        if isinstance(panel, Curves):
            found[name]["windows"] = [list(window) for window in panel.windows]
            found[name]["series"] = [
                series(agent.label, level, panel.windows, panel.periods, rng)
                for agent, level in zip(panel.agents, levels[name], strict=True)
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
    for claim in CLAIMS:
        interval = claim.quantity(found)
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
    interval = claims.exponent({"1b": {"points": points}}, "1b")
    np.testing.assert_allclose(interval, 0.5, rtol=1e-12)


def test_approaching_from_below_counts_as_approaching():
    rng = np.random.default_rng(3)
    target, *sequence = (level + 0.1 * rng.normal(size=100) for level in (5.0, 1.0, 8.0, 4.0, 5.5))
    assert claims.approach(target, sequence).low > 0


def test_panels_of_different_worlds_are_not_compared(claimed):
    found = {**claimed, "2b": {**claimed["2b"], "seed": 1}}
    text = report.markdown(found)
    assert "not computed: panels 2a, 2b were run with different seeds" in text


def test_panels_are_compared_in_the_worlds_they_share(claimed):
    short = {
        **claimed["2b"],
        "series": [
            {**s, "averages": [row[:20] for row in s["averages"]]} for s in claimed["2b"]["series"]
        ],
    }
    greedy, ensembles = claims.averages({**claimed, "2b": short}, "late", "2a", "2b")
    assert {len(values) for values in (*greedy, *ensembles)} == {20}


def test_a_missing_panel_leaves_its_claims_open(claimed):
    text = report.markdown({"1a": claimed["1a"]})
    assert "**holds**" in text
    assert "not computed: panel 1b has not been run" in text
    assert "- 2b: not run." in text


def test_the_report_says_what_was_reduced_and_what_deviates(claimed):
    text = report.markdown(claimed)
    assert "- 1b: 50 realizations instead of 10,000." in text
    for deviation in ("withdrew", "divided by the number", "published gradient", "diverge"):
        assert deviation in text
    full = {name: {**d, "realizations": PANELS[name].realizations} for name, d in claimed.items()}
    assert "Nothing: every panel has the published number" in report.markdown(full)


def test_diverged_members_are_counted_in_the_report(claimed):
    last = {**claimed["3d"]["series"][-1], "diverged": 1234}
    found = {**claimed, "3d": {**claimed["3d"], "series": [*claimed["3d"]["series"][:-1], last]}}
    assert "3d 50 models: 1,234" in report.markdown(found)
    assert "over all realizations: none" in report.markdown(claimed)


def test_published_values_stand_beside_ours(claimed):
    text = report.markdown(claimed)
    assert "| Thompson sampling | published | 1.835 | 0.368 | 0.176 | 0.118 | 0.071 |" in text
    assert re.search(r"\| 200 \| 99 \| 99 \| 97 to 101 \|", text)


def test_the_report_is_built_without_running_anything(claimed, tmp_path, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("the report ran something")

    monkeypatch.setattr(import_module("ensemble_sampling.simulate"), "_program", forbidden)
    monkeypatch.setattr(sizing, "smallest_ensemble", forbidden)
    save(claimed, tmp_path)
    assert report.build(tmp_path) == tmp_path / "report.html"
    made = {path.name for path in tmp_path.iterdir()} - {f"{name}.json" for name in PANELS}
    pictures = {f"figure{n}.{kind}" for n in (1, 2, 3, 4) for kind in ("png", "svg")}
    assert made == pictures | {"report.md", "report.html"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "<link" not in page
    assert "<script" not in page
    for n in (1, 2, 3, 4):
        ElementTree.parse(tmp_path / f"figure{n}.svg")


def test_the_same_results_give_the_same_files(claimed, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in ("a", "b"):
        save({"1a": claimed["1a"]}, tmp_path / folder)
        report.build(tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_legends_name_every_series_in_a_style_of_its_own(claimed):
    for figure in FIGURES:
        axes = figures.draw(figure, claimed).axes
        for ax, panel in zip(axes, figure.panels, strict=True):
            if not isinstance(panel, Curves) or isinstance(panel, Gaps):
                continue
            lines = [
                line for line in ax.lines if line.get_label() in {a.label for a in panel.agents}
            ]
            assert [line.get_label() for line in lines] == [a.label for a in panel.agents]
            assert len({str(line.get_marker()) for line in lines}) == len(lines)
            assert len({line.get_color() for line in lines}) == len(lines)


def test_losses_are_shown_beside_the_bound_and_marked_as_ours(claimed):
    """Levels are those at the end of a fall from 1.2 times as much: 1.1 times on average."""
    panel = PANELS["4b"]
    assert isinstance(panel, Gaps)
    rows = figures.gaps(panel, claimed["4b"], panel.whole)
    np.testing.assert_array_equal(rows[:, 0], panel.members)
    for (_, loss, error), level in zip(rows, OURS["4b"][1:], strict=True):
        assert loss == pytest.approx(1.1 * (level - OURS["4b"][0]), abs=5 * error)
    ax = figures.draw(FIGURES[-1], claimed).axes[1]
    bound = next(line for line in ax.lines if str(line.get_label()).startswith("bound"))
    np.testing.assert_allclose(
        np.asarray(bound.get_ydata()), [theory.added_loss(50, 50, 2000, m) for m in panel.members]
    )
    text = report.markdown(claimed)
    assert "## Figure 4 (ours, not the paper’s)" in text
    assert "| 5 models | 0.500 ± 0.010 | 0.200 ± 0.010 | 0.125 ± 0.010 |" in text
    assert f"| 64 | {rows[-1, 1]:.4f} ± {rows[-1, 2]:.4f} |" in text


def test_a_damaged_file_is_named_and_left_out(claimed, tmp_path):
    save(claimed, tmp_path)
    (tmp_path / "2a.json").write_text("{")
    told = []
    found = report.load(tmp_path, told.append)
    assert sorted(found) == sorted({*PANELS} - {"2a"})
    assert len(told) == 1
    assert "2a.json is damaged" in told[0]


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results; expected some of 1a\.json"):
        report.build(tmp_path)


def test_a_verdict_needs_the_whole_interval_on_one_side():
    claim = claims.Claim(1, "", "", lambda found: Interval(0, 0, 0), threshold=1.0)
    below = claims.Claim(1, "", "", lambda found: Interval(0, 0, 0), threshold=1.0, above=False)
    for interval, verdict, opposite in (
        (Interval(2.0, 1.1, 3.0), Verdict.HOLDS, Verdict.FAILS),
        (Interval(0.5, 0.1, 0.9), Verdict.FAILS, Verdict.HOLDS),
        (Interval(2.0, 0.9, 3.0), Verdict.UNCLEAR, Verdict.UNCLEAR),
    ):
        assert claim.verdict(interval) == verdict
        assert below.verdict(interval) == opposite
