"""What is proved about ensemble sampling on linear bandits, as functions that give numbers.

Symbols: d the dimension, |A| the number of actions (`arms`), T `periods`, M `members`. Bounds up to
an unknown factor take it as `constant`; with the default of 1 they show how things scale, and no
more. `plan` measures what bounds can only promise.

Lu & Van Roy (2017), Ensemble Sampling, with its erratum; Qin, Wen, Lu & Van Roy (2022), An Analysis
of Ensemble Sampling; Janz, Litvak & Szepesvári (2024), Ensemble Sampling for Linear Bandits: Small
Ensembles Suffice; Janz, Akhavan & Szepesvári (2026), Sharp Analysis of Linear Ensemble Sampling;
Abbasi-Yadkori, Pál & Szepesvári (2011), Improved Algorithms for Linear Stochastic Bandits.
"""

import math
from typing import NamedTuple

from .. import checks


def withdrawn_theorem_3_members(arms: int, periods: int, epsilon: float) -> int:
    """The ensemble size of Theorem 3, which its authors have WITHDRAWN: nothing follows from it.

    M >= (4|A| / epsilon^2) log(4|A|T / epsilon^3) was to keep the loss to Thompson sampling below
    epsilon times the gap between best and worst mean reward, per period. The proof compares with
    the actions Thompson sampling would choose after the *ensemble's* history, whose regret is not
    that of Thompson sampling run from the start (erratum, on Lemma 11). Here for comparison only.
    """
    arms, periods = checks.count("arms", arms), checks.count("periods", periods)
    epsilon = checks.scalar("epsilon", epsilon, above=0.0, low=0.0, high=1.0)
    return math.ceil(4 * arms / epsilon**2 * math.log(4 * arms * periods / epsilon**3))


def divergence_tail(arms: int, members: int, epsilon: float) -> float:
    """Most that P(KL(p_hat || p) >= epsilon) can be under fixed actions, by Sanov's theorem.

    (M + 1)^|A| exp(-M epsilon), at most 1, for the shares p_hat of the members' votes and the
    posterior probabilities p that an action is best, if the actions were fixed in advance.
    """
    return _probability(_log_sanov(arms, members, epsilon))


def adaptive_divergence_tail(arms: int, members: int, epsilon: float, t: int) -> float:
    """The same for actions chosen as one goes, at period t = 0, 1, ...

    By a union over the at most (t + 1)^|A| counts of actions so far:
    (t + 1)^|A| (M + 1)^|A| exp(-M epsilon), at most 1. Not affected by the erratum.
    """
    t = checks.count("t", t, least=0)
    return _probability(arms * math.log(t + 1) + _log_sanov(arms, members, epsilon))


def _log_sanov(arms: int, members: int, epsilon: float) -> float:
    arms, members = checks.count("arms", arms), checks.count("members", members)
    return arms * math.log(members + 1) - members * checks.positive("epsilon", epsilon)


def _probability(log: float) -> float:
    return math.exp(min(0.0, log))


class RegretBound(NamedTuple):
    """A bound on the regret summed over all periods: Thompson sampling's part, and what is added
    for having an ensemble in the posterior's place."""

    thompson: float
    ensemble: float

    @property
    def total(self) -> float:
        return self.thompson + self.ensemble


def regret_bound(
    dim: int, arms: int, periods: int, members: int, constant: float = 1.0
) -> RegretBound:
    """The Bayesian regret bound that the erratum quotes (Qin et al., 2022), over all periods.

    constant * (sqrt(d T log|A|) + T sqrt(min{d, log|A|} |A| log(6TM) / M)). The second term is
    above T, and says nothing, until M exceeds |A| by far.
    """
    dim, arms = checks.count("dim", dim), checks.count("arms", arms)
    periods, constant = checks.count("periods", periods), checks.positive("constant", constant)
    thompson = constant * math.sqrt(dim * periods * math.log(arms))
    return RegretBound(thompson, periods * added_loss(dim, arms, periods, members, constant))


def added_loss(dim: int, arms: int, periods: int, members: int, constant: float = 1.0) -> float:
    """The second term of `regret_bound` per period: the loss an ensemble adds.

    constant * sqrt(min{d, log|A|} |A| log(6TM) / M).
    """
    scale = _scale(dim, arms, constant)
    periods, members = checks.count("periods", periods), checks.count("members", members)
    return math.sqrt(scale * math.log(6 * periods * members) / members)


def members_for_loss(
    dim: int, arms: int, periods: int, epsilon: float, constant: float = 1.0
) -> int:
    """The smallest M for which `added_loss` is at most epsilon, computed from the formula.

    About min{d, log|A|} |A| log(6TM) / epsilon^2. (The erratum's text says "roughly on the order
    of d |A|^2 / epsilon^2", which is not what its formula gives.)
    """
    epsilon = checks.positive("epsilon", epsilon)
    checks.count("periods", periods)

    def enough(members: int) -> bool:
        return added_loss(dim, arms, periods, members, constant) <= epsilon

    high = 1
    while not enough(high):
        high *= 2
        if high > 2**1000:
            raise ValueError(f"epsilon is too small for any ensemble, got {epsilon:g}")
    low = high // 2  # the loss falls with M, so bisection finds the first that is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _scale(dim: int, arms: int, constant: float) -> float:
    dim, arms = checks.count("dim", dim), checks.count("arms", arms)
    return checks.positive("constant", constant) ** 2 * min(dim, math.log(arms)) * arms


def too_few_members(dim: int, members: int) -> str | None:
    """A warning where M <= d/2, else None.

    There are linear bandits, with the unit ball for actions, on which any ensemble of at most d/2
    members suffers regret linear in T: it never looks in some directions (Janz et al., 2026).
    """
    dim, members = checks.count("dim", dim), checks.count("members", members)
    if 2 * members > dim:
        return None
    return (
        f"M = {members} in d = {dim} dimensions: with at most d/2 members there are linear bandits "
        f"on which regret never stops growing; use at least {dim // 2 + 1}"
    )


def frequentist_members(dim: int, periods: int, constant: float = 1.0) -> int:
    """The ensemble size of order d log T with which regret for *every* fixed truth is bounded.

    ceil(constant * d log T), with perturbations inflated as `frequentist_inflation` says; regret
    is then of order d^(3/2) sqrt(T) up to logarithms (Janz et al., 2024 and 2026).
    """
    dim, periods = checks.count("dim", dim), checks.count("periods", periods)
    return max(1, math.ceil(checks.positive("constant", constant) * dim * math.log(periods)))


def frequentist_inflation(
    dim: int,
    periods: int,
    delta: float = 0.05,
    *,
    noise_std: float = 1.0,
    prior_std: float = 1.0,
    largest_action: float = 1.0,
    largest_theta: float = 1.0,
    constant: float = 1.0,
) -> float:
    """How much to inflate perturbations so that the spread covers the truth with chance 1 - delta.

    constant * beta_T / sigma, where beta_T = sigma sqrt(2 log(1/delta) + d log(1 + T L^2 / (d
    lambda))) + sqrt(lambda) S is the half-width of the confidence ellipsoid of ridge regression
    (Abbasi-Yadkori et al., 2011), lambda = (sigma / prior_std)^2, L bounds the actions and S the
    truth. A Bayesian who believes the prior needs 1; this is the price of not believing it.
    """
    dim, periods = checks.count("dim", dim), checks.count("periods", periods)
    delta = checks.scalar("delta", delta, above=0.0, low=0.0, high=1.0)
    sigma, prior = checks.positive("noise_std", noise_std), checks.positive("prior_std", prior_std)
    reach = checks.positive("largest_action", largest_action)
    size = checks.positive("largest_theta", largest_theta)
    ridge = (sigma / prior) ** 2
    growth = dim * math.log(1 + periods * reach**2 / (dim * ridge))
    width = sigma * math.sqrt(2 * math.log(1 / delta) + growth) + math.sqrt(ridge) * size
    return checks.positive("constant", constant) * width / sigma
