"""What a service counts of itself, for Prometheus: of all its processes, whichever is asked.

Where PROMETHEUS_MULTIPROC_DIR is set, as the supervisor does, prometheus_client keeps the counts of
each process in a file there. They outlive the process, and the page has their sum.
"""

import os
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily as Count
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.multiprocess import MultiProcessCollector

from ...decide.health import KINDS

MEDIA = b"text/plain; version=0.0.4; charset=utf-8"
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds

prometheus_client.disable_created_metrics()
REGISTRY = CollectorRegistry()
LABELS = ["method", "route"]
REQUESTS = Counter(
    "ensemble_requests", "Requests answered.", [*LABELS, "status"], registry=REGISTRY
)
SECONDS = Histogram(
    "ensemble_request_seconds",
    "Time to answer a request.",
    LABELS,
    buckets=BOUNDS,
    registry=REGISTRY,
)
STATES = {  # of a bandit, by its status
    "decisions": (Count, "Decisions recorded.", lambda s: s["decisions"]),
    "outcomes": (Count, "Outcomes recorded.", lambda s: s["outcomes"]),
    "pending": (Gauge, "Decisions without an outcome.", lambda s: s["decisions"] - s["outcomes"]),
    "restarts": (
        Count,
        "Models that started again because the world changed.",
        lambda s: s["restarts"],
    ),
    "behind_seconds": (
        Gauge,
        "Age of the oldest outcome this process does not know.",
        lambda s: s["behind"],
    ),
    "learner": (Gauge, "1 if somebody learns.", lambda s: s["learner"] is not None),
    "learning": (Gauge, "1 if this process learns.", lambda s: s["learning"]),
}


def page(bandits: Mapping[str, Mapping[str, Any]]) -> bytes:
    """What Prometheus reads; `bandits` are their statuses by name."""
    shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
    counts = MultiProcessCollector(None) if shared else REGISTRY
    families = [*counts.collect(), *_states(bandits)]
    return generate_latest(SimpleNamespace(collect=lambda: families))  # pyright: ignore[reportArgumentType]


def _states(bandits: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    for name, (kind, about, value) in STATES.items():
        family = kind(f"ensemble_{name}", about, labels=["bandit"])
        for bandit, status in bandits.items():
            family.add_metric([bandit], float(value(status)))
        yield family
    family = Gauge(
        "ensemble_unhealthy",
        "1 if a health check fails; /status says why.",
        labels=["bandit", "check"],
    )
    for bandit, status in bandits.items():
        for check in KINDS:
            family.add_metric([bandit, check], float(check in status["health"]))
    yield family
