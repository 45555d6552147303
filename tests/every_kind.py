"""Simulates kinds of agents, two at a time and each in chunks side by side; prints what came of it.

`python tests/every_kind.py [name ...]`: rows of the contract's table, by default one for every kind
of compiled program: those that call LAPACK or not, of one value or of votes, and none at all.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from test_contract import AGENTS, ARMS, DIM, LAPACK

import ensemble_sampling as es
from ensemble_sampling.core import fact

CLICKS = es.worlds.LogisticBandit(DIM, ARMS)
VECTORS = es.NetworkBandit(DIM, ARMS, 5, outcomes=2, reward=jnp.max)


class Own(es.Uniform):
    """A user's agent, whose factorisations are mapped over realizations as JAX does it."""

    def act(self, key, state, features, available=None):
        rows = jax.random.normal(key, (8, 8)) + features.sum()
        return (jnp.linalg.qr(rows, mode="r").sum() > 0).astype(jnp.int32)


ALL = {**AGENTS, "a user's own": Own()}
KINDS = [*LAPACK.values(), "exact linear", "ensemble of arms", "persistent", "epsilon-greedy"]
KINDS += ["uniform", "trees", "a user's own"]


def run(name):
    agent = ALL[name]
    world = CLICKS if fact(agent, "reward") is None else VECTORS
    many = 4 if fact(agent, "host") else 96
    found = es.simulate(agent, world, 10, many, chunk=16, keep=True)
    return name, np.asarray(found.regret).tolist()


def swept():
    """A sweep, whose programs have settings of their own in every lane."""

    def make(forgetting):
        return es.Exact(es.Linear(DIM, forgetting=forgetting))

    found = es.sweep(make, CLICKS, {"forgetting": [0.9, 0.99]}, 10, 96, chunk=16)
    return "sweep", [result.mean.tolist() for result in found.results]


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(run, sys.argv[1:] or KINDS):
            print(json.dumps(found))
    if not sys.argv[1:]:
        print(json.dumps(swept()))
