"""A gate before the engine: episodes wait at it, between replies, while the weights change.

No reply is split, so each is sampled by one version of the weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.clock import stopped_clock
from agentgym_rl.types import Completion, SamplingParams

if TYPE_CHECKING:  # a run in one process has no channels
    from agentgym_rl.engines.channels.delivery import WeightSource


class ReplyGate:
    """Replies begin only while it is open; at first it is closed."""

    def __init__(self) -> None:
        self._opened, self._quiet = asyncio.Event(), asyncio.Event()
        self._quiet.set()
        self._num_under_way = 0

    def open(self) -> None:
        self._opened.set()

    async def close(self) -> None:
        """Let no further reply begin, and return when those under way have ended.

        No reply is abandoned; the engine's deadline limits how long this takes.
        """
        self._opened.clear()
        await self._quiet.wait()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Wait until the gate is open, and keep `close` waiting inside."""
        while not self._opened.is_set():
            with stopped_clock():
                await self._opened.wait()
        self._num_under_way += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._num_under_way -= 1
            if not self._num_under_way:
                self._quiet.set()


class GatedSession(EngineSession):
    """A session whose replies pass a gate."""

    def __init__(self, session: EngineSession, gate: ReplyGate) -> None:
        self._session, self._gate = session, gate

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        async with self._gate.passing():
            try:
                return await self._session.generate(new_ids, params)
            except BaseException:
                # The engine must know before the gate does that nobody waits for this reply.
                self._session.close()
                raise

    def close(self) -> None:
        self._session.close()


class GatedEngine(Engine):
    """An engine whose sessions pass a gate; users of the engine itself are not held up."""

    def __init__(self, engine: Engine, gate: ReplyGate) -> None:
        self._engine, self._gate = engine, gate

    def session(self, key: int) -> GatedSession:
        return GatedSession(self._engine.session(key), self._gate)

    @property
    def max_context(self) -> int | None:
        return self._engine.max_context

    @property
    def reads_policy(self) -> bool:
        return self._engine.reads_policy

    def publish(self, version: int) -> None:
        self._engine.publish(version)

    def follow(self, source: WeightSource) -> None:
        self._engine.follow(source)

    def take_metrics(self) -> dict[str, float]:
        return self._engine.take_metrics()

    def begin_update(self) -> None:
        self._engine.begin_update()

    def rest(self) -> None:
        self._engine.rest()

    def close(self) -> None:
        self._engine.close()
