"""Realizations as compiled programs: what one depends on, and how many realizations fit in it."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .. import checks, linalg
from ..config import as_array
from ..core import Action, Agent, Environment, Key, fact
from ..fast.threefry import quick
from .loop import realization

PINNED = "pinned_host"
_TURN = Lock()  # of programs that must not run side by side
_TRACING = Lock()  # it holds the interpreter: side by side, the first would be ready with the last


def tracing() -> bool:
    """Whether some program is being traced, with others perhaps waiting for it."""
    return _TRACING.locked()


def to_numpy(found: Any) -> Any:
    """Arrays of a device as NumPy's.

    A plain copy from an accelerator holds the interpreter meanwhile, and with it the thread that
    would start the next run; one to pinned memory does not.
    """

    places = {place.kind for place in jax.local_devices()[0].addressable_memories()}
    if jax.default_backend() == "cpu" or PINNED not in places:
        return jax.tree.map(np.asarray, found)

    def one(array: Array | np.ndarray) -> np.ndarray:
        if isinstance(array, Array):
            array = jax.device_put(array, array.sharding.with_memory_kind(PINNED))
        return np.array(array)

    return jax.tree.map(one, found)


def threads_at_a_time() -> int:
    """Calls at a time: a device runs one after the other, CPU cores side by side."""
    if jax.default_backend() != "cpu":
        return 1
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, cores // jax.local_device_count())


def check_parts(agent: Agent, environment: Environment) -> int:
    """Let parts that do not fit fail here, with a word on why; -> arms."""
    checks.part("agent", agent, "init", "act", "update")
    checks.part("environment", environment, "init", "offer", "outcome")
    for leaf in jax.tree.leaves((agent, environment)):
        if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | Array):
            raise TypeError(
                "a setting that is not a number must be a static field, "
                f"eqx.field(static=True), got {leaf!r}"
            )

    return _trace_period(outline(agent, environment))


def footprint(agent: Agent, environment: Environment, periods: int) -> int:
    """Roughly how many bytes one realization takes while it runs."""
    # The state is held about four times over: carry, its update, and what a period computes.
    return 4 * _state_bytes(outline(agent, environment)) + 8 * periods


Point = tuple[Agent, Environment]
"""What is simulated: one of possibly many that share a program."""


class Outline(NamedTuple):
    """All that a compiled program depends on, for settings stay free; but JAX's own do not."""

    structure: Any
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    jax_settings: tuple[tuple[str, str], ...]

    def inputs(self) -> tuple[list[jax.ShapeDtypeStruct], Key]:
        """The shapes of the settings, and a key of the kind that the program draws by."""
        settings = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.shapes]
        users = jax.tree.unflatten(self.structure, settings)
        return settings, quick(jax.random.key(0), *users)


def outline(agent: Agent, environment: Environment) -> Outline:
    leaves, structure = jax.tree.flatten((agent, environment))
    shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    config: Any = jax.config
    return Outline(structure, shapes, tuple((n, str(v)) for n, v in config.values.items()))


@lru_cache(maxsize=256)
def _state_bytes(outline: Outline) -> int:
    """The bytes of a realization's state."""

    def start(leaves: Any, key: Key) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        return agent.init(key), environment.init(key)

    held = jax.eval_shape(start, *outline.inputs())
    return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(held))


@lru_cache(maxsize=256)
def _trace_period(outline: Outline) -> int:
    """Trace one period, so that shapes that disagree fail before anything is compiled; -> arms."""

    def one(leaves: Any, key: Key) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        world = environment.init(key)
        advance = fact(environment, "advance")
        after = world if advance is None else advance(key, world, jnp.ones((), jnp.int32))
        _check_kept("advance", "world", environment, world, after)
        offer = environment.offer(key, world)
        if fact(agent, "host"):
            return offer.features
        state = agent.init(key)
        index = agent.act(key, state, offer.features, offer.available)
        action = Action(index, offer.features[index])
        world = world if offer.world is None else offer.world
        after = agent.update(key, state, action, environment.outcome(key, world, action))
        _check_kept("update", "state", agent, state, after)
        return offer.features

    return jax.eval_shape(one, *outline.inputs()).shape[0]


def _check_kept(method: str, what: str, part: Any, before: Any, after: Any) -> None:
    alike = jax.tree.structure(before) == jax.tree.structure(after)
    before, after = ([(x.shape, x.dtype) for x in jax.tree.leaves(s)] for s in (before, after))
    if not alike or before != after:
        raise ValueError(
            f"{fact(part, 'label')}: {method} must keep the shapes and types of the {what}; "
            f"before {before}, after {after}"
        )


def memory() -> int:
    """Bytes that simulations may use in all: the devices', or the machine's."""
    if jax.default_backend() == "cpu":
        known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 2**33
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", 2**33) * jax.local_device_count()


IN_CACHE = 2**25
"""Bytes that a call's realizations may take on a CPU, where those that stay in cache run faster."""


def chunk_size(
    agent: Agent,
    environment: Environment,
    periods: int,
    realizations: int,
    own: int = 0,
) -> int:
    """Realizations per call: as many as memory and an even split allow.

    own: bytes of settings that a realization does not share with the others.
    """
    if fact(agent, "host"):
        return 1
    devices, threads = jax.local_device_count(), threads_at_a_time()
    each, room = own + footprint(agent, environment, periods), memory()
    if each > room:
        raise ValueError(
            f"one realization of {fact(agent, 'label')} needs about {each / 2**30:.3g} GiB of "
            f"memory, and there are {room / 2**30:.3g}"
        )
    if jax.default_backend() == "cpu":
        room, most = IN_CACHE, 256  # more per call is no faster, and shows less progress
    else:
        room, most = 0.4 * room, 2**16
    size = int(min(most, max(1, room // each)))
    rounds = -(-realizations // (size * threads))
    size = min(size, -(-realizations // (rounds * threads)))
    return min(-(-size // devices) * devices, realizations)


class Stack(NamedTuple):
    """The settings of points that share an outline: the same for all, or one row per point."""

    outline: Outline
    differs: tuple[bool, ...]
    shared: list[Array]
    own: list[np.ndarray]

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Stack":
        columns = list(zip(*map(jax.tree.leaves, points), strict=True))
        differs = tuple(any(_differ(column[0], leaf) for leaf in column[1:]) for column in columns)
        both = list(zip(columns, differs, strict=True))
        shared = [as_array(column[0]) for column, differ in both if not differ]
        own = [
            np.asarray([np.asarray(leaf) for leaf in column], jnp.result_type(column[0]))
            for column, differ in both
            if differ
        ]
        return cls(outline(*points[0]), differs, shared, own)

    @property
    def bytes(self) -> int:
        """What the settings of one point take that it does not share."""
        return sum(column[0].nbytes for column in self.own)


def _differ(one: Any, other: Any) -> bool:
    return one is not other and not np.array_equal(one, other)


@lru_cache(maxsize=64)
def _program(
    outline: Outline, differs: tuple[bool, ...], lanes: int, mode: tuple[Any, ...]
) -> tuple[Any, AbstractContextManager[Any], NamedSharding, NamedSharding]:
    """Compile `lanes` realizations, split over all local devices; hyperparameters stay free.

    differs: which of the settings every lane has its own of; the others they share.
    """
    mesh = Mesh(np.array(jax.local_devices()), ("realization",))
    split = NamedSharding(mesh, PartitionSpec("realization"))
    whole = NamedSharding(mesh, PartitionSpec())

    leaves, key = outline.inputs()
    cipher = jax.random.key_impl(key)

    def run(
        in_turn: bool, shared: list[Array], own: list[Array], words: Array, numbers: Array
    ) -> Any:
        key = jax.random.wrap_key_data(words, impl=cipher)

        def one(own: list[Array], number: Array) -> Any:
            leaves = _interleaved(differs, own, shared)
            agent, environment = jax.tree.unflatten(outline.structure, leaves)
            return realization(agent, environment, jax.random.fold_in(key, number), *mode)

        if in_turn:
            return jax.lax.map(lambda lane: one(*lane), (own, numbers))
        return jax.vmap(one)(own, numbers)

    def lower(in_turn: bool) -> Any:
        shardings = {"in_shardings": (whole, split, whole, split), "out_shardings": split}
        with _TRACING:
            return jax.jit(partial(run, in_turn), **shardings).lower(shared, own, words, numbers)

    both = list(zip(leaves, differs, strict=True))
    shared = [leaf for leaf, differ in both if not differ]
    own = [jax.ShapeDtypeStruct((lanes, *leaf.shape), leaf.dtype) for leaf, d in both if d]
    numbers = jax.ShapeDtypeStruct((lanes,), jnp.uint32)
    words = jax.eval_shape(jax.random.key_data, key)
    # Left free, a GPU's compiler picks among matrix products by a race, and rounding with them.
    options: dict[str, str | bool] = {"xla_gpu_deterministic_ops": True}
    chosen = options if jax.default_backend() == "gpu" else None
    lowered, cpu = lower(in_turn=False), jax.default_backend() == "cpu"
    # Calls of LAPACK for batches wait for one another for ever, those of one program too: lanes
    # are then taken one after another, and what calls it for batches of its own runs alone.
    if cpu and linalg.in_batches(lowered):
        lowered = lower(in_turn=True)
    # A chunk fills an accelerator.
    turn = _TURN if not cpu or linalg.in_batches(lowered) else nullcontext()
    return lowered.compile(compiler_options=chosen), turn, whole, split


def _interleaved(differs: Sequence[bool], own: Sequence[Any], shared: Sequence[Any]) -> list[Any]:
    mine, all_of_them = iter(own), iter(shared)
    return [next(mine if differ else all_of_them) for differ in differs]


Runner = Callable[[int], Any]
"""Number of the first lane -> regret and tallies of a chunk of lanes, the last perhaps too many."""


def compiled(
    points: Sequence[Point], realizations: int, seed: int, size: int, mode: tuple[Any, ...]
) -> Runner:
    """All realizations of the first point, then of the next, `size` at a time."""
    # Devices share a chunk evenly: the last lanes run realizations that the caller drops.
    lanes = -(-size // jax.local_device_count()) * jax.local_device_count()
    stack, words = Stack.of(points), jax.random.key_data(jax.random.key(seed))
    program, turn, whole, split = _program(stack.outline, stack.differs, lanes, mode)
    shared, words = jax.device_put((stack.shared, words), whole)

    def run(first: int) -> Any:
        at = np.minimum(np.arange(first, first + lanes), len(points) * realizations - 1)
        own = [column[at // realizations] for column in stack.own]
        numbers = (at % realizations).astype(np.uint32)
        own, numbers = jax.device_put((own, numbers), split)
        with turn:
            return jax.block_until_ready(program(shared, own, words, numbers))

    return run


def eager(
    points: Sequence[Point], realizations: int, seed: int, size: int, mode: tuple[Any, ...]
) -> Runner:
    """The same realizations one after another, the loop over periods run by Python."""
    points = [jax.tree.map(as_array, point) for point in points]

    def run(first: int) -> Any:
        parts = []
        for lane in range(first, min(first + size, len(points) * realizations)):
            key = jax.random.fold_in(jax.random.key(seed), lane % realizations)
            agent, environment = points[lane // realizations]
            parts.append(realization(agent, environment, key, *mode))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    return run
