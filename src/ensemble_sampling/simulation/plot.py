"""Results as figures: regret over time for any number of agents, and against swept settings.

Curves are told apart also in greyscale and by colour-blind readers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..config import distinct_labels
from .results import Result
from .table import Span, Sweep, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONFIDENT = 1.96
"""Standard errors either side of a 95% range."""

# Okabe and Ito's colours.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">", "p")
LINES = ("-", "--", "-.", ":")

FONT: Any = {"font.size": 9, "axes.titlesize": 9.5, "legend.fontsize": 8, "svg.hashsalt": "figure"}

MANY, COLUMN = 8, 30
"""Curves that a legend has room for beside them, and lines of a legend's column."""


class Style(NamedTuple):
    colour: str
    mark: str
    line: str


def style(i: int) -> Style:
    """The i-th curve's: a colour, a mark and a line that none of 263 others has together."""
    line = LINES[i // len(COLOURS) % len(LINES)]
    return Style(COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)], line)


def plain(label: str) -> str:
    """A label that Matplotlib shows as it is: no mathematics, and not hidden for its first `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


@contextmanager
def _figure(curves: int, title: str | None) -> "Iterator[tuple[Figure, Axes]]":
    """A figure for so many curves: beyond a few, the legend stands outside, as high as it needs."""
    import matplotlib as mpl  # slow to import, and seldom needed

    from .picture import Picture

    lines, columns = min(curves, COLUMN), -(-curves // COLUMN)
    outside = 5.5 + 2.2 * columns, max(3.8, 0.19 * lines + 0.6)
    with mpl.rc_context(FONT):
        figure = Picture(figsize=(5.5, 3.8) if curves <= MANY else outside)
        ax = figure.subplots()
        yield figure, ax
        if title is not None:
            ax.set_title(plain(title), loc="left")
        if curves > MANY:
            figure.legend(loc="outside right upper", frameon=False, ncols=columns)
        elif ax.get_legend_handles_labels()[1]:
            ax.legend(frameon=False)


def plot(
    results: Result | Sweep | Iterable[Result] | Mapping[str, Result],
    *,
    cumulative: bool = False,
    log: bool = False,
    title: str | None = None,
) -> "Figure":
    """Regret over time with 95% bands, a curve for every result, however many.

    Legends say what sets the agents (or worlds, or seeds) apart; a dictionary brings its own names.
    Every drawn point of the regret per period is an average over a hundredth of the periods.

    cumulative: the regret summed from the first period on
    log: a logarithmic scale of regret
    """
    shown, labels = _named(results)
    with _figure(len(shown), title) as (figure, ax):
        for i, (result, label) in enumerate(zip(shown, labels, strict=True)):
            estimate = result.cumulative if cumulative else (result.mean, result.stderr)
            draw_curve(ax, label, *estimate, i, len(shown), smooth=not cumulative)
        regret = "cumulative regret" if cumulative else "regret per period"
        ax.set(xlabel="period", ylabel=regret, xlim=(0, max(r.periods for r in shown)))
        if log:
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, None)
    return figure


def _named(results: Any) -> tuple[list[Result], list[str]]:
    """The results, and a label for each that no other has."""
    if not isinstance(results, Result | Iterable):
        raise TypeError(f"results must be a Result or several, got {results!r}")
    names = [*map(str, results)] if isinstance(results, Mapping) else None
    results = results.values() if isinstance(results, Mapping) else results
    shown = [results] if isinstance(results, Result) else list(results)
    if not shown:
        raise ValueError("results must have at least one, got none")
    for result in shown:
        if not isinstance(result, Result):
            raise TypeError(f"results must be what simulate returns, got {result!r}")
        if result.mean.ndim > 1:
            raise ValueError(f"{result.label}: only one number per period can be drawn")
    if names is not None:
        return shown, distinct_labels(names, [{} for _ in names])
    return shown, distinct_labels([r.label for r in shown], [r.settings for r in shown])


def draw_curve(
    ax: "Axes",
    label: str,
    mean: Any,
    stderr: Any,
    i: int = 0,
    of: int = 1,
    smooth: bool = True,
) -> None:
    """The i-th of so many curves over the periods, its marks apart from those of the others.

    smooth: draw averages over a hundredth of the periods, for single ones are all noise
    """
    mean, stderr = np.asarray(mean), np.asarray(stderr)
    width = max(1, len(mean) // 100) if smooth else 1
    middle = 1 + blocks(np.arange(len(mean)), width)
    # The average of standard errors is at least the standard error of the average.
    mean, error = blocks(mean, width), CONFIDENT * blocks(stderr, width)
    colour, mark, line = style(i)
    ax.fill_between(middle, mean - error, mean + error, color=colour, alpha=0.18, lw=0)
    apart = max(1, len(middle) // 8)
    marks: Any = {"marker": mark, "ms": 4.5, "markevery": ((2 * i + 1) * apart // (2 * of), apart)}
    ax.plot(middle, mean, color=colour, ls=line, lw=1.2, label=plain(label), **marks)


def blocks(values: np.ndarray, width: int) -> np.ndarray:
    """Averages of `width` values in a row; what is left over joins the last."""
    starts = np.arange(0, len(values) - width + 1, width)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))


def plot_against(
    sweep: Sweep,
    x: str,
    color: str | None = None,
    window: Span = "final",
    *,
    log: bool | None = None,
    title: str | None = None,
) -> "Figure":
    """A sweep's regret against the setting `x` with 95% bars, a curve for all that else varies.

    log: a logarithmic axis of `x`; by default where its numbers span more than a factor of 20.
    """
    places, ticks = _places(sweep.column(x))
    curves = _curves(sweep, x, color)
    mean, error = sweep.estimate(window)
    first, last = sweep.span(window)
    regret = f"regret per period, periods {first + 1} to {last}"
    with _figure(len(curves), title) as (figure, ax):
        for points, label, look in curves:
            order = sorted(points, key=lambda at: places[at])
            at = [places[point] for point in order]
            bars: Any = {"yerr": CONFIDENT * error[order], "capsize": 2, "ms": 4.5, "lw": 1.2}
            ax.errorbar(at, mean[order], **bars, **look, label=label and plain(label))
        if ticks is not None:
            ax.set_xticks(range(len(ticks)), [plain(tick) for tick in ticks])
        elif log or (log is None and min(places) > 0 and max(places) / min(places) > 20):
            ax.set_xscale("log")
        ax.set(xlabel=plain(x), ylabel="cumulative regret" if window == "cumulative" else regret)
    return figure


def _places(column: Sequence[Any]) -> tuple[list[float], list[str] | None]:
    """Where the values are on the axis; those that are no numbers stand in a row, named."""
    if all(np.ndim(v) == 0 and np.asarray(v).dtype.kind in "iuf" for v in column):
        return [float(value) for value in column], None
    texts = [word(value) for value in column]
    names = list(dict.fromkeys(texts))
    return [float(names.index(text)) for text in texts], names


def _curves(
    sweep: Sweep, x: str, color: str | None
) -> list[tuple[list[int], str | None, dict[str, Any]]]:
    """Points, label and look of every curve: a colour for `color`, a line for all that is left.

    A curve that is alone needs no label.
    """
    by_colour = [] if color is None else [color]
    texts = {n: [word(v) for v in sweep.column(n)] for n in [*by_colour, *sweep.names]}
    rest = [n for n in sweep.names if n not in (x, color) and len({*texts[n]}) > 1]
    named = [*by_colour, *rest]
    groups: dict[tuple[str, ...], list[int]] = {}
    for at in range(len(sweep)):
        groups.setdefault(tuple(texts[name][at] for name in named), []).append(at)
    hues = list(dict.fromkeys(key[0] for key in groups)) if color is not None else []
    lines = list(dict.fromkeys(key[1:] for key in groups)) if color is not None else []
    found = []
    for i, (key, points) in enumerate(groups.items()):
        label = ", ".join(f"{name} {text}" for name, text in zip(named, key, strict=True))
        colour, mark, line = style(i)
        if color is not None:
            hue, j = hues.index(key[0]), lines.index(key[1:])
            colour, line = _hue(hue, len(hues)), LINES[j % len(LINES)]
            mark = MARKS[(j // len(LINES) + hue) % len(MARKS)]
        look = {"color": colour, "marker": mark, "ls": line}
        found.append((points, label if len(groups) > 1 else None, look))
    return found


def _hue(i: int, of: int) -> Any:
    """Colours that are told apart by name, or of more values one after the other."""
    if of <= len(COLOURS):
        return COLOURS[i]
    import matplotlib as mpl

    return mpl.colormaps["viridis"](i / of)
