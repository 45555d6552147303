"""Layers without biases and the paper's prior over their weights, for learners and worlds alike."""

from collections.abc import Callable

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

    def __call__(self, x: Array) -> Array:
        for i, w in enumerate(self.weights):
            x = w @ x
            if self.squash or i < len(self.weights) - 1:
                x = jax.nn.leaky_relu(x, self.slope)
        return x

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
        return readout(last, x, mask)


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
        checks.positive("prior_std", self.prior_std)
        checks.scalar("slope", self.slope, low=0.0, high=1.0)

    def __call__(self, key: Key) -> MLP:
        return self._draw(key, self.prior_std)

    def center(self, key: Key) -> MLP:
        """Near zero, where the paper starts epsilon-greedy and dropout."""
        return self._draw(key, 0.01)

    def _draw(self, key: Key, std: Array | float) -> MLP:
        last = () if self.outputs is None else (self.outputs,)
        widths = [(self.dim,), *((h,) for h in self.hidden), last]
        keys = jax.random.split(key, len(widths) - 1)
        draw = lambda k, fan_in, fan_out: std * jax.random.normal(k, fan_out + fan_in)  # noqa: E731
        layers = [draw(k, a, b) for k, a, b in zip(keys, widths, widths[1:], strict=False)]
        return MLP(layers, self.slope, self.squash)
