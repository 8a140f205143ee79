"""The questions of the three splits, chosen from the drafts of all kinds.

How many there are of each category and number of hops is fixed below. Within such a cell the kinds
take turns, and no bridge entity is in many questions of one kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from agentgym_rl.envs.searchqa.embedded import (
    kinds_bridge,
    kinds_comparison,
    kinds_intersection,
    kinds_single,
)
from agentgym_rl.envs.searchqa.embedded.draft import Draft
from agentgym_rl.envs.searchqa.embedded.pool import Pool
from agentgym_rl.envs.searchqa.embedded.splits import SPLITS, Split, split_of

Cell: TypeAlias = tuple[str, int]
"""Category and number of hops."""
Kind: TypeAlias = Callable[[Pool], Iterator[Draft]]

NUM_QUESTIONS: dict[Split, int] = {"train": 12_000, "dev": 1_000, "test": 1_500}

SHARES: dict[Cell, float] = {
    ("single", 1): 0.06,
    ("bridge", 2): 0.16,
    ("bridge", 3): 0.14,
    ("bridge", 4): 0.10,
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
    kinds_comparison.named_cities,
    kinds_comparison.half_described_films,
    kinds_comparison.described_films,
    kinds_comparison.countries_of_cities,
    kinds_intersection.actor_of_named,
    kinds_intersection.film_of_director_and_actor,
    kinds_intersection.actor_of_half_described,
    kinds_intersection.actor_of_described,
    kinds_intersection.country_between,
)

_MAX_PER_PERSON = 3
_MAX_PER_COUNTRY = {"train": 40, "dev": 8, "test": 12}
