"""Processes of one service, as far as a test needs them: fronts that decide, and their keepers."""

from contextlib import contextmanager

import jax
import numpy as np

from ensemble_sampling.serve.decider import Shared
from ensemble_sampling.serve.types import Refused
from ensemble_sampling.serve.updater import Keeper


@contextmanager
def processes(home, usual):
    """Makes (front, keeper) of a bandit below `home`, by the agent `usual` unless told otherwise;
    all of them end with it."""
    made = []

    def make(agent=usual, place="shop", learns=True, **options):
        front = Shared(home / place, agent, **options)
        keeper = Keeper(front, home / place, learns)
        keeper.holder = f"process {len(made)}"
        made.append((front, keeper))
        return front, keeper

    try:
        yield make
    finally:
        for front, keeper in made:
            keeper.close()
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
