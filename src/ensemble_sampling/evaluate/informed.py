"""An agent that starts from what was logged elsewhere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Action, Agent, Key, fact, taken
from ..decide.features import precision
from ..decide.programs import Rule
from ..decide.states import State
from .log import Log
from .policies import pupil, taught


class Informed(eqx.Module):
    """An agent that learned a log, in its order, before its first decision: for `simulate`.

    It sees features in the units a bandit would have after the log, and goes on in these; None is
    the default agent. A bandit does the same by `learn_from`, which also records it.
    """

    agent: Agent
    chosen: Any
    features: Any
    outcome: Any
    scale: Any
    mark: str = eqx.field(static=True)
    arms = taken("agent", "arms")
    dim = taken("agent", "dim")
    context = taken("agent", "context")
    columns = taken("agent", "columns")
    reward = taken("agent", "reward")
    check_outcome = taken("agent", "check_outcome")
    __repr__ = short

    def __init__(self, agent: Any, log: Any, normalise: bool = True):
        log = Log.of(log)
        one = pupil(agent, log, checks.flag("normalise", normalise))
        self.agent = one.agent
        if fact(self.agent, "host"):
            raise TypeError(f"{agent!r} runs in plain Python: teach it by Bandit.learn_from")
        self.chosen = log.chosen.astype("int32")
        self.features = log.chosen_rows().astype(precision())
        self.outcome = log.outcome.astype(precision())
        self.scale, self.mark = one.scale(self.features), log.mark

    @property
    def label(self) -> str:
        return f"{fact(self.agent, 'label')}, informed"

    def init(self, key: Key) -> State:
        start, learn = jax.random.split(key)
        words = jax.random.bits(learn, (len(self.chosen), 2), jnp.uint32)
        words = jnp.column_stack([words, jnp.asarray(self.chosen, jnp.uint32)])
        state = State(self.scale, self.agent.init(start))
        rows = map(jnp.asarray, (self.features, self.outcome))
        return taught(Rule(self.agent), state, words, *rows)

    def _seen(self, state: State, features: Array) -> Array:
        return features if state.scale is None else state.scale.apply(features)

    def act(self, key: Key, state: State, features: Array, available: Array | None = None) -> Array:
        return self.agent.act(key, state.belief, self._seen(state, features), available)

    def update(self, key: Key, state: State, action: Action, outcome: Array) -> State:
        if state.scale is not None:
            state = State(state.scale.see(action.features), state.belief)
        action = Action(action.index, self._seen(state, action.features))
        return State(state.scale, self.agent.update(key, state.belief, action, outcome))

    def probabilities(
        self, state: State, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        features = self._seen(state, checks.offer(features))
        return self.agent.probabilities(state.belief, features, available, key)

    def values(self, key: Key, state: State, features: Array) -> Array | None:
        return fact(self.agent, "values")(key, state.belief, self._seen(state, features))

    def diverged(self, state: State) -> Array | int:
        return fact(self.agent, "diverged")(state.belief)
