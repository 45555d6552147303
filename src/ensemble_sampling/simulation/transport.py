"""Work on its way to another process of the same cluster, users' own classes and all.

This is transport between processes that trust each other, by Ray's own cloudpickle: nothing of it
is kept in a file. Imported only where Ray is.
"""

import dataclasses
import inspect
import sys
import threading
from contextlib import ExitStack
from io import BytesIO
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
from ray import cloudpickle

from ..code import is_own_module
from .run import Work

_ONE_AT_A_TIME = threading.Lock()


def pack(work: Work) -> bytes:
    """With what the user wrote in it as text of its own: workers need not have the user's files."""
    file = BytesIO()
    with _ONE_AT_A_TIME, ExitStack() as afterwards:
        for module in _own_modules():
            cloudpickle.register_pickle_by_value(module)
            afterwards.callback(cloudpickle.unregister_pickle_by_value, module)
        _Pickler(file).dump((work, len(jax.tree.leaves(work.points))))
    return file.getvalue()


def unpack(packed: Any) -> Work:
    work, count = cloudpickle.loads(packed)
    found = len(jax.tree.leaves(work.points))
    if found != count:  # a class that lost its fields on the way
        raise ValueError(
            "an agent or environment did not come through to the worker whole: there are "
            f"{found} settings there, and {count} here; define its class in a module that is "
            "installed on the workers"
        )
    return work


def _own_modules() -> list[ModuleType]:
    """The user's, but for `__main__` and those that travel whole already."""
    known = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    files = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
    there = [m for m in files if sys.modules.get(m.__name__) is m and m.__name__ not in known]
    return [module for module in there if is_own_module(module.__name__)]


class _Pickler(cloudpickle.CloudPickler):  # pyright: ignore[reportPrivateImportUsage]
    """Classes of Equinox are told their fields when they are made anew: they register with JAX at
    once, and would have none."""

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"  # by its name, for there is only one
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type(eqx.Module)) or not isinstance(reduced, tuple):
            return reduced
        build, (meta, name, bases, namespace, *more), *rest = reduced
        own = inspect.get_annotations(obj)
        fields = {f.name: f for f in dataclasses.fields(obj) if f.name in own}
        namespace = {**namespace, "__annotations__": dict.fromkeys(fields, Any), **fields}
        return (build, (meta, name, bases, namespace, *more), *rest)
