"""An agent that starts from what was logged elsewhere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..agents import as_agent
from ..config import short
from ..core import Action, Agent, Key, fact, taken
from ..decide.features import precision
from .log import Log
from .policies import fitting, taught


class Informed(eqx.Module):
    """An agent that learned a log, in its order, before its first decision: for `simulate`.

    A bandit does the same by `learn_from`, which also records it.
    """

    agent: Agent
    chosen: Any
    features: Any
    outcome: Any
    arms = taken("agent", "arms")
    dim = taken("agent", "dim")
    context = taken("agent", "context")
    columns = taken("agent", "columns")
    reward = taken("agent", "reward")
    check_outcome = taken("agent", "check_outcome")
    __repr__ = short

    def __init__(self, agent: Any, log: Any):
        log = Log.of(log)
        self.agent = fitting(as_agent(agent), log)
        if fact(self.agent, "host"):
            raise TypeError(f"{agent!r} runs in plain Python: teach it by Bandit.learn_from")
        self.chosen = log.chosen.astype("int32")
        self.features = log.chosen_rows().astype(precision())
        self.outcome = log.outcome.astype(precision())

    @property
    def label(self) -> str:
        return f"{fact(self.agent, 'label')}, informed"

    def init(self, key: Key) -> Any:
        start, learn = jax.random.split(key)
        rows = (self.chosen, self.features, self.outcome)
        return taught(self.agent, learn, self.agent.init(start), 0, *map(jnp.asarray, rows))

    def act(self, key: Key, state: Any, features: Array, available: Array | None = None) -> Array:
        return self.agent.act(key, state, features, available)

    def update(self, key: Key, state: Any, action: Action, outcome: Array) -> Any:
        return self.agent.update(key, state, action, outcome)

    def probabilities(
        self, state: Any, features: Array, available: Array | None = None, key: Key | None = None
    ) -> Array:
        return self.agent.probabilities(state, features, available, key)

    def values(self, key: Key, state: Any, features: Array) -> Array | None:
        return fact(self.agent, "values")(key, state, features)

    def diverged(self, state: Any) -> Array | int:
        return fact(self.agent, "diverged")(state)
