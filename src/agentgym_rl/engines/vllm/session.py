"""An episode's context, kept as token ids and sent completely in every round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from agentgym_rl.engines.base import EngineSession
from agentgym_rl.engines.clock import stopped_clock
from agentgym_rl.engines.vllm.client import ServerLostError
from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams

ResultT = TypeVar("ResultT")


class Asked(Protocol):
    """What a session asks of its engine; both calls raise EngineError if that is closed."""

    @property
    def may_answer(self) -> bool:
        """Whether a server seems to be there and awake."""
        ...

    def until_ready(self, session: VllmSession) -> Future[None]:
        """Wait for a server that was lost or sleeps."""
        ...

    def submit(self, session: VllmSession, params: SamplingParams) -> Future[Completion]:
        """Sample a reply to the session's context."""
        ...


class VllmSession(EngineSession):
    """The context of one episode."""

    def __init__(self, engine: Asked, key: int) -> None:
        self._engine, self.key = engine, key
        self.context: list[int] = []
        self.is_closed = False
        self._why_ended = ""
        self._give_up: Callable[[], bool] | None = None
        """Ends what the engine does for it now."""

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        assert new_ids or self.context, "a reply needs a context"
        if self.is_closed:
            raise EngineError(self._why_ended or "generate was called on a closed session")
        self.context.extend(new_ids)
        try:
            completion = await self._sampled(params)
        except ServerLostError:
            # A request has a seed and changes nothing, so it can be repeated.
            completion = await self._sampled(params)
        self.context.extend(completion.token_ids)
        return completion

    async def _sampled(self, params: SamplingParams) -> Completion:
        """Ask for a reply; waiting for a server is not the episode's time."""
        if not self._engine.may_answer:
            with stopped_clock():
                await self._result(self._engine.until_ready(self))
        return await self._result(self._engine.submit(self, params))

    async def _result(self, work: Future[ResultT]) -> ResultT:
        self._give_up = work.cancel
        if self.is_closed:  # a moment ago
            work.cancel()
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.is_closed and task is not None and not task.cancelling():
                why = self._why_ended or "the session was closed while its reply was being sampled"
                raise EngineError(why) from None
            raise

    def close(self) -> None:
        self.is_closed = True
        if self._give_up is not None:
            self._give_up()

    def end(self, reason: str) -> None:
        """Close it with its engine, whose end has a reason, or none."""
        self._why_ended = reason
        self.close()
