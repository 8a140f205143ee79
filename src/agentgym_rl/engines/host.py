"""The host side of both native engines: sessions, requests, the queue and its thread.

One thread computes. An engine defines how a batch is computed (`_advance`) and what a session holds
(`_free`); queueing, deadlines, closing, failing and publishing are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.base import ContextFullError, Engine, EngineDiedError, EngineSession
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 30.0
"""For the current pass when the engine is closed."""

_TOKENS_BEFORE_STOP = 8
"""Decoded with those of a stop text: the first may be part of a character, or lose a space."""


class HostSession(EngineSession):
    """The context of one episode. All state but `is_closed` belongs to the engine's thread."""

    def __init__(self, engine: HostEngine[Self], key: int) -> None:
        self._engine = engine
        self.key = key
        self.context: list[int] = []
        self.num_cached = 0
        self.is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        return await self._engine.submit(self, new_ids, params)

    def close(self) -> None:
        self._engine.release(self)

    @property
    def num_pending(self) -> int:
        """Tokens of the context whose keys and values are not cached."""
        return len(self.context) - self.num_cached


SessionT = TypeVar("SessionT", bound=HostSession)


@dataclass(slots=True, eq=False)
class Request(Generic[SessionT]):
    """One reply being sampled."""

    session: SessionT
    params: SamplingParams
    future: asyncio.Future[Completion]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class HostEngine(Engine, Generic[SessionT]):
    """Batches the requests of all sessions in one thread."""

    def __init__(self, policy: Policy, config: NativeEngineConfig) -> None:
        self._model = policy.model
        self._config = config
        self._max_context = policy.max_context
        self._stop_ids = policy.stop_token_ids
        self._decode = policy.renderer.decode_reply
        self._version = 0
        self._waiting: list[Request[SessionT]] = []
        self._active: list[Request[SessionT]] = []
        self._to_release: list[SessionT] = []
        self._orders: list[Callable[[], None]] = []
        """Calls for the engine's thread before its next pass, with the lock held."""
        self._changed = threading.Condition()
        self._is_stopping = False
        self._death: BaseException | None = None
        """What ended the engine's thread."""
        self._thread = threading.Thread(target=self._run, name="native-engine", daemon=True)

    @abstractmethod
    def session(self, key: int) -> SessionT: ...

    @abstractmethod
    def _advance(self) -> None:
        """Compute something for the active requests; an exception ends the engine."""

    @abstractmethod
    def _free(self, session: SessionT) -> None:
        """Release what a closed session holds. The lock is held."""

    def publish(self, version: int) -> None:
        with self._changed:
            self._refuse_dead()
            self._refuse_while_sampling("weights were published")
            self._version = version

    def close(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(_CLOSE_TIMEOUT_S)
        frame = sys._current_frames().get(self._thread.ident or 0)
        if self._thread.is_alive() and frame is not None:
            logger.warning(
                "the engine's thread has not ended within %g s of being closed and is abandoned; "
                "it is at:\n%s",
                _CLOSE_TIMEOUT_S,
                "".join(traceback.format_stack(frame)),
            )

    async def submit(
        self, session: SessionT, new_ids: Sequence[int], params: SamplingParams
    ) -> Completion:
        """Queue a request and wait for its reply."""
        assert new_ids or session.context, "a reply needs a context"
        if session.is_closed:
            raise EngineError("generate was called on a closed session")
        loop = asyncio.get_running_loop()
        request = Request(session, params, loop.create_future())
        with self._changed:
            if self._is_stopping:
                raise EngineError("the engine is closed")
            self._refuse_dead()
            session.context.extend(new_ids)
            self._waiting.append(request)
            self._changed.notify()
        # A timer costs a fraction of `wait_for` or `timeout`.
        deadline = loop.call_later(self._config.timeout_s, self._expire, request)
        try:
            return await request.future
        finally:
            deadline.cancel()

    def _expire(self, request: Request[SessionT]) -> None:
        """Give up a request that takes too long; on its event loop."""
        self.release(request.session)
        error = EngineError(f"no reply within engine.timeout_s={self._config.timeout_s}")
        _settle([(request.future, error)])

    def release(self, session: SessionT) -> None:
        """Close a session; the engine's thread frees what it holds before the next pass."""
        with self._changed:
            if not session.is_closed:
                session.is_closed = True
                self._to_release.append(session)
                self._changed.notify()

    def _run(self) -> None:
        """Serve until the engine is closed; a failure is reported to all who wait."""
        try:
            self._serve()
        except BaseException as error:  # nothing else would report it
            logger.exception("the engine's thread died")
            with self._changed:
                self._death = error
                self._fail(self._waiting + self._active, _died(error))
                self._waiting = []

    def _refuse_dead(self) -> None:
        """Raise if the engine's thread has died. The lock is held."""
        if self._death is not None:
            raise _died(self._death)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not (self._has_work or self._is_stopping):
                    self._changed.wait()
                if self._is_stopping:
                    self._fail(self._waiting + self._active, EngineError("the engine was closed"))
                    return
                self._take_in()
            if self._active:
                self._advance()

    @property
    def _has_work(self) -> bool:
        return bool(self._waiting or self._active or self._to_release or self._orders)

    def _take_in(self) -> None:
        """Free closed sessions, carry out orders, admit waiting requests. The lock is held."""
        for session in self._to_release:
            self._free(session)
        self._to_release = []
        for order in self._orders:
            order()
        self._orders = []
        self._active += self._waiting
        self._waiting = []
        closed = [request for request in self._active if request.session.is_closed]
        self._fail(closed, EngineError("the session was closed while its reply was being sampled"))

    def _refuse_while_sampling(self, what_happened: str) -> None:
        """Raise if anyone waits for a reply. The lock is held."""
        # The request of a closed session leaves with the next pass.
        if any(not request.session.is_closed for request in self._waiting + self._active):
            raise EngineError(f"{what_happened} while replies were being sampled")

    def _is_finished(self, request: Request[SessionT]) -> bool:
        return len(request.token_ids) >= request.params.max_tokens or self._is_stopped(request)

    def _is_stopped(self, request: Request[SessionT]) -> bool:
        if request.token_ids[-1] in self._stop_ids:
            return True
        texts = request.params.stop
        if not texts:
            return False
        # A token has at least one byte, and earlier tokens have been checked already.
        num_tokens = max(len(text.encode()) for text in texts) + _TOKENS_BEFORE_STOP
        tail = self._decode(request.token_ids[-num_tokens:])
        return any(text in tail for text in texts)

    def _finish(self, requests: list[Request[SessionT]]) -> None:
        # Dropped first: whoever publishes after the answer must find no reply under way.
        self._drop(requests)
        completions = [
            Completion(
                token_ids=tuple(request.token_ids),
                logprobs=tuple(request.logprobs),
                is_stopped=self._is_stopped(request),
                version=self._version,
            )
            for request in requests
        ]
        self._answer(list(zip(requests, completions, strict=True)))

    def _fail(self, requests: list[Request[SessionT]], error: EngineError) -> None:
        self._drop(requests)
        self._answer([(request, error) for request in requests])

    def _answer(
        self, answers: Sequence[tuple[Request[SessionT], Completion | EngineError]]
    ) -> None:
        """Hand answers to the event loops of their requests, waking each loop once."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
        for request, answer in answers:
            by_loop.setdefault(request.future.get_loop(), []).append((request.future, answer))
        for loop, of_loop in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_settle, of_loop)

    def _drop(self, requests: list[Request[SessionT]]) -> None:
        dropped = set(requests)
        self._active = [request for request in self._active if request not in dropped]


def context_is_full(length: int, max_context: int) -> ContextFullError:
    """Return the error of a context without room for another token."""
    return ContextFullError(
        f"a context of {length} tokens leaves no room in the model's {max_context}"
    )


def _died(cause: BaseException) -> EngineDiedError:
    error = EngineDiedError(f"the engine's thread died: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


def generation_failed(error: Exception) -> EngineError:
    """Return the error of all requests in a failed pass."""
    failure = EngineError(f"generation failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


NOT_FINITE = "the model's probabilities are not finite; its weights may be broken"


_Answer = tuple[asyncio.Future[Completion], Completion | EngineError]


def _settle(answers: list[_Answer]) -> None:
    """Settle the futures that are still awaited; on their event loop."""
    for future, answer in answers:
        if future.done():
            continue
        if isinstance(answer, Completion):
            future.set_result(answer)
        else:
            future.set_exception(answer)
