"""The native engine: generation in this process with the learner's own weights.

One thread computes. Each pass takes whatever is waiting, one token of every reply that is being
sampled and the new tokens of every request that has just arrived, packed into one row without
padding. No request waits for another to finish. Between the rounds of an episode its keys and
values stay, so that only new tokens are computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.kv_cache import CachedBatch, CacheSpan, KeyValueCache
from agentgym_rl.engines.sampling import draw, uniform
from agentgym_rl.errors import EngineError
from agentgym_rl.models.forward import packed_logits
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import Completion, SamplingParams

# Matrix products of fewer rows, or of a number of rows that is no multiple of this, take other code
# paths in the CPU's libraries, whose rounding differs: a batch is filled up with idle rows. That
# makes results independent of the batch for matrices as narrow as the tiny model's; in wider ones
# the last bit may still differ.
_ROWS_STEP = 16


@dataclass(slots=True)
class _Request:
    """One reply being sampled."""

    session: NativeSession
    params: SamplingParams
    future: asyncio.Future[Completion]
    loop: asyncio.AbstractEventLoop
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class NativeSession(EngineSession):
    """Context of one episode. All state but `is_closed` belongs to the engine's thread."""

    def __init__(self, engine: NativeEngine, key: int) -> None:
        self._engine = engine
        self.key = key
        self.context: list[int] = []
        self.num_cached = 0
        self.slot: int | None = None
        self.is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        return await self._engine.submit(self, new_ids, params)

    def close(self) -> None:
        self._engine.release(self)


class NativeEngine(Engine):
    """Batches the requests of all sessions; see the top of the file."""

    def __init__(self, policy: Policy, config: NativeEngineConfig) -> None:
        self._model = policy.model
        self._config = config
        self._max_context = policy.max_context
        self._stop_ids = policy.stop_token_ids
        self._cache = KeyValueCache(
            policy.model.config, dtype=policy.model.dtype, device=policy.model.device
        )
        self._version = 0
        self._waiting: list[_Request] = []
        self._active: list[_Request] = []
        self._to_release: list[NativeSession] = []
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="native-engine", daemon=True)
        self._thread.start()

    def session(self, key: int) -> NativeSession:
        return NativeSession(self, key)

    def publish(self, version: int) -> None:
        with self._changed:
            # A closed session's request leaves with the next pass; nobody gets its reply.
            if any(not request.session.is_closed for request in self._waiting + self._active):
                raise EngineError("weights were published while replies were being sampled")
            self._version = version

    def close(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    async def submit(
        self, session: NativeSession, new_ids: Sequence[int], params: SamplingParams
    ) -> Completion:
        """Queue a request and wait for its reply."""
        assert new_ids or session.context, "a reply needs a context"
        if session.is_closed:
            raise EngineError("generate was called on a closed session")
        loop = asyncio.get_running_loop()
        request = _Request(session, params, loop.create_future(), loop)
        with self._changed:
            if self._is_stopping:
                raise EngineError("the engine is closed")
            session.context.extend(new_ids)
            self._waiting.append(request)
            self._changed.notify()
        try:
            return await asyncio.wait_for(request.future, self._config.timeout_s)
        except TimeoutError:
            self.release(session)
            raise EngineError(
                f"no reply within engine.timeout_s={self._config.timeout_s}"
            ) from None

    def release(self, session: NativeSession) -> None:
        """Drop a session; the engine's thread frees its slot before the next pass."""
        with self._changed:
            if not session.is_closed:
                session.is_closed = True
                self._to_release.append(session)
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._active or self._to_release or self._is_stopping):
                    self._changed.wait()
                if self._is_stopping:
                    self._fail(self._waiting + self._active, EngineError("the engine was closed"))
                    return
                self._take_in()
            if self._active:
                self._advance()

    def _take_in(self) -> None:
        """Free what was released and admit what is waiting. The lock is held."""
        for session in self._to_release:
            if session.slot is not None:
                self._cache.give_back(session.slot)
        self._to_release = []
        self._active += self._waiting
        self._waiting = []
        closed = [request for request in self._active if request.session.is_closed]
        self._fail(closed, EngineError("the session was closed while its reply was being sampled"))

    def _advance(self) -> None:
        """Run one pass; a failure ends the requests in it, never the engine."""
        for request in self._active:
            self._check(request)
        batch = self._choose()
        if not batch:
            return
        try:
            with torch.inference_mode():
                self._compute(batch)
        except Exception as error:  # noqa: BLE001 - whatever fails, the requests must hear of it
            failure = EngineError(f"generation failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(batch, failure)

    def _choose(self) -> list[_Request]:
        """Return the requests of the next pass: replies under way, then new ones as they came.

        The token budget limits the new ones, but the oldest always goes: none waits for ever.
        """
        batch = [request for request in self._active if _num_pending(request.session) == 1]
        arrived = [request for request in self._active if _num_pending(request.session) > 1]
        budget = self._config.max_batch_tokens
        for request in arrived:
            budget -= _num_pending(request.session)
            if budget < 0 and request is not arrived[0]:
                break
            batch.append(request)
        return batch

    def _compute(self, batch: list[_Request]) -> None:
        spans = self._make_spans([request.session for request in batch])
        num_rows = _round_up(sum(span.length for span in spans))
        ids, positions = [0] * num_rows, [0] * num_rows
        for request, span in zip(batch, spans, strict=True):
            end = span.start + span.length
            ids[span.start : end] = request.session.context[span.past :]
            positions[span.start : end] = range(span.past, span.past + span.length)
        last = [span.start + span.length - 1 for span in spans]
        keep = last + [0] * (_round_up(len(last)) - len(last))
        layout = CachedBatch(self._cache, spans)
        logits = packed_logits(
            self._model,
            torch.tensor(ids),
            torch.tensor(positions),
            torch.tensor(keep),
            layout=layout,
        )[: len(batch)]
        tokens, logprobs = draw(
            logits,
            [request.params.temperature for request in batch],
            [uniform(request.session.key, len(request.session.context)) for request in batch],
        )
        if not torch.isfinite(logprobs).all():
            raise EngineError("the model's probabilities are not finite; its weights may be broken")
        for request, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
            self._accept(request, token, logprob)
        finished = [request for request in batch if self._is_finished(request)]
        # Dropped before anyone hears of it: who publishes next must find no reply under way.
        self._drop(finished)
        for request in finished:
            self._answer(request)

    def _check(self, request: _Request) -> None:
        """Fail a request whose context is full; the others go on."""
        length = len(request.session.context)
        if length >= self._max_context:
            error = (
                f"a context of {length} tokens leaves no room in the model's {self._max_context}"
            )
            self._fail([request], EngineError(error))

    def _make_spans(self, sessions: list[NativeSession]) -> list[CacheSpan]:
        self._cache.make_room(max(len(session.context) for session in sessions))
        spans: list[CacheSpan] = []
        start = 0
        for session in sessions:
            if session.slot is None:
                session.slot = self._cache.take_slot()
            span = CacheSpan(session.slot, start, _num_pending(session), session.num_cached)
            spans.append(span)
            start += span.length
        return spans

    def _accept(self, request: _Request, token: int, logprob: float) -> None:
        session = request.session
        session.num_cached = len(session.context)
        session.context.append(token)
        request.token_ids.append(token)
        request.logprobs.append(logprob)
        if self._is_finished(request) and not self._config.keep_cache:
            session.num_cached = 0

    def _answer(self, request: _Request) -> None:
        completion = Completion(
            token_ids=tuple(request.token_ids),
            logprobs=tuple(request.logprobs),
            is_stopped=request.token_ids[-1] in self._stop_ids,
            version=self._version,
        )
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            request.loop.call_soon_threadsafe(_resolve, request.future, completion)

    def _is_finished(self, request: _Request) -> bool:
        return (
            len(request.token_ids) >= request.params.max_tokens
            or request.token_ids[-1] in self._stop_ids
        )

    def _drop(self, requests: list[_Request]) -> None:
        dropped = set(map(id, requests))
        self._active = [request for request in self._active if id(request) not in dropped]

    def _fail(self, requests: list[_Request], error: EngineError) -> None:
        self._drop(requests)
        for request in requests:
            # A loop that is closed has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                request.loop.call_soon_threadsafe(_reject, request.future, error)


def _num_pending(session: NativeSession) -> int:
    return len(session.context) - session.num_cached


def _resolve(future: asyncio.Future[Completion], completion: Completion) -> None:
    if not future.done():
        future.set_result(completion)


def _reject(future: asyncio.Future[Completion], error: EngineError) -> None:
    if not future.done():
        future.set_exception(error)


def _round_up(rows: int) -> int:
    return -(-rows // _ROWS_STEP) * _ROWS_STEP
