"""Errors for the person who made the mistake: what was given, and what is accepted.

Traced values pass unchecked: their numbers are not known yet, and their shapes were checked
where they entered.
"""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .core import Key


def known(value: Any) -> bool:
    return not isinstance(value, Tracer)


def size(name: str, value: Any, least: int = 1, below: int | None = None) -> int:
    """A whole number of at least `least`, and less than `below`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if below is not None and value >= below:
        raise ValueError(f"{name} must be less than {below}, got {value}")
    return int(value)


def scalar(
    name: str, value: Any, above: float | None = None, low: float = -np.inf, high: float = np.inf
) -> Any:
    """A finite real number, in [low, high] and above `above`."""
    if not known(value):
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
    if known(value):
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
        wanted += "," * (len(shape) == 1)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(value.shape)}")
    return value


def covariance_root(name: str, value: Any, dim: int) -> Any:
    """The lower Cholesky factor of a symmetric positive definite matrix."""
    value = array(name, value, (dim, dim))
    if not known(value):
        return jax.numpy.linalg.cholesky(value)
    scale = np.abs(value).max(initial=0.0)
    gap = np.abs(value - value.T).max(initial=0.0)
    if gap > 1e-6 * scale:
        raise ValueError(f"{name} must be symmetric, but entries differ by up to {gap:g}")
    eigenvalues = np.linalg.eigvalsh((value + value.T) / 2)
    # A singular matrix passes Cholesky half of the time, by rounding.
    if eigenvalues[0] <= 10 * dim * np.finfo(np.float64).eps * eigenvalues[-1]:
        raise ValueError(
            f"{name} must be positive definite, but its smallest eigenvalue is {eigenvalues[0]:g} "
            f"beside a largest of {eigenvalues[-1]:g}"
        )
    return np.linalg.cholesky((value + value.T) / 2)


def gaussian_prior(dim: int, mean: Any, std: float | None, cov: Any) -> tuple[Any, Any]:
    """(mean, root) of N(mean, cov), from a standard deviation (1 by default) or a covariance."""
    if std is not None and cov is not None:
        raise ValueError("give prior_std or prior_cov, not both")
    if np.ndim(mean) == 0:
        mean = scalar("prior_mean", mean) * np.ones(dim)
    mean = array("prior_mean", mean, (dim,))
    if cov is not None:
        return mean, covariance_root("prior_cov", cov, dim)
    return mean, positive("prior_std", 1.0 if std is None else std) * np.eye(dim)


def features(value: Any, width: int, rows: int | None = None) -> None:
    """Action features (K, width) in whatever array type they come."""
    shape = tuple(np.shape(value))
    if len(shape) != 2 or shape[0] < 1 or shape[1] != width or rows not in (None, shape[0]):
        wanted = f"({'K >= 1' if rows is None else rows}, {width})"
        raise ValueError(f"action features must have shape {wanted}, got {shape}")


def available(value: Any, rows: int) -> Any:
    """Which of `rows` actions may be chosen, one of them at least; None: all."""
    if value is None:
        return None
    if tuple(np.shape(value)) != (rows,):
        raise ValueError(f"available must have shape ({rows},), got {tuple(np.shape(value))}")
    if not known(value):
        return value
    value = np.asarray(value)
    if value.dtype != bool:
        raise TypeError(f"available must be true or false for every action, got {value.tolist()}")
    if not value.any():
        raise ValueError(f"available must leave at least one action, got {value.tolist()}")
    return value


def index(value: Any, rows: int) -> None:
    """The position of one of `rows` actions; JAX would drop or clamp any other silently."""
    if known(value) and not 0 <= int(value) < rows:
        raise ValueError(f"the action's index must be between 0 and {rows - 1}, got {int(value)}")


def outcome(value: Any) -> Any:
    """An outcome whose numbers, where already known, are finite."""
    if not known(value):
        return value
    try:
        numbers = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"an outcome must be a number or numbers, got {value!r}") from error
    if numbers.dtype.kind not in "fiub":
        raise TypeError(f"an outcome must be a number or numbers, got {value!r}")
    if not np.all(np.isfinite(numbers)):
        raise ValueError(f"an outcome must be finite, got {value}")
    return value


def part(name: str, value: Any, *methods: str) -> Any:
    """Something with the given methods; catches an agent where a learner belongs, and the like."""
    if isinstance(value, type):
        raise TypeError(f"{name} must be an object: write {value.__name__}(...), not the class")
    missing = [method for method in methods if not hasattr(value, method)]
    if missing:
        raise TypeError(
            f"{name} must have the methods {', '.join(methods)}; "
            f"{type(value).__name__} has no {', '.join(missing)}"
        )
    return value


def key(value: Any) -> Key:
    """A random key, as `jax.random.key(seed)` makes it."""
    if not isinstance(value, jax.Array) or not jax.numpy.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        raise TypeError(f"expected a key made by jax.random.key(seed), got {value!r}")
    return value
