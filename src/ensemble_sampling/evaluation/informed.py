"""Agents that learn from a log as a bandit would: the same units, keys and numbers."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..agents.thompson import as_agent
from ..config import as_array, short
from ..core import Action, Agent, Key, Wrapper, fact
from ..decide.default import Default
from ..decide.programs import Rule, State, learn
from ..inputs.features import precision
from ..inputs.scale import LAST, Scale, Usual, frozen
from ..primitives import PLAIN, split_seed
from .log import Log


class Pupil(NamedTuple):
    """An agent that is to learn from a log as a bandit would.

    scaled: whether it sees features in units of their usual size
    default: whether it is the default agent, whose features are centred as well, unless they are
        hashed, and who takes missing ones (NaN) for the usual
    hashed: whether features are
    """

    agent: Agent
    scaled: bool
    default: bool = False
    hashed: bool = False

    @classmethod
    def of(cls, given: Any, log: Log, normalise: bool = True) -> "Pupil":
        """An agent, a posterior, or None for the default agent, that fits the log."""
        if given is None:
            if not normalise:  # by which missing ones become the usual
                refuse_missing(log, "normalise=False")
            agent = Default().agent(log.arms if log.shared else None, log.dim, log.hashed)
            return cls(agent, normalise, default=True, hashed=log.hashed)
        agent = as_agent(given)
        check_sizes(agent, log.arms, log)
        if isinstance(agent, Informed):  # it has a scale of its own
            return cls(agent, False)
        refuse_missing(log, repr(agent))
        return cls(agent, normalise)

    def units(
        self, x: np.ndarray, outcome: np.ndarray
    ) -> tuple[Scale | None, np.ndarray, float, float]:
        """Those of a bandit after outcomes (n,) of rows x (n, d): the scale of features; outcomes
        as it learns them; what these are counted from, and how far from it one can count (infinite
        while that is not known), see `Usual`."""
        count, scale = frozen(len(x)), None
        if self.scaled and x.shape[1]:
            centred = self.default and not self.hashed
            scale = Scale.of(x[:count], centred) if count else Scale.init(x.shape[1], centred)
        if not self.default:
            return scale, outcome, 0.0, np.inf
        stray = Default().stray
        counted, usual = Usual.after(outcome).all_counted(outcome, stray, 0, count)
        return scale, counted, usual.origin, stray * usual.reach or np.inf

    def learn(
        self, start: Key, words: np.ndarray, x: np.ndarray, outcome: np.ndarray
    ) -> tuple[State, float, float]:
        """(state, origin, most) after outcomes (n,) of rows x (n, d), in order, see `units`.

        words: (n, 3) of the keys to learn by, and the chosen actions, see `programs.learn`
        """
        scale, outcome, origin, most = self.units(x, outcome)
        state, rule = State(scale, self.agent.init(start)), arrays_of(Rule(self.agent))
        rows = words, x, outcome.astype(precision())
        if fact(self.agent, "host"):
            for word, features, y in zip(*rows, strict=True):
                state = learn(rule, word, state, features, y)
        elif len(x):
            rows = [padded(column, least=LAST) for column in rows]
            state = _learn_rows(rule, state, np.int32(len(x)), *rows)
        return state, origin, most

    def as_bandit(self, seed: int, x: np.ndarray, chosen: np.ndarray, outcome: np.ndarray) -> State:
        """What a bandit of this seed knows after outcomes of rows x (n, d), in order: the same
        scale, the same keys, and so the same numbers."""
        start, (_, stream) = split_seed(checks.size("seed", seed, least=0, below=2**32))
        words = np.column_stack([np.full(len(x), stream), np.arange(len(x)), chosen])
        key = jax.random.wrap_key_data(start, impl=PLAIN)
        return self.learn(key, words.astype(np.uint32), x, outcome)[0]


def learn_rows(rule: Rule, state: State, count: Any, words: Any, x: Any, outcome: Any) -> State:
    """`state` after the outcomes of the first `count` rows, in order."""

    def step(at: Any, state: State) -> State:
        return learn(rule, words[at], state, x[at], outcome[at])

    return jax.lax.fori_loop(0, count, step, state)


_learn_rows = jax.jit(learn_rows)


def arrays_of(rule: Rule) -> Rule:
    """A rule with arrays for settings: those of one structure share compiled programs."""
    return rule if fact(rule.agent, "host") else jax.tree.map(as_array, rule)


def padded(column: np.ndarray, least: int = 1) -> np.ndarray:
    """Filled up to a power of two, so that few sizes are compiled."""
    room = max(least, 1 << (len(column) - 1).bit_length())
    return np.concatenate([column, np.zeros((room - len(column), *column.shape[1:]), column.dtype)])


def refuse_missing(log: Log, who: str) -> None:
    if log.missing:
        raise ValueError(
            f"features are missing (NaN) in {log.missing} of {len(log)} decisions, which only the "
            f"default agent takes: evaluate None, or a bandit without an agent; got {who}"
        )


def check_sizes(agent: Agent, arms: int, log: Log) -> None:
    """Refuse an agent that cannot choose among so many actions with the log's features."""
    if fact(agent, "arms") not in (None, arms):
        raise ValueError(f"the policy knows {fact(agent, 'arms')} actions, the log has {arms}")
    if fact(agent, "dim") not in (None, log.dim):
        raise ValueError(f"the policy takes {fact(agent, 'dim')} features, the log has {log.dim}")


class Informed(Wrapper):
    """An agent that learned a log, in its order, before its first decision: for `simulate`.

    It sees features in the units a bandit would have after the log, and goes on in these, as it
    counts outcomes as a bandit would; None is the default agent. A bandit does the same by
    `learn_from`, which also records it.

    origin, most: what the default agent counts outcomes from, and how far from it one can count,
        see `Usual`; None for others
    """

    agent: Agent
    chosen: Any
    features: Any
    outcome: Any
    scale: Any
    origin: Any
    most: Any
    mark: str = eqx.field(static=True)
    wraps = "agent"
    __repr__ = short

    def __init__(self, agent: Any, log: Any, normalise: bool = True):
        log = Log.of(log)
        pupil = Pupil.of(agent, log, checks.flag("normalise", normalise))
        self.agent = pupil.agent
        if fact(self.agent, "host"):
            raise TypeError(f"{agent!r} runs in plain Python: teach it by Bandit.learn_from")
        self.chosen, self.mark = log.chosen.astype("int32"), log.mark
        self.features = log.chosen_features().astype(precision())
        self.scale, outcome, *about = pupil.units(self.features, log.outcome)
        self.origin, self.most = about if pupil.default else (None, None)
        self.outcome = outcome.astype(precision())

    @property
    def label(self) -> str:
        return f"{fact(self.agent, 'label')}, informed"

    @property
    def _start(self) -> Array:
        return jnp.asarray(self.origin, float)

    def init(self, key: Key) -> State:
        start, learn = jax.random.split(key)
        words = jax.random.bits(learn, (len(self.chosen), 2), jnp.uint32)
        words = jnp.column_stack([words, jnp.asarray(self.chosen, jnp.uint32)])
        state = State(self.scale, self.agent.init(start))
        rows = words, jnp.asarray(self.features), jnp.asarray(self.outcome)
        return learn_rows(Rule(self.agent), state, len(self.chosen), *rows)

    def _seen(self, state: State, features: Array) -> Array:
        return features if state.scale is None else state.scale.apply(features)

    def act(self, key: Key, state: State, features: Array, available: Array | None = None) -> Array:
        return self.agent.act(key, state.belief, self._seen(state, features), available)

    def update(self, key: Key, state: State, action: Action, outcome: Array) -> State:
        if state.scale is not None:
            state = State(state.scale.see(action.features), state.belief)
        action = Action(action.index, self._seen(state, action.features))
        if self.origin is not None:
            outcome = jnp.clip(outcome - self._start, -self.most, self.most)
        return State(state.scale, self.agent.update(key, state.belief, action, outcome))

    def probabilities(
        self, state: State, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = self._seen(state, checks.offer(features))
        return self.agent.probabilities(state.belief, features, available, key)

    def values(self, key: Key, state: State, features: Array) -> Array | None:
        found = fact(self.agent, "values")(key, state.belief, self._seen(state, features))
        return found if found is None or self.origin is None else found + self._start

    def diverged(self, state: State) -> Array | int:
        return fact(self.agent, "diverged")(state.belief)
