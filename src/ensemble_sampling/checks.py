"""Errors for the person who made the mistake: what was given, and what is accepted.

Traced values pass unchecked: their numbers are not known yet, and their shapes were checked
where they entered.
"""

from typing import Any

import jax
import numpy as np

from .core import Key


def _known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer)


def size(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def scalar(
    name: str, value: Any, above: float | None = None, low: float = -np.inf, high: float = np.inf
) -> Any:
    """A finite real number, in [low, high] and above `above`."""
    if not _known(value):
        return value
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "fiu" or isinstance(value, bool):
        raise TypeError(f"{name} must be a single real number, got {value!r}")
    number = float(array)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {number:g}")
    if not low <= number <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {number:g}")
    return number


def positive(name: str, value: Any) -> Any:
    """A finite number greater than zero (a standard deviation, say)."""
    return scalar(name, value, above=0.0)


def array(name: str, value: Any, shape: tuple[int | None, ...]) -> Any:
    """A finite real array of the given shape; None in `shape` fits any size of at least 1."""
    if _known(value):
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be an array of real numbers, got {value!r}") from error
        if not np.all(np.isfinite(value)):
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise ValueError(f"{name} must be finite, got {value[at]} at {list(at)}")
    fits = len(value.shape) == len(shape) and all(
        have == want or (want is None and have >= 1)
        for have, want in zip(value.shape, shape, strict=False)
    )
    if not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(value.shape)}")
    return value


def covariance_root(name: str, value: Any, dim: int) -> Any:
    """The lower Cholesky factor of a symmetric positive definite matrix."""
    value = array(name, value, (dim, dim))
    if not _known(value):
        return jax.numpy.linalg.cholesky(value)
    scale = np.abs(value).max(initial=0.0)
    gap = np.abs(value - value.T).max(initial=0.0)
    if gap > 1e-6 * scale:
        raise ValueError(f"{name} must be symmetric, but entries differ by up to {gap:g}")
    try:
        return np.linalg.cholesky((value + value.T) / 2)
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh((value + value.T) / 2)[0]
        raise ValueError(
            f"{name} must be positive definite, but its smallest eigenvalue is {least:g}"
        ) from None


def features(value: Any, width: int, rows: int | None = None) -> None:
    """Action features (K, width) in whatever array type they come."""
    shape = tuple(np.shape(value))
    if len(shape) != 2 or shape[0] < 1 or shape[1] != width or rows not in (None, shape[0]):
        wanted = f"({'K >= 1' if rows is None else rows}, {width})"
        raise ValueError(f"action features must have shape {wanted}, got {shape}")


def outcome(value: Any) -> Any:
    """An outcome whose numbers, where already known, are finite."""
    if _known(value) and not np.all(np.isfinite(np.asarray(value, dtype=np.float64))):
        raise ValueError(f"an outcome must be finite, got {np.asarray(value)}")
    return value


def key(value: Any) -> Key:
    """A random key, as `jax.random.key(seed)` makes it."""
    if not isinstance(value, jax.Array) or not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise TypeError(f"expected a key made by jax.random.key(seed), got {value!r}")
    return value
