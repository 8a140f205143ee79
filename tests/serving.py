"""Whether all engines, rollout workers and environment servers of a run serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from agentgym_rl.engines.pool.places import Places
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.training.collect.collection import Collected, Horizons, StepCollector


class Serving:
    """Remembers the pools of the runs that begin after it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pools: list[Places[Any]] = []  # Any: engines or workers
        self._servers: list[EnvPool] = []
        make, begin = Places.__init__, EnvPool._begin

        def made(pool: Places[Any], *arguments: Any, **options: Any) -> None:  # as it has them
            make(pool, *arguments, **options)
            self._pools.append(pool)

        async def begun(pool: EnvPool) -> None:
            await begin(pool)
            self._servers.append(pool)

        monkeypatch.setattr(Places, "__init__", made)
        monkeypatch.setattr(EnvPool, "_begin", begun)

    @property
    def is_whole(self) -> bool:
        """Whether everything serves."""
        servers = [pool for pool in self._servers if pool._is_open]
        pools = [pool for pool in self._pools if not pool._is_closed]
        return all(place.is_serving for pool in (*pools, *servers) for place in pool._places)

    @property
    def is_started(self) -> bool:
        """Whether every engine has its process; one may still wait for a publication."""
        pools = [pool for pool in self._pools if not pool._is_closed]
        members = [place.member for pool in pools for place in pool._places]
        return all(member is not None and member.is_alive for member in members)


def hold_step(monkeypatch: pytest.MonkeyPatch, step: int, is_ready: Callable[[], bool]) -> None:
    """Let a step begin only when something is so: what is lost before is made good within a run."""
    collect = StepCollector.collect

    async def held(collector: StepCollector, number: int, max_rounds: Horizons) -> Collected:
        while number == step and not is_ready():
            await asyncio.sleep(0.05)
        return await collect(collector, number, max_rounds)

    monkeypatch.setattr(StepCollector, "collect", held)


def children_with(word: str, process: psutil.Process | None = None) -> list[psutil.Process]:
    """Return the living processes below this or another one with a word in their command."""
    found = list[psutil.Process]()
    for child in (process or psutil.Process()).children(recursive=True):
        try:
            if word in child.cmdline():
                found.append(child)
        except psutil.Error:  # it has ended
            continue
    return found
