"""Rollout workers as actors."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from agentgym_rl.rollout.workers.host import host_worker
from agentgym_rl.rollout.workers.messages import WorkerPlan


def worker_main(links: Sequence[Connection], plan: WorkerPlan, shares_files: bool) -> int:
    """Play episodes, in an actor; without a shared folder the log is in a folder of its node."""
    if not shares_files:
        folder = tempfile.mkdtemp(prefix=f"agentgym-{plan.folder.name}-")
        plan = replace(plan, folder=Path(folder))
    return host_worker(links[0], plan)
