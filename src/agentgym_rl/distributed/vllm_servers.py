"""vLLM servers as actors: each holds the server, and its gate at the address of its node."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import ray

from agentgym_rl.distributed.files import Files, write_files
from agentgym_rl.engines.vllm.hosted import ServerPlan, host_server
from agentgym_rl.runs.scratch import Scratch


def server_main(links: Sequence[Connection], plan: ServerPlan, model: Files | None) -> int:
    """Host a server, in an actor; `model` are the files of one that reads no shared folder."""
    address = ray.util.get_node_ip_address()
    if model is None:
        return host_server(links[0], plan, address)
    scratch = Scratch(f"agentgym-{plan.folder.name}-").path
    write_files(model, scratch / "first")
    log = Path(tempfile.mkdtemp(prefix=f"agentgym-log-{plan.folder.name}-"))  # stays
    own = replace(plan, model=scratch / "first", folder=log, scratch=scratch)
    return host_server(links[0], own, address)
