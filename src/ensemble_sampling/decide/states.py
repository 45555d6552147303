"""What a bandit has learned, handed to compiled programs in as few arrays as can be.

To hand over an array, and to take one back, takes as long as to compute with it.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..inputs.scale import Scale

SMALL = 2**14  # bytes: a larger array stays one by itself, to be changed where it lies


class _Parts(NamedTuple):
    scale: Scale | None
    belief: Any


class Layout(NamedTuple):
    """Where the arrays of a tree are: small ones one after another, in one array for each type.

    about: shape and type of each
    """

    structure: Any
    about: tuple[tuple[tuple[int, ...], Any], ...]

    @staticmethod
    def of(tree: Any) -> "tuple[Layout, list[Any]]":
        """The only one that is equal to it, and the arrays of the tree."""
        leaves, structure = jax.tree.flatten(tree)
        return _layout(structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)), leaves

    def _groups(self) -> dict[Any, list[int]]:
        """The arrays that are put together; one that is kept by itself has a number as its key."""
        groups: dict[Any, list[int]] = {}
        for n, (shape, dtype) in enumerate(self.about):
            plain = isinstance(dtype, np.dtype) and prod(shape) * dtype.itemsize <= SMALL
            groups.setdefault(dtype if plain else n, []).append(n)
        return groups

    def packed(self, leaves: Sequence[Any], numbers: Any = jnp) -> list[Any]:
        return [
            leaves[key] if isinstance(key, int) else _joined([leaves[n] for n in group], numbers)
            for key, group in self._groups().items()
        ]

    def placed(self, leaves: Sequence[Any], where: Any = None) -> list[Array]:
        """Packed by NumPy, with nothing to compile, and put on the processor `where`."""
        whole = {n for n in self._groups() if isinstance(n, int)}
        leaves = [leaf if n in whole else np.asarray(leaf) for n, leaf in enumerate(leaves)]
        return jax.device_put(self.packed(leaves, np), where, may_alias=False)

    def unpacked(self, arrays: Sequence[Any]) -> Any:
        leaves: list[Any] = [None] * len(self.about)
        for (key, group), array in zip(self._groups().items(), arrays, strict=True):
            if isinstance(key, int):
                leaves[key] = array
                continue
            start = 0
            for n in group:
                shape = self.about[n][0]
                leaves[n] = array[start : start + prod(shape)].reshape(shape)
                start += prod(shape)
        return jax.tree.unflatten(self.structure, leaves)


def _joined(parts: list[Any], numbers: Any) -> Any:
    return numbers.concatenate([numbers.reshape(part, -1) for part in parts])


@lru_cache(maxsize=256)
def _layout(structure: Any, about: tuple[Any, ...]) -> Layout:
    return Layout(structure, about)


@jax.tree_util.register_pytree_with_keys_class
class State:
    """Everything learned; a function of the ledger's outcomes in their order.

    What a compiled program returns stays packed until somebody looks.
    """

    __slots__ = ("_held", "_parts")

    def __init__(self, scale: Scale | None, belief: Any):
        self._parts: _Parts | None = _Parts(scale, belief)
        self._held: tuple[Layout, list[Array]] | None = None

    @classmethod
    def of(cls, layout: Layout, arrays: list[Array], parts: _Parts | None = None) -> "State":
        """What a compiled program returned, or is given."""
        state = cls.__new__(cls)
        state._parts, state._held = parts, (layout, arrays)
        return state

    @property
    def together(self) -> Any:
        """In as few arrays as it is in now, see `apart`."""
        return self.parts if self._held is None else self._held[1]

    def apart(self, arrays: Any) -> _Parts:
        """What is in `together`, by the same names."""
        return arrays if self._held is None else self._held[0].unpacked(arrays)

    def held(self, where: Any = None) -> tuple[Layout, list[Array]]:
        """As compiled programs take it, on the processor `where`."""
        held = self._held
        if held is None:
            layout, leaves = Layout.of(self._parts)
            held = self._held = layout, layout.placed(leaves, where)
        return held

    def copy(self) -> "State":
        """One of its own: learning consumes the arrays."""
        if self._held is None:
            return jax.tree.map(_copied, self)
        layout, arrays = self._held
        return State.of(layout, [array.copy() for array in arrays])

    @property
    def parts(self) -> _Parts:
        parts = self._parts
        if parts is None:
            assert self._held is not None
            layout, arrays = self._held
            groups = layout._groups()
            apart = [
                array if isinstance(key, int) else np.array(array)
                for key, array in zip(groups, arrays, strict=True)
            ]
            where = arrays[0].sharding if arrays and arrays[0].committed else None
            parts = self._parts = jax.device_put(layout.unpacked(apart), where, may_alias=False)
        return parts

    def __repr__(self) -> str:
        return f"State(scale={self.scale!r}, belief={self.belief!r})"

    @property
    def scale(self) -> Scale | None:
        return self.parts.scale

    @property
    def belief(self) -> Any:
        return self.parts.belief

    def tree_flatten(self) -> Any:
        return self.parts, None

    def tree_flatten_with_keys(self) -> Any:
        key = jax.tree_util.GetAttrKey
        return [(key(name), part) for name, part in self.parts._asdict().items()], None

    @classmethod
    def tree_unflatten(cls, _: Any, parts: Any) -> "State":
        return cls(*parts)


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf
