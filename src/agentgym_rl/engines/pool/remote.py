"""A process elsewhere as the controller sees it: requests, answers, deadlines and its end.

One that does not answer in time hangs: it is killed, and its end is reported like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic

from agentgym_rl.engines.base import ContextFullError, EngineSession
from agentgym_rl.engines.channels.delivery import Delivery
from agentgym_rl.engines.pool.line import Line, StartEngine, StartLine
from agentgym_rl.engines.pool.messages import (
    Answer,
    Ask,
    CloseSession,
    EnginePlan,
    Ready,
    Rest,
    TakeWeights,
    Value,
    ValueT,
)
from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 1800.0
"""Enough to load any model; a process that ends is noticed at once."""
_GRACE_S = 5.0
"""What a request may take beyond the engine's own deadline before the engine counts as hung."""

_MAX_FAILED = 3
"""Replies in a row that failed, each asked for after the failure of the one before. An engine
that fails fast, its GPU lost to its process, is the least loaded and would get them all."""

_Waiting = asyncio.Future[ValueT] | Future[ValueT]


class RemoteProcess(Generic[ValueT]):
    """Is made at once; the answer number 0 says that it is ready."""

    def __init__(
        self, name: str, start: StartLine, *, on_end: Callable[[RemoteProcess[ValueT]], None]
    ) -> None:
        """`on_end` is called once, from a thread of the line, unless the process was closed."""
        self.name = name
        self._on_end = on_end
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._start: Future[ValueT] = Future()
        self._waiting: dict[int, _Waiting[ValueT]] = {0: self._start}
        self._death = ""
        self._is_closed = self._is_killed = False
        self.line: Line = start(self._on_messages, self._ended)

    @property
    def death(self) -> str:
        """How it ended; empty while it lives."""
        return self._death

    @property
    def is_alive(self) -> bool:
        return not (self._death or self._is_killed)

    @property
    def is_ready(self) -> bool:
        return self.is_alive

    def result(self, future: Future[ValueT], timeout_s: float, what: str) -> ValueT:
        """Wait for the answer to an order; a process that is late is killed."""
        try:
            return future.result(timeout_s)
        except TimeoutError:
            self._hangs(what)
            raise EngineError(f"{self.name} did not {what} within {timeout_s:g} s") from None

    def kill(self) -> None:
        """End it at once: it is asked no more, and `on_end` is called when it has ended."""
        self._is_killed = True
        self.line.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended. Safe to repeat."""
        self._is_closed = True
        self.line.close()

    def _order(self, message: Callable[[int], object]) -> Future[ValueT]:
        future: Future[ValueT] = Future()
        self.line.send(message(self._register(future)))
        return future

    def _register(self, future: _Waiting[ValueT]) -> int:
        with self._lock:
            if not self.is_alive:
                raise EngineError(self._death or f"{self.name} has been ended")
            number = next(self._numbers)
            self._waiting[number] = future
            return number

    def _forget(self, number: int) -> None:
        """Wait no more for an answer."""
        with self._lock:
            self._waiting.pop(number, None)

    def _hangs(self, what: str) -> None:
        if self.is_alive:
            logger.warning("%s does not answer (%s) and is killed", self.name, what)
            self.kill()

    def _on_messages(self, messages: Sequence[object]) -> None:
        answers = [message for message in messages if isinstance(message, Answer)]
        with self._lock:
            found = [(self._waiting.pop(answer.number, None), answer.value) for answer in answers]
        _settle([(future, value) for future, value in found if future is not None])

    def _ended(self, how: str) -> None:
        with self._lock:
            self._death = (
                f"{self.name} was closed" if self._is_closed else f"{self.name} ended: {how}"
            )
            waiting, self._waiting = self._waiting, dict[int, _Waiting[ValueT]]()
        try:
            if not self._is_closed:
                self._on_end(self)  # first, so that what fails now begins again elsewhere
        finally:
            _settle([(future, EngineError(self._death)) for future in waiting.values()])


class RemoteEngine(RemoteProcess[Value]):
    """An engine elsewhere; `ready` waits until it is built."""

    def __init__(
        self, plan: EnginePlan, start: StartEngine, *, on_end: Callable[[RemoteEngine], None]
    ) -> None:
        self.max_context: int | None = None
        self._timeout_s = plan.engine.timeout_s
        self._num_failed = self._num_failed_in_a_row = 0
        super().__init__(
            plan.folder.name, partial(start, plan), on_end=lambda _process: on_end(self)
        )

    def session(self, key: int) -> RemoteSession:
        return RemoteSession(self, key)

    def ready(self) -> None:
        """Wait until the engine is built; raises EngineError if it cannot be."""
        value = self.result(self._start, START_TIMEOUT_S, "start")
        assert isinstance(value, Ready), "the first answer"
        self.max_context = value.max_context

    async def reply(
        self, session: RemoteSession, new_ids: Sequence[int], params: SamplingParams
    ) -> Completion:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Value] = loop.create_future()
        num_failed, number = self._num_failed, self._register(future)
        self.line.send(Ask(number, session.number, session.key, new_ids, params))
        limit = loop.call_later(self._timeout_s + _GRACE_S, self._hangs, "reply")
        try:
            value = await future
        except EngineError as error:
            if not (session.is_closed or isinstance(error, ContextFullError)):
                self._note_failure(num_failed, error)
            raise
        finally:
            limit.cancel()
            self._forget(number)
        assert isinstance(value, Completion), "an answer to `Ask`"
        self._num_failed_in_a_row = 0
        return value

    def take_weights(self, version: int, delivery: Delivery, rank: int) -> Future[Value]:
        """Ask for it; `result` waits for the engine's `Taken`."""
        return self._order(lambda number: TakeWeights(number, version, delivery, rank))

    def begin_update(self) -> None:
        """Its weights are its own: the learner may change those here."""

    def rest(self) -> None:
        """Release memory until the next reply or weights; raises EngineError if it cannot."""
        self.result(self._order(Rest), self._timeout_s + _GRACE_S, "rest")

    def take_metrics(self) -> dict[str, float]:
        return {}

    def close_session(self, number: int) -> None:
        if self.is_alive:
            self.line.send(CloseSession(number))

    def _note_failure(self, num_failed_before: int, error: EngineError) -> None:
        """Count a failed reply, and end an engine that has no other; replies of one pass, which
        fail together, count once."""
        with self._lock:
            if num_failed_before < self._num_failed:
                return
            self._num_failed += 1
            self._num_failed_in_a_row += 1
        if self._num_failed_in_a_row >= _MAX_FAILED and self.is_alive:
            logger.warning("%s fails all replies (the last: %s) and is replaced", self.name, error)
            self.kill()


class RemoteSession(EngineSession):
    """The context of one episode, which the engine keeps."""

    _numbers = itertools.count(1)

    def __init__(self, engine: RemoteEngine, key: int) -> None:
        self._engine, self.key = engine, key
        self.number = next(self._numbers)
        self._is_open = self.is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        assert new_ids or self._is_open, "a reply needs a context"
        if self.is_closed:
            raise EngineError("generate was called on a closed session")
        self._is_open = True
        return await self._engine.reply(self, new_ids, params)

    def close(self) -> None:
        if self._is_open and not self.is_closed:
            self._engine.close_session(self.number)
        self.is_closed = True


def _settle(answers: Sequence[tuple[_Waiting[ValueT], ValueT | EngineError]]) -> None:
    """Hand answers to those who wait, waking each event loop once."""
    by_loop: dict[
        asyncio.AbstractEventLoop, list[tuple[_Waiting[ValueT], ValueT | EngineError]]
    ] = {}
    for future, value in answers:
        if isinstance(future, Future):
            _set(future, value)
        else:
            by_loop.setdefault(future.get_loop(), []).append((future, value))
    for loop, of_loop in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(_set_all, of_loop)


def _set_all(answers: Sequence[tuple[_Waiting[ValueT], ValueT | EngineError]]) -> None:
    for future, value in answers:
        _set(future, value)


def _set(future: _Waiting[ValueT], value: ValueT | EngineError) -> None:
    if future.done():
        return
    if isinstance(value, EngineError):
        future.set_exception(value)
    else:
        future.set_result(value)
