"""Layers of leaky rectifiers and priors over their weights, for learners and worlds alike."""

from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from . import checks
from .core import Key


class MLP(eqx.Module):
    """Layers without biases: leaky ReLU after every layer, but for the last unless `squash`.

    constant: whether a 1 is added to the inputs, for which the first layer has a last column.
    """

    weights: list[Array]
    slope: float = eqx.field(static=True, default=0.01)
    squash: bool = eqx.field(static=True, default=False)
    constant: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not isinstance(self.weights, list | tuple) or not self.weights:
            raise TypeError(f"weights must be a list of one array per layer, got {self.weights!r}")

    def __call__(self, x: Array) -> Array:
        return self.read(self.hidden(x))

    def read(self, units: Array, more: Array | None = None) -> Array:
        """The output of hidden units, with `more` added before it is squashed."""
        output = self.weights[-1] @ units
        return self._output(output if more is None else output + more)

    def hidden(self, x: Array) -> Array:
        """The units before the last layer."""
        x = self._input(x)
        for w in self.weights[:-1]:
            x = jax.nn.leaky_relu(w @ x, self.slope)
        return x

    def _input(self, x: Array) -> Array:
        return jnp.append(x, 1.0) if self.constant else x

    def _output(self, x: Array) -> Array:
        return jax.nn.leaky_relu(x, self.slope) if self.squash else x

    def masked(self, x: Array, key: Key, rate: Array | float, readout: "Readout") -> Array:
        """The output with each hidden unit left out with probability `rate`, without rescaling."""
        *hidden, last = self.weights
        if not hidden:
            raise ValueError("dropout leaves out hidden units, and this network has none")
        x = self._input(x)
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
    """The output of the masked units, but its weights learn from the unmasked units.

    So did the code behind the published dropout curves (Figure 3c); kept to reproduce them.
    """
    still = jax.lax.stop_gradient
    learning = weights @ still(hidden)
    return still(weights) @ (hidden * mask) + learning - still(learning)


OUTPUT_STD = 0.25
"""Of functions drawn by default: a model explains a part of outcomes that vary by 1."""


class GaussianMLP(eqx.Module):
    """Draws an `MLP` with independent normal weights.

    By default a prior over functions that does not depend on widths: weights have the variance
    g / inputs of their layer, with g = 1 in the first and 2 after a rectifier, which halves the
    mean square (He et al., 2015), and the last layer is made `OUTPUT_STD` times as large. For
    features of variance 1 and the constant added to them that is the outputs' standard deviation.

    prior_std: a number is the paper's prior, N(0, prior_std^2) weights in all layers, and no
        constant is added: `hidden=()` with `squash` is its single neuron, `hidden=(50,)` its
        two-layer network.
    """

    dim: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True, default=None)
    prior_std: float | None = None
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
        if self.prior_std is not None:
            checks.positive("prior_std", self.prior_std)
        checks.scalar("slope", self.slope, low=0.0, high=1.0)
        checks.flag("squash", self.squash)

    @property
    def stds(self) -> list[Array | float]:
        """The standard deviation of the weights of every layer."""
        if self.prior_std is not None:
            return [self.prior_std] * (1 + len(self.hidden))
        inputs, gains = [self.dim + 1, *self.hidden], [1.0] + [2.0] * len(self.hidden)
        gains[-1] *= OUTPUT_STD**2
        return [(g / n) ** 0.5 for g, n in zip(gains, inputs, strict=True)]

    def __call__(self, key: Key) -> MLP:
        return self._draw(key, self.stds)

    def center(self, key: Key) -> MLP:
        """Near zero, where the paper starts epsilon-greedy and dropout."""
        return self._draw(key, [0.01] * (1 + len(self.hidden)))

    def _draw(self, key: Key, stds: list[Array | float]) -> MLP:
        constant = self.prior_std is None
        last = () if self.outputs is None else (self.outputs,)
        widths = [(self.dim + constant,), *((h,) for h in self.hidden), last]
        shapes = [after + before for before, after in pairwise(widths)]
        keys = jax.random.split(key, len(shapes))
        drawn = zip(stds, keys, shapes, strict=True)
        layers = [std * jax.random.normal(k, shape) for std, k, shape in drawn]
        return MLP(layers, self.slope, self.squash, constant)
