"""Agents that learn from a log as a bandit would: the same units, keys and numbers."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import checks
from ..agents.thompson import as_agent
from ..config import as_array
from ..core import Agent, fact
from ..decide.default import Default
from ..decide.programs import Rule, State, learn
from ..inputs.hashing import precision
from ..inputs.scale import Scale, Usual, frozen
from .log import Log, slices


class Pupil(NamedTuple):
    """An agent that is to learn from a log as a bandit would.

    scaled: whether it sees features in units of their usual size
    default: whether it is the default agent, whose features are centred as well, and who takes
        missing ones (NaN) for the usual
    """

    agent: Agent
    scaled: bool
    default: bool = False

    @property
    def rule(self) -> Rule:
        return Rule(self.agent)

    def usual(self, outcomes: np.ndarray) -> Usual:
        """What a bandit counts outcomes by, which has so many."""
        return Usual.after(outcomes) if self.default else Usual()

    def counted(
        self, usual: Usual, outcomes: np.ndarray, before: int, of: int
    ) -> tuple[np.ndarray, Usual]:
        """Outcomes as it learns them after so many others, and what is usual after them, where what
        is usual was taken from the first `of`."""
        if not self.default:
            return outcomes, usual
        return usual.all_counted(outcomes, Default().stray, before, of)

    def each_counted(
        self, usual: Usual, outcomes: np.ndarray, before: int, of: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each as it learns it if that is the next one, and whether it strays."""
        if not self.default:
            return outcomes, np.zeros(len(outcomes), bool)
        stray = Default().stray
        found = [usual.counted(y, stray, before + 1, of) for y in outcomes.tolist()]
        return np.array([y for y, _ in found]), np.array([now != usual for _, now in found])

    def all_counted(self, outcomes: np.ndarray) -> tuple[np.ndarray, Usual]:
        """`counted` of all that there are."""
        return self.counted(self.usual(outcomes), outcomes, 0, frozen(len(outcomes)))

    def scale(self, rows: np.ndarray) -> Scale | None:
        """That of a bandit after outcomes of rows (n, d), see `Scale`."""
        if not self.scaled or not rows.shape[1]:
            return None
        some = rows[: frozen(len(rows))]
        return (
            Scale.of(some, self.default) if len(some) else Scale.init(rows.shape[1], self.default)
        )


def pupil(given: Any, log: Log, normalise: bool = True) -> Pupil:
    """An agent, a posterior, or None for the default agent, that fits the log."""
    from .informed import Informed  # which is one itself

    if given is None:
        arms = log.arms if log.shared else None
        agent = Default().agent(arms, log.dim, False)
        if not normalise:  # by which missing ones become the usual
            refuse_missing(log, "normalise=False")
        return Pupil(agent, normalise, default=True)
    agent = fitting(as_agent(given), log)
    if isinstance(agent, Informed):  # it has a scale of its own
        return Pupil(agent, False)
    refuse_missing(log, repr(agent))
    return Pupil(agent, normalise)


def refuse_missing(log: Log, who: str) -> None:
    if log.missing:
        raise ValueError(
            f"features are missing (NaN) in {log.missing} of {len(log)} decisions, which only the "
            f"default agent takes: evaluate None, or a bandit without an agent; got {who}"
        )


def fitting(agent: Agent, log: Log) -> Agent:
    arms, dim = fact(agent, "arms"), fact(agent, "dim")
    if arms not in (None, log.arms):
        raise ValueError(f"the policy knows {arms} actions, the log has {log.arms}")
    if dim not in (None, log.dim):
        raise ValueError(f"the policy takes {dim} features, the log has {log.dim}")
    return agent


def learned(one: Pupil, seed: int, x: np.ndarray, chosen: np.ndarray, outcome: np.ndarray) -> State:
    """What a bandit of this seed knows after outcomes of rows x (n, d), in order: the same scale,
    the same keys, and so the same numbers."""
    keys = streams(seed)
    state = State(one.scale(x), one.agent.init(keys.start))
    outcome, _ = one.all_counted(outcome)
    leaves, structure = jax.tree.flatten(jax.tree.map(as_array, one.rule))
    step = _learning(structure)
    for rows in slices(len(x)):
        number = np.arange(rows.start, rows.stop, dtype=np.uint32)
        words = keys.words(number, chosen[rows])
        y = outcome[rows].astype(precision())
        if fact(one.agent, "host"):
            for row in zip(words, x[rows], y, strict=True):
                state = learn(one.rule, row[0], state, *row[1:])
        else:
            state = step(leaves, state, words, x[rows], y)
    return state


class Streams(NamedTuple):
    """The keys of a bandit: the one it starts by, and the words of those it learns by."""

    start: Any
    second: int

    def words(self, number: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """(n, 3) for decisions `number`, as `programs.learn` takes them."""
        columns = np.full(len(number), self.second), number, chosen
        return np.column_stack([column.astype(np.uint32) for column in columns])


def streams(seed: int) -> Streams:
    seed = checks.size("seed", seed, least=0, below=2**32)
    start, rest = jax.random.split(jax.random.key(seed, impl="threefry2x32"))
    return Streams(start, int(jax.random.bits(rest, (2,), np.uint32)[1]))


def learn_rows(rule: Rule, state: State, words: Any, x: Any, outcome: Any) -> State:
    """`state` after outcomes of rows, in order."""

    def step(state: State, row: Any) -> tuple[State, None]:
        words, features, y = row
        return learn(rule, words, state, features, y), None

    return jax.lax.scan(step, state, (words, x, outcome))[0]


@lru_cache(maxsize=64)
def _learning(structure: Any) -> Any:
    @jax.jit
    def run(leaves: Any, *given: Any) -> Any:
        return learn_rows(jax.tree.unflatten(structure, leaves), *given)

    return run
