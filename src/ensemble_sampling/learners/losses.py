"""How a network's output is compared with an outcome, and what it says of the outcome's mean."""

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Loss(Protocol):
    """How an output is compared with a target, as twice a negative log-likelihood."""

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array: ...

    def mean(self, output: Array) -> Array:
        """The expected outcome of an output."""
        ...


class SquaredError(eqx.Module):
    """(target - output)^2 / noise_std^2, the paper's."""

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array:
        return jnp.sum((target - output) ** 2) / noise_std**2

    def mean(self, output: Array) -> Array:
        return output


class CrossEntropy(eqx.Module):
    """2 (log(1 + e^output) - target output): a 0/1 outcome with a logistic output.

    The loss is linear in the target, so a target plus Gaussian noise is still a proper convex
    problem: the perturbation of Kveton et al. (2020), Randomized Exploration in Generalized
    Linear Bandits. With noise_std = sqrt(p (1 - p)) it spreads the members like the Laplace
    approximation; 1/2, the most a 0/1 outcome can vary, never spreads them too little.
    """

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array:
        return 2 * jnp.sum(jax.nn.softplus(output) - target * output)

    def mean(self, output: Array) -> Array:
        return jax.nn.sigmoid(output)
