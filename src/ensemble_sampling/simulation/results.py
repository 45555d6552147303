"""What a simulation found: regret per period over realizations, in numbers and in words."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..files import Damaged, write_atomically
from ..tables import Table, as_frame, html_table, series

Window = tuple[int, int]
"""The periods first, ..., last - 1, counted from 0."""


def last_tenth(periods: int) -> Window:
    """What is called final: single periods are all noise."""
    return periods - max(1, periods // 10), periods


def checked_window(window: Any, periods: int) -> Window:
    """(first, last) with at least one of the periods between."""
    if not isinstance(window, Sequence) or len(window) != 2 or isinstance(window, str):
        raise TypeError(f"a window must be (first, last) in periods, got {window!r}")
    first = checks.size("a window's first period", window[0], least=0)
    last = checks.size("a window's last period", window[1], least=first + 1, below=periods + 1)
    return first, last


class Estimate(NamedTuple):
    """Means over realizations, and their standard errors."""

    mean: np.ndarray
    stderr: np.ndarray

    def __repr__(self) -> str:
        about = (f"{name}={series(np.ravel(part))}" for name, part in self._asdict().items())
        return f"Estimate({', '.join(about)})"

    def _repr_html_(self) -> str:
        return Table(mean=np.ravel(self.mean), stderr=np.ravel(self.stderr))._repr_html_()


@dataclass(frozen=True, repr=False)
class Result:
    """Regret per period over realizations, and where asked for, of every realization.

    cumulative_stderr: of the regret summed from the first period on, see `cumulative`
    settings: what was simulated in a few words each, by which plots tell results apart
    """

    label: str
    mean: np.ndarray
    stderr: np.ndarray
    realizations: int
    diverged: int
    seconds: float
    regret: np.ndarray | None = None
    cumulative_stderr: np.ndarray | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def periods(self) -> int:
        return len(self.mean)

    @property
    def cumulative(self) -> Estimate:
        """The regret summed from the first period on, with its standard error."""
        error = self.cumulative_stderr
        unknown = np.full(self.mean.shape, np.nan)
        return Estimate(np.cumsum(self.mean, axis=0), unknown if error is None else error)

    @property
    def final(self) -> Estimate:
        """Regret per period over the last tenth of the periods.

        Its standard error is exact where the regret of every realization was kept; else the average
        of the periods' errors stands in, which is never less.
        """
        first, last = last_tenth(self.periods)
        if self.regret is not None and np.shape(self.regret)[1] == self.periods:
            return Estimate(
                *map(np.asarray, mean_and_error(self.regret[:, first:last].mean(axis=1)))
            )
        return Estimate(self.mean[first:last].mean(axis=0), self.stderr[first:last].mean(axis=0))

    def _in_words(self) -> tuple[str, str]:
        """The regret at the end and in all, where it is one number per period."""
        if self.mean.ndim > 1:
            return "", ""
        whole = self.cumulative
        return pm(*self.final), pm(whole.mean[-1], whole.stderr[-1])

    def __repr__(self) -> str:
        lost = f", {self.diverged} diverged" if self.diverged else ""
        final, whole = self._in_words()
        regret = f"final regret {final}, cumulative {whole}"
        if self.mean.ndim > 1:
            regret = f"{self.mean[0].size} measures per period"
        return (
            f"Result({self.label!r}, {regret}, {self.periods:,} periods, "
            f"{self.realizations:,} realizations{lost})"
        )

    def _repr_html_(self) -> str:
        head = ["", "final regret", "cumulative", "periods", "realizations"]
        sizes = f"{self.periods:,}", f"{self.realizations:,}"
        return html_table(head, [[self.label, *self._in_words(), *sizes]])

    def plot(self, **options: Any) -> Any:
        """A figure of the regret per period with its 95% band; options are those of `es.plot`."""
        from .plot import plot

        return plot([self], **options)

    def frame(self) -> Any:
        """A table, one row per period: a data frame, or else a `Table`."""
        if self.mean.ndim > 1:
            raise ValueError(f"a frame has one number per period, this result {self.mean[0].shape}")
        whole = self.cumulative
        return as_frame(
            {
                "period": np.arange(1, self.periods + 1),
                "regret": self.mean,
                "stderr": self.stderr,
                "cumulative": whole.mean,
                "cumulative_stderr": whole.stderr,
            }
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to one file, all of it or nothing, which `es.simulation.load_result` reads;
        returns the path."""
        path = Path(path)
        about = {name: getattr(self, name) for name in WORDS}
        text = json.dumps({"format": FORMAT, **about, "settings": dict(self.settings)})
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ARRAYS}
        arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = _digest(text, arrays)
        write_atomically(path, lambda file: np.savez(file, about=text, sha256=digest, **arrays))
        return path


FORMAT = 1
ARRAYS = ("mean", "stderr", "regret", "cumulative_stderr")
WORDS = ("label", "realizations", "diverged", "seconds", "settings")


def load_result(path: str | os.PathLike[str]) -> Result:
    """What `Result.save` wrote; a file that is not that any more is an error that says so."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no result at {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        text, digest = str(found.pop("about")), str(found.pop("sha256"))
        about = json.loads(text)
    except Exception as error:  # a damaged archive fails in too many ways to list
        raise Damaged(f"{path} is damaged: it cannot be read as a result ({error!r})") from error
    if digest != _digest(text, found):
        raise Damaged(f"{path} is damaged: its contents do not match its digest")
    if about.get("format") != FORMAT:
        raise ValueError(f"{path} has format {about.get('format')}, this version reads {FORMAT}")
    return Result(**{name: about[name] for name in WORDS}, **found)


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def averages(regret: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Regret of every realization, averaged over each window: (realizations, windows)."""
    means = [regret[:, first:last].mean(axis=1, dtype=np.float64) for first, last in windows]
    return np.stack(means, axis=1)


def pm(mean: Any, stderr: Any) -> str:
    """`1.234 ± 0.005`: a mean and its standard error, to the digits that mean something."""
    mean, stderr = float(mean), float(stderr)
    if not np.isfinite(stderr):
        return f"{mean:.4g}"
    digits = 3 if stderr == 0 else max(0, 1 - int(np.floor(np.log10(stderr))))
    return f"{mean:.{min(digits, 12)}f} ± {stderr:.{min(digits, 12)}f}"


def numbers(values: Any) -> Any:
    """Arrays as nested lists, to the seven digits that float32 arithmetic can mean."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64)]


def mean_and_error(values: Any) -> tuple[float, float]:
    """The mean over realizations, and its standard error."""
    values = np.asarray(values, dtype=np.float64)
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
