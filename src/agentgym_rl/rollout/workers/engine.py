"""The engine as the episodes of a rollout worker see it: replies come from the controller.

There every reply passes what it would pass for an episode of the controller: the gate between
steps, the pool, whose engine takes weights between replies. What waits there is not the episode's
time, and the controller says so (`Waits`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.clock import Clock, present_clock
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.workers.messages import (
    AskReply,
    CloseSession,
    Reply,
    Waits,
    completion_of,
    ids_to_bytes,
    values_of,
)
from agentgym_rl.types import Completion, SamplingParams


class _Pending:
    """A reply that was asked for."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._clock: Clock | None = present_clock()
        self._stopped = ExitStack()

    def wait(self, is_waiting: bool) -> None:
        """Let the episode's clock stand still, or go on."""
        self._stopped.close()
        if is_waiting and self._clock is not None:
            self._stopped.enter_context(self._clock.stopped())

    def close(self) -> None:
        self._stopped.close()


class Replies:
    """The replies that a worker waits for; all of its engines share them."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send
        self._numbers, self._sessions = itertools.count(1), itertools.count(1)
        self._pending: dict[int, _Pending] = {}

    def handle(self, message: Reply | Waits) -> None:
        pending = self._pending.get(message.number)
        if pending is None:
            return  # its episode was given up
        if isinstance(message, Waits):
            pending.wait(message.is_waiting)
        elif not pending.future.done():
            pending.future.set_result(message)

    def new_session(self) -> int:
        return next(self._sessions)

    def close_session(self, play: int, session: int) -> None:
        self._send(CloseSession(play, session))

    async def ask(
        self, session: FarSession, new_ids: Sequence[int], params: SamplingParams
    ) -> Completion:
        number, pending = next(self._numbers), _Pending()
        self._pending[number] = pending
        ids = ids_to_bytes(new_ids)
        self._send(
            AskReply(number, session.play, session.number, session.key, ids, values_of(params))
        )
        try:
            reply = await pending.future
        finally:
            pending.close()
            del self._pending[number]
        if reply.error is not None:
            raise reply.error
        return completion_of(reply)


class FarEngine(Engine):
    """The engine of one episode."""

    def __init__(self, replies: Replies, play: int, max_context: int | None) -> None:
        self._replies, self._play, self._max_context = replies, play, max_context

    @property
    def max_context(self) -> int | None:
        return self._max_context

    def session(self, key: int) -> FarSession:
        return FarSession(self._replies, self._play, key)

    def publish(self, version: int) -> None:
        raise AssertionError("weights are the controller's affair")

    def close(self) -> None:
        """The controller closes the engine."""


class FarSession(EngineSession):
    """A context that an engine keeps, wherever that is."""

    def __init__(self, replies: Replies, play: int, key: int) -> None:
        self._replies, self.play, self.key = replies, play, key
        self.number = replies.new_session()
        self._is_open = self._is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        if self._is_closed:
            raise EngineError("generate was called on a closed session")
        self._is_open = True
        return await self._replies.ask(self, new_ids, params)

    def close(self) -> None:
        if self._is_open and not self._is_closed:
            self._replies.close_session(self.play, self.number)
        self._is_closed = True
