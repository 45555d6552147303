"""Libraries that the plain installation does not bring, and how to install them anywhere."""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

EXTRAS = {
    "ray": "ray",
    "psycopg": "postgres",
    "sklearn": "sklearn",
    "httpx": "client",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "parquet",
    "blackjax": "mcmc",
    **dict.fromkeys(("gymnax", "gymnasium"), "episodes"),
    **dict.fromkeys(("starlette", "uvicorn", "msgspec", "prometheus_client"), "serve"),
}
"""The extra that brings a library with it."""


def install(library: str) -> str:
    """The command that installs what the extra of a library brings, from wherever the package
    itself was installed: a checkout, a wheel or an index."""
    extra = EXTRAS[library]
    mark = re.compile(rf"; *extra *== *['\"]{extra}['\"]$")
    try:
        found = [
            mark.sub("", each) for each in requires("ensemble-sampling") or () if mark.search(each)
        ]
    except PackageNotFoundError:  # the source, not installed
        found = []
    return f"pip install {' '.join(repr(each) for each in found) or library} (extra {extra!r})"


def need(library: str, what: str, error: type[Exception] = ImportError) -> Any:
    """The library, or an error that says what lacks it and what to do."""
    try:
        return import_module(library)
    except ImportError as missing:
        raise error(f"{what} needs {library}: {install(library.partition('.')[0])}") from missing
