"""The kernel that learns all steps of a period at once gives what the steps give one by one."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ensemble_sampling as es
from ensemble_sampling.core import Noise
from ensemble_sampling.fast import network_kernel
from ensemble_sampling.learners.network import Batch

DIM, HIDDEN, CAPACITY, BATCH, STEPS, MEMBERS = 5, 7, 12, 9, 3, 3
ROWS = jnp.asarray(np.random.default_rng(1).integers(8, size=(STEPS, BATCH)))
MAKE = es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=0.5)


def learner(make=MAKE, noise_std=2.0, prior_std=0.5, **changes):
    how = {"steps": STEPS, "batch": BATCH, "learning_rate": 0.1, "optimizer": optax.sgd}
    return es.Network(make, DIM, CAPACITY, noise_std, prior_std, **(how | changes))


def started(learner, unit=1.0, shift=True):
    """(history, members) with something to learn, the members away from their start."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    noise = Noise(shift=jnp.zeros(())) if shift else Noise()
    init = jax.vmap(lambda key: learner.init(key, 1.0, noise), out_axes=(None, 0))
    history, members = init(jax.random.split(jax.random.key(0), MEMBERS))
    features = jnp.asarray(unit * rng.uniform(-1, 1, (CAPACITY, DIM)), jnp.float32)
    outcomes = 3 * unit * normal(CAPACITY)
    history = history._replace(features=features, outcomes=outcomes, seen=jnp.asarray(8))
    moved = jax.tree.map(lambda w: w + 0.2 * normal(*w.shape), members.model)
    noise = Noise(shift=normal(MEMBERS, CAPACITY)) if shift else Noise()
    return history, members._replace(model=moved, noise=noise)


def at_once(learner, history, members):
    kernel = jax.vmap(lambda m: network_kernel.learn(learner, history, m, ROWS, interpret=True))
    return jax.jit(kernel)(members)


def one_by_one(learner, history, members):
    def steps(member):
        for i in range(STEPS):
            member = learner._step(jnp.asarray(i), history, member, Batch(ROWS[i], None, None))
        return member.model

    return jax.jit(jax.vmap(steps))(members)


def check(found, wanted, start):
    """Half precision's rounding, in units of how far the weights moved."""
    for a, b, c in zip(*map(jax.tree.leaves, (found, wanted, start)), strict=True):
        moved = np.linalg.norm(b - c)
        assert moved > 0.01
        assert np.linalg.norm(a - b) < 2e-3 * moved


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_weights_move_as_by_steps_in_any_unit(unit):
    given = learner(noise_std=2 * unit)
    history, members = started(given, unit)
    model, norm = at_once(given, history, members)
    check(model, one_by_one(given, history, members), members.model)
    squares = sum((np.asarray(leaf) ** 2).reshape(MEMBERS, -1).sum(1) for leaf in model.weights)
    np.testing.assert_allclose(norm, squares, rtol=1e-5)


def test_weights_of_any_size_move_as_by_steps():
    make = es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=1e-3)
    given = learner(make, prior_std=1e-3, noise_std=2e-3, learning_rate=1e-7)
    history, members = started(given)
    small = jax.tree.map(lambda w: 1e-3 * w, members.model)
    members = members._replace(model=small)
    history = history._replace(outcomes=1e-3 * history.outcomes)
    (model, _), wanted = at_once(given, history, members), one_by_one(given, history, members)
    for a, b, c in zip(*map(jax.tree.leaves, (model, wanted, small)), strict=True):
        assert np.linalg.norm(a - b) < 2e-3 * np.linalg.norm(b - c)


def test_single_best_model_is_pulled_to_zero_and_sees_no_noise():
    given = learner()
    history, members = started(given, shift=False)
    members = members._replace(pull=jnp.zeros(MEMBERS))
    model, _ = at_once(given, history, members)
    check(model, one_by_one(given, history, members), members.model)


def test_diverged_network_is_put_back_and_learns_again():
    given = learner()
    history, members = started(given)
    lost = members._replace(
        model=jax.tree.map(lambda w: jnp.full_like(w, jnp.nan), members.model),
        healthy=jnp.array([True, False, False]),
    )
    model, norm = at_once(given, history, lost)
    wanted = one_by_one(given, history, lost)
    assert not np.isfinite(norm[0])
    for part in (model, wanted, lost.start):
        assert np.isfinite(jax.tree.leaves(part)[0][1:]).all()
    later = [jax.tree.map(lambda w: w[1:], part) for part in (model, wanted, lost.start)]
    check(*later)


def test_a_weight_beyond_half_precision_is_noticed():
    given = learner()
    history, members = started(given)
    w, v = members.model.weights
    members = members._replace(
        model=eqx.tree_at(lambda m: m.weights, members.model, [w.at[1, 0, 0].set(1e7), v])
    )
    _, norm = at_once(given, history, members)
    np.testing.assert_array_equal(np.isfinite(norm), [True, False, True])


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": optax.adam},
        {"make": es.networks.GaussianMLP(DIM, (HIDDEN, HIDDEN), prior_std=0.5)},
        {"make": es.networks.GaussianMLP(DIM, (), prior_std=0.5, squash=True)},
        {"make": es.networks.GaussianMLP(DIM, (HIDDEN,))},
        {"make": es.networks.GaussianMLP(DIM, (network_kernel.HIDDEN + 1,), prior_std=0.5)},
        {"make": es.networks.GaussianMLP(DIM, (HIDDEN,), prior_std=0.5, squash=True)},
        {"batch": None},
        {"batch": network_kernel.BATCH + 1},
        {"noise_std": None},
        {"prior_std": None},
        {"dropout": 0.5},
        {"loss": es.learners.CrossEntropy()},
    ],
)
def test_other_networks_are_not_for_the_kernel(changes):
    given = learner(**changes)
    _, member = given.init(jax.random.key(0), 1.0, Noise(shift=jnp.zeros(())))
    assert not network_kernel.fits(given, member)


def test_the_papers_network_is_for_the_kernel_on_a_gpu_alone(monkeypatch):
    given = learner()
    shared, member = given.init(jax.random.key(0), 1.0, Noise(shift=jnp.zeros(())))
    assert network_kernel.fits(given, member)
    assert not network_kernel.applies(given, member)
    _, weighted = given.init(jax.random.key(0), 1.0, Noise(weight=jnp.ones(())))
    assert not network_kernel.fits(given, weighted)

    # What is compiled for a GPU has the kernel in it, and what for a CPU has not.
    def observe(key):
        action, noise = es.core.Action(jnp.array(0), jnp.ones(DIM)), Noise(shift=jnp.array(0.5))
        return given.observe(key, shared, member, action, jnp.array(1.0), noise)

    plain = jax.jit(observe)(jax.random.key(1))
    with monkeypatch.context() as patched:
        patched.setattr(jax, "default_backend", lambda: "gpu")
        hopper = SimpleNamespace(compute_capability="9.0")
        patched.setattr(jax, "local_devices", lambda backend=None: [hopper])
        traced = jax.jit(lambda key: observe(key)).trace(jax.random.key(1))
        assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
        chosen = traced.lower()
        assert "triton" not in chosen.as_text()
    for a, b in zip(
        *map(jax.tree.leaves, (chosen.compile()(jax.random.key(1)), plain)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)
