"""What others published beside our own: drawn under the curves, and a table of differences."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .page import plain, table, with_error
from .panels import Data, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Published = Mapping[str, Mapping[Window, float]]
"""Label -> window of periods -> the regret that somebody else found there."""

LOOK: Any = {"color": "0.5", "lw": 0.8, "mfc": "none", "mec": "0.5", "mew": 0.9, "zorder": 1.5}


def draw(ax: "Axes", theirs: Mapping[Window, float], mark: str) -> None:
    """A thin grey line through their values, each in the middle of its window."""
    if theirs:
        windows = sorted(theirs)
        joined = all(a[1] == b[0] for a, b in pairwise(windows))
        middles = [(first + last) / 2 for first, last in windows]
        values = [theirs[window] for window in windows]
        line = "-" if joined and len(windows) > 1 else ""
        ax.plot(middles, values, marker=mark, ms=5.5, ls=line, **LOOK)


def legend(ax: "Axes") -> None:
    ax.plot([], [], marker="o", ms=5.5, ls="-", label="published", **LOOK)


def tables(
    name: str,
    data: Data,
    published: Published,
    ours: Callable[[int, Window], tuple[float, float]],
    windows: Sequence[Window],
    realizations: int | None,
) -> list[str]:
    """Ours minus theirs in the windows that are shown, and a word on all windows they give.

    Their values have errors as well: as large as ours would be with as many `realizations`.

    ours: mean and standard error of the i-th series in a window
    """
    widened = (1 + data["realizations"] / realizations) ** 0.5 if realizations else 1.0
    rows, all_of_them = [], []
    for i, series in enumerate(data["series"]):
        label, theirs = plain(series["label"]), published.get(series["label"], {})
        for window in windows:
            if (value := _pooled(theirs, window)) is not None:
                mean, error = ours(i, window)
                off = mean - value
                rows.append(
                    [
                        label,
                        f"{window[0]}-{window[1]}",
                        f"{value:.3f}",
                        with_error(mean, error),
                        f"{off:+.3f}",
                        f"{100 * off / value:+.1f}%" if value else "",
                        f"{off / error / widened:+.1f}" if error else "",
                    ]
                )
        for (first, last), value in theirs.items():
            mean, error = ours(i, (first, last))
            if error:
                where = f"{label}, periods {first}-{last}"
                all_of_them.append(((mean - value) / error / widened, where))
    heads = ("periods", "published", "measured", "difference", "in %", "in errors")
    shown = [table((f"{name} beside the published", *heads), rows)] if rows else []
    return [*shown, *_summary(all_of_them, realizations)]


def _pooled(theirs: Mapping[Window, float], window: Window) -> float | None:
    """Their average over a window that theirs cover exactly."""
    parts = [w for w in theirs if window[0] <= w[0] and w[1] <= window[1]]
    if not parts or sum(b - a for a, b in parts) != window[1] - window[0]:
        return None
    return float(np.average([theirs[w] for w in parts], weights=[b - a for a, b in parts]))


def _summary(found: Sequence[tuple[float, str]], realizations: int | None) -> list[str]:
    """How many of (difference in standard errors, where that is) are small, and the largest."""
    if not found:
        return []
    within = sum(abs(off) <= 2 for off, _ in found)
    most, where = max(found, key=lambda one: abs(one[0]))
    whose = "of ours"
    if realizations is not None:
        whose = f"of the difference, published values taken for {realizations:,} realizations"
    return [
        f"Errors are standard errors {whose}. Of all {len(found)} windows that were published, "
        f"{within} differ by at most two; the most is {most:+.1f} ({where})."
    ]
