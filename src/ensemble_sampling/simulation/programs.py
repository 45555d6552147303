"""Realizations as compiled programs: what decides their numbers, and how many fit in a call."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .. import checks, linalg
from ..config import LATER, as_array
from ..core import Action, Agent, Environment, Key, fact
from ..primitives import quick
from .loop import realization
from .results import Window

PINNED = "pinned_host"
_TURN = Lock()  # of programs that must not run side by side
_TRACING = Lock()  # it holds the interpreter: side by side, the first would be ready with the last

Point = tuple[Any, Any]
"""An agent and an environment, as the run's loop takes them: one of many that share a program."""


@dataclass(frozen=True)
class Run:
    """All that decides the numbers of a simulation, besides its agent and environment.

    keep: whether the regret of every realization is returned, or in which periods
    windows: of these its averages are, instead
    """

    periods: int
    realizations: int
    seed: int
    coupled: bool = False
    expected: bool = False
    measure: Callable[..., Array] | None = None
    keep: Any = False
    last: bool = field(default=False, metadata=LATER)
    windows: Sequence[Window] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        checks.size("periods", self.periods)
        checks.size("realizations", self.realizations)
        checks.size("seed", self.seed, least=0, below=2**32)  # JAX drops what is above
        for name in ("coupled", "expected", "last"):
            checks.flag(name, getattr(self, name))
        if self.measure is not None and not callable(self.measure):
            raise TypeError(
                f"measure must be a function of (agent, key, state, event), got {self.measure!r}"
            )
        if self.last and self.measure is not None:
            raise ValueError("the last period alone is recorded by its regret: leave out `measure`")
        object.__setattr__(self, "keep", self._periods_to_keep())

    def _periods_to_keep(self) -> bool | list[int]:
        if isinstance(self.keep, bool | np.bool_):
            return bool(self.keep)
        if not checks.is_several(self.keep):
            raise TypeError(f"keep must be true, false or a list of periods, got {self.keep!r}")
        name, periods = "a period to keep", 1 if self.last else self.periods
        return [checks.size(name, each, least=-periods, below=periods) for each in self.keep]

    def check(self, agent: Any, environment: Any) -> None:
        """Refuse what cannot be run before anything is compiled."""
        arms = check_parts(agent, environment)
        if self.coupled and arms * self.periods >= 2**32:
            raise ValueError(
                f"coupled outcomes need arms x periods < 2^32, got {arms} x {self.periods}"
            )

    @property
    def mode(self) -> tuple[Any, ...]:
        """What a program is compiled for: a loop, and its arguments after the key."""
        return realization, self.periods, self.coupled, self.expected, self.measure, self.last

    @property
    def about(self) -> dict[str, str]:
        """What results say of the run."""
        return {name: str(getattr(self, name)) for name in ("seed", "coupled", "expected")}

    def footprint(self, agent: Any, environment: Any) -> int:
        """Roughly how many bytes one realization takes while it runs."""
        return footprint(agent, environment, self.periods)

    def chunk_size(self, agent: Any, environment: Any, lanes: int, own: int = 0) -> int:
        """Realizations per call, see the function of this name."""
        if fact(agent, "host"):
            return 1
        return _chunk_size(fact(agent, "label"), own + self.footprint(agent, environment), lanes)

    def mistakes(self, environment: Any, tally: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """In which realizations a part did what it may not, by what that is."""
        return {"gave an outcome or mean reward that is not finite": tally["nonfinite"] > 0}


class Outline(NamedTuple):
    """What a program depends on, besides its mode: all but the values of settings."""

    structure: Any
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    jax_settings: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, agent: Any, environment: Any) -> "Outline":
        leaves, structure = jax.tree.flatten((agent, environment))
        shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        config: Any = jax.config
        return cls(structure, shapes, tuple((n, str(v)) for n, v in config.values.items()))

    def inputs(self) -> tuple[list[jax.ShapeDtypeStruct], Key]:
        """The shapes of the settings, and a key of the kind that the program draws by."""
        settings = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.shapes]
        users = jax.tree.unflatten(self.structure, settings)
        return settings, quick(jax.random.key(0), *users)


def check_parts(agent: Agent, environment: Environment) -> int:
    """Raise an error that says why if the parts do not fit; returns the number of arms."""
    checks.part("agent", agent, "init", "act", "update")
    checks.part("environment", environment, "init", "offer", "outcome")
    check_settings(agent, environment)
    return _trace_period(Outline.of(agent, environment))[0]


def check_settings(agent: Any, environment: Any) -> None:
    """Settings that are not static are numbers."""
    for leaf in jax.tree.leaves((agent, environment)):
        if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | Array):
            raise TypeError(
                "a setting that is not a number must be a static field, "
                f"eqx.field(static=True), got {leaf!r}"
            )


def footprint(agent: Agent, environment: Environment, periods: int) -> int:
    """Roughly how many bytes one realization takes while it runs."""
    # The state is held about four times over: carry, its update, and what a period computes.
    return 4 * _trace_period(Outline.of(agent, environment))[1] + 8 * periods


@lru_cache(maxsize=256)
def _trace_period(outline: Outline) -> tuple[int, int]:
    """The number of arms, and the bytes of a realization's state.

    Shapes that disagree fail here, before anything is compiled.
    """

    def one(leaves: Any, key: Key) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        world = environment.init(key)
        advance = fact(environment, "advance")
        after = world if advance is None else advance(key, world, jnp.ones((), jnp.int32))
        check_kept("advance", "world", environment, world, after)
        offer = environment.offer(key, world)
        if fact(agent, "host"):
            return offer.features, world
        state = agent.init(key)
        index = agent.act(key, state, offer.features, offer.available)
        action = Action(index, offer.features[index])
        around = world if offer.world is None else offer.world
        after = agent.update(key, state, action, environment.outcome(key, around, action))
        check_kept("update", "state", agent, state, after)
        return offer.features, (world, state)

    features, held = jax.eval_shape(one, *outline.inputs())
    arrays = jax.tree.leaves(held)
    return features.shape[0], sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)


def check_kept(method: str, what: str, part: Any, before: Any, after: Any) -> None:
    """Refuse a part that changes the shapes or types of what is carried along."""
    alike = jax.tree.structure(before) == jax.tree.structure(after)
    before, after = ([(x.shape, x.dtype) for x in jax.tree.leaves(s)] for s in (before, after))
    if not alike or before != after:
        raise ValueError(
            f"{fact(part, 'label')}: {method} must keep the shapes and types of the {what}; "
            f"before {before}, after {after}"
        )


def threads_at_a_time() -> int:
    """Calls at a time: a device runs one after the other, CPU cores side by side."""
    if jax.default_backend() != "cpu":
        return 1
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, cores // jax.local_device_count())


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
    agent: Agent, environment: Environment, periods: int, realizations: int, own: int = 0
) -> int:
    """Realizations per call: as many as memory and an even split allow.

    own: bytes of settings that a realization does not share with the others.
    """
    return Run(periods, realizations, 0).chunk_size(agent, environment, realizations, own)


def _chunk_size(label: str, each: int, realizations: int) -> int:
    devices, threads, room = jax.local_device_count(), threads_at_a_time(), memory()
    if each > room:
        raise ValueError(
            f"one realization of {label} needs about {each / 2**30:.3g} GiB of "
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
    """The settings of points that share an outline: one array for all, or a row for each point."""

    settings: list[np.ndarray]
    differs: tuple[bool, ...]

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Stack":
        columns = list(zip(*map(jax.tree.leaves, points), strict=True))
        differs = [any(_differ(column[0], leaf) for leaf in column[1:]) for column in columns]
        settings = [
            np.asarray(
                [*map(np.asarray, column)] if differ else column[0], jnp.result_type(column[0])
            )
            for column, differ in zip(columns, differs, strict=True)
        ]
        return cls(settings, tuple(differs))

    @property
    def own(self) -> int:
        """Bytes of the settings that one point does not share with the others."""
        both = zip(self.settings, self.differs, strict=True)
        return sum(setting[0].nbytes for setting, differ in both if differ)

    def rows(self, points: np.ndarray) -> list[np.ndarray]:
        """The settings of realizations that belong to these points."""
        both = zip(self.settings, self.differs, strict=True)
        return [setting[points] if differ else setting for setting, differ in both]


def _differ(one: Any, other: Any) -> bool:
    return one is not other and not np.array_equal(one, other)


@lru_cache(maxsize=64)
def _program(
    outline: Outline, differs: tuple[bool, ...], lanes: int, mode: tuple[Any, ...]
) -> tuple[Any, AbstractContextManager[Any], Any]:
    """Compile `lanes` realizations, split over all local devices; hyperparameters stay free.

    Returns the program, a lock to hold while it runs, and where its inputs go.

    differs: the settings that every lane has its own of; the others they share.
    """
    mesh = Mesh(np.array(jax.local_devices()), ("realization",))
    split = NamedSharding(mesh, PartitionSpec("realization"))
    whole = NamedSharding(mesh, PartitionSpec())
    places = [split if differ else whole for differ in differs], whole, split
    leaves, key = outline.inputs()
    loop, *arguments = mode
    cipher = jax.random.key_impl(key)

    def run(in_turn: bool, settings: list[Array], words: Array, numbers: Array) -> Any:
        key = jax.random.wrap_key_data(words, impl=cipher)

        def one(settings: list[Array], number: Array) -> Any:
            agent, environment = jax.tree.unflatten(outline.structure, settings)
            return loop(agent, environment, jax.random.fold_in(key, number), *arguments)

        one = jax.custom_batching.sequential_vmap(one) if in_turn else one
        axes = [0 if differ else None for differ in differs]
        return jax.vmap(one, in_axes=(axes, 0))(settings, numbers)

    def lower(in_turn: bool) -> Any:
        program = jax.jit(partial(run, in_turn), in_shardings=places, out_shardings=split)
        with _TRACING:
            return program.lower(settings, words, numbers)

    settings = [
        jax.ShapeDtypeStruct((lanes, *leaf.shape) if differ else leaf.shape, leaf.dtype)
        for leaf, differ in zip(leaves, differs, strict=True)
    ]
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
    return lowered.compile(compiler_options=chosen), turn, places


def tracing() -> bool:
    """Whether some program is being traced, with others perhaps waiting for it."""
    return _TRACING.locked()


Runner = Callable[[int], Any]
"""Number of the first lane -> regret and tallies of a chunk of lanes, the last perhaps too many."""


def compiled(points: Sequence[Point], run: Run, size: int) -> Runner:
    """All realizations of the first point, then of the next, `size` at a time."""
    # Devices share a chunk evenly: the last lanes run realizations that the caller drops.
    lanes = -(-size // jax.local_device_count()) * jax.local_device_count()
    stack = Stack.of(points)
    program, turn, places = _program(Outline.of(*points[0]), stack.differs, lanes, run.mode)
    words = jax.random.key_data(jax.random.key(run.seed))

    def chunk(first: int) -> Any:
        at = np.minimum(np.arange(first, first + lanes), len(points) * run.realizations - 1)
        point, number = np.divmod(at, run.realizations)
        given = stack.rows(point), words, number.astype(np.uint32)
        with turn:
            found = jax.block_until_ready(program(*jax.device_put(given, places)))
        return jax.tree.map(_to_numpy, found)

    return chunk


def _to_numpy(array: Array) -> np.ndarray:
    """A plain copy from an accelerator holds the interpreter meanwhile, and with it the thread that
    would start the next run; one to pinned memory does not."""
    kinds = {place.kind for place in jax.local_devices()[0].addressable_memories()}
    if jax.default_backend() == "cpu" or PINNED not in kinds:
        return np.asarray(array)
    return np.array(jax.device_put(array, array.sharding.with_memory_kind(PINNED)))


def eager(points: Sequence[Point], run: Run, size: int) -> Runner:
    """The same realizations one after another, the loop over periods run by Python."""
    points = [jax.tree.map(as_array, point) for point in points]
    loop, *arguments = run.mode

    def chunk(first: int) -> Any:
        parts = []
        for lane in range(first, min(first + size, len(points) * run.realizations)):
            point, number = divmod(lane, run.realizations)
            agent, environment = points[point]
            key = jax.random.fold_in(jax.random.key(run.seed), number)
            parts.append(loop(agent, environment, key, *arguments))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    return chunk
