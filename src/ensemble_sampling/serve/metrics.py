"""What a service counts of itself, for Prometheus: of all its processes, whichever is asked."""

import mmap
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .supervisor import ROOM

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
STATUSES = (
    200, 201, 204, 400, 401, 403, 404, 405, 408, 409, 413, 421, 429, 500, 501, 503, 0,
)  # 0: any other  # fmt: skip
WIDTH = len(STATUSES) + len(BOUNDS) + 2  # counts by status, by bound, beyond all, and the sum
OTHER = "other"
BANDITS = 500  # of which it is known how long decisions took


class Metrics:
    """Counts of requests by route, in memory that the processes of a service share.

    file: descriptor of a file of `processes` * ROOM bytes; None: for this process alone. Each
        writes only its own part, so that none waits; one that is started anew goes on with it.
    """

    def __init__(
        self,
        routes: Sequence[tuple[str, str]],
        file: int | None = None,
        process: int = 0,
        processes: int = 1,
    ):
        names = [*dict.fromkeys(routes), (OTHER, OTHER)]
        most = ROOM // (8 * WIDTH)
        if len(names) > most:
            raise ValueError(f"{len(names)} routes; metrics have room for {most}")
        self._row = {name: n for n, name in enumerate(names)}
        self._column = {status: n for n, status in enumerate(STATUSES)}
        memory = mmap.mmap(-1 if file is None else file, ROOM * processes)
        cells = np.frombuffer(memory, float).reshape(processes, ROOM // 8)
        self._all = cells[:, : len(names) * WIDTH].reshape(processes, len(names), WIDTH)
        self._own = self._all[process]
        self.recent: dict[str, deque[float]] = {}  # seconds of decisions, by bandit

    def count(self, route: tuple[str, str], status: int, seconds: float) -> None:
        row = self._own[self._row.get(route, -1)]
        row[self._column.get(status, len(STATUSES) - 1)] += 1
        bound = sum(seconds > each for each in BOUNDS)
        row[len(STATUSES) + bound] += 1
        row[-1] += seconds

    def decided(self, bandit: str, seconds: float) -> None:
        kept = self.recent.get(bandit)
        if kept is None:
            kept = self.recent[bandit] = deque(maxlen=1000)
            if len(self.recent) > BANDITS:
                del self.recent[next(iter(self.recent))]
        kept.append(seconds)

    def latency(self, bandit: str) -> dict[str, float | None]:
        """Milliseconds of the last 1,000 decisions in this process."""
        kept = self.recent.get(bandit)
        if not kept:
            return {"p50": None, "p99": None}
        low, high = np.quantile(kept, [0.5, 0.99]) * 1000
        return {"p50": float(low), "p99": float(high)}

    def text(self, bandits: Mapping[str, Mapping[str, Any]]) -> str:
        """The page that Prometheus reads; `bandits` are their states by name."""
        total = self._all.sum(axis=0)
        lines = [
            "# HELP ensemble_requests_total Requests answered.",
            "# TYPE ensemble_requests_total counter",
        ]
        for (method, path), row in self._row.items():
            for status, column in self._column.items():
                if total[row, column]:
                    said = _labels(method=method, route=path, status=str(status or OTHER))
                    lines.append(f"ensemble_requests_total{said} {total[row, column]:.0f}")
        lines += [
            "# HELP ensemble_request_seconds Time to answer a request.",
            "# TYPE ensemble_request_seconds histogram",
        ]
        for (method, path), row in self._row.items():
            counts = total[row, len(STATUSES) : -1].cumsum()
            if not counts[-1]:
                continue
            name = "ensemble_request_seconds"
            for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
                said = _labels(method=method, route=path, le=str(bound))
                lines.append(f"{name}_bucket{said} {count:.0f}")
            said = _labels(method=method, route=path)
            lines += [
                f"{name}_sum{said} {total[row, -1]:.6f}",
                f"{name}_count{said} {counts[-1]:.0f}",
            ]
        return "\n".join([*lines, *_of_bandits(bandits), ""])


STATES = {  # of a bandit: kind, words, and what of its status
    "ensemble_decisions_total": ("counter", "Decisions recorded.", "decisions"),
    "ensemble_outcomes_total": ("counter", "Outcomes recorded.", "outcomes"),
    "ensemble_pending": ("gauge", "Decisions without an outcome.", "pending"),
    "ensemble_behind_seconds": (
        "gauge",
        "Age of the oldest outcome this process does not know.",
        "behind",
    ),
    "ensemble_learner": ("gauge", "1 if somebody learns.", "learner"),
    "ensemble_learning": ("gauge", "1 if this process learns.", "learning"),
}


def _of_bandits(bandits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, (kind, words, key) in STATES.items():
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        for bandit, status in bandits.items():
            value = status.get(key)
            if key == "pending":
                value = status["decisions"] - status["outcomes"]
            number = float(value) if isinstance(value, int | float) else float(value is not None)
            lines.append(f"{name}{_labels(bandit=bandit)} {number:.15g}")
    return lines


def _labels(**labels: str) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
