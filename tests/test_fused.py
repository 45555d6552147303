"""The kernel that learns all steps of a period at once gives what the steps give one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import Noise
from ensemble_sampling.learners import fused

DIM, HIDDEN, CAPACITY, BATCH, STEPS, MEMBERS = 5, 7, 12, 9, 3, 3


def learner(**changes):
    settings = {
        "steps": STEPS,
        "batch": BATCH,
        "learning_rate": 0.1,
        "optimizer": optax.sgd,
        **changes,
    }
    make = settings.pop("make", es.GaussianMLP(DIM, (HIDDEN,), prior_std=0.5))
    return es.Network(make, DIM, CAPACITY, 2.0, 0.5, **settings)


def started(network, scale=1.0):
    """(history, members) with something to learn, the members away from their start."""
    rng = np.random.default_rng(0)
    noise = Noise(shift=jnp.zeros(()))
    init = jax.vmap(lambda key: network.init(key, 1.0, noise), out_axes=(None, 0))
    history, members = init(jax.random.split(jax.random.key(0), MEMBERS))
    history = history._replace(
        features=jnp.asarray(scale * rng.uniform(-1, 1, (CAPACITY, DIM)), jnp.float32),
        outcomes=jnp.asarray(3 * rng.normal(size=CAPACITY), jnp.float32),
        seen=jnp.asarray(8),
    )
    moved = jax.tree.map(
        lambda w: w + jnp.asarray(0.2 * rng.normal(size=w.shape), w.dtype), members.model
    )
    shift = jnp.asarray(rng.normal(size=(MEMBERS, CAPACITY)), jnp.float32)
    return history, members._replace(model=moved, noise=Noise(shift=shift))


ROWS = jnp.asarray(np.random.default_rng(1).integers(8, size=(STEPS, BATCH)))


def both(network, history, members):
    """The members after the steps of a period: by the kernel, and one step after the other."""
    kernel = jax.vmap(lambda m: fused.learned(network, history, m, ROWS, interpret=True))

    def plain(member):
        for i in range(STEPS):
            batch = es.learners.network.Batch(ROWS[i], None, None)
            member = network._step(jnp.asarray(i), history, member, batch)
        return member.model

    return kernel(members), jax.vmap(plain)(members)


def close(found, wanted, start, tolerance=2e-3):
    """Near in units of how far the weights moved."""
    for a, b, c in zip(*map(jax.tree.leaves, (found, wanted, start)), strict=True):
        moved = np.linalg.norm(b - c)
        assert moved > 0
        assert np.linalg.norm(a - b) < tolerance * moved


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_kernel_moves_weights_as_steps_do_whatever_the_units(scale):
    network = dataclasses.replace(learner(), learning_rate=0.1 / max(1.0, scale) ** 2)
    history, members = started(network, scale)
    (model, norm), wanted = both(network, history, members)
    close(model, wanted, members.model)
    squares = sum((np.asarray(leaf) ** 2).reshape(MEMBERS, -1).sum(1) for leaf in model.weights)
    np.testing.assert_allclose(norm, squares, rtol=1e-5)
