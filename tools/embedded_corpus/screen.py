"""Tries the questions with the real index and lists the unsuitable ones.

    python -m tools.embedded_corpus.screen

A question that should take several searches is screened out if one search that a reader might make
(`benchmarks/shortcuts.py`) gives it away in its first three passages. Any question is screened out
if a query of its path does not find its passage among the first three. Drafts are tried in the
order in which they are chosen, so the list has every draft for which a split had room.

The index is built from the corpus in the package. If passages have changed, run `build` first; run
it again afterwards, to leave the listed questions out.
"""

from __future__ import annotations

import logging
from collections import Counter

from agentgym_rl.envs.scenarios.searchqa.embedded import embedded_corpus_file
from agentgym_rl.retrieval.base import Retriever
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever
from benchmarks.shortcuts import TOPK, first_searches, gives_away
from tools.embedded_corpus.choose import choose
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.pool import Pool
from tools.embedded_corpus.screened import save_screened_out
from tools.embedded_corpus.world import load_world

logger = logging.getLogger(__name__)


def is_wanting(draft: Draft, retriever: Retriever) -> bool:
    """Return whether the draft is unsuitable for every split."""
    found = retriever.search([hop.query for hop in draft.path], TOPK)
    if any(
        hop.passage_id not in {hit.passage.id for hit in hits}
        for hop, hits in zip(draft.path, found, strict=True)
    ):
        return True
    if draft.category == "single":
        return False
    tries = retriever.search(first_searches(draft.text, draft.path), TOPK)
    return any(gives_away(draft.as_question(0), hits) for hits in tries)


def screen(pool: Pool, retriever: Retriever) -> frozenset[str]:
    """Return the keys of all unsuitable drafts that were met while choosing."""
    wanting: set[str] = set()
    num_tried = 0

    def is_screened_out(draft: Draft) -> bool:
        nonlocal num_tried
        num_tried += 1
        if num_tried % 1000 == 0:
            logger.info("%d tried, %d screened out", num_tried, len(wanting))
        if is_wanting(draft, retriever):
            wanting.add(draft.key)
            return True
        return False

    chosen = choose(pool, is_screened_out)
    for split, drafts in chosen.items():
        cells = Counter((draft.category, len(draft.gold)) for draft in drafts)
        logger.info("%s: %d questions, %s", split, len(drafts), dict(cells))
    return frozenset(wanting)


def main() -> None:
    """Write the list."""
    with open_retriever(RetrieverOptions(corpus=str(embedded_corpus_file()))) as retriever:
        save_screened_out(screen(Pool(load_world()), retriever))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
