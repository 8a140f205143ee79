"""A process that hosts a native engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from agentgym_rl.engines.pool.host import EngineHost
from agentgym_rl.engines.pool.line import StartedProcess
from agentgym_rl.engines.pool.messages import EnginePlan
from agentgym_rl.engines.pool.process import Host, be_host, start_process


def start_here(plan: EnginePlan) -> StartedProcess:
    """Start an engine as a process of this machine."""
    return start_process(plan, run_engine, plan)


def run_engine(connection: Connection, plan: EnginePlan) -> None:
    """Host an engine until the line ends, and end the process."""
    os._exit(host_engine(connection, plan))


def host_engine(
    connection: Connection, plan: EnginePlan, *, on_ready: Callable[[], None] = lambda: None
) -> int:
    """Host an engine; return the process's status after a failure. The end of the line ends it.

    `on_ready` is called when it is built.
    """

    def make(send: Callable[[Sequence[object]], None]) -> Host:
        host = EngineHost(plan, send)
        on_ready()
        return host

    return be_host(connection, plan, make, what="the engine")
