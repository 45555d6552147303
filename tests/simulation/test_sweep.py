"""A sweep gives every point what a simulation of it alone gives, in one program per structure."""

import sys
import types

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.simulation.programs import _program
from ensemble_sampling.simulation.selection import least
from ensemble_sampling.simulation.sweep import points_of

PERIODS, REALIZATIONS = 20, 12
WORLD = es.GaussianArms(3)


def agent(prior_std, members=4):
    return es.EnsembleSampling(es.IndependentArms(3, 1.0, prior_std=prior_std), members)


def world(noise_std):
    return es.GaussianArms(3, noise_std)


GRID = {"prior_std": [0.5, 1.0, 3.0], "members": [2, 4], "noise_std": [0.5, 2.0]}


def every(result):
    assert result.regret is not None
    return result.regret


def run(**options):
    return es.sweep(agent, world, GRID, PERIODS, REALIZATIONS, seed=5, **options)


@pytest.fixture(scope="module")
def swept():
    return run()


def test_a_grid_is_all_combinations_in_order_and_a_list_is_itself(swept):
    first = [swept.settings[i] for i in (0, 1, 2)]
    assert first == [
        {"prior_std": 0.5, "members": 2, "noise_std": 0.5},
        {"prior_std": 0.5, "members": 2, "noise_std": 2.0},
        {"prior_std": 0.5, "members": 4, "noise_std": 0.5},
    ]
    assert (len(swept), swept.programs) == (12, 2)  # those of other sizes keep their places
    assert [r.settings["agent.posterior.members"] for r in swept] == ["2", "2", "4", "4"] * 3
    assert [r.settings["environment.noise_std"] for r in swept] == ["0.5", "2"] * 6
    assert points_of(swept.settings[3:5]) == [*swept.settings[3:5]]


def test_every_point_has_the_numbers_of_a_simulation_of_it_alone(swept):
    """But for rounding: sums may be ordered otherwise where settings are mapped over."""
    for setting, result in zip(swept.settings, swept, strict=True):
        parts = agent(setting["prior_std"], setting["members"]), world(setting["noise_std"])
        alone = es.simulate(*parts, PERIODS, REALIZATIONS, seed=5, keep=True)
        np.testing.assert_allclose(every(result), every(alone), rtol=0, atol=1e-6)
        for name in ("mean", "stderr", "cumulative_stderr"):
            one, two = getattr(result, name), getattr(alone, name)
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
        assert (result.settings, result.diverged) == (alone.settings, alone.diverged)


def test_points_of_one_structure_are_one_program():
    many = {"prior_std": np.linspace(0.5, 3.0, 60)}
    before = _program.cache_info().misses
    found = es.sweep(agent, WORLD, many, 7, 2)
    assert (len(found), found.programs) == (60, 1)
    assert _program.cache_info().misses == before + 1
    # Other values, whole numbers among them, are no other program.
    assert es.sweep(agent, WORLD, {"prior_std": [0.1, 2, 3] * 20}, 7, 2).programs == 1
    assert _program.cache_info().misses == before + 1


def test_neither_the_chunk_nor_windows_change_a_number(swept):
    odd = run(chunk=7, windows=[(3, 9)])  # chunks that end one point and begin the next
    for one, two in zip(odd, swept, strict=True):
        np.testing.assert_allclose(one.mean, two.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.stderr, two.stderr, rtol=1e-4, atol=1e-6)
    for window in ("final", "cumulative", (3, 9)):
        np.testing.assert_allclose(odd.regret(window), swept.regret(window), rtol=1e-5, atol=1e-6)
    assert odd[0].regret is None
    with pytest.raises(ValueError, match=r"window \(1, 4\) was not kept; there are \(0, 20\)"):
        odd.regret((1, 4))


def test_regret_of_windows_and_paired_differences_are_those_of_a_plain_loop(swept):
    regret = np.stack([np.asarray(every(result), np.float64) for result in swept])
    cases = (("final", regret[:, :, 18:].mean(2)), ("cumulative", regret.sum(2)))
    for window, want in (*cases, ((4, 11), regret[:, :, 4:11].mean(2))):
        np.testing.assert_allclose(swept.regret(window), want, rtol=1e-6)
        mean, error = swept.estimate(window)
        np.testing.assert_allclose(mean, want.mean(1), rtol=1e-6)
        np.testing.assert_allclose(error, want.std(1, ddof=1) / np.sqrt(REALIZATIONS), rtol=1e-6)
        base = {"prior_std": 1.0, "members": 4, "noise_std": 2}
        assert swept.find(base) == 7
        apart = want - want[7]
        mean, error = swept.differences(base, window)
        np.testing.assert_allclose(mean, apart.mean(1), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(error, apart.std(1, ddof=1) / np.sqrt(REALIZATIONS), atol=1e-9)


def test_the_same_worlds_are_met_at_every_point():
    uniform = es.sweep(es.Uniform(), world, {"noise_std": [0.1, 5.0]}, 9, 5)
    assert np.array_equal(every(uniform[0]), every(uniform[1]))  # noise does not move a uniform one


class Stop(Exception):
    pass


def test_an_interrupted_sweep_resumes_to_the_same_bits(swept, tmp_path):
    told = []

    def interrupt(done, total):
        told.append((done, total))
        if done >= 60:
            raise Stop

    with pytest.raises(Stop):
        run(chunk=7, checkpoint=tmp_path, progress=interrupt)
    assert told[0] == (0, 144)
    saved = len(list(tmp_path.rglob("chunk-*.npz")))
    assert 0 < saved < 22
    whole, again = run(chunk=7), []
    resumed = run(chunk=7, checkpoint=tmp_path, progress=lambda *now: again.append(now))
    assert again[0][0] >= 60
    assert again[-1] == (144, 144)
    for one, two in zip(resumed, whole, strict=True):
        assert np.array_equal(every(one), every(two))
        assert np.array_equal(one.mean, two.mean)
    with pytest.raises(ValueError, match="seed: 5 -> 6"):
        es.sweep(agent, world, GRID, PERIODS, REALIZATIONS, seed=6, checkpoint=tmp_path)


def test_a_frame_has_settings_and_regret_as_columns(swept, monkeypatch):
    frame = swept.frame(baseline=0, windows=[(0, 5)])
    assert list(frame.columns) == [
        *GRID,
        *("final", "final_stderr", "cumulative", "cumulative_stderr"),
        *("regret 0-5", "regret 0-5_stderr", "difference", "difference_stderr", "diverged"),
    ]
    assert frame["members"].tolist() == [2, 2, 4, 4] * 3
    np.testing.assert_array_equal(frame["final"], swept.estimate().mean)
    assert frame["difference"][0] == 0
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    plain = swept.frame()
    assert isinstance(plain, dict)
    np.testing.assert_array_equal(plain["cumulative"], frame["cumulative"])


def test_a_sweep_is_one_line_and_a_small_table(swept):
    text = repr(swept)
    assert "\n" not in text
    assert text.startswith("Sweep(12 points: 3 prior_std, 2 members, 2 noise_std; 20 periods, 12 ")
    html = swept._repr_html_()
    assert html.count("<tr>") == 13
    assert html.count("±") == 24
    labels = [result.label for result in swept]
    assert labels[0] == "prior_std 0.5, members 2, noise_std 0.5"
    assert len({*labels}) == 12


def test_a_sweep_is_drawn_against_any_setting(swept):
    figure = swept.plot(x="prior_std", color="members")
    (ax,) = figure.axes
    labels = ax.get_legend_handles_labels()[1]
    assert labels == [f"members {m}, noise_std {n}" for m in (2, 4) for n in ("0.5", "2")]
    lines = [container.lines[0] for container in ax.containers]
    want = swept.estimate().mean.reshape(3, 2, 2)[:, 1, 0]
    np.testing.assert_allclose(lines[2].get_ydata(), want)
    assert lines[0].get_color() == lines[1].get_color() != lines[2].get_color()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert len(swept.plot(x="noise_std", window="cumulative").axes[0].containers) == 6
    assert len(swept.plot().axes[0].lines) == 12
    with pytest.raises(ValueError, match="no setting 'arms'; there are prior_std"):
        swept.plot(x="arms")


def test_a_setting_may_be_anything_a_function_takes():
    agents = {"agent": [es.Uniform(), es.Greedy(es.IndependentArms(3))]}
    found = es.sweep(lambda agent: agent, WORLD, agents, 5, 4)
    assert [result.label for result in found] == [
        "agent Uniform()",
        "agent Greedy(IndependentArms(arms=3))",
    ]
    assert found.plot(x="agent").axes[0].get_xticklabels()[0].get_text() == "Uniform()"


def test_settings_that_are_arrays_differ_by_point():
    many = np.random.default_rng(0).normal(size=(2, 4, 3))
    agent = es.EnsembleSampling(es.Linear(3, 1.0), 3)

    def world(actions):
        return es.LinearBandit(actions=actions)

    found = es.sweep(agent, world, {"actions": list(many)}, 6, 4)
    assert found.programs == 1
    for actions, result in zip(many, found, strict=True):
        alone = es.simulate(agent, world(actions), 6, 4, keep=True)
        np.testing.assert_allclose(every(result), every(alone), atol=1e-5)


class OnHost(es.Uniform):
    """An agent in plain Python: always the same arm."""

    arm: int = eqx.field(static=True)
    host = True

    def act(self, key, state, features, available=None):
        return jnp.int32(self.arm)


def test_agents_on_the_host_are_swept_too():
    found = es.sweep(OnHost, WORLD, {"arm": [0, 2]}, 3, 4)
    for arm, result in zip((0, 2), found, strict=True):
        alone = es.simulate(OnHost(arm), WORLD, 3, 4, keep=True)
        assert np.array_equal(every(result), every(alone))


def test_the_interval_of_the_best_covers_although_it_was_chosen(monkeypatch):
    """Twelve rows that are all worth the same, half of their noise in common: the least of them is
    below the truth, and the plain interval around it misses far more often than it says."""
    rng, rows, count, rounds = np.random.default_rng(0), 12, 40, 400
    covered, naive, kept = 0, 0, 0
    monkeypatch.setattr(sys.modules[least.__module__], "DRAWS", 1000)
    for _ in range(rounds):
        values = rng.normal(size=(rows, count)) + rng.normal(size=count)
        row, mean, low, high, contenders = least(values)
        error = values[row].std(ddof=1) / count**0.5
        covered += low <= 0 <= high
        naive += abs(mean) <= 1.96 * error
        kept += 0 in contenders
    # Three standard errors of a share of 95% over 400 rounds are 3.3%.
    assert covered / rounds > 0.95 - 0.033
    assert kept / rounds > 0.95 - 0.033
    assert naive / rounds < 0.85


def test_contenders_are_told_from_those_that_are_worse_in_the_same_worlds():
    rng = np.random.default_rng(1)
    noise, shared = rng.normal(size=(4, 200)), 30 * rng.normal(size=200)
    row, *_, contenders = least(np.array([[0.0], [0.05], [1.0], [2.0]]) + 0.3 * noise + shared)
    assert row in (0, 1)
    assert {*contenders} <= {0, 1}
    assert least(np.ones((3, 5))) == (0, 1.0, 1.0, 1.0, (0, 1, 2))


def test_the_interval_of_the_only_one_is_students():
    """Of four realizations 3.18 standard errors, where the normal would have 1.96."""
    values = np.array([[1.0, 2.0, 4.0, 9.0]])
    _, mean, low, high, _ = least(values)
    reach = 3.1824 * values.std(ddof=1) / 2
    assert high - mean == pytest.approx(reach, rel=0.1)
    assert mean - low == pytest.approx(reach, rel=0.1)


def test_the_best_point_of_a_sweep_says_who_else_may_be_best(swept):
    best = swept.best
    assert best.point == int(np.argmin(swept.estimate().mean))
    assert best.settings == swept.settings[best.point]
    assert best.point in best.contenders
    assert best.low < best.regret < best.high
    mean, error = (float(x[best.point]) for x in swept.estimate())
    assert best.high - mean > 2.2 * error  # t of 11 degrees for one; more for twelve
    assert repr(best).startswith("Best(prior_std=")
    wide = swept.best_in("cumulative", confidence=0.99)
    assert wide.confidence == 0.99


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"settings": {"prior_std": 1.0}}, TypeError, "list the values of prior_std, .* got 1.0"),
        (
            {"settings": {"prior_std": "abc"}},
            TypeError,
            "list the values of prior_std, .* got 'abc'",
        ),
        ({"settings": {}}, ValueError, "must have values, got none for any name"),
        ({"settings": {"prior_std": []}}, ValueError, r"got none for \['prior_std'\]"),
        ({"settings": []}, ValueError, "at least one point, got none"),
        ({"settings": 3}, TypeError, "dictionary of lists or a list, got 3"),
        ({"settings": [3]}, TypeError, "a point must be a dictionary of settings, got 3"),
        (
            {"settings": [{"prior_std": 1.0}, {"members": 2}]},
            ValueError,
            r"same settings, got \['prior_std'\] and \['members'\]",
        ),
        ({"settings": {"prior_std": [1.0], "k": [1]}}, ValueError, "no function takes the .* k:"),
        ({"settings": {"members": [1]}}, TypeError, "agent needs prior_std, .* has members"),
        ({"agent": 3}, TypeError, "agent must be an agent or a function that makes it, got 3"),
        ({"environment": 3}, TypeError, "environment must be .* function that makes it, got 3"),
        ({"realizations": 1}, ValueError, "realizations must be at least 2, got 1"),
        ({"windows": [(3, 3)]}, ValueError, "last period must be at least 4, got 3"),
        ({"windows": [(0, 9)]}, ValueError, "last period must be less than 6, got 9"),
        ({"windows": [3]}, TypeError, r"must be \(first, last\) in periods, got 3"),
        ({"periods": 10**9}, ValueError, "name the windows to keep"),
        ({"progress": "yes"}, TypeError, "progress must be true, false or a function"),
    ],
)
def test_a_mistake_is_named(change, error, said):
    options = {
        "agent": agent,
        "environment": WORLD,
        "settings": {"prior_std": [1.0, 2.0]},
        "periods": 5,
        "realizations": 2,
    }
    with pytest.raises(error, match=said):
        es.sweep(**(options | change))


def test_what_fails_at_a_point_says_at_which():
    with pytest.raises(ValueError, match="prior_std") as caught:
        es.sweep(agent, WORLD, {"prior_std": [1.0, -2.0]}, 5, 2)
    assert caught.value.__notes__ == ["at the settings prior_std=-2"]


def test_a_window_or_a_point_that_is_not_there_is_named(swept):
    with pytest.raises(ValueError, match=r"'final', 'cumulative' or \(first, last\), got 'last'"):
        swept.regret("last")
    with pytest.raises(ValueError, match="members=2 must be one point, and is 6 of them"):
        swept.differences({"members": 2})
    with pytest.raises(ValueError, match="a point must be less than 12, got 12"):
        swept.differences(12)
    with pytest.raises(ValueError, match="confidence must be between"):
        swept.best_in(confidence=1.0)


def test_bars_show_in_notebooks(monkeypatch):
    """Where ipywidgets is missing, by the browser's own; the notebook is stood in for."""
    import rich.console

    pages = []

    class Handle:
        def update(self, page):
            pages.append(page)

    display = types.ModuleType("IPython.display")
    display.__dict__.update(HTML=str, display=lambda page, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    module = sys.modules["ensemble_sampling.simulation.progress"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    es.sweep(agent, WORLD, {"prior_std": [1.0, 2.0]}, 5, 2)
    assert '2 points <progress value="4" max="4"></progress> 4/4' in pages[-1]
