"""A pool of engines that are started at the same time, and again when one of them dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from agentgym_rl.engines.channels.channel import WeightChannel
from agentgym_rl.engines.pool.pool import EnginePool, PoolEngine
from agentgym_rl.engines.pool.remote import START_TIMEOUT_S
from agentgym_rl.engines.pool.starter import Begin, Startable, Starter


class StartableEngine(PoolEngine, Startable, Protocol):
    """An engine that is made at once, and ready later."""


EngineT = TypeVar("EngineT", bound=StartableEngine)


def started_pool(
    begin: Begin[EngineT],
    num_engines: int,
    channel: WeightChannel[EngineT],
    *,
    clear: Callable[[], None],
    count: Callable[[], dict[str, float]],
) -> EnginePool[EngineT]:
    """Return the engines as one, all of them ready; the caller closes it.

    `clear` removes what was made for them, also if they do not start; `count` is the pool's.
    """
    starter = Starter(begin)
    try:
        engines = starter.all(num_engines)
    except BaseException:
        clear()
        raise
    pool = EnginePool(
        engines,
        channel,
        replace=starter.one,
        wait_s=START_TIMEOUT_S,
        on_close=clear,
        count=count,
    )
    starter.report_to(pool, engines)
    return pool
