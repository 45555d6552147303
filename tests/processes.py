"""Processes of one service, as far as a test needs them: fronts that decide, and their updaters."""

from contextlib import contextmanager
from functools import partial

import jax
import numpy as np

from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import admin, outcomes
from ensemble_sampling.serve.decider import Decider
from ensemble_sampling.serve.replicas import Replicas
from ensemble_sampling.serve.types import Refused
from ensemble_sampling.serve.updater import Updater


class Front:
    """All that a process does for a bandit, but for learning."""

    def __init__(self, place, agent=None, candidates=None, begins=True, **options):
        self.replicas = Replicas(place, Options(agent, **options), candidates, begins)
        self.decider, self._ledger = Decider(self.replicas), self.replicas.ledger

    def __getattr__(self, name):
        for module in (outcomes, admin):
            if hasattr(module, name):
                return partial(getattr(module, name), self.replicas)
        for part in (self.replicas, self.decider, self.decider.warmup):
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(name)


@contextmanager
def processes(home, usual):
    """Makes (front, updater) of a bandit below `home`, by the agent `usual` unless told otherwise;
    all of them end with it."""
    made = []

    def make(agent=usual, place="shop", learns=True, **options):
        front = Front(home / place, agent, **options)
        updater = Updater(front.replicas, home / place, learns)
        updater.holder = f"process {len(made)}"
        made.append((front, updater))
        return front, updater

    try:
        yield make
    finally:
        for front, updater in made:
            updater.close()
            front.close()


def decide(front, *asks):
    (answer,), _ = front.work([asks], [])
    if isinstance(answer, Refused):
        raise answer
    return answer


def tell(front, *told):
    """(id, outcome) or (id, outcome, ref), each: whether it was new."""
    _, (answer,) = front.work([], [[(*one, None)[:3] for one in told]])
    if isinstance(answer, Refused):
        raise answer
    return answer


def equal(one, other):
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))
