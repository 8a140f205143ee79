"""Remembers searches: the episodes of a group repeat them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.passages import Passage


class CachedRetriever(Retriever):
    """Keeps the results of the last `max_queries` different searches of a retriever.

    Failures are not remembered. Closing it closes the inner retriever.
    """

    def __init__(self, inner: Retriever, *, max_queries: int = 8192) -> None:
        self._inner = inner
        self._max_queries = max_queries
        self._results: OrderedDict[tuple[str, int], list[Hit]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_queries = 0
        self.num_hits = 0

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        with self._lock:
            known = {query: self._recall(query, topk) for query in queries}
            self.num_queries += len(queries)
            self.num_hits += sum(known[query] is not None for query in queries)
        missing = [query for query, hits in known.items() if hits is None]
        if missing:
            found = dict(zip(missing, self._inner.search(missing, topk), strict=True))
            known |= found
            with self._lock:
                self._remember(found, topk)
        return [list(known[query] or ()) for query in queries]

    def get(self, passage_id: str) -> Passage | None:
        return self._inner.get(passage_id)

    def __len__(self) -> int:
        return len(self._inner)

    def close(self) -> None:
        self._inner.close()

    def _recall(self, query: str, topk: int) -> list[Hit] | None:
        hits = self._results.get((query, topk))
        if hits is not None:
            self._results.move_to_end((query, topk))
        return hits

    def _remember(self, found: dict[str, list[Hit]], topk: int) -> None:
        for query, hits in found.items():
            self._results[query, topk] = hits
        while len(self._results) > self._max_queries:
            self._results.popitem(last=False)
