"""Pools of vLLM engines whose servers are behind gates, in processes of this machine, for tests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection

import psutil

import commands  # noqa: F401 - chooses what the server of forks imports
from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.pool.line import StartedProcess
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.process import start_process
from agentgym_rl.engines.pool.vllm import ServerSites, vllm_pool
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.far import FarEngine, FarServer
from agentgym_rl.engines.vllm.hosted import ServerPlan, host_server
from agentgym_rl.engines.vllm.server import Placement
from agentgym_rl.models.loading import Policy
from vllm_stand_in import StandIn

HERE = "127.0.0.1"


@contextlib.contextmanager
def running_servers(
    policy: Policy,
    stand_in: StandIn,
    *,
    shares_files: bool = False,
    num_servers: int = 2,
    python: str = "",
    timeout_s: float = 10.0,
) -> Iterator[EnginePool[VllmEngine]]:
    """Give a pool that is closed at the end."""
    forkserver.ensure_running()

    def start(plan: ServerPlan) -> StartedProcess:
        if not shares_files:
            scratch = plan.folder.with_name(f"{plan.folder.name}-scratch")
            scratch.mkdir(parents=True, exist_ok=True)
            plan = replace(plan, scratch=scratch)
        return start_process(plan, _host, plan)

    sites = ServerSites(
        num_servers, Placement(is_cuda=False, is_shared=False), start, shares_files=shares_files
    )
    config = VllmEngineConfig(python=python or stand_in.python, timeout_s=timeout_s)
    pool = vllm_pool(policy, config, sites, folder=stand_in.folder / "engines")
    try:
        yield pool
    finally:
        pool.close()


def server_of(pool: EnginePool[VllmEngine], number: int) -> psutil.Process:
    """Return the process of the server in a place."""
    engine = pool._places[number].member
    assert isinstance(engine, FarEngine) and isinstance(engine.server, FarServer)
    return psutil.Process(engine.server.pid)


def _host(connection: Connection, plan: ServerPlan) -> None:
    os._exit(host_server(connection, plan, HERE))
