"""Errors for the person who made the mistake: what was given, and what is accepted.

Traced values pass unchecked: their numbers are not known yet, and their shapes were checked
where they entered.
"""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from .core import Key
from .linalg import cholesky


def known(value: Any) -> bool:
    return not isinstance(value, Tracer)


def shown(value: Any) -> str:
    """What was given, for a message: not all of it where it is long."""
    if isinstance(value, int) and value.bit_length() > 1000:  # Python itself refuses to write some
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def size(name: str, value: Any, least: int = 1, below: int = 2**31) -> int:
    """A whole number of at least `least`, and less than `below`: by default, as an array can be
    long. JAX ends the process for some that are longer."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {shown(int(value))}")
    if value >= below:
        raise ValueError(f"{name} must be less than {below}, got {shown(int(value))}")
    return int(value)


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least` that need not be the size of anything in memory."""
    return size(name, value, least, below=2**63)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that passes for it."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def text(name: str, value: Any) -> str:
    """Text that can be written down anywhere."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be text that is not empty, got {shown(value)}")
    if "\0" in value or not encodable(value):
        raise ValueError(
            f"{name} must be text that UTF-8 can encode, without NUL, got {shown(value)}"
        )
    return value


def encodable(value: str) -> bool:
    """Whether text is whole: what `os.fsdecode` makes of bytes that are no text is not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_several(value: Any) -> bool:
    """Whether it can be gone through. Text and an array of no dimension only look like it."""
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str | bytes)
        and getattr(value, "shape", None) != ()
    )


def scalar(
    name: str, value: Any, above: float | None = None, low: float = -np.inf, high: float = np.inf
) -> Any:
    """A finite real number, in [low, high] and above `above`."""
    if isinstance(value, Tracer):
        return value
    array = _read(name, value, "a single real number")
    if array.shape != () or array.dtype.kind not in "fiu" or np.ma.isMaskedArray(value):
        raise TypeError(f"{name} must be a single real number, got {shown(value)}")
    number = float(array)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {number:g}")
    if not low <= number <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {number:g}")
    return number


LARGEST = 1e12
"""Settings lie between its inverse and it: squares and their ratios then fit float32's 1e38."""


def positive(name: str, value: Any) -> Any:
    """A number greater than zero (a standard deviation, say), and neither too small nor large."""
    return scalar(name, value, above=0.0, low=1 / LARGEST, high=LARGEST)


def bounded(name: str, value: Any) -> Any:
    """A number of either sign that is not too large."""
    return scalar(name, value, low=-LARGEST, high=LARGEST)


def forgetting(value: Any) -> Any:
    """The share of what is known that is kept from an outcome to the next, or None."""
    return value if value is None else scalar("forgetting", value, above=0.0, high=1.0)


LARGEST_DATUM = 1e15
"""Outcomes and features lie below it: a sum of their squares then fits float32, too."""


def _read(name: str, value: Any, what: str) -> np.ndarray:
    """As an array: also of whole numbers that NumPy has no type for."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise TypeError(f"{name} must be {what}, got {shown(value)}") from error
    whole = (one for one in array.flat if isinstance(one, int)) if array.dtype == object else ()
    if not any(one.bit_length() > 63 for one in whole):
        return array
    try:
        return array.astype(np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must be {what}, and finite, got {shown(value)}") from error


def _numbers(name: str, value: Any, what: str = "an array of real numbers") -> np.ndarray:
    """Real numbers in double precision, and nothing that would be read as such by accident."""
    numbers = _read(name, value, what)
    real = numbers.dtype.kind in "fiub" or jax.numpy.issubdtype(numbers.dtype, np.floating)
    if not real or np.ma.is_masked(value):
        raise TypeError(f"{name} must be {what}, got {shown(value)}")
    return numbers.astype(np.float64)


def array(
    name: str, value: Any, shape: tuple[int | None, ...], largest: float = LARGEST_DATUM
) -> Any:
    """A finite real array of the given shape; None in `shape` fits any size of at least 1."""
    if not isinstance(value, Tracer):
        value = _numbers(name, value)
        if not np.all(np.abs(value) < largest):  # NaN compares false
            at = tuple(int(i) for i in np.argwhere(~(np.abs(value) < largest))[0])
            finite = "" if not np.isfinite(value[at]) else f" and below {largest:g}"
            raise ValueError(f"{name} must be finite{finite}, got {value[at]} at {list(at)}")
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
    value = array(name, value, (dim, dim), largest=10 * LARGEST**2)
    if not known(value):
        return cholesky(value)
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
    for eigenvalue in eigenvalues[[0, -1]]:
        positive(f"a standard deviation in {name}", np.sqrt(eigenvalue))
    return np.linalg.cholesky((value + value.T) / 2)


def gaussian_prior(dim: int, mean: Any, std: float | None, cov: Any) -> tuple[Any, Any]:
    """(mean, root) of N(mean, cov), from a standard deviation (1 by default) or a covariance."""
    if std is not None and cov is not None:
        raise ValueError("give prior_std or prior_cov, not both")
    if np.ndim(mean) == 0:
        mean = scalar("prior_mean", mean) * np.ones(dim)
    mean = array("prior_mean", mean, (dim,))
    if not isinstance(mean, Tracer):
        bounded("prior_mean", mean[np.abs(mean).argmax()])
    if cov is not None:
        return mean, covariance_root("prior_cov", cov, dim)
    return mean, positive("prior_std", 1.0 if std is None else std) * np.eye(dim)


def features(value: Any, width: int, rows: int | None = None) -> None:
    """Action features (K, width) in whatever array type they come."""
    shape = tuple(np.shape(value))
    if len(shape) != 2 or shape[0] < 1 or shape[1] != width or rows not in (None, shape[0]):
        wanted = f"({'K >= 1' if rows is None else rows}, {width})"
        raise ValueError(f"action features must have shape {wanted}, got {shape}")


def offer(value: Any) -> Any:
    """Action features (K, d) as an agent takes them: an array, its numbers finite where known."""
    shape = _numbers("action features", value).shape if known(value) else value.shape
    if len(shape) != 2:
        raise ValueError(f"action features must have shape (K, d), got {tuple(shape)}")
    array("action features", value, (None, shape[1]))
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # a mask that hides nothing would stop JAX
    return value if isinstance(value, jax.Array) else jax.numpy.asarray(value, float)


def pair(value: Any) -> tuple[Any, Any]:
    """Of a decision's id and its outcome."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"outcomes must be pairs (id, outcome), got {shown(value)}")
    return value[0], value[1]


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
    if not known(value):
        return
    position = np.asarray(value)
    if position.shape != () or position.dtype.kind not in "iu":
        raise TypeError(f"the action's index must be a whole number, got {shown(value)}")
    if not 0 <= int(position) < rows:
        raise ValueError(f"the action's index must be between 0 and {rows - 1}, got {position}")


def action(value: Any) -> Any:
    """The chosen action, as `Action(index, features)`."""
    if not hasattr(value, "features") or not hasattr(value, "index"):
        raise TypeError(f"an action must be Action(index, features), got {shown(value)}")
    return value


def outcome(value: Any) -> Any:
    """An outcome whose numbers, where already known, are finite."""
    if not known(value):
        return value
    numbers = _numbers("an outcome", value, "a number or numbers")
    if not np.all(np.isfinite(numbers)):
        raise ValueError(f"an outcome must be finite, got {value}")
    if not np.all(np.abs(numbers) < LARGEST_DATUM):
        raise ValueError(
            f"an outcome must be below {LARGEST_DATUM:g}, got {value}: give it in a larger unit"
        )
    return jax.numpy.asarray(value, float) if isinstance(value, list | tuple) else value


def part(name: str, value: Any, *methods: str) -> Any:
    """Something with the given methods; catches an agent where a learner belongs, and the like."""
    if isinstance(value, type):
        raise TypeError(f"{name} must be an object: write {value.__name__}(...), not the class")
    kind = type(value)  # looked at first: an Equinox module binds a method anew for every look
    missing = [m for m in methods if not hasattr(kind, m) and not hasattr(value, m)]
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
        raise TypeError(f"expected a key made by jax.random.key(seed), got {shown(value)}")
    return value
