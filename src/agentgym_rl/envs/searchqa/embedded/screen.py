"""Tries the questions with the real index and lists those that will not do.

    python -m agentgym_rl.envs.searchqa.embedded.screen

A question that should take several searches is screened out if one search with its own text finds
all its gold passages, or has the answer in the first passage. Any question is screened out if a
query of its path does not find its passage among the first three. What is dropped is replaced by
other drafts, which are tried in turn, until all pass. What was listed before stays listed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from agentgym_rl.envs.searchqa.embedded.choose import choose
from agentgym_rl.envs.searchqa.embedded.draft import Draft
from agentgym_rl.envs.searchqa.embedded.names import fold
from agentgym_rl.envs.searchqa.embedded.pool import Pool
from agentgym_rl.envs.searchqa.embedded.screened import load_screened_out, save_screened_out
from agentgym_rl.envs.searchqa.embedded.store import embedded_corpus_file
from agentgym_rl.envs.searchqa.embedded.world import load_world
from agentgym_rl.envs.searchqa.retrieval.base import Hit, Retriever
from agentgym_rl.envs.searchqa.retrieval.open import RetrieverOptions, open_retriever

logger = logging.getLogger(__name__)

TOPK = 3
_ROOM = 1.1
"""Drafts that are tried in one go, as a multiple of those that are needed."""


def holds_answer(hits: Iterable[Hit], answers: Sequence[str]) -> bool:
    """Return whether one of the passages has one of the answers as words of its text."""
    texts = [f" {fold(hit.passage.contents)} " for hit in hits]
    return any(f" {fold(answer)} " in text for answer in answers for text in texts)


def is_wanting(draft: Draft, retriever: Retriever) -> bool:
    """Return whether the draft may be in no split.

    A comparison names its answer or counts it out; that a passage holds it means nothing.
    """
    if draft.category != "single":
        hits = retriever.search([draft.text], TOPK)[0]
        if set(draft.gold) <= {hit.passage.id for hit in hits}:
            return True
        if draft.category != "comparison" and holds_answer(hits[:1], draft.answers):
            return True
    found = retriever.search([hop.query for hop in draft.path], TOPK)
    return any(
        hop.passage_id not in {hit.passage.id for hit in hits}
        for hop, hits in zip(draft.path, found, strict=True)
    )


def screen(pool: Pool, retriever: Retriever, screened_out: frozenset[str]) -> frozenset[str]:
    """Return the keys of all drafts to drop, those of `screened_out` among them."""
    passed: set[str] = set()
    while any(draft.key not in passed for draft in _chosen(pool, screened_out, room=1.0)):
        drafts = _chosen(pool, screened_out, room=_ROOM)
        untried = [draft for draft in drafts if draft.key not in passed]
        wanting = {draft.key for draft in untried if is_wanting(draft, retriever)}
        passed.update(draft.key for draft in untried if draft.key not in wanting)
        screened_out |= wanting
        logger.info("%d tried, %d screened out", len(untried), len(wanting))
    return screened_out


def _chosen(pool: Pool, screened_out: frozenset[str], *, room: float) -> list[Draft]:
    by_split = choose(pool, screened_out, room=room)
    return [draft for drafts in by_split.values() for draft in drafts]


def main() -> None:
    """Add to the list what does not pass now."""
    with open_retriever(RetrieverOptions(corpus=str(embedded_corpus_file()))) as retriever:
        save_screened_out(screen(Pool(load_world()), retriever, load_screened_out()))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
