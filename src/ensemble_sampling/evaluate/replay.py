"""Replay: an agent that learns as it goes, on the decisions of a log that it would have made."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..agents import as_agent
from ..config import as_array
from ..core import Action, Agent, fact
from ..decide.features import precision
from .estimates import Estimate, interval
from .evaluation import refusal
from .log import Log, Offers
from .policies import fitting, padded


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
    log: Any, agent: Any, seed: int = 0, *, least: float | None = None, support: float = 0.05
) -> Replay:
    """Let an agent make the decisions of a log, and learn where it chooses what was chosen
    (Li, Chu, Langford and Wang, 2011).

    Where the log's choices were not uniform, a decision that agrees counts with probability
    least / propensity, so that those that count are as if they had been. What is left is as many
    decisions of a new run as the log can give, in order: its mean reward is that of the agent
    while it learns.

    agent: begins knowing nothing; a posterior in its place means Thompson sampling on it.
    least: the smallest propensity; by default that of the log. A larger one lets more decisions
        count, and those less likely than it too seldom, which is a bias.
    support: an agent that chose more than this share of its actions from those the log could never
        have shown is refused.
    """
    log = log if isinstance(log, Log) else Log.of(log)
    agent = fitting(as_agent(agent), log)
    if least is None:
        least = _least(log)
    checks.scalar("least", least, above=0.0, high=1.0)
    checks.size("seed", seed, least=0, below=2**32)
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), 4)
    state = agent.init(keys[0])
    run = _eager(agent) if fact(agent, "host") else _compiled(agent)
    counted, outside = np.zeros(len(log), bool), 0
    for offers in log.offers():
        state, used, impossible = run(keys, state, *_rows(offers, log, least))
        counted[offers.rows] = np.asarray(used)[: len(offers.features)]
        outside += int(np.asarray(impossible)[: len(offers.features)].sum())
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
    value = interval(float(rewards.mean()), rewards - rewards.mean())
    return Replay(fact(agent, "label"), len(log), rewards, rows, value, share)


def _least(log: Log) -> float:
    """The smallest propensity above 0 of anything on offer, as far as the log says."""
    if not log.has_all_propensities:
        return float(log.propensity.min())
    return min(
        float(offers.propensities[offers.propensities > 0].min())
        for offers in log.offers()
        if offers.propensities is not None
    )


def _rows(offers: Offers, log: Log, least: float) -> tuple[Any, ...]:
    """Everything the loop needs of each decision; those that only fill up count never."""
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
    outcome = filled(log.outcome[offers.rows], precision())
    return number, features, available, possible, chosen, chance, outcome


def _step(agent: Agent, keys: Any, state: Any, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """(choose, whether to learn, how, whether the choice was impossible) in one decision."""
    number, features, available, possible, chosen, chance, _ = row
    rows = jnp.broadcast_to(features, (available.shape[0], features.shape[-1]))
    index = agent.act(jax.random.fold_in(keys[1], number), state, rows, available)
    luck = jax.random.uniform(jax.random.fold_in(keys[2], number), dtype=chance.dtype)
    used = (index == chosen) & (luck < chance)
    return used, Action(chosen, rows[chosen]), jax.random.fold_in(keys[3], number), ~possible[index]


def _compiled(agent: Agent) -> Any:
    leaves, structure = jax.tree.flatten(jax.tree.map(as_array, agent))
    program = _program(structure)
    return lambda *rest: program(leaves, *rest)


@lru_cache(maxsize=64)
def _program(structure: Any) -> Any:
    @jax.jit
    def run(leaves: Any, keys: Any, state: Any, *rows: Array) -> tuple[Any, Array, Array]:
        agent = jax.tree.unflatten(structure, leaves)

        def step(state: Any, row: tuple[Any, ...]) -> tuple[Any, tuple[Array, Array]]:
            used, action, key, impossible = _step(agent, keys, state, row)

            def learn(state: Any) -> Any:
                return agent.update(key, state, action, row[-1])

            return jax.lax.cond(used, learn, lambda state: state, state), (used, impossible)

        state, (used, impossible) = jax.lax.scan(step, state, rows)
        return state, used, impossible

    return run


def _eager(agent: Agent) -> Any:
    """The same in plain Python."""

    def run(keys: Any, state: Any, *rows: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        used, impossible = np.zeros(len(rows[0]), bool), np.zeros(len(rows[0]), bool)
        for at, row in enumerate(zip(*rows, strict=True)):
            used[at], action, key, impossible[at] = _step(agent, keys, state, row)
            if used[at]:
                state = agent.update(key, state, action, row[-1])
        return state, used, impossible

    return run
