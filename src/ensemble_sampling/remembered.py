"""Compiled programs found again by what they are made from, so that nothing need be traced.

JAX finds what it kept by the traced program, and tracing takes a good part of a second for each.
"""

import hashlib
import importlib.metadata
import os
import pickle
import platform
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from . import compilation
from .code import is_known
from .config import describe, fingerprint
from .files import write_atomically

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")
ELSEWHERE = ("jax_compilation_cache", "jax_persistent_cache", "jax_log")
"""Beginnings of the names of JAX's settings that no program depends on."""

_found = threading.local()


def _heard(event: str, **about: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _found.by_jax = True


jax.monitoring.register_event_listener(_heard)


def program(
    lower: Callable[[], Any], options: dict[str, str | bool] | None, parts: Any, about: Any
) -> Any:
    """What `lower` traces, compiled with these options, or what an earlier process kept of it.

    parts: the agents, environments and functions it is made from. Code of others among them may
        call more code, which may change unnoticed: then nothing is kept.
    about: what else it depends on, but for the package, its libraries, the device and JAX's
        settings, in plain data.
    """

    def build() -> Any:
        lowered = lower()
        _found.by_jax = False
        return lowered.compile(compiler_options=options)

    def pack(built: Any) -> bytes:
        if _found.by_jax:
            raise ValueError("what was loaded from a file lacks what another file would need")
        return pickle.dumps(serialize_executable.serialize(built))

    def unpack(content: bytes) -> Any:
        return serialize_executable.deserialize_and_load(*pickle.loads(content))

    return _remembered(build, [parts, "program", about, options], pack, unpack)


def number(compute: Callable[[], int], parts: Any, what: str) -> int:
    """What `compute` finds out by tracing, or what it once was; `parts` as for `program`."""
    return _remembered(compute, [parts, what], lambda found: str(found).encode(), int)


def _remembered(
    build: Callable[[], Any],
    made_from: Any,
    pack: Callable[[Any], bytes],
    unpack: Callable[[bytes], Any],
) -> Any:
    where = compilation.kept_in()
    if where is None or not is_known(made_from):
        return build()
    try:
        path = where / f"{_digest(made_from)}-remembered"
    except (TypeError, ValueError):  # no plain data, such as a dtype in an optimizer
        return build()
    with suppress(Exception):  # there is none, or it is damaged: it is made again
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            with suppress(OSError):  # somebody else's
                os.utime(path)  # the oldest are thrown away first
            return unpack(zlib.decompress(content[32:]))
    built = build()
    with suppress(Exception):  # a full disk, or what cannot be stored: it runs all the same
        content = zlib.compress(pack(built), 1)
        content = hashlib.sha256(content).digest() + content
        write_atomically(path, lambda file: file.write(content), durable=False)
    return built


def settings() -> tuple[tuple[str, str], ...]:
    """JAX's own, as they are in this thread: any may change what is compiled."""
    config: Any = jax.config
    values = config.values.items()
    return tuple((name, str(value)) for name, value in values if not name.startswith(ELSEWHERE))


def _digest(made_from: Any) -> str:
    devices = jax.local_devices()
    kinds = [device.device_kind for device in devices]
    flags = {name: value for name, value in os.environ.items() if "XLA" in name}
    machine = [kinds, devices[0].client.platform_version, flags]
    return fingerprint([describe(made_from), settings(), machine, _code()])


@lru_cache
def _code() -> list[Any]:
    """What stands for the code of the package and its libraries, and for what it may run on."""
    home = Path(__file__).parent
    files = [(str(path.relative_to(home)), path.stat()) for path in sorted(home.rglob("*.py"))]
    own = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]
    versions = [importlib.metadata.version(name) for name in LIBRARIES]
    return [platform.python_version(), compilation.processor(), versions, own]
