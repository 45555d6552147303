"""Replay: an agent that learns as it goes, on the decisions of a log that it would have made."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..core import fact
from ..decide.programs import Rule, State, learn
from ..inputs.features import precision
from ..inputs.scale import LAST, frozen
from ..intervals import Estimate, Span, mean
from ..primitives import PLAIN
from ..tables import Told
from .evaluate import refusal
from .informed import Pupil, arrays_of, padded
from .log import Log, slices
from .policies import probabilities


@dataclass(frozen=True, repr=False)
class Replay(Told):
    """How an agent did that learned from the decisions it agreed with.

    rewards: what it earned in each of its decisions, in their order
    rows: which decisions of the log they were
    value: their mean, with its 95% interval
    unsupported: the share of its choices that the log could never have shown
    """

    policy: str
    decisions: int
    rewards: np.ndarray
    rows: np.ndarray
    value: Estimate
    unsupported: float

    @property
    def best(self) -> Estimate:
        """The only estimate there is, by the name that it has in an `Evaluation`."""
        return self.value

    def __str__(self) -> str:
        late = self.rewards[len(self.rewards) // 2 :]
        return "\n".join(
            [
                f"{self.policy} on {len(self.rewards):,} of {self.decisions:,} decisions",
                f"mean reward        {self.value.value:.4g} "
                f"({self.value.low:.4g} to {self.value.high:.4g})",
                f"in the later half  {late.mean():.4g}",
            ]
        )


def replay(
    log: Any,
    agent: Any,
    *,
    seed: int = 0,
    least: float | None = None,
    support: float = 0.05,
    normalise: bool = True,
) -> Replay:
    """Let an agent make the decisions of a log, and learn where it chooses what was chosen
    (Li, Chu, Langford and Wang, 2011).

    Where the log's choices were not uniform, a decision that agrees counts with probability
    least / propensity, so that those that count are as if they had been. What is left is as many
    decisions of a new run as the log can give, in order: its mean reward is that of the agent
    while it learns.

    agent: begins knowing nothing; a posterior in its place means Thompson sampling on it, and None
        the default agent. A function of an offer, as `evaluate` takes it, learns nothing.
    least: the smallest propensity; by default that of the log. A larger one lets more decisions
        count, and those less likely than it too seldom, which is a bias.
    support: an agent that chose more than this share of its actions from those the log could never
        have shown is refused.
    normalise: whether it sees features in units of their usual size, as in a bandit: the scale is
        taken anew after 1, 2, 4, ... outcomes, which it then learns again in the new units.
    """
    log = Log.of(log)
    checks.flag("normalise", normalise)
    ruled = callable(agent) and not isinstance(agent, type) and not hasattr(agent, "act")
    pupil = None if ruled else Pupil.of(agent, log, normalise)
    if least is None:
        shares = log.propensity if log.propensities is None else log.propensities
        least = float(shares[shares > 0].min())
    checks.scalar("least", least, above=0.0, high=1.0)
    checks.size("seed", seed, least=0, below=2**32)
    if pupil is None:
        label = getattr(agent, "__name__", repr(agent))
        counted, outside = follow(log, probabilities(agent, log), least, seed)
    else:
        label = fact(pupil.agent, "label")
        counted, outside, _ = play(log, pupil, least, seed)
    share = outside / len(log)
    if (refused := refusal(share, True, support)) is not None:
        raise ValueError(refused)
    rows = np.flatnonzero(counted)
    if not len(rows):
        raise ValueError(
            f"none of the {len(log)} decisions counted: the agent agreed with none, or the "
            f"smallest propensity, {least:.2g}, is so small that none was let through; give `least`"
        )
    rewards = log.outcome[rows]
    value = mean(rewards, Span.of(log.outcome))
    return Replay(label, len(log), rewards, rows, value, share)


def follow(log: Log, chances: np.ndarray, least: float, seed: int) -> tuple[np.ndarray, int]:
    """(which decisions counted (n,), how many choices were impossible in the log) of a policy that
    learns nothing, by its probabilities (n, K)."""
    rng, rows = np.random.default_rng(seed), np.arange(len(log))
    past = chances.cumsum(axis=1) > rng.random((len(log), 1)) * chances.sum(axis=1, keepdims=True)
    index = past.argmax(axis=1)
    possible = log.available if log.propensities is None else log.propensities > 0
    counted = (index == log.chosen) & (rng.random(len(log)) < least / log.propensity)
    return counted, int((~possible[rows, index]).sum())


FOR_EVER = np.iinfo(np.int32).max


def play(log: Log, pupil: Pupil, least: float, seed: int) -> tuple[np.ndarray, int, State]:
    """(which decisions counted (n,), how many choices were impossible in the log, what it knows).

    As a bandit, it learns all outcomes so far anew, in the units they have, when there are 1, 2, 4,
    ..., `LAST` of them; in between it learns each as it comes.
    """
    keys = jax.random.split(jax.random.key(seed, impl=PLAIN), 4)
    number = np.arange(len(log), dtype=np.uint32)
    words = jax.vmap(lambda n: jax.random.key_data(jax.random.fold_in(keys[3], n)))(number)
    words = np.column_stack([np.asarray(words), log.chosen.astype(np.uint32)])
    chance = np.minimum(least / log.propensity, 1.0).astype(precision())
    possible = log.available if log.propensities is None else log.propensities > 0
    x, counted, outside = log.chosen_features().astype(precision()), np.zeros(len(log), bool), 0

    def learned_anew() -> tuple[State, float, Any]:
        return pupil.learn(keys[0], words[counted], x[counted], log.outcome[counted])

    state, origin, most = learned_anew()
    rescales, rule = pupil.default or state.scale is not None, arrays_of(Rule(pupil.agent))
    run = _in_python if fact(pupil.agent, "host") else _compiled
    for rows in slices(len(log)):
        columns = number, words, log.chosen.astype(np.int32), chance, log.available, possible
        features = log.features(rows).astype(precision())
        columns = [padded(column) for column in (*(each[rows] for each in columns), features)]
        at, count = 0, len(features)
        while at < count:
            room = _room(int(counted.sum())) if rescales else FOR_EVER
            away = padded((log.outcome[rows] - origin).astype(precision()))
            now = at, room, jnp.asarray(most, float), state, jnp.zeros(len(away), bool), 0
            at, room, most, state, used, impossible = run(rule, keys, count, (*columns, away), now)
            at, outside = int(at), outside + int(impossible)
            counted[rows] |= np.asarray(used)[:count]
            if room == 0:
                state, origin, most = learned_anew()
    return counted, outside, state


def _room(learned: int) -> int:
    """How many more outcomes are learned before the units are taken anew."""
    return FOR_EVER if learned >= LAST else max(2 * frozen(learned) - learned, 1)


def _loop(
    rule: Rule,
    keys: Any,
    stop: Any,
    decisions: tuple[Any, ...],
    now: tuple[Any, ...],
    repeat: Any = jax.lax.while_loop,
    either: Any = jax.lax.cond,
) -> tuple[Any, ...]:
    """Decisions one after another up to `stop`, or until there is no room for more outcomes.

    decisions: columns, see `decide`; `chance` is that of a decision to count where the agent
        agrees, `away` the outcome less its origin
    now: how far it has come, see `decide`; `most` is how far from their origin outcomes count
    """

    def goes_on(now: tuple[Any, ...]) -> Any:
        at, room, *_ = now
        return (at < stop) & (room > 0)

    def decide(now: tuple[Any, ...]) -> tuple[Any, ...]:
        at, room, most, state, counted, outside = now
        row = (column[at] for column in decisions)
        number, words, chosen, chance, available, possible, features, away = row
        features = jnp.broadcast_to(features, (*available.shape, features.shape[-1]))
        seen = features if state.scale is None else state.scale.apply(features)
        act, draw = (jax.random.fold_in(key, number) for key in keys[1:3])
        index = rule.agent.act(act, state.belief, seen, available)
        counts = (index == chosen) & (jax.random.uniform(draw, dtype=chance.dtype) < chance)
        stray = counts & (abs(away) > most)

        def learned(state: State) -> State:
            return learn(rule, words, state, features[chosen], jnp.clip(away, -most, most))

        return (
            at + 1,
            room - counts,
            jnp.where(stray, 2 * most, most),
            either(counts, learned, lambda state: state, state),
            counted.at[at].set(counts),
            outside + ~possible[index],
        )

    return repeat(goes_on, decide, now)


_compiled = jax.jit(_loop)


def _in_python(*given: Any) -> Any:
    """The replay of an agent that cannot be compiled."""

    def repeat(goes_on: Any, step: Any, now: Any) -> Any:
        while goes_on(now):
            now = step(now)
        return now

    def either(condition: Any, yes: Any, no: Any, state: Any) -> Any:
        return yes(state) if condition else no(state)

    return _loop(*given, repeat=repeat, either=either)
