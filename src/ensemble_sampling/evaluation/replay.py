"""Replay: an agent that learns as it goes, on the decisions of a log that it would have made."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import as_array
from ..core import fact
from ..decide.programs import Rule, State, learn
from ..inputs.hashing import precision
from ..inputs.scale import LAST, frozen
from ..intervals import Estimate, Span, mean
from .evaluate import refusal
from .log import Log, Offers
from .policies import padded
from .pupils import pupil


@dataclass(frozen=True)
class Replay:
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

    def __str__(self) -> str:
        half = len(self.rewards) // 2
        late = self.rewards[half:]
        return "\n".join(
            [
                f"{self.policy} on {len(self.rewards):,} of {self.decisions:,} decisions",
                f"mean reward        {self.value.value:.4g} "
                f"({self.value.low:.4g} to {self.value.high:.4g})",
                f"in the later half  {late.mean():.4g}",
            ]
        )

    __repr__ = __str__


def replay(
    log: Any,
    agent: Any,
    seed: int = 0,
    *,
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
        the default agent.
    least: the smallest propensity; by default that of the log. A larger one lets more decisions
        count, and those less likely than it too seldom, which is a bias.
    support: an agent that chose more than this share of its actions from those the log could never
        have shown is refused.
    normalise: whether it sees features in units of their usual size, as in a bandit: the scale is
        taken anew after 1, 2, 4, ... outcomes, which it then learns again in the new units.
    """
    log = log if isinstance(log, Log) else Log.of(log)
    one = pupil(agent, log, checks.flag("normalise", normalise))
    if least is None:
        least = _least(log)
    checks.scalar("least", least, above=0.0, high=1.0)
    checks.size("seed", seed, least=0, below=2**32)
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), 4)
    state, past = State(one.scale(np.zeros((0, log.dim))), one.agent.init(keys[0])), _Past()
    run, relearn = _eager(one.rule) if fact(one.agent, "host") else _compiled(one.rule)
    counted, outside, usual = np.zeros(len(log), bool), 0, one.usual(log.outcome[:0])
    rescaled = state.scale is not None or one.default
    for offers in log.offers():
        rows, count, first = _rows(offers, log, least, keys[3]), len(offers.features), 0
        outcome = log.outcome[offers.rows]
        while first < count:
            room = past.room if rescaled else FOR_EVER
            taken = past.learned, frozen(past.learned)
            rows.outcome[:count], strays = one.each_counted(usual, outcome, *taken)
            made = run(keys, state, np.int32(room), np.int32(first), rows)
            now = np.flatnonzero(np.asarray(made[1])[:count])
            stray = np.flatnonzero(strays[now])[:1] + 1
            if len(stray) and stray[0] < len(now):  # others count by what is usual after it
                made = run(keys, state, np.int32(stray[0]), np.int32(first), rows)
                now = now[: stray[0]]
            state, _, impossible, done = made
            counted[offers.rows.start + now] = True
            outside += int(np.asarray(impossible)[:count].sum())
            first += int(np.asarray(done)[:count].sum())
            past.add(rows, now, outcome)
            _, usual = one.counted(usual, outcome[now], *taken)
            if past.learned == frozen(past.learned) and len(now) and rescaled:
                _, features, raw = map(np.stack, zip(*past.rows, strict=True))
                learned, usual = one.all_counted(raw)
                state = State(one.scale(features), one.agent.init(keys[0]))
                state = relearn(state, past.filled(learned))
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
    return Replay(fact(one.agent, "label"), len(log), rewards, rows, value, share)


def _least(log: Log) -> float:
    """The smallest propensity above 0 of anything on offer, as far as the log says."""
    if not log.has_all_propensities:
        return float(log.propensity.min())
    return min(
        float(offers.propensities[offers.propensities > 0].min())
        for offers in log.offers()
        if offers.propensities is not None
    )


class _Row(NamedTuple):
    """Everything the loop needs of a decision, or of many; those that only fill up count never."""

    number: Any
    words: Any  # of the key to learn by, and the chosen action
    features: Any
    available: Any
    possible: Any
    chosen: Any
    chance: Any
    outcome: Any


def _rows(offers: Offers, log: Log, least: float, key: Any) -> _Row:
    features, available = padded(offers, log)
    room, count = len(features), len(offers.features)

    def filled(column: Any, dtype: Any) -> np.ndarray:
        found = np.zeros((room, *np.shape(column)[1:]), dtype)
        found[:count] = column
        return found

    chance = filled(np.minimum(least / log.propensity[offers.rows], 1.0), precision())
    possible = np.ones((room, log.arms), bool)
    if offers.propensities is not None:
        possible[:count] = offers.propensities > 0
    number = np.arange(offers.rows.start, offers.rows.start + room, dtype=np.uint32)
    chosen = filled(log.chosen[offers.rows], np.int32)
    outcome = np.zeros(room, precision())
    keys = jax.vmap(lambda n: jax.random.key_data(jax.random.fold_in(key, n)))(number)
    words = np.column_stack([np.asarray(keys), chosen.astype(np.uint32)])
    return _Row(number, words, features, available, possible, chosen, chance, outcome)


FOR_EVER = np.iinfo(np.int32).max


class _Past:
    """What was learned: as much of it as a new scale makes learn again."""

    def __init__(self) -> None:
        self.learned, self.rows = 0, []

    def add(self, rows: _Row, now: np.ndarray, outcome: np.ndarray) -> None:
        self.learned += len(now)
        for at in now[: LAST - len(self.rows)]:
            features = rows.features[at]
            x = features[0 if len(features) == 1 else rows.chosen[at]]
            self.rows.append((rows.words[at], x, outcome[at]))

    @property
    def room(self) -> int:
        """How many more outcomes are learned before the scale is taken anew."""
        return FOR_EVER if self.learned >= LAST else max(2 * frozen(self.learned) - self.learned, 1)

    def filled(self, outcome: np.ndarray) -> tuple[np.ndarray, ...]:
        """(which are there, words, features, outcomes as learned), always of one size."""
        words, features, _ = map(np.stack, zip(*self.rows, strict=True))
        columns = words, features, outcome.astype(precision())
        there = np.arange(LAST) < len(self.rows)
        missing = LAST - len(self.rows)
        return there, *(np.concatenate([c, np.repeat(c[:1], missing, axis=0)]) for c in columns)


def _decided(rule: Rule, keys: Any, state: State, row: _Row) -> tuple[Any, Any, Any]:
    """(whether to learn, from what features, whether the choice was impossible)."""
    rows = jnp.broadcast_to(row.features, (row.available.shape[0], row.features.shape[-1]))
    seen = rows if state.scale is None else state.scale.apply(rows)
    index = rule.agent.act(
        jax.random.fold_in(keys[1], row.number), state.belief, seen, row.available
    )
    luck = jax.random.uniform(jax.random.fold_in(keys[2], row.number), dtype=row.chance.dtype)
    used = (index == row.chosen) & (luck < row.chance)
    return used, rows[row.chosen], ~row.possible[index]


def _compiled(rule: Rule) -> tuple[Any, Any]:
    leaves, structure = jax.tree.flatten(jax.tree.map(as_array, rule))
    run, relearn = _programs(structure)
    return lambda *rest: run(leaves, *rest), lambda *rest: relearn(leaves, *rest)


@lru_cache(maxsize=64)
def _programs(structure: Any) -> tuple[Any, Any]:
    @jax.jit
    def run(leaves: Any, keys: Any, state: State, room: Array, first: Array, rows: _Row) -> Any:
        """The decisions from `first` on, until `room` outcomes are learned."""
        rule = jax.tree.unflatten(structure, leaves)

        def step(carry: Any, at: tuple[Array, _Row]) -> tuple[Any, Any]:
            (i, row), (_, room) = at, carry

            def decide(carry: Any) -> tuple[Any, Any]:
                state, room = carry
                used, features, impossible = _decided(rule, keys, state, row)

                def learned(state: State) -> State:
                    return learn(rule, row.words, state, features, row.outcome)

                state = jax.lax.cond(used, learned, lambda state: state, state)
                return (state, room - used), (used, impossible, True)

            return jax.lax.cond(
                (room > 0) & (i >= first), decide, lambda carry: (carry, (False,) * 3), carry
            )

        (state, _), parts = jax.lax.scan(step, (state, room), (jnp.arange(len(rows.number)), rows))
        return state, *parts

    @jax.jit
    def relearn(leaves: Any, state: State, rows: tuple[Array, ...]) -> State:
        rule = jax.tree.unflatten(structure, leaves)

        def step(state: State, row: tuple[Array, ...]) -> tuple[State, None]:
            there, words, features, outcome = row
            after = jax.lax.cond(
                there, lambda s: learn(rule, words, s, features, outcome), lambda s: s, state
            )
            return after, None

        return jax.lax.scan(step, state, rows)[0]

    return run, relearn


def _eager(rule: Rule) -> tuple[Any, Any]:
    """The same in plain Python."""

    def run(keys: Any, state: State, room: Any, first: Any, rows: _Row) -> Any:
        used, impossible, done = np.zeros((3, len(rows.number)), bool)
        for at in range(int(first), len(rows.number)):
            if room <= 0:
                break
            row = _Row(*(column[at] for column in rows))
            used[at], features, impossible[at] = _decided(rule, keys, state, row)
            done[at] = True
            if used[at]:
                state = learn(rule, row.words, state, features, row.outcome)
                room = room - 1
        return state, used, impossible, done

    def relearn(state: State, rows: tuple[np.ndarray, ...]) -> State:
        for there, words, features, outcome in zip(*rows, strict=True):
            state = learn(rule, words, state, features, outcome) if there else state
        return state

    return run, relearn
