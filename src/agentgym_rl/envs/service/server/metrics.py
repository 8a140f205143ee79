"""The counts of a server in Prometheus' text format, at /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from agentgym_rl.envs.service.protocol import Op
from agentgym_rl.envs.service.server.backend import Stats

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_ROUTES = frozenset((*Op, "batch", "episodes", "health", "spec", "tasks", "metrics"))


class ServerMetrics:
    """Requests as they come, and the backend's counts when they are asked for."""

    MEDIA_TYPE: ClassVar[str] = CONTENT_TYPE_LATEST

    def __init__(self, env: str) -> None:
        self._registry = CollectorRegistry()
        self._backend = _BackendCollector(env)
        self._registry.register(self._backend)
        self._requests = Counter(
            "agentgym_http_requests", "Requests by route and status",
            ("route", "status"), registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "agentgym_http_request_seconds", "Time from request to the end of the answer",
            ("route",), registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip

    def observe(self, path: str, status: int, seconds: float) -> None:
        route = _route_of(path)
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def render(self, stats: Stats, capacity: int) -> bytes:
        self._backend.stats, self._backend.capacity = stats, capacity
        return generate_latest(self._registry)


class _BackendCollector(Collector):
    """Gives the counts of a `Stats` to Prometheus."""

    def __init__(self, env: str) -> None:
        self._env = env
        self.stats = Stats()
        self.capacity = 0

    def collect(self) -> Iterable[Metric]:
        stats = self.stats
        gauges = (
            ("episodes", "Episodes that are open", stats.num_episodes),
            ("capacity", "Episodes that can be open", self.capacity),
            ("abandoned_calls", "Calls beyond their deadline that still run", stats.num_abandoned),
            ("workers", "Worker processes that take episodes", stats.num_workers),
            ("silent_workers", "Worker processes that miss heartbeats", stats.num_silent),
        )
        counters = (
            ("episodes_opened", "Episodes opened", stats.num_opened),
            ("episodes_failed", "Episodes that an environment or a worker lost", stats.num_failed),
            ("episodes_reaped", "Episodes closed because nobody used them", stats.num_reaped),
            ("steps", "Steps asked for", stats.num_steps),
            ("worker_restarts", "Worker processes replaced", stats.num_restarts),
        )
        for kind, rows in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
            for name, help_text, value in rows:
                family = kind(f"agentgym_{name}", help_text, labels=("env",))
                family.add_metric((self._env,), value)
                yield family


def _route_of(path: str) -> str:
    """Return a short name of the route; a path that is none of ours is "other"."""
    name = path.rpartition("/")[2]
    if name in _ROUTES:
        return name
    return "episode" if path.startswith("/episodes/") else "other"
