"""What the engines say to an episode that a worker plays; runs on the controller's event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.clock import use_clock
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.workers.messages import (
    AskReply,
    Reply,
    Waits,
    ids_from_bytes,
    params_of,
    plain_engine_error,
    reply_of,
)


class EpisodeReplies:
    """The sessions of one episode; `close` gives them back."""

    def __init__(
        self,
        engine: Engine,
        send: Callable[[object], None],
        *,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_failure` is told of what is no failure of the engine: a bug, which ends the run."""
        self._engine, self._send, self._on_failure = engine, send, on_failure
        self._sessions: dict[int, EngineSession] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
        """By session, which has one at a time."""

    def ask(self, asked: AskReply) -> None:
        """Begin a reply; the answer is sent to the worker."""
        if asked.session not in self._sessions:
            self._sessions[asked.session] = self._engine.session(asked.key)
        self._under_way[asked.session] = asyncio.create_task(self._reply(asked))

    def close_session(self, number: int) -> None:
        if (task := self._under_way.pop(number, None)) is not None:
            task.cancel()
        if (session := self._sessions.pop(number, None)) is not None:
            session.close()

    def close(self) -> None:
        for number in list(self._sessions):
            self.close_session(number)

    async def _reply(self, asked: AskReply) -> None:
        session = self._sessions[asked.session]
        use_clock(_ClockThere(asked.number, self._send))
        try:
            completion = await session.generate(
                ids_from_bytes(asked.new_ids), params_of(asked.params)
            )
            answer = reply_of(asked.number, completion)
        except EngineError as error:
            answer = Reply(asked.number, b"", b"", False, 0, plain_engine_error(error))
        except Exception as error:  # noqa: BLE001 - the task is nobody's, so the episode's fails
            self._on_failure(error)
            return
        self._under_way.pop(asked.session, None)
        self._send(answer)


class _ClockThere:
    """The clock of an episode that a worker plays, which waits for a reply."""

    def __init__(self, number: int, send: Callable[[object], None]) -> None:
        self._number, self._send = number, send

    @property
    def seconds(self) -> float:
        return time.monotonic()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self._send(Waits(self._number, True))
        try:
            yield
        finally:
            self._send(Waits(self._number, False))
