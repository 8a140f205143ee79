"""Ray clusters of several nodes in one machine, for tests, and the processes of their actors."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

ENGINE, RANK, ENV_SERVER = "ray::EngineHost", "ray::RankHost", "ray::ServerHost"
WORKER, VLLM = "ray::WorkerHost", "ray::VllmHost"
_FAST = {
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextlib.contextmanager
def ray_cluster(*num_cpus: int) -> Iterator[Cluster]:
    """Give a cluster of nodes with this many processors, the head first."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    before = dict(os.environ)
    os.environ.update(_FAST, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    # Ray reads the token when it is imported.
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for number in num_cpus:
            add_node(cluster, number)
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def add_node(cluster: Cluster, num_cpus: int) -> None:
    cluster.add_node(num_cpus=num_cpus, object_store_memory=100 << 20, include_dashboard=False)


def actors_of(kind: str) -> list[psutil.Process]:
    """Return the processes of actors of a kind, on all nodes that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(kind) and process.is_running():
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def node_of(process: psutil.Process) -> int:
    """Return the process number of the raylet that an actor belongs to."""
    return process.ppid()
