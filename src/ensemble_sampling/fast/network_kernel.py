"""All steps of a period in one GPU kernel, which keeps a member's weights on the chip throughout.

One program per member. `vmap` over members and realizations makes the grid, and what members
share, the minibatches, is gathered once for all of them.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from ..learners.losses import SquaredError
from ..networks import GaussianMLP

HIDDEN, INPUTS, BATCH = 64, 128, 64
"""The largest sizes whose weights fit in the registers of one program."""

SCALE = 4.0
"""Weights are held as so many prior standard deviations: half precision then reaches from rounding
errors of single precision to weights 16,000 standard deviations wide."""


def fits(learner: Any, member: Any) -> bool:
    """Whether the kernel computes what the learner means: the paper's two-layer network."""
    make = learner.make
    return (
        type(make) is GaussianMLP
        and len(make.hidden) == 1
        and make.hidden[0] <= HIDDEN
        and make.dim <= INPUTS
        and make.prior_std is not None  # else a constant is added to the inputs
        and make.outputs is None
        and not make.squash
        and type(learner.loss) is SquaredError
        and learner.optimizer is optax.sgd
        and learner.batch is not None
        and learner.batch <= BATCH
        and learner.noise_std is not None
        and learner.prior_std is not None
        and learner.dropout is None
        and learner.indices is None
        and learner.arms is None
        and member.noise.weight is None
        and all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(member.model))
    )


def applies(learner: Any, member: Any) -> bool:
    """Whether there is a GPU of a kind the kernel is known on, and a network for it."""
    device, *others = jax.local_devices()
    return (
        str(getattr(device, "compute_capability", "")).startswith("9.")  # NVIDIA's Hopper
        and not others  # a kernel is not split over devices by itself
        and jax.__version_info__ >= (0, 10)
        and fits(learner, member)
    )


def learn(
    learner: Any, history: Any, member: Any, rows: Array, interpret: bool = False
) -> tuple[Any, Array]:
    """(weights after all steps on the rows of the history (steps, batch), their sum of squares)."""
    w, v = member.model.weights
    w0, v0 = member.start.weights
    targets = history.outcomes[rows]
    if member.noise.shift is not None:
        targets = targets + learner.noise_std * member.noise.shift[rows]
    steps, batch = rows.shape
    pad = [(0, 0), (0, _room(batch) - batch)]
    inputs = jnp.pad(history.features[rows], [*pad, (0, _room(w.shape[1]) - w.shape[1])])
    # Half precision has the digits of TF32, in which a GPU multiplies by default, not its range.
    largest = jnp.abs(inputs).max()
    unit = jnp.exp2(jnp.ceil(jnp.log2(jnp.where(largest > 0, largest, 1.0))))
    up = jnp.exp2(jnp.round(jnp.log2(SCALE / jnp.asarray(learner.prior_std, jnp.float32))))
    rate = 2 * learner.learning_rate / (learner.noise_std**2 * batch)
    keep = 1 - 2 * learner.learning_rate / (learner.prior_std**2 * history.held)
    model, output, norm = _call(steps, learner.make.slope, interpret)(
        w,
        v,
        w0,
        v0,
        (inputs / unit).astype(jnp.float16),
        jnp.pad(targets, pad),
        jnp.stack([keep, rate, up, unit / up, unit * up]).astype(jnp.float32),
        jnp.where(member.healthy, 0, 1)[None],
        member.pull[None],
    )
    weights = jax.tree.unflatten(jax.tree.structure(member.model), [model, output])
    return weights, norm


def _room(size: int) -> int:
    """The tile a size is padded to."""
    return max(16, pl.next_power_of_2(size))


def _call(steps: int, slope: float, interpret: bool) -> Any:
    def call(w: Array, v: Array, *others: Array) -> Any:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (w, v)]
        return pl.pallas_call(
            functools.partial(_kernel, steps=steps, slope=slope),
            out_shape=(*shapes, jax.ShapeDtypeStruct((), jnp.float32)),
            input_output_aliases={0: 0, 1: 1},
            compiler_params=gpu.CompilerParams(num_warps=4, num_stages=3),
            interpret=interpret,
            name="network_steps",
        )(w, v, *others)

    return call


def _kernel(
    w_ref: Any,  # weights (hidden, dim)
    v_ref: Any,  # of the output (hidden,)
    w0_ref: Any,  # where they started
    v0_ref: Any,
    x_ref: Any,  # inputs (steps, batch, dim), padded with zeros, in their unit
    t_ref: Any,  # targets (steps, batch)
    common_ref: Any,  # what is left of a weight's way from its anchor, step size, scales
    first_ref: Any,  # number of the first step: one that finds a network lost only puts it back
    pull_ref: Any,
    w_new_ref: Any,
    v_new_ref: Any,
    norm_ref: Any,
    *,
    steps: int,
    slope: float,
) -> None:
    """With Z = W X' (hidden, batch), h = leaky(Z) and e = step size (y - v h), a step is

    W <- keep W + (1 - keep) W_0 + (v e leaky'(Z)) X,    v <- keep v + (1 - keep) v_0 + h e'.

    Written with hidden units as rows, weights and their gradient have the layout in which the
    matrix unit takes its left factor: they never leave the registers. Products are of half
    precision numbers, sums in single.
    """
    (hidden, dim), (room, inputs) = w_ref.shape, (_room(w_ref.shape[0]), x_ref.shape[2])
    units, columns = jnp.arange(room), jnp.arange(inputs)
    real = units < hidden
    place = (units[:, None], columns[None, :])
    inside = real[:, None] & (columns < dim)[None, :]
    keep, rate, up, down, back = (common_ref[i] for i in range(5))
    first, pull = first_ref[0], pull_ref[0]
    w, v = _read(w_ref, place, inside), _read(v_ref, units, real)
    w0, v0 = _read(w0_ref, place, inside), _read(v0_ref, units, real)
    # A branch, not a choice: the weights need not wait for their start, and few networks diverge.
    w, v = jax.lax.cond(first > 0, lambda: (_read(w0_ref, place, inside), v0), lambda: (w, v))
    w, w0, v0 = up * w, ((1 - keep) * pull * up) * w0, ((1 - keep) * pull) * v0

    def step(s: Array, weights: tuple[Array, Array]) -> tuple[Array, Array]:
        w, v = weights
        x = x_ref[s]
        z = _product(w.astype(jnp.float16), x.T)
        h = jnp.maximum(z, slope * z)
        error = (t_ref[s] - jnp.sum((v * down)[:, None] * h, axis=0)) * rate
        toward = jnp.where(z >= 0, v[:, None], (slope * v)[:, None]) * (error * back)[None, :]
        w = keep * w + w0 + _product(toward.astype(jnp.float16), x)
        v = keep * v + v0 + down * jnp.sum(h * error[None, :], axis=1)
        return w, v

    w, v = jax.lax.fori_loop(first, steps, step, (w, v))
    w = w * (1 / up)
    gpu.store(w_new_ref.at[place], w, mask=inside)
    gpu.store(v_new_ref.at[units], v, mask=real)
    norm_ref[...] = jnp.sum(jnp.sum(w * w, axis=1) + v * v, axis=0)


def _read(ref: Any, place: Any, inside: Array) -> Array:
    return gpu.load(ref.at[place], mask=inside, other=0.0)


def _product(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)
