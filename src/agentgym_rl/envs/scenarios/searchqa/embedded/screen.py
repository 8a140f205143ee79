"""Tries the questions with the real index and lists those that will not do.

    python -m agentgym_rl.envs.scenarios.searchqa.embedded.screen

A question that should take several searches is screened out if one search that a reader of it might
make (`probes.py`) gives it away among its first three passages. Any question is screened out if a
query of its path does not find its passage among the first three. Drafts are tried in the order in
which they are chosen, so the list has all that a split would have had room for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from agentgym_rl.envs.scenarios.searchqa.embedded.choose import choose
from agentgym_rl.envs.scenarios.searchqa.embedded.draft import Draft
from agentgym_rl.envs.scenarios.searchqa.embedded.names import fold
from agentgym_rl.envs.scenarios.searchqa.embedded.pool import Pool
from agentgym_rl.envs.scenarios.searchqa.embedded.probes import first_searches, names_in
from agentgym_rl.envs.scenarios.searchqa.embedded.screened import save_screened_out
from agentgym_rl.envs.scenarios.searchqa.embedded.store import embedded_corpus_file
from agentgym_rl.envs.scenarios.searchqa.embedded.world import load_world
from agentgym_rl.envs.scenarios.searchqa.questions import Question
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever

logger = logging.getLogger(__name__)

TOPK = 3


def gives_away(draft: Draft | Question, hits: Sequence[Hit]) -> bool:
    """Return whether the passages of one search answer the question, or as good as.

    - They are all its gold passages, or hold all the numbers that it compares.
    - One of them has the answer. For what two things have in common, the long list of one of them
      may have it, if it is not in a second passage.
    """
    found = {hit.passage.id for hit in hits}
    if found.issuperset(draft.gold) or found.issuperset(_compared(draft)):
        return True
    if draft.category == "comparison":
        return False
    texts = [f" {fold(hit.passage.contents)} " for hit in hits]
    holding = [hit for hit, text in zip(hits, texts, strict=True) if _has_answer(draft, text)]
    if draft.category == "bridge" or len(holding) > 1:
        return bool(holding)
    names = [fold(name) for name in names_in(draft.text)]
    return any(
        not any(fold(hit.passage.title).startswith(name) for name in names)
        or all(f" {name} " in f" {fold(hit.passage.contents)} " for name in names)
        or draft.path[-1].passage_id == hit.passage.id
        for hit in holding
    )


def _compared(draft: Draft | Question) -> frozenset[str]:
    """Return the ids of the passages with the numbers that a comparison is about, else all."""
    if draft.category != "comparison":
        return frozenset(draft.gold)
    return frozenset(hop.passage_id for hop in draft.path if hop.finding[:1].isdigit())


def _has_answer(draft: Draft | Question, text: str) -> bool:
    """Return whether a folded text has the answer as words; a bare number is none."""
    forms = [form for form in map(fold, draft.answers) if form and not form.isdigit()]
    return any(f" {form} " in text for form in forms)


def is_wanting(draft: Draft, retriever: Retriever) -> bool:
    """Return whether the draft may be in no split."""
    found = retriever.search([hop.query for hop in draft.path], TOPK)
    if any(
        hop.passage_id not in {hit.passage.id for hit in hits}
        for hop, hits in zip(draft.path, found, strict=True)
    ):
        return True
    if draft.category == "single":
        return False
    tries = retriever.search(first_searches(draft.text, draft.path), TOPK)
    return any(gives_away(draft, hits) for hits in tries)


def screen(pool: Pool, retriever: Retriever) -> frozenset[str]:
    """Return the keys of all drafts that were met and found wanting while choosing."""
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
    """Write the list anew."""
    with open_retriever(RetrieverOptions(corpus=str(embedded_corpus_file()))) as retriever:
        save_screened_out(screen(Pool(load_world()), retriever))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
