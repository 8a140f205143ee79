"""The native engine on a CPU: generation in this process with the learner's own weights.

Each pass takes whatever is waiting, packed into one row: one token of every reply under way, and
the new tokens of every request that has arrived. No request waits for another to finish. Keys and
values stay between the rounds of an episode, so that only new tokens are computed.

Which requests share a pass depends on timing, and must change nothing, not even rounding: a pass is
padded to a number of rows that is known to be safe on this machine (safe_rows.py). For the same
reason, sessions of the same history (lineages.py) are computed once: each draws its own token.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.host import (
    NOT_FINITE,
    HostEngine,
    HostSession,
    Request,
    context_is_full,
    generation_failed,
)
from agentgym_rl.engines.native.arithmetic import Arithmetic, note_arithmetic
from agentgym_rl.engines.native.kv_cache import CachedBatch, CacheSpan, KeyValueCache
from agentgym_rl.engines.native.lineages import FRESH, Lineages
from agentgym_rl.engines.native.safe_rows import rung, safe_head_rows, safe_layer_rows
from agentgym_rl.engines.sampling import cut_rows, draw, uniform
from agentgym_rl.errors import EngineError
from agentgym_rl.models.forward import packed_logits
from agentgym_rl.models.loading import Policy


class NativeSession(HostSession):
    """The context of one episode, with its slot of the cache."""

    slot: int | None = None
    lineage: int = FRESH
    """Of its cached tokens."""

    @property
    def pending(self) -> list[int]:
        """The tokens that the next pass computes."""
        return self.context[self.num_cached :]


class NativeEngine(HostEngine[NativeSession]):
    """Batches the requests of all sessions; `folder` keeps what decides the last bits."""

    def __init__(
        self, policy: Policy, config: NativeEngineConfig, *, folder: Path | None = None
    ) -> None:
        super().__init__(policy, config)
        self._holders: set[NativeSession] = set()
        """Sessions with a slot."""
        self._lineages = Lineages()
        self._cache = KeyValueCache(
            policy.model.config, dtype=policy.model.dtype, device=policy.model.device
        )
        self._rows, self._head_rows = safe_layer_rows(self._model), safe_head_rows(self._model)
        least = max(self._rows.least, self._head_rows.least)
        note_arithmetic(Arithmetic.here(rows=least, is_exact=self.is_exact), folder)
        self._thread.start()

    @property
    def is_exact(self) -> bool:
        """Whether requests that share a pass do not affect each other's results."""
        has_references = self._rows.reference and self._head_rows.reference
        return bool(has_references and self._cache.lengths.is_exact)

    def session(self, key: int) -> NativeSession:
        return NativeSession(self, key)

    def publish(self, version: int) -> None:
        with self._changed:
            super().publish(version)
            self._orders.append(self._forget_everything)

    def _free(self, session: NativeSession) -> None:
        if session.slot is not None:
            self._cache.give_back(session.slot)
            self._holders.discard(session)

    def _forget_everything(self) -> None:
        """Recompute open sessions at their next reply: their cache belongs to old weights."""
        for session in self._holders:
            session.num_cached = 0
            session.lineage = FRESH
        self._lineages = Lineages()

    def _advance(self) -> None:
        """Run one pass; a failure ends its requests, never the engine."""
        for request in self._active:
            length = len(request.session.context)
            if length >= self._max_context:
                self._fail([request], context_is_full(length, self._max_context))
        twins = self._choose()
        if not twins:
            return
        try:
            with torch.inference_mode():
                self._compute(twins)
        except Exception as error:  # noqa: BLE001 - every request gets the failure
            batch = [request for requests in twins for request in requests]
            self._fail(batch, generation_failed(error))

    def _choose(self) -> list[list[Request[NativeSession]]]:
        """Return the requests of the next pass: replies under way, then new ones in order.

        Those in one list are computed once. The token budget limits the new ones, but the oldest
        always goes: none waits for ever.
        """
        batch: dict[int, list[Request[NativeSession]]] = {}
        waiting = [request for request in self._active if request.session.num_pending > 1]
        for request in self._active:
            if request.session.num_pending == 1:
                batch.setdefault(self._lineage_after(request), []).append(request)
        budget = self._config.max_batch_tokens
        for request in waiting:
            lineage = self._lineage_after(request)
            if lineage not in batch:
                budget -= request.session.num_pending
                if budget < 0 and request is not waiting[0]:
                    break
            batch.setdefault(lineage, []).append(request)
        twins = list(batch.values())
        while len(twins) > 1 and not self._fits(twins):
            twins.pop()
        return twins

    def _lineage_after(self, request: Request[NativeSession]) -> int:
        """Return the lineage that the request's session will have after its next pass."""
        return self._lineages.after(request.session.lineage, request.session.pending)

    def _fits(self, twins: list[list[Request[NativeSession]]]) -> bool:
        """Return whether the requests can share a pass without changing their rounding."""
        num_tokens = sum(request.session.num_pending for request, *_ in twins)
        return None not in (self._rows.fit(num_tokens), self._head_rows.fit(len(twins)))

    def _compute(self, twins: list[list[Request[NativeSession]]]) -> None:
        spans = self._make_spans(twins)
        num_tokens = sum(span.length for span in spans)
        # A request that is too long to share a pass is always computed alone.
        num_rows = self._rows.fit(num_tokens) or rung(num_tokens)
        ids, positions = [0] * num_rows, [0] * num_rows
        for (request, *_), span in zip(twins, spans, strict=True):
            end = span.start + span.length
            ids[span.start : end] = request.session.pending
            positions[span.start : end] = range(span.past, span.past + span.length)
        last = [span.start + span.length - 1 for span in spans]
        keep = last + [0] * ((self._head_rows.fit(len(last)) or rung(len(last))) - len(last))
        layout = CachedBatch(self._cache, spans)
        logits = packed_logits(
            self._model,
            torch.tensor(ids),
            torch.tensor(positions),
            torch.tensor(keep),
            layout=layout,
        )
        batch = [request for requests in twins for request in requests]
        rows = [row for row, requests in enumerate(twins) for _ in requests]
        self._draw(batch, logits[rows])

    def _draw(self, batch: list[Request[NativeSession]], logits: Tensor) -> None:
        """Draw the next token of each request from its row, and finish those that end with it."""
        temperatures = [request.params.temperature for request in batch]
        if any(request.params.has_cuts for request in batch):
            cuts = [(p.top_p, p.top_k, p.min_p) for p in (request.params for request in batch)]
            logits = cut_rows(logits, torch.tensor(temperatures), torch.tensor(cuts))
        tokens, logprobs = draw(
            logits,
            temperatures,
            [uniform(request.session.key, len(request.session.context)) for request in batch],
        )
        if not torch.isfinite(logprobs).all():
            raise EngineError(NOT_FINITE)
        for request, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
            session = request.session
            session.lineage = self._lineage_after(request)
            session.num_cached = len(session.context)
            session.context.append(token)
            request.token_ids.append(token)
            request.logprobs.append(logprob)
        self._finish([request for request in batch if self._is_finished(request)])

    def _make_spans(self, twins: list[list[Request[NativeSession]]]) -> list[CacheSpan]:
        """Give sessions slots; return what is computed of each list."""
        sessions = [[request.session for request in requests] for requests in twins]
        self._cache.make_room(max(len(first.context) for first, *_ in sessions))
        spans: list[CacheSpan] = []
        start = 0
        for first, *others in sessions:
            slot, *copies = (self._slot(session) for session in (first, *others))
            span = CacheSpan(slot, start, first.num_pending, first.num_cached, tuple(copies))
            spans.append(span)
            start += span.length
        return spans

    def _slot(self, session: NativeSession) -> int:
        if session.slot is None:
            session.slot = self._cache.take_slot()
            self._holders.add(session)
        return session.slot
