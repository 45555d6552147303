"""What policies would have earned on a log: the probabilities of each, then six estimates."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..code import load
from ..decide.bandit import Bandit, parts
from ..intervals import NEVER, SURE, TAIL, Estimate, Span, effective, mean, weighted
from .estimates import Influence, earned, influences
from .informed import Informed
from .log import Log
from .model import RewardModel
from .policies import probabilities
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
    policy: one of these, or a dictionary of several, which gives a `Comparison`:
        a bandit, as it is now;
        a pair (agent, state), such as a bandit's agent and its `state`;
        an agent (None: the default one), which learns one half of the log, as a bandit of this seed
        would, and is judged on the other half, and the other way round;
        a function of an offer that returns probabilities (K,) or the position of an action. The
        offer has `actions` (a description each), `context`, `names`, `available` (K,), and all of
        that as numbers, `features` (K, d), which alone a function compiled by `jax.jit` can use;
        probabilities (n, K) or (K,).
    model: of rewards, for the direct, doubly robust and switch estimates: a `Linear` learner, None
        for one without settings, or the expected reward of every action (n, K). A learner is fitted
        to the outcomes of all but one of `folds` parts, and used on that one.
    clip: clipped weights are never larger, and switch uses the model where they would be; None is
        the square root of the number of decisions.
    support: a policy that puts more than this share of its probability on actions that the log
        could never have shown is refused: the log says nothing about them. Up to it, intervals are
        widened by the share times the range of outcomes, which is how far off they could be.
    baseline: what to take differences from, paired by decision: what was earned, or the name of
        one of several policies.
    normalise: whether agents that learn see features in units of their usual size, as a bandit's
        do unless it was told otherwise.
    """
    log = Log.of(log)
    clip = math.sqrt(len(log)) if clip is None else float(checks.positive("clip", clip))
    checks.scalar("support", support, low=0.0, high=1.0)
    checks.flag("normalise", normalise)
    several = dict(policy) if isinstance(policy, Mapping) else {ONE: policy}
    if not several:
        raise ValueError("give at least one policy to evaluate, got none")
    if LOGGED in several:
        raise ValueError(f"{LOGGED!r} is what was earned: call the policy something else")
    if baseline != LOGGED and baseline not in several:
        known = ", ".join(repr(name) for name in [LOGGED, *several])
        raise ValueError(f"the baseline must be one of {known}; got {baseline!r}")
    if hasattr(model, "__len__"):
        rewards, values = None, checks.array("the model's values", model, (len(log), log.arms))
    else:
        rewards = RewardModel(log, model, folds, seed)
        values = rewards.values()
    found, base = {}, _Judged({}, np.ones(len(log)), 0.0, 0.0)
    for name in sorted(several, key=lambda each: each != baseline):  # the baseline first
        with _named(name):
            chances = probabilities(several[name], log, seed, normalise)
        moved = np.zeros(len(log)) if rewards is None else rewards.representer(chances)
        judged = _judge(log, chances, values, moved, clip)
        base = judged if name == baseline else base
        refused = refusal(judged.surely, log.propensities is not None, support)
        if refused is None and not judged.weight.any():
            refused = (
                f"refused: the policy would have chosen otherwise in all of the {len(log)} "
                "decisions, which therefore say nothing of it: gather more of them"
            )
        estimates, differences = ({}, {}) if refused else _estimates(log, judged, base)
        found[name] = Evaluation(
            policy=name,
            decisions=len(log),
            earned=mean(log.outcome, Span.of(log.outcome)),
            estimates=estimates,
            differences=differences,
            baseline=baseline,
            unsupported=judged.unsupported,
            exact=log.propensities is not None,
            effective=effective(judged.weight),
            largest=float(judged.weight.max()),
            excluded=log.excluded,
            refused=refused,
            taught=_has_learned(several[name], log),
        )
    if isinstance(policy, Mapping):
        return Comparison({name: found[name] for name in several})
    if found[ONE].refused is not None:
        raise ValueError(found[ONE].refused)
    return found[ONE]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the policy in an error, where there are several."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if name == ONE:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error


class _Judged(NamedTuple):
    """What the log says of one policy.

    unsupported: the share of its probability that the log could never have shown, probably
    surely: and beyond doubt
    """

    influences: dict[str, Influence]
    weight: np.ndarray
    unsupported: float
    surely: float


def _judge(
    log: Log, chances: np.ndarray, values: np.ndarray, moved: np.ndarray, clip: float
) -> _Judged:
    """From a policy's probabilities and the modelled values (n, K), see `influences`."""
    count, rows, shares = len(log), np.arange(len(log)), log.propensities
    weight = chances[rows, log.chosen] / log.propensity
    expected = values[rows, log.chosen], np.einsum("mk,mk->m", chances, values)
    if shares is None:
        outside, tail = 0.0, TAIL
        largest = 1 / log.propensity[log.propensity * count >= 1].min(initial=1.0)
    else:
        # A propensity of one in a million is above 0, and shows as little as none.
        outside, tail = float(chances[shares < NEVER].sum()) / count, RARE
        could = shares * count >= 1
        largest = (chances[could] / shares[could]).max(initial=0.0)
    weights = weighted(weight, log.outcome)
    unsupported = max(outside, weights.missing(tail))
    surely = max(outside, weights.missing(SURE, max(float(largest), weights.largest)))
    every = influences(weight, log.outcome, *expected, moved, clip)
    return _Judged(every, weight, unsupported, surely)


def _estimates(
    log: Log, judged: _Judged, base: _Judged
) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """The estimates of a policy, and their differences from the baseline's."""
    outcome, span, logged = log.outcome, Span.of(log.outcome), earned(log.outcome)
    values, differences = {}, {}
    for method, influence in judged.influences.items():
        # By how much an outcome that nobody could see may differ from what an estimate takes for
        # it: 0 where only weighted outcomes are summed, else something among the outcomes seen.
        sums = method in ("inverse propensity", "clipped")
        room = float(np.abs(outcome).max() if sums else np.ptp(outcome))
        value = influence.estimate(outcome, span)
        values[method] = value.widened(judged.unsupported * room).within(span)
        less = influence.less(base.influences.get(method, logged)).estimate(outcome, span)
        share = 0.0 if judged is base else judged.unsupported + base.unsupported
        differences[method] = less.widened(share * room)
    return values, differences


def _has_learned(policy: Any, log: Log) -> bool:
    """Whether a bandit or an informed agent learned from this very log."""
    if isinstance(policy, Informed):
        return policy.mark == log.mark
    if not isinstance(policy, Bandit):
        return False
    with parts(policy) as (_, ledger):
        if ledger.id == log.ledger:
            return True
        learned = [row.outcome for row in ledger.learned(0) if isinstance(row.outcome, float)]
    # Learned by `learn_from`, outcomes are there in the log's order, one after another.
    wanted, found = log.outcome.tobytes(), np.array(learned).tobytes()
    at = found.find(wanted)
    while at > 0 and at % 8:  # in the middle of a number
        at = found.find(wanted, at + 1)
    return at >= 0


def refusal(share: float, exact: bool, support: float) -> str | None:
    """Why a policy is refused that has this share of its probability where the log has none."""
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


def compare(
    folder: str | os.PathLike[str], path: str | os.PathLike[str], baseline: str = LOGGED
) -> Comparison:
    """The CANDIDATES of a Python file, a dictionary from names to policies, on the log of the
    bandit in a folder, also while it is running."""
    given = vars(load(path)).get("CANDIDATES")
    if not isinstance(given, Mapping) or not given:
        what = "has no CANDIDATES" if given is None else f"says CANDIDATES = {given!r}"
        raise ValueError(f"{path} must define CANDIDATES = {{name: agent or function}}; it {what}")
    candidates = {str(name): policy for name, policy in given.items()}
    try:
        return evaluate(Log.of(folder), candidates, baseline=baseline)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
