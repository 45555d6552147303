"""The bounds, against numbers worked out by hand from the formulas of the papers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble_sampling.study import theory

SIZES = st.integers(1, 1000)
LOSSES = st.floats(0.01, 10)


def test_the_withdrawn_theorem_says_so_and_gives_its_size():
    # 4 * 2 / 0.5^2 = 32; log(4 * 2 * 100 / 0.5^3) = log(6400) = 8.7641; 32 * 8.7641 = 280.45
    assert theory.withdrawn_theorem_3_members(arms=2, periods=100, epsilon=0.5) == 281
    assert "WITHDRAWN" in (theory.withdrawn_theorem_3_members.__doc__ or "")


def test_sanov():
    # 101^2 exp(-100 * 0.2) = 10201 * 2.06115e-9
    assert theory.divergence_tail(2, 100, 0.2) == pytest.approx(2.10258e-5, rel=1e-5)
    # with the union over at most 10^2 counts after 9 periods
    assert theory.adaptive_divergence_tail(2, 100, 0.2, 9) == pytest.approx(2.10258e-3, rel=1e-5)
    assert theory.adaptive_divergence_tail(2, 100, 0.2, 0) == theory.divergence_tail(2, 100, 0.2)
    assert theory.divergence_tail(200, 10, 0.01) == 1.0  # 11^200: a probability is at most 1


def test_the_regret_bound_of_the_erratum():
    # sqrt(3 * 1000 * log 10) = sqrt(6907.755) = 83.1129
    # 1000 sqrt(2.302585 * 10 * log(600000) / 100) = 1000 sqrt(3.063517) = 1750.29
    bound = theory.regret_bound(dim=3, arms=10, periods=1000, members=100)
    assert bound.thompson == pytest.approx(83.1129, rel=1e-5)
    assert bound.ensemble == pytest.approx(1750.29, rel=1e-5)
    assert bound.total == bound.thompson + bound.ensemble
    twice = theory.regret_bound(3, 10, 1000, 100, constant=2.0)
    assert twice.total == pytest.approx(2 * bound.total)
    # the dimension counts where it is smaller than log|A|
    one = theory.regret_bound(dim=1, arms=10, periods=1000, members=100)
    assert one.ensemble == pytest.approx(1000 * math.sqrt(10 * math.log(600000) / 100))


def test_the_size_for_a_loss_is_the_formulas_and_not_the_texts():
    # M >= 3 log(60 M): 21 < 3 log 1260 = 21.4, and 22 >= 3 log 1320 = 21.6
    assert theory.members_for_loss(dim=1, arms=3, periods=10, epsilon=1.0) == 22
    assert theory.members_for_loss(dim=1, arms=1, periods=10, epsilon=1.0) == 1  # no choice at all


@given(SIZES, SIZES, SIZES, LOSSES)
def test_the_size_for_a_loss_is_the_smallest(dim, arms, periods, epsilon):
    members = theory.members_for_loss(dim, arms, periods, epsilon)
    assert theory.added_loss(dim, arms, periods, members) <= epsilon
    if members > 1:
        assert theory.added_loss(dim, arms, periods, members - 1) > epsilon


@given(SIZES, SIZES, SIZES, SIZES)
def test_the_added_loss_falls_with_members(dim, arms, periods, members):
    after, before = (theory.added_loss(dim, arms, periods, m) for m in (members + 1, members))
    assert after <= before


def test_at_most_half_the_dimension_is_warned_of():
    assert theory.too_few_members(10, 6) is None
    assert "at least 6" in (theory.too_few_members(10, 5) or "")
    assert "at least 6" in (theory.too_few_members(11, 5) or "")  # 5 <= 5.5
    assert theory.too_few_members(1, 1) is None


def test_the_frequentist_variant():
    assert theory.frequentist_members(dim=10, periods=1000) == 70  # 10 log 1000 = 69.08
    assert theory.frequentist_members(dim=10, periods=1) == 1
    # sqrt(2 log 20 + 2 log(1 + 100 / 2)) + 1 = sqrt(5.991465 + 7.863651) + 1
    assert theory.frequentist_inflation(2, 100) == pytest.approx(4.722246, rel=1e-6)
    # noise 2, prior 4: lambda = 1/4; sqrt(2 log 20 + 2 log(1 + 400 / 2)) + 0.5 / 2
    wide = theory.frequentist_inflation(2, 100, noise_std=2.0, prior_std=4.0)
    assert wide == pytest.approx(math.sqrt(5.991465 + 2 * math.log(201)) + 0.25, rel=1e-6)
    assert theory.frequentist_inflation(2, 100, constant=3.0) == pytest.approx(3 * 4.722246)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: theory.divergence_tail(0, 5, 0.1), "arms must be at least 1, got 0"),
        (lambda: theory.divergence_tail(2, 0, 0.1), "members must be at least 1, got 0"),
        (lambda: theory.divergence_tail(2, 5, 0.0), "epsilon must be greater than 0, got 0"),
        (lambda: theory.adaptive_divergence_tail(2, 5, 0.1, -1), "t must be at least 0, got -1"),
        (lambda: theory.members_for_loss(2, 3, 10, -1.0), "epsilon must be greater than 0, got -1"),
        (lambda: theory.regret_bound(2, 3, 10, 5, 0.0), "constant must be greater than 0, got 0"),
        (lambda: theory.withdrawn_theorem_3_members(2, 9, 2.0), "between 0 and 1, got 2"),
        (lambda: theory.frequentist_inflation(2, 10, 0.0), "delta must be greater than 0, got 0"),
    ],
)
def test_impossible_numbers_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
