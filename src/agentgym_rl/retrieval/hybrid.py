"""Several back ends as one: reciprocal-rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.passages import Passage

_RANK_OFFSET = 60
"""The constant k of the paper: the larger, the less the first ranks stand out."""
_MIN_DEPTH = 50


class HybridRetriever(Retriever):
    """Ranks by the sum over back ends of 1 / (60 + rank), the first rank being 1.

    All back ends must be over the same corpus. Equal sums keep the order of the first back end.
    """

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self._parts = tuple(parts)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        depth = max(topk, _MIN_DEPTH)
        answers = [part.search(queries, depth) for part in self._parts]
        return [fuse(rankings)[:topk] for rankings in zip(*answers, strict=True)]

    def get(self, passage_id: str) -> Passage | None:
        return self._parts[0].get(passage_id)

    def __len__(self) -> int:
        return len(self._parts[0])

    def close(self) -> None:
        for part in self._parts:
            part.close()


def fuse(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Return the hits of several rankings as one, each with its fused score."""
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            name = hit.passage.id
            scores[name] = scores.get(name, 0.0) + 1.0 / (_RANK_OFFSET + rank)
            passages.setdefault(name, hit.passage)
    # Sorting is stable, and a dict keeps the order of insertion.
    names = sorted(scores, key=lambda name: -scores[name])
    return [Hit(passages[name], scores[name]) for name in names]
