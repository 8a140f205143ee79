"""Which goals are for training and which for testing.

The test split has 100 goals, by depth in the mix of the AgentGym-RL paper. Goals that differ only
in colour, wood or finish ("red wool" and "lime wool") are one family, and a family lies wholly on
one side: who has trained on fifteen colours of wool has seen the sixteenth. Families with more
goals at one depth than the test split has room for (beds, banners, carpets) are for training only.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

from agentgym_rl.envs.scenarios.textcraft.minecraft import load_book

NUM_TEST_GOALS = {1: 31, 2: 41, 3: 25, 4: 3}
"""Test goals by depth."""

_SALT = "textcraft split"

_FINISHES = ("waxed_", "exposed_", "weathered_", "oxidized_", "stripped_")
_COLOURS = (
    *("light_blue_", "light_gray_", "white_", "orange_", "magenta_", "yellow_", "lime_", "pink_"),
    *("gray_", "cyan_", "purple_", "blue_", "brown_", "green_", "red_", "black_"),
)
_WOODS = (
    *("dark_oak_", "oak_", "spruce_", "birch_", "jungle_", "acacia_", "mangrove_"),
    *("crimson_", "warped_"),
)


@cache
def split_of_goals() -> tuple[str, ...]:
    """Return "train" or "test" for every goal of the book, in the book's order."""
    test = _draw_test_families()
    return tuple("test" if family_of(goal) in test else "train" for goal in load_book().goals)


def family_of(item: str) -> str:
    """Return what is left of the name without finish, colour and wood, e.g. "wool"."""
    for finish in _FINISHES:
        item = item.removeprefix(finish)
    for variety in (*_COLOURS, *_WOODS):
        if item.startswith(variety):
            item = item.removeprefix(variety)
            break
    # The same thing under the name that the two woods of the Nether have for it.
    return "wood" if item == "hyphae" else item


def _draw_test_families() -> frozenset[str]:
    """Take families in a fixed random order as long as they fit into what every depth has left."""
    book = load_book()
    num_by_family: dict[str, Counter[int]] = {}
    for goal in book.goals:
        num_by_family.setdefault(family_of(goal), Counter())[book.depths[goal]] += 1
    # Only `random()` is promised to stay the same over versions of Python, not `shuffle`.
    rng = random.Random(_SALT)
    order = sorted((rng.random(), family) for family in sorted(num_by_family))
    left = Counter(NUM_TEST_GOALS)
    chosen = set()
    for _, family in order:
        if num_by_family[family] <= left:
            left -= num_by_family[family]
            chosen.add(family)
    assert not left, f"the test split lacks goals at depths {dict(left)}"
    return frozenset(chosen)
