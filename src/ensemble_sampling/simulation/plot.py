"""Results as figures: regret over time for any number of agents, and against swept settings.

Curves are told apart also in greyscale and by colour-blind readers, however many there are.
"""

import colorsys
from collections.abc import Iterable, Mapping, Sequence
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


class Style(NamedTuple):
    colour: str
    mark: str
    line: str


KNOWN = 264
"""How many curves the colours, marks and lines above tell apart."""


def style(i: int) -> Style:
    """The i-th curve's: a colour, a mark and a line that no other curve has together."""
    line, mark = LINES[i // len(COLOURS) % len(LINES)], MARKS[i % len(MARKS)]
    if i < KNOWN:
        return Style(COLOURS[i % len(COLOURS)], mark, line)
    # Beyond that each has a colour of its own: steps of the golden ratio never meet again.
    red, green, blue = colorsys.hls_to_rgb(i * 0.618033988749895 % 1.0, 0.3 + 0.06 * (i % 5), 0.7)
    return Style(
        f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}", mark, line
    )


def plain(label: str) -> str:
    """A label that Matplotlib shows as it is: no mathematics, and not hidden for its first `_`."""
    label = label.replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


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
    import matplotlib as mpl  # slow to import, and seldom needed

    from .picture import Picture

    shown, labels = _named(results)
    with mpl.rc_context(FONT):
        figure = Picture(figsize=_size(len(shown)))
        ax = figure.subplots()
        for i, (result, label) in enumerate(zip(shown, labels, strict=True)):
            estimate = result.cumulative if cumulative else (result.mean, result.stderr)
            draw_curve(ax, label, *estimate, i, len(shown), smooth=not cumulative)
        regret = "cumulative regret" if cumulative else "regret per period"
        ax.set(xlabel="period", ylabel=regret, xlim=(0, max(r.periods for r in shown)))
        if log:
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, None)
        _finish(figure, ax, title, len(shown))
    return figure


def _named(results: Any) -> tuple[list[Result], list[str]]:
    """The results, and a label for each that no other has."""
    if isinstance(results, Mapping):
        names, shown = [str(name) for name in results], list(results.values())
    elif isinstance(results, Result):
        names, shown = None, [results]
    elif isinstance(results, Iterable):
        names, shown = None, list(results)
    else:
        raise TypeError(f"results must be a Result or several, got {results!r}")
    if not shown:
        raise ValueError("results must have at least one, got none")
    for result in shown:
        if not isinstance(result, Result):
            raise TypeError(f"results must be what simulate returns, got {result!r}")
        if result.mean.ndim > 1:
            raise ValueError(f"{result.label}: only one number per period can be drawn")
    if names is None:
        return shown, distinct_labels([r.label for r in shown], [r.settings for r in shown])
    return shown, distinct_labels(names, [{} for _ in names])


def draw_curve(
    ax: "Axes",
    label: str,
    mean: Any,
    stderr: Any,
    i: int = 0,
    of: int = 1,
    smooth: bool = True,
) -> None:
    """The i-th of so many curves over the periods, its marks apart from those of the others."""
    mean, stderr = np.asarray(mean), np.asarray(stderr)
    width = block(len(mean)) if smooth else 1
    middle = 1 + blocks(np.arange(len(mean)), width)
    # The average of standard errors is at least the standard error of the average.
    mean, error = blocks(mean, width), CONFIDENT * blocks(stderr, width)
    colour, mark, line = style(i)
    ax.fill_between(middle, mean - error, mean + error, color=colour, alpha=0.18, lw=0)
    apart = max(1, len(middle) // 8)
    marks: Any = {"marker": mark, "ms": 4.5, "markevery": ((2 * i + 1) * apart // (2 * of), apart)}
    ax.plot(middle, mean, color=colour, ls=line, lw=1.2, label=plain(label), **marks)


def block(periods: int) -> int:
    """How many periods a drawn point averages over; single periods are all noise."""
    return max(1, periods // 100)


def blocks(values: np.ndarray, width: int) -> np.ndarray:
    """Averages of `width` values in a row; what is left over joins the last."""
    starts = np.arange(0, len(values) - width + 1, width)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))


MANY, COLUMN = 8, 30
"""Curves that a legend has room for beside them, and lines of a legend's column."""


def _size(curves: int) -> tuple[float, float]:
    """Inches: beyond a few curves the legend stands outside, as high as it needs."""
    if curves <= MANY:
        return 5.5, 3.8
    lines, columns = min(curves, COLUMN), -(-curves // COLUMN)
    return 5.5 + 2.2 * columns, max(3.8, 0.19 * lines + 0.6)


def _finish(figure: "Figure", ax: "Axes", title: str | None, curves: int) -> None:
    if title is not None:
        ax.set_title(plain(title), loc="left")
    if curves <= MANY:
        ax.legend(frameon=False)
    else:
        columns = -(-curves // COLUMN)
        figure.legend(loc="outside right upper", frameon=False, ncols=columns)


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
    import matplotlib as mpl

    from .picture import Picture

    sweep.column(x)
    if color is not None:
        sweep.column(color)
    curves = _curves(sweep, x, color)
    places, ticks = _places(sweep.column(x))
    mean, error = sweep.estimate(window)
    with mpl.rc_context(FONT):
        figure = Picture(figsize=_size(len(curves)))
        ax = figure.subplots()
        for points, label, look in curves:
            order = sorted(points, key=lambda at: places[at])
            at = [places[point] for point in order]
            bars: Any = {"yerr": CONFIDENT * error[order], "capsize": 2, "ms": 4.5, "lw": 1.2}
            ax.errorbar(at, mean[order], **bars, **look, label=plain(label))
        if ticks is not None:
            ax.set_xticks(range(len(ticks)), [plain(tick) for tick in ticks])
        elif log or (log is None and min(places) > 0 and max(places) / min(places) > 20):
            ax.set_xscale("log")
        ax.set(xlabel=plain(x), ylabel=_regret(sweep, window))
        _finish(figure, ax, title, len(curves))
        if len(curves) == 1 and (legend := ax.get_legend()) is not None:
            legend.remove()
    return figure


def _regret(sweep: Sweep, window: Span) -> str:
    if isinstance(window, str) and window == "cumulative":
        return "cumulative regret"
    first, last = sweep.span(window)
    return f"regret per period, periods {first + 1} to {last}"


def _places(column: Sequence[Any]) -> tuple[list[float], list[str] | None]:
    """Where the values are on the axis; those that are no numbers stand in a row, named."""
    if all(np.ndim(v) == 0 and np.asarray(v).dtype.kind in "iuf" for v in column):
        return [float(value) for value in column], None
    texts = [word(value) for value in column]
    names = list(dict.fromkeys(texts))
    return [float(names.index(text)) for text in texts], names


def _curves(sweep: Sweep, x: str, color: str | None) -> list[tuple[list[int], str, dict[str, Any]]]:
    """Points, label and look of every curve: a colour for `color`, a line for all that is left."""
    texts = {name: [word(v) for v in sweep.column(name)] for name in sweep.names}
    rest = [n for n in sweep.names if n not in (x, color) and len({*texts[n]}) > 1]
    named = [*([] if color is None else [color]), *rest]
    groups: dict[tuple[str, ...], list[int]] = {}
    for at in range(len(sweep)):
        groups.setdefault(tuple(texts[name][at] for name in named), []).append(at)
    hues = list(dict.fromkeys(key[0] for key in groups)) if color is not None else []
    lines = list(dict.fromkeys(key[1:] for key in groups)) if color is not None else []
    found = []
    for i, (key, points) in enumerate(groups.items()):
        label = ", ".join(f"{name} {text}" for name, text in zip(named, key, strict=True)) or x
        colour, mark, line = style(i)
        if color is not None:
            j = lines.index(key[1:])
            colour, line = _hue(hues.index(key[0]), len(hues)), LINES[j % len(LINES)]
            mark = MARKS[(j // len(LINES) + hues.index(key[0])) % len(MARKS)]
        found.append((points, label, {"color": colour, "marker": mark, "ls": line}))
    return found


def _hue(i: int, of: int) -> Any:
    """Colours that are told apart by name, or of more values one after the other."""
    if of <= len(COLOURS):
        return COLOURS[i]
    import matplotlib as mpl

    return mpl.colormaps["viridis"](i / of)
