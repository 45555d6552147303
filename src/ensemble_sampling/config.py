"""A configuration as plain data: what results, checkpoints and error messages say of it."""

import dataclasses
import functools
import hashlib
import json
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def as_array(setting: Any) -> jax.Array:
    """A number among the settings, strongly typed: 1.0 and np.float64(1.0) share a compilation."""
    return jnp.asarray(setting, jnp.result_type(setting))


def describe(value: Any) -> Any:
    """`value` as JSON-ready data that is the same in every process and decides every number.

    Dataclasses become {"type": ..., fields}; functions their qualified names
    and, for a closure, what it holds; large arrays a
    digest of their contents.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value
    if isinstance(value, np.generic) or (
        isinstance(value, np.ndarray | jax.Array) and value.ndim == 0
    ):
        return np.asarray(value).item()
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        if array.size <= 16:
            return array.tolist()
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return {"array": list(array.shape), "dtype": str(array.dtype), "sha256": digest}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": _name(type(value)), **fields}
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, functools.partial):
        return {
            "partial": describe(value.func),
            "args": describe(value.args),
            "keywords": describe(value.keywords),
        }
    if isinstance(value, list | tuple):
        return [describe(v) for v in value]
    if isinstance(value, types.ModuleType):
        return value.__name__
    if callable(value):
        inner = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return {"function": _name(value), "closure": describe(inner)} if inner else _name(value)
    raise TypeError(f"cannot describe {value!r} as part of a configuration")


def _name(thing: Any) -> str:
    return _public(f"{thing.__module__}.{thing.__qualname__}")


def _public(name: str) -> str:
    """A name of ours without the file it happens to live in: files are moved, records are not."""
    return re.sub(r"^ensemble_sampling\.(?:[a-z0-9_]+\.)+", "ensemble_sampling.", name)


def fingerprint(description: Any) -> str:
    """A digest of a description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two descriptions differ, one line each: `path: old -> new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for name in sorted({*old, *new}):
            path = f"{where}.{name}" if where else name
            lines += differences(old.get(name), new.get(name), path)
        return lines
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, str) and isinstance(new, str) and _public(old) == _public(new):
        return []
    return [] if old == new else [f"{where or 'value'}: {old!r} -> {new!r}"]
