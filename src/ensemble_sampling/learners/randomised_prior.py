"""Randomised prior functions (Osband et al., 2018): a network plus a frozen one of its own."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import short
from ..core import Key
from .modules import Frozen, configured


class WithPrior(eqx.Module):
    """What is learned, plus what is not."""

    learned: Any
    prior: Frozen

    def __call__(self, x: Array) -> Array:
        return self.learned(x) + self.prior(x)


class RandomisedPrior(eqx.Module):
    """Draws networks f(x) + scale p(x) of which only f is learned, for `Network` and `Ensemble`.

    The prior p is drawn by `make`. f starts near zero, at `make.center` where there is one, and is
    pulled to zero, so before data a member is its prior, and p says what is plausible far from
    them. A linear f + p is the anchored form: |f|^2 is the squared distance of f + p to its draw p.

    start: key -> module, at which f starts instead.
    """

    make: Callable[[Key], Any]
    scale: float
    start: Callable[[Key], Any] | None
    pull = 0.0
    __repr__ = short

    def __init__(
        self,
        make: Callable[[Key], Any],
        scale: float = 1.0,
        start: Callable[[Key], Any] | None = None,
    ):
        self.make = configured(make)
        self.scale = checks.positive("scale", scale)
        self.start = None if start is None else configured(start)

    def _sum(self, key: Key, first: Callable[[Key], Any]) -> WithPrior:
        first_key, prior_key = jax.random.split(key)
        prior = Frozen(self.make(prior_key), jnp.asarray(self.scale, float))
        return WithPrior(first(first_key), prior)

    def __call__(self, key: Key) -> WithPrior:
        return self._sum(key, self.start or getattr(self.make, "center", self.make))

    def wide(self, key: Key) -> WithPrior:
        """With f as wide as its prior: the units in which it learns."""
        return self._sum(key, self.make)
