"""An agent that starts from what was logged elsewhere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Agent, Key, Wrapper, fact
from ..decide.default import Default
from ..decide.programs import Rule, State
from ..inputs.hashing import precision
from .log import Log
from .pupils import learn_rows, pupil


class Informed(Wrapper):
    """An agent that learned a log, in its order, before its first decision: for `simulate`.

    It sees features in the units a bandit would have after the log, and goes on in these, as it
    counts outcomes as a bandit would; None is the default agent. A bandit does the same by
    `learn_from`, which also records it.

    origin, most: what the default agent counts outcomes from, and how far from it one can count
        (infinite while that is not known), see `decide.scale.Usual`
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
        one = pupil(agent, log, checks.flag("normalise", normalise))
        self.agent = one.agent
        if fact(self.agent, "host"):
            raise TypeError(f"{agent!r} runs in plain Python: teach it by Bandit.learn_from")
        self.chosen = log.chosen.astype("int32")
        self.features = log.chosen_rows().astype(precision())
        outcome, usual = one.all_counted(log.outcome)
        most = Default().stray * usual.reach or np.inf
        self.origin, self.most = (usual.origin, most) if one.default else (None, None)
        self.outcome = outcome.astype(precision())
        self.scale, self.mark = one.scale(self.features), log.mark

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
        rows = map(jnp.asarray, (self.features, self.outcome))
        return learn_rows(Rule(self.agent), state, words, *rows)

    def _seen(self, state: State, features: Array) -> Array:
        return features if state.scale is None else state.scale.apply(features)

    def act(self, key: Key, state: State, features: Array, available: Array | None = None) -> Array:
        return self.agent.act(key, state.belief, self._seen(state, features), available)

    def update(self, key: Key, state: State, action: Action, outcome: Array) -> State:
        if state.scale is not None:
            state = State(state.scale.see(action.features), state.belief)
        action = Action(action.index, self._seen(state, action.features))
        if self.origin is not None:
            away = outcome - self._start
            outcome = jnp.clip(away, -self.most, self.most)
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
