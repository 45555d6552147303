"""A process of one service, as far as a test needs it: what decides, and what learns beside it."""

from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ensemble_sampling.decide.setup import Options
from ensemble_sampling.serve import admin, outcomes
from ensemble_sampling.serve.decider import Decider
from ensemble_sampling.serve.replicas import Replicas
from ensemble_sampling.serve.types import Choose, Learn, Refused
from ensemble_sampling.serve.updater import Updater


class Process:
    """All that a process does for a bandit, but for threads. Functions of `outcomes` and `admin`
    are its methods."""

    def __init__(self, place, agent=None, candidates=None, learns=True, **options):
        self.replicas = Replicas(place, Options(agent, **options), candidates)
        self.decider, self.ledger = Decider(self.replicas), self.replicas.ledger
        self.updater = Updater(self.replicas, place, learns)

    def __getattr__(self, name):
        module = outcomes if hasattr(outcomes, name) else admin
        return partial(getattr(module, name), self.replicas)

    @property
    def main(self):
        return self.replicas.main

    @property
    def known(self):
        """How many outcomes, and revisions, decisions are made by."""
        return (0, 0) if self.main.version is None else self.main.version.known

    def shadow_replica(self, name):
        return self.replicas.shadows.replica(name)

    def work(self, decisions, outcomes=(), hurry=False):
        """Answers to groups of decisions and of outcomes; of what is refused, its kind."""
        told = [[Learn(*one) for one in group] for group in outcomes]
        found = self.decider.work(decisions, told, hurry)
        return tuple([a.kind if isinstance(a, Refused) else a for a in side] for side in found)

    def choose(self, *actions, **about):
        """A decision about each, all alike but for their actions."""
        return self.ask(*(Choose(one, **about) for one in actions))

    def ask(self, *choices):
        return _whole(self.decider.work([choices], [])[0][0])

    def learn(self, *told):
        """(id, outcome) or (id, outcome, ref), each: whether it was new."""
        return _whole(self.decider.work([], [[Learn(*one) for one in told]])[1][0])

    def play(self, offers):
        """A decision about each, and an outcome that depends on what was chosen."""
        made = self.choose(*offers)
        self.learn(*((m.id, float(np.sum(o[m.index]))) for m, o in zip(made, offers, strict=True)))
        return made

    def step(self):
        """Learn or follow, and publish, as in a while."""
        self.updater._due = self.updater._renew = 0.0
        self.updater.step()

    def close(self):
        self.updater.close()
        self.replicas.close()


def _whole(answer) -> Any:
    if isinstance(answer, Refused):
        raise answer
    return answer


def step(*several):
    for process in several:
        process.step()


@contextmanager
def processes(home, usual):
    """Makes processes of a bandit below `home`, by the agent `usual` unless told otherwise; all of
    them end with it."""
    made = []

    def make(agent=usual, place="shop", **options):
        made.append(Process(home / place, agent, **options))
        made[-1].updater.holder = f"process {len(made)}"
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()
