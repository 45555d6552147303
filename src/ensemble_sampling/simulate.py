"""The only loop over periods: many realizations of an agent in an environment, compiled once."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import checks
from .config import as_array, describe, differences, fingerprint
from .core import Action, Agent, Environment, Key, Round
from .files import write_atomically

Progress = Callable[[int, int], None]
"""Told how many realizations are done, and how many there are."""


class Event(NamedTuple):
    """What happened in a period, before the agent has learned from it."""

    t: Array
    offer: Round
    action: Action
    outcome: Array


Measure = Callable[[Any, Key, Any, Event], Array]
"""(agent, key, state, event) -> the number or numbers to record in place of the regret.

It is compiled in: a function, or a frozen dataclass with `__call__`, equal ones share a program.
"""


@dataclass(frozen=True)
class Result:
    """Regret per period over realizations, and where asked for, of every realization."""

    label: str
    mean: np.ndarray
    stderr: np.ndarray
    realizations: int
    diverged: int
    seconds: float
    regret: np.ndarray | None = None

    @property
    def periods(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations per period; merging is exact in any order."""

    count: int
    mean: np.ndarray
    m2: np.ndarray

    @classmethod
    def of(cls, regret: np.ndarray) -> "Moments":
        mean = regret.mean(axis=0, dtype=np.float64)
        m2 = np.zeros_like(mean)
        for i in range(0, len(regret), 16):  # few rows at a time stay in cache
            m2 += np.square(regret[i : i + 16] - mean).sum(axis=0)
        return cls(len(regret), mean, m2)

    def merge(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / count)
        m2 = self.m2 + other.m2 + delta**2 * (self.count * other.count / count)
        return Moments(count, mean, m2)

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the mean; unknown (NaN) from a single realization."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.sqrt(self.m2 / (self.count - 1) / self.count)


def realization(
    agent: Agent,
    environment: Environment,
    key: Key,
    periods: int,
    coupled: bool,
    expected: bool = False,
    measure: Measure | None = None,
) -> tuple[Array, dict[str, Array]]:
    """One run: regret per period, and what went wrong on the way.

    World, outcomes and agent have streams of their own. A period's keys come from its number or,
    when coupled, from (arm, how often it was pulled): the n-th pull of an arm then brings the
    same noise to every agent, and to every member (the coupling of the paper's appendix).
    """
    world_key, outcome_key, agent_key = jax.random.split(key, 3)
    measure_key = jax.random.fold_in(key, 3)
    init_key, offer_key = jax.random.split(world_key)
    start_key, act_key, update_key = jax.random.split(agent_key, 3)
    world = environment.init(init_key)
    arms = jax.eval_shape(environment.offer, offer_key, world).features.shape[0]
    scan, branch = (_scan, _branch) if _on_host(agent) else (jax.lax.scan, jax.lax.cond)

    def chances(state: Any, offer: Round) -> Array:
        key = jax.random.fold_in(act_key, periods)  # the one period has not used
        return agent.probabilities(state, offer.features, offer.available, key)

    def period(carry: Any, t: Array) -> tuple[Any, Array]:
        state, pulls, nonfinite = carry
        offer = environment.offer(jax.random.fold_in(offer_key, t), world)
        index = agent.act(jax.random.fold_in(act_key, t), state, offer.features, offer.available)
        action = Action(index, offer.features[index])
        moment = index * periods + pulls[index] if coupled else t
        means = offer.means
        if offer.available is not None:
            means = jnp.where(offer.available, means, -jnp.inf)
        regret = means.max() - means[index]
        if expected:
            average = lambda: _average(means.max() - means, chances(state, offer))  # noqa: E731
            regret = branch(t == periods - 1, average, lambda: regret)
        outcome = environment.outcome(jax.random.fold_in(outcome_key, moment), world, action)
        if measure is not None:
            event = Event(t, offer, action, outcome)
            regret = measure(agent, jax.random.fold_in(measure_key, t), state, event)
        state = agent.update(jax.random.fold_in(update_key, moment), state, action, outcome)
        pulls = pulls.at[index].add(1) if coupled else pulls
        nonfinite = nonfinite + ~jnp.all(jnp.isfinite(outcome))
        return (state, pulls, nonfinite), regret

    pulls = jnp.zeros(arms if coupled else 0, jnp.int32)
    start = (agent.init(start_key), pulls, jnp.zeros((), jnp.int32))
    (state, _, nonfinite), regret = scan(period, start, jnp.arange(periods))
    diverged = getattr(agent, "diverged", lambda state: 0)(state)
    return regret, {"nonfinite": nonfinite, "diverged": jnp.asarray(diverged, jnp.int32)}


def _scan(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, times: Array) -> tuple[Any, Any]:
    """`jax.lax.scan` run by Python, for agents that cannot be traced."""
    emitted = []
    for t in times:
        carry, value = step(carry, t)
        emitted.append(value)
    return carry, jnp.stack(emitted)


def _branch(condition: Array, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    return then() if condition else otherwise()


def _average(values: Array, chances: Array) -> Array:
    return jnp.where(chances > 0, values * chances, 0.0).sum()  # an unavailable one is infinite


def simulate(
    agent: Agent,
    environment: Environment,
    periods: int,
    realizations: int,
    seed: int = 0,
    *,
    coupled: bool = False,
    keep: bool | Sequence[int] = False,
    expected: bool = False,
    measure: Measure | None = None,
    chunk: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
) -> Result:
    """Regret per period of `agent` in `environment`, over many independent realizations.

    Realization r draws its world, outcomes and agent from `fold_in(key(seed), r)`, so the same
    seed gives every agent the same worlds, and neither `chunk` nor the number of devices changes
    a number beyond rounding.

    coupled: the n-th pull of an arm brings the same noise to every agent, which makes paired
        comparisons sharp.
    keep: also return the regret of every realization, (realizations, periods); a list of periods
        keeps only those.
    expected: score the last period by the regret expected under the agent's `probabilities`
        instead of the action it drew: the same mean with less noise.
    measure: what to record in every period in place of the regret.
    chunk: realizations per compiled call; by default chosen from the problem's size.
    checkpoint: a folder; finished chunks are saved there, and a run that was interrupted goes on
        where it stopped and gives the same numbers.
    progress: a bar on the terminal (the default where there is one), or a function told
        (done, total).
    """
    periods = checks.size("periods", periods)
    realizations = checks.size("realizations", realizations)
    seed = checks.size("seed", seed, least=0, below=2**32)  # JAX drops what is above
    arms = _check(agent, environment)
    if coupled and arms * periods >= 2**32:
        raise ValueError(f"coupled outcomes need arms x periods < 2^32, got {arms} x {periods}")
    kept = _kept(keep, periods)
    began = time.perf_counter()
    store = None
    if checkpoint is not None:
        run = {
            "agent": describe(agent),
            "environment": describe(environment),
            "periods": periods,
            "realizations": realizations,
            "seed": seed,
            "coupled": coupled,
            "keep": keep,
            "expected": expected,
            "measure": describe(measure),
            "precision": str(jnp.result_type(float)),
        }
        store = _Checkpoint(Path(checkpoint), run)
        chunk = store.chunk or chunk
    if chunk is None:
        size = chunk_size(agent, environment, periods, realizations)
    else:
        size = min(checks.size("chunk", chunk), realizations)
    if store is not None:
        store.begin(size)
    agent, environment = jax.tree.map(as_array, (agent, environment))
    runner = _eager if _on_host(agent) else _compiled
    run_chunk = runner(agent, environment, seed, size, (periods, coupled, expected, measure))

    def work(number: int) -> dict[str, Any]:
        first, count = number * size, min(size, realizations - number * size)
        with _device():
            regret, tally = jax.tree.map(np.asarray, run_chunk(first))
        regret, tally = regret[:count], {k: v[:count] for k, v in tally.items()}
        finite = np.isfinite(regret.reshape(count, -1)).all(axis=1)
        if tally["nonfinite"].any() or not finite.all():
            r = first + int(np.argmax((tally["nonfinite"] > 0) | ~finite))
            raise ValueError(
                f"{type(environment).__name__} gave an outcome or mean reward that is not finite "
                f"in realization {r} of seed {seed}"
            )
        moments = Moments.of(regret)
        part = {"count": count, "mean": moments.mean, "m2": moments.m2}
        part["diverged"] = int(tally["diverged"].sum())
        if kept is not None:
            part["regret"] = regret[:, kept]
        if store is not None:
            store.save(number, part)
        return part

    chunks = -(-realizations // size)
    parts = {n: p for n in range(chunks) if store is not None and (p := store.load(n)) is not None}
    with _report(progress, agent.label, realizations) as report, _pool(_threads()) as pool:
        done = sum(int(p["count"]) for p in parts.values())
        report(done, realizations)
        pending = {pool.submit(work, n): n for n in range(chunks) if n not in parts}
        while pending:
            finished, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                number = pending.pop(future)
                parts[number] = future.result()
                done += int(parts[number]["count"])
                report(done, realizations)

    ordered = [parts[n] for n in range(chunks)]
    moments = Moments(int(ordered[0]["count"]), ordered[0]["mean"], ordered[0]["m2"])
    for part in ordered[1:]:
        moments = moments.merge(Moments(int(part["count"]), part["mean"], part["m2"]))
    return Result(
        label=agent.label,
        mean=moments.mean,
        stderr=moments.stderr,
        realizations=realizations,
        diverged=sum(int(p["diverged"]) for p in ordered),
        seconds=time.perf_counter() - began,
        regret=np.concatenate([p["regret"] for p in ordered]) if kept is not None else None,
    )


def _kept(keep: bool | Sequence[int], periods: int) -> Any:
    """Which periods to return of every realization, as an index; None: none of them."""
    if isinstance(keep, bool):
        return slice(None) if keep else None
    for period in keep:
        if checks.size("a period to keep", period, least=-periods) >= periods:
            raise ValueError(f"cannot keep period {period} of {periods}")
    return list(keep)


_TURN = Lock()


def _device() -> AbstractContextManager[Any]:
    """A turn on the accelerator, which chunks are sized to fill; other threads go on compiling."""
    return nullcontext() if jax.default_backend() == "cpu" else _TURN


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads() -> int:
    """Calls at a time: a device runs one after the other, CPU cores side by side."""
    return 1 if jax.default_backend() != "cpu" else max(1, _cores() // jax.local_device_count())


def _on_host(agent: Agent) -> bool:
    """Whether an agent cannot be traced, for it runs code that is not JAX's."""
    return bool(getattr(agent, "host", False))


def _check(agent: Agent, environment: Environment) -> int:
    """Let parts that do not fit fail here, with a word on why; -> arms."""
    checks.part("agent", agent, "init", "act", "update")
    checks.part("environment", environment, "init", "offer", "outcome")
    for leaf in jax.tree.leaves((agent, environment)):
        if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | Array):
            raise TypeError(
                "a setting that is not a number must be a static field, "
                f"eqx.field(static=True), got {leaf!r}"
            )

    return _traced(_outline(agent, environment))


def footprint(agent: Agent, environment: Environment, periods: int) -> int:
    """Roughly how many bytes one realization takes while it runs."""
    # The state is held about four times over: carry, its update, and what a period computes.
    return 4 * _held(_outline(agent, environment)) + 8 * periods


class _Outline(NamedTuple):
    """All that a compiled program depends on, for settings stay free."""

    structure: Any
    shapes: tuple[tuple[tuple[int, ...], Any], ...]
    x64: bool

    def inputs(self) -> tuple[list[jax.ShapeDtypeStruct], Any]:
        """The shapes of the settings, and of a key."""
        settings = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.shapes]
        return settings, jax.eval_shape(lambda: jax.random.key(0))


def _outline(agent: Agent, environment: Environment) -> _Outline:
    leaves, structure = jax.tree.flatten(jax.tree.map(as_array, (agent, environment)))
    x64 = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    return _Outline(structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves), x64)


@lru_cache(maxsize=256)
def _held(outline: _Outline) -> int:
    """The bytes of a realization's state."""

    def start(leaves: Any, key: Key) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        return agent.init(key), environment.init(key)

    held = jax.eval_shape(start, *outline.inputs())
    return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(held))


@lru_cache(maxsize=256)
def _traced(outline: _Outline) -> int:
    """Trace one period, so that shapes that disagree fail before anything is compiled; -> arms."""

    def one(leaves: Any, key: Key) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        world = environment.init(key)
        offer = environment.offer(key, world)
        if _on_host(agent):
            return offer.features
        state = agent.init(key)
        index = agent.act(key, state, offer.features, offer.available)
        action = Action(index, offer.features[index])
        after = agent.update(key, state, action, environment.outcome(key, world, action))
        before, after = (jax.tree.map(lambda x: (x.shape, x.dtype), s) for s in (state, after))
        if before != after:
            raise ValueError(
                f"{agent.label}: update must keep the shapes and types of the state; "
                f"before {before}, after {after}"
            )
        return offer.features

    return jax.eval_shape(one, *outline.inputs()).shape[0]


def memory() -> int:
    """Bytes that simulations may use in all: the devices', or the machine's."""
    if jax.default_backend() == "cpu":
        known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 2**33
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", 2**33) * jax.local_device_count()


def chunk_size(agent: Agent, environment: Environment, periods: int, realizations: int) -> int:
    """Realizations per call: as many as memory and an even split allow."""
    if _on_host(agent):
        return 1
    devices, threads = jax.local_device_count(), _threads()
    each, room = footprint(agent, environment, periods), memory()
    if each > room:
        raise ValueError(
            f"one realization of {agent.label} needs about {each / 2**30:.3g} GiB of memory, "
            f"and there are {room / 2**30:.3g}"
        )
    if jax.default_backend() == "cpu":
        room, most = 2**28, 256  # more per call is no faster, and shows less progress
    else:
        room, most = 0.4 * room, 2**16
    size = int(min(most, max(1, room // each)))
    rounds = -(-realizations // (size * threads))
    size = min(size, -(-realizations // (rounds * threads)))
    return min(-(-size // devices) * devices, realizations)


@lru_cache(maxsize=64)
def _program(outline: _Outline, lanes: int, mode: tuple[Any, ...]) -> Any:
    """Compile `lanes` realizations, split over all local devices; hyperparameters stay free."""
    mesh = Mesh(np.array(jax.local_devices()), ("realization",))
    split = NamedSharding(mesh, PartitionSpec("realization"))
    whole = NamedSharding(mesh, PartitionSpec())

    def run(leaves: Any, key: Key, numbers: Array) -> Any:
        agent, environment = jax.tree.unflatten(outline.structure, leaves)
        one = lambda n: realization(agent, environment, jax.random.fold_in(key, n), *mode)  # noqa: E731
        return jax.vmap(one)(numbers)

    leaves, key = outline.inputs()
    numbers = jax.ShapeDtypeStruct((lanes,), jnp.uint32)
    jitted = jax.jit(run, in_shardings=(whole, whole, split), out_shardings=split)
    # Left free, a GPU's compiler picks among matrix products by a race, and rounding with them.
    options: dict[str, str | bool] = {"xla_gpu_deterministic_ops": True}
    chosen = options if jax.default_backend() == "gpu" else None
    return jitted.lower(leaves, key, numbers).compile(compiler_options=chosen), whole, split


def _compiled(
    agent: Agent, environment: Environment, seed: int, size: int, mode: tuple[Any, ...]
) -> Callable[[int], Any]:
    # Devices share a chunk evenly: the last lanes run realizations that the caller drops.
    lanes = -(-size // jax.local_device_count()) * jax.local_device_count()
    program, whole, split = _program(_outline(agent, environment), lanes, mode)
    leaves = jax.tree.leaves((agent, environment))
    leaves, key = jax.device_put((leaves, jax.random.key(seed)), whole)

    def run(first: int) -> Any:
        numbers = np.arange(first, first + lanes, dtype=np.uint32)
        return program(leaves, key, jax.device_put(numbers, split))

    return run


def _eager(
    agent: Agent, environment: Environment, seed: int, size: int, mode: tuple[Any, ...]
) -> Callable[[int], Any]:
    """The same realizations one after another, the loop over periods run by Python."""

    def run(first: int) -> Any:
        keys = [jax.random.fold_in(jax.random.key(seed), first + i) for i in range(size)]
        parts = [realization(agent, environment, key, *mode) for key in keys]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    return run


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that drop what has not begun when the caller is interrupted."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _report(progress: bool | Progress | None, label: str, total: int) -> Iterator[Progress]:
    """The caller's own function, a bar with rate and time left, or silence."""
    if callable(progress):
        yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if progress is False or (progress is None and not console.is_terminal):
        yield lambda done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, rate="")
        began, before = time.perf_counter(), None

        def report(done: int, total: int) -> None:
            nonlocal before
            before = done if before is None else before  # what a checkpoint brought is no rate
            rate = (done - before) / (time.perf_counter() - began)
            bar.update(task, completed=done, rate=f"{rate:.3g} realizations/s" if rate else "")

        yield report


class _Checkpoint:
    """A folder with the run's description and one file per finished chunk."""

    def __init__(self, folder: Path, run: dict[str, Any]):
        self.folder, self.run, self.chunk = folder, json.loads(json.dumps(run)), None
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"checkpoint must be a folder, but {folder} is a file")
        described = folder / "run.json"
        if not described.exists():
            return
        try:
            saved = json.loads(described.read_text())
            chunk, saved_run = int(saved["chunk"]), saved["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{described} is damaged ({error}); delete {folder}") from error
        changed = differences(saved_run, self.run)
        if changed:
            raise ValueError(
                f"{folder} holds another run's checkpoint; it differs in\n  " + "\n  ".join(changed)
            )
        self.chunk, self.run = chunk, saved_run

    def begin(self, chunk: int) -> None:
        """Describe the run on disk, and mark chunks with it, lest a stray one be taken for ours."""
        self.mark = fingerprint({"chunk": chunk, "run": self.run})
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"chunk": chunk, "run": self.run}, indent=1)
        write_atomically(self.folder / "run.json", lambda file: file.write(text.encode()))

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:05d}.npz"

    def save(self, number: int, part: dict[str, Any]) -> None:
        write_atomically(self._path(number), lambda file: np.savez(file, run=self.mark, **part))

    def load(self, number: int) -> dict[str, Any] | None:
        """A finished chunk; one that cannot be read (its CRC is checked) is computed again."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                part = {name: file[name] for name in file.files}
            if part.pop("run") != self.mark:
                raise ValueError("it belongs to another run")
            if missing := {"count", "mean", "m2", "diverged"} - part.keys():
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            return part
        except Exception as error:  # a damaged archive fails in too many ways to list
            import warnings

            warnings.warn(f"{path} is damaged ({error}) and is computed again", stacklevel=3)
            return None
