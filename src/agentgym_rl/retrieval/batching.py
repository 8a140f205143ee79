"""Combines the searches of many requests into a few calls of a back end.

Requests that arrive during a call wait and share the next one: an encoder on a GPU takes 64 queries
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
    """Calls the back end on its own thread, and gives each request its share of the results."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="retriever")
        self._waiting: list[_PendingSearch] = []
        self._worker: asyncio.Task[None] | None = None

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return the hits. Raises what the back end raises, and EnvBusyError if too many wait."""
        if len(self._waiting) >= _MAX_WAITING:
            raise EnvBusyError(f"{_MAX_WAITING} requests are already waiting: try again later")
        answer: asyncio.Future[list[list[Hit]]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingSearch(queries, topk, answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await answer

    def close(self) -> None:
        """Release the thread."""
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
        """Return the requests of the next call: those with the topk of the first."""
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
    if request.answer.done():  # its client has left
        return
    if isinstance(answer, Exception):
        request.answer.set_exception(answer)
    else:
        request.answer.set_result(answer)
