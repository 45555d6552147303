"""What a service counts of itself, for Prometheus: of all its processes, whichever is asked.

Where PROMETHEUS_MULTIPROC_DIR is set, as the supervisor does, prometheus_client keeps the counts of
each process in a file there. They outlive the process, and the page has their sum.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
OTHER = "other"  # requests that no operation is for
BANDITS = 500  # whose latencies are kept

prometheus_client.disable_created_metrics()


class Metrics:
    """Counts of requests by route, and how long the last decisions of each bandit took here."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "ensemble_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "ensemble_request_seconds",
            "Time to answer a request.",
            ["method", "route"],
            buckets=BOUNDS,
            registry=self._registry,
        )
        self._latencies: dict[str, deque[float]] = {}  # seconds, by bandit

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """`route` is the path of an operation, None for none."""
        if route is None:
            method = route = OTHER  # a caller may invent any number of methods
        with suppress(OSError):  # the folder is gone, and requests are answered all the same
            self._requests.labels(method, route, str(status)).inc()
            self._seconds.labels(method, route).observe(seconds)

    def decision(self, bandit: str, seconds: float) -> None:
        if bandit not in self._latencies and len(self._latencies) == BANDITS:
            del self._latencies[next(iter(self._latencies))]
        self._latencies.setdefault(bandit, deque(maxlen=1000)).append(seconds)

    def latency(self, bandit: str) -> dict[str, float | None]:
        """Milliseconds of the last 1,000 decisions in this process."""
        if bandit not in self._latencies:
            return {"p50": None, "p99": None}
        low, high = np.quantile(self._latencies[bandit], [0.5, 0.99]) * 1000
        return {"p50": float(low), "p99": float(high)}

    def text(self, bandits: Mapping[str, Mapping[str, Any]]) -> bytes:
        """The page that Prometheus reads; `bandits` are their states by name."""
        shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        counts = MultiProcessCollector(None) if shared else self._registry
        families = [*counts.collect(), *_states(bandits)]
        return generate_latest(SimpleNamespace(collect=lambda: families))  # pyright: ignore[reportArgumentType]


def _states(bandits: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    for kind, name, about, value in (
        (CounterMetricFamily, "decisions", "Decisions recorded.", lambda s: s["decisions"]),
        (CounterMetricFamily, "outcomes", "Outcomes recorded.", lambda s: s["outcomes"]),
        (
            GaugeMetricFamily,
            "pending",
            "Decisions without an outcome.",
            lambda s: s["decisions"] - s["outcomes"],
        ),
        (
            GaugeMetricFamily,
            "behind_seconds",
            "Age of the oldest outcome this process does not know.",
            lambda s: s["behind"] or 0.0,
        ),
        (GaugeMetricFamily, "learner", "1 if somebody learns.", lambda s: s["learner"] is not None),
        (GaugeMetricFamily, "learning", "1 if this process learns.", lambda s: s["learning"]),
    ):
        family = kind(f"ensemble_{name}", about, labels=["bandit"])
        for bandit, status in bandits.items():
            family.add_metric([bandit], float(value(status)))
        yield family
