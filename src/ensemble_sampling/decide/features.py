"""What describes actions, as one array of numbers: tables and hashed descriptions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from numbers import Real
from typing import Any

import jax
import numpy as np

from .. import checks

LARGEST = checks.LARGEST_DATUM


def precision() -> np.dtype:
    """That of JAX's arrays, `jnp.result_type(float)`, without its cost in every call."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    return np.dtype(np.float64 if x64 else np.float32)


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
        checks.size("width", self.width, below=2**31)
        checks.flag("interactions", self.interactions)

    @classmethod
    def recorded(cls, description: Any) -> "Hasher | None":
        """That of a folder, as `describe` wrote it."""
        if description is None:
            return None
        return cls(**{name: value for name, value in description.items() if name != "type"})

    def __call__(self, actions: Sequence[Any], context: Any = None) -> np.ndarray:
        """Features (K, width) of actions in a context."""
        if isinstance(actions, str | bytes | Mapping) or not isinstance(actions, Sequence):
            raise TypeError(f"actions must be a list of descriptions, got {actions!r}")
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


def described(given: Any) -> bool:
    """Whether anything in it is a text or a dictionary, which only a hasher turns into numbers."""
    if isinstance(given, str | Mapping):
        return True
    return isinstance(given, list | tuple) and any(described(item) for item in given)


def unmasked(what: str, given: Any) -> Any:
    """What is given, unless some of it is masked: only its owner knows what to put there."""
    rows = (given, *given) if isinstance(given, list | tuple) else (given,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ValueError(f"{what} must not be masked: fill it first, as in values.filled(0.0)")
    return given


def numbers(
    what: str, given: Any, names: Sequence[Any] | None = None, missing: bool = False
) -> np.ndarray:
    """A table (K, d) of finite numbers in JAX's precision, some of them NaN where `missing`."""
    table = given
    if type(given) is not np.ndarray or given.dtype != precision():
        table = _converted(what, given)
    if table.ndim != 2:
        raise ValueError(f"{what} must have shape (K, d), one row per action, got {table.shape}")
    if len(table) == 0:
        raise ValueError(f"{what} must describe at least one action, got none")
    if not np.vdot(table, table) < LARGEST**2 / 2:  # quickly done; only then look at each
        for row, column in np.argwhere(~(np.abs(table) < LARGEST)):  # NaN compares false
            if missing and np.isnan(table[row, column]):
                continue
            where = f"row {row}" if names is None else f"action {names[row]!r}"
            raise ValueError(
                f"{what} must be finite and below {LARGEST:g}, "
                f"got {table[row, column]} in {where}, column {column}"
            )
    return table


def _converted(what: str, given: Any) -> np.ndarray:
    """As a plain array, of numbers only: text that looks like one is not."""
    unmasked(what, given)
    try:
        table = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"{what} must be rows of numbers of one width ({error})") from error
    if table.dtype.kind == "O":
        kinds = {type(entry) for entry in table.flat}
    else:
        kinds = {table.dtype.type} if table.size else set()
    wrong = [kind.__name__ for kind in kinds if not issubclass(kind, Real | np.bool_)]
    if wrong:
        raise TypeError(
            f"{what} must be rows of numbers of one width, got {', '.join(sorted(wrong))}; "
            "text and dictionaries need Bandit(..., hasher=es.Hasher())"
        )
    with np.errstate(over="ignore"):  # too large a number is reported by the caller
        return table.astype(precision())
