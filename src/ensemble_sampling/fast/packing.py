"""A bandit's programs with as few arrays to hand over as can be.

To hand an array to a compiled program, and to take one back, takes as long as to compute with it:
`choose` and `learn` among ten actions take half as long again where a rule's numbers, a state, a
key, an offer and a mask are arrays of their own. Here small arrays of a tree lie one after another
in one, and an offer or an outcome is written with its key into memory that XLA reads where it lies.
`decide.programs.Programs` has the same methods without any of this, and gives the same numbers.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..config import as_array
from ..core import fact, some_key
from ..decide import programs
from ..decide.programs import Found, Rule, State
from ..inputs.scale import Scale
from ..primitives import PLAIN, processor

SMALL = 2**14  # bytes: a larger array stays one by itself, to be changed where it lies
SHEETS = 64  # shapes of offers for which there is an array to fill in


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

    def groups(self) -> dict[Any, list[int]]:
        """The arrays that are put together; one that is kept by itself has a number as its key."""
        groups: dict[Any, list[int]] = {}
        for n, (shape, dtype) in enumerate(self.about):
            plain = isinstance(dtype, np.dtype) and prod(shape) * dtype.itemsize <= SMALL
            groups.setdefault(dtype if plain else n, []).append(n)
        return groups

    def packed(self, leaves: Sequence[Any], numbers: Any = jnp) -> list[Any]:
        return [
            leaves[key] if isinstance(key, int) else _joined([leaves[n] for n in group], numbers)
            for key, group in self.groups().items()
        ]

    def placed(self, leaves: Sequence[Any], where: Any = None) -> list[Array]:
        """Packed by NumPy, with nothing to compile, and put on the processor `where`."""
        whole = {n for n in self.groups() if isinstance(n, int)}
        leaves = [leaf if n in whole else np.asarray(leaf) for n, leaf in enumerate(leaves)]
        return jax.device_put(self.packed(leaves, np), where, may_alias=False)

    def unpacked(self, arrays: Sequence[Any]) -> Any:
        leaves: list[Any] = [None] * len(self.about)
        for (key, group), array in zip(self.groups().items(), arrays, strict=True):
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


@jax.tree_util.register_pytree_node_class
class Held:
    """A state in few arrays."""

    __slots__ = ("arrays", "layout")

    def __init__(self, layout: Layout, arrays: list[Array]):
        self.layout, self.arrays = layout, arrays

    def tree_flatten(self) -> Any:
        return self.arrays, self.layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, arrays: Any) -> "Held":
        return cls(layout, list(arrays))


class Packed:
    """As `decide.programs.Programs`, for agents that are compiled."""

    host = False

    def __init__(self, rule: Rule):
        self._rules, leaves = Layout.of(jax.tree.map(as_array, rule))
        bound = self._rules.placed(leaves)
        self._begin = _begun(self._rules)
        self.belief = jax.eval_shape(self._begin, bound, some_key())
        self._where = processor(self.belief)
        self._bound = bound if self._where is None else jax.device_put(bound, self._where)
        self._padded = fact(rule.agent, "arms") is None
        self._states: Layout | None = None
        self.kind: Any = None
        self._sheets: dict[tuple[int, int], Sheet] = {}
        self._slip: Slip | None = None

    def begin(self, key: Array, scale: Scale | None) -> Held:
        start = jax.random.wrap_key_data(key, impl=PLAIN)
        return self.hold(State(scale, self._begin(self._bound, start)))

    def like(self, scale: Scale | None) -> State:
        where = None if self._where is None else jax.sharding.SingleDeviceSharding(self._where)

        def about(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

        return jax.tree.map(about, State(scale, self.belief))

    def expect(self, scale: Scale | None) -> None:
        self._use(Layout.of(State(scale, self.belief))[0])

    def hold(self, state: State) -> Held:
        layout, leaves = Layout.of(state)
        self._use(layout)
        return Held(layout, layout.placed(leaves, self._where))

    def state(self, held: Held) -> State:
        apart = [
            array if isinstance(key, int) else np.array(array)
            for key, array in zip(held.layout.groups(), held.arrays, strict=True)
        ]
        return jax.device_put(held.layout.unpacked(apart), self._where, may_alias=False)

    def copy(self, held: Held) -> Held:
        return Held(held.layout, [array.copy() for array in held.arrays])

    def choose(self, held: Held, words: Any, table: np.ndarray, mask: np.ndarray) -> Found:
        if held.layout is not self._states:
            self._use(held.layout)
        if not (self._padded and table.shape[1]):
            found = self._choose(self._bound, np.array(words, np.uint32), held.arrays, table, mask)
            return np.asarray(found), len(mask)
        shape = len(mask), table.shape[1]
        sheet = self._sheets.pop(shape, None)  # lest another thread fill it in meanwhile
        if sheet is None:
            sheet = Sheet(shape, table.dtype, programs.room(len(mask)), self._where)
        filled = sheet.filled(words, table, mask)
        found = np.asarray(self._choose_sheet(self._bound, filled, held.arrays))
        if len(self._sheets) >= SHEETS:
            self._sheets.clear()
        self._sheets[shape] = sheet
        return found, sheet.room

    def choose_many(
        self, held: Held, words: list[Any], tables: list[np.ndarray], masks: list[np.ndarray]
    ) -> list[Found]:
        self._use(held.layout)
        keys, filled = np.array(words, np.uint32), zip(tables, masks, strict=True)
        if self._padded:
            filled = [programs.padded(*offer) for offer in filled]
        stacked = [np.stack(part) for part in zip(*filled, strict=True)]
        if len(words) == 1:
            one = (part[0] for part in stacked)
            found = [np.asarray(self._choose(self._bound, keys[0], held.arrays, *one))]
        else:
            found = np.asarray(self._choose_many(self._bound, keys, held.arrays, *stacked))
        room = stacked[1].shape[1]
        return [(row, room) for row in found]

    def rank(
        self, held: Held, words: Any, table: np.ndarray, mask: np.ndarray, index: int
    ) -> list[int]:
        self._use(held.layout)
        table, mask = programs.padded(table, mask) if self._padded else (table, mask)
        about = (np.array(words, np.uint32), held.arrays, table, mask, np.int32(index))
        return np.asarray(self._rank(self._bound, *about)).tolist()

    def learn(self, held: Held, words: Any, features: np.ndarray, outcome: Any) -> Held:
        if held.layout is not self._states:
            self._use(held.layout)
        if not isinstance(outcome, float):
            keys, y = np.array(words, np.uint32), np.asarray(outcome, features.dtype)
            learned = self._learn(self._bound, keys, held.arrays, features, y)
            return Held(held.layout, learned)
        slip, self._slip = self._slip or Slip(len(features), features.dtype, self._where), None
        filled = slip.filled(words, features, outcome)
        learned = self._learn_slip(self._bound, filled, held.arrays)
        # While the state is not computed, the slip may not be read yet; of keys nobody can tell.
        read = all(getattr(array, "is_ready", bool)() for array in learned)
        self._slip = slip if read else None
        return Held(held.layout, learned)

    def check(self, held: Held, features: np.ndarray, outcome: np.ndarray) -> None:
        self._use(held.layout)
        words = np.zeros(3, np.uint32)
        jax.eval_shape(self._learn, self._bound, words, held.arrays, features, outcome)

    def _use(self, states: Layout) -> None:
        """The programs for such states: there is one kind, once the number of features is known."""
        if states is not self._states:
            compiled = _compiled(self._rules, states)
            self._choose, self._choose_many, self._choose_sheet = compiled[:3]
            self._rank, self._learn, self._learn_slip = compiled[3:]
            self._states, self.kind = states, self._choose


@lru_cache(maxsize=64)
def _begun(rules: Layout) -> Any:
    return jax.jit(lambda bound, key: programs.init(rules.unpacked(bound), key))


@lru_cache(maxsize=64)
def _compiled(rules: Layout, states: Layout) -> tuple[Any, ...]:
    """For rules and states of these structures; settings stay free."""

    def reads(function: Any) -> Any:
        def run(bound: list[Array], about: Array, held: list[Array], *rest: Any) -> Array:
            return function(rules.unpacked(bound), about, states.unpacked(held), *rest)

        return jax.jit(run)

    def learns(function: Any) -> Any:
        def run(bound: list[Array], about: Array, held: list[Array], *rest: Any) -> list[Array]:
            found = function(rules.unpacked(bound), about, states.unpacked(held), *rest)
            return states.packed(jax.tree.leaves(found))

        return jax.jit(run, donate_argnums=2)

    choosing = (programs.choose, programs.choose_many, choose_sheet, programs.rank)
    return *map(reads, choosing), learns(programs.learn_alike), learns(learn_slip)


class Sheet:
    """One array (..., d) for `choose_sheet`, to be filled in anew for every offer of a shape: the
    words of the key and what is available, in rows of their own, then the features, in `room` rows.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, room: int, where: Any = None):
        rows, width = shape
        self.room, above = room, -(-(room + 2) // width)
        whole = _aligned((above + room, width), np.dtype(dtype))
        flat, self._shown = whole.reshape(-1), _shown(whole, where)
        self._bits, self._free = flat.view(np.uint32), flat[2 : rows + 2]
        self._table, self._mask = whole[above : above + rows], None

    def filled(self, words: tuple[int, int], table: np.ndarray, mask: np.ndarray) -> Any:
        """Whoever is given it is done with it before the next offer."""
        if mask is not self._mask:
            self._mask = None  # in case of an interrupt
            self._free[:] = mask
            if mask.base is None and not mask.flags.writeable:
                self._mask = mask
        self._table[:], bits = table, self._bits
        bits[0], bits[1] = words
        return self._shown


def _shown(memory: np.ndarray, where: Any) -> Any:
    """What a program on a processor of one's own (`inline.device`) is given of memory that is
    filled in again and again: an array that lies there, which is found faster than NumPy's."""
    if where is None:
        return memory
    array = jax.device_put(memory, where)
    return array if np.shares_memory(np.asarray(array), memory) else memory


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that XLA reads where they lie: what does not begin at 64 bytes it copies first."""
    size = prod(shape) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def choose_sheet(rule: Rule, packed: Array, state: State) -> Array:
    """`programs.choose` by a `Sheet`; there must be features."""
    rows, width = packed.shape
    sizes = (1 << n for n in range(32))
    room = next(size for size in sizes if size + -(-(size + 2) // width) == rows)
    flat = packed[: rows - room].reshape(-1)
    return programs.choose(
        rule, _words(flat, 2), state, packed[rows - room :], flat[2 : room + 2] != 0
    )


class Slip:
    """One array (d + 4,) for `learn_slip`, to be filled in anew for every outcome: three words,
    the outcome and the features."""

    def __init__(self, width: int, dtype: Any, where: Any = None):
        self._whole = _aligned((width + 4,), np.dtype(dtype))
        self._bits, self._features = self._whole.view(np.uint32), self._whole[4:]
        self._shown = _shown(self._whole, where)

    def filled(self, words: tuple[int, int, int], features: np.ndarray, outcome: float) -> Any:
        """Not to be filled in again before what was learned from it is there: where the state is
        not there yet, it is read later than it is given."""
        bits = self._bits
        bits[0], bits[1], bits[2] = words
        self._whole[3], self._features[:] = outcome, features
        return self._shown


def learn_slip(rule: Rule, packed: Array, state: State) -> State:
    """`programs.learn` by a `Slip`: an outcome that is a single number."""
    return programs.learn_alike(rule, _words(packed[:3], 3), state, packed[4:], packed[3])


def _words(numbers: Array, count: int) -> Array:
    """The first words of 32 bits that lie in an array of numbers."""
    return jax.lax.bitcast_convert_type(numbers[:count], jnp.uint32).reshape(-1)[:count]
