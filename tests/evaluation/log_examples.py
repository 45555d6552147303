"""Logs and agents that the tests of evaluation and of replay share."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import ensemble_sampling as es
from ensemble_sampling.core import Action

N, K, D = 60, 3, 2
RNG = np.random.default_rng(0)
AT, X = np.arange(N), RNG.normal(size=(N, D))
SHARES = RNG.dirichlet(np.ones(K), N) * 0.7 + 0.1
CHOSEN = RNG.integers(0, K, N)
Y = X[:, 0] * (CHOSEN - 1) + RNG.normal(size=N)
COLUMNS = AT, X, SHARES, CHOSEN, Y
UNITS = np.array([1000.0, 0.001])
LOG, SCALED = (es.Log(CHOSEN, Y, propensities=SHARES, context=X * units) for units in (1.0, UNITS))
LEARNER = es.PerAction(es.Linear(D, noise_std=0.7), K)
AGENT, GREEDY = es.EnsembleSampling(LEARNER, 8), es.Greedy(LEARNER)
act = jax.jit(lambda agent, *given: agent.act(*given))
update = jax.jit(lambda agent, *given: agent.update(*given))
chances = jax.jit(lambda agent, *given: agent.probabilities(*given))


def action(index, row):
    return Action(jnp.asarray(index), jnp.asarray(row, float))


class InPython:
    """An agent that is not compiled as a whole."""

    host = True

    def __init__(self, agent):
        self.init, self.act = agent.init, partial(act, agent)
        self.update, self.probabilities = partial(update, agent), partial(chances, agent)


def eighths(offset):
    """A log without features, of outcomes that no offset rounds; the third action is best."""
    rng = np.random.default_rng(3)
    chosen = rng.integers(0, 3, 400)
    y = np.round(8 * (0.5 * chosen + 0.5 * rng.normal(size=400))) / 8
    return es.Log(chosen, y + offset, np.full(400, 1 / 3), actions=["a", "b", "c"])
