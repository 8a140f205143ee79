"""Pools of real engine processes for tests, on a CPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

import commands  # noqa: F401 - chooses what the server of forks imports
from agentgym_rl.config import parse_config
from agentgym_rl.engines.pool.local import local_pool
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.process import ProcessLine
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.models.loading import Policy
from waiting import wait_for


@contextlib.contextmanager
def running_pool(
    policy: Policy, *overrides: str, num_engines: int = 2
) -> Iterator[EnginePool[RemoteEngine]]:
    """Give a pool that is closed at the end."""
    forkserver.ensure_running()
    settings = ("cluster.type=local", f"cluster.engines={num_engines}", "model.device=cpu")
    config = parse_config({}, (*settings, *overrides), source="test")
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        pool = local_pool(policy, config, folder=Path(folder))
        assert isinstance(pool, EnginePool)
        try:
            yield pool
        finally:
            pool.close()


def engine_of(pool: EnginePool[RemoteEngine], number: int = 0) -> RemoteEngine:
    engine = pool._places[number].member
    assert engine is not None
    return engine


def pid_of(engine: RemoteEngine) -> int:
    assert isinstance(engine.line, ProcessLine)
    process = engine.line.process
    assert isinstance(process, BaseProcess) and process.pid is not None
    return process.pid


def wait_until_replaced(pool: EnginePool[RemoteEngine], old: RemoteEngine, number: int = 0) -> None:
    """Wait until another engine serves in the place of `old`."""
    place = pool._places[number]
    wait_for(lambda: place.member is not old and place.is_serving)


def kill_engine(name: str, with_signal: signal.Signals = signal.SIGKILL) -> int | None:
    """Send a signal to a process of this one's children, and return its number, if it is there."""
    for child in multiprocessing.active_children():
        if child.name == name and child.pid is not None:
            os.kill(child.pid, with_signal)
            return child.pid
    return None


def change_weights(policy: Policy, seed: int) -> None:
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.05)
