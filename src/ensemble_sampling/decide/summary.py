"""How a bandit is doing, in words and in a figure."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from ..ledger.ledger import Ledger
from ..ledger.sqlite import as_place
from ..tables import html_table
from . import health
from .drawing import agreement, draw
from .shadows import Compared, compare
from .snapshots import snapshot_noticed

REVISED = "EXISTS (SELECT 1 FROM revisions WHERE decision = o.decision)"
NOW = "(SELECT reward FROM revisions WHERE decision = o.decision ORDER BY nth DESC LIMIT 1)"


@dataclass(frozen=True)
class Summary:
    """How a bandit is doing; printing it is meant for people.

    agreement: how likely two members (or two draws) are to choose alike, over recent decisions.
    waiting: the age in seconds of the oldest decision without an outcome.
    diverged: how often a member had to be put back to its start.
    warnings: what its user should know, see `notices` and `health`.
    revised: outcomes that were corrected or added to; those count as they are now.
    shadows: how candidates beside the agent in charge would have done.
    removed: decisions that are no longer in the ledger, but known to the state.
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
    warnings: tuple[str, ...] = ()
    revised: int = 0
    shadows: tuple[Compared, ...] = ()
    removed: int = 0

    def __repr__(self) -> str:
        said = f", {len(self.warnings)} warnings" if self.warnings else ""
        return (
            f"Summary({self.decisions} decisions, {self.pending} pending, "
            f"reward {_shown(self.reward)}, agreement {_shown(self.agreement)}{said})"
        )

    def _repr_html_(self) -> str:
        lines = [line.partition(" ") for line in str(self).splitlines()]
        return html_table(["", "so far"], [[name, said.strip()] for name, _, said in lines])

    def __str__(self) -> str:
        age = "" if self.waiting is None else f", the oldest for {timedelta(0, int(self.waiting))}"
        revised = f", {self.revised} revised" if self.revised else ""
        return "\n".join(
            [
                f"decisions  {self.decisions}",
                f"outcomes   {self.outcomes}, of which {self.expired} expired{revised}",
                f"pending    {self.pending}{age}",
                f"reward     {_shown(self.reward)}, over the last {self.recent} outcomes "
                f"{_shown(self.recent_reward)}",
                f"agreement  {_shown(self.agreement)} over the last {self.recent} decisions "
                "(1: members all choose alike)",
                f"diverged   {self.diverged} times",
                *(
                    [f"removed    {self.removed} decisions, which the state knows"]
                    * (self.removed > 0)
                ),
                *(f"shadow     {shadow}" for shadow in self.shadows),
                *(f"warning    {word}" for word in self.warnings),
            ]
        )


def _shown(value: float | None) -> str:
    return "none yet" if value is None else f"{value:.4g}"


def summarize(
    ledger: Ledger, diverged: int = 0, recent: int = 100, warnings: tuple[str, ...] = ()
) -> Summary:
    """The state of things; `recent` decisions and outcomes count as recent."""
    oldest = (
        "SELECT min(decisions.time) FROM decisions LEFT JOIN outcomes ON decision = number "
        "WHERE sequence IS NULL"
    )
    agreed = [agreement(row) for row in ledger.latest(recent) if not row.foreign]
    last = ledger.learned(after=max(0, ledger.outcomes - recent))
    rewards = [row.reward for row in last if row.reward is not None]
    first, base = ledger.ask(oldest), ledger.base
    return Summary(
        decisions=ledger.decisions,
        outcomes=ledger.outcomes,
        expired=ledger.ask(
            f"SELECT count(*) FROM outcomes AS o WHERE expired = 1 AND NOT {REVISED}"
        ),
        pending=ledger.decisions - base.decisions - (ledger.outcomes - base.gone),
        waiting=None if first is None else max(0.0, time.time() - first),
        reward=ledger.ask(
            f"SELECT avg(CASE WHEN {REVISED} THEN {NOW} ELSE reward END) FROM outcomes AS o"
        ),
        recent_reward=float(np.mean(rewards)) if rewards else None,
        agreement=float(np.mean(agreed)) if agreed else None,
        diverged=diverged,
        recent=recent,
        warnings=(*warnings, *health.found(ledger).values()),
        shadows=compare(ledger),
        revised=ledger.ask("SELECT count(DISTINCT decision) FROM revisions"),
        removed=base.decisions,
    )


def inspect(folder: str | os.PathLike[str], plot: str | os.PathLike[str] | None = None) -> Summary:
    """The summary of the bandit in a folder, also while another process runs it.

    `plot` names a file for a figure of it, in any format Matplotlib writes.
    """
    if plot is not None and os.path.isdir(plot):
        raise ValueError(f"plot must name a file, and {plot} is a folder")
    ledger = Ledger(as_place(folder), write=False)
    try:
        if plot is not None:
            draw(ledger).savefig(plot)
        diverged, noticed = snapshot_noticed(ledger)
        return summarize(ledger, diverged, warnings=tuple(noticed.values()))
    finally:
        ledger.close()
