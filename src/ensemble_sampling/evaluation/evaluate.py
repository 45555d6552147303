"""What policies would have earned on a log: one pass over it, then six estimates of each."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..decide.bandit import Bandit, parts
from ..intervals import (
    NEVER,
    SURE,
    TAIL,
    Errors,
    Estimate,
    Span,
    effective,
    interval,
    mean,
    weighted,
)
from ..learners.linear import Linear
from .estimates import BIASED, METHODS, Judged, contributions, errors, slopes
from .informed import Informed
from .log import Log
from .model import Fitted
from .policies import Policy, as_policy
from .results import LOGGED, Comparison, Evaluation

ONE = "policy"  # what a policy is called that is alone
RARE = 3e-5  # the chance of weights so small, to doubt propensities that say all of them could be


def evaluate(
    log: Any,
    policy: Any,
    *,
    model: Any = None,
    folds: int = 5,
    clip: float | None = None,
    support: float = 0.05,
    baseline: str = LOGGED,
    seed: int = 0,
    normalise: bool = True,
) -> Any:
    """What a policy would have earned, had it made the decisions of a log; an `Evaluation`.

    log: a `Log`, or what `Log.of` makes one of (a bandit, its folder)
    policy: a bandit as it is now; an agent in a state, as (agent, state), where a bandit's own
        `state` will do; an agent alone (None: the default one), which then learns one half of the
        log, as a bandit of this seed would, and is judged on the other, and the other way round; a
        function from an offer (`offer.features` (K, d), `offer.available` (K,), `offer.actions`) to
        probabilities (K,), best compiled by `jax.jit`; or probabilities, (n, K) or (K,). A
        dictionary of several gives a `Comparison`.
    model: of rewards, for the direct, doubly robust and switch estimates: a `Linear` learner, None
        for one that is told nothing, or what every action is expected to earn (n, K). It is fitted
        to the outcomes of all but one of `folds` parts, and used on that one.
    clip: the weight at which clipped weights end and switch goes over to the model; None is the
        square root of the number of decisions.
    support: a policy that puts more than this share of its probability on actions that the log
        could never have shown is refused: the log says nothing about them. Up to it, intervals are
        widened by the share times the range of outcomes, which is how far off they could be.
    baseline: what to take differences from, paired by decision: what was earned, or the name of
        one of several policies.
    normalise: whether agents that learn see features in units of their usual size, as a bandit's
        do unless it was told otherwise.
    """
    log = log if isinstance(log, Log) else Log.of(log)
    if clip is not None:
        checks.positive("clip", clip)
    checks.scalar("support", support, low=0.0, high=1.0)
    several = dict(policy) if isinstance(policy, Mapping) else {ONE: policy}
    if not several:
        raise ValueError("give at least one policy to evaluate, got none")
    if LOGGED in several:
        raise ValueError(f"{LOGGED!r} is what was earned: call the policy something else")
    if baseline != LOGGED and baseline not in several:
        known = ", ".join(repr(name) for name in [LOGGED, *several])
        raise ValueError(f"the baseline must be one of {known}; got {baseline!r}")
    checks.flag("normalise", normalise)
    judged = _judge(log, several, model, folds, seed, normalise)
    clip = math.sqrt(len(log)) if clip is None else float(clip)
    found = _estimated(log, judged, clip, support, baseline)
    if isinstance(policy, Mapping):
        return Comparison(found)
    only = found[ONE]
    if only.refused is not None:
        raise ValueError(only.refused)
    return only


@dataclass(frozen=True)
class _Facts:
    """What the log says of one policy, before anything is estimated."""

    judged: Judged
    unsupported: float  # probably
    surely: float  # and beyond doubt
    exact: bool
    taught: bool


def _judge(
    log: Log, several: Mapping[str, Any], model: Any, folds: int, seed: int, normalise: bool
) -> dict[str, _Facts]:
    """One pass over the log for all policies."""
    policies: dict[str, Policy] = {}
    for name, given in several.items():
        with _named(name):
            policies[name] = as_policy(given, log, seed, normalise)
    count = len(log)
    rewards = _Given(model, log) if _is_array(model) else Fitted(log, model, folds, seed)
    fitted = np.empty(count)
    weight = {name: np.empty(count) for name in policies}
    direct = {name: np.empty(count) for name in policies}
    outside = dict.fromkeys(policies, 0.0)
    largest = dict.fromkeys(policies, 0.0)
    reach: dict[str, Any] = dict.fromkeys(policies, 0.0)
    for offers in log.offers():
        rows, chosen = offers.rows, log.chosen[offers.rows]
        values, at = rewards.values(offers), np.arange(len(chosen))
        fitted[rows] = values[at, chosen]
        for name, chances_of in policies.items():
            with _named(name):
                chances = chances_of(offers)
            weight[name][rows] = chances[at, chosen] / log.propensity[rows]
            direct[name][rows] = np.einsum("mk,mk->m", chances, values)
            if offers.propensities is not None:
                shares = np.asarray(offers.propensities, np.float64)
                outside[name] += float(chances[shares < NEVER].sum())
                could = shares * count >= 1
                most = (chances[could] / shares[could]).max(initial=0.0)
                largest[name] = max(largest[name], float(most))
            if isinstance(rewards, Fitted):
                reach[name] = reach[name] + rewards.reach(offers, chances)
    found = {}
    for name in policies:
        representer = rewards.representer(reach[name]) if isinstance(rewards, Fitted) else None
        exact, share = log.has_all_propensities, outside[name] / count
        if not exact:
            least = log.propensity[log.propensity * count >= 1].min(initial=1.0)
            largest[name] = 1 / float(least)
        # A propensity of one in a million is above 0, and shows as little as none.
        weights = weighted(weight[name], log.outcome)
        probably = max(share, weights.missing(RARE if exact else TAIL))
        surely = max(share, weights.missing(SURE, max(largest[name], weights.largest)))
        facts = Judged(weight[name], log.outcome, fitted, direct[name], representer)
        given = several[name]
        found[name] = _Facts(facts, probably, surely, exact, _knows(given, log))
    return found


def _knows(given: Any, log: Log) -> bool:
    """Whether a policy learned from this very log, before it was asked."""
    if isinstance(given, Informed):
        return given.mark == log.mark
    if not isinstance(given, Bandit):
        return False
    with parts(given) as (_, ledger):
        if ledger.id == log.ledger:
            return True
        if ledger.outcomes < len(log):
            return False
        told = np.array(
            [row.outcome for row in ledger.learned(0) if isinstance(row.outcome, float)]
        )
    # Learned by `learn_from`, outcomes are there in the log's order, one after another.
    wanted, found = log.outcome.tobytes(), told.tobytes()
    at = found.find(wanted)
    while at > 0 and at % 8:
        at = found.find(wanted, at + 1)
    return at >= 0


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say whose mistake it was, where there are several."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if name == ONE:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error


def _is_array(model: Any) -> bool:
    return model is not None and not isinstance(model, Linear) and hasattr(model, "__len__")


class _Given:
    """A reward model of somebody else's: what every action is expected to earn (n, K)."""

    def __init__(self, values: Any, log: Log):
        self._values = checks.array("the model's values", values, (len(log), log.arms))

    def values(self, offers: Any) -> np.ndarray:
        return self._values[offers.rows]


def _estimated(
    log: Log, judged: dict[str, _Facts], clip: float, support: float, baseline: str
) -> dict[str, Evaluation]:
    outcome, span = log.outcome, Span.of(log.outcome)
    earned = mean(outcome, span)
    base = _Pieces.logged(outcome) if baseline == LOGGED else None
    if base is None:
        base = _Pieces.of(judged[baseline], clip)
    found = {}
    for name, facts in judged.items():
        pieces, share = _Pieces.of(facts, clip), facts.unsupported
        refused = refusal(facts.surely, facts.exact, support) or _nothing(facts.judged.weight)
        below = base.unsupported if baseline != LOGGED else 0.0
        values, gaps, gap = {}, {}, pieces.less(base)
        for method in () if refused else METHODS:
            room = _room(method, outcome)
            value = pieces.estimate(method, span)
            values[method] = value.widened(share * room).within(span)
            less = gap.estimate(method, span)
            same = name == baseline
            gaps[method] = less if same else less.widened((share + below) * room)
        found[name] = Evaluation(
            policy=name,
            decisions=len(log),
            earned=earned,
            estimates=values,
            differences=gaps,
            baseline=baseline,
            unsupported=share,
            exact=facts.exact,
            effective=effective(facts.judged.weight),
            largest=float(facts.judged.weight.max()),
            excluded=log.excluded,
            refused=refused,
            taught=facts.taught,
        )
    return found


@dataclass(frozen=True)
class _Pieces:
    """The value of every estimate, and what each decision contributes to its error."""

    outcome: np.ndarray
    value: dict[str, float]
    error: dict[str, np.ndarray]
    slope: dict[str, np.ndarray]
    unsupported: float

    @classmethod
    def of(cls, facts: _Facts, clip: float) -> "_Pieces":
        judged, parts = facts.judged, contributions(facts.judged, clip)
        value = {name: float(part.mean()) for name, part in parts.items()}
        about = errors(judged, parts), slopes(judged)
        return cls(judged.outcome, value, *about, facts.unsupported)

    @classmethod
    def logged(cls, outcome: np.ndarray) -> "_Pieces":
        mean, one = float(outcome.mean()), np.ones_like(outcome)
        value: dict[str, float] = dict.fromkeys(METHODS, mean)
        error: dict[str, np.ndarray] = dict.fromkeys(METHODS, outcome - mean)
        slope: dict[str, np.ndarray] = dict.fromkeys(METHODS, one)
        return cls(outcome, value, error, slope, 0.0)

    def less(self, other: "_Pieces") -> "_Pieces":
        """The differences."""
        value = {name: self.value[name] - other.value[name] for name in METHODS}
        error = {name: self.error[name] - other.error[name] for name in METHODS}
        slope = {name: part - other.slope[name] for name, part in self.slope.items()}
        return _Pieces(self.outcome, value, error, slope, 0.0)

    def estimate(self, method: str, span: Span) -> Estimate:
        if method in BIASED:
            return Estimate(self.value[method], None, None, None)
        error, slope = self.error[method], self.slope[method]
        return interval(self.value[method], Errors.of(error, self.outcome, slope, span))


def _room(method: str, outcome: np.ndarray) -> float:
    """By how much an outcome that nobody could see may differ from what an estimate takes for it:
    0 where only weighted outcomes are summed, else something among the outcomes seen."""
    if method in ("inverse propensity", "clipped"):
        return float(np.abs(outcome).max())
    return float(np.ptp(outcome))


def _nothing(weight: np.ndarray) -> str | None:
    if weight.any():
        return None
    return (
        f"refused: the policy would have chosen otherwise in all of the {len(weight)} decisions, "
        "which therefore say nothing of it: gather more of them"
    )


def refusal(share: float, exact: bool, support: float) -> str | None:
    if share <= support:
        return None
    how = "" if exact else ", as the weights' mean below 1 shows"
    return (
        f"refused: {share:.1%} of the policy's probability is on actions that the log could never "
        f"have shown{how}. What they would have earned is not in the log, and no estimate from it "
        f"means anything; at most {support:.1%} is accepted (support={support:g}). Log with a "
        "floor, Bandit(..., floor=0.05), so that every action is tried now and then, or evaluate a "
        "policy that stays within what was tried"
    )
