"""Networks over numbered states, whose one-hot inputs are looked up and not multiplied."""

from itertools import pairwise

import equinox as eqx
import jax
from jax import Array

from .. import checks
from ..config import short
from ..core import Key
from ..networks import MLP


class Rows(eqx.Module):
    """A row of numbers for every state: itself the output, or what a network goes on with."""

    rows: Array
    network: MLP | None

    def __call__(self, x: Array) -> Array:
        row = self.rows[x[0].astype(int)]
        return row if self.network is None else self.network(jax.nn.leaky_relu(row, 0.01))


class Lookup(eqx.Module):
    """Draws networks from the number of a state to a value for each action, independent normal.

    A table of rows is the first layer on a one-hot input. Without hidden units it is all there is:
    a number of its own for every state and action.

    prior_std: of the outputs
    """

    states: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True, default=())
    prior_std: float = 1.0
    __repr__ = short

    def __check_init__(self) -> None:
        checks.size("states", self.states)
        checks.size("actions", self.actions)
        if not isinstance(self.hidden, tuple):
            raise TypeError(f"hidden must be a tuple of widths such as (50,), got {self.hidden!r}")
        for width in self.hidden:
            checks.size("hidden", width)
        checks.positive("prior_std", self.prior_std)

    def __call__(self, key: Key) -> Rows:
        return self._draw(key, 1.0)

    def center(self, key: Key) -> Rows:
        """With outputs near zero."""
        return self._draw(key, 0.01)

    def _draw(self, key: Key, share: float) -> Rows:
        """share: of the prior's width that outputs have."""
        row_key, key = jax.random.split(key)
        if not self.hidden:
            shape = self.states, self.actions
            return Rows(share * self.prior_std * jax.random.normal(row_key, shape), None)
        rows = jax.random.normal(row_key, (self.states, self.hidden[0]))
        # A rectifier halves the mean square of what the next layer is given.
        weights, widths = [], [*self.hidden, self.actions]
        for i, (before, after) in enumerate(pairwise(widths)):
            draw = jax.random.normal(jax.random.fold_in(key, i), (after, before))
            weights.append((2 / before) ** 0.5 * draw)
        weights[-1] = share * self.prior_std * weights[-1]
        return Rows(rows, MLP(weights))


def as_inputs(observation: Array) -> Array:
    """An observation as a row of features: the number of a state is a single one."""
    return observation.reshape(-1).astype(float)
