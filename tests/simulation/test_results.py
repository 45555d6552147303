"""A result tells of itself in a line, a table, a figure and a file; curves are never confused."""

import sys

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.files import Damaged
from ensemble_sampling.simulation import Moments
from ensemble_sampling.simulation.plot import blocks, style

WORLD = es.GaussianArms(3)
VECTOR = es.simulation.Result("vector", np.ones((3, 4)), np.ones((3, 4)), 2, 0, 0.0)


def agent(prior_std=1.0):
    return es.EnsembleSampling(es.IndependentArms(3, 1.0, prior_std=prior_std), 4)


def legend(figure):
    shown = figure.axes[0].get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


@pytest.fixture(scope="module")
def result():
    return es.simulate(agent(), WORLD, 30, 24, seed=1, keep=True, chunk=5)


def made(label="a", periods=30, seed=0, settings=None, **more):
    regret = np.random.default_rng(seed).gamma(1.0, size=(8, periods))
    moments, sums = Moments.of(regret), Moments.of(regret, summed=True)
    given = {"agent": "Uniform()"} if settings is None else settings
    return es.simulation.Result(
        label, moments.mean, moments.stderr, 8, 0, 1.5, None, sums.stderr, given, **more
    )


def test_cumulative_regret_has_the_standard_error_of_the_sums(result):
    sums = np.cumsum(result.regret.astype(np.float64), axis=1)
    np.testing.assert_allclose(result.cumulative.mean, sums.mean(0), rtol=1e-12)
    want = sums.std(0, ddof=1) / np.sqrt(24)
    np.testing.assert_allclose(result.cumulative.stderr, want, rtol=1e-9)
    unknown = es.simulation.Result("a", np.ones(3), np.ones(3), 2, 0, 0.0)
    assert np.isnan(unknown.cumulative.stderr).all()
    assert unknown.cumulative.mean.tolist() == [1, 2, 3]


def test_final_regret_is_the_average_of_the_last_tenth(result):
    late = result.regret[:, 27:].mean(axis=1)
    np.testing.assert_allclose(result.final.mean, late.mean(), rtol=1e-5)
    np.testing.assert_allclose(result.final.stderr, late.std(ddof=1) / np.sqrt(24), rtol=1e-5)
    rough = made()
    np.testing.assert_allclose(rough.final.mean, rough.mean[27:].mean())
    assert rough.final.stderr == pytest.approx(rough.stderr[27:].mean())


def test_a_result_is_one_line_and_a_small_table(result):
    text = repr(result)
    assert "\n" not in text
    assert len(text) < 150
    assert text.startswith("Result('4 models', final regret 0.")
    assert text.endswith("30 periods, 24 realizations)")
    assert made("<b>bold</b>")._repr_html_().count("&lt;b&gt;") == 1
    assert "<b>" not in made("<b>bold</b>")._repr_html_()
    assert "4 measures per period" in repr(VECTOR)
    assert VECTOR._repr_html_().count("<td></td>") == 2
    assert "2 diverged" in repr(es.simulation.Result("a", np.ones(3), np.ones(3), 2, 2, 0))


def test_a_frame_has_a_row_for_every_period(result, monkeypatch):
    frame = result.frame()
    names = ["period", "regret", "stderr", "cumulative", "cumulative_stderr"]
    assert list(frame.columns) == names
    assert frame["period"].tolist() == list(range(1, 31))
    np.testing.assert_array_equal(frame["regret"], result.mean)
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    assert list(result.frame()) == names
    with pytest.raises(ValueError, match=r"one number per period, this result \(4,\)"):
        VECTOR.frame()


@pytest.mark.parametrize("keep", [True, False])
def test_a_saved_result_is_read_back_bit_for_bit(result, keep, tmp_path):
    one = result if keep else made("ε = 0.1")
    path = one.save(tmp_path / "new" / "a.result")
    two = es.simulation.load_result(path)
    for name in ("mean", "stderr", "cumulative_stderr", "regret"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a is b is None) or (a.dtype == b.dtype and np.array_equal(a, b)), name
    for name in ("label", "realizations", "diverged", "seconds", "settings"):
        assert getattr(one, name) == getattr(two, name), name


def test_no_flipped_bit_of_a_saved_result_goes_unnoticed(tmp_path):
    path = made().save(tmp_path / "a.npz")
    data = path.read_bytes()
    whole = es.simulation.load_result(path)
    rng, refused = np.random.default_rng(0), 0
    for at in rng.integers(len(data), size=60):
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = es.simulation.load_result(path)
        except Damaged:
            refused += 1
        else:  # what the archive says beside its contents, dates say
            assert np.array_equal(found.mean, whole.mean)
            assert found.settings == whole.settings
    assert refused > 30
    path.write_bytes(data[:100])
    with pytest.raises(Damaged, match=r"a.npz is damaged: it cannot be read as a result"):
        es.simulation.load_result(path)
    with pytest.raises(FileNotFoundError, match=r"no result at .*b.npz"):
        es.simulation.load_result(tmp_path / "b.npz")


def test_nothing_that_would_run_code_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", about=np.array([print], dtype=object), sha256="")
    with pytest.raises(Damaged, match="allow_pickle=False"):
        es.simulation.load_result(tmp_path / "a.npz")


def test_any_number_of_curves_is_drawn_and_no_two_look_the_same():
    figure = es.plot([made(seed=i) for i in range(40)])
    (ax,) = figure.axes
    assert len(ax.lines) == 40
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 40
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len({*labels}) == 40
    assert len({style(i) for i in range(264)}) == 264
    np.testing.assert_allclose(blocks(np.arange(30.0), 7), [3, 10, 17, 25])


def test_labels_say_what_sets_the_agents_apart(tmp_path):
    a, b = pair = [es.simulate(agent(std), WORLD, 3, 2) for std in (0.5, 2.0)]
    loaded = [es.simulation.load_result(r.save(tmp_path / f"{i}")) for i, r in enumerate(pair)]
    for results in (pair, loaded):
        labels = legend(es.plot(results))
        assert labels == ["4 models, prior_std 0.5", "4 models, prior_std 2"]
    other = es.simulate(agent(2.0), es.GaussianArms(3, noise_std=3.0), 3, 2, seed=4)
    labels = legend(es.plot([b, other]))
    assert labels == ["4 models, noise_std 1, seed 0", "4 models, noise_std 3, seed 4"]
    labels = legend(es.plot([b, b]))
    assert labels == ["4 models (1)", "4 models (2)"]
    assert legend(es.plot({"one": a, "$two_": b})) == ["one", r"\$two_"]


def test_a_figure_shows_in_a_notebook_and_has_the_results_numbers(result):
    figure = result.plot(cumulative=True, title="Arms")
    assert figure._repr_png_().startswith(b"\x89PNG")
    (line,) = figure.axes[0].lines
    np.testing.assert_allclose(np.asarray(line.get_ydata()), result.cumulative.mean)
    assert figure.axes[0].get_title(loc="left") == "Arms"
    (line,) = es.plot(result, log=True).axes[0].lines
    np.testing.assert_allclose(np.asarray(line.get_ydata()), result.mean)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (3, TypeError, "a Result or several, got 3"),
        ([], ValueError, "at least one, got none"),
        ([3], TypeError, "what simulate returns, got 3"),
        ([VECTOR], ValueError, "vector: only one number per period"),
    ],
)
def test_what_cannot_be_drawn_is_named(given, error, said):
    with pytest.raises(error, match=said):
        es.plot(given)
