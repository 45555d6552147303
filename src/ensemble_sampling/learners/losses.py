"""How a network's output is compared with an outcome, and what it says of the outcome."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks
from ..rewards import Reward
from .histories import Moments


class Loss(Protocol):
    """How an output is compared with a target, as twice a negative log-likelihood.

    One with a method `check(outcome)` refuses there what it cannot learn. With a method
    `scale(outcomes)`, from the moments of outcomes to those of outputs, networks that learn the
    scale of outcomes need no units: theirs are multiplied by its spread and added to its center.
    """

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array: ...

    def mean(self, output: Array) -> Array:
        """The expected outcome of an output."""
        ...

    def expected(self, reward: Reward, output: Array, noise_std: Array | float) -> Array:
        """The expected rewards (K,) of outcomes distributed as outputs (K, p) say."""
        ...


class SquaredError(eqx.Module):
    """(target - output)^2 / noise_std^2, the paper's: the outcome is N(output, noise_std^2)."""

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array:
        return jnp.sum((target - output) ** 2 / noise_std**2)

    def scale(self, outcomes: Moments) -> Moments:
        return outcomes

    def mean(self, output: Array) -> Array:
        return output

    def expected(self, reward: Reward, output: Array, noise_std: Array | float) -> Array:
        return reward.expected(output, noise_std)


class CrossEntropy(eqx.Module):
    """2 (log(1 + e^output) - target output): a 0/1 outcome with a logistic output.

    The loss is linear in the target, so a target plus Gaussian noise is still a proper convex
    problem: the perturbation of Kveton et al. (2020), Randomized Exploration in Generalized
    Linear Bandits. With noise_std = sqrt(p (1 - p)) it spreads the members like the Laplace
    approximation; 1/2, the most a 0/1 outcome can vary, never spreads them too little. Outcomes
    themselves are 0 or 1 with the chance the output says, and have no other noise.
    """

    def __call__(self, output: Array, target: Array, noise_std: Array | float) -> Array:
        return 2 * jnp.sum(jax.nn.softplus(output) - target * output)

    def scale(self, outcomes: Moments) -> Moments:
        """Around log(p / (1 - p)); dp = p (1 - p) do, so sqrt(p (1 - p)) of p is 1 / it of o."""
        p = jnp.clip(outcomes.center, 0.01, 0.99)
        return Moments(jnp.log(p / (1 - p)), 1 / (p * (1 - p)))

    def mean(self, output: Array) -> Array:
        return jax.nn.sigmoid(output)

    def expected(self, reward: Reward, output: Array, noise_std: Array | float) -> Array:
        return reward.expected_binary(jax.nn.sigmoid(output))

    def check(self, outcome: Any) -> None:
        """Outcomes beyond 0 and 1 would drive the output to infinity."""
        if checks.known(outcome) and not np.all((np.asarray(outcome) >= 0) & (outcome <= 1)):
            raise ValueError(f"CrossEntropy learns outcomes between 0 and 1, got {outcome}")
