"""What describes actions, as one array: tables, names, hashed dictionaries; and their scale."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import checks

LARGEST = 1e18  # its square, which the scale needs, still fits a 32-bit float


def precision() -> np.dtype:
    """That of JAX's arrays, `jnp.result_type(float)`, without its cost in every call."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    return np.dtype(np.float64 if x64 else np.float32)


class Scale(NamedTuple):
    """The size of every feature: the root mean square of the non-zero values learned from.

    Features are divided by it and never shifted, so a linear model stays the same linear model in
    other units; zero stays zero, and an indicator (0 or 1) is left exactly as it is. A choice
    uses the scale as of the last outcome learned; learning first takes the chosen action's
    features into the scale, then uses that. It is thus a function of the learned outcomes in
    their order, like everything else in the state.
    """

    seen: Array
    mean_square: Array

    @classmethod
    def init(cls, width: int) -> "Scale":
        return cls(jnp.zeros(width), jnp.zeros(width))

    def see(self, features: Array) -> "Scale":
        """Take one action's features (d,) into account, remembering about a million."""
        present = features != 0
        seen = jnp.minimum(self.seen + present, 1e6)
        step = present / jnp.maximum(seen, 1)
        return Scale(seen, self.mean_square + step * (features**2 - self.mean_square))

    def apply(self, features: Array) -> Array:
        """Features (..., d) in units of their usual size; one never seen is left as it is."""
        return features / jnp.sqrt(jnp.where(self.mean_square > 0, self.mean_square, 1.0))


@dataclass(frozen=True)
class Hasher:
    """Descriptions made of text, numbers, lists and dictionaries, hashed into `width` columns.

    An action in its context is described by everything said of it, everything said of the context
    and, with `interactions`, every pair of the two, so that a linear model can learn that what
    is right in one context is wrong in another. Text and truth values count as present or absent,
    numbers with their value. Needs scikit-learn, whose `FeatureHasher` does the hashing.
    """

    width: int = 256
    interactions: bool = True

    def __post_init__(self) -> None:
        checks.size("width", self.width)

    def __call__(self, actions: Sequence[Any], context: Any = None) -> np.ndarray:
        """Features (K, width) of actions in a context."""
        around = [("context", 1.0), *_terms(context, "context")]
        rows = []
        for action in actions:
            terms = list(_terms(action, "action"))
            pairs = product(around[1:] if self.interactions else [], terms)
            rows.append([*around, *terms, *((f"{c}*{a}", x * y) for (c, x), (a, y) in pairs)])
        return _hasher(self.width).transform(rows).toarray()


@lru_cache
def _hasher(width: int) -> Any:
    try:
        from sklearn.feature_extraction import FeatureHasher
    except ImportError as error:
        raise ImportError(
            "describing actions by dictionaries needs scikit-learn: "
            "pip install 'ensemble-sampling[sklearn]'"
        ) from error
    return FeatureHasher(width, input_type="pair")


def _terms(described: Any, where: str) -> Iterator[tuple[str, float]]:
    """(name, value) for everything a description says."""
    if described is None:
        return
    if isinstance(described, np.generic):
        described = described.item()
    if isinstance(described, Mapping):
        for name, value in described.items():
            yield from _terms(value, f"{where}.{name}")
    elif isinstance(described, list | tuple | set | frozenset):
        for item in described:
            yield from _terms(item, where)
    elif isinstance(described, str | bool):
        yield f"{where}={described}", 1.0
    elif isinstance(described, int | float):
        if not abs(described) < LARGEST:
            raise ValueError(f"{where} must be finite and below {LARGEST:g}, got {described}")
        yield where, float(described)
    else:
        raise TypeError(
            f"{where} must be text, a number, a list or a dictionary, got {described!r}"
        )


def read(given: Any, context: Any, hasher: Hasher | None) -> tuple[np.ndarray, list[Any] | None]:
    """(features (K, d), names or None) of actions given as an array, a DataFrame, a mapping from
    names, or, with a hasher, descriptions."""
    rows, names = given, None
    if isinstance(given, np.ndarray):
        pass  # the common case, and what follows takes time
    elif hasattr(given, "to_numpy") and hasattr(given, "columns"):
        names = list(given.index)
        rows = given.to_dict("records") if hasher else given
    elif isinstance(given, Mapping):
        names, rows = list(given), list(given.values())
    elif hasher and isinstance(given, Sequence) and all(isinstance(row, str) for row in given):
        names = list(given)
    if names is not None:
        names = names_of(names)
    if hasher is None:
        if context is not None:
            raise ValueError(
                "context beside the features of actions needs Bandit(..., hasher=es.Hasher()); "
                "or describe every action in its context by one row of numbers"
            )
        return numbers("features", rows, names), names
    if isinstance(rows, str) or not isinstance(rows, Sequence):
        raise TypeError(
            f"with a hasher, actions are a list or a mapping of descriptions, got {given!r}"
        )
    return numbers("features", hasher(rows, context) if rows else [], names), names


def names_of(given: Any) -> list[Any]:
    """The names of actions: each text or a number, no two alike."""
    if isinstance(given, str):
        raise TypeError(f"names of actions must be a list, got {given!r}")
    names = [_name(name) for name in given]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"names of actions must differ, but {twice!r} occurs twice")
    return names


def _name(name: Any) -> Any:
    name = name.item() if isinstance(name, np.generic) else name
    if not isinstance(name, str | int | float | bool):
        raise TypeError(f"an action's name must be text or a number, got {name!r}")
    if isinstance(name, float) and not math.isfinite(name):
        raise ValueError(f"an action's name must be finite where it is a number, got {name!r}")
    return name


def numbers(what: str, given: Any, names: list[Any] | None = None) -> np.ndarray:
    """A table (K, d) of finite numbers in JAX's precision."""
    try:
        if isinstance(given, np.ndarray) and given.dtype == precision():
            table = given
        else:
            with np.errstate(over="ignore"):  # too large a number is reported below
                table = np.asarray(given, dtype=precision())
    except (TypeError, ValueError) as error:
        hint = "; text and dictionaries need Bandit(..., hasher=es.Hasher())"
        raise TypeError(f"{what} must be rows of numbers of one width ({error}){hint}") from error
    if table.ndim != 2:
        raise ValueError(f"{what} must have shape (K, d), one row per action, got {table.shape}")
    if len(table) == 0:
        raise ValueError(f"{what} must describe at least one action, got none")
    if table.size and not -LARGEST < table.min() <= table.max() < LARGEST:  # NaN compares false
        row, column = np.argwhere(~(np.abs(table) < LARGEST))[0]
        where = f"row {row}" if names is None else f"action {names[row]!r}"
        raise ValueError(
            f"{what} must be finite and below {LARGEST:g}, "
            f"got {table[row, column]} in {where}, column {column}"
        )
    return table
