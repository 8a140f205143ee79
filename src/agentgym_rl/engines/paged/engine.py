"""The native engine on a GPU: generation in this process with the learner's own weights.

Each launch is one pass over as many waiting prompts as fit, and then a few tokens for every reply
under way. The host prepares a launch while the previous one is computed, and reads the tokens of a
launch only when the next is under way: it never waits for a token.

Keys and values are in pages. All pages that a reply may need are reserved before it begins, and
unused ones are released when it ends. Between rounds a session keeps its pages unless others need
them: then the session that has waited longest for its environment loses its pages, and they are
recomputed from the context's exact tokens when it returns. Contexts with the same beginning (the
prompt of a group) share pages and computation.

Publishing weights invalidates the whole cache: open sessions are recomputed with the new weights at
their next reply.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.host import (
    NOT_FINITE,
    HostEngine,
    Request,
    context_is_full,
    generation_failed,
)
from agentgym_rl.engines.paged.batch_pass import CacheShape
from agentgym_rl.engines.paged.device_rows import NO_TOKEN, NewRow
from agentgym_rl.engines.paged.pages import PAGE_SIZE, PagePool, pages_for
from agentgym_rl.engines.paged.runner import Chunk, PagedRunner, RunnerOptions
from agentgym_rl.engines.paged.session import Launch, PagedSession, RowReply, have_cuts, new_row
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy

MAX_ROWS = 1024
STEPS_PER_LAUNCH = 4
_SWITCH_INTERVAL_S = 2e-4
_LOOK_S = 1.0
"""How often a caller that waits for the engine's thread checks that it lives."""


class PagedEngine(HostEngine[PagedSession]):
    """Batches the requests of all sessions; see the top of the file.

    On a GPU, free memory decides `num_pages`. On a CPU, for tests, nothing is recorded or compiled,
    and attention is the reference implementation.
    """

    def __init__(
        self,
        policy: Policy,
        config: NativeEngineConfig,
        *,
        num_pages: int | None = None,
        max_rows: int = MAX_ROWS,
        steps_per_launch: int = STEPS_PER_LAUNCH,
    ) -> None:
        super().__init__(policy, config)
        is_cuda = policy.model.device.type == "cuda"
        self._num_pages = num_pages or _affordable_pages(policy, config, max_rows)
        self._steps_per_launch = steps_per_launch
        embeddings_VH = policy.model.get_input_embeddings().weight
        assert isinstance(embeddings_VH, Tensor), "an embedding has a matrix"
        self._vocab_size = len(embeddings_VH)
        self._ends = self._stop_ids | {NO_TOKEN}
        self._pool = PagePool(self._num_pages)
        self._free_rows = list(range(max_rows - 1, -1, -1))
        self._holders = OrderedDict[PagedSession, None]()
        """Sessions that hold pages, the least recently used first."""
        self._in_flight: deque[Launch] = deque()
        options = RunnerOptions(
            num_pages=self._num_pages,
            max_rows=max_rows,
            max_batch_tokens=config.max_batch_tokens,
            max_steps=steps_per_launch,
            is_compiled=config.compile and is_cuda,
            uses_graphs=is_cuda,
        )
        self._runner = PagedRunner(policy, options)
        if is_cuda:
            # Every call of torch lets other threads (environments, the event loop) run, and each
            # may keep the interpreter this long while the GPU waits for its next launch.
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        self._thread.start()

    def session(self, key: int) -> PagedSession:
        return PagedSession(self, key)

    def publish(self, version: int) -> None:
        with self._changed:
            super().publish(version)
            # What this thread has launched, such as the update, comes before the next pass.
            graphs = self._runner.graphs
            self._orders += [partial(graphs.wait_for, graphs.others()), self._forget_everything]

    def rest(self) -> None:
        """Release the memory of keys and values until the next reply; sessions stay open.

        Raises EngineError while replies are being sampled.
        """
        self._hand_over(self._give_cache_back, "the cache was given back")

    def _serve(self) -> None:
        with self._runner.graphs.on_stream():
            super()._serve()

    def _hand_over(self, order: Callable[[], None], what_happened: str) -> None:
        """Make the engine's thread do something while no reply is awaited, and wait for it."""
        done = threading.Event()
        failures: list[Exception] = []

        def obey() -> None:
            try:
                order()
            except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
                failures.append(error)
            done.set()

        with self._changed:
            if self._is_stopping:
                raise EngineError("the engine is closed")
            self._refuse_dead()
            self._refuse_while_sampling(what_happened)
            self._orders.append(obey)
            self._changed.notify()
        deadline = time.monotonic() + self._config.timeout_s
        while not done.wait(min(_LOOK_S, self._config.timeout_s)) and time.monotonic() < deadline:
            with self._changed:
                self._refuse_dead()
        if not done.is_set():
            raise EngineError(f"{what_happened}, but not within {self._config.timeout_s} s")
        if failures:
            raise EngineError(f"{what_happened}, which failed: {failures[0]}") from failures[0]

    def _give_cache_back(self) -> None:
        self._forget_everything()
        self._runner.give_memory_back()

    def _free(self, session: PagedSession) -> None:
        if session.reply is not None:
            self._end(session.reply)
        self._drop_pages(session)

    def _advance(self) -> None:
        """Launch what is possible, then read the previous launch; a failure ends no engine."""
        try:
            with torch.inference_mode():
                launch = self._launch()
                if launch.event is not None or launch.started or launch.decoded:
                    self._in_flight.append(launch)
                    if len(self._in_flight) < 2:
                        return
                if self._in_flight:
                    self._collect(self._in_flight.popleft())
        except Exception as error:  # noqa: BLE001 - every request gets the failure
            # The state that the pass has left behind is unknown.
            requests = list(self._active)
            for request in requests:
                if request.session.reply is not None:
                    self._end(request.session.reply)
            self._in_flight.clear()
            self._forget_everything()
            self._fail(requests, generation_failed(error))

    def _launch(self) -> Launch:
        """Launch one pass over prompts, and a few tokens of every reply under way."""
        launch = Launch()
        new_rows: list[NewRow] = []
        chunks = self._plan(launch, new_rows)
        # While prompts fill whole passes, decoding many tokens for the few replies that are ready
        # would cost more than it gains: they get one token per pass.
        has_more_prompts = sum(len(chunk.ids) for chunk in chunks) == self._config.max_batch_tokens
        if new_rows:
            self._runner.admit(new_rows)
        if chunks:
            launch.first = self._runner.prefill(chunks, has_cuts=have_cuts(launch.started))
        replies = [request.session.reply for request in self._active]
        launch.decoded = [reply for reply in replies if reply is not None and reply.is_decoding]
        if launch.decoded:
            most = max(reply.max_tokens - reply.num_launched for reply in launch.decoded)
            num_steps = 1 if has_more_prompts else min(self._steps_per_launch, most)
            launch.later = self._runner.decode(
                [reply.row for reply in launch.decoded],
                num_steps,
                has_cuts=have_cuts(launch.decoded),
            )
            for reply in launch.decoded:
                reply.num_launched += num_steps
        if chunks or launch.decoded:
            launch.event = self._runner.graphs.mark()
        return launch

    def _plan(self, launch: Launch, new_rows: list[NewRow]) -> list[Chunk]:
        """Return the chunks of the next prompt pass, oldest requests first.

        A request is admitted when its first chunk is planned: it then finds the pages of earlier
        requests, even in the same pass.
        """
        chunks: list[Chunk] = []
        budget = self._config.max_batch_tokens
        max_chunks = self._runner.max_chunks
        for request in list(self._active):
            if not budget or len(chunks) == max_chunks:
                break
            reply = request.session.reply
            if reply is None:
                if self._refuse(request):
                    continue
                reply = self._admit(request)
                if reply is None:
                    break
                new_rows.append(new_row(reply))
            if reply.num_planned < reply.num_context:
                chunk = self._next_chunk(reply, budget)
                budget -= len(chunk.ids)
                chunks.append(chunk)
                if chunk.is_last:
                    reply.num_launched = 1
                    launch.started.append(reply)
        return chunks

    def _next_chunk(self, reply: RowReply, budget: int) -> Chunk:
        session, start = reply.request.session, reply.num_planned
        end = min(start + budget, reply.num_context)
        reply.num_planned = end
        self._pool.make_known(session.held, session.context, end)
        is_last = end == reply.num_context
        return Chunk(reply.row, start, session.context[start:end], is_last)

    def _refuse(self, request: Request[PagedSession]) -> bool:
        """Fail a request that can never be answered, and return whether it was one."""
        session, error = request.session, None
        context, num_pages = session.context, self._pages_needed(request)
        new_ids = context[session.num_cached :]
        if len(context) >= self._max_context:
            error = context_is_full(len(context), self._max_context)
        elif not 0 <= min(new_ids) <= max(new_ids) < self._vocab_size:
            error = EngineError(
                f"tokens from {min(new_ids)} to {max(new_ids)} are not all in the model's "
                f"vocabulary of {self._vocab_size}"
            )
        elif num_pages > self._num_pages:
            error = EngineError(
                f"a context of {len(context)} tokens and a reply of up to "
                f"{request.params.max_tokens} need {num_pages} pages of {PAGE_SIZE} tokens, but "
                f"the cache has {self._num_pages}: raise engine.cache_fraction or lower "
                "rollout.max_tokens_per_round"
            )
        if error is not None:
            self._fail([request], error)
        return error is not None

    def _admit(self, request: Request[PagedSession]) -> RowReply | None:
        """Give a request a row and all pages it may need; None if it has to wait."""
        session = request.session
        if not self._free_rows:
            return None
        self._runner.memory.take()
        if not session.held.pages:
            session.held = self._pool.find(session.context)
            session.num_cached = len(session.held.pages) * PAGE_SIZE
        while not self._pool.extend(session.held, self._pages_needed(request)):
            if not self._evict(session):
                if session not in self._holders:
                    self._drop_pages(session)  # found just now, and others may need them
                return None
        self._holders[session] = None
        self._holders.move_to_end(session)
        num_context = len(session.context)
        session.reply = RowReply(
            request,
            row=self._free_rows.pop(),
            num_context=num_context,
            max_tokens=min(request.params.max_tokens, self._max_context - num_context),
            num_planned=session.num_cached,
        )
        return session.reply

    def _pages_needed(self, request: Request[PagedSession]) -> int:
        length = len(request.session.context) + request.params.max_tokens
        return pages_for(min(length, self._max_context))

    def _evict(self, needy: PagedSession) -> bool:
        """Take the pages of a session that is not being sampled; return whether there was one.

        Sessions that wait for their environment lose theirs first, then those that wait for a
        reply, the latest first.
        """
        waiting = [request.session for request in self._active if request.session.reply is None]
        asking = set(waiting)
        idle = (held for held in self._holders if held.reply is None and held not in asking)
        last = (held for held in reversed(waiting) if held in self._holders and held is not needy)
        victim = next(idle, None) or next(last, None)
        if victim is None:
            return False
        self._drop_pages(victim)
        return True

    def _collect(self, launch: Launch) -> None:
        """Read the tokens of a launch, and end the replies that are complete."""
        if launch.event is not None:
            launch.event.synchronize()
        finished: list[Request[PagedSession]] = []
        if launch.first is not None:
            tokens, logprobs = launch.first.tokens.tolist(), launch.first.logprobs.tolist()
            for reply, token, logprob in zip(launch.started, tokens, logprobs, strict=True):
                self._accept(reply, [token], [logprob], finished)
        if launch.later is not None:
            columns = launch.later.tokens.T.tolist(), launch.later.logprobs.T.tolist()
            for reply, tokens, logprobs in zip(launch.decoded, *columns, strict=True):
                self._accept(reply, tokens, logprobs, finished)
        self._finish(finished)

    def _accept(
        self,
        reply: RowReply,
        tokens: list[int],
        logprobs: list[float],
        finished: list[Request[PagedSession]],
    ) -> None:
        """Append sampled tokens to a reply, unless it has ended meanwhile."""
        request = reply.request
        session = request.session
        if session.reply is not reply:
            return
        num_room = reply.max_tokens - len(request.token_ids)
        is_going_on = len(tokens) < num_room and self._ends.isdisjoint(tokens)
        if is_going_on and not request.params.stop and math.isfinite(sum(logprobs)):
            self._append(request, tokens, logprobs)
            return
        for token, logprob in zip(tokens, logprobs, strict=True):
            if token == NO_TOKEN:
                return
            if not math.isfinite(logprob):
                self._end(reply)
                self._drop_pages(session)
                self._fail([request], EngineError(NOT_FINITE))
                return
            self._append(request, [token], [logprob])
            if self._is_finished(request):
                self._end(reply)
                finished.append(request)
                return
            if len(session.context) >= self._max_context:
                self._end(reply)
                self._fail([request], context_is_full(len(session.context), self._max_context))
                return

    def _append(
        self, request: Request[PagedSession], tokens: list[int], logprobs: list[float]
    ) -> None:
        request.session.context += tokens
        request.token_ids += tokens
        request.logprobs += logprobs

    def _end(self, reply: RowReply) -> None:
        """Release the row and the pages that the reply did not need."""
        session = reply.request.session
        session.reply = None
        self._free_rows.append(reply.row)
        if not reply.request.token_ids:
            self._drop_pages(session)
            return
        # The keys and values of the newest token are computed in the next round.
        session.num_cached = len(session.context) - 1
        self._pool.shrink(session.held, pages_for(session.num_cached))
        self._holders.move_to_end(session)

    def _drop_pages(self, session: PagedSession) -> None:
        self._pool.shrink(session.held, 0)
        session.num_cached = 0
        self._holders.pop(session, None)

    def _forget_everything(self) -> None:
        """Drop all keys and values; only while no reply is under way."""
        for session in list(self._holders):
            assert session.reply is None, "a reply under way needs its keys and values"
            self._drop_pages(session)
        self._pool.forget_all()


def _affordable_pages(policy: Policy, config: NativeEngineConfig, max_rows: int) -> int:
    """Return the number of pages: a share of free memory, at most as many as are useful."""
    useful = max_rows * pages_for(policy.max_context)
    device = policy.model.device
    if device.type != "cuda":
        return min(useful, 4096)
    shape = CacheShape.of(policy.model.config.get_text_config(), policy.model.dtype)
    torch.cuda.empty_cache()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    affordable = int(free_bytes * config.cache_fraction) // shape.page_bytes
    if affordable < 1:
        raise EngineError(
            f"{free_bytes} free bytes leave no room for keys and values at "
            f"engine.cache_fraction={config.cache_fraction}: raise it, or free GPU memory"
        )
    return min(useful, affordable)
