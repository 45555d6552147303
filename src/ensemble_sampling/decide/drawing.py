"""How a bandit has been doing, as a figure."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..intervals import TAIL
from ..ledger.ledger import DecisionRow, Ledger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMED = 5  # actions with a curve of their own, the most frequent ones


def draw(ledger: Ledger, window: int = 100) -> "Figure":
    """Reward, shares of actions, agreement and waiting outcomes over the decisions made, each a
    mean over `window` of them."""
    import matplotlib as mpl  # slow to import, and seldom needed

    from ..simulation.picture import Picture
    from ..simulation.plot import FONT, plain, style

    rows = list(ledger.all())
    known = [(row.number, row.reward) for row in rows if row.reward is not None]
    settled = [(row.number, agreement(row)) for row in rows if not row.foreign]
    with mpl.rc_context(FONT):
        figure = Picture(figsize=(7, 8))
        reward, chosen, agreed, pending = figure.subplots(4, sharex=True)
        if known:
            number, value = np.array(known).T
            mean, reach = trailing_mean(value, window), _reach(value, window)
            ends = value.min(), value.max()  # of which no mean is beyond
            band = np.clip(mean - reach, *ends), np.clip(mean + reach, *ends)
            reward.fill_between(number, *band, color="0.85", lw=0)
            _line(reward, number, mean)
            if np.ptp(value) == 0:
                reward.set_ylim(value[0] - 0.5, value[0] + 0.5)
        for i, (name, share) in enumerate(_shares(rows, window)):
            colour, _, line = style(i)
            chosen.plot(share, color=colour, ls=line, label=plain(name))
        if settled:
            number, value = np.array(settled).T
            _line(agreed, number, trailing_mean(value, window))
        pending.plot(_pending(rows), color=style(1).colour)
        labels = (
            "reward, with its\n95% interval",
            "share of\ndecisions",
            "agreement\n(1: no exploring)",
        )
        for axis, label in zip(figure.axes, (*labels, "outcomes\nwaited for"), strict=True):
            axis.set_ylabel(label)
        for axis in (chosen, agreed):
            axis.set_ylim(-0.03, 1.03)
        pending.set_ylim(0, max(1.0, 1.05 * pending.dataLim.ymax) if rows else 1.0)
        if rows:
            chosen.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        pending.set_xlabel(f"decisions (curves: the mean of {window})")
    return figure


def agreement(row: DecisionRow) -> float:
    """How likely two draws from the probabilities are to be the same."""
    return float(row.probabilities @ row.probabilities)


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def _reach(values: np.ndarray, window: int) -> np.ndarray:
    """Half the width of the 95% interval of a trailing mean: none for a single value."""
    from scipy.special import stdtrit

    count = np.minimum(np.arange(1, len(values) + 1), window)
    middle = values - values.mean()  # squares of large numbers would lose their digits
    square = trailing_mean(middle**2, window) - trailing_mean(middle, window) ** 2
    free = np.maximum(count - 1, 1)
    return np.where(count > 1, -stdtrit(free, TAIL) * np.sqrt(np.maximum(square, 0) / free), 0.0)


def _shares(rows: list[DecisionRow], window: int) -> list[tuple[str, np.ndarray]]:
    """How often the most frequent actions were chosen, and all others together."""
    names = [str(row.chosen if row.action is None else row.action) for row in rows]
    most = [name for name, _ in Counter(names).most_common(NAMED)]
    found = [(one, np.array([name == one for name in names], float)) for one in most]
    if rest := len({*names} - {*most}):
        other = np.array([name not in most for name in names], float)
        found.append((f"{rest} others", other))
    return [(name, trailing_mean(each, window)) for name, each in found]


def _line(axis: Any, x: Any, y: Any) -> None:
    """A curve; of a single value a dot, which can be seen."""
    axis.plot(x, y, color="#0072B2", marker="o" if len(x) == 1 else "")


def _pending(rows: list[DecisionRow]) -> np.ndarray:
    """How many outcomes were waited for before each decision and, last, are waited for now."""
    arrived = np.sort([row.learned for row in rows if row.learned is not None])
    come = np.searchsorted(arrived, [row.time for row in rows], side="right")
    return np.arange(len(rows) + 1) - np.append(come, len(arrived))
