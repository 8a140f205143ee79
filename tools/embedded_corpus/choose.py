"""The questions of the three splits, chosen from the drafts of all kinds.

The number of questions of each category and number of hops is fixed below. Within such a cell the
kinds take turns, and no bridge entity occurs in many questions of one kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TypeAlias

from agentgym_rl.envs.scenarios.searchqa.embedded import SPLITS, Split
from tools.embedded_corpus import (
    kinds_bridge,
    kinds_comparison,
    kinds_intersection,
    kinds_single,
)
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.pool import Pool
from tools.embedded_corpus.splits import split_of

Cell: TypeAlias = tuple[str, int]
"""Category and number of hops."""
Kind: TypeAlias = Callable[[Pool], Iterator[Draft]]

NUM_QUESTIONS: dict[Split, int] = {"train": 10_000, "dev": 1_000, "test": 1_500}

SHARES: dict[Cell, float] = {
    ("single", 1): 0.06,
    ("bridge", 2): 0.17,
    ("bridge", 3): 0.15,
    ("bridge", 4): 0.08,
    ("comparison", 2): 0.06,
    ("comparison", 3): 0.10,
    ("comparison", 4): 0.12,
    ("intersection", 2): 0.12,
    ("intersection", 3): 0.08,
    ("intersection", 4): 0.06,
}

KINDS: tuple[Kind, ...] = (
    kinds_single.film_fact,
    kinds_single.city_fact,
    kinds_single.country_fact,
    kinds_bridge.director_film,
    kinds_bridge.writer_film,
    kinds_bridge.city_country,
    kinds_bridge.film_country,
    kinds_bridge.director_film_fact,
    kinds_bridge.city_border,
    kinds_bridge.director_film_country,
    kinds_bridge.director_film_writer_film,
    kinds_comparison.named_films,
    kinds_comparison.half_described_films,
    kinds_comparison.described_films,
    kinds_comparison.countries_of_cities,
    kinds_intersection.film_of_director_and_actor,
    kinds_intersection.film_of_common_actor,
    kinds_intersection.film_of_half_described_common_actor,
    kinds_intersection.country_between,
)

_MAX_PER_PERSON = 3
_MAX_ANSWER_SHARE = 0.02
"""Of questions of a cell with the same answer, so that guessing does not pay."""
_MAX_PER_COUNTRY = {"train": 40, "dev": 8, "test": 12}


def choose(pool: Pool, is_screened_out: Callable[[Draft], bool]) -> dict[Split, list[Draft]]:
    """Return the drafts of every split, without those that are screened out.

    Only drafts for which a split has room are screened, in an order that never changes.
    """
    found: dict[tuple[Split, Cell], list[list[Draft]]] = defaultdict(list)
    seen: set[str] = set()
    answers: Counter[tuple[Split, Cell, str]] = Counter()
    for kind in KINDS:
        for place, drafts in _drafts_of(kind, pool, is_screened_out, seen, answers).items():
            found[place].append(drafts)
    return {
        split: [
            draft for cell in SHARES for draft in _in_turns(found[split, cell], quota(split, cell))
        ]
        for split in SPLITS
    }


def quota(split: Split, cell: Cell) -> int:
    """Return how many questions of a cell a split may have."""
    return round(NUM_QUESTIONS[split] * SHARES[cell])


def _drafts_of(
    kind: Kind,
    pool: Pool,
    is_screened_out: Callable[[Draft], bool],
    seen: set[str],
    answers: Counter[tuple[Split, Cell, str]],
) -> dict[tuple[Split, Cell], list[Draft]]:
    """Return the drafts of one kind by split and cell, at most as many as fit there."""
    drafts: dict[tuple[Split, Cell], list[Draft]] = defaultdict(list)
    uses: Counter[str] = Counter()
    for draft in kind(pool):
        split = split_of(draft.bridges)
        cell = (draft.category, len(draft.gold))
        if split is None or len(drafts[split, cell]) >= quota(split, cell):
            if all(len(drafts[split, cell]) >= quota(split, cell) for split in SPLITS):
                break
            continue
        if (
            draft.text not in seen
            and not draft.gives_itself_away
            and answers[split, cell, draft.answers[0]] < _max_same(split, cell)
            and _has_room(draft, split, uses)
            and not is_screened_out(draft)
        ):
            answers[split, cell, draft.answers[0]] += 1
            uses.update(draft.bridges)
            seen.add(draft.text)
            drafts[split, cell].append(draft)
    return drafts


def _max_same(split: Split, cell: Cell) -> int:
    return max(1, int(_MAX_ANSWER_SHARE * quota(split, cell)))


def _has_room(draft: Draft, split: Split, uses: Counter[str]) -> bool:
    return all(
        uses[bridge]
        < (_MAX_PER_COUNTRY[split] if bridge.startswith("country ") else _MAX_PER_PERSON)
        for bridge in draft.bridges
    )


def _in_turns(kinds: list[list[Draft]], limit: int) -> list[Draft]:
    """Return at most `limit` drafts, one of every kind at a time."""
    longest = max(map(len, kinds), default=0)
    turns = (drafts[turn] for turn in range(longest) for drafts in kinds if turn < len(drafts))
    return [draft for draft, _ in zip(turns, range(limit), strict=False)]
