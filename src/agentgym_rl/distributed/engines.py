"""Native engines as actors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from agentgym_rl.distributed.files import Files, write_files
from agentgym_rl.engines.pool.engine_process import host_engine
from agentgym_rl.engines.pool.messages import EnginePlan


def engine_main(links: Sequence[Connection], plan: EnginePlan, policy: Files | None) -> int:
    """Host an engine, in an actor; `policy` are the files of one that reads no shared folder."""
    if policy is None:
        return host_engine(links[0], plan)
    folder = Path(tempfile.mkdtemp(prefix=f"agentgym-{plan.folder.name}-"))  # keeps the log
    write_files(policy, folder / "policy")
    return host_engine(
        links[0],
        replace(plan, policy=folder / "policy", folder=folder),
        on_ready=lambda: shutil.rmtree(folder / "policy"),
    )
