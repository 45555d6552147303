"""What programs are compiled by and for, and where they are kept between processes."""

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
MOST = 4000  # files; beyond, the older half goes


def folder(environment: "os._Environ[str] | dict[str, str]" = os.environ) -> Path | None:
    """Where they are kept; None: nowhere. Programs are the processor's own, hence its name."""
    given = environment.get(SWITCH, "")
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
        base = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "ensemble-sampling" / f"jax-{jax.__version__}-{processor()}"


def processor() -> str:
    """What programs for it may use: two machines may share a home."""
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


def keep() -> None:
    """Let JAX keep what it compiles, unless it was told where to, or not to."""
    told = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if told is not None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    where = folder()
    if where is None:
        return
    try:
        where.mkdir(parents=True, exist_ok=True)
        _trim(where)
    except OSError:  # a home that cannot be written to: compile every time
        return
    jax.config.update("jax_compilation_cache_dir", str(where))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def wake() -> None:
    """Get the devices ready, which takes seconds on a GPU, while the caller imports modules.

    Their memory is taken as it is needed, unless the user says otherwise: all of it at once, as is
    JAX's default, takes two seconds more, and leaves none for others.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

    def ready() -> None:
        with suppress(Exception):  # whoever needs them is told
            jax.devices()

    threading.Thread(target=ready, daemon=True).start()


def _trim(where: Path) -> None:
    names = os.listdir(where)  # paths of thousands of files take milliseconds to make
    if len(names) > MOST:
        files = sorted((where / name for name in names), key=lambda file: file.stat().st_mtime)
        for file in files[: len(files) // 2]:
            file.unlink(missing_ok=True)
