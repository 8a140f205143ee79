"""A Ray cluster on this machine that begins and ends with a run: its settings, and its end.

A guard, a process of its own, outlives a run that is killed by a moment: two of Ray's processes
would otherwise stay for a minute or two.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ray

_OBJECT_STORE_BYTES = 128 << 20
"""What travels through Ray is small: files of a policy only where nodes share no folder."""
_SETTINGS = {
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_AGENT = b"ray::"
_GUARD = """
import os, signal, sys, time
sys.stdin.read()
time.sleep(0.5)
for pid in sys.argv[1:]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().startswith(b"ray::"):
                os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
"""


@contextlib.contextmanager
def own_cluster(num_cpus: int) -> Iterator[None]:
    """Start a cluster of one node, with room for as many actors as the run has on a CPU."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    guard: subprocess.Popen[bytes] | None = None
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=_OBJECT_STORE_BYTES,
        )
        guard = subprocess.Popen(
            [sys.executable, "-S", "-c", _GUARD, *map(str, _agents())],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
        ray.shutdown()
        if guard is not None:
            guard.communicate()


def _agents() -> list[int]:
    """Return those processes of Ray that look for its end themselves, and slowly."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if sys.platform == "linux" else []):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if line.startswith(_AGENT) and _grandparent(int(pid)) == os.getpid():
                found.append(int(pid))
    return found


def _grandparent(pid: int) -> int:
    """Return who started the one that started a process."""
    for _ in range(2):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        pid = int(status.rpartition(")")[2].split()[1])
    return pid
