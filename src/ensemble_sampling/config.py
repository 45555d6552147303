"""A configuration as plain data: what results, checkpoints and error messages say of it."""

import dataclasses
import functools
import hashlib
import inspect
import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .code import code_of
from .core import fact


def as_array(setting: Any) -> jax.Array:
    """A number among the settings, strongly typed: 1.0 and np.float64(1.0) share a compilation."""
    dtype = jnp.result_type(setting)
    if isinstance(setting, jax.Array):
        return jnp.asarray(setting, dtype)
    return jax.device_put(np.array(setting, dtype))  # by JAX, it would be compiled


def describe(value: Any) -> Any:
    """`value` as JSON-ready data that is the same in every process and decides every number.

    Dataclasses become {"type": ..., fields}; functions their qualified names and, for a closure,
    what it holds; large arrays a digest of their contents. With what a user wrote goes a digest of
    its code, since an edited function of the same name is another one.
    """
    try:
        return _describe(value, ())
    except RecursionError as error:
        kind = type(value).__name__
        raise ValueError(f"a {kind} that contains itself cannot be described") from error


def _describe(value: Any, around: tuple[int, ...]) -> Any:
    """`around`: the functions this is part of, for those that refer to themselves."""
    if value is None or isinstance(value, bool | int | str | float):
        return value
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return _array(np.asarray(value))
    inside = functools.partial(_describe, around=(*around, id(value)))
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None and isinstance(value, eqx.Module):  # a compiled function
        return {"type": _name(type(value)), "function": inside(wrapped)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        recorded = [f.name for f in dataclasses.fields(value) if _is_recorded(f, value)]
        fields = {name: inside(getattr(value, name)) for name in recorded}
        return {"type": _name(type(value)), **_code(type(value)), **fields}
    if isinstance(value, dict):
        return {str(k): inside(v) for k, v in value.items()}
    if isinstance(value, functools.partial):
        parts = {"partial": value.func, "args": value.args, "keywords": value.keywords}
        return {name: inside(part) for name, part in parts.items()}
    if isinstance(value, list | tuple):
        return [inside(v) for v in value]
    if isinstance(value, types.ModuleType):
        return value.__name__
    if callable(value):
        return _name(value) if id(value) in around else _function(value, inside)
    raise TypeError(f"cannot describe {value!r} as part of a configuration")


LATER: Any = {"later": True}
"""Marks a field that came later and whose default is what held before: records need not say it."""


def _is_recorded(field: Any, part: Any) -> bool:
    later = field.metadata.get("later", False)
    return not later or getattr(part, field.name) != field.default


def _array(array: np.ndarray) -> Any:
    if array.size <= 16:
        return array.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return {"array": list(array.shape), "dtype": str(array.dtype), "sha256": digest}


def _function(value: Any, inside: Any) -> Any:
    """A function, class, bound method, or an object that can be called."""
    if not hasattr(value, "__qualname__") and not hasattr(value, "__name__"):
        held = getattr(value, "__dict__", {})
        return {"type": _name(type(value)), **_code(type(value)), **inside(held)}
    parts = _code(value)
    if held := [_content(cell) for cell in getattr(value, "__closure__", None) or ()]:
        parts["closure"] = inside(held)
    if isinstance(value, types.MethodType) and not isinstance(value.__self__, type):
        parts["self"] = inside(value.__self__)
    given = (getattr(value, "__defaults__", None), getattr(value, "__kwdefaults__", None))
    if "code" in parts and any(given):  # the text `x=x` does not say what x was
        parts["defaults"] = inside(given)
    return {"function": _name(value), **parts} if parts else _name(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a branch that was not taken would have filled it
        return None


def _code(thing: Any) -> dict[str, Any]:
    digest = code_of(thing)
    return {} if digest is None else {"code": digest}


def _name(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or thing.__name__
    return _public(f"{getattr(thing, '__module__', type(thing).__module__)}.{name}")


def _public(name: str) -> str:
    """A name of ours without the file it happens to live in: files are moved, records are not."""
    return re.sub(r"^ensemble_sampling\.(?:[a-z0-9_]+\.)+", "ensemble_sampling.", name)


def fingerprint(description: Any) -> str:
    """A digest of a description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two descriptions differ, one line each: `path: old -> new`.

    A record from before code was recorded says nothing of it, and does not differ in it.
    """
    if isinstance(old, str) and isinstance(new, dict) and "function" in new:
        old = {"function": old}
    if isinstance(old, dict) and isinstance(new, dict):
        unsaid = {"code", "defaults", "self"} if "code" in new and "code" not in old else set()
        lines = []
        for name in sorted({*old, *new} - (unsaid - {*old})):
            path = f"{where}.{name}" if where else name
            lines += differences(old.get(name), new.get(name), path)
        return lines
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, str) and isinstance(new, str) and _public(old) == _public(new):
        return []
    return [] if old == new else [f"{where or 'value'}: {old!r} -> {new!r}"]


@functools.lru_cache(maxsize=256)
def _parameters(maker: Any) -> Any:
    """Those of a class or function, which take long to find out."""
    return inspect.signature(maker).parameters


def arguments(part: Any, maker: Any = None) -> dict[str, Any]:
    """The arguments with which its class (or `maker`) would make `part` again, as it knows them."""
    names = _parameters(maker or type(part))
    found = {name: getattr(part, name) for name in names if hasattr(part, name)}
    # Two are kept in another form.
    held = getattr(part, "__dict__", {})
    if "draw_actions" in held and part.actions is None:
        found["actions"] = held["draw_actions"]
    root: Any = held.get("prior_root")
    if np.ndim(root) == 2 and not isinstance(root, Tracer):
        root = np.asarray(root)
        even = np.array_equal(root, root[0, 0] * np.eye(len(root)))
        found["prior_std"] = root[0, 0] if even else None
        found["prior_cov"] = None if even else root @ root.T
    return {name: found[name] for name in names if name in found}


MEANT_BY_NONE = {
    "prior_std": "1",
    "perturbation": "Gaussian()",
    "loss": "SquaredError()",
    "history": "Window()",
}
"""What `None`, the default of these arguments, stands for."""


def _meant_by_none(part: Any, name: str) -> str | None:
    # Where there is no prior covariance, as of a network, `None` is a prior of its own.
    return MEANT_BY_NONE.get(name) if name != "prior_std" or hasattr(part, "prior_root") else None


def short(self: Any, maker: Any = None) -> str:
    """A part as one would write it, without what is default: `Linear(dim=10)`.

    maker: the function that makes it, where that is not its class.
    """
    maker = maker or type(self)
    given, words = arguments(self, maker), []
    for name, parameter in _parameters(maker).items():
        value = given.get(name, parameter.default)
        text, default = as_text(value), as_text(parameter.default)
        if text not in (default, _meant_by_none(self, name) if default == "None" else default):
            bare = not words and dataclasses.is_dataclass(value)
            words.append(text if bare else f"{name}={text}")
    return f"{maker.__name__}({', '.join(words)})"


def as_text(value: Any) -> str:
    """One setting in a few letters."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        if isinstance(value, Tracer):
            return "traced"
        array = np.asarray(value)
        if array.ndim and (array.size == 0 or (array != array.flat[0]).any()):
            return str(array.tolist()) if array.size <= 16 else f"array{array.shape}"
        value = array.flat[0].item()  # a setting that is the same everywhere is one number
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, functools.partial):
        keywords = [f"{name}={as_text(given)}" for name, given in value.keywords.items()]
        return f"partial({', '.join([as_text(value.func), *map(as_text, value.args), *keywords])})"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(as_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if type(value).__name__.startswith("_") and hasattr(value, "function"):
            return as_text(value.function)  # pyright: ignore[reportAttributeAccessIssue]
        return repr(value) if "__repr__" in vars(type(value)) else short(value)
    return getattr(value, "__name__", None) or repr(value)


def labels(agents: Sequence[Any]) -> list[str]:
    """A label for each agent that no other has: where they coincide, with what sets them apart.

    "20 models, prior_std 0.5" beside "20 models, prior_std 1"; equal agents are numbered.
    """
    return distinct_labels([fact(agent, "label") for agent in agents], [*map(settings, agents)])


def distinct_labels(labels: Sequence[str], each: Sequence[Mapping[str, str]]) -> list[str]:
    """The labels, each with those of its `settings` in which it differs from a namesake."""
    found = []
    for label, mine in zip(labels, each, strict=True):
        namesakes = [s for other, s in zip(labels, each, strict=True) if other == label]
        found.append(", ".join([label, *_apart(mine, namesakes)]))
    return [
        label if found.count(label) == 1 else f"{label} ({found[: i + 1].count(label)})"
        for i, label in enumerate(found)
    ]


def _apart(mine: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings in which one differs from any of the others."""
    paths = [path for path in mine if any(path in o and o[path] != mine[path] for o in others)]
    words = []
    for path in paths:
        *_, last = parts = path.split(".")
        ambiguous = sum(other.split(".")[-1] == last for other in paths) > 1
        name, text = ".".join(parts[-2:]) if ambiguous else last, mine[path]
        words.append(text[:-2] if text.endswith("()") else f"{name} {text}")
    return words


def settings(part: Any, path: str = "") -> dict[str, str]:
    """Every setting of a part and of its parts, by where it is; a part itself by its type."""
    if not dataclasses.is_dataclass(part) or type(part).__name__.startswith("_"):
        return {path: as_text(part)}
    found = {path: f"{type(part).__name__}()"}
    for name, given in arguments(part).items():
        inside = f"{path}.{name}" if path else name
        is_part = dataclasses.is_dataclass(given)
        found |= settings(given, inside) if is_part else {inside: as_text(given)}
    return found
