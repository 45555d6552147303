"""Chunks of realizations as tasks of a Ray cluster."""

import hashlib
import os
import platform
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from threading import Lock
from typing import Any

import jax
import numpy as np

from .. import checks
from ..compilation import processor, versions
from ..extras import install
from .run import Chunk, Part, Work

_CONNECTING = Lock()
_CONFIGURED = (  # what of JAX's configuration decides numbers; workers take it over
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)


@dataclass(frozen=True)
class Ray:
    """A Ray cluster, of which every core (or GPU) runs a chunk at a time.

    Numbers are those of a run on this machine, to the last bit: workers with other versions, or
    with another kind of device than this process has, are refused. What a node that was lost had
    in hand is run again elsewhere. Agents and environments travel by Ray's own pickling, users'
    classes whole: trust between the machines is that of a Ray cluster.

    address: of the cluster, as for `ray.init`; by default the one on this machine, which is started
        where there is none. Where `ray.init` was called before, that connection is used.
    retries: how often a chunk may be lost with its worker before it is an error
    exact: refuse processors with other instructions than this one's; false takes them, and numbers
        then agree to rounding
    """

    address: str | None = None
    retries: int = 10
    exact: bool = True

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise ModuleNotFoundError(f"es.simulation.Ray needs ray: {install('ray')}", name="ray")
        if not (self.address is None or isinstance(self.address, str)):
            raise TypeError(f"address must be a text such as 'auto', got {self.address!r}")
        checks.size("retries", self.retries, least=0)
        checks.flag("exact", self.exact)

    @property
    def jobs(self) -> int:
        return 16  # threads that wait; the next simulation fills the cluster while one ends

    def run(
        self, works: Sequence[Work], chunks: Sequence[Chunk]
    ) -> Generator[tuple[Chunk, Part], None, None]:
        if not chunks:
            return
        ray, needs = self._connected(), _needs()
        if _places(ray, needs) < 1:
            raise ValueError(
                f"this process runs on {needs}, and no machine of the cluster has as many: start "
                "nodes that have, or this process where it is as there (JAX_PLATFORMS=cpu)"
            )
        task = ray.remote(part).options(max_retries=self.retries, **needs)
        here = about(self.exact), {name: getattr(jax.config, name) for name in _CONFIGURED}
        sent, waiting, running = {}, iter(chunks), {}
        try:
            while True:
                # Twice as many as there are places: none is idle while results travel.
                ahead = max(2, 2 * _places(ray, needs)) - len(running)
                for at, number in islice(waiting, max(0, ahead)):
                    if at not in sent:
                        sent[at] = _sent(ray, works[at], here)
                    running[task.remote(*here, *sent[at], number)] = at, number
                if not running:
                    return
                for done in ray.wait(list(running), num_returns=1)[0]:
                    yield running.pop(done), self._part(ray, done)
        finally:
            for left in running:
                # What runs ends by itself soon, and its worker keeps what it compiled.
                with suppress(Exception):  # the cluster may be gone
                    ray.cancel(left)

    def _part(self, ray: Any, done: Any) -> Part:
        try:
            return ray.get(done)
        except ray.exceptions.RayTaskError as error:  # it failed as it would have here
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except ray.exceptions.RayError as error:
            raise ConnectionError(
                f"a chunk of realizations was lost with its worker {self.retries + 1} times; the "
                f"last time: {type(error).__name__}: {error}"
            ) from error

    def _connected(self) -> Any:
        import ray

        with _CONNECTING:
            if not ray.is_initialized():
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing goes elsewhere
                os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # the first is raised
                options: Any = {"logging_level": "error", "log_to_driver": False}
                with warnings.catch_warnings():  # of JAX; Ray's processes do not use it
                    warnings.filterwarnings("ignore", r"os\.fork", RuntimeWarning)
                    ray.init(self.address, include_dashboard=False, **options)
        there = ray.get_runtime_context().gcs_address
        if self.address not in (None, "auto", "local", there) and "://" not in str(self.address):
            raise ValueError(f"Ray is connected to {there} already, and not to {self.address}")
        return ray


def about(exact: bool = True) -> dict[str, str]:
    """What two processes must have in common for the same numbers."""
    device, count = jax.local_devices()[0], jax.local_device_count()
    found = {"platform": device.platform, "devices": str(count)}
    if device.platform != "cpu":
        found["kind of device"] = device.device_kind
    elif exact:
        found["processor"] = f"{platform.machine()}, instructions {processor()}"
    return {**versions(), **found}


def _needs() -> dict[str, int]:
    """What a chunk takes of a machine: as many devices as it is split over here."""
    kind, count = jax.default_backend(), jax.local_device_count()
    if kind not in ("cpu", "gpu"):
        raise ValueError(f"es.simulation.Ray runs on CPUs and GPUs, and this process on a {kind}")
    return {"num_cpus": count} if kind == "cpu" else {"num_cpus": 1, "num_gpus": count}


def _places(ray: Any, needs: Mapping[str, int]) -> int:
    """How many chunks the cluster runs at a time now; nodes may come and go."""
    there, names = ray.cluster_resources(), {"num_cpus": "CPU", "num_gpus": "GPU"}
    return int(min(there.get(names[need], 0) // count for need, count in needs.items()))


def _sent(ray: Any, work: Work, here: Any) -> tuple[str, Any]:
    """Once to every node that needs it, and read there without a copy."""
    from .transport import pack

    packed = pack(work)
    name = hashlib.sha256(packed + repr(here).encode()).hexdigest()
    return name, ray.put(np.frombuffer(packed, np.uint8))


_READY: dict[str, Callable[[int], Part]] = {}
WORKS = 16
"""Works that a worker keeps compiled."""


def part(
    driver: Mapping[str, str],
    configured: Mapping[str, Any],
    name: str,
    packed: np.ndarray,
    number: int,
) -> Part:
    """On a worker: a chunk of work that is compiled once, and kept."""
    for setting, value in configured.items():
        jax.config.update(setting, value)
    if name not in _READY:
        from .transport import unpack

        mine = about("processor" in driver)
        if different := [known for known in driver if mine.get(known) != driver[known]]:
            what = "; ".join(f"{k} {mine.get(k)}, this process {driver[k]}" for k in different)
            raise ValueError(
                f"the worker on {platform.node()} has {what}: numbers would differ. Install the "
                "same versions on machines of one kind, or use es.simulation.Ray(exact=False) for "
                "processors that differ"
            )
        while len(_READY) >= WORKS:
            del _READY[next(iter(_READY))]
        _READY[name] = unpack(packed).ready()
    return _READY[name](number)
