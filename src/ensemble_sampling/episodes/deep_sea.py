"""Deep sea: a reward that random play finds once in 2^N episodes (Osband et al., 2019)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import checks
from ..config import as_text, short
from ..core import Key
from .world import Episode, Step


class DeepSea(eqx.Module):
    """A grid of size x size cells, in which a diver sinks by a row with every step.

    It starts at the top left and moves left or right, at a cost of `cost` / size for right. Right
    from the bottom right cell is worth 1, and only steps to the right alone lead there. Which
    action means right is drawn for every cell. The stochastic sea keeps the diver in its column
    with probability 1 / size where it moves right, and adds N(0, 1) to the rewards at the two
    ends of the last row.

    Regret is what bsuite counts: 1 for an episode with a step to the left on the diagonal.

    size: a setting like others, so that sizes up to the same `most` share one program
    most: of the grid whose cells number the states, row by row; by default the size
    """

    size: int
    most: int = eqx.field(static=True)
    stochastic: bool = eqx.field(static=True)
    cost: float
    actions = 2
    __repr__ = short

    def __init__(
        self, size: int, most: int | None = None, stochastic: bool = False, cost: float = 0.01
    ):
        self.most = checks.size("most", size if most is None else most)
        self.size = checks.size("size", size, below=self.most + 1)
        self.stochastic = checks.flag("stochastic", stochastic)
        self.cost = checks.scalar("cost", cost, low=0.0, high=1.0)

    @property
    def label(self) -> str:
        return f"{'stochastic ' * self.stochastic}deep sea of {as_text(self.size)}"

    @property
    def limit(self) -> int:
        return self.most

    @property
    def states(self) -> int:
        return self.most**2

    def init(self, key: Key) -> Array:
        """The action that means right, for every cell."""
        return jax.random.bernoulli(key, 0.5, (self.most, self.most)).astype(jnp.int32)

    def reset(self, key: Key, world: Array) -> tuple["Cell", Array]:
        start = Cell(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return start, self._number(start)

    def step(self, key: Key, world: Array, state: "Cell", action: Array) -> Step:
        row, column = state
        last = self.size - 1
        right = action == world[row, column]
        reward = jnp.where(right & (column == last), 1.0, 0.0)
        moves = right
        if self.stochastic:
            slip, noise = self.luck(key)
            at_end = (row == last) & ((column == 0) | (column == last))
            reward += jnp.where(at_end, noise, 0.0)
            moves &= slip > 1 / self.size
        reward -= jnp.where(right, self.cost / self.size, 0.0)
        column = jnp.clip(column + jnp.where(moves, 1, jnp.where(right, 0, -1)), 0, last)
        after = Cell(row + 1, column)
        return Step(after, self._number(after), reward, row == last)

    def luck(self, key: Key) -> tuple[Array, Array]:
        """What decides a step of the stochastic sea: a uniform and a normal number."""
        slip_key, noise_key = jax.random.split(key)
        return jax.random.uniform(slip_key), jax.random.normal(noise_key)

    def regret(self, world: Array, episode: Episode) -> Array:
        row, column = jnp.divmod(episode.observations[:-1], self.most)
        left = episode.actions != world[row, column]
        return (left & (row == column) & episode.taken).any().astype(float)

    def _number(self, cell: "Cell") -> Array:
        row = jnp.minimum(cell.row, self.most - 1)  # the end is no cell, and is asked by nobody
        return row * self.most + cell.column


class Cell(NamedTuple):
    """Where the diver is."""

    row: Array
    column: Array
