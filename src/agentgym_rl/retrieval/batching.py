"""Searches of many requests as few calls of a back end.

While one call runs, what arrives waits and then goes together: an encoder on a GPU takes 64 queries
in hardly more time than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agentgym_rl.errors import EnvBusyError
from agentgym_rl.retrieval.base import Hit, Retriever

_MAX_BATCH_QUERIES = 512
_MAX_WAITING = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _PendingSearch:
    queries: Sequence[str]
    topk: int
    answer: asyncio.Future[list[list[Hit]]]


class Batcher:
    """Puts requests together, calls the back end on a thread of its own, and parts the answers."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retriever")
        self._waiting: list[_PendingSearch] = []
        self._worker: asyncio.Task[None] | None = None

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return what the back end finds. Raises what it raises; EnvBusyError for too many."""
        if len(self._waiting) >= _MAX_WAITING:
            raise EnvBusyError(f"{_MAX_WAITING} requests wait already")
        answer: asyncio.Future[list[list[Hit]]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingSearch(queries, topk, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await answer

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._take()
            queries = [query for request in batch for query in request.queries]
            topk = batch[0].topk
            try:
                found = await loop.run_in_executor(
                    self._thread, self._retriever.search, queries, topk
                )
            except Exception as error:  # noqa: BLE001 - every request gets the failure
                for request in batch:
                    _settle(request, error)
            else:
                results = iter(found)
                for request in batch:
                    _settle(request, [next(results) for _ in request.queries])
        self._worker = None

    def _take(self) -> list[_PendingSearch]:
        """Return the requests of the next call: those that want as many hits as the first."""
        topk, size = self._waiting[0].topk, 0
        batch: list[_PendingSearch] = []
        for request in self._waiting:
            fits = not batch or size + len(request.queries) <= _MAX_BATCH_QUERIES
            if request.topk == topk and fits:
                batch.append(request)
                size += len(request.queries)
        taken = set(batch)
        self._waiting = [request for request in self._waiting if request not in taken]
        return batch


def _settle(request: _PendingSearch, answer: list[list[Hit]] | Exception) -> None:
    if request.answer.done():  # who waited has gone
        return
    if isinstance(answer, Exception):
        request.answer.set_exception(answer)
    else:
        request.answer.set_result(answer)
