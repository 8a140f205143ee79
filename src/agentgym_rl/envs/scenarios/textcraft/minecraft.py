"""Recipes of Minecraft 1.19, read from the data files of the package `minecraft-data`.

The data writes "any planks" out as one recipe per kind of planks; here they become one recipe with
a slot of several kinds. Recipes which only undo another are left out. Everything is computed from
sorted data, so that the book is the same on every machine.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias, TypedDict

from agentgym_rl.envs.scenarios.textcraft.recipes import (
    Recipe,
    RecipeBook,
    Slot,
    build_book,
    find_depths,
    shown,
)
from agentgym_rl.errors import EnvError, install_command

GAME_VERSION = "1.19"

# The game makes these two only out of something that was itself made from them, by recipes of
# more than one ingredient or kind, which the rule for pairs does not see.
_BASE_ITEMS = frozenset({"copper_ingot", "honey_bottle"})

# Names of larger sets by the endings of their kinds; smaller sets are named by their kinds.
_MAX_LISTED_KINDS = 3
_TRUNKS = ("_log", "_wood", "_stem", "_hyphae")
_SET_NAMES = (
    (("_planks",), "planks"),
    (("_wool",), "wool"),
    (("_slab",), "wooden slabs"),
    (_TRUNKS, "logs"),
)

_Part: TypeAlias = tuple[frozenset[str], int]
"""Kinds that will do, and how many."""
_Variant: TypeAlias = tuple[int, frozenset[_Part]]
"""A recipe of a known output: how many it makes, and its parts."""


class _Result(TypedDict):
    id: int
    count: int


class _RawRecipe(TypedDict, total=False):
    result: _Result
    inShape: list[list[int | None]]
    ingredients: list[int]


class _RawItem(TypedDict):
    id: int
    name: str


@cache
def load_book() -> RecipeBook:
    """Return the book of the game's recipes; read and built once per process."""
    folder = _data_folder()
    items: list[_RawItem] = json.loads((folder / "items.json").read_text(encoding="utf-8"))
    raw: dict[str, list[_RawRecipe]] = json.loads(
        (folder / "recipes.json").read_text(encoding="utf-8")
    )
    names = {item["id"]: item["name"] for item in items}
    numbers = {item["name"]: item["id"] for item in items}
    recipes = [
        _as_recipe(names[int(output)], variant)
        for output, variants in raw.items()
        for variant in merge_variants(_variant(recipe, names) for recipe in variants)
    ]
    return build_book(_with_ordered_kinds(drop_reversals(recipes), numbers))


def merge_variants(variants: Iterable[_Variant]) -> set[_Variant]:
    """Join variants of one output that differ in the kinds of one part only, until none do.

    Joining is exact: the result stands for the same set of fillings. The largest group goes first
    (ties by content), which puts products of two sets back together whatever the order of input.
    """
    merged = set(variants)
    while True:
        groups: defaultdict[tuple[int, frozenset[_Part], int], set[_Variant]] = defaultdict(set)
        for makes, parts in merged:
            for part in parts:
                groups[makes, parts - {part}, part[1]].add((makes, parts))
        largest = max(map(len, groups.values()))
        if largest == 1:
            return merged
        candidates = (key for key, members in groups.items() if len(members) == largest)
        makes, others, count = min(candidates, key=lambda key: (key[0], _sorted(key[1]), key[2]))
        members = groups[makes, others, count]
        kinds = frozenset(
            kind
            for _, parts in members
            for kinds_of_part, _ in parts - others
            for kind in kinds_of_part
        )
        merged = (merged - members) | {(makes, others | {(kinds, count)})}


def drop_reversals(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Leave out what leads back: unpacking of blocks, packing of nuggets, dyeing of finished goods.

    - Of two recipes that turn one item into the other and back, the one that makes the block or
      the nugget stays.
    - A white thing dyed into a coloured one goes where the coloured one has a recipe of its own
      (beds and carpets), else coloured goods would be as shallow as white ones.
    """
    pairs = {(recipe.output, _only_kind(recipe)) for recipe in recipes}
    num_recipes = Counter(recipe.output for recipe in recipes)

    def is_reversal(recipe: Recipe) -> bool:
        is_back = (_only_kind(recipe), recipe.output) in pairs
        return is_back and not recipe.output.endswith(("_block", "_nugget"))

    def is_recolouring(recipe: Recipe) -> bool:
        white = "white_" + recipe.output.rpartition("_")[2]
        is_dyed = any(slot.kinds == (white,) for slot in recipe.slots) and white != "white_dye"
        return is_dyed and num_recipes[recipe.output] > 1

    return [
        recipe
        for recipe in recipes
        if recipe.output not in _BASE_ITEMS
        and not is_reversal(recipe)
        and not is_recolouring(recipe)
    ]


def name_kinds(kinds: Sequence[str]) -> str:
    """Return the shown name of a slot with these kinds, e.g. "planks" or "coal or charcoal"."""
    if len(kinds) > _MAX_LISTED_KINDS:
        wood, _, _ = kinds[0].rpartition("_")
        if kinds[0].endswith(_TRUNKS) and all(wood in kind for kind in kinds):
            return shown(kinds[0]) + "s"
        for endings, name in _SET_NAMES:
            if all(kind.endswith(endings) for kind in kinds):
                return name
    return " or ".join(shown(kind) for kind in kinds)


def _data_folder() -> Path:
    """Find the data without importing the package, whose import reads far more than we need."""
    spec = find_spec("minecraft_data")
    if spec is None or not spec.submodule_search_locations:
        raise EnvError(
            "environment 'textcraft' needs 'minecraft-data', which is not installed: "
            f"{install_command('textcraft')}"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "data" / "pc" / GAME_VERSION


def _variant(recipe: _RawRecipe, names: dict[int, str]) -> _Variant:
    """Count the pieces of each kind, in whatever places of the crafting grid they lie."""
    rows = recipe["inShape"] if "inShape" in recipe else [list(recipe["ingredients"])]
    counts = Counter(names[cell] for row in rows for cell in row if cell is not None)
    parts = frozenset((frozenset({kind}), count) for kind, count in counts.items())
    return recipe["result"]["count"], parts


def _as_recipe(output: str, variant: _Variant) -> Recipe:
    makes, parts = variant
    slots = tuple(Slot(name="", kinds=kinds, count=count) for kinds, count in _sorted(parts))
    return Recipe(output=output, makes=makes, slots=slots)


def _with_ordered_kinds(recipes: Sequence[Recipe], numbers: dict[str, int]) -> list[Recipe]:
    """Put the kinds of every slot in their order, which needs depths, and name the slots."""
    depths = find_depths(recipes)

    def ordered(slot: Slot) -> Slot:
        kinds = tuple(sorted(slot.kinds, key=lambda kind: (depths[kind], numbers[kind])))
        return Slot(name=name_kinds(kinds), kinds=kinds, count=slot.count)

    return [
        Recipe(recipe.output, recipe.makes, tuple(ordered(slot) for slot in recipe.slots))
        for recipe in recipes
    ]


def _only_kind(recipe: Recipe) -> str | None:
    """Return the single kind that the recipe consumes, None where there are several."""
    kinds = [kind for slot in recipe.slots for kind in slot.kinds]
    return kinds[0] if len(kinds) == 1 else None


def _sorted(parts: Iterable[_Part]) -> list[tuple[tuple[str, ...], int]]:
    return sorted((tuple(sorted(kinds)), count) for kinds, count in parts)
