"""How a bandit is doing, in words and in a figure."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .ledger import Ledger
from .snapshots import SNAPSHOT, snapshot_diverged

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Summary:
    """How a bandit is doing; printing it is meant for people.

    agreement: how likely two members (or two draws) are to choose alike, over recent decisions.
    waiting: the age in seconds of the oldest decision without an outcome.
    diverged: how often a member had to be put back to its start.
    """

    decisions: int
    outcomes: int
    expired: int
    pending: int
    waiting: float | None
    reward: float | None
    recent_reward: float | None
    agreement: float | None
    diverged: int
    recent: int

    def __str__(self) -> str:
        show = lambda value: "none yet" if value is None else f"{value:.4g}"  # noqa: E731
        age = "" if self.waiting is None else f", the oldest for {timedelta(0, int(self.waiting))}"
        return "\n".join(
            [
                f"decisions  {self.decisions}",
                f"outcomes   {self.outcomes}, of which {self.expired} expired",
                f"pending    {self.pending}{age}",
                f"reward     {show(self.reward)}, over the last {self.recent} outcomes "
                f"{show(self.recent_reward)}",
                f"agreement  {show(self.agreement)} over the last {self.recent} decisions "
                "(1: members all choose alike)",
                f"diverged   {self.diverged} times",
            ]
        )


def summarize(ledger: Ledger, diverged: int = 0, recent: int = 100) -> Summary:
    """The state of things; `recent` decisions and outcomes count as recent."""
    oldest = (
        "SELECT min(decisions.time) FROM decisions LEFT JOIN outcomes ON decision = number "
        "WHERE sequence IS NULL"
    )
    last = f"SELECT avg(reward) FROM outcomes WHERE sequence > {ledger.outcomes - recent}"
    agreement = [float(row.probabilities @ row.probabilities) for row in ledger.latest(recent)]
    first = ledger.ask(oldest)
    return Summary(
        decisions=ledger.decisions,
        outcomes=ledger.outcomes,
        expired=ledger.ask("SELECT count(*) FROM outcomes WHERE expired"),
        pending=ledger.decisions - ledger.outcomes,
        waiting=None if first is None else time.time() - first,
        reward=ledger.ask("SELECT avg(reward) FROM outcomes"),
        recent_reward=ledger.ask(last),
        agreement=float(np.mean(agreement)) if agreement else None,
        diverged=diverged,
        recent=recent,
    )


def draw(ledger: Ledger, window: int = 100) -> "Figure":
    """Reward, agreement and waiting outcomes over the decisions made."""
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    rows = list(ledger.all())
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.subplots(3, sharex=True)
    known = [(row.number, row.reward) for row in rows if row.reward is not None]
    agreement = [(row.number, float(row.probabilities @ row.probabilities)) for row in rows]
    for axis, points, label in zip(axes, (known, agreement), ("reward", "agreement"), strict=False):
        if points:
            number, value = np.array(points).T
            axis.plot(number, _trailing_mean(value, window))
        axis.set_ylabel(f"{label}\n(mean of {window})")
    times = np.array([row.time for row in rows])
    arrived = np.sort([row.learned for row in rows if row.learned is not None])
    pending = np.arange(1, len(rows) + 1) - np.searchsorted(arrived, times, side="right")
    axes[2].plot(pending)
    axes[2].set_ylabel("outcomes\nwaited for")
    axes[2].set_xlabel("decisions")
    return figure


def _trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    total = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return (total[end] - total[start]) / (end - start)


def inspect(folder: str | os.PathLike[str], plot: str | os.PathLike[str] | None = None) -> Summary:
    """The summary of the bandit in a folder, also while another process runs it.

    `plot` names a file for a figure of it, in any format Matplotlib writes.
    """
    ledger = Ledger(Path(folder), write=False)
    try:
        if plot is not None:
            draw(ledger).savefig(plot)
        return summarize(ledger, snapshot_diverged(Path(folder) / SNAPSHOT))
    finally:
        ledger.close()
