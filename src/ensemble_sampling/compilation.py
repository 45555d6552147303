"""The cache of compiled programs, and all else that programs depend on: processor, versions."""

import hashlib
import os
import platform
import sys
import threading
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import jax

from . import __version__

SWITCH = "ENSEMBLE_SAMPLING_CACHE"  # "off", or another folder
FILES = 4000  # files; beyond, the older half goes


def cache_folder() -> Path | None:
    """Where compiled programs are kept, by the processor they are for; None: nowhere."""
    given = os.environ.get(SWITCH, "")
    if given.lower() in ("off", "0", "no", "false"):
        return None
    if given:
        return Path(given).expanduser()
    try:
        home = Path.home()
    except RuntimeError:  # nobody's
        return None
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "ensemble-sampling" / f"jax-{jax.__version__}-{processor()}"


def processor() -> str:
    """A digest of the instructions it has: two machines may share a home."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Of everything that decides the numbers, but for Python."""
    names = ("jax", "jaxlib", "equinox", "optax", "numpy")
    return {"ensemble-sampling": __version__, **{name: version(name) for name in names}}


def enable_cache() -> None:
    """Let JAX keep what it compiles, unless the user says where to, or not to."""
    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    where = cache_folder()
    if chosen is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ or where is None:
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
        _trim(where)
    except OSError:  # a home that cannot be written to: compile every time
        return
    jax.config.update("jax_compilation_cache_dir", str(where))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _trim(where: Path) -> None:
    names = os.listdir(where)  # paths of thousands of files take milliseconds to make
    if len(names) > FILES:
        files = sorted((where / name for name in names), key=lambda file: file.stat().st_mtime)
        for file in files[: len(files) // 2]:
            file.unlink(missing_ok=True)


def start_devices() -> None:
    """Get the devices ready, which takes seconds on a GPU, while the caller imports modules.

    Their memory is taken as it is needed, unless the user says otherwise: all of it at once, as is
    JAX's default, takes two seconds more, and leaves none for others.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    def ready() -> None:
        with suppress(Exception):  # the error comes again where a device is used
            jax.devices()

    threading.Thread(target=ready, daemon=True).start()
