"""The search for the smallest ensemble: on curves whose crossing is known, and in simulations."""

from typing import Any

import numpy as np
import pytest

import ensemble_sampling as es
from ensemble_sampling.simulation import programs
from ensemble_sampling.study import nested, sizing
from ensemble_sampling.study.nested import FirstArms, FirstMembers, padded_arms, padded_members
from ensemble_sampling.study.sizing import Evaluation, Runs, _explore, _Line, smallest_ensemble

ARMS = 4


class Synthetic(Runs):
    """In place of simulations, differences along a known curve with noise of a known size."""

    def __init__(self, curve, std, realizations, seed=0, most=1024):
        self.curve, self.std, self.realizations, self.most = curve, std, realizations, most
        self.rng, self.lanes, self.batches = np.random.default_rng(seed), False, []
        self.differences = {}
        self.__dict__["thompson"] = np.zeros(2)

    @property
    def spent(self):
        return sum(len(batch) * realizations for batch, realizations in self.batches)

    def measure(self, sizes, realizations):
        missing = [m for m in sizes if len(self.differences.get(m, ())) < realizations]
        self.batches.append((missing, realizations))
        for members in missing:
            noise = self.std * self.rng.standard_normal(realizations)
            self.differences[members] = self.curve(members) + noise


def located(runs, tolerance=0.03):
    found = smallest_ensemble(runs, tolerance)
    return found.members, found.low, found.high


CURVES = {  # how differences fall in simulations, each meeting 0.03 at 48 members
    "power": lambda m: 0.03 * (48 / m) ** 2,
    "slow": lambda m: 0.03 * 48 / m,
    "exponential": lambda m: 0.03 * np.exp(-(m - 48) / 23),
    "below zero": lambda m: 0.1 * (48 / m) ** 1.5 - 0.07,
}


@pytest.mark.parametrize("realizations", [1000, 10_000])
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES.keys())
def test_the_range_holds_the_truth_about_as_often_as_it_says(curve, realizations):
    searches = [Synthetic(curve, 0.18, realizations, seed) for seed in range(100)]
    found = np.array([located(runs) for runs in searches])
    members, low, high = found.T
    assert ((low <= members) & (members <= high)).all()
    # A range that truly holds 95% of the time is seen below 87% of 100 times with chance 1e-3.
    assert np.mean((low <= 48) & (high >= 48)) >= 0.87
    # The straight line is off by up to 4% where the truth bends most (1,000 realizations).
    assert np.median(members) == pytest.approx(48, rel=0.06)
    if realizations == 10_000:  # spent near the answer only: a scan up to 48 would spend 48 times
        assert np.mean([runs.spent for runs in searches]) < 3.5 * realizations


def test_between_the_sizes_measured_the_difference_is_a_line_in_one_over_members():
    """Exact for 0.01 + 1.26 / M, which is 0.05 at 31.5 members: so 32 are the first to suffice."""
    line = _Line.of({m: np.full(5, 0.01 + 1.26 / m) for m in (20, 40)})
    np.testing.assert_allclose(line.at([10, 25, 100]), [0.136, 0.0604, 0.0226], rtol=1e-12)
    assert [line.first(0.05, most) for most in (1024, 33, 32, 31)] == [32, 32, 32, 31]
    assert line.first(0.005, 64) == 64  # never: the largest


def test_the_band_of_the_line_is_that_of_least_squares_on_common_worlds():
    """At a size measured, with two sizes, it is the size's own standard error; between them the
    errors of the two go together as their realizations do."""
    rng = np.random.default_rng(0)
    world = rng.normal(size=400)
    few, many = 0.2 + 0.1 * world, 0.1 + 0.1 * world + 0.02 * rng.normal(size=400)
    line = _Line.of({2: few, 4: many})
    error = many.std(ddof=1) / 20
    assert float(line.at(4, 2.0)[0] - line.at(4)[0]) == pytest.approx(2 * error, rel=1e-9)
    share = (1 / 3 - 1 / 4) / (1 / 2 - 1 / 4)  # of the way to 2, at 3 members
    between = (share * few + (1 - share) * many).std(ddof=1) / 20
    assert float(line.at(3, 1.0)[0] - line.at(3)[0]) == pytest.approx(between, rel=1e-9)


@pytest.mark.parametrize(
    ("crossing", "stderr", "found"),
    [
        (48, 0.004, (48, 0.2)),  # 3 x 0.002 of 0.03
        (48, 1.0, (48, 0.4)),
        (48, 0.0, (48, 0.1)),
        (2, 0.004, (1.5, 0.5)),  # the first that is tried suffices
        (300, 0.004, (256, 0.1)),  # none does
    ],
)
def test_exploring_finds_the_crossing_and_how_far_either_side_to_measure(crossing, stderr, found):
    """Exact for 0.03 crossing / M, which falls by 0.03 per unit of log(M) there; of the four times
    as many realizations that are to come, standard errors are half as large."""

    class Known(Synthetic):
        def explore(self, members):
            return Evaluation(members, 0.03 * crossing / members, stderr, 1000)

    runs = Known(None, None, realizations=4000, most=256)
    assert _explore(runs, 0.03) == pytest.approx(found)


def test_a_size_that_was_measured_to_be_too_small_is_out():
    """However wide the band of the line is there; but the answer is always in its own range."""
    runs = Synthetic(lambda m: 0.18 / m, 0.6, 1000, most=64)
    assert located(runs) == (9, 1, 64)
    for members, low in ((3, 4), (20, 9)):
        runs.differences[members] = np.array([0.99, 1.01])
        assert located(runs) == (9, low, 64)


def test_the_answer_may_be_the_smallest_size_or_the_largest_allowed_or_none():
    # Over few periods a small ensemble is greedier than Thompson sampling, and better.
    assert located(Synthetic(lambda m: -0.05 / m, 0.01, 1000, most=64)) == (1, 1, 1)
    assert located(Synthetic(CURVES["power"], 1e-4, 1000, most=49))[0] in (48, 49)
    with pytest.raises(ValueError, match=r"64 members are not enough.*by 0\.2 .*0\.03 is toler"):
        located(Synthetic(lambda m: 0.2, 0.01, 1000, most=64))


@pytest.mark.parametrize("perturbation", [es.posteriors.Gaussian(), es.posteriors.Poisson()])
def test_the_first_members_of_a_larger_ensemble_act_as_a_smaller_one(perturbation):
    learner, world = es.IndependentArms(ARMS, 1.0), es.GaussianArms(ARMS)
    small = es.EnsembleSampling(learner, 3, perturbation)
    part = es.ThompsonSampling(FirstMembers(es.Ensemble(learner, 7, perturbation), 3))
    a, b = (es.simulate(agent, world, 50, 20, keep=True) for agent in (small, part))
    np.testing.assert_array_equal(a.regret, b.regret)
    assert a.label == b.label


def test_the_first_of_more_arms_are_as_many_arms_alone():
    alone, among = es.GaussianArms(ARMS), FirstArms(es.GaussianArms(9), ARMS)
    few, more = (es.EnsembleSampling(es.IndependentArms(n, 1.0), 5) for n in (ARMS, 9))
    a, b = (es.simulate(*pair, 50, 20, keep=True) for pair in ((few, alone), (more, among)))
    np.testing.assert_array_equal(a.regret, b.regret)


@pytest.fixture
def accelerator(monkeypatch):
    """As on a GPU: everything that can share a program does, in calls of 60 lanes."""
    monkeypatch.setattr(nested, "accelerated", lambda: True)
    monkeypatch.setattr(sizing, "chunk_size", lambda *about: 60)
    monkeypatch.setattr(sizing, "EXPLORE", 15)


def runs_of(arms, realizations=60, **options):
    problem = es.IndependentArms(arms, 1.0), es.GaussianArms(arms), 30
    return Runs(*problem, realizations, 0, **options)


def test_sizes_side_by_side_have_the_numbers_of_each_alone(accelerator, monkeypatch):
    runs = runs_of(ARMS)
    runs.measure([2, 3, 5], 60)
    assert runs.explore(8).realizations == 20  # 6 x 15 are two calls, which 20 of each fill
    assert sorted(runs.differences) == [2, 3, 4, 5, 8, 16, 32, 64, 128]  # all of its program
    runs.measure([2, 3, 9], 60)  # with the one below it, since alone it would be another program
    assert {m: len(found) for m, found in runs.differences.items() if m < 10} == {
        **dict.fromkeys((2, 3, 5, 8, 9), 60),
        4: 20,
    }
    assert runs.explore(10).realizations == 30
    assert len(runs.differences[9]) == 60  # its neighbour, of which there were more
    found = {members: runs.differences[members] for members in (2, 4, 5)}
    monkeypatch.setattr(runs, "_regret_side_by_side", None)
    runs.explore(8)  # nothing is left to simulate
    assert not runs_of(ARMS, curves=True).lanes  # which have last periods only
    monkeypatch.undo()
    alone = runs_of(ARMS)
    alone.measure([2, 4, 5], 60)
    np.testing.assert_allclose(runs.thompson, alone.thompson, rtol=1e-5, atol=1e-7)
    for members, regret in found.items():
        expected = alone.differences[members][: len(regret)]
        np.testing.assert_allclose(regret, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("members", "pair"), [(1, [1, 2]), (5, [4, 5]), (128, [127, 128]), (129, [129, 130])]
)
def test_a_size_alone_is_simulated_with_a_neighbour_of_its_program(accelerator, members, pair):
    """Up to 128 members there is one, beyond them another."""
    assert sizing._with_neighbour(members) == pair


def test_problems_with_other_arms_share_two_programs(accelerator, tmp_path):
    programs._program.cache_clear()
    told = []

    def search(arms, progress: Any = False):
        folder = tmp_path / str(arms)
        return smallest_ensemble(runs_of(arms, 120, checkpoint=folder, progress=progress), 0.4)

    for arms in (4, 30):
        found = search(arms)
        assert found.low <= found.members <= found.high
    assert programs._program.cache_info().misses == 2
    again = search(30, progress=lambda done, total: told.append((done, total)))
    assert told
    assert all(done == total for done, total in told)  # nothing is simulated a second time
    assert (again.members, again.evaluated) == (found.members, found.evaluated)


def test_the_sizes_to_compile_for(accelerator, monkeypatch):
    assert [padded_arms(n) for n in (1, 50, 51, 150, 201)] == [50, 50, 100, 200, 400]
    assert [padded_members(n) for n in (1, 128, 129, 1000)] == [128, 128, 256, 1024]
    monkeypatch.undo()  # a CPU wastes at most half
    assert [padded_members(n) for n in (1, 32, 33, 64, 65, 100)] == [32, 32, 48, 64, 96, 128]
    assert padded_arms(51) == 51


class LastIsBest(es.GaussianArms):
    def init(self, key):
        return super().init(key).at[-1].set(10.0)


def test_worlds_of_ones_own_keep_their_arms(accelerator):
    """Among more arms the last would be another, which is not on offer."""
    learner, world = es.IndependentArms(ARMS, 1.0), LastIsBest(ARMS)
    assert nested.nested_problem(learner, world) == (learner, world)


@pytest.mark.parametrize("crossing", [100, 120, 128, 135])
def test_an_accelerator_measures_both_sides_of_the_crossing_by_one_program(accelerator, crossing):
    runs = Synthetic(lambda m: 0.03 * crossing / m, 1e-3, 10_000)
    members, low, high = located(runs)
    assert low <= crossing <= high
    assert members == pytest.approx(crossing, abs=1)
    first, second = next(sizes for sizes, realizations in runs.batches if realizations == 10_000)
    assert padded_members(first) == padded_members(second)


def test_ten_arms_need_the_published_number_of_members():
    """Figure 1b has 15 for 10 arms; it is within the range at 500 realizations."""
    runs = Runs(es.IndependentArms(10, 1.0), es.GaussianArms(10), 2000, 500, 0)
    found = smallest_ensemble(runs, 0.03)
    assert found.low <= 15 <= found.high
    assert 5 < found.low <= found.members <= found.high < 40
    assert found.threshold == pytest.approx(found.thompson + 0.03)
    assert found.thompson == pytest.approx(0.0083, abs=4 * found.thompson_stderr)  # 10,000 runs
    assert max(e.realizations for e in found.evaluated) == found.realizations == 500
