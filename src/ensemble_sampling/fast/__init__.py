"""Faster versions of plain code. Delete a file here, and all still works, slower."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

Plain = TypeVar("Plain", bound=Callable[..., Any])


def module(file: str) -> ModuleType | None:
    """A file of this folder; None where it was deleted."""
    name = f"{__name__}.{file}"
    return import_module(name) if find_spec(name) else None


def faster(file: str, name: str | None = None) -> Callable[[Plain], Plain]:
    """Take, in place of a plain function or class, the one in a file of this folder, which does the
    same and has the same name, unless another is given."""

    def choose(plain: Plain) -> Plain:
        return getattr(module(file), name or plain.__name__, plain)

    return choose
