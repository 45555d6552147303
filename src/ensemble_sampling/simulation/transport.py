"""Work on its way to another process of the same cluster, users' own classes and all.

This is transport between processes that trust each other, by Ray's own cloudpickle: nothing of it
is kept in a file. Imported only where Ray is.
"""

import dataclasses
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import numpy as np
from ray import cloudpickle

from ..code import is_own_module
from .chunks import Work

_ONE_AT_A_TIME = threading.Lock()
_MADE = {"__dataclass_fields__", "__dataclass_params__", "__match_args__"}


def pack(work: Work) -> bytes:
    """With what the user wrote in it as text of its own: workers need not have the user's files."""
    with _ONE_AT_A_TIME, _by_value(_own_modules()):
        file = BytesIO()
        _Pickler(file).dump((work, _shapes(work)))
    return file.getvalue()


def unpack(packed: Any) -> Work:
    work, shapes = cloudpickle.loads(packed)
    if _shapes(work) != shapes:
        raise ValueError(
            "an agent or environment did not come through to the worker whole: its settings there "
            f"are {_shapes(work)}, here {shapes}; define its class in a module that is installed "
            "on the workers"
        )
    return work


def _shapes(work: Work) -> str:
    """Which settings there are: a class that lost its fields on the way has none."""
    leaves = jax.tree.leaves(work.points)
    return str([(np.shape(leaf), str(np.result_type(leaf))) for leaf in leaves])


def _own_modules() -> list[ModuleType]:
    """But for `__main__`, which travels by value anyway."""
    files = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
    there = [m for m in files if sys.modules.get(m.__name__) is m and m.__name__ != "__main__"]
    return [module for module in there if is_own_module(module.__name__)]


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    """Let what these modules define travel whole, and not as a name to import there."""
    before = set(cloudpickle.list_registry_pickle_by_value())
    new = [module for module in modules if module.__name__ not in before]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.CloudPickler):  # pyright: ignore[reportPrivateImportUsage]
    """Classes of Equinox are told their fields when they are made anew: they register with JAX at
    once, and would have none."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type(eqx.Module)) or not isinstance(reduced, tuple):
            return reduced
        build, made_of, (namespace, slots), *rest = reduced
        kept = {k: v for k, v in namespace.items() if k not in _MADE and not _is_made(k, v)}
        return (_class, (build, _fields(obj), made_of), (kept, slots), *rest)


def _is_made(name: str, value: Any) -> bool:
    """Whether it is the `__init__` that dataclasses write."""
    code = getattr(value, "__code__", None)
    return name == "__init__" and code is not None and code.co_filename == "<string>"


def _fields(cls: type) -> dict[str, dict[str, Any]]:
    """The fields that a class itself declares, as arguments of `dataclasses.field`."""
    own = inspect.get_annotations(cls)
    options = ("default", "default_factory", "init", "repr", "compare", "hash", "kw_only")
    found = {}
    for field in dataclasses.fields(cls):
        if field.name in own:
            given = {name: getattr(field, name) for name in options}
            given = {name: v for name, v in given.items() if v is not dataclasses.MISSING}
            found[field.name] = {**given, "metadata": dict(field.metadata)}
    return found


def _class(
    build: Callable[..., type], fields: dict[str, dict[str, Any]], made_of: tuple[Any, ...]
) -> type:
    meta, name, bases, namespace, *rest = made_of
    declared = {name: dataclasses.field(**options) for name, options in fields.items()}
    namespace = {**namespace, "__annotations__": dict.fromkeys(fields, Any), **declared}
    return build(meta, name, bases, namespace, *rest)
