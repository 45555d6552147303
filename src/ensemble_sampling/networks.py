"""Layers without biases and the paper's prior over their weights, for learners and worlds alike."""

from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from . import checks
from .core import Key


class MLP(eqx.Module):
    """Layers without biases: leaky ReLU after every layer, but for the last unless `squash`."""

    weights: list[Array]
    slope: float = eqx.field(static=True, default=0.01)
    squash: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not isinstance(self.weights, list | tuple) or not self.weights:
            raise TypeError(f"weights must be a list of one array per layer, got {self.weights!r}")

    def __call__(self, x: Array) -> Array:
        *hidden, last = self.weights
        for w in hidden:
            x = jax.nn.leaky_relu(w @ x, self.slope)
        return self._output(last @ x)

    def _output(self, x: Array) -> Array:
        return jax.nn.leaky_relu(x, self.slope) if self.squash else x

    def masked(self, x: Array, key: Key, rate: Array | float, readout: "Readout") -> Array:
        """The same with each hidden unit left out with probability `rate`, without rescaling."""
        *hidden, last = self.weights
        if not hidden:
            raise ValueError("dropout leaves out hidden units, and this network has none")
        mask = jnp.ones_like(x)
        for i, w in enumerate(hidden):
            x = jax.nn.leaky_relu(w @ (x * mask), self.slope)
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 1 - rate, x.shape)
            mask = keep.astype(x.dtype)
        return self._output(readout(last, x, mask))


Readout = Callable[[Array, Array, Array], Array]


def true_gradient(weights: Array, hidden: Array, mask: Array) -> Array:
    """The output layer on masked units."""
    return weights @ (hidden * mask)


def published_gradient(weights: Array, hidden: Array, mask: Array) -> Array:
    """The same value, but the output weights learn from the unmasked units.

    So did the code behind the published dropout curves (Figure 3c); kept to reproduce them.
    """
    still = jax.lax.stop_gradient
    learning = weights @ still(hidden)
    return still(weights) @ (hidden * mask) + learning - still(learning)


class GaussianMLP(eqx.Module):
    """Draws an `MLP` with independent N(0, prior_std^2) weights, the paper's prior.

    `hidden=()` with `squash` is the single neuron, `hidden=(50,)` the two-layer network.
    """

    dim: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True, default=None)
    prior_std: float = 1.0
    slope: float = eqx.field(static=True, default=0.01)
    squash: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.size("dim", self.dim)
        if not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden must be a tuple of widths such as (50,), got {self.hidden!r}")
        for width in self.hidden:
            checks.size("hidden", width)
        if self.outputs is not None:
            checks.size("outputs", self.outputs)
        checks.positive("prior_std", self.prior_std)
        checks.scalar("slope", self.slope, low=0.0, high=1.0)
        checks.flag("squash", self.squash)

    def __call__(self, key: Key) -> MLP:
        return self._draw(key, self.prior_std)

    def center(self, key: Key) -> MLP:
        """Near zero, where the paper starts epsilon-greedy and dropout."""
        return self._draw(key, 0.01)

    def _draw(self, key: Key, std: Array | float) -> MLP:
        last = () if self.outputs is None else (self.outputs,)
        widths = [(self.dim,), *((h,) for h in self.hidden), last]
        shapes = [after + before for before, after in pairwise(widths)]
        keys = jax.random.split(key, len(shapes))
        layers = [std * jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]
        return MLP(layers, self.slope, self.squash)
